"""The schemas of what is written about lakes: by ``pipeline ingest``, ``report`` and ``sql``.

The keys of a report are the fields of its dataclasses, as `report.fleet.text.document` writes them.
"""

from __future__ import annotations

from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.summary import SUMS, OfConnections
from mqttscope.lint.finding import Severity
from mqttscope.net.segment import UNREAD
from mqttscope.report.documents import (
    ANY,
    BOOL,
    CAPTURE_ERROR,
    COUNT,
    NAME,
    NUMBER,
    SIDE,
    TEXT,
    VERSION_1,
    WHOLE,
    Schema,
    each,
    mapping,
    maybe,
    record,
    times,
    word,
)
from mqttscope.report.findings.json import FAILURE
from mqttscope.report.fleet.model import FleetReport, Percentiles, Ranked
from mqttscope.report.fleet.text import TIMES
from mqttscope.stats.as_json import TAPS


def _counts(*names: str) -> Schema:
    """Counts by name; those that are 0 may be left out."""
    return record({}, dict.fromkeys(names, COUNT))


def ingest() -> Schema:
    """The document of ``pipeline ingest --format json``."""
    names = each(NAME)
    return record(
        {
            "schema": VERSION_1, "lake": NAME, "generation": COUNT,
            **dict.fromkeys(("captures", "grown", "known"), names),
            "unreadable": each(record({"capture": NAME, "message": TEXT})),
            **dict.fromkeys(("out_of_order", "overlapping"), names),
            "not_read": _counts(*UNREAD),
            "of_connections": record({one.name: COUNT for one in fields(OfConnections)}), "late_connections": COUNT,
            "rows": _counts(*EVENT_TABLES), "open_rows": _counts(*EVENT_TABLES),
            "sums": record(dict.fromkeys(SUMS, COUNT)),
            "open_connections": COUNT, "findings": _counts(*map(str, Severity)),
            "errors": each(CAPTURE_ERROR), "known_errors": each(CAPTURE_ERROR), "internal_errors": each(FAILURE),
        },
        {"taps": TAPS},
    )  # fmt: skip


_ENDS = word("disconnect", "fin", "reset", "idle", "port_reused", "evicted", "open")
_WORDS = {
    "severity": word(Severity), "how": _ENDS, "by": maybe(SIDE), "sender": SIDE,
    "state": word("held", "cleared", "expired", "refused", "unknown"),
}  # fmt: skip
"""Fields of a report that have one of a few words."""
_PLAIN: dict[object, Schema] = {str: TEXT, bool: BOOL, float: NUMBER}


def fleet_report() -> Schema:
    """The document of ``pipeline report --format json``."""
    shown = _object(FleetReport)
    return record({"schema": VERSION_1, **shown["properties"]})


def _object(made: type) -> Schema:
    """The object of a dataclass: every field is there."""
    shown: dict[str, Schema] = {}
    for name, kind in get_type_hints(made).items():
        if kind is Percentiles:
            unit = "s" if name.endswith("_s") else "ns"
            lengths = {f"{one.name}_{unit}": maybe(WHOLE) for one in fields(Percentiles) if one.name != "count"}
            shown[name.removesuffix("_s")] = record({"count": COUNT, **lengths})
        elif name == "minutes":
            shown["timeline"] = each(record({**times("from"), "connects": COUNT}))
        elif name in TIMES:
            optional = NoneType in get_args(kind)
            known = times(name.removesuffix("_ns"))
            shown |= {key: maybe(one) for key, one in known.items()} if optional else known
        else:
            shown[name] = _WORDS.get(name) or _value(name, kind)
    return record(shown)


def _value(name: str, kind: Any) -> Schema:
    """The value of a field with this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Ranked:
        return record({"rows": each(_object(inner[0])), "total": COUNT})
    if origin is list:
        return each(_value(name, inner[0]))
    if origin in (Union, UnionType):
        (one,) = (one for one in inner if one is not NoneType)
        return maybe(_value(name, one))
    if kind is int:
        return WHOLE if name.endswith("_ns") else COUNT
    return _PLAIN.get(kind) or _object(kind)


def answer() -> Schema:
    """The document of ``pipeline sql --format json``: what the values of rows are is for the question to say."""
    columns = {**each(record({"name": TEXT, "type": TEXT})), "minItems": 1}
    return record({"schema": VERSION_1, "columns": columns, "rows": each(mapping(ANY))})
