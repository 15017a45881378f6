"""Large captures in byte ranges that are read apart from each other and together give exactly what the whole gives.

A capture has no marks at which a reader could begin in the middle; a payload may even hold a whole capture.  So a range
is used only where it is proven.  `split` says where ranges should begin.  Then either one walk over all record headers
makes them (`index`), or each range is measured for itself, anywhere (`measure`): its two ends are what
`Boundaries.sync` guesses, the same function for both ranges that share an end, and the walk from one end must land
exactly on the other.  `settle` puts the measures together.  The first range begins where the records begin; if it
lands, its end is the begin of a record, and that is where the next one began, and so on.  From the first range on that
does not land, the rest of the file is one range: nothing is ever read from a place that is not proven.

Measuring counts the frames as well, so that every range knows the number of its first frame, as if the whole capture
were read.  Reading checks it again, since files change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO, cast

from mqttscope.capture.boundaries import Boundaries
from mqttscope.capture.reading import read_capture
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame

SPLIT_BYTES = 64 << 20
"""How long ranges are by default."""
REFUSED = "the frames at its two ends do not belong together"


class RangeRefused(Exception):  # noqa: N818 - it is no fault of anybody's
    """A range did not hold what it held when it was measured: the file has changed."""


@dataclass(slots=True, frozen=True)
class Split:
    """A part of a file by bytes alone; what it holds begins at the first record in it."""

    begin: int
    end: int


@dataclass(slots=True, frozen=True)
class Extent:
    """What was measured of a split."""

    start: int
    """Offset of its first record."""
    stop: int
    """Offset behind its last one."""
    frames: int
    fault: str | None = None
    """Why it is not proven."""


@dataclass(slots=True, frozen=True)
class Range:
    """A proven part of a capture."""

    start: int = 0
    """Offset of its first record; 0 for that of the first range, which holds the head of the file too."""
    stop: int | None = None
    """Offset behind its last record; ``None``: to the end of the file, whatever is there."""
    first: int = 1
    """Number of its first frame in the capture."""
    frames: int | None = None
    """How many frames it holds; ``None``: not known before it is read."""


WHOLE = Range()
"""A capture in one piece."""


@dataclass(slots=True, frozen=True)
class Settled:
    """The ranges of a capture."""

    ranges: tuple[Range, ...]
    fault: str | None = None
    """Why the rest of the file stays in one piece, where it could have been cut."""
    offset: int = 0
    """Offset from which on it is in one piece."""


def split(found: Boundaries | None, size: int, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """How a capture of ``size`` bytes should be cut; one split when that is not worth while or not possible."""
    if found is None or size <= split_bytes:
        return [Split(0, size)]
    count = -(-size // split_bytes)
    edges = [size * number // count for number in range(count + 1)]
    # The head must not be cut.
    return [
        Split(begin, end) for begin, end in pairwise([0, *(edge for edge in edges[1:-1] if edge > found.first), size])
    ]


def index(file: BinaryIO, found: Boundaries, splits: Sequence[Split]) -> Settled:
    """The ranges of a capture by one walk over its record headers: nothing is guessed, nothing is refused.

    ``file`` must be seekable.  Takes about a quarter of the time that its segments take.
    """
    size = splits[-1].end
    extents = []
    position = found.first
    for one in splits:
        walked = found.walk(file, position, max(one.end, position), size)
        extents.append(Extent(position, walked.position, walked.frames, walked.fault))
        if walked.fault is not None:
            break
        position = walked.position
    return settle(found.first, extents, more=len(extents) < len(splits))


def measure(file: BinaryIO, found: Boundaries, one: Split, size: int) -> Extent:
    """Find the ends of a split and walk from one to the other.  For `settle`, which knows whether it is proven."""
    start = found.first if one.begin <= found.first else found.sync(file, one.begin, size)
    stop = size if one.end >= size else found.sync(file, one.end, size)
    if start is None or stop is None:
        return Extent(start or one.begin, stop or one.end, 0, REFUSED)
    if start >= stop:
        # A record longer than the split: the next one begins where this one does.
        return Extent(start, start, 0, None if start == stop else REFUSED)
    walked = found.walk(file, start, stop, size)
    if walked.fault is not None:
        return Extent(start, walked.position, walked.frames, walked.fault)
    return Extent(start, stop, walked.frames, None if walked.position == stop else REFUSED)


def settle(first: int, extents: Sequence[Extent], *, more: bool = False) -> Settled:
    """The ranges that follow from the measures of all splits of a capture, in their order.

    ``first``: offset of the first record.  ``more``: splits behind a faulty one were not measured at all.
    """
    ranges: list[Range] = []
    number, position, fault = 1, first, None
    for place, extent in enumerate(extents):
        last = place == len(extents) - 1
        fault = REFUSED if extent.start != position else extent.fault
        if fault is not None:
            more = more or not last
            break
        if extent.frames:
            ranges.append(Range(extent.start, extent.stop, number, extent.frames))
        number += extent.frames
        position = extent.stop
    if fault is not None:
        # From the last proven place on.  One range back where no frame is known to have passed since: the block that
        # cannot be passed may depend on the frame before it.
        if ranges and (extent.start != position or not extent.frames):
            start, number = ranges[-1].start, ranges[-1].first
            ranges.pop()
        else:
            start = position
        ranges.append(Range(start, None, number))
    elif ranges:
        ranges[-1] = replace(ranges[-1], stop=None, frames=None)
    if not ranges:
        return Settled((WHOLE,))
    rest = ranges[-1].start
    ranges[0] = replace(ranges[0], start=0)
    return Settled(tuple(ranges), fault if more else None, rest if more else 0)


def read_range(file: BinaryIO, capture: str, part: Range = WHOLE, head: bytes = b"") -> Iterator[Frame | CaptureNotice]:
    """Frames and notices of one range, numbered as in the whole capture.

    ``file``: open at its beginning; seekable unless the range is `WHOLE`.  ``capture``: name for the frames.  ``head``:
    what stands before the records (`Boundaries.head`).  A `CaptureError` is an item, as in `read_capture`; raises
    `RangeRefused` behind the last frame when the file is not what it was.
    """
    if part.start == 0 and part.stop is None:
        yield from read_capture(file, capture)
        return
    window = _Window(file, head if part.start else b"", part.start, part.stop)
    shift = part.start - len(head) if part.start else 0
    before = part.first - 1
    frames, whole = 0, True
    for item in read_capture(cast(BinaryIO, window), capture):
        if type(item) is Frame:
            frames += 1
            item.number += before
        elif type(item) is CaptureError:
            item.frames += before
            if item.offset is not None:
                item.offset += shift
                whole = whole and (part.stop is None or item.offset >= part.stop)
        yield item
    if part.stop is not None and (frames != part.frames or not whole):
        raise RangeRefused(
            f"has changed: the {part.frames} frames of bytes {part.start} to {part.stop} are {frames} now"
        )


class _Window:
    """The bytes of a range behind the head of its file, as a file."""

    def __init__(self, file: BinaryIO, head: bytes, start: int, stop: int | None) -> None:
        file.seek(start)
        self._file = file
        self._head = head
        self._left = None if stop is None else stop - start

    def read(self, size: int) -> bytes:
        """Some bytes, at most ``size``; none at the end."""
        if self._head:
            data, self._head = self._head, b""
            return data
        if self._left is None:
            return self._file.read(size)
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data
