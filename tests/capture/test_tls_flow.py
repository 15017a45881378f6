"""The client random of a connection, from segments of any size and order."""

from __future__ import annotations

from mqttscope.capture.tls_flow import Flow, begins, start_of
from mqttscope.net.segment import ACK, SYN, Segment

HELLO = b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03" + bytes(range(32)) + bytes(50)


def segment(start: int, end: int, flags: int = ACK) -> Segment:
    return Segment(b"k" * 12, (start - 5) % 2**32, 0, flags, 100, HELLO[start:end], 0, 1, 1, "a")


def test_segments_of_any_size() -> None:
    for size in (6, 7, 43, 93):
        flow = Flow(b"k" * 12)
        flow.begin(segment(0, size), 3)
        for start in range(0, 93, size):
            assert bool(flow.random) == (start >= 43)
            flow.gather(segment(start, start + size))
            # Once more, and from the middle.
            flow.gather(segment(start, start + size))
            flow.gather(segment(60, 70))
        assert (flow.random, flow.number) == (bytes(range(32)), 3)


def test_where_it_begins() -> None:
    assert begins(segment(0, 93))
    assert not begins(segment(0, 5))
    assert not begins(segment(1, 93))
    assert start_of(segment(5, 6, SYN)) == 1
