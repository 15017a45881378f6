"""The table of TCP connections: takes segments in capture order, says what they did to the streams.

In-order segments of a connection in which nothing is missing take the fast path, ``FlowTable.take_in_order``; all else
goes through ``_feed_slowly``.  Decisions about one flow depend on its own segments and their capture times alone,
not on the traffic around it, as long as no limit of the table is hit: the flows of a capture can be fed apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from mqttscope.net.events import FlowOpened, Report, StreamData
from mqttscope.net.handshake import is_new_connection, plausible_reset, take_syn
from mqttscope.net.housekeeping import LINGER_NS, FlowRegister, last_place
from mqttscope.net.reassembly import HISTORY_PAYLOADS, NEVER, START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, ports, reverse_key
from mqttscope.net.sequence import advance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqttscope.net.events import FlowEvent
    from mqttscope.net.segment import Segment

YOUNG_NS = 1_000_000_000
"""So long after its first segment a flow that was joined in the middle may have had bytes under way."""

_NOTHING: tuple[FlowEvent, ...] = ()


@dataclass(slots=True)
class Flow:
    """One TCP connection.  Plain data, except for ``context``."""

    key: bytes
    """Direction key from the initiator to the responder."""
    initiator_known: bool
    """Whether a SYN or SYN-ACK said who the initiator is; else it is assumed to be the side with the higher port."""
    opened_ns: int
    """Capture time of the first segment."""
    first_frame: int
    capture: str
    """The capture of the first segment."""
    last_timestamp_ns: int
    last_frame: int
    last_capture: str
    initiator: HalfStream = field(default_factory=HalfStream)
    """What the initiator sent."""
    responder: HalfStream = field(default_factory=HalfStream)
    """What the responder sent."""
    syn_seen: bool = False
    syn_ack_seen: bool = False
    closed: str = ""
    """How the flow ended (see ``FlowClosed.how``), empty while it is open."""
    closed_ns: int = 0
    check_ns: int = 0
    """Capture time from which on the next segment has to look whether the flow went idle or a hole is due."""
    clear: bool = False
    """Both directions are in order, so that the next segment may take the fast path."""
    context: object | None = None
    """For the layer above."""


Entry = tuple[Flow, HalfStream, HalfStream, bool]
"""A flow, the half that sends, the other half, whether the sender is the initiator."""


class FlowTable(FlowRegister):
    """All connections of a capture, bounded in number, time and memory by the limits of ``FlowRegister``."""

    def feed(self, segment: Segment) -> Sequence[FlowEvent]:
        """Take the next segment of the capture; return what it did, in order, which often is nothing."""
        entry = self.take_in_order(segment)
        if entry is None:
            return self._feed_slowly(segment)
        return (delivered(entry, segment),) if segment.payload else _NOTHING

    def take_in_order(self, segment: Segment) -> Entry | None:
        """Take a segment that does nothing but go on, if at all, where its direction stands; return whose it is.

        ``None`` for any other: then nothing was taken, and `feed` has to.  All that such a segment does to the flow is
        that its payload is `delivered`.
        """
        timestamp_ns = segment.timestamp_ns
        entry = self._index.get(segment.key)
        if entry is None or timestamp_ns >= self._next_sweep_ns:
            return None
        flow, half, peer, _ = entry
        if (
            not flow.clear
            or segment.flags & 0x17 != ACK
            or timestamp_ns >= flow.check_ns
            or not segment.window
            or segment.missing
        ):
            return None
        payload = segment.payload
        sequence = segment.sequence
        if sequence != half.sequence:
            # An empty segment that was overtaken says nothing but its acknowledgment; one byte back it is a probe.
            behind = (half.sequence - sequence) & 0xFFFFFFFF
            if payload or behind == 1 or behind >= 0x80000000:
                return None
        offset = peer.offset
        beyond = (segment.acknowledgment - peer.sequence) & 0xFFFFFFFF
        if beyond:
            if beyond >= 0x80000000:
                offset += beyond - 0x100000000
            elif beyond <= START_WINDOW:
                offset += beyond
            else:
                return None
        if offset > peer.acknowledged:
            peer.acknowledged = offset
        flow.last_timestamp_ns = timestamp_ns
        flow.last_frame = segment.frame
        flow.last_capture = segment.capture
        if not payload:
            half.empty_segments += 1
            return entry
        length = len(payload)
        half.offset += length
        half.sequence = (sequence + length) & 0xFFFFFFFF
        half.data_segments += 1
        history = half.history
        history.append(payload)
        if len(history) > HISTORY_PAYLOADS:
            del history[: HISTORY_PAYLOADS // 2]
        return entry

    def advance(self, now: int) -> Sequence[FlowEvent]:
        """Let capture time pass without a segment: give up holes that are due, end flows that went idle."""
        events: list[FlowEvent] = []
        if now >= self._next_sweep_ns:
            self._sweep(now, events)
        return events

    def close(self) -> Sequence[FlowEvent]:
        """The capture has ended: deliver or give up what waits, close all flows and forget them, the oldest first."""
        events: list[FlowEvent] = []
        for flow in sorted(self.flows.values(), key=attrgetter("opened_ns", "first_frame")):
            if not flow.closed:
                self._end(flow, "capture_end", last_place(flow), events)
            self._forget(flow)
        self._longest_idle.clear()
        self._dues.clear()
        self._next_sweep_ns = self._next_forgetting_ns = NEVER
        return events

    def direction(self, key: bytes) -> tuple[Flow, HalfStream, bool] | None:
        """The flow a direction key belongs to, the half that sends, and whether that is the initiator."""
        entry = self._index.get(key)
        return None if entry is None else (entry[0], entry[1], entry[3])

    def adopt(self, flow: Flow) -> None:
        """Go on with a flow that another table remembered; one with the same endpoints is forgotten."""
        known = self._index.get(flow.key)
        if known is not None:
            self._forget(known[0])
        self._register(flow)
        self.buffered_bytes += flow.initiator.buffer.size + flow.responder.buffer.size
        if flow.closed:
            self._forget_later(flow)
        else:
            self._refresh(flow)

    def _feed_slowly(self, segment: Segment) -> Sequence[FlowEvent]:
        events: list[FlowEvent] = []
        now = segment.timestamp_ns
        place = (segment.frame, now, segment.capture)
        if now >= self._next_sweep_ns:
            self._sweep(now, events)
        entry = self._index.get(segment.key)
        if entry is not None and self._is_over(entry, segment, events):
            entry = None
        if entry is None:
            if segment.flags & RST:
                self.unrelated_resets += 1
                return events
            entry = self._open(segment, events)
        elif segment.flags & SYN and not segment.flags & RST:
            entry = self._learn_roles(entry, segment)
        flow, half, peer, from_initiator = entry
        flow.last_frame, flow.last_timestamp_ns, flow.last_capture = place
        report = Report(flow, from_initiator, place, events)
        peer_report = Report(flow, not from_initiator, place, events)
        if flow.closed:
            self.late_segments += 1
            if segment.flags & (ACK | RST) == ACK:
                peer.acknowledge(segment.acknowledgment, peer_report)
            return events
        before = half.buffer.size + peer.buffer.size
        if segment.flags & RST:
            half.empty_segments += 1
            if plausible_reset(half, peer, segment):
                half.flush(report)
                peer.flush(peer_report)
                half.reset(report)
                peer.reset(peer_report)
            else:
                half.ignored_resets += 1
        else:
            _take(entry, segment, report, peer_report)
        self._settle(half, peer, now, report)
        self._settle(peer, half, now, peer_report)
        self._account(flow, before, events)
        self._conclude(flow, place, events)
        return events

    def _is_over(self, entry: Entry, segment: Segment, events: list[FlowEvent]) -> bool:
        """Whether the segment no longer belongs to the flow known under its key, which then is forgotten."""
        flow, half, peer, _ = entry
        now = segment.timestamp_ns
        if flow.closed and now - flow.closed_ns > LINGER_NS:
            self._forget(flow)
            return True
        if segment.flags & (SYN | RST) == SYN and is_new_connection(flow, half, peer, segment):
            if not flow.closed:
                self._end(flow, "port_reused", (segment.frame, now, segment.capture), events)
            self._forget(flow)
            return True
        return False

    def _open(self, segment: Segment, events: list[FlowEvent]) -> Entry:
        if len(self.flows) >= self.max_flows:
            self._make_room(events)
        key = segment.key
        known = bool(segment.flags & SYN)
        if known:
            from_initiator = not segment.flags & ACK
        else:
            source, destination = ports(key)
            from_initiator = source >= destination
        frame, now, capture = place = (segment.frame, segment.timestamp_ns, segment.capture)
        flow = Flow(key if from_initiator else reverse_key(key), known, now, frame, capture, now, frame, capture)
        self._register(flow)
        self.opened_flows += 1
        events.append(FlowOpened(flow, *place))
        return self._index[key]

    def _learn_roles(self, entry: Entry, segment: Segment) -> Entry:
        """A SYN or SYN-ACK behind the first segment says who the initiator is; correct the roles while that is safe."""
        flow, half, peer, from_initiator = entry
        if flow.initiator_known or flow.closed:
            return entry
        if from_initiator == (not segment.flags & ACK):
            flow.initiator_known = True
        elif not half.told and not peer.told:
            buffered = self.buffered_bytes
            self._forget(flow)
            flow.key = reverse_key(flow.key)
            flow.initiator, flow.responder = flow.responder, flow.initiator
            flow.initiator_known = True
            self._register(flow)
            self.buffered_bytes = buffered
        return self._index[segment.key]


def acknowledged(entry: Entry, segment: Segment) -> int:
    """How far a segment that `FlowTable.take_in_order` took acknowledges the peer's stream."""
    peer = entry[2]
    # Behind the segment the peer's stream stands where it stood before.
    beyond = (segment.acknowledgment - peer.sequence) & 0xFFFFFFFF
    return peer.offset + beyond - (0x100000000 if beyond >= 0x80000000 else 0)


def delivered(entry: Entry, segment: Segment) -> StreamData:
    """What a segment with a payload did that `FlowTable.take_in_order` took."""
    flow, half, peer, from_initiator = entry
    payload = segment.payload
    offset = half.offset - len(payload)
    received = acknowledged(entry, segment)
    return StreamData(
        flow,
        from_initiator,
        payload,
        offset,
        segment.frame,
        segment.timestamp_ns,
        segment.capture,
        received,
        peer.offset,
    )


def _take(entry: Entry, segment: Segment, report: Report, peer_report: Report) -> None:
    """Apply a segment that is no reset to an open flow."""
    flow, half, peer, _ = entry
    flags = segment.flags
    sequence = segment.sequence
    payload = segment.payload
    missing = segment.missing
    # Where the capture has the handshake no bytes were under way when it began: what is missing since is lost.
    young = not (flow.syn_seen or flow.syn_ack_seen) and segment.timestamp_ns - flow.opened_ns <= YOUNG_NS
    if not segment.window:
        half.zero_windows += 1
    if flags & SYN:
        if not take_syn(flow, half, peer, segment, report, peer_report):
            return
        sequence = advance(sequence, 1)
    if flags & ACK:
        peer.acknowledge(segment.acknowledgment, peer_report)
        if not half.buffer and half.state != UNSEEN and half.locate(sequence) == half.offset:
            report.acknowledged = peer.locate(segment.acknowledgment)
    if payload or missing:
        half.receive(sequence, payload, missing, young, report)
    elif flags & (SYN | FIN):
        half.empty_segments += 1
    else:
        half.receive_empty(sequence, young, report)
    if flags & FIN:
        half.finish(advance(sequence, len(payload) + missing), report)
