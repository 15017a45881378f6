"""Captures of a folder while they are written: from one offset to the next.

`Follower.step` looks at what is there and says how far it can be read; `tasks` says what is to be read between two
offsets.  The clock decides when something is read, never what.

A capture that is written is read to its last complete record.  It is complete when it has not changed for
`QUIET_SECONDS`, or when it ends with a complete record and another one whose name differs in digits alone begins after
it: capture tools rotate like that.  Only then is told what can be told at the end of a capture: that it ends inside a
record, what it dropped.  One that grows all the same is read on.  Compressed captures are read when they are complete,
in one go; of one that a tool has compressed before it was read to its end, the rest.

Captures are known by their content, so that renaming them makes no difference, and one that is overwritten is another
one.  What can be read already is read in the order of time, also where a batch has a limit: of two captures that were
written at the same time none gets ahead by more than `PIECE_BYTES`.

An offset says everything: with the same two of them the same rows come, whatever has happened in between.  It names
the captures that are there, so that it stays as small as the folder; those that are complete are packed, with what is
needed to know them again.
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
from mqttscope.spark.rows import ERROR, READ, Note


@dataclass(slots=True)
class Followed:
    """One capture of a stream."""

    file: int
    """Its place in the order of reading, from 0."""
    name: str
    """As a glob or directory gave it."""
    memory: ReaderState = field(default_factory=ReaderState)
    """How far it is read."""
    head: int = 0
    """CRC-32 of its first bytes, as far as they were read: with ``tail`` it says whether it is still the same."""
    tail: int = 0
    """CRC-32 of the bytes before ``memory.position``."""
    size: int | None = None
    """Its length when it was complete; ``None``: it is growing."""
    waiting: int = 0
    """Bytes that could be read already, but for the limit of a batch."""
    first_ns: float = capture_read.NO_FRAME
    """Time of its first frame; forgotten when it is complete."""
    is_whole: bool = False
    """It is compressed, or no capture at all, and read in one go."""
    begun: int = 0
    """So many bytes of it, uncompressed, were read elsewhere when it was shorter."""

    @property
    def now_ns(self) -> float:
        return self.memory.timestamp_ns if self.memory.frames else self.first_ns

    def copy(self) -> Followed:
        """Another one with the same content."""
        return replace(self, memory=self.memory.copy())


@dataclass(slots=True)
class Said:
    """Something that went wrong between an offset and the one before."""

    file: int
    name: str
    message: str
    frames: int
    offset: int | None


@dataclass(slots=True)
class Offset:
    """How far a stream is."""

    captures: dict[str, Followed] = field(default_factory=dict)
    """By name."""
    files: int = 0
    """How many captures there were ever."""
    said: list[Said] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """New ones whose content is in the lake already: their rows so far are left out."""
    unread: list[str] = field(default_factory=list)
    """What cannot be read and has been reported."""

    def written(self) -> dict[str, Any]:
        """As JSON, plain values only."""
        growing = [one for one in self.captures.values() if one.size is None]
        complete = [one for one in self.captures.values() if one.size is not None]
        return {
            "version": 1,
            "files": self.files,
            "growing": [
                [
                    one.file, one.name, one.memory.written(), one.head, one.tail, None, one.waiting,
                    None if one.first_ns == capture_read.NO_FRAME else one.first_ns, one.is_whole, one.begun,
                ]
                for one in growing
            ],
            "complete": _packed(
                [
                    [
                        one.file, one.name, one.head, one.tail, one.size, one.memory.position, one.memory.frames,
                        int(one.is_whole), one.begun,
                    ]
                    for one in complete
                ]
            ),
            "said": [[one.file, one.name, one.message, one.frames, one.offset] for one in self.said],
            "passed": self.passed,
            "unread": self.unread,
        }  # fmt: skip

    @classmethod
    def of(cls, written: dict[str, Any]) -> Offset:
        """What `written` wrote; `ValueError` where it is of another version."""
        if written.get("version") != 1:
            raise ValueError(f"the offset has version {written.get('version')}, this program reads 1")
        captures = []
        for file, name, memory, head, tail, size, waiting, first_ns, is_whole, *begun in written["growing"]:
            first_ns = capture_read.NO_FRAME if first_ns is None else first_ns
            made = Followed(file, name, ReaderState.of(memory), head, tail, size, waiting, first_ns, is_whole, *begun)
            captures.append(made)
        for file, name, head, tail, size, position, frames, is_whole, *begun in _unpacked(written["complete"]):
            made = Followed(file, name, ReaderState(position, frames), head, tail, size, is_whole=bool(is_whole))
            made.begun = begun[0] if begun else 0
            captures.append(made)
        return cls(
            {one.name: one for one in sorted(captures, key=lambda one: one.file)},
            written["files"],
            [Said(*one) for one in written["said"]],
            list(written["passed"]),
            list(written.get("unread", ())),
        )


def _packed(values: list[Any]) -> str:
    # Unlike orjson, json takes names of files that are no UTF-8.
    plain = json.dumps(values, separators=(",", ":")).encode()
    return base64.b85encode(zlib.compress(plain, 9)).decode() if values else ""


def _unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else []


def begins_with(name: str, one: Followed) -> bool:
    """Whether what was read of a capture is what a compressed file begins with.  Raises `OSError`."""
    with open(name, "rb", buffering=0) as file:
        source = ByteSource(file)
        head = source.fill(b"", CHECK_BYTES)[: one.memory.position]
        tail, left = head[-CHECK_BYTES:], one.memory.position - len(head)
        while left > 0 and (piece := source.fill(b"", 1)):
            tail, left = (tail + piece[:left])[-CHECK_BYTES:], left - len(piece)
    checked = _checked(one)
    return left <= 0 and (zlib.crc32(head[:checked]), zlib.crc32(tail[-checked:])) == (one.head, one.tail)


def content_now(name: str, position: int, head: int, tail: int, size: int) -> Fingerprint | None:
    """The content of a capture that was read, its first ``size`` bytes; ``None`` where it is gone.

    ``position``, ``head``, ``tail``: up to where it was read, and what `ends_crc` said then.  It may have been renamed
    since, in its folder, and another one may have its name.
    """
    folder, base = os.path.split(name)
    with suppress(OSError):
        for one in (base, *sorted(set(os.listdir(folder or os.curdir)) - {base})):
            path = os.path.join(folder, one)
            with suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) >= size:
                    with open(path, "rb", buffering=0) as file:
                        if ends_crc(file, position) == (head, tail):
                            return fingerprint_at(path, size)
    return None


class Contents:
    """Captures that are read, by what they begin with: only those that begin alike have to be compared."""

    def __init__(self) -> None:
        self._by_time: dict[float, list[Followed]] = {}
        self._by_head: dict[tuple[int, int], list[Followed]] = {}

    def add(self, one: Followed) -> None:
        """Know one more; of those that are complete the time of the first frame is forgotten."""
        self._by_time.setdefault(one.first_ns, []).append(one)
        if one.memory.position:
            self._by_head.setdefault((_checked(one), one.head), []).append(one)

    def alike(self, name: str, first_ns: float) -> list[Followed]:
        """Those that may be what the file of this name is, whose first frame has this time.  Raises `OSError`."""
        found = {one.file: one for one in (*self._by_time.get(first_ns, ()), *self._with_head(name))}
        return list(found.values())

    def _with_head(self, name: str) -> Iterator[Followed]:
        with open(name, "rb", buffering=0) as file:
            head = ByteSource(file).fill(b"", CHECK_BYTES)
        for checked in {checked for checked, _ in self._by_head}:
            yield from self._by_head.get((checked, zlib.crc32(head[:checked])), ())


def _checked(one: Followed) -> int:
    return min(one.memory.position, CHECK_BYTES)


def begins_compressed(name: str, one: Followed) -> bool:
    """Whether a file is compressed, and begins with what was read of a capture."""
    try:
        with open(name, "rb", buffering=0) as file:
            if not capture_read.may_be_compressed(file.read(4)):
                return False
        return begins_with(name, one)
    except OSError:
        return False  # the next look says why


def remembered(name: str, position: int) -> ReaderState:
    """What a reader that came to a position remembers: found again from the beginning of the capture."""
    with open(name, "rb", buffering=0) as file:
        return capture_read.memory_at(file, position)


def begin_at(one: Followed, position: int) -> None:
    """Continue in a capture after a position, up to which it was read elsewhere."""
    one.begun = position
    if not one.is_whole:
        one.memory = remembered(one.name, position)
        with suppress(OSError), open(one.name, "rb", buffering=0) as file:
            one.head, one.tail = ends_crc(file, one.memory.position)


def gone_on(one: Followed, name: str, size: int) -> Followed:
    """A capture as it is taken over, under its name now: one that was complete and has grown is so no more."""
    taken = one.copy()
    taken.name = name
    if one.size is not None and size > one.size and not one.is_whole:
        taken.memory = remembered(name, one.memory.position)
        taken.size = None
    return taken


def lost(one: Followed, size: int | None) -> Said:
    """What to say of a capture that cannot be read on; ``size``: of what has its name now."""
    position, frames = one.memory.position, one.memory.frames
    what = "has gone before it was complete"
    if size is not None:
        what = "has been replaced before it was complete"
        if CHECK_BYTES <= size < position:
            with suppress(OSError), open(one.name, "rb", buffering=0) as file:
                if ends_crc(file, position)[0] == one.head:
                    what = f"has shrunk from {position} to {size} bytes"
    return Said(one.file, one.name, f"{what}: what came after frame {frames} is not read", frames, position)


def advance_in(one: Followed, size: int, limit: int) -> int:
    """Read on by about ``limit`` bytes, of ``size`` at most; returns by how many."""
    try:
        with open(one.name, "rb", buffering=0) as file:
            if one.is_whole:
                passed = size - one.memory.position
                one.memory.position = size
            else:
                passed = capture_read.advance(file, one.memory, size, limit=limit)
            one.head, one.tail = ends_crc(file, one.memory.position)
    except OSError:
        return 0  # the next look says why
    return passed


QUIET_SECONDS = 60.0
"""A capture that has not changed for so long is complete."""

_COMPRESSED = re.compile(r"\.(gz|zst|zstd|lz4)$", re.I)


@dataclass(slots=True)
class _There:
    """A file that is there."""

    name: str
    size: int
    changed: float
    """When it was written last, in seconds since the epoch."""
    first_ns: float = capture_read.NO_FRAME
    can_grow: bool = True


@dataclass(slots=True)
class Follower:
    """Follows the captures that ``sources`` stand for: files, directories (captures directly in them), globs."""

    sources: Sequence[str]
    quiet_seconds: float = field(default_factory=lambda: QUIET_SECONDS)
    read_elsewhere: Callable[[str], int | None] | None = None
    """How many bytes at the beginning of a file have been read elsewhere, uncompressed; ``None``: all of it."""
    _frozen: tuple[float, dict[str, _There]] | None = None
    _faults: dict[str, str] = field(default_factory=dict)
    """What was found and cannot be read, when it was looked at last."""
    _no_captures: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Other files, as they were when they were looked at."""
    _same: dict[str, tuple[int, float, int, int, int]] = field(default_factory=dict)
    """Captures that were found to be what they were, and what was compared."""
    _has_looked: bool = False
    _away: set[str] = field(default_factory=set)
    """Captures that are elsewhere now, compressed, and not complete there yet."""

    def freeze(self) -> None:
        """Let everything stay as it is now: what comes later is not seen."""
        self._frozen = (time.time(), self._listed())

    def step(self, start: Offset, limit: int | None = None) -> Offset:
        """The offset after what can be read now, about ``limit`` bytes at most; ``start`` itself where it is none."""
        now, there = self._frozen or (time.time(), self._listed())
        # What is frozen may be gone all the same.
        there = {name: one for name, one in there.items() if self._frozen is None or os.path.exists(name)}
        end = Offset(files=start.files)
        gone = self._find_again(start, there, end, now)
        self._look_elsewhere(end, there)
        fresh = [one for name, one in there.items() if name not in end.captures]
        self._admit(fresh, end, now)
        self._read(end, there, limit)
        self._complete(end, there, now)
        # Why a file cannot be read, once per file.
        for name, why in sorted(self._faults.items()):
            if name not in start.unread:
                end.said.append(Said(end.files, name, why, 0, None))
                end.files += 1
        end.unread = sorted(self._faults)
        end.captures = {one.name: one for one in sorted(end.captures.values(), key=lambda one: one.file)}
        if not end.said and end.files == start.files:
            before = {name: one for name, one in start.captures.items() if name not in gone}
            if end.captures == before:
                return start
        return end

    def _listed(self) -> dict[str, _There]:
        there: dict[str, _There] = {}
        taken: set[object] = set()
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
                    told = os.stat(name)
                except OSError:
                    continue
                if known in taken or (in_directory and not self._is_capture(name, told.st_size, told.st_mtime)):
                    continue
                taken.add(known)
                there[name] = _There(name, told.st_size, told.st_mtime)
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
            self._faults |= {one.capture: one.message for one in capture_files.denied(source)}
            return capture_files.links_last(
                "", [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)]
            )
        return [source]

    def _is_capture(self, name: str, size: int, changed: float) -> bool:
        # Who is called a capture and is empty has not begun yet.
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

    def _find_again(self, start: Offset, there: dict[str, _There], end: Offset, now: float) -> set[str]:
        """Take over what was known, as far as it is still there under any name; returns what is gone for good."""
        missing: list[Followed] = []
        for one in start.captures.values():
            found = there.get(one.name)
            same = found is not None and self._is_same(one, found)
            if found is not None and same:
                end.captures[one.name] = gone_on(one, one.name, found.size)
            elif same is None or os.path.dirname(one.name) in self._faults:
                # It may be there again, and is not another one before that is seen.
                end.captures[one.name] = one.copy()
            else:
                missing.append(one)
        gone: set[str] = set()
        self._away = set()
        for one in missing:
            names = [found for name, found in there.items() if name not in end.captures and one.memory.position]
            renamed = next((found for found in names if self._is_same(one, found)), None)
            if renamed is not None:
                end.captures[renamed.name] = gone_on(one, renamed.name, renamed.size)
            elif one.size is None and self._is_compressed(one, there, end, now):
                gone |= {one.name} - self._away
            elif one.size is None:
                now_there = there.get(one.name)
                end.said.append(lost(one, None if now_there is None else now_there.size))
                if end.said[-1].message.startswith("has shrunk"):
                    kept = end.captures[one.name] = one.copy()
                    kept.size, kept.waiting, kept.first_ns = there[one.name].size, 0, capture_read.NO_FRAME
            else:
                gone.add(one.name)
        return gone

    def _is_compressed(self, one: Followed, there: dict[str, _There], end: Offset, now: float) -> bool:
        """Whether a new file is what a capture was, compressed; the rest is read when that is complete."""
        for found in there.values() if one.memory.position else ():
            if found.name in end.captures or not begins_compressed(found.name, one):
                continue
            taken = one.copy()
            taken.waiting = 0
            if now - found.changed < self.quiet_seconds:
                self._away.add(one.name)
            else:
                taken.name, taken.is_whole = found.name, True
                advance_in(taken, found.size, found.size)
            end.captures[taken.name] = taken
            return True
        return False

    def _is_same(self, one: Followed, found: _There) -> bool | None:
        """Whether what was read of a capture is what the file begins with; of a compressed one that is all of it.

        ``None`` where the file cannot be read now.
        """
        if one.is_whole and one.size not in (None, found.size):
            return False
        looked = (found.size, found.changed, one.memory.position, one.head, one.tail)
        if self._same.get(found.name) == looked:
            return True
        position = one.memory.position
        try:
            with open(found.name, "rb", buffering=0) as file:
                if found.size < position:
                    # Nothing is lost of one that was complete.
                    same = (
                        one.size is not None and found.size >= CHECK_BYTES and ends_crc(file, position)[0] == one.head
                    )
                else:
                    same = ends_crc(file, position) == (one.head, one.tail)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._faults[found.name] = capture_files.why_not_opened(error)
            return None
        if same:
            self._same[found.name] = looked
        return same

    def _look_elsewhere(self, end: Offset, there: dict[str, _There]) -> None:
        """Skip what an ingest read of captures since the last run: while this one follows them, no other reads."""
        if self._has_looked or self.read_elsewhere is None:
            return
        self._has_looked = True
        for one in end.captures.values():
            found = there.get(one.name)
            if found is None or one.size is not None or one.is_whole or one.name in self._away:
                continue
            if found.size > one.memory.position:
                read = self.read_elsewhere(one.name)
                read = found.size if read is None else read
                if read > one.memory.position:
                    begin_at(one, read)

    def _admit(self, fresh: list[_There], end: Offset, now: float) -> None:
        """Take in what is new and has a frame, in the order of their first frames."""
        ready = []
        for one in fresh:
            is_quiet = now - one.changed >= self.quiet_seconds
            try:
                with open(one.name, "rb", buffering=0) as file:
                    head = file.read(4)
                    file.seek(0)
                    one.can_grow = capture_read.can_grow(head)
                    if one.can_grow or (is_quiet and capture_read.may_be_compressed(head)):
                        one.first_ns = capture_read.first_time(file)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    self._faults[one.name] = capture_files.why_not_opened(error)
                continue
            if is_quiet or one.first_ns > capture_read.NO_FRAME:
                ready.append(one)
        known = Contents()
        for other in end.captures.values() if ready else ():
            known.add(other)
        for one in sorted(ready, key=lambda one: (one.first_ns, one.name)):
            followed = Followed(end.files, one.name, first_ns=one.first_ns, is_whole=not one.can_grow)
            read = 0 if self.read_elsewhere is None else self.read_elsewhere(one.name)
            is_copy = read is None or self._is_copy(one, known)
            known.add(followed)
            end.files += 1
            end.captures[one.name] = followed
            if is_copy:
                end.passed.append(one.name)
                advance_in(followed, one.size, one.size)
            elif read:
                begin_at(followed, read)

    def _is_copy(self, one: _There, known: Contents) -> bool:
        """Whether the content of a new file is in another one that is read: also compressed."""
        if one.first_ns == capture_read.NO_FRAME:
            return False  # each that has nothing in it is told of
        try:
            alike = known.alike(one.name, one.first_ns)
            content = fingerprint_at(one.name) if alike else None
            return any(fingerprint_at(other.name) == content for other in alike)
        except OSError:
            return False

    def _read(self, end: Offset, there: dict[str, _There], limit: int | None) -> None:
        """Continue in every capture, the one that is least far first, until the limit is reached."""
        todo = [
            (one.now_ns, one.file)
            for one in end.captures.values()
            if one.size is None and one.name in there.keys() - self._away and one.name not in end.passed
        ]
        by_file = {one.file: one for one in end.captures.values()}
        heapify(todo)
        left = limit
        while todo:
            one = by_file[heappop(todo)[1]]
            found = there[one.name]
            one.waiting = 0
            if left is None:
                advance_in(one, found.size, max(found.size, 1))
            elif left > 0:
                passed = advance_in(one, found.size, min(left, capture_read.PIECE_BYTES))
                left -= passed
                if passed and not one.is_whole:
                    heappush(todo, (one.now_ns, one.file))
            elif advance_in(one.copy(), found.size, 1):
                one.waiting = found.size - one.memory.position

    def _complete(self, end: Offset, there: dict[str, _There], now: float) -> None:
        """Find the captures that are no longer written."""
        latest: dict[str, float] = {}
        for one in end.captures.values():
            latest[_set(one.name)] = max(latest.get(_set(one.name), one.first_ns), one.first_ns)
        for one in end.captures.values():
            found = there.get(one.name)
            if one.size is not None or one.waiting or found is None or one.name in self._faults.keys() | self._away:
                continue
            is_even = one.memory.frames > 0 and one.memory.position == found.size
            is_followed = is_even and latest[_set(one.name)] >= max(one.now_ns, one.first_ns + 1)
            if one.is_whole or one.memory.damaged or is_followed or now - found.changed >= self.quiet_seconds:
                one.size = found.size
        for one in end.captures.values():
            if one.size is not None:
                one.first_ns = capture_read.NO_FRAME
                # Found again where it grows after all.
                one.memory = ReaderState(one.memory.position, one.memory.frames)


def _set(name: str) -> str:
    """What names of a rotated set have in common."""
    folder, base = os.path.split(name)
    return os.path.join(folder, re.sub(r"\d+", "#", _COMPRESSED.sub("", base)))


GROWING, BEHIND, COMPLETE, KNOWN = "growing", "behind", "complete", "known"
"""What a row of kind `READ` says of a capture: it is read to its present end; more is there, which the limit of a batch
left for the next one; it is read to its end for good; its content was in the lake already."""


def tasks(start: Offset, end: Offset) -> list[Task]:
    """One task for each capture in which something is to be read or said; the same ones for the same offsets."""
    before = {one.file: one for one in start.captures.values()}
    made = [
        Task(one.file, Location(one.name, one.name), notes=[Note(ERROR, one.message, one.frames, one.offset)])
        for one in end.said
    ]
    for one in end.captures.values():
        earlier = before.get(one.file)
        if earlier == one and not one.waiting:
            continue
        is_known = one.name in end.passed
        location = Location(one.name, os.path.abspath(one.name), one.size or one.memory.position)
        task = Task(one.file, location, notes=[_read(one, is_known=is_known)])
        if not is_known:
            task.grown = _grown(one, earlier)
        made.append(task)
    return made


def _grown(one: Followed, earlier: Followed | None) -> capture_read.CaptureRange | None:
    """What is new of a capture."""
    position = 0 if earlier is None else earlier.memory.position
    was_begun = one.begun > (0 if earlier is None else earlier.begun)
    was_complete = earlier is not None and earlier.size is not None
    if one.memory.position <= position and (one.size is None or was_complete):
        return None
    if was_begun or (one.begun and not position):
        begin = remembered(one.name, one.begun)
    elif earlier is None:
        begin = ReaderState()
    elif was_complete:
        begin = remembered(one.name, position)
    else:
        begin = earlier.memory.copy()
    return capture_read.CaptureRange(begin, one.memory.copy() if one.size is None else None, one.size or 0)


def _read(one: Followed, *, is_known: bool) -> Note:
    state = KNOWN if is_known else BEHIND if one.waiting else GROWING if one.size is None else COMPLETE
    now_ns = None if one.size is not None or one.now_ns == capture_read.NO_FRAME else int(one.now_ns)
    position = one.memory.position if one.size is None else one.size
    # Names in rows are text; who wants to open the file needs its own, and has to know whether it is still this one.
    told = json.dumps([one.name, one.memory.position, one.head, one.tail])
    return Note(READ, state, one.memory.frames, position, one.waiting, told, timestamp_ns=now_ns)
