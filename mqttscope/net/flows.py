"""The table of TCP connections: takes segments in capture order, and returns the events of their streams.

In-order segments of a connection without holes take the fast path, ``FlowTable.take_in_order``; all others go
through ``_feed_slowly``.  Decisions about one flow depend on its own segments and their capture times alone, not on
other traffic, until a limit of the table is hit: so the flows of a capture can be processed separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from mqttscope.net import damage
from mqttscope.net.checksum import RIGHT, UNJUDGED, WRONG
from mqttscope.net.flow import NOT_BEGUN, Entry, Flow, FlowEvent, FlowMatch, FlowOpened, FlowReport, StreamData
from mqttscope.net.flow_expiry import LINGER_NS, FlowRegister, forget_ns, last_place
from mqttscope.net.flow_identity import (
    LATE_NS,
    begins_in_silence,
    disowns,
    is_challenge,
    is_stray,
    is_syn,
    judge,
    last_beginning,
    plausible_reset,
    take_syn,
    weigh,
)
from mqttscope.net.reassembly import HISTORY_PAYLOADS, NEVER, OPEN, RESET, START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, advance, plain_key, ports, reverse_key
from mqttscope.net.tap_views import (
    COPY_NS,
    VIEW_NS,
    belongs,
    differs,
    halves,
    in_order,
    is_copy,
    is_replay,
    is_view,
    repeated_flow,
    repeats,
    viewable_flows,
)
from mqttscope.net.tcp_clock import NO_STAMP, time_stamp

EARLY_NS: Final = 200_000_000
"""Maximum disorder of frames, even between two interfaces with buffers of their own."""
MAX_VIEWS: Final = 8
"""Maximum number of other tags or tunnels for one flow."""
MAX_UNDECIDED_SEGMENTS: Final = 64
"""Maximum number of undecided segments of a flow."""
MAX_UNDECIDED_BYTES: Final = 256 * 1024
YOUNG_NS: Final = 1_000_000_000
"""Maximum age of bytes under way in a flow that the capture joined in the middle, since its first segment."""

_VIEW_BEGINNING: Final = 2
"""Minimum number of repeated segments with data or SYN that prove a second view, if a SYN is among them."""
_LITTLE_BEHIND: Final = (1 << 32) - START_WINDOW

_NOTHING: Final[tuple[FlowEvent, ...]] = ()

Ending = tuple[int, int, int]
"""Sort key for flows that end with the capture: round, opening time and first frame."""


class FlowTable(FlowRegister):
    """All connections of a capture, within the limits of ``FlowRegister``."""

    def feed(self, segment: Segment) -> Sequence[FlowEvent]:
        """Take the next segment of the capture; returns its events, in order, often without any."""
        entry = self.take_in_order(segment)
        if entry is None:
            return self._feed_slowly(segment)
        return (delivery(entry, segment),) if segment.payload else _NOTHING

    def take_in_order(self, segment: Segment) -> Entry | None:
        """Take a segment in order, or an empty segment that was overtaken; returns its flow.

        ``None`` for any other segment: then nothing changed, and the caller uses `feed`.  The only event of the segment
        is the delivery of its payload (`delivery`).
        """
        entry = self._index.get(segment.key)
        if entry is None or segment.missing or (segment.checksum == WRONG and self.verify_checksums):
            return None
        continues_flow = self.continues(
            entry, segment.sequence, segment.acknowledgment, segment.flags, segment.window, segment.payload,
            segment.options, segment.frame, segment.timestamp_ns, segment.capture,
        )  # fmt: skip
        return entry if continues_flow else None

    def continues(
        self,
        entry: Entry,
        sequence: int,
        acknowledgment: int,
        flags: int,
        window: int,
        payload: bytes,
        options: bytes,
        frame: int,
        timestamp_ns: int,
        capture: str,
    ) -> bool:
        """`take_in_order` for a segment of a known flow without cut bytes, by its values."""
        if timestamp_ns >= self.next_sweep_ns:
            return False
        flow, half, peer, _ = entry
        if (
            not flow.clear
            or flags & 0x17 != ACK
            or timestamp_ns >= flow.check_ns
            or capture != flow.last_capture
            or not window
        ):
            return False
        if sequence != half.sequence:
            # The only news of an empty segment that was overtaken is its acknowledgment; one byte back, it is a probe.
            behind = (half.sequence - sequence) & 0xFFFFFFFF
            if payload or behind == 1 or behind > START_WINDOW:
                return False
        offset = peer.offset
        beyond = (acknowledgment - peer.sequence) & 0xFFFFFFFF
        if beyond:
            if beyond >= _LITTLE_BEHIND:
                offset += beyond - 0x100000000
            elif beyond <= START_WINDOW:
                offset += beyond
            else:
                return False
        if offset > peer.acknowledged:
            peer.acknowledged = offset
        flow.last_timestamp_ns = timestamp_ns
        flow.last_frame = frame
        flow.last_capture = capture
        if not payload:
            half.empty_segments += 1
            return True
        half.options = options
        half.options_ns = timestamp_ns
        length = len(payload)
        half.offset += length
        half.sequence = (sequence + length) & 0xFFFFFFFF
        half.data_segments += 1
        history = half.history
        history.append(payload)
        if len(history) > HISTORY_PAYLOADS:
            half.shorten()
        return True

    def entry(self, key: bytes) -> Entry | None:
        """The flow of a direction key, from the side of this direction."""
        return self._index.get(key)

    def advance(self, now: int) -> Sequence[FlowEvent]:
        """Let capture time pass without a segment: give up holes that are due, and end idle flows."""
        events: list[FlowEvent] = []
        if now >= self.next_sweep_ns:
            self._sweep(now, events)
        return events

    def close(self) -> Sequence[FlowEvent]:
        """End the capture: deliver or give up waiting bytes, close all flows and forget them, the oldest first."""
        return [event for _, events in self.closing() for event in events]

    def closing(self) -> list[tuple[Ending, list[FlowEvent]]]:
        """The events of `close`, flow by flow, each with its sort key among the ends of all flows."""
        ended: list[tuple[Ending, list[FlowEvent]]] = []
        turn = 0
        while self.flows:
            # A connection that begins with undecided segments of a flow ends in the next round.
            for flow in sorted(self.flows.values(), key=attrgetter("opened_ns", "first_frame")):
                events: list[FlowEvent] = []
                self._decide(flow, events)
                if not flow.closed:
                    self._end(flow, "capture_end", last_place(flow), events)
                self._forget(flow)
                ended.append(((turn, flow.opened_ns, flow.first_frame), events))
            turn += 1
        self._longest_idle.clear()
        self._dues.clear()
        self._endings.clear()
        self.next_sweep_ns = NEVER
        return ended

    def adopt(self, flow: Flow) -> None:
        """Continue a flow that another table remembered; a flow with the same endpoints is forgotten."""
        known = self._index.get(flow.key)
        if known is not None:
            self._forget(known[0])
        self._register(flow)
        self._count_buffered(flow.initiator.buffer.size + flow.responder.buffer.size)
        if flow.closed:
            self._forget_later(flow)
        else:
            self._refresh(flow)
        if flow.undecided:
            self._watch_undecided(flow)

    def _feed_slowly(self, segment: Segment) -> Sequence[FlowEvent]:
        events: list[FlowEvent] = []
        if segment.timestamp_ns >= self.next_sweep_ns:
            self._sweep(segment.timestamp_ns, events)
        if segment.checksum == WRONG and self.verify_checksums and self._set_aside(segment, events):
            return events
        entry = self._index.get(segment.key) or self._flow_between(segment)
        if entry is not None and entry[0].damaged:
            self._use_damaged(entry[0], damage.accepted_segments(entry[0], segment), events)
        self._route(segment, events)
        entry = self._index.get(segment.key) or self._flow_between(segment)
        if entry is not None:
            flow, half, _, _ = entry
            if segment.checksum == RIGHT:
                half.checksums = RIGHT
            if flow.damaged:
                damage.drop(flow, damage.replaced_segments(flow), events)
                if not flow.closed:
                    self._refresh(flow)
        return events

    def _flow_between(self, segment: Segment) -> Entry | None:
        """The flow between the endpoints of a segment, whatever its tags."""
        return self._index.get(segment.key) or self._index.get(self._plain.get(plain_key(segment.key), b""))

    def _set_aside(self, segment: Segment, events: list[FlowEvent]) -> bool:
        """Let a segment with a wrong checksum wait; ``False`` if it is used as captured."""
        entry = self._flow_between(segment)
        if entry is None:
            if segment.flags & RST:
                return True
            entry = self._open(segment, events)
            entry[0].initiator_known, entry[0].first_frame = False, NOT_BEGUN
        flow = entry[0]
        checksums = halves(flow, segment)[0].checksums
        if checksums == WRONG or (flow.closed and checksums == UNJUDGED):
            return False
        flow.damaged.append(segment)
        loose = damage.unproven_segments(flow)
        if damage.count_different(loose) >= damage.UNPROVEN:
            self._use_damaged(flow, damage.segments_to_use(flow, loose), events)
        damage.drop(flow, flow.damaged if flow.closed else damage.replaced_segments(flow), events)
        while damage.is_too_much(flow.damaged):
            damage.drop(flow, flow.damaged[:1], events)
        if not flow.closed:
            self._refresh(flow)
        return True

    def _use_damaged(self, flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
        for segment in damage.remove_waiting(flow, segments):
            self._use_damaged(flow, damage.accepted_segments(flow, segment), events)
            self._route(damage.usable_form(flow, segment, events), events)

    def _route(self, segment: Segment, events: list[FlowEvent]) -> None:
        """Find the connection of a segment, and pass the segment to it."""
        entry = self._index.get(segment.key) or self._second_view(segment)
        if entry is not None and entry[0].closed and segment.timestamp_ns > forget_ns(entry[0]):
            self._decide(entry[0], events)
            self._forget(entry[0])
            entry = self._index.get(segment.key)
        before: list[Flow] = []
        if entry is None:
            if self._repeats_past(self._flow_between(segment), segment, events):
                return
        else:
            flow, half, peer, _ = entry
            if flow.past and self._repeats_past(entry, segment, events):
                return
            verdict = weigh(flow, half, peer, segment) if flow.undecided else judge(flow, half, peer, segment)
            if flow.undecided and verdict in (FlowMatch.NEW, FlowMatch.SAME):
                if verdict is FlowMatch.SAME:
                    self._give_back(flow, self._take_undecided(flow), events)
                elif flow.doubt is FlowMatch.RESUMED:
                    self._resume(flow, events)
                else:
                    self._divide(flow, events)
                self._route(segment, events)
                return
            if verdict is FlowMatch.NEW:
                before = self._replace(flow, segment, events)
                entry = None
            elif verdict not in (FlowMatch.SAME, FlowMatch.BESIDE):
                self._keep_undecided(flow, verdict, segment, events)
                return
        if entry is None and segment.flags & RST:
            return  # of a connection that is not known
        self._apply(segment, entry, events, before)

    def _repeats_past(self, entry: Entry | None, segment: Segment, events: list[FlowEvent]) -> bool:
        """Whether a segment repeats an earlier connection; if so, it is counted, or fills a gap of that connection."""
        if entry is None or not entry[0].past:
            return False
        flow, half, peer, _ = entry
        here = segment.key in (flow.key, reverse_key(flow.key))
        if (here and is_syn(segment)) or belongs(half, peer, segment):
            return False
        ended = repeated_flow(flow, segment)
        if ended is None:
            return False
        if segment.flags & RST and ended.closed != "reset":
            half.empty_segments += 1  # not a repetition: it answers late segments of the other side
        else:
            self._count_repeated(ended, flow, half, segment, events)
        flow.last_frame, flow.last_timestamp_ns, flow.last_capture = place_of(segment)
        return True

    def _count_repeated(
        self, ended: Flow, flow: Flow, half: HalfStream, segment: Segment, events: list[FlowEvent]
    ) -> None:
        """Count a segment that repeats ``ended``, a connection before ``flow``; report bytes that fill an old gap."""
        own = halves(ended, segment)[0]
        report = FlowReport(ended, own is ended.initiator, place_of(segment), events)
        if not own.take_late(own.locate(segment.sequence), segment.payload, report):
            self._count_copy(flow, half, segment.capture)

    def _count_copy(self, flow: Flow, half: HalfStream, capture: str) -> None:
        """Count a segment that was captured twice; separately if the flow ended and its totals were reported."""
        self.note_copy(flow, capture)
        if not flow.closed:
            half.copied_segments += 1
        elif flow.context is not None:
            self.late_copies += 1

    def note_copy(self, flow: Flow, capture: str) -> None:
        """Remember a flow with a segment that was captured twice."""
        known = self.copies.get(capture)
        if known is None or known.context is None:
            self.copies[capture] = flow

    def _divide(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Undecided segments are another connection, from the last beginning among them on."""
        segments = self._take_undecided(flow)
        at = last_beginning(segments) if flow.doubt is FlowMatch.AGAIN else 0
        self._give_back(flow, segments[:at], events)
        self._begin_with(flow, segments[at:], events)

    def _begin_with(self, flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
        """Begin another connection with segments that were undecided."""
        before = self._replace(flow, segments[0], events)
        self._apply(segments[0], None, events, before)
        for segment in segments[1:]:
            self._route(segment, events)

    def _apply(
        self, segment: Segment, entry: Entry | None, events: list[FlowEvent], earlier: Sequence[Flow] = ()
    ) -> None:
        """Pass a segment to its connection; ``entry`` is ``None`` for a new one, which has ``earlier`` connections."""
        now = segment.timestamp_ns
        place = place_of(segment)
        if entry is None:
            entry = self._open(segment, events)
            entry[0].past.extend(earlier)
        elif segment.flags & SYN and not segment.flags & RST:
            entry = self._learn_roles(entry, segment)
        flow, half, peer, from_initiator = entry
        if flow.first_frame == NOT_BEGUN:
            flow.first_frame, flow.opened_ns, flow.capture = place
        report = FlowReport(flow, from_initiator, place, events)
        peer_report = FlowReport(flow, not from_initiator, place, events)
        if flow.closed:
            self._take_late(flow, half, peer, segment, report)
            return
        copied = is_copy(flow, half, peer, segment)
        flow.last_frame, flow.last_timestamp_ns, flow.last_capture = place
        before = half.buffer.size + peer.buffer.size
        if copied:
            self._count_copy(flow, half, segment.capture)
        elif segment.flags & RST:
            half.empty_segments += 1
            if segment.payload:
                report.discarded(len(segment.payload), "in_reset")
            if plausible_reset(half, peer, segment):
                flow.disowned = disowns(half, segment)
                if segment.flags & ACK and peer.state is not UNSEEN:
                    peer.acknowledge(segment.acknowledgment, peer_report)
                half.flush(report)
                peer.flush(peer_report)
                half.reset(report)
                peer.reset(peer_report)
        else:
            _take(entry, segment, report, peer_report)
        self._settle(half, peer, now, report)
        self._settle(peer, half, now, peer_report)
        self._account(flow, before, events)
        self._conclude(flow, place, events)

    def _take_late(self, flow: Flow, half: HalfStream, peer: HalfStream, segment: Segment, report: FlowReport) -> None:
        """Take a segment of an ended flow, and report data that is not part of a stream."""
        flow.last_frame, flow.last_timestamp_ns, flow.last_capture = report.place
        if segment.flags & (ACK | RST) == ACK:
            peer.acknowledge(segment.acknowledgment, report)
        length = len(segment.payload) + segment.missing
        if not length or segment.flags & RST or (length == 1 and segment.payload in (b"", b"\0")):
            return
        start = half.locate(segment.sequence)
        late = half.take_late(start, segment.payload, report) if half.given_up else 0
        if start >= 0 and start + length <= half.offset:
            if late:
                return
            same = not differs(half, start, segment.payload)
            if same and flow.doubled and segment.timestamp_ns - flow.closed_ns <= VIEW_NS:
                self._count_copy(flow, half, segment.capture)
                return
            half.duplicate_segments += 1
            if not same or segment.timestamp_ns - flow.closed_ns > LATE_NS:
                report.discarded(length, "late_copy")
            return
        new = min(length, max(0, start + length - half.offset)) or length
        report.discarded(new, "after_reset" if flow.closed == "reset" else "after_close")

    def _keep_undecided(self, flow: Flow, doubt: FlowMatch, segment: Segment, events: list[FlowEvent]) -> None:
        """Keep a segment until later ones decide where it belongs."""
        size = sum(len(undecided.payload) for undecided in flow.undecided) + len(segment.payload)
        if flow.undecided and (len(flow.undecided) >= MAX_UNDECIDED_SEGMENTS or size > MAX_UNDECIDED_BYTES):
            self._decide(flow, events)
            self._route(segment, events)
            return
        if not flow.undecided:
            apart_ns = LINGER_NS if segment.flags & SYN else COPY_NS
            waits = {FlowMatch.AGAIN: VIEW_NS, FlowMatch.APART: apart_ns, FlowMatch.EARLY: EARLY_NS}
            until = segment.timestamp_ns + waits.get(doubt, LINGER_NS)
            if segment.capture != flow.last_capture:
                until = max(until, flow.last_timestamp_ns)
            flow.doubt, flow.undecided_until_ns = doubt, until
            flow.clear = False
        flow.undecided.append(segment)
        self._watch_undecided(flow)

    def _watch_undecided(self, flow: Flow) -> None:
        if flow.closed:
            self._queue(flow, flow.undecided_until_ns)
        else:
            self._refresh(flow)

    def _take_undecided(self, flow: Flow) -> list[Segment]:
        segments, flow.undecided, flow.undecided_until_ns = flow.undecided, [], NEVER
        return segments

    def _give_back(self, flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
        """Treat undecided segments as the flow's own, or as strays."""
        again = flow.doubt is FlowMatch.AGAIN
        if again and any(map(is_syn, segments)):
            # A SYN-ACK comes again if its acknowledgment was lost; no client repeats its SYN after that.
            flow.handshake_again += sum(bool(segment.payload or segment.flags & SYN) for segment in segments)
        tagged = any(segment.key in flow.views for segment in segments)
        if again and segments and (tagged or flow.handshake_again >= _VIEW_BEGINNING or is_replay(flow, segments)):
            flow.doubled = True
        for segment in segments:
            entry = self._index[segment.key]
            ended = repeated_flow(flow, segment) if again and not repeats(flow, segment) else None
            if ended is not None:
                self._count_repeated(ended, flow, entry[1], segment, events)
            elif flow.doubt is not FlowMatch.APART:
                self._apply(segment, entry, events)
            elif segment.payload or segment.missing:
                length = len(segment.payload) + segment.missing
                FlowReport(flow, entry[3], place_of(segment), events).discarded(length, "out_of_window")
        flow.doubt = FlowMatch.SAME
        if not flow.closed:
            self._refresh(flow)

    def _decide(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Decide about the undecided segments of a flow: no more evidence comes."""
        if not flow.undecided:
            return
        # A second view would have shown the rest by now.
        full = len(flow.undecided) >= MAX_UNDECIDED_SEGMENTS
        begins = flow.doubt is FlowMatch.AGAIN and not full and in_order(flow.undecided) and begins_in_silence(flow)
        segments = self._take_undecided(flow)
        if begins:
            self._begin_with(flow, segments, events)
        else:
            self._give_back(flow, segments, events)

    def _replace(self, flow: Flow, segment: Segment, events: list[FlowEvent]) -> list[Flow]:
        """End a flow because a segment begins another connection; returns the connections before that one."""
        if not flow.closed:
            self._end(flow, "port_reused", place_of(segment), events)
        self._forget(flow)
        return viewable_flows(flow, segment.timestamp_ns)

    def _resume(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Continue a connection after a reset that both sides ignored, as a flow of its own."""
        segments = self._take_undecided(flow)
        first = segments[0]
        self._forget(flow)
        frame, now, capture = place = place_of(first)
        new = Flow(flow.key, flow.initiator_known, now, frame, capture, now, frame, capture, context=flow.context)
        new.initiator, new.responder = _continued(flow.initiator), _continued(flow.responder)
        self._register(new)
        self.opened_flows += 1
        events.append(FlowOpened(new, *place))
        self._refresh(new)
        for segment in segments:
            self._route(segment, events)

    def _second_view(self, segment: Segment) -> Entry | None:
        """The flow of a segment with other tags: a mirror port shows a segment at two places."""
        known = self._plain.get(plain_key(segment.key))
        entry = None if known is None else self._index.get(known)
        if entry is None:
            return None
        flow, half, peer, from_initiator = entry
        apart = segment.timestamp_ns - flow.last_timestamp_ns > VIEW_NS
        if apart or len(flow.views) >= 2 * MAX_VIEWS or not is_view(half, peer, segment):
            return None
        for key in (segment.key, reverse_key(segment.key)):
            flow.views.append(key)
        self._index[segment.key] = entry
        self._index[reverse_key(segment.key)] = (flow, peer, half, not from_initiator)
        return entry

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
        frame, now, capture = place = place_of(segment)
        flow = Flow(key if from_initiator else reverse_key(key), known, now, frame, capture, now, frame, capture)
        self._register(flow)
        self.opened_flows += 1
        events.append(FlowOpened(flow, *place))
        return self._index[key]

    def _learn_roles(self, entry: Entry, segment: Segment) -> Entry:
        """Correct the roles by a SYN or SYN-ACK after the first segment, while no events were reported."""
        flow, half, peer, from_initiator = entry
        if flow.initiator_known or flow.closed:
            return entry
        if from_initiator == (not segment.flags & ACK):
            flow.initiator_known = True
        elif not half.has_events and not peer.has_events:
            buffered = self.buffered_bytes, self.budget.used
            self._forget(flow)
            flow.key = reverse_key(flow.key)
            flow.initiator, flow.responder = flow.responder, flow.initiator
            flow.initiator_known = True
            self._register(flow)
            self.buffered_bytes, self.budget.used = buffered
        return self._index[segment.key]


def _continued(half: HalfStream) -> HalfStream:
    """One direction of a flow that continues after a reset: its numbers continue, its stream and counters restart."""
    return HalfStream(
        OPEN if half.state is RESET else half.state,
        half.sequence,
        acknowledged=max(0, half.acknowledged - half.offset),
        fin_offset=half.fin_offset - half.offset if half.fin_offset >= 0 else -1,
        checksums=half.checksums,
    )


def place_of(segment: Segment) -> tuple[int, int, str]:
    """Number, capture time and capture of a segment's frame."""
    return segment.frame, segment.timestamp_ns, segment.capture


def acknowledged_offset(entry: Entry, acknowledgment: int) -> int:
    """Stream offset that a segment acknowledges, after `FlowTable.take_in_order` took it."""
    peer = entry[2]
    # The segment has not changed the offset of the peer's stream.
    beyond = (acknowledgment - peer.sequence) & 0xFFFFFFFF
    return peer.offset + beyond - (0x100000000 if beyond >= 0x80000000 else 0)


def delivery(entry: Entry, segment: Segment) -> StreamData:
    """The event of a segment with a payload that `FlowTable.take_in_order` took."""
    flow, half, peer, from_initiator = entry
    payload = segment.payload
    offset = half.offset - len(payload)
    received = acknowledged_offset(entry, segment.acknowledgment)
    return StreamData(
        flow, from_initiator, payload, offset, segment.frame, segment.timestamp_ns, segment.capture, received,
        peer.offset,
    )  # fmt: skip


def _take(entry: Entry, segment: Segment, report: FlowReport, peer_report: FlowReport) -> None:
    """Apply a segment without RST to an open flow."""
    flow, half, peer, _ = entry
    flags = segment.flags
    sequence = segment.sequence
    payload = segment.payload
    missing = segment.missing
    # If the handshake was captured, no bytes were under way at the beginning: bytes missing since then are lost.
    young = not (flow.syn_seen or flow.syn_ack_seen) and segment.timestamp_ns - flow.opened_ns <= YOUNG_NS
    if not segment.window:
        half.zero_windows += 1
        report.window_closed()
    if not payload and not missing and not flags & SYN and is_stray(half, peer, segment):
        half.empty_segments += 1
        return
    if is_challenge(flow, half, peer, segment):
        half.empty_segments += 1
        return
    if flags & SYN:
        if not take_syn(flow, half, peer, segment, report, peer_report):
            return
        sequence = advance(sequence, 1)
    if flags & ACK:
        peer.acknowledge(segment.acknowledgment, peer_report)
        if not half.buffer and half.state is not UNSEEN and half.locate(sequence) == half.offset:
            report.acknowledged = peer.locate(segment.acknowledgment)
    if payload or missing:
        if half.state is UNSEEN or half.locate(sequence) >= half.offset:
            half.options, half.options_ns = segment.options, segment.timestamp_ns
        if half.first_stamp == NO_STAMP:
            half.first_stamp, half.first_stamp_ns = time_stamp(segment.options), segment.timestamp_ns
        half.receive(sequence, payload, missing, young, report)
    elif flags & (SYN | FIN):
        half.empty_segments += 1
    else:
        half.receive_empty(sequence, young, report)
    if flags & FIN and not (flow.syn_seen and peer.state is UNSEEN and not half.offset and not payload):
        # Nobody ends an unanswered connection: this FIN belongs to the connection before.
        half.finish(advance(sequence, len(payload) + missing), report)
