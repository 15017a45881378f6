"""What is remembered of TCP connections and for how long: holes that wait, limits, idleness, eviction.

When is a hole lost?  At once when the buffer is full or the flow ends.  Else only with a reason to believe that the
bytes will not come: the peer acknowledged them (it has them, so no retransmission will follow) and either
``PROVEN_WAIT_NS`` passed, far more than any reordering between the queues of a capturing host but short enough for a
live view, or much data waits after the hole; or the peer was never captured at all, so that no such proof can come.
Without an acknowledgment in a two-sided capture the sender will send again, and the hole stays open.

A time-out counts at its own time: the first segment after it, of whichever flow, brings out all that were due before,
one after the other.  So what happens to a flow, and when, does not depend on the traffic around it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nsmallest
from operator import attrgetter
from typing import Final

from mqttscope.net.damage import drop, last_to_be_used, unanswered
from mqttscope.net.damage import due_ns as damaged_due_ns
from mqttscope.net.flow import Entry, Flow, FlowAlarm, FlowClosed, FlowEvent, FlowReport
from mqttscope.net.reassembly import ASSUMED, HELD, NEVER, OPEN, RESET, HalfStream, Pieces
from mqttscope.net.segment import Segment, plain_key, reverse_key
from mqttscope.net.tap_views import VIEW_NS

_SECOND: Final = 1_000_000_000

MAX_FLOWS: Final = 100_000
MAX_BUFFERED_BYTES: Final = 4 * 1024 * 1024
"""Per direction."""
MAX_BUFFERED_SEGMENTS: Final = 32_768
"""Per direction; a 64 KiB burst cut into 3-byte segments and shuffled still fits."""
MAX_TOTAL_BUFFERED_BYTES: Final = 256 * 1024 * 1024
"""Of all flows together."""
IDLE_TIMEOUT_NS: Final = 2 * 3600 * _SECOND
LINGER_NS: Final = 120 * _SECOND
"""How long a closed flow is remembered, so that late copies of its segments do not open another."""
REMEMBERED_BYTES: Final = 1_024
"""Of each direction of a closed flow, the latest bytes: late segments are compared with them."""
PROVEN_WAIT_NS: Final = _SECOND // 4
ONE_SIDED_WAIT_NS: Final = 5 * _SECOND
ONE_SIDED_BUFFERED_BYTES: Final = 256 * 1024
HELD_WAIT_NS: Final = _SECOND // 5
_SPARE_DUES: Final = 1_024
"""Notes of time-outs that count no more are cleared away when there are so many more than others."""

_NO_PIECES: Final = Pieces()
"""For all directions that have ended with nothing waiting: no segment reaches a buffer of theirs any more."""

_Place = tuple[int, int, str]


class FlowRegister:
    """The flows that are remembered, bounded in number, time and memory; ``FlowTable`` adds how segments reach them.

    What changes an open flow calls ``_settle`` for each direction, then ``_account`` and ``_conclude``, or ``_end``.
    They keep the sums, and the capture times from which on a flow or the whole register needs a look.
    """

    def __init__(
        self,
        *,
        max_flows: int = MAX_FLOWS,
        idle_timeout_ns: int = IDLE_TIMEOUT_NS,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        max_buffered_segments: int = MAX_BUFFERED_SEGMENTS,
        max_total_buffered_bytes: int = MAX_TOTAL_BUFFERED_BYTES,
        verify_checksums: bool = True,
    ) -> None:
        self.max_flows = max(1, max_flows)
        self.idle_timeout_ns = idle_timeout_ns
        self.max_buffered_bytes = max_buffered_bytes
        self.max_buffered_segments = max_buffered_segments
        self.max_total_buffered_bytes = max_total_buffered_bytes
        self.verify_checksums = verify_checksums
        """Whether segments with a wrong checksum wait until it is clear whether they were damaged (`damage`)."""
        self.flows: dict[bytes, Flow] = {}
        """The flows remembered, open ones and those closed shortly before, by ``Flow.key``."""
        self.buffered_bytes = 0
        self.most_buffered_bytes = 0
        """The most since whoever reads it has set it back."""
        self.opened_flows = 0
        self.evicted_flows = 0
        self.idle_flows = 0
        self.late_copies = 0
        """Segments with data that were captured twice, of ended flows that the layer above had taken up."""
        self.total_limit_hits = 0
        self._index: dict[bytes, Entry] = {}
        self._plain: dict[bytes, bytes] = {}
        """The last flow of each pair of endpoints, whatever its tags: direction key by direction key without tags."""
        self._closed: dict[bytes, None] = {}
        self._dues: list[tuple[int, bytes]] = []
        """When flows time out, as a heap; what `_queued` does not confirm counts no more."""
        self._queued: dict[bytes, int] = {}
        """The earliest time in it of each open flow."""
        self._longest_idle: list[tuple[int, bytes]] = []
        self._endings: list[tuple[int, bytes]] = []
        """When closed flows are forgotten, as a heap; those that were forgotten before are passed over."""
        self._next_sweep_ns = NEVER

    @property
    def next_due_ns(self) -> int | None:
        """Capture time before which no flow times out; ``None``: none ever does."""
        return self._dues[0][0] if self._dues else None

    @property
    def next_look_ns(self) -> int:
        """Capture time from which on a segment, of whichever flow, has the register look after its flows first."""
        return self._next_sweep_ns

    def next_to_time_out(self) -> list[Flow]:
        """The flows that time out next, all of them at the same time (`next_due_ns`)."""
        found: list[Flow] = []
        places = [0] if self._dues else []
        while places:
            # In a heap, what is due at the same time as its first lies together.
            place = places.pop()
            due_ns, key = self._dues[place]
            if due_ns != self._dues[0][0]:
                continue
            if self._queued.get(key) == due_ns:
                found.append(self.flows[key])
            places += [below for below in (2 * place + 1, 2 * place + 2) if below < len(self._dues)]
        return found

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
        self._index.pop(flow.key, None)
        self._index.pop(reverse_key(flow.key), None)
        for key in flow.views:
            self._index.pop(key, None)
        for key in (flow.key, reverse_key(flow.key)):
            if self._plain.get(plain_key(key)) == key:
                del self._plain[plain_key(key)]
        self._closed.pop(flow.key, None)
        self._queued.pop(flow.key, None)
        self.buffered_bytes -= flow.initiator.buffer.size + flow.responder.buffer.size

    def _settle(self, half: HalfStream, peer: HalfStream, now: int, report: FlowReport) -> None:
        """Give up holes where a limit says so, and set the time to look at the first that remains."""
        wait = NEVER
        if half.state is HELD:
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
        self.most_buffered_bytes = max(self.most_buffered_bytes, self.buffered_bytes)
        if self.buffered_bytes > self.max_total_buffered_bytes:
            self.total_limit_hits += 1
            self.buffered_bytes -= initiator.buffer.size + responder.buffer.size
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
        flow.check_ns = flow.closed_ns + LINGER_NS + 1
        flow.clear = False
        for half in (flow.initiator, flow.responder):
            if half.offset > REMEMBERED_BYTES:  # else the history reaches back to it
                half.keep_beginning()
            half.history = latest(half.history, REMEMBERED_BYTES)
            if not half.buffer:
                half.buffer = _NO_PIECES
        self._queued.pop(flow.key, None)
        self._forget_later(flow)
        if flow.kept:
            self._queue(flow, flow.kept_until_ns)
        events.append(FlowClosed(flow, how, *place))

    def _forget_later(self, flow: Flow) -> None:
        self._closed[flow.key] = None
        heappush(self._endings, (flow.check_ns, flow.key))
        self._next_sweep_ns = min(self._next_sweep_ns, flow.check_ns)

    def _end(self, flow: Flow, how: str, place: _Place, events: list[FlowEvent]) -> None:
        """Close a flow whose directions did not both end; what it waits for is given up."""
        self._decide_damaged(flow, events)
        self._decide(flow, events)
        if flow.closed:
            return
        before = flow.initiator.buffer.size + flow.responder.buffer.size
        flow.initiator.flush(FlowReport(flow, True, place, events))
        flow.responder.flush(FlowReport(flow, False, place, events))
        self.buffered_bytes -= before
        both_ended = flow.initiator.ended and flow.responder.ended
        self._mark_closed(flow, "fin" if both_ended else how, place, events)

    def _end_idle(self, flow: Flow, events: list[FlowEvent]) -> None:
        self.idle_flows += 1
        self._end(flow, "idle", last_place(flow), events)
        self._forget(flow)

    def _refresh(self, flow: Flow) -> None:
        """Work out again when the flow needs a look, and whether its next segment may take the fast path."""
        if flow.past and flow.last_timestamp_ns - flow.past[-1].last_timestamp_ns > VIEW_NS:
            flow.past.clear()
        deadline = min(flow.initiator.deadline_ns, flow.responder.deadline_ns)
        idle_ns = flow.last_timestamp_ns + self.idle_timeout_ns + 1
        flow.check_ns = min(deadline, idle_ns, flow.kept_until_ns, flow.alarm_ns, damaged_due_ns(flow))
        flow.clear = flow.initiator.clear and flow.responder.clear and not flow.kept and not flow.damaged
        self._queue(flow, flow.check_ns)

    def alarm(self, flow: Flow, due_ns: int) -> None:
        """Report a `FlowAlarm` of a flow when this capture time comes, where it is open then.

        There is one for each flow: the earliest that was asked for since the last one came.
        """
        if due_ns < flow.alarm_ns and not flow.closed:
            flow.alarm_ns = due_ns
            flow.check_ns = min(flow.check_ns, due_ns)
            self._queue(flow, flow.check_ns)

    def _queue(self, flow: Flow, due_ns: int) -> None:
        """Have a flow looked at when this time has come."""
        queued_ns = self._queued.get(flow.key)
        if queued_ns is None or due_ns < queued_ns:
            self._queued[flow.key] = due_ns
            heappush(self._dues, (due_ns, flow.key))
            if len(self._dues) > 2 * len(self._queued) + _SPARE_DUES:
                self._dues = [(due_ns, key) for key, due_ns in self._queued.items()]
                heapify(self._dues)
            self._next_sweep_ns = min(self._next_sweep_ns, due_ns)

    def _decide(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Decide about the segments that are kept of a flow, without more evidence."""
        raise NotImplementedError

    def _decide_damaged(self, flow: Flow, events: list[FlowEvent]) -> None:
        """Decide about the segments with a wrong checksum, without more evidence."""
        if flow.damaged:
            self._use_damaged(flow, last_to_be_used(flow), events)
            drop(flow, flow.damaged, events)

    def _use_damaged(self, flow: Flow, segments: list[Segment], events: list[FlowEvent]) -> None:
        """Use segments with a wrong checksum as captured."""
        raise NotImplementedError

    def _expire(self, flow: Flow, now: int, events: list[FlowEvent]) -> None:
        """Give up the holes of a flow that were waited for long enough."""
        self._use_damaged(flow, unanswered(flow, now), events)
        # The frame is the flow's own last one, so that the result does not depend on which other flow moved the time.
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
        """Look after the flows that get no segments: those that wait, those that went idle, those that ended."""
        while (due_ns := self.next_due_ns) is not None and due_ns <= now:
            self._time_out(due_ns, events)
        # Not in the order in which they closed: capture times may go back.
        while self._endings and self._endings[0][0] <= now:
            due_ns, key = heappop(self._endings)
            flow = self.flows.get(key)
            if flow is not None and flow.closed and flow.closed_ns + LINGER_NS < due_ns <= now:
                self._decide(flow, events)
                self._forget(flow)
        self._next_sweep_ns = self._endings[0][0] if self._endings else NEVER
        if self._dues:
            self._next_sweep_ns = min(self._next_sweep_ns, self._dues[0][0])

    def _time_out(self, due_ns: int, events: list[FlowEvent]) -> None:
        """Look after the flows that time out at this very time, or seemed to when that was noted."""
        found: dict[bytes, Flow] = {}
        while self._dues and self._dues[0][0] == due_ns:
            key = heappop(self._dues)[1]
            if self._queued.get(key) == due_ns:
                found[key] = self.flows[key]
        for flow in sorted(found.values(), key=attrgetter("last_frame")):
            del self._queued[flow.key]
            if flow.kept_until_ns <= due_ns:
                self._decide(flow, events)
            if damaged_due_ns(flow) <= due_ns:
                self._decide_damaged(flow, events)
            if flow.closed:
                continue
            if flow.alarm_ns <= due_ns:
                flow.alarm_ns = NEVER
                events.append(FlowAlarm(flow, due_ns, *last_place(flow)))
            if due_ns - flow.last_timestamp_ns > self.idle_timeout_ns:
                self._end_idle(flow, events)
            else:
                self._expire(flow, due_ns, events)

    def _make_room(self, events: list[FlowEvent]) -> None:
        """Forget the flow that closed first, or evict the one that is idle longest."""
        if self._closed:
            flow = self.flows[next(iter(self._closed))]
            self._decide(flow, events)
            self._forget(flow)
            return
        while True:
            if not self._longest_idle:
                # An eighth of the table at a time: flows that get segments meanwhile are passed over below.
                count = max(1, len(self.flows) // 8)
                ages = ((flow.last_timestamp_ns, key) for key, flow in self.flows.items())
                self._longest_idle = nsmallest(count, ages)[::-1]
            last_timestamp_ns, key = self._longest_idle.pop()
            idle = self.flows.get(key)
            if idle is not None and idle.last_timestamp_ns == last_timestamp_ns:
                break
        self.evicted_flows += 1
        flow = idle
        self._end(flow, "evicted", last_place(flow), events)
        self._forget(flow)


def last_place(flow: Flow) -> _Place:
    """Number, capture time and capture of a flow's last frame, to which is owed what no segment does to the flow."""
    return flow.last_frame, flow.last_timestamp_ns, flow.last_capture


def latest(history: list[bytes], limit: int) -> list[bytes]:
    """The end of a history, at most ``limit`` bytes."""
    joined = b"".join(history)
    return [joined[-limit:]] if joined else []
