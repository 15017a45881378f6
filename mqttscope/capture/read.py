"""Reading one capture that is open: at once, or resumed where an earlier reading stopped while it grows.

`read_capture` tells pcap and pcapng, compressed or not, apart by what they begin with.  `advance` finds how far a
capture can be read now; `read_on` gives what lies between two such places.  What all parts give together is what
`read_capture` gives of the finished file, numbers of frames and notices included, however the file grew: `ReaderState`
holds what of the parts before has a say in those that follow.

A capture that was compressed in between is resumed as well (`read_rest`).  A `BoundedFile` is a file as it was when
somebody looked: what was written since is not there.
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
"""Time of the first frame where there is none: these captures come first."""
PIECE_BYTES: Final = 1 << 20
"""How much is read at least, where there is so much."""
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
    """Why a file that begins with ``head`` is not read."""
    if not head:
        return "is empty"
    start = f"(starts with {head[:4].hex(' ')})"
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            return f"is {name}, which is not read {start}; convert it to pcap or pcapng"
    if is_compressed(head):
        return f"is compressed more than once {start}"
    return f"is not a capture file {start}; pcap and pcapng are read, plain or compressed with gzip, zstd or lz4"


def first_time(file: BinaryIO) -> float:
    """Time of the first frame of a capture, by which captures are ordered; `NO_FRAME` where there is none."""
    items = read_capture(file, "", chunk_size=_PEEK_SIZE)
    return next((item.timestamp_ns for item in items if isinstance(item, Frame)), NO_FRAME)


class BoundedFile:
    """The first bytes of an open, seekable file, as a file that is at its beginning."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._at = file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``; none at the end."""
        left = max(0, self._size - self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset; returns the one from the beginning."""
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
    """A part of a capture: from where to where."""

    begin: ReaderState
    end: ReaderState | None
    """``None``: to its end, which is at ``size``, with what is to be told there."""
    size: int


class CaptureChangedError(MqttscopeError):
    """A part does not hold what it held when it was measured: the file is another one."""


def can_grow(head: bytes) -> bool:
    """Whether a file that begins with ``head`` can be read while it grows: pcap and pcapng that are not compressed."""
    return head[:4] in PCAP_MAGICS or head[:4] == PCAPNG_MAGIC


def may_be_compressed(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is compressed, and to be read in one go when it is complete."""
    return is_compressed(head[:4])


def advance(file: BinaryIO, memory: ReaderState, size: int, *, limit: int = PIECE_BYTES) -> int:
    """Read on in a plain capture by about ``limit`` bytes, at most to the last complete record of its ``size`` bytes.

    ``memory`` is where to begin and then where this ended.  Returns the number of bytes that were passed: 0 when there
    is no further record yet, or when the next one is damaged (``memory.damaged``).
    """
    start = memory.position
    if memory.damaged:
        return 0
    while True:
        stop = min(size, start + limit)
        trial = memory.copy()
        kinds = set(memory.link_types)
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
        # The next record is longer than this.
        limit *= 4
    _take(trial, memory)
    return memory.position - start


def read_on(file: BinaryIO, capture: str, part: CaptureRange) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices of a part, numbered as in the whole capture.

    ``file``: open and seekable.  Raises `CaptureChangedError` after the last frame if the file has changed.
    """
    memory, end = part.begin.copy(), part.end
    yield from _read(file, capture, memory, part.size if end is None else end.position, more=end is not None)
    if end is not None and (memory.position, memory.frames) != (end.position, end.frames):
        raise CaptureChangedError(
            f"has changed: frame {end.frames} ended at byte {end.position}, now frame {memory.frames} at "
            f"{memory.position}"
        )


def _take(found: ReaderState, memory: ReaderState) -> None:
    for one in fields(ReaderState):
        setattr(memory, one.name, getattr(found, one.name))


def _read(
    file: BinaryIO, capture: str, memory: ReaderState, stop: int, *, more: bool
) -> Iterator[Frame | CaptureNotice]:
    file.seek(0)
    head = read_exactly(file, 4)
    if head in PCAP_MAGICS:
        # The file header is read again, the records after it are not.
        if memory.position:
            head += read_exactly(file, FILE_HEADER_SIZE - 4)
        source = ByteSource(cast(BinaryIO, FilePart(file, memory.position or len(head), stop)), plain=True)
        yield from read_pcap(source, head, capture, memory=memory, more=more)
    elif head == PCAPNG_MAGIC:
        source = ByteSource(cast(BinaryIO, FilePart(file, memory.position, stop)), plain=True)
        yield from read_pcapng(source, b"", capture, memory=memory, more=more)
    elif not memory.position:
        # Compressed, or no capture at all: there is only the whole.
        if not more:
            file.seek(0)
            yield from read_capture(cast(BinaryIO, FilePart(file, 0, stop)), capture)
    elif is_compressed(head) and not more:
        yield from _rest_of_compressed(file, capture, memory, stop)
    else:
        yield CaptureError(capture, "has changed: it does not begin like a capture any more", 0, memory.frames)


def _rest_of_compressed(
    file: BinaryIO, capture: str, memory: ReaderState, stop: int
) -> Iterator[Frame | CaptureNotice]:
    """What comes after a position of a capture that was compressed when it had been read up to there."""
    head = ByteSource(cast(BinaryIO, FilePart(file, 0, stop))).fill(b"", FILE_HEADER_SIZE)[:FILE_HEADER_SIZE]
    source = ByteSource(cast(BinaryIO, FilePart(file, 0, stop)))
    source.skip(memory.position)
    if head[:4] in PCAP_MAGICS:
        yield from read_pcap(source, head, capture, memory=memory)
    else:
        yield from read_pcapng(source, b"", capture, memory=memory)


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """The next bytes of a file; fewer at its end."""
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


class FilePart:
    """Bytes of a file up to an offset, or to its end, as a file; before them others, which may be empty."""

    def __init__(self, file: BinaryIO, start: int, stop: int | None, head: bytes = b"") -> None:
        file.seek(start)
        self._file = file
        self._head = head
        self._left = None if stop is None else stop - start

    def read(self, size: int) -> bytes:
        """Some bytes, at most ``size``, but for the head; none at the end."""
        if self._head:
            data, self._head = self._head, b""
            return data
        if self._left is None:
            return self._file.read(size)
        data = self._file.read(max(0, min(size, self._left)))
        self._left -= len(data)
        return data


def memory_at(file: BinaryIO, position: int) -> ReaderState:
    """What a reader remembers that came to a position, uncompressed, or to the last whole record before it.

    ``file``: open and seekable.  What it had to say at the end by then counts as told.
    """
    file.seek(0)
    content = cast(BinaryIO, _Uncompressed(file)) if may_be_compressed(file.read(4)) else file
    memory = ReaderState()
    while memory.position < position and advance(content, memory, position, limit=position):
        pass
    memory.beyond = 0
    for interface in memory.interfaces:
        interface.dropped = max(interface.dropped, interface.dropped_between)
    return memory


def read_rest(file: BinaryIO, capture: str, position: int) -> Iterator[Frame | CaptureNotice]:
    """Frames and notices after a position, uncompressed; frames have the numbers that they have in the whole capture.

    ``file``: open and seekable.  A record that was not whole at the position comes as well.
    """
    memory = memory_at(file, position)
    yield from read_on(file, capture, CaptureRange(memory, None, file.seek(0, os.SEEK_END)))


def first_after(file: BinaryIO, position: int) -> tuple[int, float]:
    """How many frames lie before a position, and the time of the first one after it, or `NO_FRAME`."""
    memory = memory_at(file, position)
    items = read_on(file, "", CaptureRange(memory, None, file.seek(0, os.SEEK_END)))
    return memory.frames, next((item.timestamp_ns for item in items if isinstance(item, Frame)), NO_FRAME)


class _Uncompressed:
    """The content of a compressed file, as a file: seeking back decompresses from scratch."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek(0)

    def seek(self, offset: int) -> int:
        """Go to an offset from the beginning."""
        self._file.seek(0)
        self._source = ByteSource(self._file)
        self._source.skip(offset)
        return offset

    def read(self, size: int) -> bytes:
        """The next bytes; fewer at the end, and before damage."""
        data = self._source.fill(b"", size)
        self._source.give_back(data[size:])
        return data[:size]
