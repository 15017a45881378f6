"""Pieces of a stream that wait for what comes before them, and whether bytes that come again are the same."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


def difference(one: bytes, other: bytes) -> tuple[int, int]:
    """Place of the first byte that differs and how many do, ``(-1, 0)`` for none; only what both have is compared."""
    if one == other:
        return -1, 0
    length = min(len(one), len(other))
    mixed = int.from_bytes(one[:length], "big") ^ int.from_bytes(other[:length], "big")
    if not mixed:
        return -1, 0
    marks = mixed.to_bytes(length, "big")
    return length - len(marks.lstrip(b"\0")), length - marks.count(0)


def compare(history: list[bytes], end: int, start: int, payload: bytes) -> tuple[int, int]:
    """Compare ``payload`` at stream offset ``start`` with deliveries without gaps, of which the last ends at ``end``.

    Returns the stream offset of the first byte that differs and how many do; what is not remembered does not differ.
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
class Known:
    """What of a segment was known already."""

    new: bool
    """Whether it brought anything that was not."""
    repeated: int
    """How many bytes were known."""
    first_difference: int
    """Stream offset of the first known byte that came with other content, or -1."""
    differences: int
    """How many did."""


@dataclass(slots=True)
class Pieces:
    """Parts of a stream that wait for what comes before them: ascending by stream offset, never overlapping.

    A piece may have a *cut* behind it: bytes that the snap length kept out of the capture.  They belong to the piece.
    """

    starts: list[int] = field(default_factory=list)
    """Stream offsets of the pieces."""
    parts: list[bytes] = field(default_factory=list)
    """The bytes of the pieces, parallel to ``starts``."""
    cut: dict[int, int] = field(default_factory=dict)
    """Start of a piece -> how many bytes are cut off behind it."""
    size: int = 0
    """Bytes in all pieces, without the cuts."""

    def __len__(self) -> int:
        return len(self.starts)

    def end(self) -> int:
        """Stream offset behind the last piece; there must be one."""
        return self._end_of(len(self.starts) - 1)

    def holds(self, start: int, payload: bytes) -> bool:
        """Whether these very bytes wait here, in one piece."""
        index = bisect_right(self.starts, start) - 1
        if index < 0:
            return False
        at = start - self.starts[index]
        return self.parts[index][at : at + len(payload)] == payload

    def shift(self, count: int) -> None:
        """Subtract ``count`` from all stream offsets."""
        self.starts = [start - count for start in self.starts]
        self.cut = {start - count: missing for start, missing in self.cut.items()}

    def insert(self, start: int, payload: bytes, missing: int) -> Known:
        """Add what is new of ``payload`` and the cut of ``missing`` bytes behind it; what is there already stands.

        Takes time linear in the length of the payload, plus the moving of the lists.
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
        return Known(new, repeated, first_difference, differences)

    def take(self, position: int) -> tuple[bytes, int]:
        """Remove the bytes that start at ``position``, up to the next hole or cut; return them and the cut's length."""
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
        """Forget all pieces."""
        self.starts.clear()
        self.parts.clear()
        self.cut.clear()
        self.size = 0

    def _end_of(self, index: int) -> int:
        start = self.starts[index]
        return start + len(self.parts[index]) + (self.cut.get(start, 0) if self.cut else 0)
