"""Segments from short lines, events as short lines, and the law that every sequence of events keeps."""

from __future__ import annotations

from mqttscope.net.checksum import RIGHT, UNJUDGED, WRONG
from mqttscope.net.flow import (
    FlowAlarm,
    FlowClosed,
    FlowEvent,
    FlowOpened,
    SegmentDiscarded,
    StreamClosed,
    StreamData,
    StreamGap,
    StreamOverlap,
    WindowClosed,
)
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import ACK, FIN, MODULUS, RST, SYN, Segment, direction_key, reverse_key
from tests.tables import steps

FORWARD = direction_key(bytes([10, 0, 0, 4, 10, 0, 0, 2]), (51234).to_bytes(2, "big") + (1883).to_bytes(2, "big"))
BACKWARD = reverse_key(FORWARD)
LETTERS = {"S": SYN, "A": ACK, "F": FIN, "R": RST}
HANDSHAKE = ["> S 100", "< SA 500 101", "> A 101 501"]
CLOSED = [*HANDSHAKE, "> FA 101 501", "< FA 501 102", "> A 102 502"]
UNFINISHED = "closed capture_end"
VERIFIED = [">+ S 100", "<+ SA 500 101", ">+ A 101 501"]
BEGINNINGS = {"handshake": HANDSHAKE, "connection": CLOSED, "verified": VERIFIED}
STEP = 0.002
"""Seconds between two lines without a time."""


def script(text: str) -> list[str]:
    """The lines of a text with ``;`` between them; the words of `BEGINNINGS` stand for several."""
    return [line for step in steps(text) for line in BEGINNINGS.get(step, [step])]


def parse(lines: list[str]) -> list[Segment]:
    """Segments from lines such as ``> A 101:hello 501 t=1.5 missing=3``: flags, sequence, data, acknowledgment.

    ``>+`` is a segment with a right checksum, ``>!`` one with a wrong one.
    """
    segments = []
    now = -STEP
    for number, line in enumerate(lines, 1):
        direction, flags, place, *rest = line.split()
        sequence, _, data = place.partition(":")
        options = dict(item.split("=") for item in rest if "=" in item)
        acknowledgment = int(next((item for item in rest if "=" not in item), "0"))
        # Far enough apart that nothing is taken for a copy of a second tap.
        now = float(options["t"]) if "t" in options else now + STEP
        segments.append(
            Segment(
                FORWARD if direction[0] == ">" else BACKWARD,
                int(sequence) % MODULUS,
                acknowledgment % MODULUS,
                sum(LETTERS[letter] for letter in flags if letter != "-"),
                int(options.get("window", 1000)),
                data.replace("~", "\0").encode(),
                int(options.get("missing", 0)),
                number,
                round(now * 1e9),
                "test.pcap",
                checksum={"": UNJUDGED, "+": RIGHT, "!": WRONG}[direction[1:]],
            )
        )
    return segments


def render(event: FlowEvent) -> str:
    """An event as a short line."""
    if isinstance(event, FlowOpened):
        return "opened"
    if isinstance(event, FlowClosed):
        return f"closed {event.how}"
    if isinstance(event, FlowAlarm):
        return f"alarm {event.due_ns / 1e9:g}"
    side = ">" if event.from_initiator else "<"
    if isinstance(event, SegmentDiscarded):
        return f"{side} discarded {event.length} {event.reason}"
    if isinstance(event, StreamData):
        return f"{side} {event.offset}:{event.data.decode()}"
    if isinstance(event, StreamGap):
        return f"{side} gap {event.offset}+{event.length} {event.reason}"
    if isinstance(event, StreamOverlap):
        return f"{side} overlap {event.offset}+{event.length}"
    if isinstance(event, WindowClosed):
        return f"{side} window 0"
    return f"{side} closed {event.how}"


def feed(table: FlowTable, segments: list[Segment]) -> list[FlowEvent]:
    """All events of the segments, without the end of the capture."""
    return [event for segment in segments for event in table.feed(segment)]


def play(lines: list[str], table: FlowTable | None = None) -> list[str]:
    """Events of a script as lines, with the end of the capture."""
    table = table or FlowTable()
    events = feed(table, parse(lines))
    events.extend(table.close())
    check_tiling(events)
    assert table.buffered_bytes == 0
    return [render(event) for event in events]


def check_tiling(events: list[FlowEvent]) -> None:
    """Data and gaps of each stream follow each other without hole or overlap, inside the life of the flow."""
    ends: dict[tuple[int, bool], int] = {}
    opened: set[int] = set()
    closed: set[int] = set()
    ended: set[tuple[int, bool]] = set()
    for event in events:
        flow = id(event.flow)
        if isinstance(event, FlowOpened):
            assert flow not in opened
            opened.add(flow)
            continue
        assert flow in opened
        if isinstance(event, SegmentDiscarded):
            continue
        assert flow not in closed
        if isinstance(event, FlowClosed):
            closed.add(flow)
        elif isinstance(event, (StreamData, StreamGap)):
            length = len(event.data) if isinstance(event, StreamData) else event.length
            assert length > 0
            assert (flow, event.from_initiator) not in ended
            assert event.offset == ends.get((flow, event.from_initiator), 0)
            ends[flow, event.from_initiator] = event.offset + length
        elif isinstance(event, StreamClosed):
            assert (flow, event.from_initiator) not in ended
            ended.add((flow, event.from_initiator))
    assert opened == closed
