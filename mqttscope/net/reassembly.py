"""Reassembles one direction of a TCP connection: segments in any order become bytes in order, each byte once.

Positions are *stream offsets*, which do not wrap; 0 is the first byte after the SYN, or the first known byte.
``HalfStream.offset`` is the next one to deliver; early bytes wait in ``buffer`` (`ReassemblyBuffer`).  Laws:
- bytes delivered or buffered first are kept; a copy with other content is a ``StreamOverlap``;
- data and gaps tile the stream: each event starts at the end of the one before;
- this module never decides that a hole is lost; ``flow_expiry`` does that and calls ``give_up``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from mqttscope.net.checksum import UNJUDGED
from mqttscope.net.segment import MASK, advance, distance


def difference(first: bytes, second: bytes) -> tuple[int, int]:
    """Offset of the first different byte and number of differences in the common length; ``(-1, 0)`` if equal."""
    if first == second:
        return -1, 0
    length = min(len(first), len(second))
    mixed = int.from_bytes(first[:length], "big") ^ int.from_bytes(second[:length], "big")
    if not mixed:
        return -1, 0
    marks = mixed.to_bytes(length, "big")
    return length - len(marks.lstrip(b"\0")), length - marks.count(0)


def compare(history: list[bytes], end: int, start: int, payload: bytes) -> tuple[int, int]:
    """Compare ``payload`` at stream offset ``start`` with the last deliveries, which end at ``end`` without gaps.

    Returns the stream offset of the first different byte and the number of differences; unknown bytes do not count.
    """
    first = -1
    differences = 0
    at = end
    for known in reversed(history):
        stop = at
        at -= len(known)
        low, high = max(at, start), min(stop, start + len(payload))
        if low < high:
            place, count = difference(payload[low - start : high - start], known[low - at : high - at])
            if count:
                first = low + place
                differences += count
        if at <= start:
            break
    return first, differences


@dataclass(slots=True)
class InsertResult:
    """The comparison of an inserted segment with the buffered bytes."""

    new: bool
    """Whether the segment had new bytes."""
    repeated: int
    """Number of repeated bytes."""
    first_difference: int
    """Stream offset of the first repeated byte with other content, or -1."""
    differences: int
    """Number of repeated bytes with other content."""


@dataclass(slots=True)
class ReassemblyBuffer:
    """Parts of a stream that wait for the bytes before them: ascending by stream offset, never overlapping.

    A piece may have a *cut* after it: bytes beyond the snap length.  They belong to the piece.
    """

    starts: list[int] = field(default_factory=list)
    """Stream offsets of the pieces."""
    parts: list[bytes] = field(default_factory=list)
    """The bytes of the pieces, parallel to ``starts``."""
    cut: dict[int, int] = field(default_factory=dict)
    """Start of a piece -> number of bytes cut off after it."""
    size: int = 0
    """Bytes in all pieces, without cut bytes."""

    def __len__(self) -> int:
        return len(self.starts)

    def end(self) -> int:
        """Stream offset after the last piece; the buffer must not be empty."""
        return self._end_of(len(self.starts) - 1)

    def holds(self, start: int, payload: bytes) -> bool:
        """Whether exactly these bytes are buffered, in one piece."""
        index = bisect_right(self.starts, start) - 1
        if index < 0:
            return False
        at = start - self.starts[index]
        return self.parts[index][at : at + len(payload)] == payload

    def covers(self, start: int, end: int) -> bool:
        """Whether the buffer has all bytes between two stream offsets."""
        for index, at in enumerate(self.starts):
            if at <= start < end:
                start = max(start, self._end_of(index))
        return start >= end

    def shift(self, count: int) -> None:
        self.starts = [start - count for start in self.starts]
        self.cut = {start - count: missing for start, missing in self.cut.items()}

    def insert(self, start: int, payload: bytes, missing: int) -> InsertResult:
        """Add the new bytes of ``payload``, and the cut of ``missing`` bytes after it; bytes in the buffer are kept.

        Takes time linear in the length of the payload, plus moving the lists.
        """
        starts = self.starts
        end = start + len(payload) + missing
        cursor = start
        repeated = differences = 0
        first_difference = -1
        first = bisect_right(starts, start) - 1
        if first < 0 or self._end_of(first) <= start:
            first += 1
        last = first
        new_starts: list[int] = []
        new_parts: list[bytes] = []
        while cursor < end:
            if last < len(starts) and starts[last] <= cursor:
                at = starts[last]
                stop = min(end, self._end_of(last))
                place, count = difference(
                    payload[cursor - start : stop - start], self.parts[last][cursor - at : stop - at]
                )
                if count:
                    first_difference = first_difference if differences else cursor + place
                    differences += count
                repeated += stop - cursor
                new_starts.append(at)
                new_parts.append(self.parts[last])
                last += 1
            else:
                stop = min(end, starts[last]) if last < len(starts) else end
                part = payload[cursor - start : stop - start]
                if len(part) < stop - cursor:
                    self.cut[cursor] = stop - cursor - len(part)
                self.size += len(part)
                new_starts.append(cursor)
                new_parts.append(part)
            cursor = stop
        new = len(new_starts) > last - first
        if new:
            starts[first:last] = new_starts
            self.parts[first:last] = new_parts
        return InsertResult(new, repeated, first_difference, differences)

    def take(self, position: int) -> tuple[bytes, int]:
        """Remove the bytes from ``position`` to the next hole or cut; returns them and the length of the cut."""
        count = missing = 0
        for start, part in zip(self.starts, self.parts, strict=True):
            if start != position:
                break
            count += 1
            position += len(part)
            if self.cut:
                missing = self.cut.pop(start, 0)
        if not count:
            return b"", 0
        data = self.parts[0] if count == 1 else b"".join(self.parts[:count])
        del self.starts[:count]
        del self.parts[:count]
        self.size -= len(data)
        return data, missing

    def clear(self) -> None:
        """Drop all pieces and cuts."""
        self.starts.clear()
        self.parts.clear()
        self.cut.clear()
        self.size = 0

    def _end_of(self, index: int) -> int:
        start = self.starts[index]
        return start + len(self.parts[index]) + (self.cut.get(start, 0) if self.cut else 0)


class StreamState(StrEnum):
    """Knowledge about one direction."""

    UNSEEN = "unseen"
    """Neither a segment of this direction nor an acknowledgment of it was captured."""
    ASSUMED = "assumed"
    """An acknowledgment or an empty segment determined the next byte; until data arrives the start may still move."""
    HELD = "held"
    """The first captured segment had data; it waits for one more segment, in case an earlier one is late."""
    OPEN = "open"
    ENDED = "fin"
    RESET = "reset"


UNSEEN: Final = StreamState.UNSEEN
ASSUMED: Final = StreamState.ASSUMED
HELD: Final = StreamState.HELD
OPEN: Final = StreamState.OPEN
ENDED: Final = StreamState.ENDED
RESET: Final = StreamState.RESET

NEVER: Final = 1 << 119
"""A deadline that never comes: after any capture time in nanoseconds."""

HISTORY_PAYLOADS: Final = 16
"""Maximum number of delivered payloads remembered to compare retransmissions."""
HISTORY_BYTES: Final = 64 * 1024
"""Maximum number of bytes remembered of a single delivery."""
BEGINNING_BYTES: Final = 512
"""Number of bytes remembered of the beginning of a stream, to distinguish another stream from a copy."""
PLAUSIBLE_WINDOW: Final = 1 << 30
"""The largest window of RFC 7323: data and acknowledgments further away belong to another stream."""
LOST_WINDOW: Final = 1 << 26
"""Maximum loss of the capture in one place; a FIN further away belongs to another connection."""
RESET_WINDOW: Final = 65_535
"""Maximum distance of a reset ahead of the expected sequence number."""
START_WINDOW: Final = 1 << 20
"""Maximum number of bytes that an assumed start of a stream moves back."""
MAX_GIVEN_UP: Final = 64
"""Maximum number of gaps remembered per stream, the latest ones: later bytes for them are not copies."""
STRAY_RUN: Final = 3
"""Number of contiguous segments outside the window that prove that the stream continues there."""


class _StreamReport(Protocol):
    """Receives the events of one direction, as `flow.FlowReport` does; lengths and offsets are in bytes."""

    place: tuple[int, int, str]
    acknowledged: int

    def data(self, data: bytes, offset: int) -> None: ...
    def gap(self, length: int, offset: int, reason: str) -> None: ...
    def overlap(self, length: int, offset: int) -> None: ...
    def closed(self, how: str, place: tuple[int, int, str] | None = None) -> None: ...
    def discarded(self, length: int, reason: str) -> None: ...


@dataclass(slots=True)
class HalfStream:
    """One direction of a flow.  Plain data; ``-1`` means "not known"."""

    state: StreamState = UNSEEN
    sequence: int = -1
    """Sequence number of the byte at ``offset``."""
    offset: int = 0
    """Stream offset of the next byte to deliver; all bytes before it were delivered or reported as gaps."""
    acknowledged: int = 0
    """Number of bytes that the peer has acknowledged, the FIN included; if more than ``offset``, it has more bytes."""
    options: bytes = b""
    """TCP options of the last segment with new data, and its capture time (0 without one)."""
    options_ns: int = 0
    first_stamp: int = -1
    """First time stamp (`tcp_clock.time_stamp`), if possible of the SYN, and its capture time."""
    first_stamp_ns: int = 0
    sent: int = 0
    """Number of bytes that this side has evidently sent; only relevant if more than ``offset``."""
    initial_sequence: int = -1
    """Sequence number of the SYN."""
    fin_offset: int = -1
    """Stream offset of the FIN: the length of the stream."""
    fin_place: tuple[int, int, str] = (0, 0, "")
    """Frame, time and capture of the FIN."""
    clear: bool = False
    """In order, and the buffer is empty: the next segment may take the fast path."""
    deadline_ns: int = NEVER  # capture time of the next decision about the first hole
    buffer: ReassemblyBuffer = field(default_factory=ReassemblyBuffer)
    history: list[bytes] = field(default_factory=list)
    """The latest delivered payloads, up to ``offset`` and without gaps."""
    beginning: bytes = b""
    """The first bytes of the stream, once the history no longer contains them."""
    began_empty: bool = False
    """The first captured segment was empty: if it was a keep-alive probe, the start is one too low."""
    held_place: tuple[int, int, str] = (0, 0, "")
    """Frame, time and capture of a held start."""
    given_up: list[tuple[int, int]] = field(default_factory=list)
    """The latest gaps, as stream offsets of start and end, without the bytes that arrived later."""
    checksums: int = UNJUDGED
    """``RIGHT`` after a right checksum; ``WRONG`` if all were wrong and the receiver accepted some."""
    stray_sequence: int = -1
    stray_count: int = 0

    data_segments: int = 0
    empty_segments: int = 0
    copied_segments: int = 0
    """Segments that were captured again by another tap or with other tags (`tap_views`), not retransmissions."""
    lost_bytes: int = 0
    """Bytes reported as gaps."""
    gaps: int = 0
    retransmitted_segments: int = 0
    """Segments with repeated bytes."""
    retransmitted_bytes: int = 0
    duplicate_segments: int = 0
    """Segments with data, but no new bytes."""
    out_of_order_segments: int = 0
    overlaps: int = 0
    """Segments that repeated bytes with other content, or were accepted with a wrong checksum."""
    damaged_segments: int = 0
    """Segments with a wrong checksum that the receiver did not accept."""
    keep_alive_probes: int = 0
    zero_windows: int = 0
    """Segments of this side that advertised a window of 0."""

    @property
    def segments(self) -> int:
        """Number of captured segments of this direction."""
        return self.data_segments + self.empty_segments

    @property
    def delivered_bytes(self) -> int:
        """Bytes delivered as data, without the gaps."""
        return self.offset - self.lost_bytes

    @property
    def ended(self) -> bool:
        """Whether the direction ended, by FIN or reset."""
        return self.state is ENDED or self.state is RESET

    @property
    def has_events(self) -> bool:
        """Whether an event of this direction was reported."""
        return self.offset > 0 or self.overlaps > 0 or self.ended

    def locate(self, sequence: int) -> int:
        """Stream offset of a sequence number within 2**31 of the expected one."""
        return self.offset + distance(self.sequence, sequence)

    def hole_end(self) -> int:
        """Stream offset at the end of the first hole, or -1 if this side has shown no hole."""
        if self.ended:
            return -1
        if self.buffer:
            return self.buffer.starts[0]
        if self.fin_offset >= 0:
            return self.fin_offset
        # A single byte without data may be the sequence number of a FIN that was not captured.
        return self.sent if self.sent > self.offset + 1 else -1

    def lacks(self, start: int, end: int) -> int:
        """Number of bytes between two stream offsets that were reported as gaps and have not arrived since."""
        return sum(max(0, min(end, last) - max(start, first)) for first, last in self.given_up)

    def take_late(self, start: int, payload: bytes, report: _StreamReport) -> int:
        """Report bytes that fill gaps given up before, since a stream cannot go back; returns their number."""
        end = start + len(payload)
        late = self.lacks(start, end)
        if late:
            report.discarded(late, "late")
            left = []
            for first, last in self.given_up:
                outside = [(first, min(last, start)), (max(first, end), last)]
                left += outside if start < last and first < end else [(first, last)]
            self.given_up = [(first, last) for first, last in left if first < last][-MAX_GIVEN_UP:]
        return late

    def synchronize(self, sequence: int, report: _StreamReport) -> None:
        """Start the stream at a SYN with this sequence number, or confirm its start."""
        self.initial_sequence = sequence
        if self.ended:
            return
        first = advance(sequence, 1)
        if self.state is UNSEEN:
            self.sequence = first
        elif self.offset == 0:
            self._rebase(self.locate(first))
            if not self.buffer:
                self.acknowledged = self.sent = 0
        # Otherwise data was delivered before the SYN came, and the stream keeps its start.
        self.state = OPEN
        while self.buffer and (start := self.buffer.starts[0]) < 0:  # before the first byte
            self._insert(start, *self.buffer.take(start), report)
        self._drain(report)

    def acknowledge(self, acknowledgment: int, report: _StreamReport) -> None:
        """Record an acknowledgment by the peer; it releases a held start."""
        if self.state is UNSEEN:
            self.sequence = acknowledgment
            self.state = ASSUMED
            return
        position = self.locate(acknowledgment)
        # Bytes further ahead cannot have been sent.
        if self.acknowledged < position <= max(self.offset, self.sent, self.acknowledged) + START_WINDOW:
            self.acknowledged = position
        # An acknowledgment of less than the held start shows that bytes before it are still under way.
        if self.state is HELD and position >= 0:
            self.release(report)

    def receive_empty(self, sequence: int, young: bool, report: _StreamReport) -> None:
        """Take a segment without data, SYN, FIN and RST: its sequence number shows how much its sender has sent."""
        self.empty_segments += 1
        if self.state is UNSEEN:
            self.sequence = sequence
            self.state = ASSUMED
            self.began_empty = True
            return
        if self.state is HELD:
            self.release(report)
        position = self.locate(sequence)
        if position == self.offset - 1:
            self.keep_alive_probes += 1
        elif self.offset < position <= self.offset + PLAUSIBLE_WINDOW and self.fin_offset < 0:
            if (young or (position == 1 and self.began_empty)) and self._movable():
                self._rebase(position)
            else:
                self.sent = max(self.sent, position)

    def receive(self, sequence: int, payload: bytes, missing: int, young: bool, report: _StreamReport) -> None:
        """Take the data of one segment; ``missing`` bytes after it were cut off by the snap length.

        ``young``: the flow was first seen so recently that bytes may have been under way at that time.
        """
        self.data_segments += 1
        if self.state is UNSEEN:
            self.sequence = sequence
            if payload == b"\0" and not missing:
                # A keep-alive probe on a silent connection (RFC 9293 section 3.8.4), not the start of a stream.
                self.keep_alive_probes += 1
                self.sequence = advance(sequence, 1)
                self.state = ASSUMED
            else:
                self._hold(payload, missing, report)
            return
        if self.state is HELD:
            start = self.locate(sequence)
            if is_earlier := -START_WINDOW <= start < 0:
                self._insert(start, payload, missing, report)
            self.release(report)
            if is_earlier:
                return
        start = self.locate(sequence)
        length = len(payload) + missing
        # The byte of a probe has any value; if data overtook the probe, the usual zero identifies it.
        if length <= 1 and (start == self.offset - 1 or (start < self.offset and payload == b"\0")):
            self.keep_alive_probes += 1
            return
        if self._movable():
            if start < 0 or start > PLAUSIBLE_WINDOW:
                self._rebase(start)
            elif start == 1 and self.began_empty:
                # The segment that the capture began with was a keep-alive probe.
                self.keep_alive_probes += 1
                self._rebase(start)
            elif start > 0 and young:
                # Bytes under way when the capture began are not lost.
                self._rebase(start)
                self._hold(payload, missing, report)
                return
            start = self.locate(sequence)
            self.state = OPEN
        if not -PLAUSIBLE_WINDOW <= start - self.offset <= PLAUSIBLE_WINDOW:
            if not self._resume(sequence, length, report):
                return
            start = self.offset
        if 0 <= self.fin_offset < start + length:
            report.discarded(start + length - max(start, self.fin_offset), "after_fin")
            length = self.fin_offset - start
            if length <= 0:
                return
            payload = payload[:length]
            missing = length - len(payload)
        self.sent = max(self.sent, start + length)
        if start == self.offset and not self.buffer:
            self._deliver(payload, report)
            if missing:
                self._skip(missing, "cut", report)
        else:
            if start > self.offset:
                self.out_of_order_segments += 1
            self._insert(start, payload, missing, report)
        self._drain(report)

    def finish(self, sequence: int, report: _StreamReport) -> None:
        """Take a FIN with this sequence number: the stream ends when all bytes before it are delivered."""
        if self.state is UNSEEN:
            self.sequence = sequence
            self.state = ASSUMED
        elif self.state is HELD:
            self.release(report)
        position = self.locate(sequence)
        known = self.buffer.end() if self.buffer else self.offset
        if not self.ended and self.fin_offset < 0 and known <= position <= self.offset + LOST_WINDOW:
            self.fin_offset, self.fin_place = position, report.place
            self._drain(report)

    def reset(self, report: _StreamReport) -> None:
        """End the direction by a reset of either side; the buffer was flushed before."""
        if not self.ended:
            self.state = RESET
            report.closed("reset")

    def plausible_reset(self, sequence: int) -> bool:
        """Whether a reset of this side with that sequence number would be accepted (RFC 9293 section 3.5.2)."""
        highest = max(self.offset, self.sent, self.acknowledged)
        return min(self.acknowledged, self.offset) <= self.locate(sequence) <= highest + RESET_WINDOW

    def release(self, report: _StreamReport) -> None:
        """Release a held start: the stream begins at the first buffered byte."""
        now = report.place
        if len(self.buffer.starts) == 1:
            report.place = self.held_place  # the start did not move: these bytes were complete then
        self._rebase(self.buffer.starts[0])
        self.state = OPEN
        self._drain(report)
        report.place = now

    def give_up(self, report: _StreamReport) -> None:
        """Report the first hole as a gap and deliver what follows it."""
        end = self.hole_end()
        self._skip(end - self.offset, "not_captured" if self.acknowledged >= end else "unproven", report)
        self._drain(report)

    def empty(self, report: _StreamReport) -> None:
        """Give up all holes, so that the buffer is empty."""
        if self.state is HELD:
            self.release(report)
        while self.hole_end() >= 0:
            self.give_up(report)

    def flush(self, report: _StreamReport) -> None:
        """Deliver or give up all bytes, even bytes that only the peer's acknowledgments show: the stream is over."""
        self.empty(report)
        beyond = self.acknowledged - self.offset
        if beyond > 1 and not self.ended:
            self._skip(beyond, "not_captured", report)

    def _movable(self) -> bool:
        """Whether the start of the stream is only assumed."""
        return self.state is ASSUMED and self.offset == 0 and self.sent == 0 and self.fin_offset < 0

    def _rebase(self, shift: int) -> None:
        """Make stream offset ``shift`` the new 0; only before the first delivery."""
        self.sequence = advance(self.sequence, shift)
        if self.acknowledged or self.state is not HELD:  # else nobody has acknowledged the held start
            self.acknowledged = max(0, self.acknowledged - shift)
        self.sent = max(0, self.sent - shift)
        self.fin_offset = max(-1, self.fin_offset - shift) if self.fin_offset >= 0 else -1
        self.buffer.shift(shift)

    def _hold(self, payload: bytes, missing: int, report: _StreamReport) -> None:
        self.state = HELD
        self.held_place = report.place
        self.sent = len(payload) + missing
        self.buffer.insert(0, payload, missing)

    def _resume(self, sequence: int, length: int, report: _StreamReport) -> bool:
        """Whether data outside the window belongs to the stream; if so, it continues there, after a gap."""
        self.stray_count = self.stray_count + 1 if sequence == self.stray_sequence else 1
        self.stray_sequence = advance(sequence, length)
        if self.stray_count < STRAY_RUN or self.ended or self.fin_offset >= 0:
            report.discarded(length, "out_of_window")
            return False
        while self.buffer:
            self.give_up(report)
        self._skip((sequence - self.sequence) & MASK, "unproven", report)
        self.acknowledged = self.sent = self.offset
        return True

    def _insert(self, start: int, payload: bytes, missing: int, report: _StreamReport) -> None:
        """Buffer the new bytes of a segment, and compare the others with the known bytes."""
        repeated = differences = late = 0
        first_difference = -1
        if self.state is not HELD and start < self.offset:
            if start < 0:
                before = min(-start, len(payload) + missing)
                report.discarded(before, "before_start")
                missing -= max(0, before - len(payload))
                payload = payload[before:]
                start += before
            repeated = min(self.offset - start, len(payload) + missing)
            first_difference, differences = compare(self.history, self.offset, start, payload[:repeated])
            late = self.take_late(start, payload[:repeated], report) if self.given_up else 0
            missing -= max(0, repeated - len(payload))
            payload = payload[repeated:]
            start += repeated
        known = self.buffer.insert(start, payload, missing)
        repeated += known.repeated - late
        if repeated:
            self.retransmitted_segments += 1
            self.retransmitted_bytes += repeated
        if not known.new and not late:
            self.duplicate_segments += 1
        if differences or known.differences:
            self.overlaps += 1
            place = first_difference if differences else known.first_difference
            report.overlap(differences + known.differences, place)

    def _deliver(self, data: bytes, report: _StreamReport) -> None:
        if not data:
            return
        report.data(data, self.offset)
        self.offset += len(data)
        self.sequence = advance(self.sequence, len(data))
        self.deadline_ns = NEVER
        if len(data) > HISTORY_BYTES:
            self.keep_beginning()
            if len(data) == self.offset:
                self.beginning = data[:BEGINNING_BYTES]
            self.history = [data[-HISTORY_BYTES:]]
        else:
            self.history.append(data)
            if len(self.history) > HISTORY_PAYLOADS:
                self.shorten()

    def _skip(self, length: int, reason: str, report: _StreamReport) -> None:
        self.keep_beginning()
        report.gap(length, self.offset, reason)
        self.given_up.append((self.offset, self.offset + length))
        del self.given_up[:-MAX_GIVEN_UP]
        self.gaps += 1
        self.lost_bytes += length
        self.offset += length
        self.sequence = advance(self.sequence, length)
        self.deadline_ns = NEVER
        self.history.clear()

    def shorten(self) -> None:
        """Forget the older half of the history, but keep the beginning of the stream."""
        self.keep_beginning()
        del self.history[: HISTORY_PAYLOADS // 2]

    def keep_beginning(self) -> None:
        """Remember the first bytes separately, if the history still has them."""
        if not self.beginning and self.offset and sum(map(len, self.history)) == self.offset:
            self.beginning = b"".join(self.history)[:BEGINNING_BYTES]

    def _drain(self, report: _StreamReport) -> None:
        """Deliver the buffered pieces that are in order, and end the stream at its FIN."""
        while self.buffer and self.buffer.starts[0] == self.offset:
            data, missing = self.buffer.take(self.offset)
            self._deliver(data, report)
            if missing:
                self._skip(missing, "cut", report)
        if self.offset == self.fin_offset and not self.ended:
            self.state = ENDED
            report.closed("fin", self.fin_place)
