"""Pauses of a sender that TCP does not explain: the end of a packet held back, and segments that wait for an ACK.

A sender pauses inside a packet if its next new bytes come a second or more after the bytes before them, although the
other side had acknowledged all of these in the first half of that time and announced a window for a full segment.
Data that waits for an acknowledgment, or for a window, contradicts that.  A segment that was lost before it came to
the place of the capture looks alike: only a pause that ends with the next packet of the sender in the same segment
shows that the sender had the bytes and did not send them.

A side holds a small segment back if it sends it within 2 ms of a late acknowledgment of its only small segment before
it, as Nagle's algorithm does (`segments.Half`, `causes.timing.held_back`).  One such segment may come by chance; ten
of one side do not.  A message that was published just before it left was not held back.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqttscope.explain.causes.timing import LEAST_HELD
from mqttscope.explain.segments import DELAYED_NS, LATEST_NS, PROMPT_NS, SMALL_BYTES
from mqttscope.net.frame import Decrypted, SegmentItem
from mqttscope.net.segment import (
    ACK,
    FIN,
    MASK,
    RST,
    SYN,
    Segment,
    advance,
    distance,
    endpoints,
    plain_key,
    reverse_key,
)

PAUSE_NS = 1_000_000_000
"""Minimum length of a pause inside a packet."""
MAX_DIRECTIONS = 40_000
"""Maximum number of directions of flows that are followed; the one that was silent for longest is forgotten first."""
MAX_PAUSES = 10_000
"""Maximum number of pauses that are remembered, and of segments that were held back, the latest ones."""
Side = tuple[str, str]
"""Endpoints of the sender and the receiver."""


@dataclass(slots=True)
class SentSide:
    """State of one direction of a flow."""

    end: int
    """Sequence number after the last byte."""
    initial: int | None = None
    """Sequence number of its first byte, if the capture has its SYN."""
    acknowledged: int | None = None
    """The highest number that the other side acknowledged."""
    acknowledged_ns: int = 0
    window: int = 0
    """Window in the last segment of the other side, without its scale."""
    sent_ns: int = 0
    """Time of the last new bytes."""
    sent_frame: int = 0
    longest: int = 0
    """Bytes of the largest segment."""
    small_ns: int = 0
    """Time of the only segment without an acknowledgment, if it is small; else 0."""
    waited_ns: int = 0
    """Time until its acknowledgment, if that is late and carries no data; else 0."""


@dataclass(slots=True, frozen=True)
class Pause:
    """A pause of a sender with everything acknowledged."""

    offset: int
    """Position in the TCP stream of the first byte after it."""
    from_ns: int
    from_frame: int
    until_ns: int

    @property
    def length_ns(self) -> int:
        return self.until_ns - self.from_ns


class PauseWatch:
    """Looks at the segments on their way to the dissector."""

    def __init__(self) -> None:
        self._sides: OrderedDict[bytes, SentSide] = OrderedDict()
        """Directions by their keys."""
        self._pauses: deque[tuple[Side, Pause]] = deque()
        self.forgotten = 0
        """Directions, pauses and segments that had to make room."""
        self._held: OrderedDict[tuple[str, int], int] = OrderedDict()
        """For how long segments were held back, by capture and frame."""
        self._counts: Counter[Side] = Counter()
        """How many segments each side held back."""

    def segments(self, items: Iterable[SegmentItem | Decrypted]) -> Iterator[SegmentItem | Decrypted]:
        """Pass segments on, each after it was looked at."""
        for item in items:
            if type(item) is Segment:
                self.feed(item)
            yield item

    def feed(self, segment: Segment) -> None:
        """Take one segment."""
        key = plain_key(segment.key)
        other = self._sides.get(reverse_key(key))
        length = len(segment.payload) + segment.missing
        if other is not None and segment.flags & ACK:
            _acknowledge(other, segment, length)
        side = self._sides.get(key)
        end = advance(segment.sequence, length + bool(segment.flags & (SYN | FIN)))
        if side is None or segment.flags & (SYN | RST):
            if side is None and len(self._sides) >= MAX_DIRECTIONS:
                self._sides.popitem(last=False)
                self.forgotten += 1
            self._sides[key] = SentSide(end, end if segment.flags & SYN and not length else None)
            return
        self._sides.move_to_end(key)
        if not length or distance(side.end, segment.sequence) != 0:
            if distance(side.end, end) > 0:
                side.end, side.sent_ns, side.small_ns, side.waited_ns = end, 0, 0, 0  # bytes are missing
            return
        self._send(key, side, segment, length, end)

    def _send(self, key: bytes, side: SentSide, segment: Segment, length: int, end: int) -> None:
        """Take new bytes in order."""
        is_free = side.acknowledged == side.end
        pause_ns = segment.timestamp_ns - side.sent_ns
        is_idle = side.sent_ns and is_free and pause_ns >= PAUSE_NS and side.window >= side.longest
        if is_idle and side.initial is not None and side.acknowledged_ns - side.sent_ns <= pause_ns // 2:
            offset = (segment.sequence - side.initial) & MASK
            pause = Pause(offset, side.sent_ns, side.sent_frame, segment.timestamp_ns)
            if len(self._pauses) >= MAX_PAUSES:
                self._pauses.popleft()
                self.forgotten += 1
            self._pauses.append((endpoints(key), pause))
        is_small = length < SMALL_BYTES
        if is_small and side.waited_ns and segment.timestamp_ns - side.acknowledged_ns <= PROMPT_NS:
            if len(self._held) >= MAX_PAUSES:
                self._held.popitem(last=False)
                self.forgotten += 1
            self._held[segment.capture, segment.frame] = side.waited_ns
            self._counts[endpoints(key)] += 1
        side.small_ns = segment.timestamp_ns if is_small and is_free else 0
        side.end, side.waited_ns, side.sent_ns, side.sent_frame = end, 0, segment.timestamp_ns, segment.frame
        side.longest = max(side.longest, length)

    def longest(self, side: Side, start: int, end: int, *, from_ns: int, until_ns: int) -> Pause | None:
        """The longest pause of a side in a time, between two positions in its TCP stream."""
        inside = [
            pause
            for known, pause in self._pauses
            if known == side and start < pause.offset < end and from_ns <= pause.from_ns and pause.until_ns <= until_ns
        ]
        return max(inside, key=lambda pause: pause.length_ns, default=None)

    def held_ns(self, side: Side, capture: str, frame: int) -> int:
        """For how long a side that does it again and again held a segment back; 0 if it did not."""
        return self._held.get((capture, frame), 0) if self._counts[side] >= LEAST_HELD else 0


def _acknowledge(side: SentSide, segment: Segment, length: int) -> None:
    """Take the acknowledgment in a segment of the other side."""
    side.window = segment.window
    if side.acknowledged is not None and distance(side.acknowledged, segment.acknowledgment) <= 0:
        return
    side.acknowledged, side.acknowledged_ns = segment.acknowledgment, segment.timestamp_ns
    waited_ns = segment.timestamp_ns - side.small_ns if side.small_ns and not length else 0
    is_all = segment.acknowledgment == side.end
    side.waited_ns = waited_ns if is_all and DELAYED_NS <= waited_ns <= LATEST_NS else 0
