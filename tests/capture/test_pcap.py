"""The pcap reader against hand-built files, every chunking and every cut."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from itertools import islice

import pytest

from mqttscope.capture import read_capture
from mqttscope.capture.pcap import InterfaceState, ReaderState
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame


def test_written_and_read_again() -> None:
    memory = ReaderState(
        24, 3, -5, [1, 113], 1, True, ">", [InterfaceState(1, 0, 1000, 1, -7, 1, 2, 3), InterfaceState(113, 9, 1, 1, 0)]
    )

    assert ReaderState.from_values(json.loads(json.dumps(memory.to_values()))) == memory
    assert memory.copy() == memory
    assert memory.copy().interfaces[0] is not memory.interfaces[0]
    assert memory.copy().link_types is not memory.link_types
    assert ReaderState.from_values(ReaderState().to_values()) == ReaderState()


Item = Frame | CaptureNotice
Record = tuple[int, int, bytes]
"""Seconds, fraction, data."""

RECORDS: tuple[Record, ...] = (
    (1_700_000_000, 0, b"first frame"),
    (1_700_000_000, 999_999, b""),
    (1_700_000_001, 1, bytes(range(100))),
    (0xFFFF_FFFF, 7, b"x" * 33),
)


def pcap_file(
    records: Sequence[Record] = RECORDS,
    *,
    order: str = "<",
    magic: int = 0xA1B2C3D4,
    network: int = 1,
    snap_length: int = 65535,
    version: tuple[int, int] = (2, 4),
) -> bytes:
    """A pcap file; of magic 0xa1b2cd34 with the longer record headers."""
    parts = [struct.pack(order + "IHHiIII", magic, *version, 0, 0, snap_length, network)]
    for seconds, fraction, data in records:
        parts.append(struct.pack(order + "IIII", seconds, fraction, len(data), len(data) + 4))
        if magic == 0xA1B2CD34:
            parts.append(struct.pack(order + "IHBB", 3, 0x0800, 0, 0))
        parts.append(data)
    return b"".join(parts)


def read(content: bytes, *, chunk_size: int = 1 << 18, frame_limit: int = 64 << 20) -> list[Item]:
    """Everything a capture gives, which must end."""
    items = read_capture(io.BytesIO(content), "a.pcap", chunk_size=chunk_size, frame_limit=frame_limit)
    frames = list(islice(items, 1_000_000))
    assert next(items, None) is None
    return frames


def expected(records: Sequence[Record] = RECORDS, *, scale: int = 1000, link_type: int = 1) -> list[Item]:
    return [
        Frame(number, seconds * 10**9 + fraction * scale, link_type, data, len(data) + 4, "a.pcap")
        for number, (seconds, fraction, data) in enumerate(records, 1)
    ]


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
@pytest.mark.parametrize(
    ("magic", "scale"),
    [
        pytest.param(0xA1B2C3D4, 1000, id="microseconds"),
        pytest.param(0xA1B23C4D, 1, id="nanoseconds"),
        pytest.param(0xA1B2CD34, 1000, id="modified format with longer record headers"),
    ],
)
def test_each_magic_gives_the_same_frames_in_every_chunking(magic: int, scale: int, order: str) -> None:
    content = pcap_file(magic=magic, order=order)

    for chunk_size in (*range(1, 65), 1 << 18):
        assert read(content, chunk_size=chunk_size) == expected(scale=scale), chunk_size


@pytest.mark.parametrize(
    ("network", "link_type"),
    [
        pytest.param(113, 113, id="plain link type"),
        pytest.param(0x2400_0001, 1, id="frame check sequence length in the upper bits"),
        pytest.param(0x03FF_0001, 1, id="reserved bits set"),
    ],
)
def test_link_type_is_the_lower_half_of_its_field(network: int, link_type: int) -> None:
    assert read(pcap_file(network=network)) == expected(link_type=link_type)


@pytest.mark.parametrize("version", [(2, 3), (1, 4), (543, 0)])
def test_version_is_not_judged(version: tuple[int, int]) -> None:
    assert read(pcap_file(version=version)) == expected()


def test_file_header_alone_is_a_capture_without_frames() -> None:
    assert read(pcap_file([])) == []


def test_captured_length_beyond_original_length_is_kept_as_it_is() -> None:
    content = pcap_file([]) + struct.pack("<IIII", 5, 6, 4, 2) + b"data"

    assert read(content) == [Frame(1, 5_000_006_000, 1, b"data", 2, "a.pcap")]


def test_frames_longer_than_the_snap_length_are_read() -> None:
    records = [(1, 2, bytes(200_000)), (1, 3, b"next")]

    assert read(pcap_file(records, snap_length=64), chunk_size=1000) == expected(records)


@pytest.mark.parametrize(
    ("captured", "snap_length", "frame_limit", "limit"),
    [
        pytest.param(262_145, 65535, 64 << 20, 262_144, id="over the standard snap length"),
        pytest.param(0xFFFF_FFFF, 0, 64 << 20, 262_144, id="largest number, snap length unknown"),
        pytest.param((64 << 20) + 1, 0xFFFF_FFFF, 64 << 20, 64 << 20, id="over the frame limit, snap length absurd"),
        pytest.param(300_001, 300_000, 64 << 20, 300_000, id="over a large snap length"),
        pytest.param(1001, 65535, 1000, 1000, id="over a small frame limit"),
    ],
)
@pytest.mark.parametrize("behind", [b"", bytes(1100)], ids=["at the end", "with more after"])
def test_absurd_length_is_damage(captured: int, snap_length: int, frame_limit: int, limit: int, behind: bytes) -> None:
    content = pcap_file(RECORDS[:1], snap_length=snap_length)
    damaged = content + struct.pack("<IIII", 1, 1, captured, captured) + behind
    message = f"is damaged: a frame claims {captured} bytes, more than the maximum of {limit}"

    assert read(damaged, frame_limit=frame_limit) == [
        *expected(RECORDS[:1]),
        CaptureError("a.pcap", message, len(content), 1),
    ]


def test_every_cut_keeps_the_frames_before_it_and_says_where() -> None:
    content = pcap_file()
    ends = [24]
    for _, _, data in RECORDS:
        ends.append(ends[-1] + 16 + len(data))

    for cut in range(4, len(content)):
        whole = sum(end <= cut for end in ends[1:])
        frames = read(content[:cut])
        if cut not in ends:
            error = frames.pop()
            assert isinstance(error, CaptureError)
            assert (error.offset, error.frames) == (ends[whole] if cut > 24 else 0, whole)
            assert error.message.startswith("ends inside ")
        assert frames == expected()[:whole]


def test_error_counts_the_bytes_that_are_there() -> None:
    content = pcap_file(RECORDS[:1])

    assert read(content[:-3])[-1] == CaptureError(
        "a.pcap", "ends inside a frame record (24 of 27 bytes are there)", 24, 0
    )
    assert read(content[:20]) == [
        CaptureError("a.pcap", "ends inside the file header (20 of 24 bytes are there)", 0, 0)
    ]


def test_zeros_behind_the_header_are_empty_frames() -> None:
    frames = read(pcap_file([]) + bytes(160))

    assert frames == [Frame(number, 0, 1, b"", 0, "a.pcap") for number in range(1, 11)]
