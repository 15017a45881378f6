"""Captures of a folder while they are written: from one offset to the next.

`Follower.step` looks at what is there and says how far it can be read; `parts` says what is to be read between two
offsets.  The clock decides when something is read, never what.

A capture that is written is read to its last complete record.  It is complete when it has not changed for
`QUIET_SECONDS`, or when it ends with a whole record and another one whose name differs in digits alone begins behind
it: capture tools rotate like that.  Only then is told what can be told at the end of a capture: that it ends inside a
record, what it dropped.  One that grows all the same is read on.  Compressed captures are read when they are complete,
in one go; of one that a tool has compressed before it was read to its end, the rest.

Captures are known by their content, so that renaming them makes no difference, and one that is overwritten is another
one.  What can be read already is read in the order of time, also where a batch has a limit: of two captures that were
written at the same time none gets ahead by more than `PIECE_BYTES`.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from mqttscope.capture.growing import PIECE_BYTES, can_grow, may_be_compressed
from mqttscope.capture.pcap import Memory
from mqttscope.capture.reading import NO_FRAME, first_time
from mqttscope.capture.sources import (
    denied,
    fault,
    identity,
    is_named_like_capture,
    links_last,
    looks_like_capture,
    why_not_opened,
)
from mqttscope.lake.contents import content_at
from mqttscope.spark.contents import CHECK_BYTES, Contents, checks
from mqttscope.spark.going_on import advance_in, begin_at, begins_compressed, gone_on, lost
from mqttscope.spark.offsets import Followed, Offset, Said

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
    first_ns: float = NO_FRAME
    can_grow: bool = True


@dataclass(slots=True)
class Follower:
    """Follows the captures that ``sources`` stand for: files, directories (captures directly in them), globs."""

    sources: Sequence[str]
    quiet_seconds: float = QUIET_SECONDS
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
    """Captures that are elsewhere now, compressed, and not whole there yet."""

    def freeze(self) -> None:
        """Let everything stay as it is now: what comes later is not seen."""
        self._frozen = (time.time(), self._listed())

    def step(self, start: Offset, limit: int | None = None) -> Offset:
        """The offset behind what can be read now, about ``limit`` bytes at most; ``start`` itself where it is none."""
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
        self._say_faults(start, end)
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
                why = fault(name)
                if why is not None:
                    is_there = os.path.lexists(name) and not os.path.isdir(name)
                    if is_there and (not in_directory or is_named_like_capture(name)):
                        self._faults[name] = why
                    continue
                known = identity(name)
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
                return links_last(source, os.listdir(source))
            except OSError as error:
                self._faults[source] = why_not_opened(error)
                return []
        if not os.path.lexists(source) and glob.has_magic(source):
            self._faults |= {one.capture: one.message for one in denied(source)}
            return links_last("", [path for path in glob.glob(source, recursive=True) if not os.path.isdir(path)])
        return [source]

    def _is_capture(self, name: str, size: int, changed: float) -> bool:
        # Who is called a capture and is empty has not begun yet.
        if name in self._same or (size and is_named_like_capture(name)):
            return True
        if self._no_captures.get(name) == (size, changed):
            return False
        try:
            with open(name, "rb", buffering=0) as file:
                if looks_like_capture(file):
                    return True
        except FileNotFoundError:
            return False
        except OSError as error:
            self._faults[name] = why_not_opened(error)
            return True
        self._no_captures[name] = (size, changed)
        return False

    def _find_again(self, start: Offset, there: dict[str, _There], end: Offset, now: float) -> set[str]:
        """Take over what was known, as far as it is still there, under whatever name; returns what is gone for good."""
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
                    kept.size, kept.waiting, kept.first_ns = there[one.name].size, 0, NO_FRAME
            else:
                gone.add(one.name)
        return gone

    def _is_compressed(self, one: Followed, there: dict[str, _There], end: Offset, now: float) -> bool:
        """Whether a new file is what a capture was, compressed; the rest is read when that is whole."""
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
                    same = one.size is not None and found.size >= CHECK_BYTES and checks(file, position)[0] == one.head
                else:
                    same = checks(file, position) == (one.head, one.tail)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._faults[found.name] = why_not_opened(error)
            return None
        if same:
            self._same[found.name] = looked
        return same

    def _look_elsewhere(self, end: Offset, there: dict[str, _There]) -> None:
        """Pass over what was read of captures since the last run: nobody else reads while this one follows them."""
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
                    one.can_grow = can_grow(head)
                    if one.can_grow or (is_quiet and may_be_compressed(head)):
                        one.first_ns = first_time(file)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):
                    self._faults[one.name] = why_not_opened(error)
                continue
            if is_quiet or one.first_ns > NO_FRAME:
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
        if one.first_ns == NO_FRAME:
            return False  # each that has nothing in it is told of
        try:
            alike = known.alike(one.name, one.first_ns)
            content = content_at(one.name) if alike else None
            return any(content_at(other.name) == content for other in alike)
        except OSError:
            return False

    def _read(self, end: Offset, there: dict[str, _There], limit: int | None) -> None:
        """Go on in every capture, the one that is least far first, until the limit is reached."""
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
                passed = advance_in(one, found.size, min(left, PIECE_BYTES))
                left -= passed
                if passed and not one.is_whole:
                    heappush(todo, (one.now_ns, one.file))
            elif advance_in(one.copy(), found.size, 1):
                one.waiting = found.size - one.memory.position

    def _say_faults(self, start: Offset, end: Offset) -> None:
        """Say of each file that cannot be read why, once."""
        for name, why in sorted(self._faults.items()):
            if name not in start.unread:
                end.said.append(Said(end.files, name, why, 0, None))
                end.files += 1
        end.unread = sorted(self._faults)

    def _complete(self, end: Offset, there: dict[str, _There], now: float) -> None:
        """Find the captures that nobody writes any more."""
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
                one.first_ns = NO_FRAME
                # Found again where it grows after all.
                one.memory = Memory(one.memory.position, one.memory.frames)


def _set(name: str) -> str:
    """What names of a rotated set have in common."""
    folder, base = os.path.split(name)
    return os.path.join(folder, re.sub(r"\d+", "#", _COMPRESSED.sub("", base)))
