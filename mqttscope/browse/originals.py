"""The captures that a lake was made of, where they still are: for the bytes of packets that its columns do not have.

A capture is read when a packet of it is looked at: in a thread, from its beginning, into an index of its own, after its
content was compared with what the lake was made of.  A few of them stay open.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from mqttscope.browse.building import Builder, Item, Source
from mqttscope.browse.index import FROM_SERVER
from mqttscope.browse.rows import PACKETS, Row
from mqttscope.capture.fingerprint import fingerprint_at
from mqttscope.capture.read import CaptureChangedError
from mqttscope.dissect import FastPath
from mqttscope.events import PacketEvent
from mqttscope.report.escape import escape

MAX_ORIGINALS: Final = 3
"""Captures that stay open."""
REACH: Final = 4_096
"""Rows around a place that are looked through for a frame."""

Wanted = tuple[int, bool, int, int, str, int]
"""How a packet is found: frame, whether the server sent it, first byte, length, client, which of several it is."""


class Reads(Protocol):
    """What reads a capture into an index of its own."""

    builder: Builder
    size: int
    """Bytes that there are to read."""

    def close(self) -> None:
        """End, and let go of all files."""


class UnchangedSource:
    """Segments of a capture that is what a lake was made of."""

    def __init__(self, path: str, digests: Collection[str], source: Source) -> None:
        """``digests``: of what the lake was made of (`capture.fingerprint`)."""
        self._path, self._digests, self._source = path, digests, source

    def segments(self, skipped: Counter[str], fast_path: FastPath | None) -> Iterator[Item]:
        """All segments; `CaptureChangedError` where the capture has changed since."""
        if fingerprint_at(self._path).digest not in self._digests:
            raise CaptureChangedError("has changed since it was ingested")
        yield from self._source.segments(skipped, fast_path)

    def stop(self) -> None:
        self._source.stop()


@dataclass(slots=True)
class _Opened:
    """A capture, or why it cannot be read."""

    reads: Reads | None
    why: str = ""


class Originals:
    """The captures of a lake."""

    def __init__(
        self, captures: Mapping[str, str], open_capture: Callable[[str, Collection[str]], Reads] | None
    ) -> None:
        """``captures``: names by digest, as the manifest has them.  ``open_capture``: reads one with such a digest."""
        self._digests: dict[str, list[str]] = {}
        for digest, name in captures.items():
            self._digests.setdefault(name, []).append(digest)
        self._open_capture = open_capture
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def _open(self, capture: str) -> _Opened:
        found = self._opened.get(capture)
        if found is not None:
            self._opened.move_to_end(capture)
            return found
        # One is read at a time: the one that is looked at.
        for name, other in list(self._opened.items()):
            if other.reads is not None and not other.reads.builder.done:
                self._close(name)
        found = self._opened[capture] = self._begun(capture)
        while len(self._opened) > MAX_ORIGINALS:
            self._close(next(iter(self._opened)))
        return found

    def _begun(self, capture: str) -> _Opened:
        digests = self._digests.get(capture)
        if digests is None or self._open_capture is None:
            return _Opened(None, "is not known to the lake under this name")
        if not os.path.isfile(capture):
            return _Opened(None, "is not there any more")
        reads = self._open_capture(capture, digests)
        reads.builder.start()
        return _Opened(reads)

    def _close(self, capture: str) -> None:
        found = self._opened.pop(capture)
        if found.reads is not None:
            found.reads.close()

    def state(self, capture: str) -> str:
        """Why the bytes of a capture are not shown, or not yet; empty where they are."""
        found = self._open(capture)
        name = escape(os.path.basename(capture) or capture)
        if found.reads is None:
            return f"{name} {found.why}"
        builder = found.reads.builder
        if builder.failure:
            return f"{name} {builder.failure}"
        if builder.done:
            return ""
        part = min(99, builder.position * 100 // found.reads.size) if found.reads.size else 0
        return f"{name} is being read for its bytes ({part} %)"

    @property
    def is_reading(self) -> bool:
        return any(one.reads is not None and not one.reads.builder.done for one in self._opened.values())

    def packet(self, capture: str, wanted: Wanted) -> PacketEvent | None:
        """A packet as it was captured; ``None`` where it is not there, or not yet."""
        reads = self._open(capture).reads
        if reads is None or not reads.builder.done or reads.builder.failure:
            return None
        index = reads.builder.index
        frame, from_server, header, length, client, nth = wanted
        for number, row in _of_frame(reads, frame):
            if row.kind not in PACKETS or bool(row.flags & FROM_SERVER) != from_server or row.header != header:
                continue
            event = index.event(number, row, whole=False)
            if not isinstance(event, PacketEvent) or event.connection.client != client:
                continue
            if len(event.packet.raw) + event.packet.missing != length:
                continue
            if not nth:
                return event
            nth -= 1
        return None

    def give_way(self) -> None:
        for one in self._opened.values():
            if one.reads is not None:
                one.reads.builder.give_way()

    def stop(self) -> None:
        while self._opened:
            self._close(next(iter(self._opened)))


def _of_frame(reads: Reads, frame: int) -> Iterator[tuple[int, Row]]:
    """The rows of a frame, of packets whose frames are in their order but for a few."""
    rows = reads.builder.index.rows
    at = bisect_left(rows, frame, key=lambda row: row.frame)
    start = max(0, at - REACH)
    for number, row in enumerate(rows.run(start, at + REACH), start):
        if row.frame == frame:
            yield number, row
