"""Reads one open capture: at once, or in parts while it grows.

`read_capture` detects pcap and pcapng, compressed or not, by the first bytes.  `advance` finds how far a capture can be
read now; `read_on` reads a part.  All parts together yield exactly the frames, numbers and notices that `read_capture`
yields from the finished file, however the file grew: `ReaderState` carries everything from earlier parts that affects
later ones.

A capture that was compressed in the meantime is resumed as well (`read_rest`).  A `BoundedFile` shows a file at its
size at an earlier time, without later writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import BinaryIO, Final, cast

from mqttscope.capture.compressed import CHUNK_SIZE, ByteSource, is_compressed
from mqttscope.capture.pcap import FILE_HEADER_SIZE, FRAME_LIMIT, PCAP_MAGICS, FrameSink, ReaderState, read_pcap
from mqttscope.capture.pcapng import PCAPNG_MAGIC, read_pcapng
from mqttscope.errors import MqttscopeError
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame

NO_FRAME: Final = float("-inf")
"""Time of the first frame of a capture without frames; it sorts first."""
PIECE_BYTES: Final = 1 << 20
"""Bytes to read at a time, if available."""
_PEEK_SIZE: Final = 1 << 16
_FOREIGN: Final = (
    (b"snoop\0\0\0", "a snoop file"),
    (b"GMBU", "a Microsoft Network Monitor file"),
    (b"RTSS", "a Microsoft Network Monitor 1 file"),
    (b"btsnoop\0", "a Bluetooth snoop file"),
    (b"TRSNIFF data    \x1a", "a Sniffer file"),
    (b"iptrace ", "an AIX iptrace file"),
    (b"\xab\x01\x00\x1c", "an Ixia lcap file"),
    (b"\xac\x01\x00\x1c", "an Ixia lcap file"),
    (b"\x02\x21\x4c\x18", "an lz4 file of the legacy format"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
)
_LONGEST_FOREIGN: Final = max(len(magic) for magic, _ in _FOREIGN)


def read_capture(
    file: BinaryIO,
    capture: str,
    *,
    chunk_size: int = CHUNK_SIZE,
    frame_limit: int = FRAME_LIMIT,
    direct: FrameSink | None = None,
) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices of one capture that is open already; ``file`` need not be seekable and stays open.

    ``capture``: name for the frames.  Errors, limits and ``direct`` as for :func:`open_capture`.
    """
    source = ByteSource(file, chunk_size=chunk_size)
    head = source.fill(b"", 4)
    if head[:4] in PCAP_MAGICS:
        return read_pcap(source, head, capture, frame_limit=frame_limit, direct=direct)
    if head[:4] == PCAPNG_MAGIC:
        return read_pcapng(source, head, capture, frame_limit=frame_limit, direct=direct)
    head = source.fill(head, _LONGEST_FOREIGN)
    return iter((CaptureError(capture, source.fault or _foreign(head), 0, 0),))


def _foreign(head: bytes) -> str:
    """Reason why a file that begins with ``head`` is not supported."""
    if not head:
        return "is empty"
    start = f"(starts with {head[:4].hex(' ')})"
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            return f"is {name}, which is not supported {start}; convert it to pcap or pcapng"
    if is_compressed(head):
        return f"is compressed more than once {start}"
    return f"is not a capture file {start}; supported: pcap and pcapng, plain or compressed with gzip, zstd or lz4"


def first_time(file: BinaryIO) -> float:
    """Time of the first frame of a capture, to order captures; `NO_FRAME` for a capture without frames."""
    items = read_capture(file, "", chunk_size=_PEEK_SIZE)
    return next((item.timestamp_ns for item in items if isinstance(item, Frame)), NO_FRAME)


class BoundedFile:
    """The first ``size`` bytes of an open, seekable file, as a file positioned at the beginning."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._at = file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``; empty at the end."""
        left = max(0, self._size - self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset; returns the offset from the beginning."""
        if whence == os.SEEK_END:
            offset += min(self._size, self._file.seek(0, os.SEEK_END))
        elif whence == os.SEEK_CUR:
            offset += self._at
        self._at = self._file.seek(offset)
        return self._at

    def tell(self) -> int:
        return self._at


@dataclass(slots=True)
class CaptureRange:
    """A part of a capture between two reader states."""

    begin: ReaderState
    end: ReaderState | None
    """``None``: up to the end of the capture at ``size``, including its final notices."""
    size: int


class CaptureChangedError(MqttscopeError):
    """The content of a part differs from the measured one: the file was replaced."""


def can_grow(head: bytes) -> bool:
    """Whether a file that begins with ``head`` can be read while it grows: uncompressed pcap or pcapng."""
    return head[:4] in PCAP_MAGICS or head[:4] == PCAPNG_MAGIC


def may_be_compressed(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is compressed, and must be read at once when it is complete."""
    return is_compressed(head[:4])


def advance(file: BinaryIO, state: ReaderState, size: int, *, limit: int = PIECE_BYTES) -> int:
    """Advance in a plain capture by about ``limit`` bytes, at most to the last complete record of its ``size`` bytes.

    ``state`` is updated from the start to the end position.  Returns the number of bytes between: 0 if the next record
    is not there yet, or is damaged (``state.damaged``).
    """
    start = state.position
    if state.damaged:
        return 0
    while True:
        stop = min(size, start + limit)
        trial = state.copy()
        kinds = set(state.link_types)
        last: Frame | None = None
        for item in _read(file, "", trial, stop, more=True):
            if type(item) is Frame:
                last = item
                kinds.add(item.link_type)
        trial.link_types = sorted(kinds)
        if last is not None:
            trial.timestamp_ns = last.timestamp_ns
        if trial.position > start or trial.damaged or stop == size:
            break
        # The next record is longer than the limit.
        limit *= 4
    _assign(trial, state)
    return state.position - start


def read_on(file: BinaryIO, capture: str, part: CaptureRange) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices of a part, numbered as in the whole capture.

    ``file``: open and seekable.  Raises `CaptureChangedError` after the last frame if the file has changed.
    """
    state, end = part.begin.copy(), part.end
    yield from _read(file, capture, state, part.size if end is None else end.position, more=end is not None)
    if end is not None and (state.position, state.frames) != (end.position, end.frames):
        raise CaptureChangedError(
            f"has changed: frame {end.frames} ended at byte {end.position}, now frame {state.frames} at "
            f"{state.position}"
        )


def _assign(source: ReaderState, state: ReaderState) -> None:
    for state_field in fields(ReaderState):
        setattr(state, state_field.name, getattr(source, state_field.name))


def _read(
    file: BinaryIO, capture: str, state: ReaderState, stop: int, *, more: bool
) -> Iterator[Frame | CaptureNotice]:
    file.seek(0)
    head = read_exactly(file, 4)
    if head in PCAP_MAGICS:
        # The file header is read again, the records after it are not.
        if state.position:
            head += read_exactly(file, FILE_HEADER_SIZE - 4)
        source = ByteSource(cast(BinaryIO, FilePart(file, state.position or len(head), stop)), plain=True)
        yield from read_pcap(source, head, capture, state=state, more=more)
    elif head == PCAPNG_MAGIC:
        source = ByteSource(cast(BinaryIO, FilePart(file, state.position, stop)), plain=True)
        yield from read_pcapng(source, b"", capture, state=state, more=more)
    elif not state.position:
        # Compressed, or not a capture: read as a whole only.
        if not more:
            file.seek(0)
            yield from read_capture(cast(BinaryIO, FilePart(file, 0, stop)), capture)
    elif is_compressed(head) and not more:
        yield from _rest_of_compressed(file, capture, state, stop)
    else:
        yield CaptureError(capture, "has changed: it no longer begins like a capture", 0, state.frames)


def _rest_of_compressed(file: BinaryIO, capture: str, state: ReaderState, stop: int) -> Iterator[Frame | CaptureNotice]:
    """Frames after a position of a capture that was compressed since it was read up to there."""
    head = ByteSource(cast(BinaryIO, FilePart(file, 0, stop))).fill(b"", FILE_HEADER_SIZE)[:FILE_HEADER_SIZE]
    source = ByteSource(cast(BinaryIO, FilePart(file, 0, stop)))
    source.skip(state.position)
    if head[:4] in PCAP_MAGICS:
        yield from read_pcap(source, head, capture, state=state)
    else:
        yield from read_pcapng(source, b"", capture, state=state)


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """The next bytes of a file; fewer at its end."""
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


class FilePart:
    """Bytes of a file up to an offset, or to its end, as a file; ``head`` is inserted before them."""

    def __init__(self, file: BinaryIO, start: int, stop: int | None, head: bytes = b"") -> None:
        file.seek(start)
        self._file = file
        self._head = head
        self._left = None if stop is None else stop - start

    def read(self, size: int) -> bytes:
        """The next bytes, at most ``size`` except for the head; empty at the end."""
        if self._head:
            data, self._head = self._head, b""
            return data
        if self._left is None:
            return self._file.read(size)
        data = self._file.read(max(0, min(size, self._left)))
        self._left -= len(data)
        return data


def state_at(file: BinaryIO, position: int) -> ReaderState:
    """State of a reader at an uncompressed position, or at the end of the last complete record before it.

    ``file``: open and seekable.  Notices due at the end of the capture count as already reported.
    """
    file.seek(0)
    content = cast(BinaryIO, _Uncompressed(file)) if may_be_compressed(file.read(4)) else file
    state = ReaderState()
    while state.position < position and advance(content, state, position, limit=position):
        pass
    state.beyond = 0
    for interface in state.interfaces:
        interface.dropped = max(interface.dropped, interface.dropped_between)
    return state


def read_rest(file: BinaryIO, capture: str, position: int) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices after an uncompressed position; frames are numbered as in the whole capture.

    ``file``: open and seekable.  A record that was incomplete at the position is included.
    """
    state = state_at(file, position)
    yield from read_on(file, capture, CaptureRange(state, None, file.seek(0, os.SEEK_END)))


def first_after(file: BinaryIO, position: int) -> tuple[int, float]:
    """Number of frames before a position, and the time of the first frame after it, or `NO_FRAME`."""
    state = state_at(file, position)
    items = read_on(file, "", CaptureRange(state, None, file.seek(0, os.SEEK_END)))
    return state.frames, next((item.timestamp_ns for item in items if isinstance(item, Frame)), NO_FRAME)


class _Uncompressed:
    """The content of a compressed file, as a file: seeking back decompresses from scratch."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek(0)

    def seek(self, offset: int) -> int:
        """Move to an offset from the beginning."""
        self._file.seek(0)
        self._source = ByteSource(self._file)
        self._source.skip(offset)
        return offset

    def read(self, size: int) -> bytes:
        """The next bytes; fewer at the end or before damage."""
        data = self._source.fill(b"", size)
        self._source.give_back(data[size:])
        return data[:size]
