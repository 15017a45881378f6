"""Compressed captures: recognised by content, streamed in bounded pieces, read up to the damage."""

from __future__ import annotations

import gzip
import io
import random
import sys
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture.compressed import LZ4_BLOCK_LIMIT, ByteSource
from mqttscope.installation import package_command
from mqttscope.net.frame import CaptureError, Frame
from tests.capture.test_pcap import RECORDS, expected, pcap_file, read
from tests.conftest import THOROUGH

Compress = Callable[[bytes], bytes]


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def _zstd_without_sizes(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=-5, write_checksum=False, write_content_size=False).compress(data)


def _lz4(data: bytes) -> bytes:
    compressed: bytes = lz4.frame.compress(data, content_checksum=True, block_checksum=True, store_size=True)
    return compressed


def _lz4_small_linked_blocks(data: bytes) -> bytes:
    compressed: bytes = lz4.frame.compress(data, block_size=4, block_linked=True, store_size=False)
    return compressed


FORMATS = [
    pytest.param(_gzip, id="gzip"),
    pytest.param(_zstd, id="zstd"),
    pytest.param(_zstd_without_sizes, id="zstd without sizes"),
    pytest.param(_lz4, id="lz4"),
    pytest.param(_lz4_small_linked_blocks, id="lz4 with small linked blocks"),
]
CHECKED_FORMATS = [pytest.param(_gzip, id="gzip"), pytest.param(_zstd, id="zstd"), pytest.param(_lz4, id="lz4")]

SKIPPABLE = b"\x5e\x2a\x4d\x18\x05\0\0\0extra"


def mixed(size: int) -> bytes:
    """Bytes of which some compress well and some do not."""
    source = random.Random(1)
    data = bytearray()
    while len(data) < size:
        data += source.choice([b"abc" * 5000, source.randbytes(3000), bytes(50_000)])
    return bytes(data[:size])


MIXED = mixed(700_000)


def uncompress(content: bytes, chunk_size: int = 1 << 18) -> tuple[bytes, str | None]:
    source = ByteSource(io.BytesIO(content), chunk_size=chunk_size)
    return source.fill(b"", 1 << 40), source.fault


@pytest.mark.parametrize("compress", FORMATS)
def test_compressed_captures_give_their_frames_in_every_chunking(compress: Compress) -> None:
    content = compress(pcap_file())

    for chunk_size in (*range(1, 65), 1 << 18):
        assert read(content, chunk_size=chunk_size) == expected(), chunk_size


@pytest.mark.parametrize("compress", FORMATS)
@pytest.mark.parametrize("chunk_size", [1 << 18, 5000])
def test_several_members_are_one_capture(compress: Compress, chunk_size: int) -> None:
    half = len(MIXED) // 2
    members = [compress(MIXED[:half]), compress(b""), compress(MIXED[half:])]

    assert uncompress(b"".join(members), chunk_size) == (MIXED, None)


@pytest.mark.parametrize("compress", FORMATS[1:])
def test_skippable_frames_are_stepped_over(compress: Compress) -> None:
    content = SKIPPABLE + compress(MIXED) + SKIPPABLE

    assert uncompress(content, 7000) == (MIXED, None)
    assert uncompress(content[:-1]) == (MIXED, "is truncated: the compressed data end early")


def test_zeros_behind_gzip_are_padding() -> None:
    assert uncompress(_gzip(MIXED) + bytes(100_000)) == (MIXED, None)


@pytest.mark.parametrize("compress", FORMATS)
def test_other_bytes_behind_the_compressed_data_are_reported(compress: Compress) -> None:
    fault = "has bytes after the end of the compressed data (they start with 6a 75 6e 6b)"

    assert uncompress(compress(MIXED) + b"junk and more") == (MIXED, fault)


@pytest.mark.parametrize("compress", FORMATS)
def test_every_cut_of_a_capture_keeps_frames_and_ends_with_one_error(compress: Compress) -> None:
    content = compress(pcap_file())

    for cut in range(4, len(content)):
        *frames, error = read(content[:cut])
        assert frames == expected()[: len(frames)]
        assert isinstance(error, CaptureError)
        assert error.message.startswith("is truncated: the ")
        assert error.frames == len(frames)


@pytest.mark.parametrize(
    ("compress", "most_lost"),
    [
        pytest.param(_gzip, 5_000, id="gzip loses next to nothing"),
        pytest.param(_zstd, 128 << 10, id="zstd loses one block"),
        pytest.param(_lz4_small_linked_blocks, 64 << 10, id="lz4 loses one block"),
    ],
)
def test_truncated_data_are_read_nearly_to_the_end(compress: Compress, most_lost: int) -> None:
    content = compress(MIXED)

    for chunk_size in (1 << 18, 3000):
        raw, fault = uncompress(content[:-20], chunk_size)
        assert MIXED.startswith(raw)
        assert len(MIXED) - len(raw) <= most_lost
        assert fault is not None
        assert fault.startswith("is truncated: ")


@pytest.mark.parametrize("compress", CHECKED_FORMATS)
def test_wrong_checksum_costs_no_data(compress: Compress) -> None:
    content = bytearray(compress(MIXED))
    content[-5 if compress is _gzip else -1] ^= 1

    raw, fault = uncompress(bytes(content))

    assert raw == MIXED
    assert fault is not None
    assert fault.startswith("is damaged: the ")


def test_damage_inside_gzip_costs_nothing_before_it() -> None:
    noise = random.Random(2).randbytes(200_000)
    content = bytearray(_gzip(noise))
    middle = len(content) // 2
    # Stored blocks: the damage is a block header, so all bytes of the blocks before it are good.
    start = content.index(noise[100_000:100_020])
    header = next(at for at in range(start, len(content)) if content[at : at + 1] == b"\0" and stored(content, at))
    content[header + 1] ^= 0xFF

    raw, fault = uncompress(bytes(content))

    assert raw == noise[: len(raw)]
    assert len(raw) >= header - 100 > middle - 100
    assert fault == "is damaged: the gzip data do not uncompress (invalid stored block lengths)"


def stored(content: bytearray, at: int) -> bool:
    """Whether a stored block of RFC 1951 section 3.2.4 may begin here."""
    length = int.from_bytes(content[at + 1 : at + 3], "little")
    return length > 1000 and length ^ 0xFFFF == int.from_bytes(content[at + 3 : at + 5], "little")


@pytest.mark.parametrize("compress", FORMATS)
def test_bombs_are_uncompressed_in_small_pieces(compress: Compress) -> None:
    size = 48 << 20
    source = ByteSource(io.BytesIO(compress(bytes(size))))
    total = largest = 0

    while piece := source.fill(b"", 1):
        total += len(piece)
        largest = max(largest, len(piece))

    assert (total, source.fault) == (size, None)
    assert largest <= LZ4_BLOCK_LIMIT


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b"\x1f\x8b", "is truncated: the gzip data end early", id="gzip magic alone"),
        pytest.param(
            b"\x1f\x8b\x09\0\0\0\0\0\0\0",
            "is damaged: the gzip data do not uncompress (unknown compression method)",
            id="gzip of unknown method",
        ),
        pytest.param(b"\x28\xb5\x2f\xfd", "is truncated: the zstd data end early", id="zstd magic alone"),
        pytest.param(
            b"\x28\xb5\x2f\xfd\x00\x58\xff\xff\xff" + bytes(40),
            "is damaged: a zstd block claims 2097151 bytes",
            id="zstd block of absurd length",
        ),
        pytest.param(b"\x04\x22\x4d\x18", "is truncated: the lz4 data end early", id="lz4 magic alone"),
        pytest.param(
            _lz4(b"content")[:15] + b"\xff\xff\xff\x7f",
            "is damaged: an lz4 block claims 2147483647 bytes",
            id="lz4 block of absurd length",
        ),
        pytest.param(b"\x50\x2a\x4d\x18\xff\xff", "is truncated: the compressed data end early", id="skippable magic"),
    ],
)
def test_hopeless_data_give_nothing_but_the_reason(content: bytes, fault: str) -> None:
    assert uncompress(content) == (b"", fault)
    assert read(content) == [CaptureError("a.pcap", fault, 0, 0)]


def test_errors_of_the_file_are_faults() -> None:
    class Broken(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            if data := super().read1(size):
                return data
            raise OSError(5, "Input/output error")

    source = ByteSource(Broken(b"first bytes"))

    assert source.fill(b"", 100) == b"first bytes"
    assert source.fault == "cannot be read any further: Input/output error"
    assert source.fill(b"rest", 100) == b"rest"


@settings(deadline=None, derandomize=True, max_examples=300 if THOROUGH else 150)
@given(
    compress=st.sampled_from([_gzip, _zstd, _zstd_without_sizes, _lz4, _lz4_small_linked_blocks]),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=4),
    cut=st.integers(0, 100),
    chunk_size=st.integers(1, 80),
)
def test_damage_never_raises(compress: Compress, flips: list[tuple[int, int]], cut: int, chunk_size: int) -> None:
    content = bytearray(compress(pcap_file()))
    for position, bits in flips:
        content[position % len(content)] ^= bits
    content = content[: max(0, len(content) - cut)]

    actual_frames = read(bytes(content), chunk_size=chunk_size)

    frames = [item for item in actual_frames if isinstance(item, Frame)]
    assert not any(isinstance(item, CaptureError) for item in actual_frames[:-1])
    if not flips:
        assert frames == expected()[: len(frames)]
        assert isinstance(actual_frames[-1], CaptureError) or len(frames) == len(RECORDS)


@pytest.mark.parametrize(
    ("compress", "module", "package"), [(_zstd, "zstandard", "zstandard"), (_lz4, "lz4.frame", "lz4")]
)
def test_a_package_that_is_missing_is_named(
    compress: Callable[[bytes], bytes], module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a browser, where these have no packages."""
    monkeypatch.setitem(sys.modules, module, None)
    content, fault = uncompress(compress(MIXED))

    assert content == b""
    assert fault is not None
    assert fault.endswith(f", and {package} is not installed ({package_command(package)})")
