"""Cuts a large capture into byte ranges that are read independently and together give all of its frames.

A capture has no marks at which a reader could begin in the middle; a payload may even contain a capture.  So a range is
used only where it is proven.  `split` proposes where ranges begin.  Then either one walk over all record headers makes
them (`index`), or each range is measured independently, on any machine (`measure`): `Boundaries.sync` guesses its two
ends, with the same result for both ranges that share an end, and a walk from one end must land exactly on the other.
`settle` combines the measures.  The first range begins where the records begin; if its walk lands, its end is the
begin of a record, and that is where the next range began, and so on.  From the first range whose walk does not land,
the rest of the file is one range: nothing is ever read from a place that is not proven.

`Boundaries` finds records.  `Boundaries.walk` steps from record to record and is always right.  `Boundaries.sync` looks
for a chain of plausible records that is longer than a record can be; a payload can hold such a chain too, which is why
its guess needs the proof above.

Measuring also counts the frames, so that every range knows the number of its first frame in the complete capture.
Reading checks the range again, since files change.
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
"""How long ranges are by default."""
REFUSED = "the frames at its two ends do not belong together"


class RangeRefusedError(MqttscopeError):
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
    """Offset after its last one."""
    frames: int
    fault: str | None = None
    """Why it is not proven."""


@dataclass(slots=True, frozen=True)
class Range:
    """A proven part of a capture."""

    start: int = 0
    """Offset of its first record; 0 for that of the first range, which holds the head of the file too."""
    stop: int | None = None
    """Offset after its last record; ``None``: to the end of the file, whatever is there."""
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
"""A chain of plausible records longer than this counts: a payload that fakes it is longer than libpcap writes any."""
CHAIN_RECORDS = 4
"""It has this many of them: a length that is read in the wrong place leads far away, but to no other record."""
HEAD_LIMIT = 1 << 20
"""How far the descriptions at the beginning of a pcapng file are looked for."""
NEIGHBOUR_SECONDS = 86_400
"""Neighbouring records of a plausible chain are no further apart in time."""

_BLOCK = 1 << 20
"""How much is read at a time; the frames themselves are not copied out of it."""
_SECTION, _INTERFACE, _NAMES, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 4, 5, 6
_CUSTOM, _CUSTOM_NOT_COPIED = 0xBAD, 0x40000BAD
_PASSED_OVER = frozenset((_NAMES, _CUSTOM, _CUSTOM_NOT_COPIED))
"""Blocks without any effect on the packets after them."""
_DROP_COUNT = 4


@dataclass(slots=True)
class Walk:
    """How far a walk came."""

    position: int
    """Offset of the first record at or after the one that was asked for, or of the one that stopped the walk."""
    frames: int
    """Frames that were passed."""
    fault: str | None = None
    """Why the file cannot be cut any more from ``position`` on; ``None``: it can, or it ends there."""


class Boundaries(ABC):
    """The records of one capture."""

    head: bytes
    """What has to be read before any record: file header, section and interfaces."""
    first: int
    """Offset of the first record."""

    @abstractmethod
    def walk(self, file: BinaryIO, position: int, until: int, size: int) -> Walk:
        """Go from the record at ``position`` to the first one at or after ``until``, in a file of ``size`` bytes."""

    def sync(self, file: BinaryIO, at: int, size: int) -> int | None:
        """The first offset from ``at`` on that looks like the begin of a record; the same for all that ask.

        ``None`` where there is none within the length of the longest record.
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
                # A chain that ends in nothing makes all its members bad, so that the search takes linear time.
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
        """Length of the record that may begin at ``at`` (0: none does) and its time in seconds.

        ``before``: time of the record before it, or -1.
        """


def boundaries(head: bytes) -> Boundaries | None:
    """The boundaries of a capture that begins with ``head``, as `read_head` gives it; ``None``: it is not to be cut."""
    if head[:4] in LAYOUTS and len(head) >= FILE_HEADER_SIZE:
        return _Pcap(head)
    if head[:4] == PCAPNG_MAGIC:
        try:
            return _Pcapng(head)
        except (ValueError, struct.error):
            return None
    return None


def read_head(file: BinaryIO) -> bytes:
    """The beginning of a file, as `boundaries` wants it."""
    head = _read(file, 0, 1 << 16)
    if head[:4] != PCAPNG_MAGIC or len(head) < 1 << 16:
        return head
    return _read(file, 0, HEAD_LIMIT)


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """``size`` bytes from ``at`` on; fewer at the end of the file."""
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

    def walk(self, file: BinaryIO, position: int, until: int, size: int) -> Walk:
        captured_at, header = 8, self._size
        unpack, limit = struct.Struct(self._order + "I").unpack_from, self._limit
        frames = 0
        while position < until:
            data = _read(file, position, min(_BLOCK, size - position))
            if len(data) < header:
                return Walk(position, frames, "it ends inside a record" if data else "it is shorter than it was")
            at, stop = 0, min(len(data) - header, until - position - 1)
            before = 0
            while at <= stop:
                captured = unpack(data, at + captured_at)[0]
                if captured > limit:
                    return Walk(position + at, frames, "a record is damaged")
                before = at
                at += header + captured
                frames += 1
            if position + at > size:
                return Walk(position + before, frames - 1, "it ends inside a record")
            position += at
        return Walk(position, frames)

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
        self._two = struct.Struct(order + "II").unpack_from
        self._one = struct.Struct(order + "I").unpack_from
        self._latest: list[int] = []
        at = 0
        self.head = b""
        if self._two(head, 0)[1] < 28 or struct.unpack_from(order + "H", head, 12)[0] != 1:
            raise ValueError("no section that can be read")
        while True:
            kind, length = self._two(head, at)
            if length < 12 or length & 3 or at + length > len(head) or (at and kind == _SECTION):
                raise ValueError("not to be cut")
            if self._one(head, at + length - 4)[0] != length:
                raise ValueError("damaged")
            if kind == _PACKET:
                break
            if kind in (_SECTION, _INTERFACE):
                self.head += head[at : at + length]
            if kind == _INTERFACE:
                self._latest.append(latest_half(head[at + 8 : at + length - 4], order))
            at += length
        self.first = at

    def walk(self, file: BinaryIO, position: int, until: int, size: int) -> Walk:
        fields, one = struct.Struct(self._order + "IIII4xI").unpack_from, self._one
        latest, interfaces, frames = self._latest, len(self._latest), 0
        data, at, end = b"", 0, 0
        while position + at < until:
            if at + 32 > end:
                position += at
                data, at = _read(file, position, _BLOCK), 0
                end = len(data)
                if end < 12:
                    return Walk(position, frames, "it ends inside a block" if data else "it is shorter than it was")
                if end < 32:
                    data += bytes(32)  # the last block may have no such fields
            kind, length, interface, high, captured = fields(data, at)
            stop = at + length
            if stop > end:
                if length > FRAME_LIMIT + BLOCK_OVERHEAD:
                    return Walk(position + at, frames, "a block is damaged")
                position += at
                data, at, stop = _read(file, position, max(_BLOCK, length)), 0, length
                end = len(data)
                if stop > end:
                    return Walk(position, frames, "it ends inside a block")
            if length < 12 or length & 3 or one(data, stop - 4)[0] != length:
                return Walk(position + at, frames, "a block is damaged")
            if kind == _PACKET and length >= 32:
                if interface >= interfaces or captured + 32 > length or captured > FRAME_LIMIT:
                    return Walk(position + at, frames, "a block is damaged")
                if high > latest[interface]:
                    return Walk(position + at, frames, "a time is out of bounds, and such are counted")
                if captured + 35 < length and not self._simple_options(
                    data, at + 28 + captured + (-captured & 3), stop
                ):
                    return Walk(position + at, frames, "a block tells of drops, which are summed up")
                frames += 1
            elif kind not in _PASSED_OVER:
                return Walk(position + at, frames, f"a block of type {kind:#x} has a say in what follows")
            at = stop
        return Walk(position + at, frames)

    def _simple_options(self, data: bytes, at: int, stop: int) -> bool:
        """Whether the options of a packet block are whole and count nothing."""
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
        kind, length = self._two(data, at)
        if (kind != _PACKET and kind != _STATISTICS and kind not in _PASSED_OVER) or length < 12 or length & 3:
            return 0, 0
        if length > CHAIN_BYTES or at + length > len(data) or self._one(data, at + length - 4)[0] != length:
            return 0, 0
        return length, 0
