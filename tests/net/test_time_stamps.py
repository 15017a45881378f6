from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.net.handshake import NO_STAMP, is_other_stack, is_other_syn, is_same_syn, time_stamp
from mqttscope.net.reassembly import HalfStream
from mqttscope.net.segment import ACK, SYN
from tests.dissect.talk import SECOND, START, Talk

STAMP = b"\x08\x0a\0\0\x01\x02\0\0\0\0"
ONE = Talk().handshake().tape.segments[2]


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


@pytest.mark.parametrize(
    ("ticks", "seconds", "other"),
    [
        (0, 0, False),
        (1_000, 1, False),
        (1_000_000, 1, False),
        (-5_000, 0, False),
        (1_000, -3_600, False),
        (-20_000, 0, True),
        (20_000, 0, True),
        (2_000_000, 1, True),
        (1 << 31, 60, True),
    ],
)
@pytest.mark.parametrize("begin", [50_000, 2**32 - 500, 0])
def test_a_clock_goes_on_as_fast_as_clocks_do(begin: int, ticks: int, seconds: int, other: bool) -> None:
    half = HalfStream(options=options(begin), options_ns=START)
    segment = replace(ONE, options=options(begin + ticks), timestamp_ns=START + seconds * SECOND)

    assert is_other_stack(half, segment) is other


def test_a_connection_has_time_stamps_in_all_segments_or_in_none() -> None:
    with_stamp, without = replace(ONE, options=options(7)), replace(ONE, options=b"")

    assert is_other_stack(HalfStream(options=options(7), options_ns=START), without)
    assert is_other_stack(HalfStream(options=b"", options_ns=START), with_stamp)
    assert not is_other_stack(HalfStream(options=b"", options_ns=START), without)
    assert not is_other_stack(HalfStream(), with_stamp)
    assert not is_other_stack(HalfStream(options=options(7), options_ns=START), replace(without, missing=3))


@pytest.mark.parametrize("flags", [SYN, SYN | ACK])
def test_the_same_syn_has_the_same_time_stamp(flags: int) -> None:
    segment = replace(ONE, flags=flags, options=options(77))

    assert is_same_syn(HalfStream(syn_stamp=77), segment)
    assert not is_other_syn(HalfStream(syn_stamp=77), segment)
    assert is_other_syn(HalfStream(syn_stamp=78), segment)
    assert not is_other_syn(HalfStream(), segment)
    assert not is_same_syn(HalfStream(syn_stamp=0), replace(segment, options=options(0)))
