"""Unpacks compressed payloads, recognised by their first bytes or declared as compressed, up to a limit of bytes."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final, Protocol

from mqttscope.mqtt.wire import counted

MAX_NESTED = 3
"""Maximum number of nested compressions that are unpacked."""
MAX_ZSTD_WINDOW_BYTES = 1 << 23
"""Maximum window of a zstd frame; the recommendation of the format for decoders."""

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
class UnpackedData:
    """Unpacked data of a payload."""

    data: bytes
    steps: list[str] = field(default_factory=list)
    """Formats from the outside in: ``["gzip"]``."""
    cut: bool = False
    """Whether the output was cut off at the limit."""
    note: str = ""


def unpack(payload: bytes, limit: int, *, missing: int = 0) -> UnpackedData | None:
    """Unpack gzip, zlib, zstd and lz4, recognised by their first bytes, to at most ``limit`` bytes.

    ``None`` if the payload is not compressed.  Text may start with the two bytes of a zlib header, so text that does
    not unpack completely does not count as zlib; other formats get a note if they do not unpack.
    """
    unpacked: UnpackedData | None = None
    for _ in range(MAX_NESTED):
        data = payload if unpacked is None else unpacked.data
        name = recognised(data)
        if name is None or (unpacked is not None and unpacked.cut):
            break
        output, cut, problem = decompress(data, limit, name)
        if problem and ((name == "zlib" and data[:64].isascii()) or (not output and (name == "zlib" or unpacked))):
            break
        unpacked = unpacked or UnpackedData(payload)
        if not output and problem:
            unpacked.note = f"{name} does not unpack: {problem}"
            break
        unpacked.data, unpacked.cut = output, cut or bool(problem)
        unpacked.steps.append(name)
        if problem:
            unpacked.note = f"{name} is incomplete" if missing else f"{name}: {problem}"
        elif cut:
            unpacked.note = f"first {counted(limit, 'byte')} unpacked"
    else:
        inner = None if unpacked is None or unpacked.note else recognised(unpacked.data)
        if unpacked is not None and inner is not None and decompress(unpacked.data, limit, inner)[0]:
            unpacked.note = f"{inner} inside is not unpacked: more than {MAX_NESTED} compressions"
    return unpacked


def recognised(data: bytes) -> str | None:
    """Format according to the first bytes."""
    if data[:2] == GZIP:
        return "gzip"
    if data[:4] == ZSTD:
        return "zstd"
    if data[:4] == LZ4:
        return "lz4"
    return "zlib" if data[:2] in ZLIB else None


def decompress(data: bytes, limit: int, name: str) -> tuple[bytes, bool, str]:
    """Unpack one of `FORMATS`; returns at most ``limit`` bytes, whether there are more, and an error or empty."""
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
        output: bytes = machine.decompress(data, limit)
    except Exception as error:  # RuntimeError of the library, and MemoryError for impossible sizes
        return b"", False, str(error)[:120] or type(error).__name__
    if machine.eof:
        after = len(machine.unused_data or b"")
        return output, False, f"{counted(after, 'byte')} after its end" if after else ""
    if len(output) >= limit:
        return output, True, ""
    return output, False, "it ends too early"


def _deflate(data: bytes, limit: int, name: str) -> tuple[bytes, bool, str]:
    """Unpack gzip or zlib; returns like `decompress`."""
    machine = zlib.decompressobj(31 if name == "gzip" else 15)
    try:
        output = machine.decompress(data, limit)
        if machine.eof:
            behind = len(machine.unused_data)
            return output, False, f"{counted(behind, 'byte')} after its end" if behind else ""
        if len(output) >= limit:
            return output, True, ""
        return output, False, "it ends too early"
    except zlib.error as error:
        return _until_fault(data, limit, name), False, str(error).rpartition(": ")[2]


class _Machine(Protocol):
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


def _until_fault(data: bytes, limit: int, name: str) -> bytes:
    """Output before a fault: a piece with a fault yields nothing, so the last piece is fed byte by byte."""
    machine = zlib.decompressobj(31 if name == "gzip" else 15)
    output = bytearray()
    for at in range(0, len(data), _PIECE_BYTES):
        piece, before = data[at : at + _PIECE_BYTES], machine.copy()
        try:
            output += machine.decompress(piece, limit - len(output))
        except zlib.error:
            output += _byte_by_byte(before, piece, limit - len(output))
            break
        if len(output) >= limit:
            break
    return bytes(output)


def _byte_by_byte(machine: _Machine, piece: bytes, limit: int) -> bytes:
    output = bytearray()
    try:
        for at in range(len(piece)):
            output += machine.decompress(piece[at : at + 1], limit - len(output))
            if len(output) >= limit:
                break
    except zlib.error:
        pass
    return bytes(output)


def _zstd(data: bytes, limit: int) -> tuple[bytes, bool, str]:
    try:
        import zstandard
    except ImportError:
        return b"", False, "zstandard is not installed (pip install zstandard)"
    machine = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    output = b""
    try:
        with machine.stream_reader(data) as reader:
            while len(output) <= limit:
                piece = reader.read(limit + 1 - len(output))
                if not piece:
                    break
                output += piece
    except zstandard.ZstdError as error:
        return output[:limit], False, str(error).rpartition(": ")[2]
    try:
        announced = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        return output, False, "it ends too early"
    if len(output) < min(announced, limit):
        return output, False, "it ends too early"
    return output[:limit], len(output) > limit, ""
