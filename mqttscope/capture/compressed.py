"""Uncompressed bytes of a capture that is plain, gzip, zstd or lz4; the magic number decides, never the name.

Everything streams.  gzip output is requested in bounded pieces; zstd and lz4 are fed block by block, so one step yields
at most one block (128 KiB and 4 MiB by specification), whatever the compression ratio.  All data before damage is
returned: a gzip step that fails is repeated byte by byte from a copy of the state before it, and with zstd and lz4
reading stops in front of the damaged block.

Formats: RFC 1952 (gzip), RFC 8878 (zstd), https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md (lz4 frame).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, Final

from mqttscope.errors import MqttscopeError
from mqttscope.installation import package_command

CHUNK_SIZE: Final = 1 << 16
"""Bytes read, and uncompressed, at a time; larger chunks do not fit in the processor's nearer caches."""
COMPRESSED_CHUNK_SIZE: Final = 1 << 16
"""Maximum number of compressed bytes read at a time."""
LZ4_BLOCK_LIMIT: Final = 4 << 20
"""Maximum size of an lz4 block, by specification."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_LZ4: Final = b"\x04\x22\x4d\x18"
_GZIP_WBITS: Final = 31
_ZSTD_RLE_BLOCK: Final = 1


class DamagedError(MqttscopeError):
    """Compressed data cannot be read further; the message gives the reason.  Never leaves this package."""


class ByteSource:
    """Reads the uncompressed bytes of one capture from an open binary file, which need not be seekable.

    ``file``: source of the bytes; it stays open.
    ``chunk_size``: bytes read at a time.  A pipe returns what it has, so a live capture is not delayed.
    ``plain``: do not check for compression; the bytes are from the middle of a capture.
    """

    def __init__(self, file: BinaryIO, *, chunk_size: int = CHUNK_SIZE, plain: bool = False) -> None:
        self.fault: str | None = None
        """Reason why the bytes ended early, or ``None``."""
        self._chunks = _chunks(file, chunk_size) if plain else _uncompressed(file, chunk_size)
        self._given_back = b""

    def fill(self, rest: bytes, need: int) -> bytes:
        """``rest`` followed by the next bytes: at least ``need`` bytes in all, fewer only at the end of the data."""
        have = len(rest)
        parts = [rest]
        while have < need and self.fault is None:
            try:
                chunk = self._given_back or next(self._chunks, None)
                self._given_back = b""
            except DamagedError as error:
                self.fault = str(error)
                break
            except OSError as error:
                self.fault = f"cannot be read any further: {error.strerror or error}"
                break
            if chunk is None:
                break
            parts.append(chunk)
            have += len(chunk)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Skip the next ``size`` bytes, or all remaining bytes if there are fewer."""
        while size > 0 and (piece := self.fill(b"", 1)):
            self.give_back(piece[size:])
            size -= len(piece)

    def give_back(self, data: bytes) -> None:
        self._given_back = data + self._given_back


def is_compressed(head: bytes) -> bool:
    """Whether ``head``, the first four bytes of a file, begins one of the compressed formats read here."""
    return head[:2] == _GZIP or head[:4] in (_ZSTD, _LZ4) or _is_skippable(head)


def _chunks(file: BinaryIO, chunk_size: int) -> Iterator[bytes]:
    while chunk := file.read(chunk_size):
        yield chunk


def _uncompressed(file: BinaryIO, chunk_size: int) -> Iterator[bytes]:
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    head = b""
    while len(head) < 4:
        chunk = read(chunk_size)
        if not chunk:
            break
        head += chunk
    if is_compressed(head):
        yield from _members(_Input(read, head, min(chunk_size, COMPRESSED_CHUNK_SIZE)), chunk_size)
        return
    if head:
        yield head
    while chunk := read(chunk_size):
        yield chunk


class _Input:
    """Compressed bytes with a position."""

    def __init__(self, read: Callable[[int], bytes], head: bytes, chunk_size: int) -> None:
        self._read = read
        self._chunk_size = chunk_size
        self._buffer = head
        self._position = 0

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes without consuming them; fewer at the end."""
        have = len(self._buffer) - self._position
        if have < size:
            parts = [self._buffer[self._position :]]
            while have < size and (chunk := self._read(self._chunk_size)):
                parts.append(chunk)
                have += len(chunk)
            self._buffer = b"".join(parts)
            self._position = 0
        return self._buffer[self._position : self._position + size]

    def take(self, size: int, what: str) -> bytes:
        """Consume the next ``size`` bytes; :class:`DamagedError` if the data ends before."""
        data = self.peek(size)
        if len(data) < size:
            raise DamagedError(f"is truncated: the {what} data end early")
        self._position += size
        return data

    def some(self, limit: int = COMPRESSED_CHUNK_SIZE) -> bytes:
        """Consume the bytes that are available, at least one and at most ``limit``; empty at the end."""
        self.peek(1)
        data = self._buffer[self._position : self._position + limit]
        self._position += len(data)
        return data

    def give_back(self, size: int) -> None:
        """Put back the last ``size`` bytes that :meth:`some` returned last."""
        self._position -= size


def _members(source: _Input, chunk_size: int) -> Iterator[bytes]:
    """Content of all gzip members, zstd frames and lz4 frames, in order; skippable frames are empty."""
    while head := source.peek(4):
        if head[:2] == _GZIP:
            yield from _gzip_member(source, chunk_size)
        elif head == _ZSTD:
            yield from _zstd_frame(source)
        elif head == _LZ4:
            yield from _lz4_frame(source)
        elif _is_skippable(head):
            _skip_frame(source)
        elif not _skip_zero_padding(source):
            raise DamagedError(f"has bytes after the end of the compressed data (they start with {head.hex(' ')})")


def _is_skippable(head: bytes) -> bool:
    # zstd and lz4 share these frames; pzstd begins its files with one.
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18"


def _skip_frame(source: _Input) -> None:
    left = int.from_bytes(source.take(8, "compressed")[4:], "little")
    while left:
        data = source.some(min(left, COMPRESSED_CHUNK_SIZE))
        if not data:
            raise DamagedError("is truncated: the compressed data end early")
        left -= len(data)


def _skip_zero_padding(source: _Input) -> bool:
    """Skip the zeros that tapes and some loggers append to a gzip member; ``False`` if other data follow."""
    while data := source.some():
        if data.strip(b"\0"):
            return False
    return True


def _gzip_member(source: _Input, chunk_size: int) -> Iterator[bytes]:
    member = zlib.decompressobj(_GZIP_WBITS)
    data = b""
    # Steps grow: bytes read beyond the end of a member are copied, and a file may have very many small members.
    step = 1 << 10
    full = False
    while not member.eof:
        if not data and not full:  # after a full piece the decompressor may still hold output
            data = source.some(step)
            step = min(step * 2, COMPRESSED_CHUNK_SIZE)
            if not data:
                raise DamagedError("is truncated: the gzip data end early")
        before = member.copy()
        try:
            output = member.decompress(data, chunk_size)
        except zlib.error as error:
            yield from _gzip_up_to_damage(before, data)
            raise DamagedError(f"is damaged: {_zlib_reason(error)}") from error
        data, full = member.unconsumed_tail, len(output) == chunk_size
        if output:
            yield output
    source.give_back(len(member.unused_data))


def _gzip_up_to_damage(member: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    # One byte in, one byte out: a call that fails discards its own output only.
    output = bytearray()
    with suppress(zlib.error):
        for at in range(-1, len(data)):  # the first round adds no input: the last step may have reached its limit
            byte = data[at : at + 1] if at >= 0 else b""
            while piece := member.decompress(byte, 1):
                output += piece
                byte = member.unconsumed_tail
    if output:
        yield bytes(output)


def _no_package(compression: str, package: str) -> str:
    return f"is compressed with {compression}, and {package} is not installed ({package_command(package)})"


def _zlib_reason(error: zlib.error) -> str:
    return f"the gzip data do not uncompress ({str(error).rpartition(': ')[2]})"


def _zstd_frame(source: _Input) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise DamagedError(_no_package("zstd", "zstandard")) from None

    # The longest frame header has 18 bytes (RFC 8878 section 3.1.1.1).
    head = source.peek(18)
    try:
        header_size = zstandard.frame_header_size(head)
        parameters = zstandard.get_frame_parameters(head)
        frame = zstandard.ZstdDecompressor().decompressobj()
        frame.decompress(source.take(header_size, "zstd"))
        last = False
        while not last:
            block_header = source.take(3, "zstd")
            fields = int.from_bytes(block_header, "little")
            last = bool(fields & 1)
            size = 1 if fields >> 1 & 3 == _ZSTD_RLE_BLOCK else fields >> 3
            if size > zstandard.BLOCKSIZE_MAX:
                raise DamagedError(f"is damaged: a zstd block claims {size} bytes")
            if output := frame.decompress(block_header + source.take(size, "zstd")):
                yield output
        if parameters.has_checksum:
            frame.decompress(source.take(4, "zstd"))
    except zstandard.ZstdError as error:
        if len(head) < 18 and source.peek(19) == head:
            raise DamagedError("is truncated: the zstd data end early") from error
        raise DamagedError(f"is damaged: the zstd data do not uncompress ({str(error).rpartition(': ')[2]})") from error


def _lz4_frame(source: _Input) -> Iterator[bytes]:
    try:
        import lz4.frame
    except ImportError:
        raise DamagedError(_no_package("lz4", "lz4")) from None

    frame = lz4.frame.LZ4FrameDecompressor()
    flags = source.peek(5)[4:]
    if not flags:
        raise DamagedError("is truncated: the lz4 data end early")
    has_block_checksum, has_content_size = flags[0] & 0x10, flags[0] & 0x08
    has_content_checksum, has_dictionary = flags[0] & 0x04, flags[0] & 0x01
    header_size = 7 + (8 if has_content_size else 0) + (4 if has_dictionary else 0)
    try:
        frame.decompress(source.take(header_size, "lz4"))
        while True:
            block_header = source.take(4, "lz4")
            size = int.from_bytes(block_header, "little") & 0x7FFF_FFFF
            if not size:
                end = block_header + (source.take(4, "lz4") if has_content_checksum else b"")
                frame.decompress(end, max_length=LZ4_BLOCK_LIMIT)
                return
            if size > LZ4_BLOCK_LIMIT:
                raise DamagedError(f"is damaged: an lz4 block claims {size} bytes")
            block = source.take(size + (4 if has_block_checksum else 0), "lz4")
            # Without ``max_length`` the decompressor withholds output beyond its first guess.
            if output := frame.decompress(block_header + block, max_length=LZ4_BLOCK_LIMIT):
                yield output
    except (RuntimeError, EOFError) as error:
        raise DamagedError(f"is damaged: the lz4 data do not uncompress ({str(error).rpartition(': ')[2]})") from error
