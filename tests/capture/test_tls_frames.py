"""Frames made for tshark are read as the segments that they were made of."""

from __future__ import annotations

from mqttscope.capture.tls_frames import MAX_PAYLOAD, SERVER_PORT, frames
from mqttscope.net.headers import segment as segment_of
from mqttscope.net.segment import ACK, SYN, Segment, endpoints


def made(payload: bytes, missing: int = 0, flags: int = ACK, sequence: int = 2**32 - 2) -> Segment:
    return Segment(b"k" * 12, sequence, 7, flags, 100, payload, missing, 9, 1_000, "a")


def read(segment: Segment, *, from_client: bool = True) -> list[Segment]:
    found = [segment_of(frame) for frame in frames(segment, 258, from_client=from_client)]
    assert all(isinstance(one, Segment) for one in found)
    return found  # type: ignore[return-value]


def test_both_directions() -> None:
    (up,), (down,) = read(made(b"abc")), read(made(b"abc"), from_client=False)

    assert endpoints(up.key) == ("10.0.1.2:49152", f"192.0.2.1:{SERVER_PORT}")
    assert endpoints(down.key) == endpoints(up.key)[::-1]
    assert (up.sequence, up.acknowledgment, up.payload, up.missing, up.timestamp_ns) == (2**32 - 2, 7, b"abc", 0, 1_000)


def test_what_the_snap_length_cut_off_is_missing() -> None:
    assert [one.missing for one in read(made(b"abc", missing=5))] == [5]


def test_long_segments_and_those_without_payload() -> None:
    parts = read(made(bytes(2 * MAX_PAYLOAD) + b"x"))

    assert [len(one.payload) for one in parts] == [MAX_PAYLOAD, MAX_PAYLOAD, 1]
    assert [one.sequence for one in parts] == [2**32 - 2, MAX_PAYLOAD - 2, 2 * MAX_PAYLOAD - 2]
    assert read(made(b"")) == []


def test_data_that_comes_with_a_syn_lies_behind_it() -> None:
    assert [one.sequence for one in read(made(b"abc", flags=SYN))] == [2**32 - 1]
