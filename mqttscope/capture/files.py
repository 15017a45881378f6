"""Finding and opening captures: files, directories, glob patterns and standard input, several of them in time order.

What is wrong with a source is a :class:`CaptureError` among the frames; nothing here raises on what it finds on disk.

What is named by itself is not looked at: whoever opens it says what is wrong.  What is found is, so that nothing is
waited for (a pipe without a writer) and nothing is passed over that is called a capture.
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
"""The source that stands for standard input."""
NOT_REGULAR = "is no regular file"
"""What is said of a pipe or a device that was found, or that would have to be read more than once."""
MISSING = "does not exist"
NO_MATCH = "matches no file"
NO_CAPTURES = "is a directory without captures"
NOTHING_THERE = (MISSING, NO_MATCH, NO_CAPTURES)
"""What is said of sources that stand for no capture."""
SINCE = " since it was found"
"""What is said of a capture that cannot be read any more, or would be another one, ends with this."""
REPLACED = f"is another file{SINCE}"
_DANGLING = "is a link to what does not exist"
_SNIFF_SIZE = 1 << 12
_CAPTURE_NAME = re.compile(
    r"\.(?:pcap|pcapng|ntar)(?:[-_.\d]*\d)?(?:\.(?:gz|zst|zstd|lz4|bz2|xz|zip|7z))?(?:[-_.\d]*\d)?\Z", re.IGNORECASE
)
"""How captures are called, those that are rotated (``x.pcap1``, ``x.pcap_00001``, ``x.pcap.gz.1``) and compressed ones,
too; also with what is not read, so that it is said."""

_Item = Frame | CaptureNotice


@dataclass(slots=True)
class Part:
    """What is to be read of a file."""

    behind: int
    """So many bytes were read before, uncompressed."""
    size: int
    """Offset in the file from which on nothing is read."""
    begins: int
    """`fingerprint.head_crc` of the file: another one is not read."""
    opener: Callable[[], BinaryIO] | None = None
    """Opens it, seekable, where it is in a store; ``None``: it is a file of this machine, which has this name."""
    was_opened: bool = False


def open_capture(
    sources: Sequence[str | os.PathLike[str]],
    *,
    stdin: BinaryIO | None = None,
    chunk_size: int = CHUNK_SIZE,
    frame_limit: int = FRAME_LIMIT,
    parts: Mapping[str, Part] | None = None,
    direct: FrameSink | None = None,
    seen: Callable[[int], object] | None = None,
) -> Iterator[_Item]:
    """Frames and notices of all ``sources``, capture after capture.

    A source is a file, ``-`` for standard input (``stdin``, by default the process's own), or what `expand`
    finds captures in: a directory, or a glob pattern.  Several captures are read in the order of their first frames;
    those without any frame come first.  Frames of different captures are never mixed: ``Frame.capture`` is the path as
    given or expanded, and each capture numbers from 1.

    A capture that cannot be read, or not to its end, gives one :class:`CaptureError` after its frames.
    ``chunk_size``: bytes read at a time.  ``frame_limit``: longest frame believed, in bytes; longer ones are damage.
    ``parts``: what is to be read of some files, by path; it notes which of them were opened and are what they were.
    Those of a store are among ``sources`` under their names, which are not looked for on this machine.
    ``direct`` is offered every frame before it is made; those that it takes do not come out here.  ``seen`` takes
    the number of bytes each time that some were read; those of compressed files count as they lie there.

    One path in place of a list is a `TypeError`: each of its characters would be the name of a capture.
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
    parts: Mapping[str, Part] | None,
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


def in_stores(parts: Mapping[str, Part] | None) -> frozenset[str]:
    """Names of the captures that are in stores: they stand for nothing else."""
    return frozenset(name for name, one in (parts or {}).items() if one.opener is not None)


def is_source(path: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether a file is one of those that ``sources`` stand for, under whatever name."""
    for capture in _captures_of(sources, None, CHUNK_SIZE, FRAME_LIMIT):
        try:
            if capture.name != STDIN and os.path.samefile(capture.name, path):
                return True
        except (OSError, ValueError):
            continue
    return False


def find_captures(sources: Sequence[str | os.PathLike[str]]) -> list[str | CaptureError]:
    """The paths that ``sources`` stand for, as for `open_capture` but not ordered yet; an error for one without any."""
    found: list[str | CaptureError] = []
    for capture in _captures_of(sources, None, CHUNK_SIZE, FRAME_LIMIT):
        if capture.name == STDIN:
            found.append(CaptureError(STDIN, "is standard input, which only one process can read"))
        elif capture.items is None:
            found.append(capture.name)
        else:
            found += [item for item in capture.items if isinstance(item, CaptureError)]
    return found


class _CountedFile:
    """A file that tells how much of it was read."""

    def __init__(self, file: BinaryIO, seen: Callable[[int], object]) -> None:
        self._file = file
        self._seen = seen
        if hasattr(file, "read1"):
            # Whoever reads what is there does so where the file can.
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
    """One capture to be read."""

    name: str
    frame_limit: int
    items: Iterable[_Item] | None = None
    """What it gives, when it cannot be opened a second time."""
    first_ns: float = NO_FRAME
    """Time of the first frame, once known."""
    part: Part | None = None
    """What is to be read, where that is not all of it."""
    seen: Callable[[int], object] | None = None
    """Told how many bytes were read."""

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
        """What is read of an open file, and how much of it was read before."""
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
    """The captures that ``sources`` stand for.  What a glob or a directory finds again is not read again.

    ``stored``: those of them that are in stores.
    """
    taken = {identity(os.fspath(source)) for source in sources if source != STDIN and source not in stored}
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
        found = None if path in stored else expand(path)
        if found is None:
            yield _Capture(path, frame_limit)
            continue
        for one in found:
            name = one.capture if isinstance(one, CaptureError) else one
            known = identity(name)
            if name == path or known not in taken:
                if isinstance(one, CaptureError):
                    yield _Capture(name, frame_limit, iter((replace(one, capture=public_name(name)),)))
                else:
                    yield _Capture(name, frame_limit)
            taken.add(known)


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
    """The captures that a directory or a glob pattern stands for, by name, links last; ``None`` for anything else.

    Directories: all captures directly in them, told by their content, and what is named like one.  Glob patterns
    (``**`` descends) count where no such path exists.  An error stands for what cannot be read, and for a source
    without any capture.
    """
    found: list[str | CaptureError]
    if os.path.isdir(source):
        try:
            names = os.listdir(source)
            # Who may list a directory may still be kept from entering it.
            os.stat(os.path.join(source, os.curdir))
        except OSError as error:
            return [CaptureError(source, why_not_opened(error))]
        found = [one for name in links_last(source, names) if (one := _in_directory(name)) is not None]
        return found or [CaptureError(source, NO_CAPTURES)]
    if os.path.lexists(source) or not glob.has_magic(source):
        return None
    paths = [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
    found = [path if (why := fault(path)) is None else CaptureError(path, why) for path in links_last("", paths)]
    return [*denied(source), *found] or [CaptureError(source, NO_MATCH)]


def links_last(directory: str, names: list[str]) -> list[str]:
    """Paths in a directory in the order of their names; links last, so that what they lead to has its own name."""
    paths = sorted(os.path.join(directory, name) for name in names)
    return sorted(paths, key=os.path.islink)


def identity(path: str) -> object:
    """Which file a path leads to, by whatever name; a link that leads nowhere is a file of its own."""
    for look in (os.stat, os.lstat):
        try:
            told = look(path)
        except OSError:
            continue
        except ValueError:
            return path  # no path at all
        if told.st_ino:
            return told.st_dev, told.st_ino
    return os.path.realpath(path)


def fault(path: str) -> str | None:
    """What keeps a path that was found from being read; ``None`` for a regular file, which opening may still refuse."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        return why_not_opened(error, path)
    return None if stat.S_ISREG(mode) else NOT_REGULAR


def is_named_like_capture(path: str) -> bool:
    """Whether a file of this name is to be read as a capture, so that it is said where it is none, or empty."""
    return _CAPTURE_NAME.search(path) is not None


def looks_like_capture(file: BinaryIO) -> bool:
    """Whether a file begins like a capture, compressed or not; `OSError` where it cannot be read at all."""
    file.read(1)
    file.seek(0)
    head = ByteSource(file, chunk_size=_SNIFF_SIZE).fill(b"", 4)
    return head[:4] in PCAP_MAGICS or head[:4] == PCAPNG_MAGIC


def why_not_opened(error: OSError | ValueError, path: str = "") -> str:
    """What to say of a capture that cannot be opened; ``path``: its own, where it is local."""
    if isinstance(error, FileNotFoundError):
        return _DANGLING if path and os.path.islink(path) else MISSING
    reason = error.strerror if isinstance(error, OSError) else None
    return f"cannot be opened: {reason or error}"


def denied(pattern: str) -> list[CaptureError]:
    """The directories on the way of a glob pattern that it cannot look into, each with why: it passes them over."""
    found: dict[str, CaptureError] = {}
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
                found.setdefault(directory, CaptureError(directory or os.curdir, why_not_opened(error)))
            except (OSError, ValueError):
                continue  # gone meanwhile
        head, last = os.path.split(head)
    return sorted(found.values(), key=lambda one: one.capture)


def _in_directory(path: str) -> str | CaptureError | None:
    """A file that is called or begins like a capture, or cannot be read; what is wrong with what is called one."""
    why = fault(path)
    if why is not None:
        return CaptureError(path, why) if is_named_like_capture(path) and not os.path.isdir(path) else None
    if is_named_like_capture(path):
        return path
    try:
        with open(path, "rb", buffering=0) as file:
            return path if looks_like_capture(file) else None
    except OSError:
        return path  # so that reading it says why
