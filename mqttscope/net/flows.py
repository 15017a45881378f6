"""The table of TCP connections: takes segments in capture order, says what they did to the streams.

In-order segments of a connection in which nothing is missing take the fast path at the top of ``FlowTable.feed``; all
else goes through ``_feed_slowly``.  Decisions about one flow depend on its own segments and their capture times alone,
not on the traffic around it, as long as no limit of the table is hit: the flows of a capture can be fed apart.

When is a hole lost?  At once when the buffer is full or the flow ends.  Else only with a reason to believe that the
bytes will not come: the peer acknowledged them (it has them, so no retransmission will follow) and either
``PROVEN_WAIT_NS`` passed, far more than any reordering between the queues of a capturing host but short enough for a
live view, or much data waits behind the hole; or the peer was never captured at all, so that no such proof can come.
Without an acknowledgment in a two-sided capture the sender will send again, and the hole stays open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING

from mqttscope.net.events import FlowClosed, FlowOpened, StreamData
from mqttscope.net.reassembly import (
    ASSUMED,
    HELD,
    HISTORY_PAYLOADS,
    NEVER,
    OPEN,
    RESET,
    START_WINDOW,
    UNSEEN,
    HalfStream,
    Report,
)
from mqttscope.net.segment import ACK, FIN, RST, SYN, ports, reverse_key
from mqttscope.net.sequence import advance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqttscope.net.events import FlowEvent
    from mqttscope.net.segment import Segment

_SECOND = 1_000_000_000

MAX_FLOWS = 100_000
MAX_BUFFERED_BYTES = 4 * 1024 * 1024
"""Per direction."""
MAX_BUFFERED_SEGMENTS = 32_768
"""Per direction; a 64 KiB burst cut into 3-byte segments and shuffled still fits."""
MAX_TOTAL_BUFFERED_BYTES = 256 * 1024 * 1024
"""Of all flows together."""
IDLE_TIMEOUT_NS = 2 * 3600 * _SECOND
LINGER_NS = 120 * _SECOND
"""How long a closed flow is remembered, so that late copies of its segments do not open another."""
PROVEN_WAIT_NS = 2 * _SECOND
ONE_SIDED_WAIT_NS = 5 * _SECOND
ONE_SIDED_BUFFERED_BYTES = 256 * 1024
HELD_WAIT_NS = _SECOND // 5
YOUNG_NS = _SECOND
"""So long after its first segment a flow that was joined in the middle may have had bytes under way."""
SYN_COPY_NS = 3 * _SECOND
"""A SYN like the first one that comes this soon is a copy of it, even when the flow has ended meanwhile."""
SWEEP_NS = _SECOND // 4
"""The table looks after the flows that wait at most this often."""

_NOTHING: tuple[FlowEvent, ...] = ()

_Place = tuple[int, int, str]


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


_Entry = tuple[Flow, HalfStream, HalfStream, bool]
"""A flow, the half that sends, the other half, whether the sender is the initiator."""


class FlowTable:
    """All connections of a capture, bounded in number, time and memory."""

    def __init__(
        self,
        *,
        max_flows: int = MAX_FLOWS,
        idle_timeout_ns: int = IDLE_TIMEOUT_NS,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        max_buffered_segments: int = MAX_BUFFERED_SEGMENTS,
        max_total_buffered_bytes: int = MAX_TOTAL_BUFFERED_BYTES,
    ) -> None:
        self.max_flows = max(1, max_flows)
        self.idle_timeout_ns = idle_timeout_ns
        self.max_buffered_bytes = max_buffered_bytes
        self.max_buffered_segments = max_buffered_segments
        self.max_total_buffered_bytes = max_total_buffered_bytes
        self.flows: dict[bytes, Flow] = {}
        """The flows remembered, open ones and those closed shortly before, by ``Flow.key``."""
        self.buffered_bytes = 0
        self.opened_flows = 0
        self.evicted_flows = 0
        self.idle_flows = 0
        self.unrelated_resets = 0
        """Resets of connections that are not known."""
        self.late_segments = 0
        """Segments of flows that had ended."""
        self.total_limit_hits = 0
        self._index: dict[bytes, _Entry] = {}
        self._closed: dict[bytes, None] = {}
        self._waiting: dict[bytes, None] = {}
        self._longest_idle: list[tuple[int, bytes]] = []
        self._next_sweep_ns = self._next_idle_sweep_ns = self._earliest_sweep_ns = 0

    def feed(self, segment: Segment) -> Sequence[FlowEvent]:
        """Take the next segment of the capture; return what it did, in order, which often is nothing."""
        timestamp_ns = segment.timestamp_ns
        entry = self._index.get(segment.key)
        if entry is None or timestamp_ns >= self._next_sweep_ns:
            return self._feed_slowly(segment)
        flow, half, peer, from_initiator = entry
        if (
            not flow.clear
            or segment.flags & 0x17 != ACK
            or timestamp_ns >= flow.check_ns
            or not segment.window
            or segment.missing
        ):
            return self._feed_slowly(segment)
        payload = segment.payload
        sequence = segment.sequence
        if sequence != half.sequence:
            # An empty segment that was overtaken says nothing but its acknowledgment; one byte back it is a probe.
            behind = (half.sequence - sequence) & 0xFFFFFFFF
            if payload or behind == 1 or behind >= 0x80000000:
                return self._feed_slowly(segment)
        offset = peer.offset
        beyond = (segment.acknowledgment - peer.sequence) & 0xFFFFFFFF
        if beyond:
            if beyond >= 0x80000000:
                offset += beyond - 0x100000000
            elif beyond <= START_WINDOW:
                offset += beyond
            else:
                return self._feed_slowly(segment)
        if offset > peer.acknowledged:
            peer.acknowledged = offset
        flow.last_timestamp_ns = timestamp_ns
        flow.last_frame = frame = segment.frame
        flow.last_capture = capture = segment.capture
        if not payload:
            half.empty_segments += 1
            return _NOTHING
        length = len(payload)
        offset = half.offset
        half.offset = offset + length
        half.sequence = (sequence + length) & 0xFFFFFFFF
        half.data_segments += 1
        history = half.history
        history.append(payload)
        if len(history) > HISTORY_PAYLOADS:
            del history[: HISTORY_PAYLOADS // 2]
        return (StreamData(flow, from_initiator, payload, offset, frame, timestamp_ns, capture),)

    def close(self) -> Sequence[FlowEvent]:
        """The capture has ended: deliver or give up what waits, close all flows and forget them."""
        events: list[FlowEvent] = []
        for flow in list(self.flows.values()):
            if not flow.closed:
                self._end(flow, "capture_end", _last_place(flow), events)
            self._forget(flow)
        self._longest_idle.clear()
        self._next_sweep_ns = self._next_idle_sweep_ns = self._earliest_sweep_ns = 0
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
            self._closed[flow.key] = None
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
            if _plausible_reset(half, peer, segment):
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

    def _is_over(self, entry: _Entry, segment: Segment, events: list[FlowEvent]) -> bool:
        """Whether the segment no longer belongs to the flow known under its key, which then is forgotten."""
        flow, half, peer, _ = entry
        now = segment.timestamp_ns
        if now >= flow.check_ns:
            if flow.closed:
                if now - flow.closed_ns > LINGER_NS:
                    self._forget(flow)
                    return True
            elif now - flow.last_timestamp_ns > self.idle_timeout_ns:
                self._end_idle(flow, events)
                return True
            else:
                self._expire(flow, now, events)
        if segment.flags & (SYN | RST) == SYN and _is_new_connection(flow, half, peer, segment):
            if not flow.closed:
                self._end(flow, "port_reused", (segment.frame, now, segment.capture), events)
            self._forget(flow)
            return True
        return False

    def _open(self, segment: Segment, events: list[FlowEvent]) -> _Entry:
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
        if self._next_sweep_ns - now > self.idle_timeout_ns:
            # An older capture follows: the sweeps start again with its time.
            self._next_sweep_ns = self._next_idle_sweep_ns = self._earliest_sweep_ns = now
        events.append(FlowOpened(flow, *place))
        return self._index[key]

    def _register(self, flow: Flow) -> None:
        self.flows[flow.key] = flow
        self._index[reverse_key(flow.key)] = (flow, flow.responder, flow.initiator, False)
        self._index[flow.key] = (flow, flow.initiator, flow.responder, True)

    def _forget(self, flow: Flow) -> None:
        self.flows.pop(flow.key, None)
        self._index.pop(flow.key, None)
        self._index.pop(reverse_key(flow.key), None)
        self._closed.pop(flow.key, None)
        self._waiting.pop(flow.key, None)
        self.buffered_bytes -= flow.initiator.buffer.size + flow.responder.buffer.size

    def _learn_roles(self, entry: _Entry, segment: Segment) -> _Entry:
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

    def _settle(self, half: HalfStream, peer: HalfStream, now: int, report: Report) -> None:
        """Give up holes where a limit says so, and set the time to look at the first that remains."""
        wait = NEVER
        if half.state == HELD:
            wait = HELD_WAIT_NS
        else:
            while (end := half.hole_end()) >= 0:
                size = half.buffer.size
                proven = half.acknowledged >= end
                if size > self.max_buffered_bytes or len(half.buffer) > self.max_buffered_segments:
                    half.limit_hits += 1
                elif proven and size * 4 < self.max_buffered_bytes:
                    wait = PROVEN_WAIT_NS
                    break
                elif not proven and (peer.segments or size <= ONE_SIDED_BUFFERED_BYTES):
                    wait = NEVER if peer.segments else ONE_SIDED_WAIT_NS
                    break
                half.give_up(report)
        half.deadline_ns = min(half.deadline_ns, now + wait) if wait < NEVER else NEVER
        half.clear = half.state in (ASSUMED, OPEN) and half.hole_end() < 0

    def _account(self, flow: Flow, before: int, events: list[FlowEvent]) -> None:
        """Keep the sum of all buffers, and empty those of the flow when it is too large."""
        initiator, responder = flow.initiator, flow.responder
        self.buffered_bytes += initiator.buffer.size + responder.buffer.size - before
        if self.buffered_bytes > self.max_total_buffered_bytes:
            self.total_limit_hits += 1
            self.buffered_bytes -= initiator.buffer.size + responder.buffer.size
            for half, from_initiator in ((initiator, True), (responder, False)):
                half.empty(Report(flow, from_initiator, _last_place(flow), events))
                half.clear = half.state in (ASSUMED, OPEN)

    def _conclude(self, flow: Flow, place: _Place, events: list[FlowEvent]) -> None:
        """Close the flow when both directions ended."""
        if flow.initiator.ended and flow.responder.ended:
            reset = RESET in (flow.initiator.state, flow.responder.state)
            self._mark_closed(flow, "reset" if reset else "fin", place, events)
        else:
            self._refresh(flow)

    def _mark_closed(self, flow: Flow, how: str, place: _Place, events: list[FlowEvent]) -> None:
        flow.closed = how
        flow.closed_ns = place[1]
        flow.check_ns = flow.closed_ns + LINGER_NS + 1
        flow.clear = False
        flow.initiator.history.clear()
        flow.responder.history.clear()
        self._closed[flow.key] = None
        self._waiting.pop(flow.key, None)
        self._next_sweep_ns = min(self._next_sweep_ns, flow.check_ns)
        events.append(FlowClosed(flow, how, *place))

    def _end(self, flow: Flow, how: str, place: _Place, events: list[FlowEvent]) -> None:
        """Close a flow whose directions did not both end; what it waits for is given up."""
        before = flow.initiator.buffer.size + flow.responder.buffer.size
        flow.initiator.flush(Report(flow, True, place, events))
        flow.responder.flush(Report(flow, False, place, events))
        self.buffered_bytes -= before
        both_ended = flow.initiator.ended and flow.responder.ended
        self._mark_closed(flow, "fin" if both_ended else how, place, events)

    def _end_idle(self, flow: Flow, events: list[FlowEvent]) -> None:
        self.idle_flows += 1
        self._end(flow, "idle", _last_place(flow), events)
        self._forget(flow)

    def _refresh(self, flow: Flow) -> None:
        """Work out anew when the flow needs a look, and whether its next segment may take the fast path."""
        deadline = min(flow.initiator.deadline_ns, flow.responder.deadline_ns)
        flow.check_ns = min(deadline, flow.last_timestamp_ns + self.idle_timeout_ns + 1)
        flow.clear = flow.initiator.clear and flow.responder.clear
        if deadline < NEVER:
            self._waiting[flow.key] = None
            self._next_sweep_ns = min(self._next_sweep_ns, max(deadline, self._earliest_sweep_ns))
        else:
            self._waiting.pop(flow.key, None)

    def _expire(self, flow: Flow, now: int, events: list[FlowEvent]) -> None:
        """Give up the holes of a flow that were waited for long enough."""
        # The frame is the flow's own last one, so that the result does not depend on which other flow moved the time.
        place = _last_place(flow)
        before = flow.initiator.buffer.size + flow.responder.buffer.size
        for _, half, peer, from_initiator in (self._index[flow.key], self._index[reverse_key(flow.key)]):
            if half.deadline_ns > now:
                continue
            report = Report(flow, from_initiator, place, events)
            if half.state == HELD:
                half.release(report)
            while (end := half.hole_end()) >= 0 and (half.acknowledged >= end or not peer.segments):
                half.give_up(report)
            self._settle(half, peer, now, report)
        self._account(flow, before, events)
        self._conclude(flow, place, events)

    def _sweep(self, now: int, events: list[FlowEvent]) -> None:
        """Look after the flows that get no segments: those that wait, those that ended, those that went idle."""
        for key in list(self._waiting):
            flow = self.flows[key]
            if now >= flow.check_ns:
                self._expire(flow, now, events)
        while self._closed:
            flow = self.flows[next(iter(self._closed))]
            if now - flow.closed_ns <= LINGER_NS:
                break
            self._forget(flow)
        if now >= self._next_idle_sweep_ns:
            self._next_idle_sweep_ns = now + self.idle_timeout_ns // 8
            for flow in list(self.flows.values()):
                if not flow.closed and now - flow.last_timestamp_ns > self.idle_timeout_ns:
                    self._end_idle(flow, events)
        self._next_sweep_ns = self._next_idle_sweep_ns
        self._earliest_sweep_ns = now + SWEEP_NS
        if self._waiting:
            self._next_sweep_ns = min(self._next_sweep_ns, self._earliest_sweep_ns)
        if self._closed:
            self._next_sweep_ns = min(self._next_sweep_ns, now + LINGER_NS // 8)

    def _make_room(self, events: list[FlowEvent]) -> None:
        """Forget the flow that closed first, or evict the one that is idle longest."""
        if self._closed:
            self._forget(self.flows[next(iter(self._closed))])
            return
        while True:
            if not self._longest_idle:
                # An eighth of the table at a time: flows that get segments meanwhile are passed over below.
                count = max(1, len(self.flows) // 8)
                ages = ((flow.last_timestamp_ns, key) for key, flow in self.flows.items())
                self._longest_idle = nsmallest(count, ages)[::-1]
            last_timestamp_ns, key = self._longest_idle.pop()
            flow = self.flows.get(key)
            if flow is not None and flow.last_timestamp_ns == last_timestamp_ns:
                break
        self.evicted_flows += 1
        self._end(flow, "evicted", _last_place(flow), events)
        self._forget(flow)


def _last_place(flow: Flow) -> _Place:
    return flow.last_frame, flow.last_timestamp_ns, flow.last_capture


def _take(entry: _Entry, segment: Segment, report: Report, peer_report: Report) -> None:
    """Apply a segment that is no reset to an open flow."""
    flow, half, peer, _ = entry
    flags = segment.flags
    sequence = segment.sequence
    payload = segment.payload
    missing = segment.missing
    young = segment.timestamp_ns - flow.opened_ns <= YOUNG_NS
    if not segment.window:
        half.zero_windows += 1
    if flags & SYN:
        seen = flow.syn_ack_seen if flags & ACK else flow.syn_seen
        if half.initial_sequence != sequence and half.initial_sequence >= 0 and (half.offset or half.buffer):
            # A second SYN-ACK for the same SYN that says something else: the first one stands.
            half.ignored_syns += 1
            return
        if half.initial_sequence != sequence:
            half.synchronize(sequence, report)
        elif seen:
            half.ignored_syns += 1
        if flags & ACK:
            flow.syn_ack_seen = True
            if peer.state == UNSEEN:
                peer.synchronize(advance(segment.acknowledgment, -1), peer_report)
        else:
            flow.syn_seen = True
        sequence = advance(sequence, 1)
    if flags & ACK:
        peer.acknowledge(segment.acknowledgment, peer_report)
    if payload or missing:
        half.receive(sequence, payload, missing, young, report)
    elif flags & (SYN | FIN):
        half.empty_segments += 1
    else:
        half.receive_empty(sequence, young, report)
    if flags & FIN:
        half.finish(advance(sequence, len(payload) + missing), report)


def _is_new_connection(flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    """Whether a SYN or SYN-ACK belongs to another connection than the one known under its endpoints."""
    answer = bool(segment.flags & ACK)
    same = half.initial_sequence == segment.sequence
    untouched = half.offset == 0 and not half.buffer
    if flow.closed:
        if not same or answer:
            return not same
        # Refused connections are tried again with the same number; else it takes time to get the same number again.
        refused = flow.closed == "reset" and untouched and peer.offset == 0
        return refused or segment.timestamp_ns - flow.opened_ns > SYN_COPY_NS
    if same or half.state == UNSEEN:
        return False
    start = half.locate(advance(segment.sequence, 1))
    if half.initial_sequence < 0:
        if untouched:
            return not answer and peer.offset > 0 and start != 0
        return not -START_WINDOW <= start <= 0
    if answer:
        return not untouched and segment.acknowledgment != advance(peer.initial_sequence, 1)
    return True


def _plausible_reset(half: HalfStream, peer: HalfStream, segment: Segment) -> bool:
    if half.state != UNSEEN:
        return half.plausible_reset(segment.sequence)
    # Nothing is known of the side that resets: it has to acknowledge what the other one sent, its SYN at least.
    if not segment.flags & ACK or peer.state == UNSEEN:
        return False
    return 0 <= peer.locate(segment.acknowledgment) <= max(peer.offset, peer.sent)
