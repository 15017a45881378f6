"""The clock of a TCP stack in the Timestamps option (RFC 7323 section 3).

A stack writes the value of a clock (TSval) into each segment, even a repeated one.  The clock counts
ticks of 1 µs (Linux, on request) to 1 s, modulo 2**32, and starts anywhere: at boot with 0 (lwIP), or at a random
number for each pair of hosts (Linux, FreeBSD).  So a rebooted stack has another clock, even if it chooses its
port and initial sequence number again.

`read_clock` compares a segment with the earlier segments of its side.  A value too far ahead comes from another
clock, or the capture's clock was set back: `flow_identity.weigh` decides by the other side of the flow, which shows a
step of the capture's clock, but not a reboot.  So each flow is judged by its own segments.
Without the option, numbers and bytes alone decide.
"""

from __future__ import annotations

from enum import Enum
from struct import unpack_from
from typing import Final

from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import Segment, distance

NO_STAMP: Final = -1
"""The time stamp of a segment without the option."""

_END: Final = 0
_PADDING: Final = 1
_TIME_STAMPS: Final = 8
_USUAL: Final = b"\x01\x01\x08\x0a"
_SECOND: Final = 1_000_000_000
_USUAL_RATE: Final = 1_000
"""Ticks per second of nearly all stacks, and the minimum rate: a step of the capture's clock may show fewer."""
_HIGHEST_RATE: Final = 1_000_000
_SPAN_NS: Final = _SECOND
"""Minimum time between the first and the last value of a side to compute the rate of its clock."""
SLACK_NS: Final = _SECOND
"""Tolerance for the times of a capture: frames may be queued, or out of order."""


class ClockReading(Enum):
    """The time stamp of a segment, compared with earlier ones of its sender."""

    NONE = "none"
    """The segment, or the flow, has no time stamps."""
    LATER = "later"
    """The clock of the flow has continued: its stack sent the segment now."""
    PAST = "past"
    """A value that the flow has already passed: a copy, a late segment, or a clock that restarts at each reboot."""
    AHEAD = "ahead"
    """Further ahead than the time since the last value allows."""
    OTHER = "other"
    """Before the first value of the flow: another clock."""


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


def read_clock(half: HalfStream, segment: Segment) -> ClockReading:
    """Compare the time stamp of a segment with the earlier ones of its side."""
    now = time_stamp(segment.options)
    last, last_ns = time_stamp(half.options), half.options_ns
    if last == NO_STAMP:
        last, last_ns = half.first_stamp, half.first_stamp_ns
    if NO_STAMP in (now, last):
        return ClockReading.NONE
    ticks = distance(last, now)
    rate = _rate(half, last, last_ns)
    if ticks <= 0:
        # Before a captured SYN a connection has no segments; else an earlier one may come late.
        slack = 0 if half.initial_sequence >= 0 else min(rate, _USUAL_RATE) * SLACK_NS // _SECOND
        known = half.first_stamp != NO_STAMP
        return ClockReading.OTHER if known and distance(half.first_stamp, now) < -slack else ClockReading.PAST
    passed_ns = max(0, segment.timestamp_ns - last_ns)
    return ClockReading.AHEAD if ticks > (passed_ns * 9 // 8 + SLACK_NS) * rate // _SECOND else ClockReading.LATER


def is_later(half: HalfStream, segment: Segment) -> bool:
    """Whether a segment has a later time stamp than all others of its side: it is not a copy."""
    now, last = time_stamp(segment.options), time_stamp(half.options)
    if last == NO_STAMP:
        last = half.first_stamp
    return NO_STAMP not in (now, last) and distance(last, now) > 0


def _rate(half: HalfStream, last: int, last_ns: int) -> int:
    """Maximum rate of a side's clock in ticks per second."""
    span_ns = last_ns - half.first_stamp_ns
    if half.first_stamp == NO_STAMP or span_ns < _SPAN_NS:
        return _HIGHEST_RATE
    return min(_HIGHEST_RATE, max(_USUAL_RATE, distance(half.first_stamp, last) * _SECOND // span_ns))
