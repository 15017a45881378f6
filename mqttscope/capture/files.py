"""Opening captures: what `sources` finds, and standard input, several of them in time order.

What is wrong with a source is a :class:`CaptureError` among the frames; nothing here raises on what it finds on disk.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO, cast

from mqttscope.capture.compressed import CHUNK_SIZE
from mqttscope.capture.detect_format import NO_FRAME, first_time, read_capture
from mqttscope.capture.fingerprint import is_replaced
from mqttscope.capture.pcap import FRAME_LIMIT
from mqttscope.capture.resume import BoundedFile, first_after, read_rest
from mqttscope.capture.sources import REPLACED, SINCE, expand, identity, why_not_opened
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.redact.addresses import public_name

STDIN = "-"
"""The source that stands for standard input."""

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
    was_opened: bool = False


def open_capture(
    sources: Sequence[str | os.PathLike[str]],
    *,
    stdin: BinaryIO | None = None,
    chunk_size: int = CHUNK_SIZE,
    frame_limit: int = FRAME_LIMIT,
    parts: Mapping[str, Part] | None = None,
) -> Iterator[_Item]:
    """Frames and notices of all ``sources``, capture after capture.

    A source is a file, ``-`` for standard input (``stdin``, by default the process's own), or what `sources.expand`
    finds captures in: a directory, or a glob pattern.  Several captures are read in the order of their first frames;
    those without any frame come first.  Frames of different captures are never mixed: ``Frame.capture`` is the path as
    given or expanded, and each capture numbers from 1.

    A capture that cannot be read, or not to its end, gives one :class:`CaptureError` after its frames.
    ``chunk_size``: bytes read at a time.  ``frame_limit``: longest frame believed, in bytes; longer ones are damage.
    ``parts``: what is to be read of some files, by path; it notes which of them were opened and are what they were.

    One path in place of a list is a `TypeError`: each of its characters would be the name of a capture.
    """
    if isinstance(sources, str | bytes | os.PathLike):
        message = f"open_capture takes a list of captures, as open_capture([{sources!r}])"
        raise TypeError(message)
    return _opened(sources, stdin, chunk_size, frame_limit, parts)


def _opened(
    sources: Sequence[str | os.PathLike[str]],
    stdin: BinaryIO | None,
    chunk_size: int,
    frame_limit: int,
    parts: Mapping[str, Part] | None,
) -> Iterator[_Item]:
    captures = list(_expand(sources, stdin, chunk_size, frame_limit))
    for capture in captures:
        capture.part = (parts or {}).get(capture.name)
    if len(captures) > 1:
        for capture in captures:
            capture.peek()
        captures.sort(key=lambda capture: capture.first_ns)
    for capture in captures:
        yield from capture.read(chunk_size)


def is_source(path: str | os.PathLike[str], sources: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether a file is one of those that ``sources`` stand for, under whatever name."""
    for capture in _expand(sources, None, CHUNK_SIZE, FRAME_LIMIT):
        try:
            if capture.name != STDIN and os.path.samefile(capture.name, path):
                return True
        except (OSError, ValueError):
            continue
    return False


def find_captures(sources: Sequence[str | os.PathLike[str]]) -> list[str | CaptureError]:
    """The paths that ``sources`` stand for, as for `open_capture` but not ordered yet; an error for one without any."""
    found: list[str | CaptureError] = []
    for capture in _expand(sources, None, CHUNK_SIZE, FRAME_LIMIT):
        if capture.name == STDIN:
            found.append(CaptureError(STDIN, "is standard input, which only one process can read"))
        elif capture.items is None:
            found.append(capture.name)
        else:
            found += [item for item in capture.items if isinstance(item, CaptureError)]
    return found


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

    def peek(self) -> None:
        """Read up to the first frame."""
        if self.items is None and _is_regular(self.name):
            with suppress(OSError, ValueError), open(self.name, "rb", buffering=0) as opened:
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

    def read(self, chunk_size: int) -> Iterable[_Item]:
        return self._read_file(chunk_size) if self.items is None else self.items

    def _read_file(self, chunk_size: int) -> Generator[_Item, None, None]:
        try:
            opened = open(self.name, "rb", buffering=0)  # noqa: SIM115 (closed below; only opening is tried here)
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
            yield from read_capture(file, self.name, chunk_size=chunk_size, frame_limit=self.frame_limit)

    def _limited(self, file: BinaryIO) -> tuple[BinaryIO, int]:
        """What is read of an open file, and how much of it was read before."""
        part = self.part
        return (file, 0) if part is None else (cast(BinaryIO, BoundedFile(file, part.size)), part.behind)


def _expand(
    sources: Sequence[str | os.PathLike[str]], stdin: BinaryIO | None, chunk_size: int, frame_limit: int
) -> Iterator[_Capture]:
    """The captures that ``sources`` stand for.  What a glob or a directory finds again is not read again."""
    taken = {identity(os.fspath(source)) for source in sources if source != STDIN}
    stdin_taken = False
    for source in sources:
        path = os.fspath(source)
        if path == STDIN:
            items = (
                iter((CaptureError(STDIN, "is standard input and was named before"),))
                if stdin_taken
                else _read_stdin(stdin, chunk_size, frame_limit)
            )
            stdin_taken = True
            yield _Capture(STDIN, frame_limit, items)
            continue
        found = expand(path)
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


def _read_stdin(stdin: BinaryIO | None, chunk_size: int, frame_limit: int) -> Iterator[_Item]:
    if stdin is None:
        if sys.stdin is None:
            yield CaptureError(STDIN, "cannot be opened: standard input is closed")
            return
        stdin = sys.stdin.buffer
    yield from read_capture(stdin, STDIN, chunk_size=chunk_size, frame_limit=frame_limit)


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
