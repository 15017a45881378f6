"""Unpacks compressed payloads, recognised by their first bytes or said to be compressed, to a limit of bytes."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqttscope.mqtt.wire import counted

MAX_NESTED = 3
"""Maximum number of compressions, one in the other, that are unpacked."""
MAX_ZSTD_WINDOW_BYTES = 1 << 23
"""Maximum window that a zstd frame asks memory for; the recommendation of the format for decoders."""

_PIECE_BYTES = 4096

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
LZ4 = b"\x04\x22\x4d\x18"

FORMATS: Final = ("gzip", "zlib", "zstd", "lz4")
"""Names of compressions."""
FIRST_BYTES: Final = (0x1F, 0x78, 0x28, 0x04)
"""First bytes of payloads that `unpack` may recognise."""


@dataclass(slots=True)
class Unpacked:
    """What was inside."""

    data: bytes
    steps: list[str] = field(default_factory=list)
    """Formats from the outside in: ``["gzip"]``."""
    cut: bool = False
    """More would have come out."""
    note: str = ""


def unpack(payload: bytes, limit: int, *, missing: int = 0) -> Unpacked | None:
    """Unpack gzip, zlib, zstd and lz4, recognised by their first bytes, to at most ``limit`` bytes.

    None when the payload is not compressed.  A zlib header is only two bytes that text may begin with, so text that
    does not unpack in full is no zlib; the others carry a note where they do not unpack.
    """
    found: Unpacked | None = None
    for _ in range(MAX_NESTED):
        data = payload if found is None else found.data
        name = recognised(data)
        if name is None or (found is not None and found.cut):
            break
        made, cut, problem = decompress(data, limit, name)
        if problem and ((name == "zlib" and data[:64].isascii()) or (not made and (name == "zlib" or found))):
            break
        found = found or Unpacked(payload)
        if not made and problem:
            found.note = f"{name} does not unpack: {problem}"
            break
        found.data, found.cut = made, cut or bool(problem)
        found.steps.append(name)
        if problem:
            found.note = f"{name} is incomplete" if missing else f"{name}: {problem}"
        elif cut:
            found.note = f"first {counted(limit, 'byte')} unpacked"
    else:
        inner = None if found is None or found.note else recognised(found.data)
        if found is not None and inner is not None and decompress(found.data, limit, inner)[0]:
            found.note = f"{inner} inside is not unpacked: more than {MAX_NESTED} compressions"
    return found


def recognised(data: bytes) -> str | None:
    """The format that data has by its first bytes."""
    if data[:2] == GZIP:
        return "gzip"
    if data[:4] == ZSTD:
        return "zstd"
    if data[:4] == LZ4:
        return "lz4"
    return "zlib" if data[:2] in ZLIB else None


def decompress(data: bytes, limit: int, name: str) -> tuple[bytes, bool, str]:
    """What comes out of data of one of `FORMATS`, at most ``limit`` bytes; whether there is more; what is wrong."""
    if name == "zstd":
        return _zstd(data, limit)
    return _lz4(data, limit) if name == "lz4" else _deflate(data, limit, name)


def _lz4(data: bytes, limit: int) -> tuple[bytes, bool, str]:
    try:
        import lz4.frame
    except ImportError:
        return b"", False, "lz4 is not installed (pip install lz4)"
    machine = lz4.frame.LZ4FrameDecompressor()
    try:
        made: bytes = machine.decompress(data, limit)
    except Exception as error:  # RuntimeError of the library, and MemoryError of sizes that cannot be
        return b"", False, str(error)[:120] or type(error).__name__
    if machine.eof:
        after = len(machine.unused_data or b"")
        return made, False, f"{counted(after, 'byte')} after its end" if after else ""
    if len(made) >= limit:
        return made, True, ""
    return made, False, "it ends too early"


def _deflate(data: bytes, limit: int, name: str) -> tuple[bytes, bool, str]:
    """What comes out, whether there is more, and what is wrong."""
    machine = zlib.decompressobj(31 if name == "gzip" else 15)
    try:
        made = machine.decompress(data, limit)
        if machine.eof:
            behind = len(machine.unused_data)
            return made, False, f"{counted(behind, 'byte')} after its end" if behind else ""
        if len(made) >= limit:
            return made, True, ""
        return made, False, "it ends too early"
    except zlib.error as error:
        return _until_fault(data, limit, name), False, str(error).rpartition(": ")[2]


class _Machine(Protocol):
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


def _until_fault(data: bytes, limit: int, name: str) -> bytes:
    """What came out before the fault: a piece with a fault gives nothing, so the last one is fed byte by byte."""
    machine = zlib.decompressobj(31 if name == "gzip" else 15)
    made = bytearray()
    for at in range(0, len(data), _PIECE_BYTES):
        piece, before = data[at : at + _PIECE_BYTES], machine.copy()
        try:
            made += machine.decompress(piece, limit - len(made))
        except zlib.error:
            made += _byte_by_byte(before, piece, limit - len(made))
            break
        if len(made) >= limit:
            break
    return bytes(made)


def _byte_by_byte(machine: _Machine, piece: bytes, limit: int) -> bytes:
    made = bytearray()
    try:
        for at in range(len(piece)):
            made += machine.decompress(piece[at : at + 1], limit - len(made))
            if len(made) >= limit:
                break
    except zlib.error:
        pass
    return bytes(made)


def _zstd(data: bytes, limit: int) -> tuple[bytes, bool, str]:
    try:
        import zstandard
    except ImportError:
        return b"", False, "zstandard is not installed (pip install zstandard)"
    machine = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    made = b""
    try:
        with machine.stream_reader(data) as reader:
            while len(made) <= limit:
                piece = reader.read(limit + 1 - len(made))
                if not piece:
                    break
                made += piece
    except zstandard.ZstdError as error:
        return made[:limit], False, str(error).rpartition(": ")[2]
    try:
        announced = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        return made, False, "it ends too early"
    if len(made) < min(announced, limit):
        return made, False, "it ends too early"
    return made[:limit], len(made) > limit, ""
