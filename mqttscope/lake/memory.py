"""What is remembered of a flow between two runs, how it is taken up again, and what captures that come late add to it.

What a flow remembers is how far its streams have come.  Captures from before that time hold bytes that it has passed: a
stream cannot go back.  They are read all the same, and each packet once.  So each late segment goes

* to the flow itself where it fits at its end, or into a hole that is still waited for;
* nowhere where its bytes were read before: it is a copy, and counted as one;
* to an earlier *part* of the connection that it continues: a part is a flow of its own, with a connection of its own,
  which is remembered beside the flow;
* else into a new part.

Rules of sessions and servers judge what comes in the order of time: they do not see parts.  A part ends like a flow, by
FIN, reset or time; where nothing more was read of it, its row does not claim that it was idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import FlowState, Over
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.events import Event
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.state import StateError, load
from mqttscope.lake.tables import Collector
from mqttscope.lake.tracker import LATE, KeyMemory, Tracker
from mqttscope.net.flow import Flow
from mqttscope.net.flow_expiry import forget_ns
from mqttscope.net.reassembly import START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, flow_key, plain_key, reverse_key
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import Connection

_T = TypeVar("_T")


@dataclass(slots=True)
class FlowMemory:
    """What is remembered of a flow between two runs.  Plain data."""

    flow: Flow
    tracker: Tracker | None = None
    parts: list[FlowMemory] = field(default_factory=list)
    """Earlier parts of it that came late (`Late`)."""
    holes: list[tuple[bool, int, int]] = field(default_factory=list)
    """What was given up of it, where it has ended (`Collector.holes`)."""


def connection_of(flow: Flow) -> Any:
    """The connection that a flow carries, once it is recognised and until it ends."""
    return flow.context.connection if isinstance(flow.context, FlowState) else None


def resume(memory: FlowMemory, dissector: Dissector, collector: Collector) -> None:
    """Continue a flow."""
    connection = connection_of(memory.flow)
    if connection is not None:
        # Numbers only have to be different.
        connection.number = dissector.connections
        dissector.connections += 1
        connection.alarm = dissector.alarm(memory.flow)
        if memory.tracker is not None:
            collector.adopt(connection, memory.tracker)
    elif isinstance(memory.flow.context, Over):
        memory.flow.context.connection.number = dissector.connections
        dissector.connections += 1
    if memory.holes:
        collector.holes[flow_key(memory.flow.key)] = memory.holes
    dissector.adopt(memory.flow)


def remembered(dissector: Dissector, collector: Collector, watermark_ns: int | None = None) -> list[FlowMemory]:
    """What is remembered of the flows of a dissector: those that are open, or so fresh that copies may still come."""
    found = []
    for flow in dissector.flows.flows.values():
        if flow.closed and watermark_ns is not None and watermark_ns > forget_ns(flow):
            continue
        connection = connection_of(flow)
        tracker = None if connection is None else collector.remember(connection)
        holes = collector.holes.pop(flow_key(flow.key), []) if flow.closed else []
        found.append(FlowMemory(flow, tracker, holes=holes))
    return found


def open_connections(memories: Iterable[FlowMemory]) -> Iterator[tuple[Connection, Tracker]]:
    """The connections that are open, in what is remembered of flows."""
    for memory in memories:
        connection = connection_of(memory.flow)
        if connection is not None and memory.tracker is not None:
            yield connection, memory.tracker


def flow_memory(data: bytes) -> FlowMemory:
    """What a flow remembers, as it was written down; `LakeError` where that cannot be read."""
    return _loaded(data, FlowMemory, "a flow remembers")


def key_memory(data: bytes) -> KeyMemory:
    """What rules remember of a key, as it was written down; `LakeError` where that cannot be read."""
    return _loaded(data, KeyMemory, "rules remember")


def _loaded(data: bytes, kind: type[_T], whose: str) -> _T:
    """What was written down; `LakeError` where that cannot be read."""
    try:
        memory = load(data)
    except StateError as error:
        raise LakeError(f"what {whose} cannot be read: the lake is damaged ({error})") from None
    if not isinstance(memory, kind):
        raise LakeError(f"what {whose} cannot be read: the lake is damaged")
    return memory


MAX_PARTS = 32
"""Of one flow; when there are more, the one that was read longest ago ends."""
SKEW_NS = 1_000_000_000
"""So much the clocks of two captures may differ."""
_ACK_SLACK = 65_536
"""Bytes that may be under way when a flow is first seen: acknowledgments from then are that far behind."""
_NUMBERS = 1 << 20
"""Connections that one part can hold, at least: they are numbered from its own beginning."""


@dataclass(slots=True)
class _Part:
    """An earlier part of a connection."""

    dissector: Dissector

    @property
    def flow(self) -> Flow | None:
        """Its flow, while it is known."""
        return next(iter(self.dissector.flows.flows.values()), None)


@dataclass(slots=True)
class _Known:
    """Parts of the connections between two endpoints."""

    parts: list[_Part] = field(default_factory=list)
    """The one that was read last comes last."""
    current: _Part | None = None
    """The part that the capture which is read now goes into."""
    capture: str = ""
    """That capture."""


class Late:
    """The late segments of one run.  ``dissector`` reads the others; events go to ``collector`` like theirs."""

    def __init__(self, dissector: Dissector, collector: Collector) -> None:
        self._dissector = dissector
        self._collector = collector
        self._resumed: dict[bytes, int] = {}
        """Flows of earlier runs by their keys: what comes from before this time is late."""
        self._known: dict[bytes, _Known] = {}
        """Those of them that have parts."""
        self._numbers = LATE

    def adopt(self, memory: FlowMemory) -> None:
        """Know a flow that was resumed, and continue its parts."""
        flow = memory.flow
        self._resumed[flow.key] = captured(flow.last_timestamp_ns)
        if memory.parts:
            known = self._add(flow.key)
            for one in memory.parts:
                part = self._new_part(known)
                resume(one, part.dissector, self._collector)
            memory.parts = []

    def events(self, segment: Segment) -> Iterator[Event] | None:
        """Events of a segment that is late; ``None`` for one that is not, which the dissector has to take."""
        if not self._resumed:
            return None
        found = self._dissector.flows.entry(segment.key)
        key = segment.key if found is None else found[0].key
        high_ns = self._resumed.get(key)
        if high_ns is None:
            key = reverse_key(key)
            high_ns = self._resumed.get(key)
        if high_ns is None or segment.timestamp_ns >= high_ns:
            return None
        if found is not None and found[0].last_capture == segment.capture:
            # A clock that was set back in the middle of a capture.
            return None
        return self._take(segment, self._known.get(key) or self._add(key))

    def advance(self, now_ns: int | None) -> Iterator[Event]:
        """Let time pass for all parts."""
        if now_ns is not None:
            for known in self._known.values():
                for part in known.parts:
                    yield from part.dissector.advance(now_ns)

    def close(self) -> Iterator[Event]:
        """End all parts."""
        for known in self._known.values():
            for part in known.parts:
                yield from part.dissector.close()

    def remembered(self, memories: list[FlowMemory], watermark_ns: int | None) -> list[FlowMemory]:
        """What is remembered of flows, with their parts; of a flow that is not remembered the latest part stands in."""
        if not self._known:
            return memories
        flows = {one.flow.key: one for one in memories}
        for key, known in self._known.items():
            parts = [one for part in known.parts for one in remembered(part.dissector, self._collector, watermark_ns)]
            parts.sort(key=lambda one: one.flow.last_timestamp_ns)
            memory = flows.get(key) or flows.get(reverse_key(key))
            if memory is None and parts:
                memory = parts.pop()
                memories.append(memory)
            if memory is not None:
                memory.parts = parts
        return memories

    def _add(self, key: bytes) -> _Known:
        known = self._known[key] = _Known()
        return known

    def _new_part(self, known: _Known, like: Connection | None = None) -> _Part:
        self._collector.reads_late = True
        part = _Part(Dissector(_read_like(self._dissector.options, like)))
        part.dissector.connections = self._numbers
        self._numbers += _NUMBERS
        known.parts.append(part)
        return part

    def _take(self, segment: Segment, known: _Known) -> Iterator[Event]:
        # What was waited for may be given up before this segment comes.
        for dissector in (self._dissector, *(part.dissector for part in known.parts)):
            yield from dissector.advance(segment.timestamp_ns)
        found = self._dissector.flows.entry(segment.key)
        flow = None if found is None else found[0]
        if flow is not None and self._fits(flow, segment):
            yield from self._into(flow, segment)
            return
        if segment.capture != known.capture:
            known.current, known.capture = None, segment.capture
        part = next((one for one in reversed(known.parts) if one.flow and self._fits(one.flow, segment)), None)
        if part is None and known.current is not None and _may_follow(known.current.flow, segment):
            part = known.current
        if part is None:
            part = self._new_part(known, _said_before(segment, flow, known))
            if len(known.parts) > MAX_PARTS:
                yield from known.parts.pop(0).dissector.close()
        known.current = part
        if known.parts[-1] is not part:
            known.parts.remove(part)
            known.parts.append(part)
        copied = part.flow is not None and _is_copy(part.flow, segment)
        if copied:
            _count_copy(part.flow, segment)
        else:
            yield from part.dissector.feed(segment)

    def _into(self, flow: Flow, segment: Segment) -> Iterator[Event]:
        """Give a segment to the flow itself; its last segment stays the one with the latest time."""
        if _is_copy(flow, segment):
            _count_copy(flow, segment)
            return
        last = flow.last_timestamp_ns, flow.last_frame, flow.last_capture
        yield from self._dissector.feed(segment)
        if flow.last_timestamp_ns < last[0]:
            flow.last_timestamp_ns, flow.last_frame, flow.last_capture = last

    def _fits(self, flow: Flow, segment: Segment) -> bool:
        """Whether a late segment belongs to a flow as far as that was read: its end, what it waits for, or a copy."""
        if segment.timestamp_ns < flow.opened_ns - SKEW_NS:
            return False
        half, peer, from_initiator = _halves(flow, segment)
        flags = segment.flags
        if flags & SYN:
            if half.state is UNSEEN and flags & ACK:
                return segment.acknowledgment == advance(peer.initial_sequence, 1)
            return half.initial_sequence == segment.sequence
        holes = self._holes(flow)
        if flags & ACK and peer.state is not UNSEEN:
            position = peer.locate(segment.acknowledgment)
            most = max(peer.offset, peer.sent, peer.acknowledged) + START_WINDOW
            least = 0 if half.state is UNSEEN else -_ACK_SLACK
            if not least <= position <= most or _inside(holes, not from_initiator, position - 1, position):
                return False
        elif half.state is UNSEEN:
            return False
        if half.state is UNSEEN:
            return True
        start = half.locate(segment.sequence)
        end = start + len(segment.payload) + segment.missing
        if start >= half.offset:
            return end <= half.offset + START_WINDOW
        return start >= 0 and not _inside(holes, from_initiator, start, end)

    def _holes(self, flow: Flow) -> list[tuple[bool, int, int]]:
        """What was given up of a flow: whether of its initiator, from where, to where."""
        if flow.closed:
            key = flow_key(flow.key)
            found = self._collector.holes.get(key, ())
            return [(first is (flow.key == key), start, end) for first, start, end in found]
        connection, dialogue = connection_of(flow), flow.context
        tracker = None if connection is None else self._collector.trackers.get(connection.number)
        if tracker is None or not isinstance(dialogue, FlowState):
            return []
        return [(one.from_client is dialogue.client_is_initiator, one.start, one.end) for one in tracker.holes]


def _said_before(segment: Segment, flow: Flow | None, known: _Known) -> Connection | None:
    """The last connection that began before a segment between the same endpoints, or else the first one."""
    flows = [one for one in (flow, *(part.flow for part in known.parts)) if one is not None]
    flows = sorted((one for one in flows if connection_of(one) is not None), key=lambda one: one.opened_ns)
    before = [one for one in flows if one.opened_ns <= segment.timestamp_ns] or flows[:1]
    found: Connection | None = connection_of(before[-1]) if before else None
    return found


def _read_like(options: Options, connection: Connection | None) -> Options:
    """How to read what belongs to the same connection, as far as that is known: where it is spoken, which version."""
    if connection is None:
        return options
    port = int(connection.server.rpartition(":")[2])
    spoken = {"tcp": MQTT, "websocket": WEBSOCKET, "tls": TLS}[connection.transport]
    version = connection.version if connection.version_known else None
    return replace(options, ports={port: spoken} | options.ports, version=options.version or version)


def _may_follow(flow: Flow | None, segment: Segment) -> bool:
    """Whether a segment that does not fit a part may be the next one there all the same, or begin a connection."""
    if flow is None:
        return True
    if segment.timestamp_ns < flow.last_timestamp_ns - SKEW_NS:
        return False
    half, _, _ = _halves(flow, segment)
    return half.state is UNSEEN or not segment.payload or half.locate(segment.sequence) >= half.offset


def _halves(flow: Flow, segment: Segment) -> tuple[HalfStream, HalfStream, bool]:
    if plain_key(segment.key) == plain_key(flow.key):
        return flow.initiator, flow.responder, True
    return flow.responder, flow.initiator, False


def _inside(holes: Iterable[tuple[bool, int, int]], from_initiator: bool, start: int, end: int) -> bool:
    return any(side is from_initiator and start < to and end > begin for side, begin, to in holes)


def _is_copy(flow: Flow, segment: Segment) -> bool:
    """Whether nothing of a segment that fits is new."""
    half, _, _ = _halves(flow, segment)
    if half.state is UNSEEN:
        return False
    if segment.flags & SYN:
        return half.initial_sequence == segment.sequence
    end = half.locate(segment.sequence) + len(segment.payload) + segment.missing
    if flow.closed or segment.payload:
        return end <= half.offset and (flow.closed != "" or not segment.flags & (FIN | RST))
    # What says nothing new of a stream that continued: a reset, too, that nobody heeded.
    return end < half.offset


def _count_copy(flow: Flow | None, segment: Segment) -> None:
    assert flow is not None
    half, _, _ = _halves(flow, segment)
    if segment.payload:
        half.data_segments += 1
        half.duplicate_segments += 1
    else:
        half.empty_segments += 1
