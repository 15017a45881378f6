"""The schemas of what is written about live peers: by ``replay``, ``serve`` and ``mutate``."""

from __future__ import annotations

from collections.abc import Mapping

from mqttscope.broker_test.verdict import Verdict as Ruled
from mqttscope.dev.schemas.events import definitions
from mqttscope.dev.schemas.reports import PACKET
from mqttscope.mutate.flow import Action
from mqttscope.mutate.mutation import Demand, MutationKind, Verdict
from mqttscope.replay.script_file import ENDS, KIND
from mqttscope.replay.verify.difference import DeviceKind, DifferenceKind
from mqttscope.report.documents import (
    ANY,
    BOOL,
    COUNT,
    HEX,
    NAME,
    NUMBER,
    PROTOCOL,
    SIDE,
    TEXT,
    VERSION_1,
    WHOLE,
    Schema,
    any_of,
    each,
    mapping,
    maybe,
    record,
    rows,
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
    return {"anyOf": lines, "$defs": definitions()}


_SPACED = {"type": "string", "pattern": "^[0-9a-f]{2}( [0-9a-f]{2})*$"}
"""Bytes as people read them."""
_REACTION = {"demand": word(Demand), "reason_codes": each(COUNT)}
_STEP = record(
    {"action": word(Action), "entry": maybe(COUNT), "mutated": BOOL},
    {"data": HEX, "nanoseconds": WHOLE, "awaits": maybe(TEXT), "packet_identifier": maybe(COUNT)},
)
_CHANGE = record({"entry": maybe(COUNT), "field": TEXT, "offset": COUNT, "removed": HEX, "inserted": HEX})
_CASE = record(
    {
        "schema": VERSION_1, "capture_hash": HEX, "connection": COUNT, "seed": WHOLE, "case": WHOLE, "mutation": TEXT,
        "kind": word(MutationKind), "description": TEXT, "sender": SIDE, "version": PROTOCOL, "verdict": word(Verdict),
        "statements": each(TEXT), "at": COUNT,
        "reaction": record({**_REACTION, "within_keep_alive": BOOL, "demanded_by": each(TEXT)}),
    },
    {"changes": each(_CHANGE), "steps": each(_STEP), "redacted": BOOL},
)  # fmt: skip
_REDUCED: tuple[dict[str, Schema], dict[str, Schema]] = (
    {
        "tries": COUNT, "sends": each(HEX), "shell": any_of(TEXT, each(TEXT)), "breaks": each(TEXT),
        "fault": maybe(TEXT),
        "unfinished": any_of(BOOL, maybe(TEXT)),
    },
    {"redacted": BOOL},
)  # fmt: skip
_RESULT = (
    {
        "number": maybe(COUNT), "verdict": maybe(word(Ruled)), "why": TEXT, "statements": each(TEXT), "seconds": NUMBER,
        "case": _CASE,
    },
    {"left_behind": each(TEXT), "reduced": record(*_REDUCED), "broker": NAME},
)  # fmt: skip
_RUN = {
    "broker": NAME, "capture": NAME, "capture_hash": HEX, "seed": WHOLE, "cases": COUNT, "deviations": COUNT,
    "verdicts": mapping(COUNT), "not_played": rows("reason", TEXT, "cases"), "too_long": COUNT,
    "unspoken_versions": each(TEXT), "seconds": NUMBER, "stopped": TEXT,
}  # fmt: skip
_WRITTEN = {
    "file": NAME, "capture": NAME, "capture_hash": HEX, "seed": WHOLE, "connections": COUNT,
}  # fmt: skip
_MUTATED = _line("mutated_flow", {
    "connection": COUNT, "frame": COUNT, "client": TEXT, "server": TEXT, "number": maybe(COUNT), "mutation": TEXT,
    "version": PROTOCOL, "verdict": word(Verdict), "statements": each(TEXT), "cited_instead": each(TEXT),
    "reaction": record(_REACTION), "recorded_connection": COUNT,
})  # fmt: skip
_MUTATION = record({
    "schema": VERSION_1, "mutation": TEXT, "kind": word(MutationKind), "description": TEXT, "packet_type": TEXT,
    "field": TEXT, "senders": each(SIDE),
    "versions": mapping(record({
        "verdict": word(Verdict), "statements": each(TEXT), **_REACTION, "within_keep_alive": BOOL,
        "demanded_by": each(TEXT), "cited_instead": each(TEXT),
    })),
})  # fmt: skip


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
    reduced = record({**_REDUCED[0], "case": _CASE}, _REDUCED[1])
    return _line("case", _RESULT[0], {**_RESULT[1], "reduced": reduced})


def mutate_line() -> Schema:
    """A line of ``mutate --format jsonl``: of a run, of what ``--write`` wrote, or of ``--list``."""
    return {"oneOf": [_line("case", *_RESULT), _line("mutate", _RUN), _MUTATED, _line("written", _WRITTEN), _MUTATION]}


def mutate() -> Schema:
    """The document of ``mutate --format json``: of a run, of several, of what was written, or of ``--list``."""
    run = _line("mutate", {**_RUN, "results": each(_line("case", *_RESULT))})
    matrix = _line("matrix", {"runs": each(run)})
    written = _line("written", {**_WRITTEN, "flows": each(_MUTATED)})
    return {"oneOf": [run, matrix, written, each(_MUTATION)]}
