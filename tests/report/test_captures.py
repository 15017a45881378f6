"""Every format over every capture of the project."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import ConnectionClosed, ConnectionEnding, MalformedEvent, PacketEvent
from mqttscope.net.frame import CaptureDrops, CaptureSecrets
from mqttscope.report.base import View
from mqttscope.report.jsonl import JsonLines
from mqttscope.report.ladder import Ladder
from mqttscope.report.table import Table
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from tests.conftest import ROOT
from tests.report.make import Lines

CAPTURES = sorted((ROOT / "captures").glob("*/capture.pcapng"))


def test_there_are_captures() -> None:
    assert len(CAPTURES) > 40


@pytest.mark.parametrize("path", CAPTURES, ids=[path.parent.name for path in CAPTURES])
def test_every_format_shows_every_packet(path: Path) -> None:
    sinks = [Lines() for _ in range(5)]
    narrow = View(width=80)
    reporters = (
        TextLines(sinks[0], View(width=0)),
        Tree(sinks[1], narrow),
        Ladder(sinks[2], narrow),
        Table(sinks[3], narrow),
        JsonLines(sinks[4]),
    )
    packets: list[Any] = []
    others = ended = 0
    ending: set[int] = set()
    for event in dissect(open_capture([str(path)])):
        if isinstance(event, PacketEvent | MalformedEvent):
            packets.append((event.number, event.type))
        elif isinstance(event, ConnectionEnding):
            ending.add(event.connection.number)
            others += 1
        elif isinstance(event, ConnectionClosed) and event.connection.number in ending:
            # The end has its line; there is a second one where something came after it.
            ended += 1
        elif not isinstance(event, CaptureDrops | CaptureSecrets):
            others += 1
        for reporter in reporters:
            reporter.feed(event)
    for reporter in reporters:
        reporter.close()
    assert [(row["packet"], row["type"]) for row in map(json.loads, sinks[4].lines) if "packet" in row] == packets
    rows = list(csv.DictReader(io.StringIO(sinks[3].data.decode(), newline="")))
    assert [(int(row["packet"]), row["type"] or None) for row in rows] == packets
    shown = len([line for line in sinks[0].lines if "? (assumed" not in line])
    assert len(packets) + others <= shown <= len(packets) + others + ended
    named = [line for line in sinks[1].lines if re.search(r"  packet \d+ · ", line)]
    assert len(named) == len(packets)
    assert max((cell_len(line) for sink in sinks[1:3] for line in sink.lines), default=0) <= 80
