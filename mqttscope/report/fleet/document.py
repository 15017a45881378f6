"""A fleet report as one JSON document, schema 1 (``docs/reports.md``)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from mqttscope.report.base import Clock
from mqttscope.report.fleet.model import FleetReport, Percentiles

SCHEMA = 1
_TIMES = frozenset(("first_ns", "last_ns", "since_ns", "until_ns", "from_ns"))
"""Times since 1970, which have the same as text beside them."""


def document(report: FleetReport) -> dict[str, Any]:
    """The document: keys are the names of the fields; percentiles say their unit."""
    return {"schema": SCHEMA, **_object(report, Clock())}


def _object(value: Any, clock: Clock) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for one in fields(value):
        held = getattr(value, one.name)
        if isinstance(held, Percentiles):
            unit = "s" if one.name.endswith("_s") else "ns"
            shown[one.name.removesuffix("_s")] = _percentiles(held, unit)
        elif one.name == "minutes":
            shown["timeline"] = [
                {"from": clock.iso(start), "from_ns": start, "connects": count} for start, count in held
            ]
        else:
            if one.name in _TIMES:
                shown[one.name.removesuffix("_ns")] = None if held is None else clock.iso(held)
            shown[one.name] = _plain(held, clock)
    return shown


def _plain(value: Any, clock: Clock) -> Any:
    if is_dataclass(value):
        return _object(value, clock)
    return [_plain(one, clock) for one in value] if isinstance(value, list) else value


def _percentiles(value: Percentiles, unit: str) -> dict[str, Any]:
    return {
        "count": value.count,
        **{f"{name}_{unit}": getattr(value, name) for name in ("p50", "p90", "p99", "maximum")},
    }
