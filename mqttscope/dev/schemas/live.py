"""The schemas of what is written about live peers: by ``replay``, ``serve`` and ``mutate``."""

from __future__ import annotations

from collections.abc import Mapping

from mqttscope.replay.script_file import ENDS, KIND
from mqttscope.replay.verify.difference import DeviceKind, DifferenceKind
from mqttscope.report.broker_test.listing import MUTATED_FLOW, MUTATION
from mqttscope.report.broker_test.outcome import CASE, LEFT_BEHIND, REDUCED, RESULT, SUMMARY
from mqttscope.report.documents import (
    ANY,
    BOOL,
    COUNT,
    HEX,
    NAME,
    NUMBER,
    PACKET,
    PROTOCOL,
    SIDE,
    TEXT,
    VERSION_1,
    WHOLE,
    Schema,
    any_of,
    each,
    maybe,
    record,
    word,
)
from mqttscope.report.findings.json import FINDING
from mqttscope.report.replay.json import COMPARED, VERIFICATION
from mqttscope.report.replay.summary import LATENCY, PLAN, REPLAY, SERVE


def _line(event: str, keys: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return record({"schema": VERSION_1, "event": {"const": event}, **keys}, optional)


def replay_line() -> Schema:
    """A line of ``replay`` and ``serve`` with ``--format jsonl``; with ``--lint`` also findings."""
    lines = [
        _line("difference", {
            "kind": word(DifferenceKind, DeviceKind),
            "connection": COUNT, "name": NAME, "version": PROTOCOL, "field": maybe(TEXT), "expected": ANY, "found": ANY,
            "message": NAME, "follows": COUNT, "because_of": maybe(record({"option": TEXT, "certain": BOOL})),
            "cause": maybe(TEXT), "recorded": maybe(PACKET), "live": maybe(PACKET),
        }),
        _line("verified_connection", {"connection": COUNT, "name": NAME, **COMPARED}),
        VERIFICATION, LATENCY, REPLAY, PLAN, SERVE,
        FINDING,
    ]  # fmt: skip
    return any_of(*lines)


_SPACED = {"type": "string", "pattern": "^[0-9a-f]{2}( [0-9a-f]{2})*$"}
"""Bytes as people read them."""
_WRITTEN = {
    "file": NAME, "capture": NAME, "capture_hash": HEX, "seed": WHOLE, "connections": COUNT,
}  # fmt: skip
_RESULT = record(RESULT, {**LEFT_BEHIND, "reduced": REDUCED, "broker": NAME})
_SENT = record({"after": NUMBER, "from": SIDE, "says": TEXT, "bytes": _SPACED})
_ENDED = record({"after": NUMBER, "from": SIDE, "ends": word(*ENDS)})


def script() -> Schema:
    """A script of a connection: what ``inspect --output FILE.json`` writes and ``replay`` plays."""
    return record(
        {
            "schema": VERSION_1, "script": {"const": KIND}, "about": TEXT, "version": PROTOCOL, "client": TEXT,
            "server": TEXT, "opened_ns": COUNT, "hidden": each(record({"step": COUNT, "fields": each(TEXT)})),
            "steps": {**each(any_of(_SENT, _ENDED)), "minItems": 1},
        },
        {"how to give them": TEXT},
    )  # fmt: skip


def mutate_case() -> Schema:
    """The file of a case that ``mutate --reduce`` writes: a line of the run, with the smaller case."""
    keys: Schema = {**REDUCED["properties"]}
    redacted = keys.pop("redacted")
    reduced = record({**keys, "case": CASE}, {"redacted": redacted})
    return record(RESULT, {**LEFT_BEHIND, "reduced": reduced, "broker": NAME})


def mutate_line() -> Schema:
    """A line of ``mutate --format jsonl``: of a run, of what ``--write`` wrote, or of ``--list``."""
    return {"oneOf": [_RESULT, record(SUMMARY), MUTATED_FLOW, _line("written", _WRITTEN), MUTATION]}


def mutate() -> Schema:
    """The document of ``mutate --format json``: of a run, of several, of what was written, or of ``--list``."""
    run = record({**SUMMARY, "results": each(_RESULT)})
    matrix = _line("matrix", {"runs": each(run)})
    written = _line("written", {**_WRITTEN, "flows": each(MUTATED_FLOW)})
    return {"oneOf": [run, matrix, written, each(MUTATION)]}
