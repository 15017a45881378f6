"""Writes captures: pcapng, rings of files, private files, and synthetic frames.

`PcapngWriter` exists because dpkt writes one interface per file, times as floating point numbers and no original
lengths.  Format: draft-ietf-opsawg-pcapng; little-endian, one section, one interface per link type.

A `Recorder` writes a live capture: a file, or a ring of files that removes the oldest.  The files are readable at any
time, also after the program was killed: blocks are gathered and written in one piece several times a second, so that a
file ends between two blocks, or at worst inside its last block.

New files have the mode 0600 and new folders 0700, because captures may contain secrets.  A default ACL of an existing
folder overrides this; existing files keep their mode.  Only one program at a time writes a capture.

`ip_frame` builds the frames of captures without an interface: recordings of live runs, generated captures, and copies
of TLS flows for tshark.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from mqttscope.net.frame import Frame
from mqttscope.system import lock

PRIVATE = 0o600
"""Mode of new captures, which may contain passwords."""


def open_alone(path: str | os.PathLike[str], *, fresh: bool = False) -> int:
    """A descriptor of a new or truncated file, for writing.

    `OSError` if it cannot be created, or if another program is writing it (the blocks would be mixed).  ``fresh``:
    `FileExistsError` if the file exists.  Pipes and devices are opened without changes.
    """
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | (os.O_EXCL if fresh else 0), PRIVATE)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            if not lock(descriptor):
                raise OSError(errno.EWOULDBLOCK, "another program is writing it")
            os.ftruncate(descriptor, 0)
    except OSError as error:
        os.close(descriptor)
        error.filename = os.fspath(path)
        raise
    return descriptor


_OWNER_ONLY = 0o077
_umask = _OWNER_ONLY
"""The umask of new private files and folders."""


@contextmanager
def for_the_owner() -> Iterator[None]:
    """Create files and folders for their owner only; a default ACL of the folder overrides it, as it does any umask."""
    before = os.umask(_umask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def shared_like(folder: Path) -> Iterator[None]:
    """Create files and folders for the group of a folder that has the setgid bit; all others are for the owner only."""
    global _umask
    before = _umask
    try:
        with suppress(OSError):
            mode = folder.stat().st_mode
            _umask = _OWNER_ONLY & ~(mode & 0o070) if mode & stat.S_ISGID else _OWNER_ONLY
        yield
    finally:
        _umask = before


def opener(path: str, flags: int) -> int:
    """Opener for ``open``: a new file is readable only for its owner."""
    with for_the_owner():
        return open_shared(path, flags)


def open_shared(path: str, flags: int) -> int:
    """Opener for ``open``: a new file gets its mode from the umask."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents."""
    with for_the_owner():
        Path(path).mkdir(parents=True, exist_ok=True)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file atomically: until it is complete, readers see the old file.  Raises `OSError`.

    Links remain, and lead to the new file.  Pipes, devices and files in a folder without write permission are written
    in place.
    """
    target = os.path.realpath(path)
    there = os.path.exists(target)
    if there and (not os.path.isfile(target) or not os.access(os.path.dirname(target), os.W_OK)):
        with open(target, "wb", opener=opener) as file:
            file.write(data)
        return
    new = f"{target}.{os.getpid()}.new"
    try:
        with open(new, "xb", opener=opener) as file:
            file.write(data)
        replace_file(new, target)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                os.unlink(new)
        raise


def replace_file(new: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Replace a file by a new one, which keeps the mode of the old one."""
    with suppress(OSError):
        os.chmod(new, stat.S_IMODE(os.stat(path).st_mode))
    os.replace(new, path)


APPLICATION = b"mqttscope"
"""Name of the writer in the section header."""
EARLIER_OFFSET = -(1 << 34)
"""Clock offset in seconds of the interfaces for times before 1970, which pcapng cannot represent without an offset."""

_OPTION_COMMENT = 1
_OPTION_APPLICATION = 4
_OPTION_RECEIVED = 4  # of an Interface Statistics Block, as the next
_OPTION_DROPPED = 5
_OPTION_TIME_RESOLUTION = 9
_OPTION_TIME_OFFSET = 14
_ENHANCED_OVERHEAD = 32
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class PcapngWriter:
    """Writes frames to a pcapng file.

    ``path_or_file``: a path, which is created or overwritten and closed by :meth:`close`; or an open binary file, which
    is flushed and stays open.
    ``comment``: description of the file; at most 65,535 bytes.
    ``nanoseconds``: whether times have nanoseconds, or are cut to microseconds for readers that support no more.
    Opening and writing raise :class:`OSError` as files do.
    """

    def __init__(
        self, path_or_file: str | os.PathLike[str] | BinaryIO, *, nanoseconds: bool = True, comment: str = ""
    ) -> None:
        self._owned = isinstance(path_or_file, str | os.PathLike)
        self._file: BinaryIO
        if isinstance(path_or_file, str | os.PathLike):
            self._file = open(path_or_file, "wb", opener=opener)  # noqa: SIM115 (closed by close)
        else:
            self._file = path_or_file
        self._nanoseconds = nanoseconds
        self._interfaces: dict[tuple[int, bool], int] = {}
        self._closed = False
        self._pack = struct.Struct("<IIIIIII").pack
        # No section length: it is unknown before the end, and a pipe cannot seek back.
        section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        if comment:
            section += _option(_OPTION_COMMENT, comment.encode())
        section += _option(_OPTION_APPLICATION, APPLICATION) + _option(0, b"")
        self._file.write(_block(0x0A0D0D0A, section))

    def write(self, frame: Frame, comment: str = "") -> None:
        """Append a frame: its bytes, length on the wire, time and link type, but not its number and capture.

        ``comment`` is stored with the frame; at most 65,535 bytes.
        :class:`ValueError` for a frame that pcapng cannot represent: a link type over 65535, a length over 32 bits, a
        time that is not a signed 64-bit number of nanoseconds.
        """
        earlier = frame.timestamp_ns < 0
        interface = self._interfaces.get((frame.link_type, earlier))
        if interface is None:
            interface = self._describe_interface(frame.link_type, earlier)
        ticks = frame.timestamp_ns - EARLIER_OFFSET * 1_000_000_000 if earlier else frame.timestamp_ns
        if not self._nanoseconds:
            ticks //= 1000
        captured = len(frame.data)
        padding = _PADDING[captured & 3]
        options = _option(_OPTION_COMMENT, comment.encode()) + _option(0, b"") if comment else b""
        length = _ENHANCED_OVERHEAD + captured + len(padding) + len(options)
        try:
            header = self._pack(6, length, interface, ticks >> 32, ticks & 0xFFFFFFFF, captured, frame.original_length)
        except struct.error as error:
            raise ValueError(f"frame {frame.number} of {frame.capture} does not fit into pcapng: {error}") from error
        self._file.write(b"".join((header, frame.data, padding, options, header[4:8])))

    def write_drops(self, received: int | None, dropped: int) -> None:
        """Append an Interface Statistics Block of the first interface, if a frame was written.

        ``received``: number of frames that the interface received, if known; ``dropped``: number of these that are not
        in the capture.
        """
        if not self._interfaces:
            return
        options = b"" if received is None else _option(_OPTION_RECEIVED, struct.pack("<Q", received))
        options += _option(_OPTION_DROPPED, struct.pack("<Q", dropped)) + _option(0, b"")
        self._file.write(_block(5, struct.pack("<III", 0, 0, 0) + options))

    def close(self) -> None:
        """Finish the file; repeated calls have no effect."""
        if self._closed:
            return
        self._closed = True
        if self._owned:
            self._file.close()
        else:
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _describe_interface(self, link_type: int, earlier: bool) -> int:
        if not 0 <= link_type <= 0xFFFF:
            raise ValueError(f"link type {link_type} does not fit into pcapng")
        options = _option(_OPTION_TIME_RESOLUTION, b"\x09" if self._nanoseconds else b"\x06")
        if earlier:
            options += _option(_OPTION_TIME_OFFSET, struct.pack("<q", EARLIER_OFFSET))
        # Snap length 0 means "no limit".
        self._file.write(_block(1, struct.pack("<HHI", link_type, 0, 0) + options + _option(0, b"")))
        index = self._interfaces[link_type, earlier] = len(self._interfaces)
        return index


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + _PADDING[len(value) & 3]


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


GATHERED_BYTES = 1 << 18
"""Threshold for the buffered bytes; above it, the buffer is written."""


class Recorder:
    """Writes frames to a pcapng file, or to a ring of files.

    ``ring_bytes``: size that ends a file; the next file is ``NAME_00001_20260102T030405.pcapng`` with the time (UTC) of
    its first frame.  ``ring_files``: maximum number of files kept.  Files from before this run are never removed.
    `OSError` if a file cannot be written.
    """

    def __init__(self, path: str, *, ring_bytes: int | None = None, ring_files: int | None = None) -> None:
        self.path = Path(path)
        self.ring_bytes = ring_bytes
        self.ring_files = ring_files
        self.frames = 0
        self.files = 0
        """Number of files begun."""
        self.removed = 0
        """Number of files removed, to limit the size of the ring."""
        self.current: Path | None = None
        self._ring: deque[Path] = deque()
        self._file_buffer: _BufferedFile | None = None
        self._writer: PcapngWriter | None = None
        if ring_bytes is None:
            self._open(self.path)
        elif not os.access(self.path.parent, os.W_OK | os.X_OK):
            error = FileNotFoundError if not self.path.parent.exists() else PermissionError
            raise error(None, "the folder cannot be written to", str(self.path.parent))

    def write(self, frame: Frame) -> None:
        """Append a frame."""
        if self._writer is None or (self.ring_bytes is not None and self._size() >= self.ring_bytes):
            self._next(frame.timestamp_ns)
        assert self._writer is not None
        assert self._file_buffer is not None
        self._writer.write(frame)
        self.frames += 1
        if self._file_buffer.held >= GATHERED_BYTES:
            self._file_buffer.flush()

    def flush(self) -> None:
        if self._file_buffer is not None:
            self._file_buffer.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._file_buffer is not None:
            try:
                self._file_buffer.flush()
            finally:
                self._file_buffer.close()
                self._file_buffer = self._writer = None

    def summary(self) -> str:
        """A sentence about the written frames and files."""
        frames = f"{self.frames:,} frame{'' if self.frames == 1 else 's'}"
        if self.ring_bytes is None:
            return f"wrote {frames} to {self.path}"
        removed = f", {self.removed:,} of them removed again" if self.removed else ""
        last = f", the last is {self.current}" if self.current is not None else ""
        return f"wrote {frames} to {self.files:,} file{'' if self.files == 1 else 's'}{removed}{last}"

    def _size(self) -> int:
        return 0 if self._file_buffer is None else self._file_buffer.size

    def _next(self, timestamp_ns: int) -> None:
        self.close()
        # Removed before the next file begins, so that the ring never exceeds its size.
        while self.ring_files is not None and len(self._ring) >= self.ring_files:
            oldest = self._ring.popleft()
            oldest.unlink(missing_ok=True)
            self.removed += 1
        time = datetime.fromtimestamp(max(0, timestamp_ns) // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%S")
        suffix = self.path.suffix or ".pcapng"
        self._open(self.path.with_name(f"{self.path.stem}_{self.files + 1:05d}_{time}{suffix}"))

    def _open(self, path: Path) -> None:
        self._file_buffer = _BufferedFile(path, fresh=self.ring_bytes is not None)
        path = self._file_buffer.path
        try:
            self._writer = PcapngWriter(cast(BinaryIO, self._file_buffer))
            self._file_buffer.flush()
        except OSError:
            if not os.path.getsize(path):
                path.unlink(missing_ok=True)
            raise
        self.files += 1
        self.current = path
        self._ring.append(path)


class _BufferedFile:
    """A file that is written in few large pieces.

    ``fresh``: an existing file is not changed; the new name gets a number.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.size = 0
        self.held = 0
        self.path = path
        self._parts: list[bytes] = []
        others = count(2)
        while True:
            try:
                self._descriptor = open_alone(self.path, fresh=fresh)
                break
            except FileExistsError:
                if not fresh:
                    raise
                self.path = path.with_name(f"{path.stem}-{next(others)}{path.suffix}")

    def write(self, data: bytes) -> int:
        self._parts.append(data)
        self.held += len(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        left = b"".join(self._parts)
        self._parts, self.held = [], 0
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            error.filename = str(self.path)
            raise

    def close(self) -> None:
        os.close(self._descriptor)


LINK_TYPE_RAW = 101
"""Link type of frames that begin with the IP header, because endpoints have no access to the link layer."""
_HOP_LIMIT = 64
_V4_BYTES = 4
_UNCHECKED = 0xFFFF
"""Placeholder for a checksum: if it is set, dpkt does not change lengths and checksums."""


def ip_frame(
    source: bytes,
    destination: bytes,
    ports: tuple[int, int],
    *,
    sequence: int,
    acknowledgment: int,
    flags: int,
    window: int,
    payload: bytes = b"",
    options: bytes = b"",
    missing: int = 0,
) -> bytes:
    """One TCP segment as an IP datagram, with correct lengths and checksums.

    ``source``, ``destination``: addresses, 4 or 16 bytes each.  ``ports``: of source and destination.  ``options``: TCP
    options, a multiple of 4 bytes.  ``missing``: number of payload bytes that are in the lengths but not in the frame;
    the frame then has no checksums.
    """
    # Imported late: loading dpkt takes longer than reading a small capture.
    from dpkt.ip import IP, IP_PROTO_TCP
    from dpkt.ip6 import IP6
    from dpkt.tcp import TCP

    segment = TCP(
        sport=ports[0], dport=ports[1], seq=sequence, ack=acknowledgment, flags=flags, win=window,
        off=5 + len(options) // 4, opts=options, data=payload,
    )  # fmt: skip
    length = len(segment) + missing
    if len(source) == _V4_BYTES:
        known = {"len": 20 + length, "sum": _UNCHECKED} if missing else {}
        return bytes(IP(src=source, dst=destination, p=IP_PROTO_TCP, ttl=_HOP_LIMIT, df=1, data=segment, **known))
    if missing:
        segment.sum = _UNCHECKED
    return bytes(IP6(src=source, dst=destination, nxt=IP_PROTO_TCP, hlim=_HOP_LIMIT, plen=length, data=segment))
