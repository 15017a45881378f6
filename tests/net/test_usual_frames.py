from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, plain_key
from mqttscope.net.usual_frames import locate, plain_endpoints
from tests.net.octets import IP4, IP6, PINGREQ, TIMESTAMPS, ethernet, frame, ip4, tcp, vlan

USUAL = [
    (1, ethernet(0x800, IP4)),
    (1, ethernet(0x86DD, IP6)),
    (1, ethernet(0x8100, vlan(0xF005, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(0xF005, 0x800, ip4(tcp(b""))))),
    (1, ethernet(0x800, ip4(tcp(PINGREQ, options=TIMESTAMPS))) + bytes(6)),
    (101, IP4),
]
UNUSUAL = [
    (1, ethernet(0x8100, vlan(0, 0x800, IP4))),
    (1, ethernet(0x8100, vlan(7, 0x86DD, IP6))),
    (1, ethernet(0x8100, vlan(7, 0x8100, vlan(8, 0x800, IP4)))),
    (101, IP6),
    (113, IP4),
    (1, b""),
]


@given(
    st.sampled_from(USUAL + UNUSUAL),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    st.integers(-60, 30),
    st.integers(0, 9),
)
@settings(max_examples=1_500, deadline=None, derandomize=True)
@pytest.mark.long
def test_bytes_around_a_frame_have_no_say_in_where_its_segment_is(
    link: tuple[int, bytes], changes: list[tuple[int, int]], longer: int, before: int
) -> None:
    link_type, data = link
    damaged = bytearray(data + bytes(max(0, longer)))[: max(0, len(data) + longer)]
    for at, value in changes:
        if at < len(damaged):
            damaged[at] = value
    buffer, end = b"\x45" * before + bytes(damaged) + b"\x45" * before, before + len(damaged)
    found = locate(buffer, before, end, link_type)
    alone = locate(bytes(damaged), 0, len(damaged), link_type)
    assert found[:5] == alone[:5]
    assert (not found[0]) or [place - before for place in found[5:]] == list(alone[5:])


def test_usual_frames_are_taken_and_others_left_to_the_walk() -> None:
    for link_type, data in USUAL:
        key, sequence, acknowledgment, flags, window, options, start, end = locate(data, 0, len(data), link_type)
        found = segment(frame(data, link_type))
        assert isinstance(found, Segment)
        assert (key, sequence, acknowledgment, flags, window) == (
            found.key, found.sequence, found.acknowledgment, found.flags, found.window,
        )  # fmt: skip
        assert (data[options:start], data[start:end]) == (found.options, found.payload)
    for link_type, data in UNUSUAL:
        assert not locate(data, 0, len(data), link_type)[0]


def test_endpoints_are_those_of_the_segment() -> None:
    for link_type, data in USUAL:
        found = segment(frame(data, link_type))
        assert isinstance(found, Segment)
        told = plain_endpoints(data, 0, len(data), link_type)
        assert told == plain_key(found.key) or (not told and (link_type != 1 or len(data) < 74))
    assert not plain_endpoints(b"", 0, 0, 1)
