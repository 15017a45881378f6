"""Detects steps of a capture's clock, and subtracts them from all later times.

A gateway that records while it synchronises its clock writes frames of one moment with times an hour apart.  An
interval without segments is not a proof: devices may be silent for hours.  So an interval of `STEP_NS` or
more is only a candidate, and so is a time that goes back.  The segments after the interval decide; the first proof
counts (docs/clock.md has the table):

* Most stacks write their own clock into each segment (the Timestamps option, `net.tcp_clock`).  If the clocks of two
  hosts, or of both sides of a flow, show that less time has passed, the clock of the capture was set.  One clock alone
  may have stopped: some devices stop it while they sleep.  One clock that shows that the time has passed disproves the
  step; without such a clock the step is possible: no time is changed, and no finding about durations is certain.
* Without the option: a side sent data just before the interval, and the first segment of the flow after it is the
    other side's acknowledgment of exactly this data.  TCP repeats data until it is acknowledged, and would have done
    so in `SENT_AGAIN_NS`.
* A time that goes back is a step, unless it comes back soon (frames of several clocks, or out of order), or unless the
  clocks of the flows go back too (an older capture was appended).

The rate of a clock is 1 µs to 1 s a tick.  The first and the last value of its side bound it; `SLACK_NS` is the error
of both times.  Only values before the interval count, so that a step has no
influence on the rates that decide about it.

Warning: the reader must not run ahead while a fast path may take frames.  `last_ns` is `FAR` in that time, and while
times must be changed, so that no frame is near it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from mqttscope.events import ClockStep
from mqttscope.mqtt.constants import PacketType
from mqttscope.net.flows import FlowTable
from mqttscope.net.reassembly import START_WINDOW, UNSEEN, HalfStream
from mqttscope.net.segment import ACK, RST, SYN, Segment, advance, distance, is_ipv4_key, reverse_key
from mqttscope.net.tcp_clock import NO_STAMP, time_stamp
from mqttscope.session.capture_time import CaptureTime

_SECOND: Final = 1_000_000_000
STEP_NS: Final = _SECOND
"""Smallest step to detect.  The queues of a capturing host disorder frames by less, and the smallest grace of
a Keep Alive is 0.5 s longer than the Keep Alive."""
SENT_AGAIN_NS: Final = 60 * _SECOND
"""Time within which data without an acknowledgment is repeated (RFC 6298 section 2.5: the time-out may be limited to
60 s, and nearly all are far below)."""
REPLY_NS: Final = 600 * _SECOND
"""Maximum time of a server for the answer to a packet that its TCP has acknowledged."""
JUST_BEFORE_NS: Final = _SECOND
"""Maximum time from a request to the interval if its acknowledgment is the proof."""
SLACK_NS: Final = _SECOND // 5
"""Error of capture times: frames that were queued, or out of order."""
MAX_AHEAD: Final = 64
"""Maximum number of segments read ahead to decide about one interval."""
AHEAD_NS: Final = _SECOND
"""Maximum capture time read ahead."""
ENOUGH_AHEAD: Final = 16
"""Number of segments after an interval that decide: a contradiction appears, or a time goes back, by then or never."""
SETTLED_NS: Final = _SECOND // 5
"""Minimum capture time until a time no longer goes back."""
_ANSWERS: Final[dict[int, bytes]] = {
    PacketType.CONNECT: b"\x20", PacketType.PUBLISH: b"\x40\x50", PacketType.PUBREC: b"\x62",
    PacketType.PUBREL: b"\x70", PacketType.SUBSCRIBE: b"\x90", PacketType.UNSUBSCRIBE: b"\xb0",
    PacketType.PINGREQ: b"\xd0",
}  # fmt: skip
"""First bytes of the packets that answer a packet, by its type."""
_LOWEST_RATE, _HIGHEST_RATE, _USUAL_RATE = 1, 1_000_000, 1_000
"""Ticks in a second (RFC 7323 section 5.4; Linux can count microseconds)."""
_USUAL_RATES: Final = (1, 2, 4, 10, 100, 250, _USUAL_RATE, _HIGHEST_RATE)
_SHORT_NS: Final = _SECOND // 100
"""Minimum time to recognise one of the usual rates by ticks."""
MAX_REFERENCES: Final = 200_000
"""Maximum number of directions with a clock to compare after a step."""
_MEASURED, _GUESSED, _ASSUMED = range(3)
"""Source of a clock's rate: a second and many ticks; less than that, as the nearest usual rate; or an assumption."""
_MANY_TICKS: Final = 10
_Elapsed = tuple[int, int]
"""Source of a clock's rate, and the time that has passed by this clock, in nanoseconds."""
_NOTHING: Final[_Elapsed] = (_ASSUMED, 0)
FAR: Final = -1 << 80
"""A time far from every frame."""


class _SegmentEvidence(Enum):
    """Evidence of one segment after an interval."""

    NONE = "none"
    PASSED = "passed"
    """A clock that agrees with the capture's clock."""
    CONTRADICTED = "contradicted"
    """A clock that contradicts the capture's clock."""
    ADVANCED = "advanced"
    """A clock that shows most of the interval, if it has a usual rate."""
    ANSWERED = "answered"
    """The acknowledgment of data sent just before the interval."""


class ClockWatch:
    """The clock of the captures of one run.  `follow` handles all segments before the flow table."""

    def __init__(self, flows: FlowTable) -> None:
        self.last_ns: int = FAR
        """Capture time of the last segment.  A fast path takes a frame near it, and advances it."""
        self.shift_ns = 0
        """Total forward shift of the clock by its steps."""
        self.machine: Callable[[], int] | None = None
        """Returns the total forward shift of this machine's clock since the start of a live capture."""
        self._flows = flows
        self._slow_ns: int = FAR
        """The last time while `last_ns` is `FAR`."""
        self._resumed_ns: int | None = None
        self._capture = ""
        self._ahead: deque[Any] = deque()
        """Items read ahead; the first one comes after the interval in question."""
        self._is_following = False
        self._is_doubtful = False
        """Whether one host alone contradicts the last interval, so that the clock may have been set in it."""
        self._is_estimate = False
        """Whether the length of the last interval with a step is an estimate."""
        self._estimate_ns: int = FAR
        """End of the last estimated interval.  A rate across it may be wrong, and would make every silence a step."""
        self._references: dict[bytes, tuple[int, int]] = {}
        """First value and time of a sender's clock since the last estimate, by direction key."""

    def resume(self, shift_ns: int, last_ns: int | None) -> None:
        """Continue after an earlier run; ``last_ns``: capture time of its last segment."""
        self.shift_ns, self._resumed_ns = shift_ns, last_ns
        if shift_ns and last_ns is not None:
            self._estimate_ns = last_ns - shift_ns

    def follow(self, source: Iterable[Any]) -> Iterator[Any]:
        """Pass all items on, with steps subtracted from their times and a `ClockStep` at each step.

        A nested call passes items on unchanged.
        """
        if self._is_following:
            return iter(source)
        self._is_following = True
        return self._follow(iter(source))

    def release(self) -> list[Any]:
        """Decide with the items read ahead, since no more follow: all of them go to the dissector."""
        passed: list[Any] = []
        while self._ahead:
            passed += self._next(self._judge(is_all=True) or 0)
        self._arm()
        return passed

    def interleave(self, item: Any) -> list[Any]:
        """The items for the dissector when an item arrives outside the source: first all items read ahead."""
        passed = self.release()
        if type(item) is Segment:
            if self.last_ns == FAR:
                self._slow_ns = item.timestamp_ns
            else:
                self.last_ns = item.timestamp_ns
            item = self.shifted(item)
        return [*passed, item]

    def steady_ns(self, last_ns: int) -> int:
        """The time of the last segment for durations; ``last_ns`` is its capture time."""
        return last_ns if self._slow_ns == FAR or not self.shift_ns else self._slow_ns - self.shift_ns

    def disable(self) -> None:
        """Change no times: this reader takes only some flows of a capture."""
        self._is_following = True

    def _follow(self, source: Iterator[Any]) -> Iterator[Any]:
        try:
            for item in source:
                if type(item) is Segment:
                    now = item.timestamp_ns
                    if not -STEP_NS < now - self.last_ns < STEP_NS:
                        self._ahead.append(item)
                        yield from self._look(source)
                        continue
                    self.last_ns = now
                yield item
        finally:
            self._is_following = False

    def _look(self, source: Iterator[Any]) -> Iterator[Any]:
        """Pass on the items read ahead, once their times are decided."""
        while self._ahead:
            step_ns = self._judge()
            while step_ns is None:
                self.last_ns, self._slow_ns = FAR, self._before_ns
                item = next(source, None)
                if item is not None:
                    self._ahead.append(item)
                elif not self._ahead:
                    return
                # If the others were released meanwhile, the new item is the first.
                step_ns = self._judge(is_all=item is None)
            yield from self._next(step_ns)
        self._arm()

    def _arm(self) -> None:
        """Let a fast path take frames again."""
        if not self.shift_ns and self.last_ns == FAR:
            self.last_ns = self._slow_ns

    def _next(self, step_ns: int) -> list[Any]:
        """The first item read ahead, after a `ClockStep` if there was one."""
        item = self._ahead.popleft()
        if type(item) is not Segment:
            return [item]
        now = item.timestamp_ns
        if item.capture != self._capture:
            before_ns = self._resumed_ns if self._before_ns == FAR else self._before_ns
            if before_ns is not None and now < before_ns - STEP_NS:
                self.shift_ns, self._estimate_ns = 0, FAR  # recorded beside the captures before
            self._capture = item.capture
        self.shift_ns += step_ns
        self.last_ns, self._slow_ns = FAR, now
        item = self.shifted(item)
        if step_ns and self._is_estimate:
            self._estimate_ns = int(item.timestamp_ns)
            self._references.clear()
        self._refer(item)
        step = [ClockStep(item.capture, item.frame, item.timestamp_ns, step_ns)] if step_ns or self._is_doubtful else []
        return [*step, item]

    def shifted(self, item: Segment) -> Segment:
        """A segment with its time for durations."""
        if not self.shift_ns:
            return item
        return replace(item, timestamp_ns=CaptureTime(item.timestamp_ns - self.shift_ns, item.timestamp_ns))

    def _refer(self, segment: Segment) -> None:
        """Note a sender's clock, if its flow began before the last estimate."""
        entry = None if self._estimate_ns == FAR else self._flows.entry(segment.key)
        if entry is None or entry[1].first_stamp_ns >= self._estimate_ns or segment.key in self._references:
            return
        stamp = time_stamp(segment.options)
        if stamp != NO_STAMP:
            if len(self._references) >= MAX_REFERENCES:
                self._references.clear()
            self._references[segment.key] = stamp, int(segment.timestamp_ns)

    def _reference(self, key: bytes, half: HalfStream) -> tuple[int, int]:
        """A value of a sender's clock and its time, after the last estimate; else `NO_STAMP`."""
        if half.first_stamp_ns >= self._estimate_ns:
            return half.first_stamp, half.first_stamp_ns
        return self._references.get(key, (NO_STAMP, 0))

    @property
    def _before_ns(self) -> int:
        return self._slow_ns if self.last_ns == FAR else self.last_ns

    def _judge(self, *, is_all: bool = False) -> int | None:
        """The step of the clock before the first item read ahead; ``None``: read on.

        ``is_all``: there are no more items to read.
        """
        self._is_doubtful = False
        first = self._ahead[0]
        if type(first) is not Segment:
            return 0
        before_ns = self._before_ns
        jump_ns = first.timestamp_ns - before_ns
        is_other = first.capture != self._capture
        if before_ns == FAR or -STEP_NS < jump_ns < STEP_NS or (is_other and jump_ns < 0):
            return 0
        if self.machine is not None:
            set_ns = self.machine() - self.shift_ns
            if abs(set_ns) >= STEP_NS and jump_ns >= set_ns - STEP_NS:
                self._is_estimate = False
                return set_ns
        if not self._flows.flows and jump_ns > 0:
            return 0  # nothing can prove it
        contradictions: dict[bytes, _Elapsed] = {}
        """Elapsed times of the interval by clocks that contradict it, by direction key."""
        answered = advanced = False
        spoken: set[bytes] = set()
        """Both directions of flows with segments after the interval."""
        begun: set[bytes] = set()
        """Directions among ``spoken`` of flows that began after the interval."""
        continues = False
        count, latest_ns = 0, first.timestamp_ns
        for segment in self._ahead:
            if type(segment) is not Segment:
                continue
            further_ns = segment.timestamp_ns - latest_ns
            returns = abs(segment.timestamp_ns - before_ns) < jump_ns // 8
            if (further_ns <= -STEP_NS and returns) or (jump_ns < 0 and further_ns >= -jump_ns - STEP_NS):
                return 0  # frames of several clocks, or out of order
            if abs(further_ns) >= STEP_NS or segment.timestamp_ns - first.timestamp_ns > AHEAD_NS:
                is_all = True  # the next interval
                break
            count += 1
            latest_ns = max(latest_ns, segment.timestamp_ns)
            keys = {segment.key, reverse_key(segment.key)}
            if segment.flags & SYN:
                begun |= keys
            continues = continues or (segment.key not in begun and self._continues(segment))
            evidence, elapsed = self._evidence(segment, jump_ns, before_ns, is_first=segment.key not in spoken)
            spoken |= keys
            if evidence is _SegmentEvidence.PASSED:
                return 0
            if evidence is _SegmentEvidence.CONTRADICTED:
                contradictions.setdefault(segment.key, elapsed)
            elif evidence is _SegmentEvidence.ANSWERED:
                answered = True
            elif evidence is _SegmentEvidence.ADVANCED:
                advanced = True
        is_settled = is_all or count >= ENOUGH_AHEAD or latest_ns - first.timestamp_ns >= SETTLED_NS
        if _is_proof(contradictions) or answered or (jump_ns < 0 and continues):
            if not is_settled:
                return None
            doubt, elapsed_ns = min(contradictions.values(), default=(_ASSUMED, 0))
            self._is_estimate, elapsed_ns = doubt != _MEASURED, max(0, elapsed_ns)
            return jump_ns - (elapsed_ns if jump_ns < 0 else min(elapsed_ns, jump_ns))
        if not (is_all or count >= MAX_AHEAD or (is_settled and not contradictions)):
            return None
        self._is_doubtful = bool(contradictions) and not advanced and jump_ns > 0 and self.machine is None
        return 0

    def _evidence(
        self, segment: Segment, jump_ns: int, before_ns: int, *, is_first: bool
    ) -> tuple[_SegmentEvidence, _Elapsed]:
        """Evidence of a segment about an interval that began at ``before_ns``, and the interval's length by its clock.

        ``is_first``: the segment is the first of its flow after the interval.
        """
        entry = self._flows.entry(segment.key)
        if entry is None:
            return _SegmentEvidence.NONE, _NOTHING
        _, half, peer, _ = entry
        evidence, elapsed = self._compare(segment, half, jump_ns)
        if evidence is not _SegmentEvidence.PASSED and is_first and _is_answer(segment, half, peer, jump_ns):
            sent_ns = _last_sent_ns(peer)
            if before_ns - self.shift_ns - sent_ns <= JUST_BEFORE_NS:
                return _SegmentEvidence.ANSWERED, elapsed
        return evidence, elapsed

    def _continues(self, segment: Segment) -> bool:
        """Whether a segment belongs to a known, open connection."""
        entry = self._flows.entry(segment.key)
        if entry is None or entry[0].closed:
            return False
        return abs(entry[1].locate(segment.sequence) - entry[1].offset) <= START_WINDOW

    def _compare(self, segment: Segment, half: HalfStream, jump_ns: int) -> tuple[_SegmentEvidence, _Elapsed]:
        """Evidence of the sender's clock."""
        stamp, (last, last_ns) = time_stamp(segment.options), _last_stamp(half)
        if segment.flags & SYN or NO_STAMP in (stamp, last) or last_ns < self._estimate_ns:
            return _SegmentEvidence.NONE, _NOTHING
        if abs(half.locate(segment.sequence) - half.offset) > START_WINDOW:
            return _SegmentEvidence.NONE, _NOTHING
        ticks = distance(last, stamp)
        total_ns = segment.timestamp_ns - self.shift_ns - last_ns
        history = *self._reference(segment.key, half), last, last_ns
        low, high = _rates(*history)
        if ticks < 0:
            # An old frame, or a device that has restarted.
            is_old = low > _LOWEST_RATE and (ticks - 1) * _SECOND // low <= total_ns <= (ticks + 1) * _SECOND // high
            return (_SegmentEvidence.PASSED if is_old else _SegmentEvidence.NONE), _NOTHING
        most_ns, least_ns = (ticks + 1) * _SECOND // low, max(0, ticks - 1) * _SECOND // high
        elapsed = _elapsed(*history, ticks)
        is_less, is_more = most_ns < total_ns - STEP_NS, least_ns > total_ns + STEP_NS
        if (is_less and jump_ns > 0 and total_ns - most_ns <= jump_ns) or (is_more and jump_ns < 0):
            outside_ns = total_ns - jump_ns
            doubt, elapsed_ns = elapsed
            return _SegmentEvidence.CONTRADICTED, (doubt, elapsed_ns - outside_ns)
        if not is_less and not is_more and least_ns >= total_ns - STEP_NS:
            return _SegmentEvidence.PASSED, _NOTHING
        return (_SegmentEvidence.ADVANCED if 0 < total_ns < 2 * elapsed[1] else _SegmentEvidence.NONE), _NOTHING


@dataclass(slots=True, frozen=True)
class ClockChange:
    """A place where the difference between capture times and times for durations changes."""

    file: int
    """Index of the capture in reading order."""
    frame: int
    shift_ns: int
    step: ClockStep | None = None
    """``None`` if the clock was set in an earlier capture."""


@dataclass(slots=True, frozen=True)
class CaptureClock:
    """The clock of captures that are read in parts."""

    changes: tuple[ClockChange, ...] = ()
    """Changes in reading order."""
    ends: tuple[int, ...] = ()
    """Times of the last segments of the captures, for durations; empty without changes."""

    def changes_before(self, file: int, frame: int) -> int:
        """Number of changes before or at a frame."""
        return bisect_right(self.changes, (file, frame), key=lambda change: (change.file, change.frame))

    def is_set_back(self, count: int, file: int) -> bool:
        """Whether one of the first ``count`` changes set the clock of a capture back."""
        return any(
            change.file == file and change.step is not None and change.step.by_ns < 0 for change in self.changes[:count]
        )


NO_CLOCK: Final = CaptureClock()
"""The clock of captures without changes."""


def clock_of(
    source: Iterable[Any], names: Sequence[str], shift_ns: int = 0, last_ns: int | None = None
) -> CaptureClock:
    """The clock of captures, from all their segments; ``names``: the captures in reading order.

    ``shift_ns`` and ``last_ns``: as for `ClockWatch.resume`.
    """
    flows = FlowTable()
    clock = ClockWatch(flows)
    clock.resume(shift_ns, last_ns)
    places = {name: place for place, name in enumerate(names)}
    changes = [ClockChange(-1, 0, shift_ns)] if shift_ns else []
    ends = [FAR] * len(names)
    step: ClockStep | None = None
    for item in clock.follow(source):
        if type(item) is ClockStep:
            step = item
        elif type(item) is Segment:
            place = places[item.capture]
            if step is not None or clock.shift_ns != shift_ns:
                shift_ns = clock.shift_ns
                changes.append(ClockChange(place, item.frame, shift_ns, step))
                step = None
            ends[place] = max(ends[place], item.timestamp_ns)
            flows.feed(item)
    return CaptureClock(tuple(changes), tuple(map(int, ends)) if changes else ())


def _is_answer(segment: Segment, half: HalfStream, peer: HalfStream, jump_ns: int) -> bool:
    """Whether the first segment of a flow after an interval answers data that the other side sent before it."""
    if not segment.flags & ACK or segment.flags & RST or 0 < jump_ns < SENT_AGAIN_NS:
        return False
    if not peer.offset and peer.initial_sequence >= 0 and peer.fin_offset < 0:
        # SYN-ACK after SYN, or ACK after SYN-ACK.
        is_next = half.state is UNSEEN if segment.flags & SYN else half.segments == 1 and half.initial_sequence >= 0
        return is_next and segment.acknowledgment == advance(peer.initial_sequence, 1)
    own_end = half.offset + (half.fin_offset == half.offset)
    if segment.flags & SYN or (half.state is not UNSEEN and half.locate(segment.sequence) != own_end):
        return False
    end = peer.offset + (peer.fin_offset == peer.offset)
    if peer.locate(segment.acknowledgment) != end:
        return False
    # Data may be a new message, if the acknowledgment before it was not captured.
    answer = segment.payload
    replies = bool(answer) and bool(peer.history) and answer[0] in _ANSWERS.get(peer.history[-1][0] >> 4, b"")
    if end > peer.acknowledged:
        # Some programs that write captures omit bare acknowledgments.
        of_handshake = 1 if peer.first_stamp_ns < half.first_stamp_ns else 2
        is_real = half.empty_segments > (of_handshake if half.initial_sequence >= 0 else 0)
        return is_real and (not answer or replies)
    return replies and not 0 < jump_ns < REPLY_NS


def _last_sent_ns(half: HalfStream) -> int:
    """Time when a side last sent data, FIN or SYN."""
    if half.fin_offset >= 0:
        return half.fin_place[1]
    return half.options_ns if half.offset else half.first_stamp_ns


def _is_proof(keys: Collection[bytes]) -> bool:
    """Whether directions with contradicting clocks are both directions of one flow, or belong to two hosts."""
    if any(reverse_key(key) in keys for key in keys):
        return True
    return len({key[:4] if is_ipv4_key(key) else key[:16] for key in keys}) > 1


def _last_stamp(half: HalfStream) -> tuple[int, int]:
    last = time_stamp(half.options)
    return (half.first_stamp, half.first_stamp_ns) if last == NO_STAMP else (last, half.options_ns)


def _rates(first: int, first_ns: int, last: int, last_ns: int) -> tuple[int, int]:
    """Minimum and maximum rate of a side's clock, in ticks per second."""
    ticks, span_ns = distance(first, last), last_ns - first_ns
    if first == NO_STAMP or ticks <= 0 or span_ns <= 0:
        return _LOWEST_RATE, _HIGHEST_RATE
    low = (ticks - 1) * _SECOND // (span_ns + SLACK_NS)
    high = (ticks + 1) * _SECOND // (span_ns - SLACK_NS) + 1 if span_ns > SLACK_NS else _HIGHEST_RATE
    return min(max(low, _LOWEST_RATE), _HIGHEST_RATE), min(max(high, _LOWEST_RATE), _HIGHEST_RATE)


def _elapsed(first: int, first_ns: int, last: int, last_ns: int, ticks: int) -> _Elapsed:
    """Most probable duration of a number of ticks."""
    before, span_ns = distance(first, last), last_ns - first_ns
    if first == NO_STAMP or before <= 0 or span_ns < _SHORT_NS:
        return _ASSUMED, ticks * _SECOND // _USUAL_RATE
    if span_ns >= _SECOND and before >= _MANY_TICKS:
        return _MEASURED, ticks * span_ns // before
    measured = before * _SECOND / span_ns
    return _GUESSED, ticks * _SECOND // min(_USUAL_RATES, key=lambda rate: abs(math.log(rate / measured)))
