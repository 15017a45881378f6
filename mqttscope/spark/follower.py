"""Captures of a folder while they are written: from one offset to the next.

`CaptureFollower.step` looks at the files and computes how far they can be read; `tasks` lists what is to be read
between two offsets.  The clock decides when something is read, never what.

A growing capture is read to its last complete record.  It is complete when it has not changed for `QUIET_SECONDS`, or
when it ends with a complete record and another one begins after it, with a name that differs in digits alone: capture
tools rotate like that.  Only then its end is reported: an incomplete last record, dropped frames.  If it still grows
afterwards, reading continues.  Compressed captures are read when they are complete, in one go; if a tool has compressed
a capture before it was read to its end, the rest is read.

Captures are identified by their content, so that renaming them makes no difference, and an overwritten one is another
one.  Data is read in the order of time, even if a batch has a limit: captures that were written at the same time
stay within `PIECE_BYTES` of each other.

An offset contains everything: two offsets always give the same rows, whatever has happened in between.  It names
the present captures, so that it stays as small as the folder; complete ones are packed, with the data needed to
identify them again.
"""

from __future__ import annotations

import base64
import glob
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

from mqttscope.capture import files as capture_files
from mqttscope.capture import read as capture_read
from mqttscope.capture.compressed import ByteSource
from mqttscope.capture.fingerprint import CHECK_BYTES, Fingerprint, ends_crc, fingerprint_at
from mqttscope.capture.locations import Location
from mqttscope.capture.pcap import ReaderState
from mqttscope.spark.plan import Task
from mqttscope.spark.rows import ERROR, READ, NoticeRow


@dataclass(slots=True)
class FollowedCapture:
    """One capture of a stream."""

    file: int
    """Its place in the order of reading, from 0."""
    name: str
    """Name from a glob or directory."""
    memory: ReaderState = field(default_factory=ReaderState)
    """How far it is read."""
    head: int = 0
    """CRC-32 of its first bytes that were read; with ``tail`` it shows whether the capture is unchanged."""
    tail: int = 0
    """CRC-32 of the bytes before ``memory.position``."""
    size: int | None = None
    """Its length when it was complete; ``None``: it is growing."""
    waiting: int = 0
    """Bytes that could be read already without the limit of a batch."""
    first_ns: float = capture_read.NO_FRAME
    """Time of its first frame; discarded when it is complete."""
    is_whole: bool = False
    """It is compressed, or not a capture, and read in one go."""
    begun: int = 0
    """Number of its bytes, uncompressed, that were read elsewhere when it was shorter."""

    @property
    def now_ns(self) -> float:
        return self.memory.timestamp_ns if self.memory.frames else self.first_ns

    def copy(self) -> FollowedCapture:
        """A copy with equal content."""
        return replace(self, memory=self.memory.copy())


@dataclass(slots=True)
class CaptureProblem:
    """A problem between an offset and the previous one."""

    file: int
    name: str
    message: str
    frames: int
    offset: int | None


@dataclass(slots=True)
class Offset:
    """How far a stream is read."""

    captures: dict[str, FollowedCapture] = field(default_factory=dict)
    """Captures by name."""
    files: int = 0
    """Number of all captures up to now."""
    problems: list[CaptureProblem] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """New captures with content that the lake has already; their present rows are left out."""
    unread: list[str] = field(default_factory=list)
    """Unreadable files that were reported."""

    def as_json(self) -> dict[str, Any]:
        """The offset as JSON, plain values only."""
        growing = [capture for capture in self.captures.values() if capture.size is None]
        complete = [capture for capture in self.captures.values() if capture.size is not None]
        return {
            "version": 1,
            "files": self.files,
            "growing": [
                [
                    capture.file, capture.name, capture.memory.to_values(), capture.head, capture.tail, None,
                    capture.waiting, None if capture.first_ns == capture_read.NO_FRAME else capture.first_ns,
                    capture.is_whole, capture.begun,
                ]
                for capture in growing
            ],
            "complete": _packed(
                [
                    [
                        capture.file, capture.name, capture.head, capture.tail, capture.size, capture.memory.position,
                        capture.memory.frames, int(capture.is_whole), capture.begun,
                    ]
                    for capture in complete
                ]
            ),
            "said": [[lost.file, lost.name, lost.message, lost.frames, lost.offset] for lost in self.problems],
            "passed": self.passed,
            "unread": self.unread,
        }  # fmt: skip

    @classmethod
    def of(cls, written: dict[str, Any]) -> Offset:
        """The offset from the result of `as_json`; `ValueError` for another version."""
        if written.get("version") != 1:
            raise ValueError(f"the offset has version {written.get('version')}, this program reads 1")
        captures = []
        for file, name, memory, head, tail, size, waiting, first_ns, is_whole, *begun in written["growing"]:
            first_ns = capture_read.NO_FRAME if first_ns is None else first_ns
            state = ReaderState.from_values(memory)
            captures.append(FollowedCapture(file, name, state, head, tail, size, waiting, first_ns, is_whole, *begun))
        for file, name, head, tail, size, position, frames, is_whole, *begun in _unpacked(written["complete"]):
            state, size_begun = ReaderState(position, frames), begun[0] if begun else 0
            capture = FollowedCapture(file, name, state, head, tail, size, is_whole=bool(is_whole), begun=size_begun)
            captures.append(capture)
        return cls(
            {capture.name: capture for capture in sorted(captures, key=lambda capture: capture.file)},
            written["files"],
            [CaptureProblem(*values) for values in written["said"]],
            list(written["passed"]),
            list(written.get("unread", ())),
        )


def _packed(values: list[Any]) -> str:
    # json accepts file names that are not UTF-8; orjson does not.
    plain = json.dumps(values, separators=(",", ":")).encode()
    return base64.b85encode(zlib.compress(plain, 9)).decode() if values else ""


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else []


def begins_with(name: str, capture: FollowedCapture) -> bool:
    """Whether the bytes that were read of a capture are the beginning of a compressed file.  Raises `OSError`."""
    with open(name, "rb", buffering=0) as file:
        source = ByteSource(file)
        head = source.fill(b"", CHECK_BYTES)[: capture.memory.position]
        tail, left = head[-CHECK_BYTES:], capture.memory.position - len(head)
        while left > 0 and (piece := source.fill(b"", 1)):
            tail, left = (tail + piece[:left])[-CHECK_BYTES:], left - len(piece)
    checked = _checked(capture)
    return left <= 0 and (zlib.crc32(head[:checked]), zlib.crc32(tail[-checked:])) == (capture.head, capture.tail)


def content_now(name: str, position: int, head: int, tail: int, size: int) -> Fingerprint | None:
    """Fingerprint of the first ``size`` bytes of a capture that was read; ``None`` if it is gone.

    ``position``, ``head``, ``tail``: the position read up to, and the result of `ends_crc` then.  The capture may have
    been renamed within its folder since, and another one may have its name.
    """
    folder, base = os.path.split(name)
    with suppress(OSError):
        for entry in (base, *sorted(set(os.listdir(folder or os.curdir)) - {base})):
            path = os.path.join(folder, entry)
            with suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) >= size:
                    with open(path, "rb", buffering=0) as file:
                        if ends_crc(file, position) == (head, tail):
                            return fingerprint_at(path, size)
    return None


class ContentIndex:
    """Captures by their beginning: only captures with equal beginnings have to be compared."""

    def __init__(self) -> None:
        self._by_time: dict[float, list[FollowedCapture]] = {}
        self._by_head: dict[tuple[int, int], list[FollowedCapture]] = {}

    def add(self, capture: FollowedCapture) -> None:
        """Add a capture; complete ones no longer have the time of their first frame."""
        self._by_time.setdefault(capture.first_ns, []).append(capture)
        if capture.memory.position:
            self._by_head.setdefault((_checked(capture), capture.head), []).append(capture)

    def alike(self, name: str, first_ns: float) -> list[FollowedCapture]:
        """Captures that may be the file of this name with this first frame time.  Raises `OSError`."""
        matches = {capture.file: capture for capture in (*self._by_time.get(first_ns, ()), *self._with_head(name))}
        return list(matches.values())

    def _with_head(self, name: str) -> Iterator[FollowedCapture]:
        with open(name, "rb", buffering=0) as file:
            head = ByteSource(file).fill(b"", CHECK_BYTES)
        for checked in {checked for checked, _ in self._by_head}:
            yield from self._by_head.get((checked, zlib.crc32(head[:checked])), ())


def _checked(capture: FollowedCapture) -> int:
    return min(capture.memory.position, CHECK_BYTES)


def begins_compressed(name: str, capture: FollowedCapture) -> bool:
    """Whether a file is compressed, and begins with the bytes that were read of a capture."""
    try:
        with open(name, "rb", buffering=0) as file:
            if not capture_read.may_be_compressed(file.read(4)):
                return False
        return begins_with(name, capture)
    except OSError:
        return False  # the next step reports the reason


def reader_state_at(name: str, position: int) -> ReaderState:
    """The state of a reader at a position, computed from the beginning of the capture."""
    with open(name, "rb", buffering=0) as file:
        return capture_read.state_at(file, position)


def begin_at(capture: FollowedCapture, position: int) -> None:
    """Continue in a capture at the end of what was read elsewhere."""
    capture.begun = position
    if not capture.is_whole:
        capture.memory = reader_state_at(capture.name, position)
        with suppress(OSError), open(capture.name, "rb", buffering=0) as file:
            capture.head, capture.tail = ends_crc(file, capture.memory.position)


def continued_capture(capture: FollowedCapture, name: str, size: int) -> FollowedCapture:
    """A capture continued under its present name; a complete one that has grown is not complete."""
    later = capture.copy()
    later.name = name
    if capture.size is not None and size > capture.size and not capture.is_whole:
        later.memory = reader_state_at(name, capture.memory.position)
        later.size = None
    return later


def loss_problem(capture: FollowedCapture, size: int | None) -> CaptureProblem:
    """The problem of a capture that cannot be continued; ``size``: size of the file that has its name now."""
    position, frames = capture.memory.position, capture.memory.frames
    what = "has gone before it was complete"
    if size is not None:
        what = "has been replaced before it was complete"
        if CHECK_BYTES <= size < position:
            with suppress(OSError), open(capture.name, "rb", buffering=0) as file:
                if ends_crc(file, position)[0] == capture.head:
                    what = f"has shrunk from {position} to {size} bytes"
    text = f"{what}: the rest after frame {frames} is not read"
    return CaptureProblem(capture.file, capture.name, text, frames, position)


def advance_in(capture: FollowedCapture, size: int, limit: int) -> int:
    """Read on by about ``limit`` bytes, up to ``size``; return the number of bytes."""
    try:
        with open(capture.name, "rb", buffering=0) as file:
            if capture.is_whole:
                passed = size - capture.memory.position
                capture.memory.position = size
            else:
                passed = capture_read.advance(file, capture.memory, size, limit=limit)
            capture.head, capture.tail = ends_crc(file, capture.memory.position)
    except OSError:
        return 0  # the next step reports the reason
    return passed


QUIET_SECONDS = 60.0
"""A capture is complete after this time without a change."""

_COMPRESSED = re.compile(r"\.(gz|zst|zstd|lz4)$", re.I)


@dataclass(slots=True)
class _PresentFile:
    """A present file."""

    name: str
    size: int
    changed: float
    """Time of the last write, in seconds since the epoch."""
    first_ns: float = capture_read.NO_FRAME
    can_grow: bool = True


@dataclass(slots=True)
class CaptureFollower:
    """Follows the captures in ``sources``: files, directories (captures directly in them), globs."""

    sources: Sequence[str]
    quiet_seconds: float = field(default_factory=lambda: QUIET_SECONDS)
    read_elsewhere: Callable[[str], int | None] | None = None
    """Number of bytes at the beginning of a file that were read elsewhere, uncompressed; ``None``: all bytes."""
    _frozen: tuple[float, dict[str, _PresentFile]] | None = None
    _faults: dict[str, str] = field(default_factory=dict)
    """Unreadable files in the last listing."""
    _no_captures: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Other files, as they were when they were examined."""
    _same: dict[str, tuple[int, float, int, int, int]] = field(default_factory=dict)
    """Captures that were found unchanged, with the compared values."""
    _has_looked: bool = False
    _away: set[str] = field(default_factory=set)
    """Captures that are compressed elsewhere now, and not complete there yet."""

    def freeze(self) -> None:
        """Freeze the listing: later files are not seen."""
        self._frozen = (time.time(), self._listed())

    def step(self, start: Offset, limit: int | None = None) -> Offset:
        """The offset after what can be read now, at most about ``limit`` bytes; ``start`` itself if nothing can."""
        now, there = self._frozen or (time.time(), self._listed())
        # Frozen files may be gone.
        there = {name: file for name, file in there.items() if self._frozen is None or os.path.exists(name)}
        end = Offset(files=start.files)
        gone = self._find_again(start, there, end, now)
        self._skip_ingested(end, there)
        fresh = [file for name, file in there.items() if name not in end.captures]
        self._admit(fresh, end, now)
        self._read(end, there, limit)
        self._find_complete(end, there, now)
        # The reason why a file cannot be read, once per file.
        for name, why in sorted(self._faults.items()):
            if name not in start.unread:
                end.problems.append(CaptureProblem(end.files, name, why, 0, None))
                end.files += 1
        end.unread = sorted(self._faults)
        end.captures = {item.name: item for item in sorted(end.captures.values(), key=lambda item: item.file)}
        if not end.problems and end.files == start.files:
            before = {name: capture for name, capture in start.captures.items() if name not in gone}
            if end.captures == before:
                return start
        return end

    def _listed(self) -> dict[str, _PresentFile]:
        there: dict[str, _PresentFile] = {}
        seen: set[object] = set()
        self._faults = {}
        for source in self.sources:
            in_directory = os.path.isdir(source)
            for name in self._names(source):
                why = capture_files.fault(name)
                if why is not None:
                    is_there = os.path.lexists(name) and not os.path.isdir(name)
                    if is_there and (not in_directory or capture_files.is_named_like_capture(name)):
                        self._faults[name] = why
                    continue
                known = capture_files.identity(name)
                try:
                    status = os.stat(name)
                except OSError:
                    continue
                if known in seen or (in_directory and not self._is_capture(name, status.st_size, status.st_mtime)):
                    continue
                seen.add(known)
                there[name] = _PresentFile(name, status.st_size, status.st_mtime)
        return there

    def _names(self, source: str) -> Iterable[str]:
        if os.path.isdir(source):
            try:
                os.stat(os.path.join(source, os.curdir))
                return capture_files.links_last(source, os.listdir(source))
            except OSError as error:
                self._faults[source] = capture_files.why_not_opened(error)
                return []
        if not os.path.lexists(source) and glob.has_magic(source):
            self._faults |= {fault.capture: fault.message for fault in capture_files.denied(source)}
            return capture_files.links_last(
                "", [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
            )
        return [source]

    def _is_capture(self, name: str, size: int, changed: float) -> bool:
        # An empty file with the name of a capture has not begun yet.
        if name in self._same or (size and capture_files.is_named_like_capture(name)):
            return True
        if self._no_captures.get(name) == (size, changed):
            return False
        try:
            with open(name, "rb", buffering=0) as file:
                if capture_files.looks_like_capture(file):
                    return True
        except FileNotFoundError:
            return False
        except OSError as error:
            self._faults[name] = capture_files.why_not_opened(error)
            return True
        self._no_captures[name] = (size, changed)
        return False

    def _find_again(self, start: Offset, there: dict[str, _PresentFile], end: Offset, now: float) -> set[str]:
        """Copy known captures that still exist under any name to ``end``; return the names that are gone for good."""
        missing: list[FollowedCapture] = []
        for capture in start.captures.values():
            file = there.get(capture.name)
            same = file is not None and self._is_same(capture, file)
            if file is not None and same:
                end.captures[capture.name] = continued_capture(capture, capture.name, file.size)
            elif same is None or os.path.dirname(capture.name) in self._faults:
                # It may appear again, and is not another one until that is seen.
                end.captures[capture.name] = capture.copy()
            else:
                missing.append(capture)
        gone: set[str] = set()
        self._away = set()
        for capture in missing:
            names = [file for name, file in there.items() if name not in end.captures and capture.memory.position]
            renamed = next((file for file in names if self._is_same(capture, file)), None)
            if renamed is not None:
                end.captures[renamed.name] = continued_capture(capture, renamed.name, renamed.size)
            elif capture.size is None and self._is_compressed(capture, there, end, now):
                gone |= {capture.name} - self._away
            elif capture.size is None:
                now_there = there.get(capture.name)
                end.problems.append(loss_problem(capture, None if now_there is None else now_there.size))
                if end.problems[-1].message.startswith("has shrunk"):
                    shrunk = end.captures[capture.name] = capture.copy()
                    shrunk.size, shrunk.waiting, shrunk.first_ns = there[capture.name].size, 0, capture_read.NO_FRAME
            else:
                gone.add(capture.name)
        return gone

    def _is_compressed(self, capture: FollowedCapture, there: dict[str, _PresentFile], end: Offset, now: float) -> bool:
        """Whether a new file is a compressed copy of a capture; the rest is read when the copy is complete."""
        for file in there.values() if capture.memory.position else ():
            if file.name in end.captures or not begins_compressed(file.name, capture):
                continue
            later = capture.copy()
            later.waiting = 0
            if now - file.changed < self.quiet_seconds:
                self._away.add(capture.name)
            else:
                later.name, later.is_whole = file.name, True
                advance_in(later, file.size, file.size)
            end.captures[later.name] = later
            return True
        return False

    def _is_same(self, capture: FollowedCapture, present: _PresentFile) -> bool | None:
        """Whether a file begins with the bytes that were read of a capture; for a compressed capture, all of it.

        ``None`` if the file cannot be read now.
        """
        if capture.is_whole and capture.size not in (None, present.size):
            return False
        looked = (present.size, present.changed, capture.memory.position, capture.head, capture.tail)
        if self._same.get(present.name) == looked:
            return True
        position = capture.memory.position
        try:
            with open(present.name, "rb", buffering=0) as file:
                if present.size < position:
                    # Nothing is lost if it was complete.
                    was_complete = capture.size is not None and present.size >= CHECK_BYTES
                    same = was_complete and ends_crc(file, position)[0] == capture.head
                else:
                    same = ends_crc(file, position) == (capture.head, capture.tail)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._faults[present.name] = capture_files.why_not_opened(error)
            return None
        if same:
            self._same[present.name] = looked
        return same

    def _skip_ingested(self, end: Offset, there: dict[str, _PresentFile]) -> None:
        """Skip data that an ingest has read since the last run; nothing else reads while this stream follows."""
        if self._has_looked or self.read_elsewhere is None:
            return
        self._has_looked = True
        for capture in end.captures.values():
            file = there.get(capture.name)
            if file is None or capture.size is not None or capture.is_whole or capture.name in self._away:
                continue
            if file.size > capture.memory.position:
                read = self.read_elsewhere(capture.name)
                read = file.size if read is None else read
                if read > capture.memory.position:
                    begin_at(capture, read)

    def _admit(self, fresh: list[_PresentFile], end: Offset, now: float) -> None:
        """Add new files with a frame, in the order of their first frames."""
        ready = []
        for present in fresh:
            is_quiet = now - present.changed >= self.quiet_seconds
            try:
                with open(present.name, "rb", buffering=0) as file:
                    head = file.read(4)
                    file.seek(0)
                    present.can_grow = capture_read.can_grow(head)
                    if present.can_grow or (is_quiet and capture_read.may_be_compressed(head)):
                        present.first_ns = capture_read.first_time(file)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    self._faults[present.name] = capture_files.why_not_opened(error)
                continue
            if is_quiet or present.first_ns > capture_read.NO_FRAME:
                ready.append(present)
        known = ContentIndex()
        for other in end.captures.values() if ready else ():
            known.add(other)
        for present in sorted(ready, key=lambda file: (file.first_ns, file.name)):
            name, first_ns = present.name, present.first_ns
            followed = FollowedCapture(end.files, name, first_ns=first_ns, is_whole=not present.can_grow)
            read = 0 if self.read_elsewhere is None else self.read_elsewhere(name)
            is_copy = read is None or self._is_copy(present, known)
            known.add(followed)
            end.files += 1
            end.captures[present.name] = followed
            if is_copy:
                end.passed.append(present.name)
                advance_in(followed, present.size, present.size)
            elif read:
                begin_at(followed, read)

    def _is_copy(self, file: _PresentFile, known: ContentIndex) -> bool:
        """Whether the content of a new file is in another one that is read, compressed or not."""
        if file.first_ns == capture_read.NO_FRAME:
            return False  # each empty file is reported
        try:
            alike = known.alike(file.name, file.first_ns)
            content = fingerprint_at(file.name) if alike else None
            return any(fingerprint_at(other.name) == content for other in alike)
        except OSError:
            return False

    def _read(self, end: Offset, there: dict[str, _PresentFile], limit: int | None) -> None:
        """Continue in every capture, the least advanced first, until the limit is reached."""
        todo = [
            (capture.now_ns, capture.file)
            for capture in end.captures.values()
            if capture.size is None and capture.name in there.keys() - self._away and capture.name not in end.passed
        ]
        by_file = {capture.file: capture for capture in end.captures.values()}
        heapify(todo)
        left = limit
        while todo:
            capture = by_file[heappop(todo)[1]]
            file = there[capture.name]
            capture.waiting = 0
            if left is None:
                advance_in(capture, file.size, max(file.size, 1))
            elif left > 0:
                passed = advance_in(capture, file.size, min(left, capture_read.PIECE_BYTES))
                left -= passed
                if passed and not capture.is_whole:
                    heappush(todo, (capture.now_ns, capture.file))
            elif advance_in(capture.copy(), file.size, 1):
                capture.waiting = file.size - capture.memory.position

    def _find_complete(self, end: Offset, there: dict[str, _PresentFile], now: float) -> None:
        """Find captures that are no longer written."""
        latest: dict[str, float] = {}
        for capture in end.captures.values():
            latest[_set(capture.name)] = max(latest.get(_set(capture.name), capture.first_ns), capture.first_ns)
        for capture in end.captures.values():
            file = there.get(capture.name)
            name, is_done = capture.name, capture.size is not None
            if is_done or capture.waiting or file is None or name in self._faults.keys() | self._away:
                continue
            is_even = capture.memory.frames > 0 and capture.memory.position == file.size
            is_followed = is_even and latest[_set(capture.name)] >= max(capture.now_ns, capture.first_ns + 1)
            if capture.is_whole or capture.memory.damaged or is_followed or now - file.changed >= self.quiet_seconds:
                capture.size = file.size
        for capture in end.captures.values():
            if capture.size is not None:
                capture.first_ns = capture_read.NO_FRAME
                # Computed again if it grows after all.
                capture.memory = ReaderState(capture.memory.position, capture.memory.frames)


def _set(name: str) -> str:
    """The common part of names in a rotated set."""
    folder, base = os.path.split(name)
    return os.path.join(folder, re.sub(r"\d+", "#", _COMPRESSED.sub("", base)))


GROWING, BEHIND, COMPLETE, KNOWN = "growing", "behind", "complete", "known"
"""State of a capture in a row of kind `READ`: read to its present end; more data is left to the next
batch by the limit; read to its final end; its content was in the lake already."""


def tasks(start: Offset, end: Offset) -> list[Task]:
    """One task for each capture with something to read or report; equal offsets give equal tasks."""
    before = {capture.file: capture for capture in start.captures.values()}
    todo = [
        Task(
            lost.file, Location(lost.name, lost.name), notes=[NoticeRow(ERROR, lost.message, lost.frames, lost.offset)]
        )
        for lost in end.problems
    ]
    for capture in end.captures.values():
        earlier = before.get(capture.file)
        if earlier == capture and not capture.waiting:
            continue
        is_known = capture.name in end.passed
        location = Location(capture.name, os.path.abspath(capture.name), capture.size or capture.memory.position)
        task = Task(capture.file, location, notes=[_read(capture, is_known=is_known)])
        if not is_known:
            task.grown = _grown(capture, earlier)
        todo.append(task)
    return todo


def _grown(capture: FollowedCapture, earlier: FollowedCapture | None) -> capture_read.CaptureRange | None:
    position = 0 if earlier is None else earlier.memory.position
    was_begun = capture.begun > (0 if earlier is None else earlier.begun)
    was_complete = earlier is not None and earlier.size is not None
    if capture.memory.position <= position and (capture.size is None or was_complete):
        return None
    if was_begun or (capture.begun and not position):
        begin = reader_state_at(capture.name, capture.begun)
    elif earlier is None:
        begin = ReaderState()
    elif was_complete:
        begin = reader_state_at(capture.name, position)
    else:
        begin = earlier.memory.copy()
    return capture_read.CaptureRange(begin, capture.memory.copy() if capture.size is None else None, capture.size or 0)


def _read(capture: FollowedCapture, *, is_known: bool) -> NoticeRow:
    state = KNOWN if is_known else BEHIND if capture.waiting else GROWING if capture.size is None else COMPLETE
    now_ns = None if capture.size is not None or capture.now_ns == capture_read.NO_FRAME else int(capture.now_ns)
    position = capture.memory.position if capture.size is None else capture.size
    # Names in rows are text; opening the file needs the original name, and a check that the file is unchanged.
    identity = json.dumps([capture.name, capture.memory.position, capture.head, capture.tail])
    return NoticeRow(READ, state, capture.memory.frames, position, capture.waiting, identity, timestamp_ns=now_ns)
