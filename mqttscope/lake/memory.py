"""The memory of a flow between two runs, how a run continues it, and what late captures add to it.

A flow remembers how far its streams have come.  Captures from before that time have bytes that it has passed: a
stream cannot go back.  They are read too, and each packet once.  So each late segment goes

* to the flow itself if it fits at its end, or into a hole that is still waited for;
* nowhere if its bytes were read before: it is a copy, and counted as one;
* to an earlier *part* of the connection that it continues: a part is a flow of its own, with a connection of its own,
  which is remembered beside the flow;
* otherwise into a new part.

Rules about sessions and servers judge events in the order of time, and never see parts.  A part ends like a flow, by
FIN, reset or timeout; if nothing more of it was read, its row does not claim that it was idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from zlib import crc32

from mqttscope.dissect import Dissector
from mqttscope.dissect.flow_state import EndedFlow, FlowState
from mqttscope.dissect.options import MQTT, TLS, WEBSOCKET, Options
from mqttscope.events import Event
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.state import StateError, load
from mqttscope.lake.tables import Collector
from mqttscope.lake.tracker import LATE, KeyMemory, Tracker
from mqttscope.mqtt.codec import packet_end
from mqttscope.net.flow import Flow
from mqttscope.net.flow_expiry import forget_ns
from mqttscope.net.reassembly import START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, flow_key, plain_key, reverse_key
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import Connection, port_of

_T = TypeVar("_T")


@dataclass(slots=True)
class FlowMemory:
    """The memory of a flow between two runs.  Plain data."""

    flow: Flow
    tracker: Tracker | None = None
    parts: list[FlowMemory] = field(default_factory=list)
    """Its earlier parts, from late captures (`LateData`)."""
    holes: list[tuple[bool, int, int]] = field(default_factory=list)
    """Bytes given up by an ended flow (`Collector.holes`)."""
    beginnings: dict[bool, tuple[int, int]] = field(default_factory=dict)
    """Length and checksum of the first bytes of the initiator (true) and the responder: another connection may have
    the same numbers.  The checksum is too short to guess secrets by it."""

    def note_beginnings(self) -> None:
        """Compute the checksums of first bytes, before the bytes are forgotten."""
        for from_initiator, half in ((True, self.flow.initiator), (False, self.flow.responder)):
            half.keep_beginning()
            first = half.beginning
            # The first packet is nearly always in one segment.
            _, end = packet_end(first, 0, len(first)) if first[:1] in (b"\x10", b"\x20") else (0, _COMPARED)
            first = first[:end]
            if first:
                self.beginnings.setdefault(from_initiator, (len(first), crc32(first) & 0xFFFF))


def connection_of(flow: Flow) -> Any:
    """The connection of a flow, from its recognition to its end."""
    return flow.context.connection if isinstance(flow.context, FlowState) else None


def resume(memory: FlowMemory, dissector: Dissector, collector: Collector) -> None:
    """Continue a flow from its memory."""
    connection = connection_of(memory.flow)
    if connection is not None:
        # Numbers only have to be different.
        connection.number = dissector.connections
        dissector.connections += 1
        connection.alarm = dissector.alarm(memory.flow)
        if memory.tracker is not None:
            collector.adopt(connection, memory.tracker)
    elif isinstance(memory.flow.context, EndedFlow):
        memory.flow.context.connection.number = dissector.connections
        dissector.connections += 1
    if memory.beginnings:
        collector.beginnings[memory.flow.key, memory.flow.opened_ns] = memory.beginnings
    if memory.holes:
        collector.holes[flow_key(memory.flow.key)] = memory.holes
    dissector.adopt(memory.flow)


def remembered(dissector: Dissector, collector: Collector, watermark_ns: int | None = None) -> list[FlowMemory]:
    """The memories of a dissector's flows: open ones, and ended ones so fresh that copies may still come."""
    memories = []
    for flow in dissector.flows.flows.values():
        if flow.closed and watermark_ns is not None and watermark_ns > forget_ns(flow):
            continue
        connection = connection_of(flow)
        tracker = None if connection is None else collector.take_tracker(connection)
        holes = collector.holes.pop(flow_key(flow.key), []) if flow.closed else []
        beginnings = collector.beginnings.pop((flow.key, flow.opened_ns), {})
        memories.append(FlowMemory(flow, tracker, holes=holes, beginnings=beginnings))
    return memories


def open_connections(memories: Iterable[FlowMemory]) -> Iterator[tuple[Connection, Tracker]]:
    """The open connections among these flows."""
    for memory in memories:
        connection = connection_of(memory.flow)
        if connection is not None and memory.tracker is not None:
            yield connection, memory.tracker


def flow_memory(data: bytes) -> FlowMemory:
    """The stored memory of a flow; `LakeError` if it cannot be read."""
    return _loaded(data, FlowMemory, "a flow")


def key_memory(data: bytes) -> KeyMemory:
    """The stored memory of rules for a key; `LakeError` if it cannot be read."""
    return _loaded(data, KeyMemory, "rules")


def _loaded(data: bytes, kind: type[_T], owner: str) -> _T:
    try:
        memory = load(data)
    except StateError as error:
        raise LakeError(f"the memory of {owner} cannot be read: the lake is damaged ({error})") from None
    if not isinstance(memory, kind):
        raise LakeError(f"the memory of {owner} cannot be read: the lake is damaged")
    return memory


_COMPARED = 32
"""Length of the first bytes of a stream that are compared if they are not a CONNECT or CONNACK."""
MAX_PARTS = 32
"""Maximum number of parts of one flow; beyond it the part that was read longest ago ends."""
SKEW_NS = 1_000_000_000
"""Maximum difference between the clocks of two captures."""
_ACK_SLACK = 65_536
"""Maximum number of bytes in flight when a flow is first seen: acknowledgments may be that far behind."""
_NUMBERS = 1 << 20
"""Numbers reserved for the connections of one part, which have numbers of their own."""


@dataclass(slots=True)
class _ConnectionPart:
    """An earlier part of a connection."""

    dissector: Dissector

    @property
    def flow(self) -> Flow | None:
        return next(iter(self.dissector.flows.flows.values()), None)


@dataclass(slots=True)
class _EndpointParts:
    """Parts of the connections between two endpoints."""

    parts: list[_ConnectionPart] = field(default_factory=list)
    """Parts by the time they were last read, the latest last."""
    current: _ConnectionPart | None = None
    """The part that receives the capture which is read now."""
    capture: str = ""
    """Name of that capture."""
    foreign: str = ""
    """Name of the last capture with another connection that has the numbers of the flow."""


class LateData:
    """The late segments of one run.  ``dissector`` reads the other segments; ``collector`` gets all events."""

    def __init__(self, dissector: Dissector, collector: Collector) -> None:
        self._dissector = dissector
        self._collector = collector
        self._resumed: dict[bytes, int] = {}
        """Last times of flows of earlier runs, by key: segments from before are late."""
        self._known: dict[bytes, _EndpointParts] = {}
        """The parts of these flows."""
        self._numbers = LATE

    def adopt(self, memory: FlowMemory) -> None:
        """Note a resumed flow, and continue its parts."""
        flow = memory.flow
        self._resumed[flow.key] = captured(flow.last_timestamp_ns)
        if memory.parts:
            known = self._add(flow.key)
            for part_memory in memory.parts:
                part = self._new_part(known)
                resume(part_memory, part.dissector, self._collector)
            memory.parts = []

    def events(self, segment: Segment) -> Iterator[Event] | None:
        """Events of a late segment; ``None`` for a segment that is not late, which the dissector takes."""
        if not self._resumed:
            return None
        entry = self._dissector.flows.entry(segment.key)
        key = segment.key if entry is None else entry[0].key
        high_ns = self._resumed.get(key)
        if high_ns is None:
            key = reverse_key(key)
            high_ns = self._resumed.get(key)
        if high_ns is None or captured(segment.timestamp_ns) >= high_ns:
            return None
        if entry is not None and entry[0].last_capture == segment.capture:
            # A clock that was set back in the middle of a capture.
            return None
        return self._take(segment, self._known.get(key) or self._add(key))

    def advance(self, now_ns: int | None) -> Iterator[Event]:
        """Advance the time of all parts."""
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
        """Memories of flows with their parts; the latest part represents a flow without a memory."""
        if not self._known:
            return memories
        flows = {memory.flow.key: memory for memory in memories}
        for key, known in self._known.items():
            parts = [old for part in known.parts for old in remembered(part.dissector, self._collector, watermark_ns)]
            parts.sort(key=lambda memory: memory.flow.last_timestamp_ns)
            memory = flows.get(key) or flows.get(reverse_key(key))
            if memory is None and parts:
                memory = parts.pop()
                memories.append(memory)
            if memory is not None:
                memory.parts = parts
        return memories

    def _add(self, key: bytes) -> _EndpointParts:
        known = self._known[key] = _EndpointParts()
        return known

    def _new_part(self, known: _EndpointParts, like: Connection | None = None) -> _ConnectionPart:
        self._collector.reads_late = True
        part = _ConnectionPart(Dissector(_read_like(self._dissector.options, like)))
        part.dissector.connections = self._numbers
        self._numbers += _NUMBERS
        known.parts.append(part)
        return part

    def _take(self, segment: Segment, known: _EndpointParts) -> Iterator[Event]:
        # Time may pass for what is waited for before this segment comes.
        for dissector in (self._dissector, *(part.dissector for part in known.parts)):
            yield from dissector.advance(segment.timestamp_ns)
        entry = self._dissector.flows.entry(segment.key)
        flow = None if entry is None else entry[0]
        if flow is not None and not self._is_foreign(flow, segment, known) and self._fits(flow, segment):
            yield from self._into(flow, segment)
            return
        if segment.capture != known.capture:
            known.current, known.capture = None, segment.capture
        part = next((old for old in reversed(known.parts) if old.flow and self._fits(old.flow, segment)), None)
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
        """Feed a segment to the flow itself; the flow's last segment stays the one with the latest time."""
        if _is_copy(flow, segment):
            _count_copy(flow, segment)
            return
        last = flow.last_timestamp_ns, flow.last_frame, flow.last_capture
        yield from self._dissector.feed(segment)
        if flow.last_timestamp_ns < last[0]:
            flow.last_timestamp_ns, flow.last_frame, flow.last_capture = last

    def _is_foreign(self, flow: Flow, segment: Segment, known: _EndpointParts) -> bool:
        """Whether the capture of a segment has another connection with the numbers of a flow, but other first bytes."""
        half, _, from_initiator = _halves(flow, segment)
        beginnings = self._collector.beginnings.get((flow.key, flow.opened_ns), {})
        length, checksum = beginnings.get(from_initiator, (len(segment.payload) + 1, 0))
        is_first = half.state is not UNSEEN and not half.locate(segment.sequence) and len(segment.payload) >= length
        if is_first and crc32(segment.payload[:length]) & 0xFFFF != checksum:
            known.foreign = segment.capture
        return known.foreign == segment.capture

    def _fits(self, flow: Flow, segment: Segment) -> bool:
        """Whether a late segment fits a flow: at its end, into a hole that is waited for, or as a copy."""
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
        """The holes of a flow: whether of its initiator, start, end."""
        if flow.closed:
            key = flow_key(flow.key)
            holes = self._collector.holes.get(key, ())
            return [(first is (flow.key == key), start, end) for first, start, end in holes]
        connection, dialogue = connection_of(flow), flow.context
        tracker = None if connection is None else self._collector.trackers.get(connection.number)
        if tracker is None or not isinstance(dialogue, FlowState):
            return []
        return [(hole.from_client is dialogue.client_is_initiator, hole.start, hole.end) for hole in tracker.holes]


def _said_before(segment: Segment, flow: Flow | None, known: _EndpointParts) -> Connection | None:
    """The last connection between these endpoints that began before a segment, or else the first one."""
    flows = [other for other in (flow, *(part.flow for part in known.parts)) if other is not None]
    flows = sorted((other for other in flows if connection_of(other) is not None), key=lambda other: other.opened_ns)
    before = [other for other in flows if other.opened_ns <= segment.timestamp_ns] or flows[:1]
    connection: Connection | None = connection_of(before[-1]) if before else None
    return connection


def _read_like(options: Options, connection: Connection | None) -> Options:
    """Options for reading a part like its connection, as far as known: port, protocol and version."""
    if connection is None:
        return options
    port = int(port_of(connection.server))
    spoken = {"tcp": MQTT, "websocket": WEBSOCKET, "tls": TLS}[connection.transport]
    version = connection.version if connection.version_known else None
    return replace(options, ports={port: spoken} | options.ports, version=options.version or version)


def _may_follow(flow: Flow | None, segment: Segment) -> bool:
    """Whether a segment that does not fit a part may still come next there, or begin a connection."""
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
    """Whether a segment that fits contains nothing new."""
    half, _, _ = _halves(flow, segment)
    if half.state is UNSEEN:
        return False
    if segment.flags & SYN:
        return half.initial_sequence == segment.sequence
    end = half.locate(segment.sequence) + len(segment.payload) + segment.missing
    if flow.closed or segment.payload:
        return end <= half.offset and (flow.closed != "" or not segment.flags & (FIN | RST))
    # A segment without news for a stream that continued, for example an ignored reset.
    return end < half.offset


def _count_copy(flow: Flow | None, segment: Segment) -> None:
    assert flow is not None
    half, _, _ = _halves(flow, segment)
    if segment.payload:
        half.data_segments += 1
        half.duplicate_segments += 1
    else:
        half.empty_segments += 1
