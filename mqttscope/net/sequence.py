"""What comes before what: TCP sequence numbers, which wrap at 2**32 (RFC 9293 section 3.4)."""

from __future__ import annotations

MODULUS = 1 << 32
MASK = MODULUS - 1
HALF = 1 << 31


def distance(start: int, end: int) -> int:
    """Signed number of bytes from ``start`` forward to ``end``, in -2**31 ... 2**31 - 1 (RFC 9293 section 3.4).

    ``distance(2**32 - 10, 10)`` is 20; it is negative when ``end`` lies before ``start``.
    """
    return ((end - start + HALF) & MASK) - HALF


def advance(sequence: int, count: int) -> int:
    """Sequence number ``count`` bytes behind ``sequence``; ``count`` may be negative and of any size."""
    return (sequence + count) & MASK
