"""Lifetime of connections: waiting for holes, limits, idle time-outs, eviction.

A hole is lost at once when the buffer is full or the flow ends.  Otherwise it is lost only if there is a reason to
assume that the bytes will not come:

- The peer acknowledged them, and either much data waits after the hole or ``PROVEN_WAIT_NS`` passed: far longer than
  any reordering between the queues of a capturing host, and short enough for a live view.
- The peer was never captured, so that such a proof is impossible.

The first segment after time-outs, of any flow, reports all of them at their own times, in order.  So the events of a
flow and their times do not depend on other traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, nsmallest
from operator import attrgetter
from typing import Final

from mqttscope.budget import Budget
from mqttscope.net.damage import drop, final_segments_to_use, unanswered_segments
from mqttscope.net.damage import due_ns as damaged_due_ns
from mqttscope.net.flow import Entry, Flow, FlowAlarm, FlowClosed, FlowEvent, FlowReport
from mqttscope.net.reassembly import ASSUMED, HELD, NEVER, OPEN, RESET, HalfStream, ReassemblyBuffer
from mqttscope.net.segment import Segment, plain_key, reverse_key
from mqttscope.net.tap_views import VIEW_NS

_SECOND: Final = 1_000_000_000

MAX_FLOWS: Final = 100_000
MAX_BUFFERED_BYTES: Final = 4 * 1024 * 1024
MAX_BUFFERED_SEGMENTS: Final = 32_768
"""Buffer limits per direction; a 64 KiB burst in 3-byte segments and out of order still fits."""
IDLE_TIMEOUT_NS: Final = 3 * 3600 * _SECOND
"""Linux probes a silent connection after 2 h, and gives up 11 min later."""
LINGER_NS: Final = 125 * _SECOND
"""Time between the last segment of a closed flow and its removal; Linux waits at most 120 s to retransmit."""
REMEMBERED_BYTES: Final = 1_024
"""Bytes at the end of each direction of a closed flow that are remembered, to compare late segments."""
PROVEN_WAIT_NS: Final = _SECOND // 4
ONE_SIDED_WAIT_NS: Final = 5 * _SECOND
ONE_SIDED_BUFFERED_BYTES: Final = 256 * 1024
HELD_WAIT_NS: Final = _SECOND // 5
_SPARE_DUES: Final = 1_024
"""Maximum number of outdated time-outs in the heap, beyond the number of valid ones."""

_NO_PIECES: Final = ReassemblyBuffer()
"""Shared by all ended directions with an empty buffer; no segment changes it."""

_Place = tuple[int, int, str]


@dataclass(kw_only=True, eq=False)
class FlowRegister:
    """The remembered flows, bounded in number, time and memory; ``FlowTable`` passes segments to them.

    Each change of an open flow ends with ``_settle`` for both directions, ``_account`` and ``_conclude``, or with
    ``_end``.  These keep the sums, and the capture times when a flow or the whole register is due.
    """

    max_flows: int = field(default_factory=lambda: MAX_FLOWS)
    idle_timeout_ns: int = field(default_factory=lambda: IDLE_TIMEOUT_NS)
    max_buffered_bytes: int = field(default_factory=lambda: MAX_BUFFERED_BYTES)
    max_buffered_segments: int = field(default_factory=lambda: MAX_BUFFERED_SEGMENTS)
    budget: Budget = field(default_factory=Budget)
    """Memory budget of all flows together, and of their readers."""
    verify_checksums: bool = True
    """Whether segments with a wrong checksum wait until their damage is proved or disproved (`damage`)."""

    def __post_init__(self) -> None:
        self.max_flows = max(1, self.max_flows)
        self.flows: dict[bytes, Flow] = {}
        """Open flows, and flows that closed recently, by ``Flow.key``."""
        self.buffered_bytes = 0
        """Bytes in the buffers of all flows."""
        self.opened_flows = self.evicted_flows = self.idle_flows = 0
        self.copies: dict[str, Flow] = {}
        """For each capture, a flow with a segment that was captured before; if possible one with a ``context``."""
        self.late_copies = 0
        """Copies of segments of ended flows with a ``context``."""
        self.total_limit_hits = 0
        self._index: dict[bytes, Entry] = {}
        self._plain: dict[bytes, bytes] = {}
        """Latest flow of each pair of endpoints, whatever its tags: direction key by direction key without tags."""
        self._closed: dict[bytes, None] = {}
        self._dues: list[tuple[int, bytes]] = []
        """Time-outs of flows, as a heap; entries that differ from `_queued` are outdated."""
        self._queued: dict[bytes, int] = {}
        """Earliest time-out of each open flow."""
        self._longest_idle: list[tuple[int, bytes]] = []
        self._endings: list[tuple[int, bytes]] = []
        """Removal times of closed flows, as a heap; entries of flows that are gone are skipped."""
        self.next_sweep_ns = NEVER
        """Capture time of the next `_sweep`; it runs before a later segment of any flow."""

    @property
    def next_due_ns(self) -> int | None:
        """Capture time of the next time-out of a flow, ``None`` without one."""
        return self._dues[0][0] if self._dues else None

    def next_to_time_out(self) -> list[Flow]:
        """The flows that time out first, at `next_due_ns`."""
        due = self._pop_due()
        for entry in due:
            heappush(self._dues, entry)
        return [self.flows[key] for due_ns, key in due if self._queued.get(key) == due_ns]

    def due_keys(self, now: int) -> list[bytes]:
        """Keys of flows with a time-out up to a capture time."""
        dues, places, keys = self._dues, [0], []
        for place in places:
            if place < len(dues) and dues[place][0] <= now:
                keys.append(dues[place][1])
                places += (2 * place + 1, 2 * place + 2)
        return keys

    def hold(self, flow: Flow) -> None:
        """Let an open flow that another reader follows have alarms; its segments must not come here."""
        self._register(flow)

    def release(self, flow: Flow) -> None:
        """Forget a flow that another reader follows."""
        self._forget(flow)

    def _pop_due(self) -> list[tuple[int, bytes]]:
        """Remove the first time-out, and all others at this time, from the heap."""
        due = [heappop(self._dues)] if self._dues else []
        while self._dues and self._dues[0][0] == due[0][0]:
            due.append(heappop(self._dues))
        return due

    def _register(self, flow: Flow) -> None:
        back = reverse_key(flow.key)
        self.flows[flow.key] = flow
        self._index[back] = (flow, flow.responder, flow.initiator, False)
        self._index[flow.key] = (flow, flow.initiator, flow.responder, True)
        for key in flow.views:
            same = plain_key(key) == plain_key(flow.key)
            self._index[key] = self._index[flow.key if same else back]
        for key in (flow.key, back):
            self._plain[plain_key(key)] = key

    def _forget(self, flow: Flow) -> None:
        if self.flows.get(flow.key) is not flow:
            return
        self.flows.pop(flow.key)
        for key in flow.views:
            self._index.pop(key, None)
        for key in (flow.key, reverse_key(flow.key)):
            self._index.pop(key, None)
            plain = plain_key(key)
            if self._plain.get(plain) == key:
                del self._plain[plain]
        self._closed.pop(flow.key, None)
        self._queued.pop(flow.key, None)
        self._count_buffered(-flow.initiator.buffer.size - flow.responder.buffer.size)

    def _count_buffered(self, size: int) -> None:
        """Add to the count of buffered bytes; negative to subtract."""
        self.buffered_bytes += size
        self.budget.take(size)

    def _settle(self, half: HalfStream, peer: HalfStream, now: int, report: FlowReport) -> None:
        """Give up holes at a limit, and set the deadline of the first hole that remains."""
        wait = NEVER
        if half.state is HELD:
            wait = HELD_WAIT_NS
        else:
            while (end := half.hole_end()) >= 0:
                size = half.buffer.size
                proven = half.acknowledged >= end
                if size <= self.max_buffered_bytes and len(half.buffer) <= self.max_buffered_segments:
                    if proven and size * 4 < self.max_buffered_bytes:
                        wait = PROVEN_WAIT_NS
                        break
                    if not proven and (peer.segments or size <= ONE_SIDED_BUFFERED_BYTES):
                        wait = NEVER if peer.segments else ONE_SIDED_WAIT_NS
                        break
                half.give_up(report)
        half.deadline_ns = min(half.deadline_ns, now + wait) if wait < NEVER else NEVER
        half.clear = half.state in (ASSUMED, OPEN) and half.hole_end() < 0

    def _account(self, flow: Flow, before: int, events: list[FlowEvent]) -> None:
        """Update the sum of all buffers; empty the buffers of the flow if the sum is too large."""
        initiator, responder = flow.initiator, flow.responder
        size = initiator.buffer.size + responder.buffer.size
        if size != before:
            self._count_buffered(size - before)
        if size and self.budget.is_exceeded:
            self.total_limit_hits += 1
            self._count_buffered(-size)
            for half, from_initiator in ((initiator, True), (responder, False)):
                half.empty(FlowReport(flow, from_initiator, last_place(flow), events))
                half.clear = half.state in (ASSUMED, OPEN)

    def _conclude(self, flow: Flow, place: _Place, events: list[FlowEvent]) -> None:
        """Close the flow when both directions ended."""
        if flow.initiator.ended and flow.responder.ended:
            drop(flow, flow.damaged, events)
            reset = RESET in (flow.initiator.state, flow.responder.state)
            self._mark_closed(flow, "reset" if reset else "fin", place, events)
        else:
            self._refresh(flow)

    def _mark_closed(self, flow: Flow, how: str, place: _Place, events: list[FlowEvent]) -> None:
        flow.closed = how
        flow.closed_ns = place[1]
        flow.check_ns = forget_ns(flow) + 1
        flow.clear = False
        for half in (flow.initiator, flow.responder):
            if half.offset > REMEMBERED_BYTES:  # else the history reaches back to it
                half.keep_beginning()
            half.history = [b"".join(half.history)[-REMEMBERED_BYTES:]] if half.history else []
            if not half.buffer:
                half.buffer = _NO_PIECES
        self._queued.pop(flow.key, None)
        self._forget_later(flow)
        if flow.undecided:
            self._queue(flow, flow.undecided_until_ns)
        events.append(FlowClosed(flow, how, *place))

    def _forget_later(self, flow: Flow) -> None:
        self._closed[flow.key] = None
        heappush(self._endings, (flow.check_ns, flow.key))
        self.next_sweep_ns = min(self.next_sweep_ns, flow.check_ns)

    def _end(self, flow: Flow, how: str, place: _Place, events: list[FlowEvent]) -> None:
        """Close a flow that has an open direction, and give up its holes."""
        self._decide_damaged(flow, events)
        self._decide(flow, events)
        if flow.closed:
            return
        before = flow.initiator.buffer.size + flow.responder.buffer.size
        flow.initiator.flush(FlowReport(flow, True, place, events))
        flow.responder.flush(FlowReport(flow, False, place, events))
        self._count_buffered(-before)
        both_ended = flow.initiator.ended and flow.responder.ended
        self._mark_closed(flow, "fin" if both_ended else how, place, events)

    def _refresh(self, flow: Flow) -> None:
        """Update the next time-out of a flow, and whether its next segment may take the fast path."""
        if flow.past and flow.last_timestamp_ns - flow.past[-1].last_timestamp_ns > VIEW_NS:
            flow.past.clear()
        deadline = min(flow.initiator.deadline_ns, flow.responder.deadline_ns)
        idle_ns = flow.last_timestamp_ns + self.idle_timeout_ns + 1
        flow.check_ns = min(deadline, idle_ns, flow.undecided_until_ns, flow.alarm_ns, damaged_due_ns(flow))
        flow.clear = flow.initiator.clear and flow.responder.clear and not flow.undecided and not flow.damaged
        self._queue(flow, flow.check_ns)

    def alarm(self, flow: Flow, due_ns: int) -> None:
        """Schedule a `FlowAlarm` for an open flow; each flow has only its earliest alarm."""
        if due_ns < flow.alarm_ns and not flow.closed:
            flow.alarm_ns = due_ns
            flow.check_ns = min(flow.check_ns, due_ns)
            self._queue(flow, flow.check_ns)

    def _queue(self, flow: Flow, due_ns: int) -> None:
        """Schedule a time-out of a flow, unless an earlier one is scheduled."""
        queued_ns = self._queued.get(flow.key)
        if queued_ns is None or due_ns < queued_ns:
            self._queued[flow.key] = due_ns
            heappush(self._dues, (due_ns, flow.key))
            if len(self._dues) > 2 * len(self._queued) + _SPARE_DUES:
                self._dues = [(due_ns, key) for key, due_ns in self._queued.items()]
                heapify(self._dues)
            self.next_sweep_ns = min(self.next_sweep_ns, due_ns)

    def _decide(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Decide about the undecided segments of a flow without more evidence."""
        raise NotImplementedError

    def _decide_damaged(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Decide about segments with a wrong checksum without more evidence."""
        if flow.damaged:
            self._use_damaged(flow, final_segments_to_use(flow), events)
            drop(flow, flow.damaged, events)

    def _use_damaged(self, flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
        """Use segments with a wrong checksum as captured."""
        raise NotImplementedError

    def _expire(self, flow: Flow, now: int, events: list[FlowEvent]) -> None:
        """Give up the holes of a flow that are due."""
        self._use_damaged(flow, unanswered_segments(flow, now), events)
        # The flow's own last frame, so that the result does not depend on the flow that moved the time.
        place = last_place(flow)
        before = flow.initiator.buffer.size + flow.responder.buffer.size
        for _, half, peer, from_initiator in (self._index[flow.key], self._index[reverse_key(flow.key)]):
            if half.deadline_ns > now:
                continue
            report = FlowReport(flow, from_initiator, place, events)
            if half.state is HELD:
                half.release(report)
            while (end := half.hole_end()) >= 0 and (half.acknowledged >= end or not peer.segments):
                half.give_up(report)
            self._settle(half, peer, now, report)
        self._account(flow, before, events)
        self._conclude(flow, place, events)

    def _sweep(self, now: int, events: list[FlowEvent]) -> None:
        """Run all time-outs up to a capture time, and forget flows that closed long enough ago."""
        while (due_ns := self.next_due_ns) is not None and due_ns <= now:
            self._time_out(due_ns, events)
        # The heap orders them by time: capture times may go back.
        while self._endings and self._endings[0][0] <= now:
            _, key = heappop(self._endings)
            flow = self.flows.get(key)
            if flow is None or not flow.closed:
                continue
            if forget_ns(flow) < now:
                self._decide(flow, events)
                self._forget(flow)
            else:
                heappush(self._endings, (forget_ns(flow) + 1, key))
        self.next_sweep_ns = min(heap[0][0] if heap else NEVER for heap in (self._endings, self._dues))

    def _time_out(self, due_ns: int, events: list[FlowEvent]) -> None:
        """Run the time-outs of exactly this time."""
        keys = dict.fromkeys(key for _, key in self._pop_due() if self._queued.get(key) == due_ns)
        for flow in sorted((self.flows[key] for key in keys), key=attrgetter("last_frame")):
            del self._queued[flow.key]
            if flow.undecided_until_ns <= due_ns:
                self._decide(flow, events)
            if damaged_due_ns(flow) <= due_ns:
                self._decide_damaged(flow, events)
            if flow.closed:
                continue
            if flow.alarm_ns <= due_ns:
                flow.alarm_ns = NEVER
                events.append(FlowAlarm(flow, due_ns, *last_place(flow)))
            if due_ns - flow.last_timestamp_ns > self.idle_timeout_ns:
                self.idle_flows += 1
                self._end(flow, "idle", last_place(flow), events)
                self._forget(flow)
            else:
                self._expire(flow, due_ns, events)

    def _make_room(self, events: list[FlowEvent]) -> None:
        """Forget the flow that closed first, or evict the flow that is idle longest."""
        if self._closed:
            closed = self.flows[next(iter(self._closed))]
            self._decide(closed, events)
            self._forget(closed)
            return
        flow: Flow | None = None
        last_timestamp_ns = 0
        while flow is None or flow.last_timestamp_ns != last_timestamp_ns:
            if not self._longest_idle:
                # An eighth of the table at a time; flows with segments since then are skipped.
                count = max(1, len(self.flows) // 8)
                ages = ((flow.last_timestamp_ns, key) for key, flow in self.flows.items())
                self._longest_idle = nsmallest(count, ages)[::-1]
            last_timestamp_ns, key = self._longest_idle.pop()
            flow = self.flows.get(key)
        self.evicted_flows += 1
        self._end(flow, "evicted", last_place(flow), events)
        self._forget(flow)


def forget_ns(flow: Flow) -> int:
    """Capture time until which a closed flow is remembered."""
    return max(flow.closed_ns, flow.last_timestamp_ns) + LINGER_NS


def last_place(flow: Flow) -> _Place:
    """Number, capture time and capture of a flow's last frame: the frame of events without a segment."""
    return flow.last_frame, flow.last_timestamp_ns, flow.last_capture
