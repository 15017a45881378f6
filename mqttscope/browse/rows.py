"""Rows of fixed size: the few bytes that are remembered of each event, in blocks that a spool takes beyond a limit.

`RowStore` grows at its end by one writer; others may read meanwhile.  Its memory is bounded: beyond `KEPT_BLOCKS` the
oldest blocks are on the spool, and read back from there.
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
"""Rows of a block: a screen lies in one or two of them."""
KEPT_BLOCKS: Final = 256
"""Blocks that stay in memory: a million rows."""
SEVERITY_AT: Final = struct.calcsize("<QqIIIIIBBB")
"""Where a row has its severity."""
MAX_COUNT: Final = 0xFFFF_FFFF
"""The largest number that a row holds of frames, connections and packets."""


class RowKind(IntEnum):
    """What kind of event a row stands for, and where the rest of it is."""

    PACKET = 0
    """A packet without a fault whose bytes say all of it."""
    ALIASED = 1
    """One whose topic an earlier packet has given."""
    ODD_PACKET = 2
    """One of which bytes are missing."""
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
"""Kinds of packets without a fault."""


class Row(NamedTuple):
    """What is remembered of an event."""

    place: int
    """Offset of its bytes in the capture, or with `SPOOLED` in the spool."""
    timestamp_ns: int
    length: int
    """Bytes at the place."""
    frame: int
    connection: int
    root: int
    """Number of the packet that began its exchange, its own where it began one; `MAX_COUNT` where there is none."""
    number: int
    """Number of the packet; of other events that of the next packet."""
    kind: int
    flags: int
    """`Flags` of its side and its connection."""
    header: int
    """First byte of the packet."""
    severity: int
    """1 to 3 where the worst finding about it is information, a warning or an error."""
    capture: int


SPOOLED: Final = 1 << 63


class Spool(Protocol):
    """Bytes that are put aside."""

    def write(self, data: bytes) -> int:
        """Append bytes; returns their offset."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on."""

    def overwrite(self, offset: int, data: bytes) -> None:
        """Change bytes that were written."""


class RowStore:
    """All rows."""

    def __init__(self, spool: Spool, *, kept_blocks: int | None = None) -> None:
        self._spool = spool
        self._kept_blocks = KEPT_BLOCKS if kept_blocks is None else max(1, kept_blocks)
        self._pack = struct.Struct(LAYOUT).pack
        self._unpack = struct.Struct(LAYOUT).unpack_from
        self._iterate = struct.Struct(LAYOUT).iter_unpack
        self._blocks: list[bytearray | int] = []
        """Each in memory, or its offset in the spool."""
        self._spilled = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, row: Row) -> int:
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

    def __getitem__(self, number: int) -> Row:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return Row._make(self._unpack(self._bytes(number, 1)))

    def run(self, start: int, stop: int) -> Iterator[Row]:
        """The rows from ``start`` up to ``stop``."""
        stop = min(stop, self._count)
        while start < stop:
            count = min(stop, (start // BLOCK_ROWS + 1) * BLOCK_ROWS) - start
            yield from map(Row._make, self._iterate(self._bytes(start, count)))
            start += count

    def note(self, number: int, severity: int) -> None:
        """Note a finding about a row; the worst one counts."""
        block, at = divmod(number, BLOCK_ROWS)
        place = at * ROW_BYTES + SEVERITY_AT
        held = self._blocks[block]
        if isinstance(held, bytearray):
            held[place] = max(held[place], severity)
        elif self._spool.read(held + place, 1)[0] < severity:
            self._spool.overwrite(held + place, bytes((severity,)))

    def of_packet(self, number: int) -> int | None:
        """The row of the packet with a number."""
        # Events that are no packets stand before the packet whose number they have.
        at = bisect_left(self, (number, True), key=lambda row: (row.number, row.kind <= RowKind.MALFORMED))
        return at if at < self._count and self[at].number == number else None

    def _bytes(self, start: int, count: int) -> bytes:
        """The bytes of rows of one block."""
        block, at = divmod(start, BLOCK_ROWS)
        held = self._blocks[block]
        if isinstance(held, bytearray):
            # One step, so that a writer in another thread does not come between.
            return bytes(held[at * ROW_BYTES : (at + count) * ROW_BYTES])
        return self._spool.read(held + at * ROW_BYTES, count * ROW_BYTES)
