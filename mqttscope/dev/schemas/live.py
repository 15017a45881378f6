"""The schemas of documents about live peers: from ``replay``, ``serve`` and ``mutate``."""

from __future__ import annotations

from collections.abc import Mapping

from mqttscope.replay.script_file import ENDS, KIND
from mqttscope.report import documents as doc
from mqttscope.report.broker_test.listing import MUTATED_FLOW, MUTATION
from mqttscope.report.broker_test.outcome import CASE, LEFT_BEHIND, REDUCED, RESULT, SUMMARY
from mqttscope.report.findings.json import FINDING
from mqttscope.report.replay.json import DIFFERENCE, VERIFICATION, VERIFIED
from mqttscope.report.replay.summary import LATENCY, PLAN, REPLAY, SERVE


def _line(event: str, keys: Mapping[str, doc.Schema]) -> doc.Schema:
    return doc.record({"schema": doc.VERSION_1, "event": {"const": event}, **keys})


def replay_line() -> doc.Schema:
    """A line of ``replay`` and ``serve`` with ``--format jsonl``; with ``--lint`` also findings."""
    return doc.any_of(DIFFERENCE, VERIFIED, VERIFICATION, LATENCY, REPLAY, PLAN, SERVE, FINDING)


_SPACED = {"type": "string", "pattern": "^[0-9a-f]{2}( [0-9a-f]{2})*$"}
"""Bytes as hexadecimal text with spaces."""
_WRITTEN = {
    "file": doc.NAME, "capture": doc.NAME, "capture_hash": doc.HEX, "seed": doc.WHOLE, "connections": doc.COUNT,
}  # fmt: skip
_RESULT = doc.record(RESULT, {**LEFT_BEHIND, "reduced": REDUCED, "broker": doc.NAME})
_SENT = doc.record({"after": doc.NUMBER, "from": doc.SIDE, "says": doc.TEXT, "bytes": _SPACED})
_ENDED = doc.record({"after": doc.NUMBER, "from": doc.SIDE, "ends": doc.word(*ENDS)})


def script() -> doc.Schema:
    """A script of a connection, written by ``inspect --output FILE.json`` and played by ``replay``."""
    return doc.record(
        {
            "schema": doc.VERSION_1, "script": {"const": KIND}, "about": doc.TEXT, "version": doc.PROTOCOL,
            "client": doc.TEXT, "server": doc.TEXT, "opened_ns": doc.COUNT,
            "hidden": doc.each(doc.record({"step": doc.COUNT, "fields": doc.each(doc.TEXT)})),
            "steps": doc.some(doc.any_of(_SENT, _ENDED)),
        },
        {"how to give them": doc.TEXT},
    )  # fmt: skip


def mutate_case() -> doc.Schema:
    """The file of a case that ``mutate --reduce`` writes: a line of the run, with the smaller case."""
    keys: doc.Schema = {**REDUCED["properties"]}
    redacted = keys.pop("redacted")
    reduced = doc.record({**keys, "case": CASE}, {"redacted": redacted})
    return doc.record(RESULT, {**LEFT_BEHIND, "reduced": reduced, "broker": doc.NAME})


def mutate_line() -> doc.Schema:
    """A line of ``mutate --format jsonl``: of a run, of a capture written by ``--write``, or of ``--list``."""
    return {"oneOf": [_RESULT, doc.record(SUMMARY), MUTATED_FLOW, _line("written", _WRITTEN), MUTATION]}


def mutate() -> doc.Schema:
    """The document of ``mutate --format json``: of a run, of several, of a written capture, or of ``--list``."""
    run = doc.record({**SUMMARY, "results": doc.each(_RESULT)})
    matrix = _line("matrix", {"runs": doc.each(run)})
    written = _line("written", {**_WRITTEN, "flows": doc.each(MUTATED_FLOW)})
    return {"oneOf": [run, matrix, written, doc.each(MUTATION)]}
