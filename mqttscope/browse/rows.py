"""Rows of fixed size: a few bytes per event, in blocks that move to a spool beyond a limit.

One thread appends to `RowStore`; others may read at the same time.  Its memory is bounded: beyond `KEPT_BLOCKS` the
oldest blocks move to the spool, and are read back from there.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

LAYOUT: Final = "<QqIIIIIBBBBH"
ROW_BYTES: Final = struct.calcsize(LAYOUT)
BLOCK_ROWS: Final = 4_096
"""Rows per block: a screen needs one or two blocks."""
KEPT_BLOCKS: Final = 256
"""Maximum number of blocks in memory: a million rows."""
SEVERITY_AT: Final = struct.calcsize("<QqIIIIIBBB")
"""Offset of the severity in a row."""
MAX_COUNT: Final = 0xFFFF_FFFF
"""Largest number of a frame, connection or packet in a row."""


class RowKind(IntEnum):
    """Kind of the event of a row, and where the rest of it is stored."""

    PACKET = 0
    """A well-formed packet that can be recreated from its bytes."""
    ALIASED = 1
    """A packet with a topic from an earlier packet."""
    ODD_PACKET = 2
    """A packet that cannot be recreated from its bytes, such as one with missing bytes."""
    MALFORMED = 3
    GAP = 4
    UNPARSED = 5
    DISCARDED = 6
    OPENED = 7
    ENDING = 8
    CLOSED = 9
    ERROR = 10
    DROPS = 11


PACKETS: Final = frozenset((RowKind.PACKET, RowKind.ALIASED, RowKind.ODD_PACKET))
"""Kinds of well-formed packets."""


class IndexRow(NamedTuple):
    """Stored fields of an event."""

    place: int
    """Offset of its bytes in the capture, or, with `SPOOLED`, in the spool."""
    timestamp_ns: int
    length: int
    """Number of bytes at the place."""
    frame: int
    connection: int
    root: int
    """Number of the packet that started its exchange, possibly its own; `MAX_COUNT` without an exchange."""
    number: int
    """Number of the packet; for other events the number of the next packet."""
    kind: int
    flags: int
    """Flags of its side and its connection (`browse.index`)."""
    header: int
    """First byte of the packet."""
    severity: int
    """Worst finding: 0 no finding, 1 information, 2 warning, 3 error."""
    capture: int


SPOOLED: Final = 1 << 63


class ByteSpool(Protocol):
    """Storage for bytes outside memory."""

    def write(self, data: bytes) -> int:
        """Append bytes; returns their offset."""

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes from an offset."""

    def overwrite(self, offset: int, data: bytes) -> None:
        """Overwrite bytes in place."""


class RowStore:
    """All rows."""

    def __init__(self, spool: ByteSpool, *, kept_blocks: int | None = None) -> None:
        self._spool = spool
        self._kept_blocks = KEPT_BLOCKS if kept_blocks is None else max(1, kept_blocks)
        self._pack = struct.Struct(LAYOUT).pack
        self._unpack = struct.Struct(LAYOUT).unpack_from
        self._iterate = struct.Struct(LAYOUT).iter_unpack
        self._blocks: list[bytearray | int] = []
        """Each block in memory, or its offset in the spool."""
        self._spilled = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, row: IndexRow) -> int:
        """Add a row; returns its number."""
        number = self._count
        if not number % BLOCK_ROWS:
            self._blocks.append(bytearray())
            if len(self._blocks) - self._spilled > self._kept_blocks:
                oldest = self._blocks[self._spilled]
                assert isinstance(oldest, bytearray)
                self._blocks[self._spilled] = self._spool.write(bytes(oldest))
                self._spilled += 1
        last = self._blocks[-1]
        assert isinstance(last, bytearray)
        last += self._pack(*row)
        self._count = number + 1
        return number

    def __getitem__(self, number: int) -> IndexRow:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return IndexRow._make(self._unpack(self._bytes(number, 1)))

    def run(self, start: int, stop: int) -> Iterator[IndexRow]:
        """Rows from ``start`` up to, but excluding, ``stop``."""
        stop = min(stop, self._count)
        while start < stop:
            count = min(stop, (start // BLOCK_ROWS + 1) * BLOCK_ROWS) - start
            yield from map(IndexRow._make, self._iterate(self._bytes(start, count)))
            start += count

    def note(self, number: int, severity: int) -> None:
        """Note the severity of a finding for a row; the worst one is kept."""
        block, at = divmod(number, BLOCK_ROWS)
        place = at * ROW_BYTES + SEVERITY_AT
        held = self._blocks[block]
        if isinstance(held, bytearray):
            held[place] = max(held[place], severity)
        elif self._spool.read(held + place, 1)[0] < severity:
            self._spool.overwrite(held + place, bytes((severity,)))

    def of_packet(self, number: int) -> int | None:
        """Row of the packet with a number."""
        # Other events precede the packet with their number.
        at = bisect_left(self, (number, True), key=lambda row: (row.number, row.kind <= RowKind.MALFORMED))
        return at if at < self._count and self[at].number == number else None

    def _bytes(self, start: int, count: int) -> bytes:
        """Bytes of rows of one block."""
        block, at = divmod(start, BLOCK_ROWS)
        held = self._blocks[block]
        if isinstance(held, bytearray):
            # A single step, atomic with respect to the writing thread.
            return bytes(held[at * ROW_BYTES : (at + count) * ROW_BYTES])
        return self._spool.read(held + at * ROW_BYTES, count * ROW_BYTES)
