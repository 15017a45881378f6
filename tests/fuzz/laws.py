"""No matter what the segments are: streams are tiled by data and gaps, flows and connections open and close once.

What the targets that reach the flow table and the dissector check in common.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from mqttscope.dissect import Dissector, Options
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt import ProtocolVersion
from mqttscope.net.events import FlowClosed, FlowEvent, FlowOpened, StreamClosed, StreamData, StreamGap, StreamOverlap
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import Segment
from mqttscope.report.jsonl import JsonLines
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
        assert key in self.open, "an event of a flow that is not open"
        if isinstance(event, FlowClosed):
            assert event.how in _ENDS
            del self.open[key]
            self.ended -= {(key, True), (key, False)}
            return
        side = key, event.from_initiator
        if isinstance(event, StreamOverlap):
            assert event.length > 0
            assert 0 <= event.offset
            return
        assert side not in self.ended, "an event behind the end of its direction"
        if isinstance(event, StreamClosed):
            self.ended.add(side)
            return
        length = len(event.data) if isinstance(event, StreamData) else event.length
        assert length > 0
        assert event.offset == self.next[side], "data and gaps do not tile the stream"
        assert not isinstance(event, StreamGap) or event.reason in _REASONS
        self.next[side] += length


def check_flows(found: Iterable[Segment], table: FlowTable) -> None:
    """Feed segments to a table and close it."""
    tiling = Tiling()
    for segment in found:
        for event in table.feed(segment):
            tiling.feed(event)
        buffered = 0
        for flow in table.flows.values():
            for half in (flow.initiator, flow.responder):
                buffered += half.buffer.size
                assert half.buffer.size <= table.max_buffered_bytes
                assert len(half.buffer) <= table.max_buffered_segments
        assert buffered == table.buffered_bytes <= table.max_total_buffered_bytes
        assert len(table.flows) <= table.max_flows
    for event in table.close():
        tiling.feed(event)
    assert not tiling.open, "a flow was not closed"


class Lines:
    """A sink that reads the JSON it is given."""

    def write(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        for line in data.splitlines():
            assert json.loads(line)["schema"] == 1


def check_dissection(found: Iterable[Segment], version: ProtocolVersion | None = None) -> None:
    """Dissect segments and write every event as JSON."""
    dissector = Dissector(Options({8080: "ws", 1884: "mqtt"}, version))
    reporter = JsonLines(Lines())
    known: dict[int, Connection] = {}
    closed: set[int] = set()
    numbers = 0

    def take(event: Event) -> None:
        nonlocal numbers
        reporter.feed(event)
        connection = getattr(event, "connection", None)
        if connection is None:
            return
        assert connection.number not in closed, "an event behind the end of its connection"
        if isinstance(event, ConnectionOpened):
            assert connection.number == len(known), "connections are not numbered in order"
            known[connection.number] = connection
            return
        assert known[connection.number] is connection
        if isinstance(event, ConnectionClosed):
            closed.add(connection.number)
        elif isinstance(event, PacketEvent | MalformedEvent):
            assert event.number == numbers, "packets are not numbered in order"
            numbers += 1

    for segment in found:
        for event in dissector.feed(segment):
            take(event)
    for event in dissector.close():
        take(event)
    assert closed == known.keys()
