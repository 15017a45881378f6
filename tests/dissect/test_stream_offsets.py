"""Places in the stream and numbers in the connection: what names a packet however a capture was cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import Options, dissect_segments, segments
from mqttscope.events import Event, GapEvent, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.net.flow import StreamData
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import Segment
from mqttscope.session.connection import Connection
from tests.conftest import ROOT
from tests.dissect.scenes import mixed_tape
from tests.dissect.talk import read

CAPTURES = sorted(ROOT.glob("captures/*/capture.pcapng"))
Streams = dict[tuple[bytes, int, bool], dict[int, bytes]]


def streams(found: list[Segment]) -> Streams:
    """The pieces of each stream by their places, as reassembly alone gives them."""
    table, out = FlowTable(), Streams()
    for segment in found:
        for event in table.feed(segment):
            if isinstance(event, StreamData):
                key = (event.flow.key, event.flow.opened_ns, event.from_initiator)
                out.setdefault(key, {})[event.offset] = event.data
    for event in table.close():
        if isinstance(event, StreamData):
            out.setdefault((event.flow.key, event.flow.opened_ns, event.from_initiator), {})[event.offset] = event.data
    return out


def has(pieces: dict[int, bytes], offset: int, raw: bytes) -> bool:
    """Whether the captured bytes of a stream from a place on are these."""
    whole = bytearray(max(at + len(data) for at, data in pieces.items()))
    for at, data in pieces.items():
        whole[at : at + len(data)] = data
    return bytes(whole[offset : offset + len(raw)]) == raw


def raw_of(event: Event) -> bytes | None:
    if isinstance(event, PacketEvent):
        return event.packet.raw
    return event.malformed.raw if isinstance(event, MalformedEvent) else None


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.parent.name)
def test_packets_lie_where_their_offset_says(path: Path) -> None:
    found = [one for one in segments(open_capture([path])) if isinstance(one, Segment)]
    pieces, checked, last = streams(found), 0, dict[tuple[int, str], int]()
    for event in dissect_segments(found):
        if not isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent):
            continue
        connection = event.connection
        side = (connection.number, str(event.direction))
        assert event.stream_offset > last.get(side, -1) or isinstance(event, UnparsedEvent)
        last[side] = event.stream_offset
        raw = raw_of(event)
        if connection.transport != "tcp" or raw is None:
            continue
        from_initiator = any(
            has(pieces.get((connection.flow_key, connection.opened_ns, which), {0: b""}), event.stream_offset, raw)
            for which in (True, False)
        )
        assert from_initiator, event
        checked += 1
    assert checked or all(one.transport != "tcp" for one in connections(found))


def connections(found: list[Segment]) -> list[Connection]:
    return [event.connection for event in dissect_segments(found) if isinstance(event, PacketEvent)]


def test_gaps_say_where_they_begin() -> None:
    for path in CAPTURES:
        for event in dissect_segments(segments(open_capture([path]))):
            if isinstance(event, GapEvent):
                assert event.stream_offset >= 0


def test_numbers_count_each_connection_where_asked() -> None:
    run = read(mixed_tape(), Options(ports={8080: "ws", 22: "mqtt"}))
    alone = read(mixed_tape(), Options(ports={8080: "ws", 22: "mqtt"}, count_by_connection=True))
    counted = dict[int, int]()
    for one, other in zip(run, alone, strict=True):
        if isinstance(one, PacketEvent | MalformedEvent):
            assert isinstance(other, PacketEvent | MalformedEvent)
            number = one.connection.number
            assert other.number == counted.get(number, 0)
            counted[number] = other.number + 1
            assert other.stream_offset == one.stream_offset
    assert len(counted) > 1


def test_a_connection_knows_its_flow_and_where_it_was_recognised() -> None:
    for one in connections(mixed_tape().segments):
        assert len(one.flow_key) in (12, 36)
        assert one.initial_sequence >= 0 or not one.handshake_seen
        assert one.found_frame >= one.frame
        assert one.found_ns >= one.opened_ns
        assert one.found_capture == one.capture
