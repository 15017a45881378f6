"""No matter what was captured, every report can be written, lines fit, and nothing in them commands the terminal.

The input is that of `segments`.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import islice

from rich.cells import cell_len

from mqttscope.dissect import dissect_segments
from mqttscope.dissect.options import Options
from mqttscope.mqtt import ProtocolVersion
from mqttscope.net.segment import ACK, PSH, SYN
from mqttscope.report.base import Reporter, View
from mqttscope.report.jsonl import dumps
from mqttscope.report.ladder import Ladder
from mqttscope.report.table import Table
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from mqttscope.stats.as_json import document
from mqttscope.stats.as_text import render
from mqttscope.stats.collect import Statistics
from tests.fuzz import segments
from tests.fuzz.target import Input, unique
from tests.report.make import Lines

MAX_LENGTH = segments.MAX_LENGTH
CONNECT = bytes.fromhex("10 0d 00 04 4d 51 54 54 04 02 00 3c 00 01 63")
COMMANDING = bytes.fromhex("30 0a 00 07 1b 5b 32 4a c2 9b 07 78")
"""A PUBLISH whose topic clears the screen."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PAYLOADS = ("auto", "text", "hex", "json", "cbor", "msgpack", "none")
TIMES = ("iso", "relative", "delta")
WIDTHS = (40, 80, 100, 0)


def check(data: bytes) -> None:
    """The law for some segments in every format, with what their first byte chooses."""
    limits = data[0] if data else 0
    source = Input(data)
    source.number()
    actual_segments = list(segments.given(source))
    options = Options({8080: "ws", 1884: "mqtt"}, ProtocolVersion.V5 if limits & 1 else None)
    view = View(
        WIDTHS[limits >> 2 & 3],
        bool(limits & 2),
        TIMES[limits % 3],
        PAYLOADS[limits % 7],
        100,
        show_secrets=bool(limits & 0x10),
        unicode=bool(limits & 0x20),
    )
    sinks = Lines(), Lines(), Lines(), Lines()
    reporters: Iterable[Reporter] = (
        TextLines(sinks[0], view), Tree(sinks[1], view), Ladder(sinks[2], view), Table(sinks[3], view),
    )  # fmt: skip
    statistics = Statistics()
    for event in dissect_segments(actual_segments, options):
        for reporter in reporters:
            reporter.feed(event)
        statistics.feed(event)
    for reporter in reporters:
        reporter.close()
    statistics.finish()
    for sink in sinks[:3]:
        _check_lines(sink.data.decode(), view)
    rows = list(csv.reader(io.StringIO(sinks[3].data.decode())))
    assert len({len(row) for row in rows}) <= 1, "rows of different lengths"
    _check_lines(render(statistics, view).decode(), view)
    json.loads(dumps(document(statistics)))


def _check_lines(shown: str, view: View) -> None:
    for line in shown.split("\n"):
        plain = _COLOUR.sub("", line) if view.colour else line
        if not plain.isprintable():
            bad = [text for text in plain if unicodedata.category(text) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
            assert not bad, f"{bad} in {line!r}"
        assert not view.width or cell_len(plain) <= view.width, f"too wide: {plain!r}"
        assert view.unicode or plain.isascii()


def seeds() -> Iterator[bytes]:
    """Some of those of `segments`, since writing everything takes long, and a topic that commands the terminal."""
    yield b"\x28" + segments.written(0, SYN) + segments.written(0, PSH | ACK, CONNECT + COMMANDING)
    yield from islice(unique(segments), 0, None, 4)
