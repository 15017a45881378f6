"""The index gives every event back as it was."""

from __future__ import annotations

import re
from pathlib import Path

from mqttscope.browse.index import Index, LostEvent
from mqttscope.browse.lines import RowLines
from mqttscope.browse.rows import MAX_COUNT, PACKETS, SPOOLED, RowKind
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.net.frame import CaptureError
from mqttscope.report.base import View
from mqttscope.report.text import TextLines
from tests.browse.made import CAPTURES, built, capture
from tests.each import each

VIEW = View(width=0)


class Lines:
    """A sink that keeps the last line."""

    last = ""

    def write(self, data: bytes, /) -> object:
        self.last = data.decode().rstrip("\n").rpartition("\n")[2]
        return None


def events(path: Path) -> list[Event]:
    return list(dissect(open_capture([path])))


def of_packets(index: Index) -> list[int]:
    return [at for at, row in enumerate(index.rows.run(0, len(index.rows))) if row.kind <= RowKind.MALFORMED]


@each("path", CAPTURES, ids=lambda path: str(path.parent.name))
def test_every_packet_of_every_capture_comes_back(path: Path) -> None:
    """Its line is that of ``inspect``, with latencies and topics of answers, though no exchange is remembered."""
    index, sink = built(path), Lines()
    rows = of_packets(index)
    lines, text = RowLines(index, VIEW), TextLines(sink, VIEW)
    left = iter(rows)
    for event in dissect(open_capture([path])):
        text.feed(event)
        if not isinstance(event, PacketEvent | MalformedEvent):
            continue
        row = next(left)
        _compare(index.event(row), event)
        if event.type == "connect" and not event.connection.client_identifier:
            # The browser knows by then what the broker has called the client.
            continue
        assert re.sub(" +", " ", lines.line(row)[2:].strip()) == re.sub(" +", " ", sink.last.strip())
    assert len(rows) == index.packets
    assert next(left, None) is None


def _compare(event: Event, other: PacketEvent | MalformedEvent) -> None:
    assert type(event) is type(other)
    assert isinstance(event, PacketEvent | MalformedEvent)
    for name in ("number", "frame", "timestamp_ns", "direction", "topic", "capture"):
        assert getattr(event, name) == getattr(other, name)
    assert event.connection.number == other.connection.number
    if isinstance(event, PacketEvent) and isinstance(other, PacketEvent):
        assert event.packet == other.packet
        assert event.packet.raw == other.packet.raw
    elif isinstance(event, MalformedEvent) and isinstance(other, MalformedEvent):
        assert event.malformed == other.malformed


def test_packets_stay_in_the_capture_where_they_are_in_one_piece() -> None:
    index = built(capture("v5-qos"))
    spooled = [bool(row.place & SPOOLED) for row in index.rows.run(0, len(index.rows)) if row.kind == RowKind.PACKET]

    assert len(spooled) > 20
    assert not any(spooled)
    # Masked, so that they are nowhere in the file.
    index = built(capture("websocket-v5"))
    assert any(row.place & SPOOLED for row in index.rows.run(0, len(index.rows)) if row.kind == RowKind.PACKET)


@each("name", ["lost-segment", "lost-in-payload", "joined-in-payload", "out-of-order", "raw-v31"])
def test_other_events_come_back_as_well(name: str) -> None:
    path = capture(name)
    index = built(path)
    kinds = GapEvent | UnparsedEvent | ConnectionOpened
    had = [event for event in events(path) if isinstance(event, kinds)]
    got = [other_event for other_event in map(index.event, range(len(index.rows))) if isinstance(other_event, kinds)]

    assert [type(event) for event in got] == [type(event) for event in had]
    for other_event, other in zip(got, had, strict=True):
        for text in ("frame", "timestamp_ns", "capture", "length", "reason", "unparsed"):
            assert getattr(other_event, text, None) == getattr(other, text, None)


def test_exchanges_have_roots() -> None:
    index = built(capture("v5-qos"))
    rows = [row for row in index.rows.run(0, len(index.rows)) if row.kind in PACKETS]
    chains: dict[int, list[int]] = {}
    for row in rows:
        if row.root != MAX_COUNT:
            chains.setdefault(row.root, []).append(row.header >> 4)

    assert [3, 5, 6, 7] in chains.values()
    assert [3, 4] in chains.values()
    assert [8, 9] in chains.values()
    assert [1, 2] in chains.values()


def test_a_connection_that_is_over_is_known() -> None:
    index = built(capture("v5-qos"))
    names = {index.connections[number].client_identifier for number in range(len(index.connections))}

    assert names == {"logger", "sensor-1"}
    assert not any(index.connections.is_open(number) for number in range(len(index.connections)))
    closing = [index.event(row) for row in range(len(index.rows)) if index.rows[row].kind in (8, 9)]
    assert [type(event).__name__ for event in closing] == ["ConnectionEnding", "ConnectionEnding"]
    assert not any(isinstance(event, ConnectionClosed) for event in closing)


def test_findings_stand_at_their_rows() -> None:
    index = built(capture("planted-violations"), lint=True)
    findings = [index.findings[at] for at in range(len(index.findings))]

    assert len(findings) == 30
    assert sum(map(sum, index.connections.findings)) == 30
    for at, finding in zip(index.findings.rows, findings, strict=True):
        row = index.rows[at]
        assert row.severity >= finding.severity.rank + 1
        if finding.packet is not None:
            assert (row.number, row.frame) == (finding.packet, finding.frame)
        assert finding in index.findings.of_row(at)


def test_a_capture_that_has_changed_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    path.write_bytes(capture("v5-qos").read_bytes())
    index = built(path)
    path.write_bytes(b"\0" * 100)

    got = [index.event(row) for row in of_packets(index)]
    assert all(isinstance(event, LostEvent) for event in got)
    lines = RowLines(index, VIEW)
    assert "the capture has changed" in lines.line(of_packets(index)[0])


def test_what_is_wrong_with_a_capture_is_a_row() -> None:
    index = built(Path("nowhere.pcap"))

    assert [index.event(row) for row in range(len(index.rows))] == [CaptureError("nowhere.pcap", "does not exist")]
    assert index.packets == len(index.connections) == 0
