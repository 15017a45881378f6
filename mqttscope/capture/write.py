"""Writing captures: frames that are built, pcapng, rings of files, and files for their owner alone.

`PcapngWriter` is our own because dpkt writes one interface per file, times as floating point numbers and no original
lengths.  Format: draft-ietf-opsawg-pcapng; little-endian, one section, one interface per link type.

A `Recorder` writes a capture while it continues: a file, or a ring of files of which the oldest are removed.  What was
written is readable at any moment, whatever ends the program: blocks are gathered and handed to the system in one piece,
several times a second, so that a file ends between two blocks, and at worst inside its last one.

New files have the mode 0600 and new folders 0700: what was captured may hold secrets.  A folder that is there already
may want it otherwise, by a default ACL, and is obeyed; files that are there already keep their mode.  One program at a
time writes a capture.

What writes a capture of what no interface saw builds its frames with `ip_frame`: recordings of live runs, generated
captures, and copies of TLS flows for tshark.
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
"""Rights of new captures: what is in them may hold passwords."""


def open_alone(path: str | os.PathLike[str], *, fresh: bool = False) -> int:
    """The descriptor of a new or emptied file, for writing.

    `OSError` where it cannot be made or another program is writing it, whose blocks ours would lie between.  ``fresh``:
    `FileExistsError` where there is one already.  Pipes and devices are opened as they are.
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


@contextmanager
def for_the_owner() -> Iterator[None]:
    """Make what is new for its owner alone, unless a default ACL of its folder says otherwise: it takes no umask."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def opener(path: str, flags: int) -> int:
    """For ``open``: a new file is for its owner alone."""
    with for_the_owner():
        return open_shared(path, flags)


def open_shared(path: str, flags: int) -> int:
    """For ``open``: a new file has the mode that the umask leaves."""
    return os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder with those above it, as far as they are missing."""
    with for_the_owner():
        Path(path).mkdir(parents=True, exist_ok=True)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole: who reads it meanwhile, or finds the disk full, has the one before.  Raises `OSError`.

    Links stay, and lead to the new file.  Pipes and devices are written as they are, and so is what is there already
    in a folder where nothing new may be made.
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
    """Put a new file in the place of another, whose mode it takes over."""
    with suppress(OSError):
        os.chmod(new, stat.S_IMODE(os.stat(path).st_mode))
    os.replace(new, path)


APPLICATION = b"mqttscope"
"""Named in the section header as the writer."""
EARLIER_OFFSET = -(1 << 34)
"""Seconds: clock offset of the interfaces for times before 1970, which pcapng cannot say without one."""

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
    ``comment``: what the file says of itself; no more than 65,535 bytes.
    ``nanoseconds``: whether times are kept to the nanosecond, or cut to microseconds for readers that know no better.
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
        # No section length: it is not known before the end, and a pipe cannot go back.
        section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        if comment:
            section += _option(_OPTION_COMMENT, comment.encode())
        section += _option(_OPTION_APPLICATION, APPLICATION) + _option(0, b"")
        self._file.write(_block(0x0A0D0D0A, section))

    def write(self, frame: Frame, comment: str = "") -> None:
        """Append a frame: its bytes, length on the wire, time and link type; its number and capture are not kept.

        ``comment`` is told with the frame by those who read the file; it has no more than 65,535 bytes.
        :class:`ValueError` for a frame that pcapng cannot hold: a link type over 65535, a length over 32 bits, a time
        that is no signed 64-bit number of nanoseconds.
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

        ``received``: frames that the interface saw, where that is known; ``dropped``: those of them that the capture
        lacks.
        """
        if not self._interfaces:
            return
        options = b"" if received is None else _option(_OPTION_RECEIVED, struct.pack("<Q", received))
        options += _option(_OPTION_DROPPED, struct.pack("<Q", dropped)) + _option(0, b"")
        self._file.write(_block(5, struct.pack("<III", 0, 0, 0) + options))

    def close(self) -> None:
        """Finish the file; more than once does no harm."""
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
        # Snap length 0 stands for "no limit".
        self._file.write(_block(1, struct.pack("<HHI", link_type, 0, 0) + options + _option(0, b"")))
        index = self._interfaces[link_type, earlier] = len(self._interfaces)
        return index


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + _PADDING[len(value) & 3]


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


GATHERED_BYTES = 1 << 18
"""More than this is not held back."""


class Recorder:
    """Frames to a pcapng file, or to a ring of them.

    ``ring_bytes``: a file that has grown past it is followed by the next, ``NAME_00001_20260102T030405.pcapng`` with
    the time (UTC) of its first frame.  ``ring_files``: so many of them are kept.  Files that were there before are
    never removed.  `OSError` when they cannot be written.
    """

    def __init__(self, path: str, *, ring_bytes: int | None = None, ring_files: int | None = None) -> None:
        self.path = Path(path)
        self.ring_bytes = ring_bytes
        self.ring_files = ring_files
        self.frames = 0
        self.files = 0
        """Files begun."""
        self.removed = 0
        """Files removed again, to keep the ring in its size."""
        self.current: Path | None = None
        self._kept: deque[Path] = deque()
        self._gathered: _Gathered | None = None
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
        assert self._gathered is not None
        self._writer.write(frame)
        self.frames += 1
        if self._gathered.held >= GATHERED_BYTES:
            self._gathered.flush()

    def flush(self) -> None:
        if self._gathered is not None:
            self._gathered.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._gathered is not None:
            try:
                self._gathered.flush()
            finally:
                self._gathered.close()
                self._gathered = self._writer = None

    def told(self) -> str:
        """What was written, for people."""
        frames = f"{self.frames:,} frame{'' if self.frames == 1 else 's'}"
        if self.ring_bytes is None:
            return f"wrote {frames} to {self.path}"
        removed = f", {self.removed:,} of them removed again" if self.removed else ""
        last = f", the last is {self.current}" if self.current is not None else ""
        return f"wrote {frames} to {self.files:,} file{'' if self.files == 1 else 's'}{removed}{last}"

    def _size(self) -> int:
        return 0 if self._gathered is None else self._gathered.size

    def _next(self, timestamp_ns: int) -> None:
        self.close()
        # Before the next one is begun, so that the ring never takes more than was asked for.
        while self.ring_files is not None and len(self._kept) >= self.ring_files:
            oldest = self._kept.popleft()
            oldest.unlink(missing_ok=True)
            self.removed += 1
        time = datetime.fromtimestamp(max(0, timestamp_ns) // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%S")
        suffix = self.path.suffix or ".pcapng"
        self._open(self.path.with_name(f"{self.path.stem}_{self.files + 1:05d}_{time}{suffix}"))

    def _open(self, path: Path) -> None:
        self._gathered = _Gathered(path, fresh=self.ring_bytes is not None)
        path = self._gathered.path
        try:
            self._writer = PcapngWriter(cast(BinaryIO, self._gathered))
            self._gathered.flush()
        except OSError:
            if not os.path.getsize(path):
                path.unlink(missing_ok=True)
            raise
        self.files += 1
        self.current = path
        self._kept.append(path)


class _Gathered:
    """A file that is written in few large pieces.

    ``fresh``: one that is there already is left alone, and the name gets a number.
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
"""Frames begin with the IP header: there is no link that an endpoint could report."""
_HOP_LIMIT = 64
_V4_BYTES = 4
_UNCHECKED = 0xFFFF
"""In the place of a checksum: where there is one, dpkt leaves lengths and checksums as they are."""


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

    ``source``, ``destination``: addresses, 4 or 16 bytes each.  ``ports``: of source and destination.  ``options``: of
    TCP, a multiple of 4 bytes.  ``missing``: bytes of the payload that are counted in the lengths, but not there; then
    there are no checksums.
    """
    # dpkt takes longer to load than a small capture to read.
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
