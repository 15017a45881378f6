"""Whether TCP acknowledged the packets of captures: later segments show it, so a second reader runs ahead.

`Acknowledgments` orders the segments of the captures with its own flow table, as far as an answer needs: most packets
are acknowledged by the next segments, and only a packet that never is requires the captures to their end.  It keeps
the frames of a direction with unacknowledged bytes, with their stream offsets.

A packet of plain TCP is located by its own stream offset.  A packet inside WebSocket or TLS is located by the frame
that completed it: if the acknowledgment ends within the bytes of this frame, nothing is proven.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mqttscope.dissect.clock_watch import ClockWatch
from mqttscope.events import ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.net.flow import Flow, FlowClosed, FlowEvent, FlowOpened, StreamData, StreamGap
from mqttscope.net.flows import FlowTable
from mqttscope.net.frame import FlowIdentity, SegmentItem
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import ACK, FIN, Segment, endpoints
from mqttscope.net.tap_views import COPY_NS
from mqttscope.session.connection import C2S, Connection

MAX_FLOWS: Final = 100_000
"""Maximum number of remembered flows; the oldest one is forgotten first, and its packets have no answer."""
MAX_WAITING: Final = 4_096
"""Maximum number of frames of a direction that wait for an acknowledgment; beyond it, its packets have no answer."""
SILENCE_NS: Final = 5_000_000_000
"""Capture time without a segment of the receiver until a packet counts as not acknowledged.  A receiver delays an
acknowledgment by less than 0.5 s (RFC 1122 section 4.2.3.2)."""
_AHEAD: Final = 64
"""Number of segments read before the next check for an answer."""
_SACK: Final = 5

Place = tuple[str, int]
"""A capture and one of its frames."""
Span = tuple[int, int]
"""Stream offsets of the first byte and after the last one."""


@dataclass(slots=True)
class AcknowledgedStream:
    """One direction of a flow."""

    waiting: dict[Place, Span] = field(default_factory=dict)
    """Frames with unacknowledged bytes."""
    waiting_at_fin: dict[Place, Span] | None = None
    """Frames with unacknowledged bytes when the receiver sent FIN."""
    unknown: dict[Place, Span] = field(default_factory=dict)
    """Frames before a gap that was given up without proof."""
    acknowledged: int = 0
    """Stream offset that the receiver has acknowledged."""
    latest: tuple[Place, int] = ("", 0), 0
    """The frame of the last bytes, and the stream offset of its first byte."""
    latest_ns: int = 0
    sent: int = 0
    """Stream offset after the last byte."""
    is_full: bool = False
    """Whether more than `MAX_WAITING` frames were waiting."""
    answered_ns: int | None = None
    """Time of the receiver's last segment with ACK."""
    answered_at: Place = ("", 0)
    answer: tuple[int, int, int] = -1, -1, 0
    """Sequence number, acknowledgment number and flags of the receiver's last segment with ACK."""
    copies: int = 0
    """Segments of the receiver that were captured twice."""

    def add(self, event: StreamData | StreamGap, half: HalfStream) -> None:
        """Add the next bytes, or a gap, to the frames that wait."""
        length = len(event.data) if type(event) is StreamData else event.length  # type: ignore[union-attr]
        if type(event) is StreamGap and event.reason == "unproven":
            self.unknown.update(self.waiting)
            self.waiting.clear()
        place = (event.capture, event.frame)
        if place != self.latest[0]:
            self.latest, self.latest_ns = (place, event.offset), event.timestamp_ns
        self.sent = event.offset + length
        if self.sent > half.acknowledged:
            self.waiting[place] = self.latest[1], self.sent
        if len(self.waiting) + len(self.unknown) > MAX_WAITING:
            self.is_full = True
            self.waiting.clear()
            self.unknown.clear()

    def acknowledge(self, half: HalfStream, segment: Segment) -> None:
        """Apply a segment of the receiver, with its selective acknowledgments (RFC 2018)."""
        self.acknowledged = half.acknowledged
        while self.waiting:
            place, (_, end) = next(iter(self.waiting.items()))
            if end > self.acknowledged:
                break
            del self.waiting[place]
        for left, right in selective(segment.options) if self.waiting else ():
            start, stop = half.locate(left), half.locate(right)
            covered = [place for place, (first, end) in self.waiting.items() if start <= first and end <= stop]
            for place in covered:
                del self.waiting[place]

    def has(self, event: PacketEvent | MalformedEvent, end: int) -> bool:
        """Whether the last byte of a packet was added; ``end``: the stream offset after it, -1 if unknown."""
        if end >= 0:
            return end <= self.sent
        capture, frame = self.latest[0]
        return frame >= event.frame if capture == event.capture else self.latest_ns > event.timestamp_ns

    def is_waiting(self, place: Place, end: int) -> bool | None:
        """Whether the last byte of a packet is not acknowledged yet; ``None`` without proof."""
        if self.is_full or _holds(self.unknown, place, end):
            return None
        if end >= 0:
            return end > self.acknowledged and _holds(self.waiting, place, end)
        span = self.waiting.get(place)
        return None if span is not None and span[0] < self.acknowledged else span is not None

    def is_answered_after(self, event: PacketEvent | MalformedEvent) -> bool:
        """Whether the receiver sent a segment after a packet."""
        if self.answered_ns is None:
            return False
        capture, frame = self.answered_at
        return frame > event.frame if capture == event.capture else self.answered_ns > event.timestamp_ns


def _holds(spans: dict[Place, Span], place: Place, end: int) -> bool:
    if end < 0:
        return place in spans
    # Copied, since another thread may be reading on.
    return any(first < end <= last for first, last in list(spans.values()))


def selective(options: bytes) -> Iterator[tuple[int, int]]:
    """The blocks of the SACK option: sequence numbers of the first byte and after the last byte."""
    at = 0
    while at + 1 < len(options) and options[at]:
        kind, length = (1, 1) if options[at] == 1 else (options[at], options[at + 1])
        if kind == _SACK:
            blocks = options[at + 2 : at + length]
            for start in range(0, len(blocks) - 7, 8):
                yield int.from_bytes(blocks[start : start + 4]), int.from_bytes(blocks[start + 4 : start + 8])
        at += max(1, length)


@dataclass(slots=True)
class AcknowledgedFlow:
    """Both directions of a flow."""

    initiator: AcknowledgedStream = field(default_factory=AcknowledgedStream)
    responder: AcknowledgedStream = field(default_factory=AcknowledgedStream)
    is_reset: bool = False
    client: str = ""
    """Endpoint of the initiator."""


class Acknowledgments:
    """Reads segments ahead of the events in question."""

    def __init__(self, segments: Iterable[SegmentItem], *, verify_checksums: bool = True) -> None:
        self.is_done = False
        """Whether everything was read."""
        self.reads_ahead = True
        """Whether `of` reads the segments that an answer needs; else the caller reads, and `of` uses these segments."""
        self._table = FlowTable(verify_checksums=verify_checksums)
        self._segments = ClockWatch(self._table).follow(segments)
        self._flows: OrderedDict[FlowIdentity, AcknowledgedFlow] = OrderedDict()
        self._last_ns = -1 << 63

    def attach(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass events on, and connect their connections with this reader for `tcp_acknowledged`."""
        for event in events:
            if type(event) is ConnectionOpened:
                event.connection.acknowledgments = self
            yield event

    def of(self, event: PacketEvent | MalformedEvent) -> bool | None:
        """Whether TCP acknowledged a packet; ``None`` if the captures do not show it."""
        while not (answer := self.known_answer(event)) and not self.is_done and self.reads_ahead:
            self.read(_AHEAD)
        return answer

    def known_answer(self, event: PacketEvent | MalformedEvent) -> bool | None:
        """The answer without reading more segments; ``False`` only after the end of the captures."""
        stream = self._stream(event)
        if stream is None or (isinstance(event, MalformedEvent) and event.malformed.missing):
            return None
        place, end = (event.capture, event.frame), _end_of(event)
        if not stream.has(event, end):
            return None
        is_waiting = stream.is_waiting(place, end)
        if is_waiting is False:
            return True
        if is_waiting is None or not self.is_done or stream.answered_ns is None:
            return None
        is_over = self._flows[_identity(event.connection)].is_reset
        is_silent = self._last_ns - event.timestamp_ns >= SILENCE_NS
        return False if is_over or is_silent or stream.is_answered_after(event) else None

    def is_after_fin(self, event: PacketEvent | MalformedEvent) -> bool:
        """Whether the receiver had sent FIN when its TCP acknowledged a packet, which its program may not have read."""
        stream = self._stream(event)
        at_fin = None if stream is None else stream.waiting_at_fin
        return bool(at_fin) and _holds(at_fin or {}, (event.capture, event.frame), _end_of(event))

    def read(self, count: int) -> None:
        """Read ahead by some segments; at the end of the captures, close the table."""
        for item in islice(self._segments, count):
            count -= 1
            if type(item) is Segment:
                self._feed(item)
        if count:
            self._take(self._table.close())
            self.is_done = True

    def _stream(self, event: PacketEvent | MalformedEvent) -> AcknowledgedStream | None:
        connection = event.connection
        flow = self._flows.get(_identity(connection))
        if flow is None:
            return None
        flow.client = flow.client or endpoints(connection.flow_key)[0]
        from_initiator = (event.direction is C2S) == (flow.client == connection.client)
        return flow.initiator if from_initiator else flow.responder

    def _feed(self, segment: Segment) -> None:
        table = self._table
        self._last_ns = max(self._last_ns, segment.timestamp_ns)
        self._take(table.advance(segment.timestamp_ns))
        self._take(table.feed(segment))
        entry = table.entry(segment.key)
        if entry is None or entry[0].undecided or not isinstance(flow := entry[0].context, AcknowledgedFlow):
            return
        _, half, peer, from_initiator = entry
        stream = flow.responder if from_initiator else flow.initiator
        stream.acknowledge(peer, segment)
        answer, now_ns = (segment.sequence, segment.acknowledgment, segment.flags), segment.timestamp_ns
        # An empty segment repeated at once may be a copy that the table does not recognise.
        is_again = not segment.payload and answer == stream.answer and now_ns - (stream.answered_ns or 0) <= COPY_NS
        is_copy, stream.copies = is_again or half.copied_segments != stream.copies, half.copied_segments
        if is_copy or not segment.flags & ACK:
            return
        stream.answered_ns, stream.answered_at, stream.answer = now_ns, (segment.capture, segment.frame), answer
        if segment.flags & FIN and stream.waiting_at_fin is None:
            stream.waiting_at_fin = dict(stream.waiting)

    def _take(self, events: Iterable[FlowEvent]) -> None:
        for event in events:
            if isinstance(event, StreamData | StreamGap):
                flow = self._flow(event.flow)
                if event.from_initiator:
                    flow.initiator.add(event, event.flow.initiator)
                else:
                    flow.responder.add(event, event.flow.responder)
            elif isinstance(event, FlowOpened):
                event.flow.context = None
            elif isinstance(event, FlowClosed) and isinstance(event.flow.context, AcknowledgedFlow):
                event.flow.context.is_reset = event.how == "reset"

    def _flow(self, flow: Flow) -> AcknowledgedFlow:
        """The state of a flow, attached at its first bytes, since the table decides its initiator until then."""
        if isinstance(flow.context, AcknowledgedFlow):
            return flow.context
        if len(self._flows) >= MAX_FLOWS:
            self._flows.popitem(last=False)
        flow.context = known = self._flows[flow.identity] = AcknowledgedFlow()
        return known


def _identity(connection: Connection) -> FlowIdentity:
    return connection.flow_key, connection.frame, connection.capture


def _end_of(event: PacketEvent | MalformedEvent) -> int:
    """Stream offset of TCP after a packet, -1 if only its frame is known."""
    connection = event.connection
    if event.stream_offset < 0 or connection.transport != "tcp" or "resumes" in connection.details:
        return -1
    packet = event.packet if isinstance(event, PacketEvent) else event.malformed
    return event.stream_offset + len(packet.raw) + packet.missing


def tcp_acknowledged(event: Event) -> bool | None:
    """Whether TCP acknowledged a packet; ``None`` if unknown, or without a reader that runs ahead."""
    if not isinstance(event, PacketEvent | MalformedEvent) or event.connection.acknowledgments is None:
        return None
    return event.connection.acknowledgments.of(event)
