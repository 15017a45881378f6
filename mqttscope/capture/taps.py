"""Captures of several taps, read as one: frames in the order of time, on one clock, each frame once.

`open_taps` replaces `open_capture`.  Captures are read in parallel, and each is opened when the others have reached the
time of its first frame, so that rotated sets of two taps need few open files.

Clocks of two machines differ.  If two captures contain equal segments, the clock difference is measured before reading,
and subtracted from the times of the later capture.  Otherwise a response could precede its request if one tap lost the
request and another tap the response.  The transit time between the taps cancels out: it is equal in both directions,
while the clock difference has opposite signs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import BinaryIO, Final, cast

from mqttscope.capture.files import STDIN, CapturePortion, find_captures, in_stores, open_capture
from mqttscope.capture.read import NO_FRAME
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.duplicates import Deduplication, Identity, Tap, identity_of
from mqttscope.net.frame import CaptureError, CaptureNotice, Frame
from mqttscope.net.segment import FIN, SYN, ports

MAX_SKEW_NS: Final = 3_600_000_000_000 + 60_000_000_000
"""Maximum clock difference: an hour, if one clock ignores summer time, plus a minute."""
HEAD_SEGMENTS: Final = 1_000
"""Maximum number of first segments of a capture that are searched in earlier captures."""
ENOUGH: Final = 50
"""Number of equal segments that suffice to measure a clock difference."""
LEAST: Final = 3
"""Minimum number of equal segments to measure a clock difference."""
MAX_NAMED: Final = 5
"""Maximum number of taps named in messages; further taps are counted."""
SHOWN_NS: Final = 1_000_000
"""Threshold for reporting a time correction; the transit time between taps has this size."""
MAX_COMPARED: Final = 4
"""Maximum number of preceding captures to compare the clock of a capture with."""

_Item = Frame | CaptureNotice
_Open = Callable[[str], AbstractContextManager[Iterator[Frame]]]


@dataclass(slots=True)
class TapSource:
    """One capture, and its clock."""

    name: str
    first_ns: float = NO_FRAME
    """Time of its first frame, on the common clock; `NO_FRAME` if unknown before reading."""
    ahead_ns: int = 0
    """Nanoseconds that its clock is ahead of the common clock, the clock of the first named capture."""
    like: str = ""
    """Name of a capture that its clock was compared with, directly or indirectly; empty if not measured."""
    is_limited: bool = False
    """Whether its clock was compared with only some of the preceding captures."""


@dataclass(slots=True)
class Taps:
    """Facts about the taps of a run, complete after the last frame."""

    deduplication: Deduplication = field(default_factory=Deduplication)
    sources: list[TapSource] = field(default_factory=list)
    """The captures, in the order of their first frames."""

    def named(self) -> list[tuple[str, Tap]]:
        """The taps, each with a distinguishing name."""
        taps = self.deduplication.taps()
        return [(_name(tap, [other for other in taps if other.capture == tap.capture]), tap) for tap in taps]

    def copied(self) -> set[str]:
        """Captures with frames that were left out as copies; they may seem empty."""
        return {tap.capture for tap in self.deduplication.taps() if tap.copies}

    def sentences(self) -> Iterator[str]:
        """Sentences about the frames that each tap captured and missed."""
        for corrected in self.corrected():
            words = "ahead of" if corrected.ahead_ns > 0 else "behind"
            yield (
                f"the clock of {utf8(corrected.name)} is {abs(corrected.ahead_ns) / 1e9:,.3f} s {words} the clock of"
                f" {utf8(self._first(corrected))}: its times are corrected"
            )
        deduplication, named = self.deduplication, self.named()
        limited = sum(source.is_limited and not source.like for source in self.sources)
        if deduplication.copies:
            are = "is a copy and was" if deduplication.copies == 1 else "are copies and were"
            yield f"{deduplication.copies:,} of {counted(deduplication.frames, 'frame')} with TCP {are} left out"
            for name, tap in named[:MAX_NAMED]:
                frames = counted(tap.frames, "frame")
                yield f"tap {name}: {frames}, {tap.only:,} only on this tap, {tap.missed:,} missed"
            if len(named) > MAX_NAMED:
                yield f"further taps: {len(named) - MAX_NAMED:,}"
        else:
            conclusion = "" if deduplication.forgotten or limited else ": nothing was captured twice"
            yield f"no copy among {counted(deduplication.frames, 'frame')} with TCP{conclusion}"
        if deduplication.forgotten:
            frames = counted(deduplication.forgotten, "frame")
            yield f"limit: {frames} could not be compared with all others, so copies may remain"
        if limited:
            clocks = "the clock of 1 capture" if limited == 1 else f"the clocks of {limited:,} captures"
            yield f"limit: {clocks} could not be compared with all others, so copies may remain"

    def _first(self, source: TapSource) -> str:
        """The reference capture for the clock of a capture."""
        return next(
            reference.name for reference in self.sources if reference.like == source.like and not reference.ahead_ns
        )

    def corrected(self) -> list[TapSource]:
        """The captures with a time correction above the threshold."""
        return [source for source in self.sources if source.like and abs(source.ahead_ns) >= SHOWN_NS]


def _name(tap: Tap, others: list[Tap]) -> str:
    """Name of a tap that distinguishes it from other taps in its capture."""
    parts = [utf8(tap.capture)]
    if any(other.interface != tap.interface for other in others):
        parts.append(f"interface {tap.interface}")
    if any(other.encapsulation != tap.encapsulation for other in others):
        parts += [f"VLAN {vlan}" for vlan in tap.vlans]
        if len(tap.encapsulation) > 2 * len(tap.vlans):
            parts.append("in a tunnel")
        elif not tap.vlans:
            parts.append("no VLAN")
    if any(other.place for other in others):
        parts.append(f"place {tap.place + 1}")
    return ", ".join(parts)


def open_taps(
    sources: Sequence[str],
    taps: Taps,
    *,
    stdin: BinaryIO | None = None,
    parts: Mapping[str, CapturePortion] | None = None,
    seen: Callable[[int], object] | None = None,
) -> Iterator[_Item]:
    """Frames of all captures in ``sources``, by time, each once; fills ``taps``.

    All other arguments are as in `open_capture`.
    """
    return taps.deduplication.unique(_by_time(sources, taps, stdin, parts, seen))


def _by_time(
    sources: Sequence[str],
    taps: Taps,
    stdin: BinaryIO | None,
    parts: Mapping[str, CapturePortion] | None,
    seen: Callable[[int], object] | None,
) -> Iterator[_Item]:
    def opened(name: str) -> Iterator[_Item]:
        return open_capture([name], stdin=stdin, parts=parts, seen=seen)

    @contextmanager
    def uncounted(name: str) -> Iterator[Iterator[Frame]]:
        # Closing the generator closes its file.
        items = cast("Generator[_Item]", open_capture([name], stdin=stdin, parts=parts))
        with closing(items):
            yield (item for item in items if type(item) is Frame)

    stored = in_stores(parts)
    captures = [TapSource(source) for source in sources if source in stored]
    for path_or_error in find_captures([source for source in sources if source != STDIN and source not in stored]):
        if isinstance(path_or_error, CaptureError):
            yield path_or_error
        else:
            captures.append(TapSource(path_or_error))
    captures += [TapSource(STDIN)] * (STDIN in sources)
    if len(captures) > 1:
        measure(captures, uncounted, stored)
    captures.sort(key=lambda source: source.first_ns)
    taps.sources = captures
    for _, item in merge(*(_timed(source, opened) for source in captures), key=itemgetter(0)):
        if item is not None:
            yield item


def _timed(source: TapSource, opened: Callable[[str], Iterator[_Item]]) -> Iterator[tuple[float, _Item | None]]:
    """Frames and notices of a capture with their times; first a ``None`` at the first time, before it is opened."""
    now: float = source.first_ns
    yield now, None
    for item in opened(source.name):
        if type(item) is Frame:
            now = item.timestamp_ns = item.timestamp_ns - source.ahead_ns
        yield now, item


def measure(captures: list[TapSource], opened: _Open, stored: Collection[str] = ()) -> None:
    """Find the first times and the clock differences of all captures that can be read twice.

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
    """Times of the first distinctive segments of a capture, without repeated segments."""
    times: dict[Identity, int] = {}
    often: set[Identity] = set()
    for frame in frames:
        identity = identity_of(frame)
        if identity is None or not _is_distinctive(identity):
            continue
        if identity in times:
            often.add(identity)
        times.setdefault(identity, frame.timestamp_ns)
        if len(times) >= HEAD_SEGMENTS:
            break
    return {identity: time for identity, time in times.items() if identity not in often}


def _is_distinctive(identity: Identity) -> bool:
    """Whether a segment is almost unique: it has a payload or an IP identification, or begins or ends a flow."""
    return len(identity[0]) in (12, 36) and bool(identity[5] or identity[3] & (SYN | FIN) or identity[8])


def _differences(
    frames: Iterator[Frame], head: Mapping[Identity, int], begin: int, end: int, ends: dict[str, int], name: str
) -> tuple[list[int], list[int]]:
    """Time differences of equal segments (``head`` minus frame), by direction: to the lower port, and from it."""
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


def _ahead(by_direction: tuple[list[int], list[int]]) -> int | None:
    """The difference of two clocks: mean of the median time differences of both directions, or of one."""
    if sum(map(len, by_direction)) < LEAST:
        return None
    middle = [sorted(differences)[len(differences) // 2] for differences in by_direction if differences]
    return sum(middle) // len(middle)
