"""The Timestamps option of TCP (RFC 7323 section 3): by its clock the stack that sent a segment is recognised.

A stack that was started again has another clock, even where it chooses the same port and the same initial sequence
number.  A segment that was captured twice has the same time stamp; one that is sent again has a later one.
"""

from __future__ import annotations

from struct import unpack_from

NO_STAMP = -1

_END, _PADDING, _TIME_STAMPS = 0, 1, 8
_USUAL = b"\x01\x01\x08\x0a"


def time_stamp(options: bytes) -> int:
    """The sender's time stamp (TSval) in the options of a TCP header, `NO_STAMP` without one."""
    if options[:4] == _USUAL and len(options) >= 12:
        return int(unpack_from("!I", options, 4)[0])
    at = 0
    while at < len(options) and options[at] != _END:
        if options[at] == _PADDING:
            at += 1
            continue
        length = options[at + 1] if at + 1 < len(options) else 0
        if length < 2 or at + length > len(options):
            break
        if options[at] == _TIME_STAMPS and length == 10:
            return int(unpack_from("!I", options, at + 2)[0])
        at += length
    return NO_STAMP


def ticks_between(before: int, now: int) -> int:
    """How far a clock has gone on; below 0 where it has gone back."""
    return (now - before + 0x80000000 & 0xFFFFFFFF) - 0x80000000
