"""Captures of several taps as one: their frames in the order of time, on one clock, each frame once.

`open_taps` stands where `open_capture` does.  Captures are read at the same time, and each is opened when the others
have come to its first frame, so that rotated sets of two taps need few open files.

Clocks of two machines differ.  Where two captures hold equal segments, the difference is measured before anything is
read, and taken off the times of the later capture: otherwise an answer would come before what it answers wherever one
tap lost the one and another tap the other.  What a segment needs from one tap to the other does not count: it takes as
long in both directions, and the difference of the clocks has another sign in each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import BinaryIO, Final, cast

from mqttscope.capture.files import STDIN, Part, find_captures, in_stores, open_capture
from mqttscope.capture.read import NO_FRAME
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.duplicates import Deduplication, Identity, Tap, identity_of
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.net.segment import FIN, SYN, ports

MAX_SKEW_NS: Final = 3_600_000_000_000 + 60_000_000_000
"""Clocks differ by no more than this: an hour, as where one does not know summer time, and a minute."""
HEAD_SEGMENTS: Final = 1_000
"""So many segments of a capture, the first ones, are looked for in the captures before it."""
ENOUGH: Final = 50
"""So many equal segments measure a difference of clocks."""
LEAST: Final = 3
"""Fewer of them measure nothing."""
MAX_NAMED: Final = 5
"""Taps that are named in sentences; further ones are counted."""
SHOWN_NS: Final = 1_000_000
"""Smaller corrections of times are not worth a word: frames need as much from one tap to the other."""
MAX_COMPARED: Final = 4
"""The clock of a capture is compared with those of this many captures before it, the latest ones."""

_Item = Frame | CaptureNotice
_Open = Callable[[str], AbstractContextManager[Iterator[Frame]]]


@dataclass(slots=True)
class Source:
    """One capture."""

    name: str
    first_ns: float = NO_FRAME
    """Time of its first frame, on the common clock; `NO_FRAME` where it is not known before it is read."""
    ahead_ns: int = 0
    """So much its clock is ahead of the common one, which is that of the first capture that was named."""
    like: str = ""
    """A capture that its clock was compared with, directly or not; empty where nothing was measured."""
    is_limited: bool = False
    """Whether its clock was not compared with those of all captures before it."""


@dataclass(slots=True)
class Taps:
    """What is known of the taps of a run, once all frames have come."""

    deduplication: Deduplication = field(default_factory=Deduplication)
    sources: list[Source] = field(default_factory=list)
    """The captures, in the order of their first frames."""

    def named(self) -> list[tuple[str, Tap]]:
        """The taps, each with what tells it apart from the others."""
        taps = self.deduplication.taps()
        return [(_name(one, [other for other in taps if other.capture == one.capture]), one) for one in taps]

    def copied(self) -> set[str]:
        """Captures of which frames were left out as copies, so that they may seem empty."""
        return {one.capture for one in self.deduplication.taps() if one.copies}

    def told(self) -> Iterator[str]:
        """What each tap has captured, and what it lost, in sentences."""
        for one in self.corrected():
            words = "ahead of" if one.ahead_ns > 0 else "behind"
            yield (
                f"the clock of {utf8(one.name)} is {abs(one.ahead_ns) / 1e9:,.3f} s {words} that of"
                f" {utf8(self._first(one))}: its times are corrected"
            )
        found, named = self.deduplication, self.named()
        limited = sum(source.is_limited and not source.like for source in self.sources)
        if found.copies:
            are = "is a copy and was" if found.copies == 1 else "are copies and were"
            yield f"{found.copies:,} of {counted(found.frames, 'frame')} with TCP {are} left out"
            for name, tap in named[:MAX_NAMED]:
                frames = counted(tap.frames, "frame")
                yield f"tap {name}: {frames}, {tap.only:,} that no other tap has, {tap.missed:,} missed"
            if len(named) > MAX_NAMED:
                yield f"further taps: {len(named) - MAX_NAMED:,}"
        else:
            conclusion = "" if found.forgotten or limited else ": nothing was captured twice"
            yield f"no copy among {counted(found.frames, 'frame')} with TCP{conclusion}"
        if found.forgotten:
            frames = counted(found.forgotten, "frame")
            yield f"limit: {frames} could not be compared with all others, so that copies may be left"
        if limited:
            clocks = "the clock of 1 capture" if limited == 1 else f"the clocks of {limited:,} captures"
            yield f"limit: {clocks} could not be compared with all others, so that copies may be left"

    def _first(self, source: Source) -> str:
        """The capture whose clock is that of another."""
        return next(one.name for one in self.sources if one.like == source.like and not one.ahead_ns)

    def corrected(self) -> list[Source]:
        """The captures whose times were corrected by so much that it shows."""
        return [one for one in self.sources if one.like and abs(one.ahead_ns) >= SHOWN_NS]


def _name(tap: Tap, others: list[Tap]) -> str:
    """What tells a tap apart from the others of its capture."""
    parts = [utf8(tap.capture)]
    if any(one.interface != tap.interface for one in others):
        parts.append(f"interface {tap.interface}")
    if any(one.encapsulation != tap.encapsulation for one in others):
        parts += [f"VLAN {one}" for one in tap.vlans]
        if len(tap.encapsulation) > 2 * len(tap.vlans):
            parts.append("in a tunnel")
        elif not tap.vlans:
            parts.append("no VLAN")
    if any(one.place for one in others):
        parts.append(f"place {tap.place + 1}")
    return ", ".join(parts)


def open_taps(
    sources: Sequence[str],
    taps: Taps,
    *,
    stdin: BinaryIO | None = None,
    parts: Mapping[str, Part] | None = None,
    seen: Callable[[int], object] | None = None,
) -> Iterator[_Item]:
    """Frames of all captures that ``sources`` stand for, by time, each once; what is found out is in ``taps``.

    The rest is as in `open_capture`.
    """
    return taps.deduplication.unique(_by_time(sources, taps, stdin, parts, seen))


def _by_time(
    sources: Sequence[str],
    taps: Taps,
    stdin: BinaryIO | None,
    parts: Mapping[str, Part] | None,
    seen: Callable[[int], object] | None,
) -> Iterator[_Item]:
    def opened(name: str) -> Iterator[_Item]:
        return open_capture([name], stdin=stdin, parts=parts, seen=seen)

    @contextmanager
    def uncounted(name: str) -> Iterator[Iterator[Frame]]:
        # A generator, whose file is closed with it.
        items = cast("Generator[_Item]", open_capture([name], stdin=stdin, parts=parts))
        with closing(items):
            yield (item for item in items if type(item) is Frame)

    stored = in_stores(parts)
    captures = [Source(one) for one in sources if one in stored]
    for found in find_captures([one for one in sources if one != STDIN and one not in stored]):
        if isinstance(found, CaptureError):
            yield found
        else:
            captures.append(Source(found))
    captures += [Source(STDIN)] * (STDIN in sources)
    if len(captures) > 1:
        measure(captures, uncounted, stored)
    captures.sort(key=lambda one: one.first_ns)
    taps.sources = captures
    for _, item in merge(*(_timed(source, opened) for source in captures), key=itemgetter(0)):
        if item is not None:
            yield item


def _timed(source: Source, opened: Callable[[str], Iterator[_Item]]) -> Iterator[tuple[float, _Item | None]]:
    """Items of a capture with their times, after a ``None`` at the time of the first frame: the next step opens it."""
    now: float = source.first_ns
    yield now, None
    for item in opened(source.name):
        if type(item) is Frame:
            now = item.timestamp_ns = item.timestamp_ns - source.ahead_ns
        yield now, item


def measure(captures: list[Source], opened: _Open, stored: Collection[str] = ()) -> None:
    """Find the first times and the differences of the clocks of all captures that can be read again.

    ``stored``: names of captures that are in stores.
    """
    again = [
        source for source in captures if source.name in stored or (source.name != STDIN and os.path.isfile(source.name))
    ]
    for source in again:
        with opened(source.name) as frames:
            source.first_ns = next((frame.timestamp_ns for frame in frames), NO_FRAME)
    named = again.copy()
    again.sort(key=lambda source: source.first_ns)
    ends: dict[str, int] = {}
    for at, source in enumerate(again):
        before = again[:at][: -MAX_COMPARED - 1 : -1]
        with opened(source.name) as frames:
            head = _head(frames) if before else {}
        if len(head) < LEAST:
            continue
        begin, end = min(head.values()) - MAX_SKEW_NS, max(head.values()) + MAX_SKEW_NS
        earlier = again[: max(0, at - MAX_COMPARED)]
        source.is_limited = any(ends.get(other.name, end) >= begin for other in earlier)
        for other in before:
            if ends.get(other.name, end) < begin:
                continue
            with opened(other.name) as frames:
                ahead_ns = _ahead(_differences(frames, head, begin, end, ends, other.name))
            if ahead_ns is not None:
                source.ahead_ns, source.like = other.ahead_ns + ahead_ns, other.like or other.name
                other.like = source.like
                break
    zero: dict[str, int] = {}
    for source in named:
        if source.like:
            source.ahead_ns -= zero.setdefault(source.like, source.ahead_ns)
            source.first_ns -= source.ahead_ns


def _head(frames: Iterator[Frame]) -> dict[Identity, int]:
    """Times of the first telling segments of a capture, without segments that came again."""
    times: dict[Identity, int] = {}
    often: set[Identity] = set()
    for frame in frames:
        identity = identity_of(frame)
        if identity is None or not _is_telling(identity):
            continue
        if identity in times:
            often.add(identity)
        times.setdefault(identity, frame.timestamp_ns)
        if len(times) >= HEAD_SEGMENTS:
            break
    return {identity: time for identity, time in times.items() if identity not in often}


def _is_telling(identity: Identity) -> bool:
    """Whether hardly any other segment is equal: it has a payload or an identification, or begins or ends a flow."""
    return len(identity[0]) in (12, 36) and bool(identity[5] or identity[3] & (SYN | FIN) or identity[8])


def _differences(
    frames: Iterator[Frame], head: Mapping[Identity, int], begin: int, end: int, ends: dict[str, int], name: str
) -> tuple[list[int], list[int]]:
    """By how much the times of equal segments are later in ``head``, by direction: to the lower port, and from it."""
    differences: tuple[list[int], list[int]] = ([], [])
    met: set[Identity] = set()
    latest = begin
    for frame in frames:
        now = frame.timestamp_ns
        latest = max(latest, now)
        if now > end:
            return differences
        identity = identity_of(frame) if now >= begin else None
        if identity is None or identity in met or identity not in head:
            continue
        met.add(identity)
        source, destination = ports(identity[0])
        differences[source < destination].append(head[identity] - now)
        if len(met) >= ENOUGH and all(differences):
            return differences
    ends[name] = latest
    return differences


def _ahead(found: tuple[list[int], list[int]]) -> int | None:
    """The difference of two clocks, from the differences of times in both directions, or in one."""
    if sum(map(len, found)) < LEAST:
        return None
    middle = [sorted(one)[len(one) // 2] for one in found if one]
    return sum(middle) // len(middle)
