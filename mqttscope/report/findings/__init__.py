"""Findings as output: one module per kind of format, all with ``feed(finding, suppressed)`` and ``close(summary)``.

``full`` and ``concise`` are for people, ``markdown`` for job summaries, ``json`` and ``jsonl`` for scripts, ``sarif``,
``junit``, ``github`` and ``gitlab`` for the machinery of others, ``statistics`` counts.  ``shown`` knows them by
name.  What an engineer sees on a terminal goes through `report.escape`; every other format has the escapes of its own.
"""
