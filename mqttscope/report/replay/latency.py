"""How long the recorded and the live broker took, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from mqttscope.replay.verify.latency import HANDSHAKES, Quantiles, side_by_side
from mqttscope.report.base import View
from mqttscope.report.jsonl import SCHEMA, dumps
from mqttscope.report.page import Column, Page
from mqttscope.report.when import duration

Times = Mapping[str, Sequence[int]]
"""Nanoseconds by kind, as `replay.latency` measures them."""

_TITLES = {"minimum": "min", "maximum": "max"}


def render(recorded: Times, live: Times, view: View) -> bytes:
    """A table with two rows for each kind; empty where nothing was measured."""
    found = side_by_side(recorded, live)
    if not found:
        return b""
    page = Page(view)
    rows = [one for kind, before, now in found for one in ((kind, "recorded", before), (kind, "live", now))]
    page.title("Latency")
    columns = [Column("broker", [side for _, side, _ in rows], right=False)]
    for field in fields(Quantiles):
        name = field.name
        rank = {"count": 1, "minimum": 4, "p95": 2, "p99": 3, "maximum": 2}.get(name, 0)
        shown = [_shown(one, name, unicode=page.unicode) for _, _, one in rows]
        columns.append(Column(_TITLES.get(name, name), shown, rank))
    page.table(Column("handshake", [HANDSHAKES[kind] for kind, _, _ in rows], whole=True), columns)
    return page.encoded()


def _shown(one: Quantiles | None, name: str, *, unicode: bool) -> str:
    if one is None:
        return ""
    value: int = getattr(one, name)
    return f"{value:,}" if name == "count" else duration(value, unicode=unicode)


def lines(recorded: Times, live: Times) -> bytes:
    """A JSON line for each kind: ``"event":"latency"``, times in nanoseconds, ``null`` where there are none."""
    return b"".join(
        dumps({"schema": SCHEMA, "event": "latency", "kind": kind, "recorded": _json(before), "live": _json(now)})
        + b"\n"
        for kind, before, now in side_by_side(recorded, live)
    )


def _json(one: Quantiles | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "count": one.count,
        "min_ns": one.minimum,
        "p50_ns": one.p50,
        "p95_ns": one.p95,
        "p99_ns": one.p99,
        "max_ns": one.maximum,
    }
