"""Inputs at the limits of the package analysis."""

from __future__ import annotations

import pyarrow as pa

from mqttscope.analysis.fleet import by_capture
from mqttscope.analysis.rules import part_length
from mqttscope.dissect import dissect_segments
from tests.analysis.asking import WORDS, expiry, rows_of, table_of
from tests.lake.reading import collect, options
from tests.lint.lint_help import steps_of, talked

__all__ = ["part_length"]


def verdict(interval: int) -> str:
    """How a delivery is judged of a message that has waited for 50 of its 100 seconds and comes with an interval."""
    steps = steps_of(
        "opened; > publish a x qos=1 retain id=1 message_expiry_interval=100; < puback 1; +50 @1 opened client=c2",
        "@1 > subscribe 1 a:0; @1 < suback 1 0",
        f"@1 < publish a x retain message_expiry_interval={interval}",
    )
    given = options(rules=())
    rows = collect(dissect_segments(talked(*steps), given.reading()), given)
    tables = {name: table_of(name, rows.get(name, [])) for name in ("packets", "messages", "gaps")}
    return str(rows_of(expiry(), **tables)[0]["verdict"])


def left_out(*dropped: int) -> int:
    """What is missing in the sum of the frames that a capture is said to lack."""
    rows = [{"capture": "a", "event": "capture_drops", "dropped": number, "message": ""} for number in dropped]
    errors = pa.Table.from_pylist(rows)
    (row,) = rows_of(by_capture(WORDS, "gaps", "errors"), gaps=table_of("gaps", []), errors=errors)
    return sum(dropped) - int(row["dropped"])
