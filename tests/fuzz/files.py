"""No matter what bytes a capture consists of, reading it ends, raises nothing and holds little in memory.

Frames come in order and within the limit, at most one error comes, and it is the last; how many bytes are read at a
time changes nothing.  The input is the file.
"""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice

import lz4.frame
import zstandard

from mqttscope.capture import open_capture
from mqttscope.capture.compressed import is_compressed
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from tests.capture.test_pcap import pcap_file
from tests.capture.test_pcapng import enhanced, interface, of_everything, option, statistics
from tests.fuzz.material import captures, frames, names
from tests.lake.parts import as_pcapng

MAX_LENGTH = 6_000
MAX_COMPRESSED = 700
"""Longest compressed input: a zstd block of four bytes may stand for 128 KiB, and that is a matter of time alone."""
MAX_ITEMS = 3_000
FRAME_LIMIT = 1 << 20
MEMORY_LIMIT = 48 << 20
"""What reading may hold at once: a few chunks, the largest lz4 block, the longest block of a pcapng file."""

Item = Frame | CaptureNotice


def check(data: bytes) -> None:
    """The law for one file."""
    if is_compressed(data[:4]):
        data = data[:MAX_COMPRESSED]
    whole = _read(data, 1 << 18)
    number = 0
    for place, item in enumerate(whole):
        assert item.capture == "-"
        if isinstance(item, Frame):
            number += 1
            assert item.number == number
            assert len(item.data) <= FRAME_LIMIT
            assert -(1 << 63) <= item.timestamp_ns < 1 << 63
            assert 0 <= item.original_length < 1 << 32
        elif isinstance(item, CaptureError):
            assert place == len(whole) - 1
            assert item.message
            assert item.frames == number
            assert item.offset is not None
    assert whole or len(data) >= 24, "a file too short for any header is an error"
    for chunk_size in (7, 64):
        if whole != _read(data, chunk_size):
            pieces = _read(data, chunk_size)
            assert whole == pieces, "the size of the reads made a difference"


def check_memory(data: bytes) -> None:
    """What is held at once is bounded; apart from `check`, since watching memory is slow."""
    tracemalloc.start()
    try:
        for _ in islice(_items(data, 1 << 18), MAX_ITEMS):
            pass
        assert tracemalloc.get_traced_memory()[1] < MEMORY_LIMIT
    finally:
        tracemalloc.stop()


def _items(data: bytes, chunk_size: int) -> Iterator[Item]:
    return open_capture(["-"], stdin=io.BytesIO(data), chunk_size=chunk_size, frame_limit=FRAME_LIMIT)


def _read(data: bytes, chunk_size: int) -> list[Item]:
    return list(islice(_items(data, chunk_size), MAX_ITEMS))


def seeds() -> Iterator[bytes]:
    """Captures in every format and compression."""
    yield from (raw for _, raw in captures())
    for name in list(names())[::9]:
        some = frames(name)[:3]
        for order in "<>":
            for magic in (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34):
                yield pcap(some, order, magic)
    plain = pcap(frames("v5-qos")[:6], "<", 0xA1B2C3D4)
    modern = as_pcapng(frames("v5-qos")[:6])
    for raw in (plain, modern):
        yield raw
        yield gzip.compress(raw, mtime=0)
        yield gzip.compress(raw[:100], mtime=0) + gzip.compress(raw[100:], mtime=0)
        yield zstandard.ZstdCompressor(write_checksum=True).compress(raw)
        yield b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstandard.ZstdCompressor(level=19).compress(raw)
        yield lz4.frame.compress(raw)
        yield lz4.frame.compress(raw, block_checksum=True, content_checksum=True, block_linked=False)
        yield lz4.frame.compress(raw, compression_level=-10, store_size=False)
    yield all_blocks("<") + all_blocks(">")


_HEADER = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 20, 1)
_MANY = 64 << 20


def _huge_frame() -> bytes:
    return _HEADER + struct.pack("<IIII", 0, 0, FRAME_LIMIT, FRAME_LIMIT) + bytes(_MANY)


def _huge_block() -> bytes:
    return as_pcapng(()) + struct.pack("<II", 0x0BAD, FRAME_LIMIT) + bytes(_MANY)


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip of empty frames": lambda: gzip.compress(_HEADER + bytes(_MANY), mtime=0),
    "zstd of empty frames": lambda: zstandard.ZstdCompressor().compress(_HEADER + bytes(_MANY)),
    "lz4 of empty frames": lambda: lz4.frame.compress(_HEADER + bytes(_MANY)),
    "gzip inside one huge frame": lambda: gzip.compress(_huge_frame(), mtime=0),
    "gzip of a huge pcapng block": lambda: gzip.compress(_huge_block(), mtime=0),
    "gzip of nothing known": lambda: gzip.compress(bytes(_MANY), mtime=0),
    "a frame that claims 4 GiB": lambda: _HEADER + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0xFFFFFFFF),
}
"""What makes small files that stand for large ones."""


def pcap(some: tuple[Frame, ...], order: str, magic: int) -> bytes:
    """Frames as pcap."""
    unit = 1 if magic == 0xA1B23C4D else 1_000
    times = [divmod(frame.timestamp_ns, 1_000_000_000) for frame in some]
    records = [(second, rest // unit, frame.data) for frame, (second, rest) in zip(some, times, strict=True)]
    return pcap_file(records, order=order, magic=magic, snap_length=262_144)


def all_blocks(order: str) -> bytes:
    """One block of every kind that is read, and one that is not; of two interfaces."""
    end = option(0, b"", order)
    times = option(9, b"\x09", order) + option(14, bytes(8), order)
    other = interface(order, link_type=101, options=option(9, b"\x8a", order) + end)
    dropped = option(4, struct.pack(order + "Q", 7), order) + end
    return b"".join(
        (
            of_everything(order), interface(order, snap_length=96, options=times + end), other,
            enhanced(b"frame", order=order, index=1, options=dropped), enhanced(b"data", order=order, index=2),
            statistics(order, received=7, interface_drops=7, system_drops=7),
        )
    )  # fmt: skip
