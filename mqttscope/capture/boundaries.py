"""Where the records of a capture begin: from a record on, and from any offset of the file.

`Boundaries.walk` steps from record to record and is always right.  `Boundaries.sync` guesses: it looks for a chain of
plausible records that is longer than a record can be.  A payload can hold such a chain too, so what it says is used by
``ranges`` alone, which proves it.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import BinaryIO

from mqttscope.capture.pcap import FILE_HEADER_SIZE, FRAME_LIMIT, LAYOUTS, STANDARD_SNAP_LENGTH
from mqttscope.capture.pcapng import BLOCK_OVERHEAD, PCAPNG_MAGIC, latest_half

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
"""Blocks without any effect on the packets behind them."""
_DROP_COUNT = 4


@dataclass(slots=True)
class Walk:
    """How far a walk came."""

    position: int
    """Offset of the first record at or behind the one that was asked for, or of the one that stopped the walk."""
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
        """Go from the record at ``position`` to the first one at or behind ``until``, in a file of ``size`` bytes."""

    def sync(self, file: BinaryIO, at: int, size: int) -> int | None:
        """The first offset from ``at`` on that looks like the begin of a record; the same for all that ask.

        ``None`` where there is none within the length of the longest record.
        """
        at = self._aligned(at)
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

    def _aligned(self, at: int) -> int:
        return max(at, self.first)

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
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


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

    def _aligned(self, at: int) -> int:
        at = max(at, self.first)
        return at + (-at & 3)

    def _plausible(self, data: bytes, at: int, before: int) -> tuple[int, int]:
        if at + 12 > len(data):
            return 0, 0
        kind, length = self._two(data, at)
        if (kind != _PACKET and kind != _STATISTICS and kind not in _PASSED_OVER) or length < 12 or length & 3:
            return 0, 0
        if length > CHAIN_BYTES or at + length > len(data) or self._one(data, at + length - 4)[0] != length:
            return 0, 0
        return length, 0
