"""No matter what the segments are: streams are tiled by data and gaps, flows and connections open and close once.

What the targets that reach the flow table and the dissector check in common.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, DiscardedEvent, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt import ProtocolVersion
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
from mqttscope.net.reassembly import HELD
from mqttscope.net.segment import Segment
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.session import Connection

_REASONS = ("not_captured", "cut", "unproven")
_ENDS = ("fin", "reset", "port_reused", "idle", "evicted", "capture_end")


class Tiling:
    """Follows the events of a flow table."""

    def __init__(self) -> None:
        self.open: dict[int, object] = {}
        self.next: dict[tuple[int, bool], int] = {}
        self.ended: set[tuple[int, bool]] = set()

    def feed(self, event: FlowEvent) -> None:
        key = id(event.flow)
        if isinstance(event, FlowOpened):
            assert key not in self.open
            self.open[key] = event.flow  # kept, so that the identity is not given to another flow
            self.next[key, True] = self.next[key, False] = 0
            return
        if isinstance(event, SegmentDiscarded):
            assert event.length > 0  # of flows that are over too
            return
        assert key in self.open, "an event of a flow that is not open"
        if isinstance(event, FlowClosed):
            assert event.how in _ENDS
            del self.open[key]
            self.ended -= {(key, True), (key, False)}
            return
        assert not isinstance(event, FlowAlarm), "nobody asked for it"
        side = key, event.from_initiator
        if isinstance(event, WindowClosed):
            return
        if isinstance(event, StreamOverlap):
            assert event.length > 0
            assert event.offset >= 0
            return
        assert side not in self.ended, "an event after the end of its direction"
        if isinstance(event, StreamClosed):
            self.ended.add(side)
            return
        length = len(event.data) if isinstance(event, StreamData) else event.length
        assert length > 0
        assert event.offset == self.next[side], "data and gaps do not tile the stream"
        assert not isinstance(event, StreamGap) or event.reason in _REASONS
        self.next[side] += length


def check_flows(segments: Iterable[Segment], table: FlowTable) -> None:
    """Feed segments to a table and close it."""
    tiling = Tiling()
    for segment in segments:
        for event in table.feed(segment):
            tiling.feed(event)
        buffered = 0
        for flow in table.flows.values():
            for half in (flow.initiator, flow.responder):
                buffered += half.buffer.size
                if half.state == HELD:
                    assert len(half.buffer) == 1
                else:
                    assert half.buffer.size <= table.max_buffered_bytes
                    assert len(half.buffer) <= table.max_buffered_segments
        assert buffered == table.buffered_bytes <= table.budget.limit
        assert len(table.flows) <= table.max_flows
    for event in table.close():
        tiling.feed(event)
    assert not tiling.open, "a flow was not closed"


class Lines:
    """A sink that reads the JSON it is given, and keeps it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        assert json.loads(data)["schema"] == 1
        self.lines.append(data)


def check_dissection(segments: list[Segment], version: ProtocolVersion | None = None) -> None:
    """Dissect segments on both ways, which must say the same, and write every event as JSON."""
    options = Options({8080: "ws", 1884: "mqtt"}, version)
    slow, fast = Lines(), Lines()
    dissector = Dissector(options)
    reporter = EventJsonLines(slow)
    events = Numbers()
    for segment in segments:
        for event in dissector.feed(segment):
            events.feed(event)
            reporter.feed(event)
    for event in dissector.close():
        events.feed(event)
        reporter.feed(event)
    assert events.closed == events.known.keys(), "a connection was not closed"
    assert dissector.packets == events.packets
    reporter = EventJsonLines(fast)
    for event in dissect_segments(segments, options):
        reporter.feed(event)
    assert slow.lines == fast.lines, "the short way says something else"


class Numbers:
    """Follows the events of a dissector."""

    def __init__(self) -> None:
        self.known: dict[int, Connection] = {}
        self.closed: set[int] = set()
        self.packets = 0

    def feed(self, event: Event) -> None:
        connection = getattr(event, "connection", None)
        if connection is None or isinstance(event, DiscardedEvent):
            return  # what is discarded may come late
        assert connection.number not in self.closed, "an event after the end of its connection"
        if isinstance(event, ConnectionOpened):
            assert connection.number == len(self.known), "connections are not numbered in order"
            self.known[connection.number] = connection
            return
        assert self.known[connection.number] is connection
        if isinstance(event, ConnectionClosed):
            self.closed.add(connection.number)
        elif isinstance(event, PacketEvent | MalformedEvent):
            assert event.number == self.packets, "packets are not numbered in order"
            self.packets += 1
