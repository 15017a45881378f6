"""Cuts a large capture into byte ranges that are read independently and together contain all of its frames.

A capture has no marks for a reader to begin in the middle; a payload may even contain a capture.  So a range is used
only if its ends are proven.  `split` proposes the begins of ranges.  Then either one walk over all record headers finds
the ranges (`index`), or each range is measured independently, on any machine (`measure`): `Boundaries.sync` guesses its
two ends, with an equal result for both ranges that share an end, and a walk from one end must arrive exactly at the
other.  `settle` combines the measurements.  The first range begins at the first record; if its walk arrives, its end is
the begin of a record, so the next range begins at a record, and so on.  From the first range with a failed walk on,
the rest of the file is one range: reading never begins at an unproven position.

`Boundaries` finds records.  `Boundaries.walk` steps from record to record and is always right.  `Boundaries.sync`
searches a chain of plausible records that is longer than any record; a payload can contain such a chain, too, so the
guess needs the proof above.

Measuring also counts the frames, to give each range the number of its first frame in the complete capture.  Reading
checks the range again, because files change.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO, cast

from mqttscope.capture.pcap import FILE_HEADER_SIZE, FRAME_LIMIT, LAYOUTS, STANDARD_SNAP_LENGTH
from mqttscope.capture.pcapng import BLOCK_OVERHEAD, PCAPNG_MAGIC, latest_half
from mqttscope.capture.read import FilePart, read_capture, read_exactly
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame

SPLIT_BYTES = 64 << 20
"""Default length of a range in bytes."""
REFUSED = "the frames at its two ends do not belong together"


class RangeRefusedError(MqttscopeError):
    """The content of a range differs from the measured one: the file has changed."""


@dataclass(slots=True, frozen=True)
class Split:
    """A part of a file by byte offsets; its content begins at the first record in it."""

    begin: int
    end: int


@dataclass(slots=True, frozen=True)
class Extent:
    """Measurement of a split."""

    start: int
    """Offset of its first record."""
    stop: int
    """Offset after its last one."""
    frames: int
    fault: str | None = None
    """Reason why the range is not proven."""


@dataclass(slots=True, frozen=True)
class Range:
    """A proven part of a capture."""

    start: int = 0
    """Offset of its first record; 0 for the first range, which includes the head of the file."""
    stop: int | None = None
    """Offset after its last record; ``None``: up to the end of the file, even if more is written."""
    first: int = 1
    """Number of its first frame in the capture."""
    frames: int | None = None
    """Number of its frames; ``None``: unknown until it is read."""


WHOLE = Range()
"""A capture in one piece."""


@dataclass(slots=True, frozen=True)
class RangeList:
    """The ranges of a capture."""

    ranges: tuple[Range, ...]
    fault: str | None = None
    """Reason why the rest of the file is not split further."""
    offset: int = 0
    """Offset where the unsplit rest begins."""


def split(boundaries: Boundaries | None, size: int, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """Proposed splits of a capture of ``size`` bytes; one split if it is small or cannot be split."""
    if boundaries is None or size <= split_bytes:
        return [Split(0, size)]
    count = -(-size // split_bytes)
    edges = [size * number // count for number in range(count + 1)]
    # The head must not be split.
    return [
        Split(begin, end)
        for begin, end in pairwise([0, *(edge for edge in edges[1:-1] if edge > boundaries.first), size])
    ]


def index_ranges(file: BinaryIO, boundaries: Boundaries, splits: Sequence[Split]) -> RangeList:
    """The ranges of a capture by one walk over its record headers, without guesses and refused ranges.

    ``file`` must be seekable.  Takes about a quarter of the time of reading the segments.
    """
    size = splits[-1].end
    extents = []
    position = boundaries.first
    for split in splits:
        walked = boundaries.walk(file, position, max(split.end, position), size)
        extents.append(Extent(position, walked.position, walked.frames, walked.fault))
        if walked.fault is not None:
            break
        position = walked.position
    return settle(boundaries.first, extents, more=len(extents) < len(splits))


def measure(file: BinaryIO, boundaries: Boundaries, split: Split, size: int) -> Extent:
    """Find the ends of a split and walk from one to the other; `settle` decides whether the extent is proven."""
    start = boundaries.first if split.begin <= boundaries.first else boundaries.sync(file, split.begin, size)
    stop = size if split.end >= size else boundaries.sync(file, split.end, size)
    if start is None or stop is None:
        return Extent(start or split.begin, stop or split.end, 0, REFUSED)
    if start >= stop:
        # One record is longer than the split, so both ends are at its end.
        return Extent(start, start, 0, None if start == stop else REFUSED)
    walked = boundaries.walk(file, start, stop, size)
    if walked.fault is not None:
        return Extent(start, walked.position, walked.frames, walked.fault)
    return Extent(start, stop, walked.frames, None if walked.position == stop else REFUSED)


def settle(first: int, extents: Sequence[Extent], *, more: bool = False) -> RangeList:
    """The ranges that result from the measurements of all splits of a capture, in order.

    ``first``: offset of the first record.  ``more``: splits after a faulty one were not measured at all.
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
        # The rest begins at the last proven position, or one range earlier if no frame is known since then: the block
        # that stops the walk may depend on the frame before it.
        if ranges and (extent.start != position or not extent.frames):
            start, number = ranges[-1].start, ranges[-1].first
            ranges.pop()
        else:
            start = position
        ranges.append(Range(start, None, number))
    elif ranges:
        ranges[-1] = replace(ranges[-1], stop=None, frames=None)
    if not ranges:
        return RangeList((WHOLE,))
    rest = ranges[-1].start
    ranges[0] = replace(ranges[0], start=0)
    return RangeList(tuple(ranges), fault if more else None, rest if more else 0)


def read_range(file: BinaryIO, capture: str, part: Range = WHOLE, head: bytes = b"") -> Iterator[Frame | CaptureNotice]:
    """Frames and notices of one range, numbered as in the whole capture.

    ``file``: open at its beginning; seekable unless the range is `WHOLE`.  ``capture``: name for the frames.  ``head``:
    bytes before the first record (`Boundaries.head`).  A `CaptureError` is yielded, as in `read_capture`; raises
    `RangeRefusedError` after the last frame if the file has changed.
    """
    if part.start == 0 and part.stop is None:
        yield from read_capture(file, capture)
        return
    window = FilePart(file, part.start, part.stop, head if part.start else b"")
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
        raise RangeRefusedError(
            f"has changed: the {part.frames} frames of bytes {part.start} to {part.stop} are {frames} now"
        )


CHAIN_BYTES = STANDARD_SNAP_LENGTH + (1 << 12)
"""Threshold for the length of a chain of plausible records: libpcap writes no payload of this length."""
CHAIN_RECORDS = 4
"""Minimum number of records in such a chain: a misread length leads far away, but not to another record."""
HEAD_LIMIT = 1 << 20
"""Maximum size of the descriptions at the beginning of a pcapng file."""
NEIGHBOUR_SECONDS = 86_400
"""Maximum time between neighbouring records of a plausible chain."""

_BLOCK = 1 << 20
"""Bytes read at a time; frames are not copied out of them."""
_SECTION, _INTERFACE, _NAMES, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 4, 5, 6
_CUSTOM, _CUSTOM_NOT_COPIED = 0xBAD, 0x40000BAD
_PASSED_OVER = frozenset((_NAMES, _CUSTOM, _CUSTOM_NOT_COPIED))
"""Types of blocks that have no effect on later packets."""
_DROP_COUNT = 4


@dataclass(slots=True)
class WalkEnd:
    """Position where a walk ended, and the reason."""

    position: int
    """Offset of the first record at or after the requested offset, or of the record that stopped the walk."""
    frames: int
    """Number of frames before the position."""
    fault: str | None = None
    """Reason why the file cannot be split from ``position`` on; ``None``: it can, or it ends there."""


class Boundaries(ABC):
    """The records of one capture."""

    head: bytes
    """Bytes to read before any record: file header, section and interfaces."""
    first: int
    """Offset of the first record."""

    @abstractmethod
    def walk(self, file: BinaryIO, position: int, until: int, size: int) -> WalkEnd:
        """Walk from the record at ``position`` to the first one at or after ``until``, in a file of ``size`` bytes."""

    def sync(self, file: BinaryIO, at: int, size: int) -> int | None:
        """The first offset from ``at`` on that looks like the begin of a record; equal for all callers.

        ``None`` if no offset within the length of the longest record does.
        """
        at = max(at, self.first)
        at += -at % self._step
        if at >= size:
            return size
        data = _read(file, at, 2 * CHAIN_BYTES + _BLOCK)
        last = at + len(data) >= size
        bad: set[int] = set()
        for start in range(0, min(len(data), CHAIN_BYTES), self._step):
            if start in bad:
                continue
            seen: list[int] = []
            position, before = start, -1
            while True:
                if (position - start > CHAIN_BYTES and len(seen) >= CHAIN_RECORDS) or (last and position == len(data)):
                    return at + start
                # All members of a broken chain are marked bad, so that the search takes linear time.
                length, before = self._plausible(data, position, before)
                if not length or position in bad:
                    break
                seen.append(position)
                position += length
            bad.update(seen)
        return size if last and len(data) < CHAIN_BYTES else None

    _step = 1

    @abstractmethod
    def _plausible(self, data: bytes, at: int, before: int) -> tuple[int, int]:
        """Length of a plausible record at ``at`` (0: implausible) and its time in seconds.

        ``before``: time of the record before it, or -1.
        """


def boundaries(head: bytes) -> Boundaries | None:
    """The boundaries of a capture that begins with ``head`` (see `read_head`); ``None`` if it cannot be split."""
    if head[:4] in LAYOUTS and len(head) >= FILE_HEADER_SIZE:
        return _Pcap(head)
    if head[:4] == PCAPNG_MAGIC:
        try:
            return _Pcapng(head)
        except (ValueError, struct.error):
            return None
    return None


def read_head(file: BinaryIO) -> bytes:
    """The beginning of a file, long enough for `boundaries`."""
    head = _read(file, 0, 1 << 16)
    if head[:4] != PCAPNG_MAGIC or len(head) < 1 << 16:
        return head
    return _read(file, 0, HEAD_LIMIT)


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """``size`` bytes at offset ``at``; fewer at the end of the file."""
    file.seek(at)
    return read_exactly(file, size)


class _Pcap(Boundaries):
    def __init__(self, head: bytes) -> None:
        order, scale, layout = LAYOUTS[head[:4]]
        self.head = head[:FILE_HEADER_SIZE]
        self.first = FILE_HEADER_SIZE
        snap_length = struct.unpack_from(order + "I", head, 16)[0]
        self._limit = min(max(snap_length, STANDARD_SNAP_LENGTH), FRAME_LIMIT)
        self._order = order
        self._size = struct.calcsize(order + layout)
        self._fractions = 1_000_000_000 // scale
        self._fields = struct.Struct(order + "IIII").unpack_from

    def walk(self, file: BinaryIO, position: int, until: int, size: int) -> WalkEnd:
        captured_at, header = 8, self._size
        unpack, limit = struct.Struct(self._order + "I").unpack_from, self._limit
        frames = 0
        while position < until:
            data = _read(file, position, min(_BLOCK, size - position))
            if len(data) < header:
                return WalkEnd(position, frames, "it ends inside a record" if data else "it is shorter than it was")
            at, stop = 0, min(len(data) - header, until - position - 1)
            before = 0
            while at <= stop:
                captured = unpack(data, at + captured_at)[0]
                if captured > limit:
                    return WalkEnd(position + at, frames, "a record is damaged")
                before = at
                at += header + captured
                frames += 1
            if position + at > size:
                return WalkEnd(position + before, frames - 1, "it ends inside a record")
            position += at
        return WalkEnd(position, frames)

    def _plausible(self, data: bytes, at: int, before: int) -> tuple[int, int]:
        if at + self._size > len(data):
            return 0, before
        seconds, fraction, captured, original = self._fields(data, at)
        if fraction >= self._fractions or captured > STANDARD_SNAP_LENGTH or not captured <= original <= FRAME_LIMIT:
            return 0, before
        if not original or (before >= 0 and abs(seconds - before) > NEIGHBOUR_SECONDS):
            return 0, before
        return self._size + captured, seconds


class _Pcapng(Boundaries):
    _step = 4

    def __init__(self, head: bytes) -> None:
        orders = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
        if head[8:12] not in orders:
            raise ValueError("no byte order mark")
        self._order = order = orders[head[8:12]]
        self._uint32_pair = struct.Struct(order + "II").unpack_from
        self._uint32 = struct.Struct(order + "I").unpack_from
        self._latest: list[int] = []
        at = 0
        self.head = b""
        if self._uint32_pair(head, 0)[1] < 28 or struct.unpack_from(order + "H", head, 12)[0] != 1:
            raise ValueError("no section that can be read")
        while True:
            kind, length = self._uint32_pair(head, at)
            if length < 12 or length & 3 or at + length > len(head) or (at and kind == _SECTION):
                raise ValueError("cannot be split")
            if self._uint32(head, at + length - 4)[0] != length:
                raise ValueError("damaged")
            if kind == _PACKET:
                break
            if kind in (_SECTION, _INTERFACE):
                self.head += head[at : at + length]
            if kind == _INTERFACE:
                self._latest.append(latest_half(head[at + 8 : at + length - 4], order))
            at += length
        self.first = at

    def walk(self, file: BinaryIO, position: int, until: int, size: int) -> WalkEnd:
        fields, uint32 = struct.Struct(self._order + "IIII4xI").unpack_from, self._uint32
        latest, interfaces, frames = self._latest, len(self._latest), 0
        data, at, end = b"", 0, 0
        while position + at < until:
            if at + 32 > end:
                position += at
                data, at = _read(file, position, _BLOCK), 0
                end = len(data)
                if end < 12:
                    return WalkEnd(position, frames, "it ends inside a block" if data else "it is shorter than it was")
                if end < 32:
                    data += bytes(32)  # the last block may be too short for these fields
            kind, length, interface, high, captured = fields(data, at)
            stop = at + length
            if stop > end:
                if length > FRAME_LIMIT + BLOCK_OVERHEAD:
                    return WalkEnd(position + at, frames, "a block is damaged")
                position += at
                data, at, stop = _read(file, position, max(_BLOCK, length)), 0, length
                end = len(data)
                if stop > end:
                    return WalkEnd(position, frames, "it ends inside a block")
            if length < 12 or length & 3 or uint32(data, stop - 4)[0] != length:
                return WalkEnd(position + at, frames, "a block is damaged")
            if kind == _PACKET and length >= 32:
                if interface >= interfaces or captured + 32 > length or captured > FRAME_LIMIT:
                    return WalkEnd(position + at, frames, "a block is damaged")
                if high > latest[interface]:
                    return WalkEnd(position + at, frames, "a time is out of bounds, and such times are counted")
                if captured + 35 < length and not self._simple_options(
                    data, at + 28 + captured + (-captured & 3), stop
                ):
                    return WalkEnd(position + at, frames, "a block reports drops, which are summed up")
                frames += 1
            elif kind not in _PASSED_OVER:
                return WalkEnd(position + at, frames, f"a block of type {kind:#x} affects later records")
            at = stop
        return WalkEnd(position + at, frames)

    def _simple_options(self, data: bytes, at: int, stop: int) -> bool:
        """Whether the options of a packet block are complete and contain no drop count."""
        two = struct.Struct(self._order + "HH").unpack_from
        while at + 8 <= stop:
            code, length = two(data, at)
            if not code:
                return True
            at += 4 + length + (-length & 3)
            if code == _DROP_COUNT or at > stop - 4:
                return False
        return True

    def _plausible(self, data: bytes, at: int, before: int) -> tuple[int, int]:
        if at + 12 > len(data):
            return 0, 0
        kind, length = self._uint32_pair(data, at)
        if (kind != _PACKET and kind != _STATISTICS and kind not in _PASSED_OVER) or length < 12 or length & 3:
            return 0, 0
        if length > CHAIN_BYTES or at + length > len(data) or self._uint32(data, at + length - 4)[0] != length:
            return 0, 0
        return length, 0
