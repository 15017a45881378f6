"""Whether the checksum of a TCP segment is right (RFC 9293 section 3.1), as far as a captured frame can prove it.

2**16 is 1 modulo 2**16 - 1, so the ones' complement sum of 16-bit words is the remainder of the bytes as one number.
In plain IP datagrams the addresses, which the sum covers, are right before the TCP header.

Frames are captured before the sender's network interface has computed the checksum, or after software has joined
segments.  Then the field contains the sum of the pseudo-header (Linux: CHECKSUM_PARTIAL), on other systems without
the length; or 0.  An interface that joins segments (LRO) leaves the checksum of the first one.
"""

from __future__ import annotations

from typing import Final

UNJUDGED: Final = 0
"""The frame proves nothing, or has no checksum."""
RIGHT: Final = 1
WRONG: Final = 2
"""Neither right nor left to a network interface."""

MAX_LENGTH: Final = 1_480
"""Longest TCP segment that is checked, header included: the limit of Ethernet.  Longer ones may have been joined."""
_TCP: Final = 6
_number: Final = int.from_bytes
_LONG: Final = 512
"""Length in bytes above which it is faster to add both halves of a number before the division."""
_HALF: Final = 16 * 360
_LOW: Final = (1 << _HALF) - 1


def judge_checksum(data: bytes, addresses: int, start: int, end: int) -> int:
    """Check the segment at ``data[start:end]``; source and destination address are before it."""
    length = end - start
    if length > MAX_LENGTH:
        return UNJUDGED
    number = _number(data[addresses:end], "big")
    if length > _LONG:
        number = (number >> _HALF) + (number & _LOW)
    # The last byte of an odd number is the high one of a word.
    if not ((number % 0xFFFF << 8 if length & 1 else number % 0xFFFF) + _TCP + length) % 0xFFFF:
        return RIGHT
    field = data[start + 16] << 8 | data[start + 17]
    partial = is_left_to_interface(field, _number(data[addresses:start], "big"), length)
    return UNJUDGED if partial or not field else WRONG


def is_left_to_interface(field: int, addresses: int, length: int) -> bool:
    """Whether a checksum field is the sum of the pseudo-header alone, with or without the length of the segment."""
    beyond = addresses + _TCP - field
    return not beyond % 0xFFFF or not (beyond + length) % 0xFFFF
