"""The Timestamps option of TCP (RFC 7323 section 3): by its clock the stack that sent a segment is recognised.

A stack that was started again has another clock, even where it chooses the same port and the same initial sequence
number.  A segment that was captured twice has the same time stamp; one that is sent again has a later one.
"""

from __future__ import annotations

from struct import unpack_from
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqttscope.net.reassembly import HalfStream
    from mqttscope.net.segment import Segment

NO_STAMP = -1

_END, _PADDING, _TIME_STAMPS = 0, 1, 8
_USUAL = b"\x01\x01\x08\x0a"
_SLACK = 10_000
"""Ticks that a clock may be off: segments that are late, and clocks of captures that are set."""
_TICKS_PER_SECOND = 1_125_000
"""The fastest clock, with an eighth for its error: RFC 7323 asks for one tick a millisecond at most, and Linux can be
told to have one each microsecond."""


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


def is_other_stack(half: HalfStream, segment: Segment) -> bool:
    """Whether the time stamp of data cannot be of the stack that sent the rest of this direction."""
    if not half.options_ns or segment.missing:
        return False
    before, now = time_stamp(half.options), time_stamp(segment.options)
    if before == NO_STAMP or now == NO_STAMP:
        return before != now  # a connection has it in all of its segments, or in none
    ticks = _ticks(before, now)
    if ticks < 0 and half.syn_stamp != NO_STAMP and _ticks(half.syn_stamp, now) >= 0:
        return False  # it is from between the SYN and the last segment
    passed = max(0, segment.timestamp_ns - half.options_ns) * _TICKS_PER_SECOND // 1_000_000_000
    return not -_SLACK <= ticks <= passed + _SLACK


def is_newer(half: HalfStream, segment: Segment) -> bool:
    """Whether data has a later time stamp than all that was captured of its direction: then it is no copy of that."""
    before, now = time_stamp(half.options), time_stamp(segment.options)
    return NO_STAMP not in (before, now) and _ticks(before, now) > 0


def _ticks(before: int, now: int) -> int:
    """How far a clock has gone on; below 0 where it has gone back."""
    return (now - before + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def is_other_syn(half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN, or SYN-ACK, with the number of the one that was captured is another one by its time stamp."""
    now = time_stamp(segment.options)
    return now != half.syn_stamp and NO_STAMP not in (now, half.syn_stamp)


def is_same_syn(half: HalfStream, segment: Segment) -> bool:
    """Whether a SYN, or SYN-ACK, is the one that was captured, by its time stamp; 0 is what a clock begins with."""
    return half.syn_stamp > 0 and time_stamp(segment.options) == half.syn_stamp
