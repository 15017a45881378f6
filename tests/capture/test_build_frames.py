"""Frames of TCP segments are what our own walk of the headers, and tshark, read from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.capture import PcapngWriter
from mqttscope.capture.build_frames import LINK_TYPE_RAW, ip_frame
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment, endpoints
from tests.transport.wires import tshark

V4 = bytes((192, 0, 2, 7)), bytes((198, 51, 100, 9))
V6 = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")
NUMBERS = st.integers(0, 2**32 - 1)


def frame(data: bytes, missing: int = 0) -> Frame:
    return Frame(1, 0, LINK_TYPE_RAW, data, len(data) + missing, "made.pcapng")


@given(
    addresses=st.sampled_from([V4, V6]), sequence=NUMBERS, acknowledgment=NUMBERS, flags=st.integers(0, 63),
    payload=st.binary(max_size=70), words=st.integers(0, 10), missing=st.integers(0, 50),
)  # fmt: skip
def test_a_frame_is_read_as_it_was_meant(
    addresses: tuple[bytes, bytes],
    sequence: int,
    acknowledgment: int,
    flags: int,
    payload: bytes,
    words: int,
    missing: int,
) -> None:
    options = b"\x01" * (4 * words)
    missing = missing if payload else 0
    data = ip_frame(
        *addresses, (50_000, 1883), sequence=sequence, acknowledgment=acknowledgment, flags=flags, window=4_096,
        payload=payload, options=options, missing=missing,
    )  # fmt: skip
    found = segment(frame(data, missing))

    assert isinstance(found, Segment)
    source, destination = endpoints(found.key)
    assert source.endswith(":50000")
    assert destination.endswith(":1883")
    assert (found.sequence, found.acknowledgment, found.flags & 63) == (sequence, acknowledgment, flags)
    assert (found.payload, found.missing, found.options, found.window) == (payload, missing, options, 4_096)


@pytest.mark.parametrize("addresses", [V4, V6], ids=["ipv4", "ipv6"])
def test_checksums_are_right(addresses: tuple[bytes, bytes], tmp_path: Path) -> None:
    path = tmp_path / "made.pcapng"
    with path.open("wb") as file:
        writer = PcapngWriter(file)
        for size in (0, 1, 2, 999, 16_384):
            data = ip_frame(
                *addresses, (50_000, 1883), sequence=7, acknowledgment=8, flags=24, window=512, payload=b"\xff" * size
            )
            writer.write(frame(data))
    fields = ("-T", "fields", "-e", "ip.checksum.status", "-e", "tcp.checksum.status")
    good = "1\t1" if addresses is V4 else "\t1"
    assert tshark(path, *fields) == [good] * 5
