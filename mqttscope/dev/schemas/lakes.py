"""The schemas of documents about lakes: from ``pipeline ingest``, ``report`` and ``sql``.

The keys of a report are the fields of its dataclasses, as `report.fleet.text.document` writes them.
"""

from __future__ import annotations

from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from mqttscope.lake.finding_collector import ConnectionCounts
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.summary import SUMS
from mqttscope.lint.finding import Severity
from mqttscope.net.segment import UNREAD
from mqttscope.report import documents as doc
from mqttscope.report.findings.json import FAILURE
from mqttscope.report.fleet.model import FleetReport, Percentiles, RankedRows
from mqttscope.report.fleet.text import TIMES
from mqttscope.stats.as_json import TAPS


def _counts(*names: str) -> doc.Schema:
    """Counts by name; counts of 0 may be left out."""
    return doc.record({}, dict.fromkeys(names, doc.COUNT))


def ingest() -> doc.Schema:
    """The document of ``pipeline ingest --format json``."""
    names = doc.each(doc.NAME)
    return doc.record(
        {
            "schema": doc.VERSION_1, "lake": doc.NAME, "generation": doc.COUNT,
            **dict.fromkeys(("captures", "grown", "known"), names),
            "unreadable": doc.each(doc.record({"capture": doc.NAME, "message": doc.TEXT})),
            **dict.fromkeys(("out_of_order", "overlapping"), names),
            "not_read": _counts(*UNREAD),
            "of_connections": doc.record({count.name: doc.COUNT for count in fields(ConnectionCounts)}),
            "late_connections": doc.COUNT,
            "rows": _counts(*EVENT_TABLES), "open_rows": _counts(*EVENT_TABLES),
            "sums": doc.record(dict.fromkeys(SUMS, doc.COUNT)),
            "open_connections": doc.COUNT, "findings": _counts(*map(str, Severity)),
            **dict.fromkeys(("errors", "known_errors"), doc.each(doc.CAPTURE_ERROR)),
            "internal_errors": doc.each(FAILURE),
        },
        {"taps": TAPS},
    )  # fmt: skip


_ENDS = doc.word("disconnect", "fin", "reset", "idle", "port_reused", "evicted", "open")
_WORDS = {
    "severity": doc.word(Severity), "how": _ENDS, "by": doc.maybe(doc.SIDE), "sender": doc.SIDE,
    "state": doc.word("held", "cleared", "expired", "refused", "unknown"),
}  # fmt: skip
"""Fields of a report that have one of a few words."""
_PLAIN: dict[object, doc.Schema] = {str: doc.TEXT, bool: doc.BOOL, float: doc.NUMBER}


def fleet_report() -> doc.Schema:
    """The document of ``pipeline report --format json``."""
    shown = _object(FleetReport)
    return doc.record({"schema": doc.VERSION_1, **shown["properties"]})


def _object(model: type) -> doc.Schema:
    """The object of a dataclass, with every field."""
    shown: dict[str, doc.Schema] = {}
    for name, kind in get_type_hints(model).items():
        if kind is Percentiles:
            unit = "s" if name.endswith("_s") else "ns"
            names = (percentile.name for percentile in fields(Percentiles) if percentile.name != "count")
            lengths = {f"{percentile}_{unit}": doc.maybe(doc.WHOLE) for percentile in names}
            shown[name.removesuffix("_s")] = doc.record({"count": doc.COUNT, **lengths})
        elif name == "minutes":
            shown["timeline"] = doc.each(doc.record({**doc.times("from"), "connects": doc.COUNT}))
        elif name in TIMES:
            optional = NoneType in get_args(kind)
            known = doc.times(name.removesuffix("_ns"))
            shown |= {key: doc.maybe(schema) for key, schema in known.items()} if optional else known
        else:
            shown[name] = _WORDS.get(name) or _value(name, kind)
    return doc.record(shown)


def _value(name: str, kind: Any) -> doc.Schema:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is RankedRows:
        return doc.record({"rows": doc.each(_object(inner[0])), "total": doc.COUNT})
    if origin is list:
        return doc.each(_value(name, inner[0]))
    if origin in (Union, UnionType):
        (present,) = (member for member in inner if member is not NoneType)
        return doc.maybe(_value(name, present))
    if kind is int:
        return doc.WHOLE if name.endswith("_ns") else doc.COUNT
    return _PLAIN.get(kind) or _object(kind)


def answer() -> doc.Schema:
    """The document of ``pipeline sql --format json``; the query determines the types of values."""
    columns = doc.some(doc.record({"name": doc.TEXT, "type": doc.TEXT}))
    return doc.record({"schema": doc.VERSION_1, "columns": columns, "rows": doc.each(doc.mapping(doc.ANY))})
