"""Clocks of TCP stacks: the evidence of a time stamp about the sender of a segment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.net.reassembly import HalfStream
from mqttscope.net.tcp_clock import NO_STAMP, SLACK_NS, ClockReading, is_later, read_clock, time_stamp
from tests.dissect.talk import SECOND, START, Talk
from tests.each import each

STAMP = b"\x08\x0a\0\0\x01\x02\0\0\0\0"
SEGMENT = Talk().handshake().tape.segments[2]


@pytest.mark.parametrize(
    ("options", "ticks"),
    [
        (b"", NO_STAMP),
        (b"\x01\x01" + STAMP, 0x102),
        (STAMP + b"\0\0", 0x102),
        (b"\x02\x04\x05\xb4\x04\x02" + STAMP + b"\x01\x03\x03\x07", 0x102),
        (b"\x01\x01" + STAMP[:9], NO_STAMP),
        (b"\0" + STAMP, NO_STAMP),
        (b"\x08\x08" + bytes(8), NO_STAMP),
        (b"\x05\x00" + STAMP, NO_STAMP),
        (b"\x05", NO_STAMP),
        (bytes(40), NO_STAMP),
    ],
)
def test_the_time_stamp_is_found_among_the_options(options: bytes, ticks: int) -> None:
    assert time_stamp(options) == ticks


def options(ticks: int) -> bytes:
    return b"\x01\x01\x08\x0a" + (ticks % 2**32).to_bytes(4, "big") + bytes(4)


def side(first: int, last: int, rate: int, *, initial_sequence: int = 1000) -> HalfStream:
    """A side with a clock that went from one value to another at a rate."""
    span_ns = (last - first) * SECOND // rate
    return HalfStream(
        initial_sequence=initial_sequence,
        first_stamp=first % 2**32,
        first_stamp_ns=START - span_ns,
        options=options(last),
        options_ns=START,
    )


def reading(half: HalfStream, ticks: int, seconds: float) -> ClockReading:
    last = time_stamp(half.options)
    return read_clock(
        half, replace(SEGMENT, options=options(last + ticks), timestamp_ns=START + round(seconds * SECOND))
    )


@each(
    "rate, ticks, seconds, expected",
    [
        (1_000, 0, 0, ClockReading.PAST),
        (1_000, 1, 0, ClockReading.LATER),
        (1_000, 200, 0.2, ClockReading.LATER),
        (1_000, 60_000, 60, ClockReading.LATER),
        (1_000, 1_000, 0, ClockReading.LATER),  # late by as much as frames are late
        (1_000, 1_001, 0, ClockReading.AHEAD),
        (1_000, 68_500, 60, ClockReading.LATER),  # an eighth too fast, and a second
        (1_000, 68_501, 60, ClockReading.AHEAD),
        (1_000, 60_000, -3_540, ClockReading.AHEAD),  # the clock of the capture was set back
        (1_000, 1, 7_000, ClockReading.LATER),
        (1_000, -1, 1, ClockReading.PAST),
        (1_000, -5_000, 1, ClockReading.PAST),  # the first value of the side
        (1_000, -5_001, 1, ClockReading.OTHER),
        (1_000, 2**31 - 1, 60, ClockReading.AHEAD),
        (1_000, 2**31, 60, ClockReading.OTHER),
        (1_000_000, 60_000_000, 60, ClockReading.LATER),
        (1_000_000, 68_500_001, 60, ClockReading.AHEAD),
        (1, 60, 60, ClockReading.LATER),
        (1, 68_501, 60, ClockReading.AHEAD),  # a slow clock may be one that is read with steps of the capture
    ],
)
@each("begin", [50_000, 2**32 - 7_000, 2**32 - 5_001])
def test_what_a_time_stamp_says(begin: int, rate: int, ticks: int, seconds: float, expected: ClockReading) -> None:
    assert reading(side(begin, begin + 5 * max(1_000, rate), rate), ticks, seconds) is expected


def test_an_earlier_segment_may_come_late_where_no_syn_was_captured() -> None:
    joined = side(50_000, 55_000, 1_000, initial_sequence=-1)

    assert reading(joined, -6_000, 1) is ClockReading.PAST
    assert reading(joined, -6_001, 1) is ClockReading.OTHER
    joined.first_stamp = NO_STAMP
    assert reading(joined, -60_000, 1) is ClockReading.PAST


def test_a_segment_or_a_side_without_time_stamps_says_nothing() -> None:
    with_stamp, without = replace(SEGMENT, options=options(7)), replace(SEGMENT, options=b"")

    assert read_clock(side(1, 5, 1_000), without) is ClockReading.NONE
    assert read_clock(HalfStream(), with_stamp) is ClockReading.NONE


def test_the_clock_begins_with_the_syn() -> None:
    half = HalfStream(initial_sequence=1000, first_stamp=500, first_stamp_ns=START)

    assert read_clock(half, replace(SEGMENT, options=options(501), timestamp_ns=START + SLACK_NS)) is ClockReading.LATER
    assert read_clock(half, replace(SEGMENT, options=options(499), timestamp_ns=START)) is ClockReading.OTHER


@pytest.mark.parametrize(("ticks", "later"), [(-1, False), (0, False), (1, True)])
def test_a_later_segment_is_no_copy(ticks: int, later: bool) -> None:
    half = side(50_000, 55_000, 1_000)

    assert is_later(half, replace(SEGMENT, options=options(55_000 + ticks))) is later
    assert is_later(HalfStream(first_stamp=70), replace(SEGMENT, options=options(70 + ticks))) is later
    assert not is_later(half, replace(SEGMENT, options=b""))
