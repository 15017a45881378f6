"""Findings as output: one module per kind of format, all with ``feed(finding, suppressed)`` and ``close(summary)``.

``full`` and ``concise`` are for people, ``markdown`` for job summaries, ``json`` for scripts, ``sarif``, ``junit`` and
``annotations`` (GitHub, GitLab) for CI systems; ``statistics`` counts.  ``shown`` creates a format by its name.
Terminal text goes through `report.escape`; every other format has its own escapes.
"""
