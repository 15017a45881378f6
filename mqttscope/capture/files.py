"""Finding and opening captures: files, directories, glob patterns and standard input, several of them in time order.

A fault of a source is yielded as a :class:`CaptureError` among the frames; nothing here raises because of a file.

A source that the user names is not checked: opening it reports its fault.  Files found in directories and by patterns
are checked first, so that nothing blocks on a pipe without a writer, and every file named like a capture is reported.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, BinaryIO, cast

from mqttscope.capture.compressed import CHUNK_SIZE, ByteSource
from mqttscope.capture.fingerprint import is_replaced
from mqttscope.capture.pcap import FRAME_LIMIT, PCAP_MAGICS, FrameSink
from mqttscope.capture.pcapng import PCAPNG_MAGIC
from mqttscope.capture.read import NO_FRAME, BoundedFile, first_after, first_time, read_capture, read_rest
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.secrets.addresses import public_name

STDIN = "-"
"""Name of the source for standard input."""
NOT_REGULAR = "is not a regular file"
"""Fault of a pipe or device that a search found, or that has to be read more than once."""
MISSING = "does not exist"
NO_MATCH = "matches no file"
NO_CAPTURES = "is a directory without captures"
NOTHING_THERE = (MISSING, NO_MATCH, NO_CAPTURES)
"""Faults of sources that match no capture."""
SINCE = " since it was found"
"""End of the message about a capture that has disappeared or been replaced."""
REPLACED = f"is another file{SINCE}"
_DANGLING = "is a link to a file that does not exist"
_SNIFF_SIZE = 1 << 12
_CAPTURE_NAME = re.compile(
    r"\.(?:pcap|pcapng|ntar)(?:[-_.\d]*\d)?(?:\.(?:gz|zst|zstd|lz4|bz2|xz|zip|7z))?(?:[-_.\d]*\d)?\Z", re.IGNORECASE
)
"""Names of captures, also rotated (``x.pcap1``, ``x.pcap_00001``, ``x.pcap.gz.1``) and compressed ones; unsupported
compressions are included so that an error reports them."""

_Item = Frame | CaptureNotice


@dataclass(slots=True)
class CapturePortion:
    """The portion of a capture file to read."""

    behind: int
    """Number of uncompressed bytes that an earlier run has read."""
    size: int
    """Offset in the file where reading stops."""
    begins: int
    """`fingerprint.head_crc` of the file; a file with another value is not read."""
    opener: Callable[[], BinaryIO] | None = None
    """Opens an object in a store as a seekable file; ``None`` for a local file."""
    was_opened: bool = False


def open_capture(
    sources: Sequence[str | os.PathLike[str]],
    *,
    stdin: BinaryIO | None = None,
    chunk_size: int = CHUNK_SIZE,
    frame_limit: int = FRAME_LIMIT,
    parts: Mapping[str, CapturePortion] | None = None,
    direct: FrameSink | None = None,
    seen: Callable[[int], object] | None = None,
) -> Iterator[_Item]:
    """Frames and notices of all ``sources``, capture after capture.

    A source is a file, ``-`` for standard input (``stdin``, by default the standard input of this process), or a
    directory or glob pattern (see `expand`).  Captures are read in the order of their first frames, captures without
    frames first.  Frames of different captures are never mixed: ``Frame.capture`` is the path as given or expanded,
    and each capture numbers from 1.

    A capture that cannot be read to its end yields one :class:`CaptureError` after its frames.
    ``chunk_size``: bytes read at a time.  ``frame_limit``: maximum frame length in bytes; longer frames are damage.
    ``parts``: portions to read of some captures, by path; ``was_opened`` is set on each that is opened and unchanged.
    Names of ``sources`` that ``parts`` opens in a store are not searched on this machine.
    ``direct`` is offered every frame before a `Frame` is built; frames that it takes are not yielded.  ``seen`` is
    called with the number of bytes of each read; bytes of compressed files count compressed.

    A single path in place of a list is a `TypeError`: each of its characters would be the name of a capture.
    """
    if isinstance(sources, str | bytes | os.PathLike):
        message = f"open_capture takes a list of captures, as open_capture([{sources!r}])"
        raise TypeError(message)
    return _opened(sources, stdin, chunk_size, frame_limit, parts, direct, seen)


def _opened(
    sources: Sequence[str | os.PathLike[str]],
    stdin: BinaryIO | None,
    chunk_size: int,
    frame_limit: int,
    parts: Mapping[str, CapturePortion] | None,
    direct: FrameSink | None,
    seen: Callable[[int], object] | None,
) -> Iterator[_Item]:
    captures = list(_captures_of(sources, stdin, chunk_size, frame_limit, direct, seen, in_stores(parts)))
    for capture in captures:
        capture.part = (parts or {}).get(capture.name)
    if len(captures) > 1:
        for capture in captures:
            capture.peek()
        captures.sort(key=lambda capture: capture.first_ns)
    for capture in captures:
        capture.seen = seen
        yield from capture.read(chunk_size, direct)


def in_stores(parts: Mapping[str, CapturePortion] | None) -> frozenset[str]:
    """Names of the captures that are in stores; these names are not expanded."""
    return frozenset(name for name, portion in (parts or {}).items() if portion.opener is not None)


def is_source(path: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether ``sources`` include a file, under any of its names."""
    for capture in _captures_of(sources, None, CHUNK_SIZE, FRAME_LIMIT):
        try:
            if capture.name != STDIN and os.path.samefile(capture.name, path):
                return True
        except (OSError, ValueError):
            continue
    return False


def find_captures(sources: Sequence[str | os.PathLike[str]]) -> list[str | CaptureError]:
    """Paths of the captures in ``sources``, unordered; an error for a source without captures."""
    captures: list[str | CaptureError] = []
    for capture in _captures_of(sources, None, CHUNK_SIZE, FRAME_LIMIT):
        if capture.name == STDIN:
            captures.append(CaptureError(STDIN, "is standard input, which only one process can read"))
        elif capture.items is None:
            captures.append(capture.name)
        else:
            captures += [item for item in capture.items if isinstance(item, CaptureError)]
    return captures


class _CountedFile:
    """A file that reports the number of bytes of each read."""

    def __init__(self, file: BinaryIO, seen: Callable[[int], object]) -> None:
        self._file = file
        self._seen = seen
        if hasattr(file, "read1"):
            # Callers use ``read1`` only if the file has it.
            self.read1 = self._read1

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._seen(len(data))
        return data

    def _read1(self, size: int = -1, /) -> bytes:
        data: bytes = self._file.read1(size)  # type: ignore[attr-defined]
        self._seen(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@dataclass(slots=True)
class _Capture:
    """One capture to read."""

    name: str
    frame_limit: int
    items: Iterable[_Item] | None = None
    """Frames and notices of a capture that cannot be opened a second time."""
    first_ns: float = NO_FRAME
    """Time of the first frame, if known."""
    part: CapturePortion | None = None
    """The portion to read; ``None`` for all."""
    seen: Callable[[int], object] | None = None
    """Called with the number of bytes of each read."""

    def peek(self) -> None:
        """Read up to the first frame."""
        if self.items is None and (self._is_in_store or _is_regular(self.name)):
            with suppress(OSError, ValueError), self._open() as opened:
                file, behind = self._limited(opened)
                self.first_ns = first_after(file, behind)[1] if behind else first_time(file)
            return
        items: Iterator[_Item] = iter(self.read(CHUNK_SIZE))
        seen: list[_Item] = []
        for item in items:
            seen.append(item)
            if isinstance(item, Frame):
                self.first_ns = item.timestamp_ns
                break
        self.items = chain(seen, items)

    def read(self, chunk_size: int, direct: FrameSink | None = None) -> Iterable[_Item]:
        return self._read_file(chunk_size, direct) if self.items is None else self.items

    def _read_file(self, chunk_size: int, direct: FrameSink | None) -> Generator[_Item, None, None]:
        try:
            opened = self._open()
        except (OSError, ValueError) as error:
            since = "" if self.part is None else SINCE
            yield CaptureError(public_name(self.name), f"{why_not_opened(error, self.name)}{since}")
            return
        with opened:
            if self.part is not None:
                if is_replaced(opened, self.part.size, self.part.begins):
                    yield CaptureError(self.name, REPLACED)
                    return
                self.part.was_opened = True
            file, behind = self._limited(opened)
            if behind:
                yield from read_rest(file, self.name, behind)
                return
            yield from read_capture(file, self.name, chunk_size=chunk_size, frame_limit=self.frame_limit, direct=direct)

    @property
    def _is_in_store(self) -> bool:
        return self.part is not None and self.part.opener is not None

    def _open(self) -> BinaryIO:
        if self.part is not None and self.part.opener is not None:
            return self.part.opener()
        return open(self.name, "rb", buffering=0)

    def _limited(self, file: BinaryIO) -> tuple[BinaryIO, int]:
        """The readable portion of an open file, and the number of bytes to skip in it."""
        part = self.part
        if self.seen is not None:
            file = cast(BinaryIO, _CountedFile(file, self.seen))
        return (file, 0) if part is None else (cast(BinaryIO, BoundedFile(file, part.size)), part.behind)


def _captures_of(
    sources: Sequence[str | os.PathLike[str]],
    stdin: BinaryIO | None,
    chunk_size: int,
    frame_limit: int,
    direct: FrameSink | None = None,
    seen: Callable[[int], object] | None = None,
    stored: Collection[str] = (),
) -> Iterator[_Capture]:
    """The captures in ``sources``.  A capture that a glob or a directory finds again is not repeated.

    ``stored``: names of sources that are in stores.
    """
    listed = {identity(os.fspath(source)) for source in sources if source != STDIN and source not in stored}
    stdin_taken = False
    for source in sources:
        path = os.fspath(source)
        if path == STDIN:
            items = (
                iter((CaptureError(STDIN, "is standard input and was named before"),))
                if stdin_taken
                else _read_stdin(stdin, chunk_size, frame_limit, direct, seen)
            )
            stdin_taken = True
            yield _Capture(STDIN, frame_limit, items)
            continue
        expanded = None if path in stored else expand(path)
        if expanded is None:
            yield _Capture(path, frame_limit)
            continue
        for path_or_error in expanded:
            name = path_or_error.capture if isinstance(path_or_error, CaptureError) else path_or_error
            name_identity = identity(name)
            if name == path or name_identity not in listed:
                if isinstance(path_or_error, CaptureError):
                    yield _Capture(name, frame_limit, iter((replace(path_or_error, capture=public_name(name)),)))
                else:
                    yield _Capture(name, frame_limit)
            listed.add(name_identity)


def _read_stdin(
    stdin: BinaryIO | None, chunk_size: int, frame_limit: int, direct: FrameSink | None,
    seen: Callable[[int], object] | None,
) -> Iterator[_Item]:  # fmt: skip
    if stdin is None:
        if sys.stdin is None:
            yield CaptureError(STDIN, "cannot be opened: standard input is closed")
            return
        stdin = sys.stdin.buffer
    if seen is not None:
        stdin = cast(BinaryIO, _CountedFile(stdin, seen))
    yield from read_capture(stdin, STDIN, chunk_size=chunk_size, frame_limit=frame_limit, direct=direct)


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def expand(source: str) -> list[str | CaptureError] | None:
    """Captures in a directory or matching a glob pattern, by name, links last; ``None`` for any other source.

    In a directory, these are the files with the content or the name of a capture.  A path that exists is not a glob
    pattern (``**`` descends).  Errors report files that cannot be read, and a source without captures.
    """
    captures: list[str | CaptureError]
    if os.path.isdir(source):
        try:
            names = os.listdir(source)
            # Permission to list a directory does not imply permission to enter it.
            os.stat(os.path.join(source, os.curdir))
        except OSError as error:
            return [CaptureError(source, why_not_opened(error))]
        captures = [capture for name in links_last(source, names) if (capture := _in_directory(name)) is not None]
        return captures or [CaptureError(source, NO_CAPTURES)]
    if os.path.lexists(source) or not glob.has_magic(source):
        return None
    paths = [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
    captures = [path if (why := fault(path)) is None else CaptureError(path, why) for path in links_last("", paths)]
    return [*denied(source), *captures] or [CaptureError(source, NO_MATCH)]


def links_last(directory: str, names: list[str]) -> list[str]:
    """Paths in a directory, ordered by name; links last, so that a linked file is listed under its own name."""
    paths = sorted(os.path.join(directory, name) for name in names)
    return sorted(paths, key=os.path.islink)


def identity(path: str) -> object:
    """Identity of the file at a path, equal for all its names; a dangling link is a file of its own."""
    for stat_call in (os.stat, os.lstat):
        try:
            status = stat_call(path)
        except OSError:
            continue
        except ValueError:
            return path  # not a valid path
        if status.st_ino:
            return status.st_dev, status.st_ino
    return os.path.realpath(path)


def fault(path: str) -> str | None:
    """Reason why a path cannot be read; ``None`` for a regular file, although opening it may still fail."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        return why_not_opened(error, path)
    return None if stat.S_ISREG(mode) else NOT_REGULAR


def is_named_like_capture(path: str) -> bool:
    """Whether a file has the name of a capture; it is then read, so that an error reports invalid content."""
    return _CAPTURE_NAME.search(path) is not None


def looks_like_capture(file: BinaryIO) -> bool:
    """Whether a file begins like a capture, compressed or not; `OSError` if it cannot be read.

    Compressed data that cannot be read may be a capture, so that reading the file reports the fault.
    """
    file.read(1)
    file.seek(0)
    source = ByteSource(file, chunk_size=_SNIFF_SIZE)
    head = source.fill(b"", 4)
    return head[:4] in PCAP_MAGICS or head[:4] == PCAPNG_MAGIC or (len(head) < 4 and source.fault is not None)


def why_not_opened(error: OSError | ValueError, path: str = "") -> str:
    """Message about a capture that cannot be opened; ``path``: path of a local capture."""
    if isinstance(error, FileNotFoundError):
        return _DANGLING if path and os.path.islink(path) else MISSING
    reason = error.strerror if isinstance(error, OSError) else None
    return f"cannot be opened: {reason or error}"


def denied(pattern: str) -> list[CaptureError]:
    """Errors for the directories that a glob pattern skips for lack of permission."""
    errors: dict[str, CaptureError] = {}
    head, last = os.path.split(pattern)
    while last:
        for directory in [head] if not glob.has_magic(head) else glob.glob(head, recursive=True):
            if not os.path.isdir(directory or os.curdir):
                continue
            try:
                if glob.has_magic(last):
                    os.scandir(directory or os.curdir).close()
                os.stat(os.path.join(directory, os.curdir))
            except PermissionError as error:
                errors.setdefault(directory, CaptureError(directory or os.curdir, why_not_opened(error)))
            except (OSError, ValueError):
                continue  # gone meanwhile
        head, last = os.path.split(head)
    return sorted(errors.values(), key=lambda error: error.capture)


def _in_directory(path: str) -> str | CaptureError | None:
    """A file with the name or content of a capture, or its fault; ``None`` for any other file."""
    why = fault(path)
    if why is not None:
        return CaptureError(path, why) if is_named_like_capture(path) and not os.path.isdir(path) else None
    if is_named_like_capture(path):
        return path
    try:
        with open(path, "rb", buffering=0) as file:
            return path if looks_like_capture(file) else None
    except OSError:
        return path  # so that reading it reports the reason
