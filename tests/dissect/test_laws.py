"""Whatever happens to the segments of a capture: answers in good order, with their places, and plain data kept."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture import open_capture
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.dissect.flow_state import SEARCHING, EndedFlow, FlowState
from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    DiscardedEvent,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt import Publish
from mqttscope.net.flow import Flow, FlowClosed, SegmentDiscarded, StreamData
from mqttscope.net.flow_expiry import LINGER_NS
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import SYN, Segment
from mqttscope.session.connection import Connection
from tests.conftest import ROOT, THOROUGH
from tests.dissect.scenes import mixed_tape, opened, parts, shown
from tests.dissect.talk import SECOND, START, Talk, Tape, read
from tests.each import each
from tests.growth import kept_of_each

OPTIONS = Options(ports={8080: "ws", 22: "mqtt"}, max_packet_bytes=200)


@st.composite
def damaged(draw: st.DrawFn) -> list[Segment]:
    """The mixed tape with segments lost, repeated, moved, cut or changed."""
    segments = list(mixed_tape().segments)
    for _ in range(draw(st.integers(0, 12))):
        at = draw(st.integers(0, len(segments) - 1))
        segment = segments[at]
        match draw(st.sampled_from(("lose", "lose handshake", "repeat", "move", "cut", "change", "split"))):
            case "lose":
                del segments[at]
            case "lose handshake":
                segments = [each for each in segments if not (each.flags & SYN and each.key == segment.key)]
            case "repeat":
                segments.insert(draw(st.integers(at, len(segments))), segment)
            case "move":
                segments.insert(draw(st.integers(0, len(segments) - 1)), segments.pop(at))
            case "cut" if segment.payload:
                keep = draw(st.integers(0, len(segment.payload) - 1))
                missing = segment.missing + len(segment.payload) - keep
                segments[at] = dataclasses.replace(segment, payload=segment.payload[:keep], missing=missing)
            case "change" if segment.payload:
                where, byte = draw(st.integers(0, len(segment.payload) - 1)), draw(st.integers(0, 255))
                changed = segment.payload[:where] + bytes([byte]) + segment.payload[where + 1 :]
                segments[at] = dataclasses.replace(segment, payload=changed)
            case "split" if len(segment.payload) > 1:
                where = draw(st.integers(1, len(segment.payload) - 1))
                segments[at] = dataclasses.replace(segment, payload=segment.payload[:where])
                rest = dataclasses.replace(
                    segment, payload=segment.payload[where:], sequence=(segment.sequence + where) % 2**32
                )
                segments.insert(at + 1, rest)
        if not segments:
            break
    for number, segment in enumerate(segments):
        segments[number] = dataclasses.replace(segment, frame=number + 1)
    return segments


def check_search(dissector: Dissector) -> None:
    """The remembered origins of bytes cover exactly the bytes that the streams hold while they search."""
    for flow in dissector.flows.flows.values():
        dialogue = flow.context
        if not isinstance(dialogue, FlowState):
            continue
        for from_client in (True, False):
            stream, arrivals = dialogue.stream(from_client), dialogue.arrivals(from_client)
            waiting = stream.held + stream.passed + stream.lost if stream.searching else 0
            assert sum(arrival.length for arrival in arrivals) == waiting
        if dialogue.speaks_mqtt:
            searching = dialogue.client_stream.searching or dialogue.server_stream.searching
            assert (dialogue.phase is SEARCHING) is searching


@settings(max_examples=300 if THOROUGH else 150, deadline=None, derandomize=True)
@given(damaged(), st.booleans())
def test_events_are_in_good_order_whatever_happens_to_the_segments(segments: list[Segment], with_options: bool) -> None:
    options = OPTIONS if with_options else None
    dissector = Dissector(options)
    events = []
    for segment in segments:
        events += list(dissector.feed(segment))
        check_search(dissector)
    events += list(dissector.close())

    state: dict[int, str] = {}
    numbers = []
    last = 0
    for event in events:
        number = event.connection.number  # type: ignore[union-attr]
        if isinstance(event, ConnectionOpened):
            assert number == len(state)
            state[number] = "open"
        if isinstance(event, DiscardedEvent):
            continue
        assert state[number] in ("open", "ending")
        if isinstance(event, ConnectionEnding):
            assert state[number] == "open"
            state[number] = "ending"
        if isinstance(event, ConnectionClosed):
            assert (state[number] == "ending") is (event.connection.closed_how in ("fin", "reset"))
            state[number] = "closed"
        if isinstance(event, PacketEvent | MalformedEvent):
            numbers.append(event.number)
        last = max(last, event.frame)  # type: ignore[union-attr]
        assert 1 <= event.frame <= len(segments)  # type: ignore[union-attr]

    assert set(state.values()) <= {"closed"}
    assert numbers == list(range(dissector.packets))
    assert not dissector.flows.flows
    assert last <= len(segments)


@settings(max_examples=150 if THOROUGH else 75, deadline=None, derandomize=True)
@given(damaged(), st.booleans())
def test_the_quick_way_and_the_long_way_agree_whatever_happens(segments: list[Segment], with_options: bool) -> None:
    options = OPTIONS if with_options else None
    slow = Dissector(options)

    quick = [shown(event) for event in dissect_segments(segments, options)]
    long = [shown(event) for item in slow.clock.follow(segments) for event in slow.take(item)]
    long += [shown(event) for event in slow.close()]

    assert quick == long


CAPTURES = sorted(ROOT.glob("captures/*/capture.pcapng"))
Streams = dict[tuple[bytes, int, bool], dict[int, bytes]]


def streams(actual_segments: list[Segment]) -> Streams:
    """The pieces of each stream by their places, as reassembly alone gives them."""
    table, out = FlowTable(), Streams()
    for segment in actual_segments:
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


@each("path", CAPTURES, ids=lambda path: path.parent.name)
def test_packets_lie_where_their_offset_says(path: Path) -> None:
    actual_segments = [segment for segment in segments(open_capture([path])) if isinstance(segment, Segment)]
    pieces, checked, last = streams(actual_segments), 0, dict[tuple[int, str], int]()
    for event in dissect_segments(actual_segments):
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
    assert checked or all(connection.transport != "tcp" for connection in connections(actual_segments))


def connections(actual_segments: list[Segment]) -> list[Connection]:
    return [event.connection for event in dissect_segments(actual_segments) if isinstance(event, PacketEvent)]


def test_gaps_say_where_they_begin() -> None:
    for path in CAPTURES:
        for event in dissect_segments(segments(open_capture([path]))):
            if isinstance(event, GapEvent):
                assert event.stream_offset >= 0


def test_numbers_count_each_connection_where_asked() -> None:
    run = read(mixed_tape(), Options(ports={8080: "ws", 22: "mqtt"}))
    alone = read(mixed_tape(), Options(ports={8080: "ws", 22: "mqtt"}, count_by_connection=True))
    counted = dict[int, int]()
    for event, other in zip(run, alone, strict=True):
        if isinstance(event, PacketEvent | MalformedEvent):
            assert isinstance(other, PacketEvent | MalformedEvent)
            number = event.connection.number
            assert other.number == counted.get(number, 0)
            counted[number] = other.number + 1
            assert other.stream_offset == event.stream_offset
    assert len(counted) > 1


def test_a_connection_knows_its_flow_and_where_it_was_recognised() -> None:
    for connection in connections(mixed_tape().segments):
        assert len(connection.flow_key) in (12, 36)
        assert connection.initial_sequence >= 0 or not connection.handshake_seen
        assert connection.found_frame >= connection.frame
        assert connection.found_ns >= connection.opened_ns
        assert connection.found_capture == connection.capture


def test_flows_with_all_that_hangs_on_them_are_plain_data() -> None:
    tape = mixed_tape()
    dissector = Dissector()
    half = len(tape.segments) - 8
    for segment in tape.segments[:half]:
        list(dissector.feed(segment))

    assert len(dissector.flows.flows) == 5
    for flow in dissector.flows.flows.values():
        for path, value in parts(flow):
            if path.endswith("connection.alarm"):
                continue  # who continues makes it again
            plain = value is None or type(value) in (int, str, bytes, bool, list, dict, tuple, bytearray)
            assert plain or isinstance(value, Enum) or dataclasses.is_dataclass(value), f"{path} is a {type(value)}"


@pytest.mark.long
@pytest.mark.slow
def test_many_short_connections_do_not_let_the_tables_grow() -> None:
    """Thirty thousand flows of all kinds, two a second."""
    dissector = Dissector()
    largest = 0
    reported = 0
    tape = Tape()
    for number in range(30_000):
        talk = Talk(tape, (1883, 9999, 22, 8883)[number % 4], 10_000 + number % 20_000)
        talk.position = {"client": 1000 + number * 7919, "server": 5000 + number * 104_729}
        if number % 4 == 2:
            talk.handshake()
            talk.client(b"SSH-2.0-x\r\n")
            talk.reset("server")
        elif number % 8 == 0:
            talk.tell("handshake; > connect; close")
        else:
            talk.refused()
        for segment in tape.segments:
            for event in dissector.feed(segment):
                reported += isinstance(event, ConnectionClosed)
        tape.segments.clear()
        tape.wait(0.5)
        if number % 1000 == 0:
            largest = max(largest, len(dissector.flows.flows))

    assert reported == 7_500
    assert largest < 3 * 2 * LINGER_NS // SECOND
    for flow in dissector.flows.flows.values():
        assert flow.context is None or isinstance(flow.context, EndedFlow)
    assert list(dissector.close()) == []
    assert not dissector.flows.flows
    assert dissector.flows.buffered_bytes == 0
    assert (dissector.connections, dissector.other_flows) == (7_500, 22_500)


def test_a_closed_flow_lets_go_of_its_dialogue_even_when_nobody_reads_on() -> None:
    talk = opened().tell("close")
    dissector = Dissector()
    for segment in talk.tape.segments[:-3]:
        list(dissector.feed(segment))
    closing = [event for segment in talk.tape.segments[-3:] for event in dissector.flows.feed(segment)]

    (end,) = [event for event in closing if isinstance(event, FlowClosed)]
    for event in closing:
        list(dissector.handle(event))

    over = end.flow.context
    assert isinstance(over, EndedFlow)
    assert over.connection.history is None
    assert over.connection.alarm is None
    assert not over.connection.details


@pytest.mark.parametrize(("messages", "most"), [(2, 4_800), (40, 7_200)])
def test_what_is_remembered_of_a_closed_flow_is_little(messages: int, most: int) -> None:
    """More than half of the second figure are the first and the last bytes of both directions."""
    dissector = Dissector()

    def connection(number: int) -> None:
        talk = Talk(Tape(start_ns=START + number * 100_000), client_port=10_000 + number).handshake().tell("> connect")
        for _ in range(messages):
            talk.client(Publish(topic_name="a/b", payload=bytes(64)))
            talk.server(Publish(topic_name="a/b", payload=bytes(64)))
        talk.close()
        for segment in talk.tape.segments:
            list(dissector.feed(segment))

    assert kept_of_each(connection, count=60, before=20) < most
    assert len(dissector.flows.flows) == 80


def test_what_is_learned_of_a_closed_flow_is_learned_of_no_other() -> None:
    dissector = Dissector()
    flows: list[Flow] = []
    for number in range(2):
        talk = Talk(client_port=10_000 + number).handshake().tell("> connect; close")
        for segment in talk.tape.segments:
            list(dissector.feed(segment))
        flows.append(dissector.flows.flows[talk.keys["client"]])
    late = SegmentDiscarded(flows[0], True, 3, "out_of_window", 9, START + SECOND, "a.pcap")
    (event,) = dissector._discarded(late)

    assert isinstance(event, DiscardedEvent)
    assert (event.connection.client_side.gapped, event.connection.server_side.gapped) == (True, False)
    other = flows[1].context
    assert isinstance(other, EndedFlow)
    assert not other.connection.client_side.gapped
    other.part_sides()
    assert other.connection.client_side is not other.connection.server_side
