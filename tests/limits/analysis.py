"""Inputs at the limits of the package analysis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from mqttscope.analysis.fleet import by_capture
from mqttscope.analysis.rules import part_length
from mqttscope.capture import PcapngWriter
from mqttscope.dissect import dissect_segments
from mqttscope.lake.writer import write_lake
from mqttscope.lint.examples import conversation, segments
from mqttscope.report.fleet.model import ReportQuery
from tests.analysis.asking import WORDS, expiry, rows_of, table_of
from tests.analysis.test_news import news_of
from tests.dissect.secure import as_frame
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
    lake_options = options(rules=())
    rows = collect(dissect_segments(talked(*steps), lake_options.reading()), lake_options)
    tables = {name: table_of(name, rows.get(name, [])) for name in ("packets", "messages", "gaps")}
    return str(rows_of(expiry(), **tables)[0]["verdict"])


def silent(folder: Path, waits_ns: int) -> list[str]:
    """Silent devices of a lake in which a client sends five messages, and another one a ping so much later."""
    steps = steps_of(
        "@1 opened client=other", "opened client=pump",
        *["+0.1 > publish a x"] * 5, "+1 @1 > pingreq",
    )  # fmt: skip
    talk = segments(conversation("silent", *steps))
    ping = talk[-1] if talk[-1].payload == b"\xc0\0" else talk[-2]
    last_ns = max(segment.timestamp_ns for segment in talk if b"x" in segment.payload[-1:])
    moved = [replace(segment, timestamp_ns=last_ns + waits_ns) if segment is ping else segment for segment in talk]
    path = folder / "a.pcapng"
    with path.open("wb") as file:
        out = PcapngWriter(file)
        for segment in moved:
            out.write(as_frame(segment))
    write_lake([str(path)], folder / "lake")
    return [row.client_identifier for row in news_of(folder / "lake", ReportQuery()).silent.rows]


def left_out(*dropped: int) -> int:
    """What is missing in the sum of the frames that a capture is said to lack."""
    rows = [{"capture": "a", "event": "capture_drops", "dropped": number, "message": ""} for number in dropped]
    errors = pa.Table.from_pylist(rows)
    (row,) = rows_of(by_capture(WORDS, "gaps", "errors"), gaps=table_of("gaps", []), errors=errors)
    return sum(dropped) - int(row["dropped"])
