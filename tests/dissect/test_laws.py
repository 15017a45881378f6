"""Whatever happens to the segments of a capture, the dissector answers in good order."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.dissect.flow_state import SEARCHING, FlowState
from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    DiscardedEvent,
    MalformedEvent,
    PacketEvent,
)
from mqttscope.net.segment import SYN, Segment
from tests.dissect.scenes import mixed_tape, shown

OPTIONS = Options(ports={8080: "ws", 22: "mqtt"}, max_packet_bytes=200)


@st.composite
def damaged(draw: st.DrawFn) -> list[Segment]:
    """The mixed tape with segments lost, repeated, moved, cut or changed."""
    segments = list(mixed_tape().segments)
    for _ in range(draw(st.integers(0, 12))):
        at = draw(st.integers(0, len(segments) - 1))
        one = segments[at]
        match draw(st.sampled_from(("lose", "lose handshake", "repeat", "move", "cut", "change", "split"))):
            case "lose":
                del segments[at]
            case "lose handshake":
                segments = [each for each in segments if not (each.flags & SYN and each.key == one.key)]
            case "repeat":
                segments.insert(draw(st.integers(at, len(segments))), one)
            case "move":
                segments.insert(draw(st.integers(0, len(segments) - 1)), segments.pop(at))
            case "cut" if one.payload:
                keep = draw(st.integers(0, len(one.payload) - 1))
                missing = one.missing + len(one.payload) - keep
                segments[at] = dataclasses.replace(one, payload=one.payload[:keep], missing=missing)
            case "change" if one.payload:
                where, byte = draw(st.integers(0, len(one.payload) - 1)), draw(st.integers(0, 255))
                changed = one.payload[:where] + bytes([byte]) + one.payload[where + 1 :]
                segments[at] = dataclasses.replace(one, payload=changed)
            case "split" if len(one.payload) > 1:
                where = draw(st.integers(1, len(one.payload) - 1))
                segments[at] = dataclasses.replace(one, payload=one.payload[:where])
                rest = dataclasses.replace(one, payload=one.payload[where:], sequence=(one.sequence + where) % 2**32)
                segments.insert(at + 1, rest)
        if not segments:
            break
    for number, one in enumerate(segments):
        segments[number] = dataclasses.replace(one, frame=number + 1)
    return segments


def check_search(dissector: Dissector) -> None:
    """What is remembered of where bytes came from is what the streams hold while they search, and nothing else."""
    for flow in dissector.flows.flows.values():
        dialogue = flow.context
        if not isinstance(dialogue, FlowState):
            continue
        for from_client in (True, False):
            stream, arrivals = dialogue.stream(from_client), dialogue.arrivals(from_client)
            waiting = stream.held + stream.passed + stream.lost if stream.searching else 0
            assert sum(one.length for one in arrivals) == waiting
        if dialogue.speaks_mqtt:
            searching = dialogue.client_stream.searching or dialogue.server_stream.searching
            assert (dialogue.phase is SEARCHING) is searching


@settings(max_examples=300, deadline=None, derandomize=True)
@given(damaged(), st.booleans())
def test_events_are_in_good_order_whatever_happens_to_the_segments(segments: list[Segment], told: bool) -> None:
    options = OPTIONS if told else None
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


@settings(max_examples=150, deadline=None, derandomize=True)
@given(damaged(), st.booleans())
def test_the_quick_way_and_the_long_way_agree_whatever_happens(segments: list[Segment], told: bool) -> None:
    options = OPTIONS if told else None
    slow = Dissector(options)

    quick = [shown(event) for event in dissect_segments(segments, options)]
    long = [shown(event) for segment in segments for event in slow.feed(segment)]
    long += [shown(event) for event in slow.close()]

    assert quick == long
