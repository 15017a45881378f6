"""The source captures of a lake, if they still exist, for packet bytes that the columns of the lake lack.

A capture is read when one of its packets is shown: in a thread, from its start, into a separate index, after its digest
was compared with the one in the lake.  A few captures stay open.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from mqttscope.browse.building import Builder, Item, PassFrames, SegmentSource
from mqttscope.browse.index import FROM_SERVER
from mqttscope.browse.rows import PACKETS, IndexRow
from mqttscope.capture.fingerprint import fingerprint_at
from mqttscope.capture.read import CaptureChangedError
from mqttscope.dissect import FastPath
from mqttscope.events import PacketEvent
from mqttscope.report.escape import escape

MAX_ORIGINALS: Final = 3
"""Maximum number of open captures."""
REACH: Final = 4_096
"""Number of rows searched for a frame before and after its expected place."""

WantedPacket = tuple[int, bool, int, int, str, int]
"""Search key of a packet: frame, whether the server sent it, first byte, length, client, index among equal ones."""


class SourceReading(Protocol):
    """Reads a capture into a separate index."""

    builder: Builder
    size: int
    """Number of bytes to read."""

    def close(self) -> None:
        """Stop reading and close all files."""


class UnchangedSource:
    """Segments of a capture with the content that the lake ingested."""

    def __init__(self, path: str, digests: Collection[str], source: SegmentSource) -> None:
        """``digests``: digests of the ingested content (`capture.fingerprint`)."""
        self._path, self._digests, self._source = path, digests, source

    def segments(
        self, skipped: Counter[str], fast_path: FastPath | None, frames: PassFrames | None = None
    ) -> Iterator[Item]:
        """All segments; `CaptureChangedError` if the capture has changed since."""
        if fingerprint_at(self._path).digest not in self._digests:
            raise CaptureChangedError("has changed since it was ingested")
        yield from self._source.segments(skipped, fast_path, frames)

    def stop(self) -> None:
        self._source.stop()


@dataclass(slots=True)
class _OpenedSource:
    """A capture, or the reason why it cannot be read."""

    reads: SourceReading | None
    why: str = ""


class Originals:
    """Source captures of a lake."""

    def __init__(
        self, captures: Mapping[str, str], open_capture: Callable[[str, Collection[str]], SourceReading] | None
    ) -> None:
        """``captures``: names by digest, from the manifest.  ``open_capture``: opens a capture with such a digest."""
        self._digests: dict[str, list[str]] = {}
        for digest, name in captures.items():
            self._digests.setdefault(name, []).append(digest)
        self._open_capture = open_capture
        self._opened: OrderedDict[str, _OpenedSource] = OrderedDict()

    def _open(self, capture: str) -> _OpenedSource:
        opened = self._opened.get(capture)
        if opened is not None:
            self._opened.move_to_end(capture)
            return opened
        # Read only one capture at a time: the current one.
        for name, other in list(self._opened.items()):
            if other.reads is not None and not other.reads.builder.done:
                self._close(name)
        opened = self._opened[capture] = self._open_source(capture)
        while len(self._opened) > MAX_ORIGINALS:
            self._close(next(iter(self._opened)))
        return opened

    def _open_source(self, capture: str) -> _OpenedSource:
        digests = self._digests.get(capture)
        if digests is None or self._open_capture is None:
            return _OpenedSource(None, "has a name that the lake does not list")
        if not os.path.isfile(capture):
            return _OpenedSource(None, "no longer exists")
        reads = self._open_capture(capture, digests)
        reads.builder.start()
        return _OpenedSource(reads)

    def _close(self, capture: str) -> None:
        opened = self._opened.pop(capture)
        if opened.reads is not None:
            opened.reads.close()

    def state(self, capture: str) -> str:
        """Reason why the bytes of a capture are not shown (yet), or empty."""
        opened = self._open(capture)
        name = escape(os.path.basename(capture) or capture)
        if opened.reads is None:
            return f"{name} {opened.why}"
        builder = opened.reads.builder
        if builder.failure:
            return f"{name} {builder.failure}"
        if builder.done:
            return ""
        part = min(99, builder.position * 100 // opened.reads.size) if opened.reads.size else 0
        return f"{name} is being read for its bytes ({part} %)"

    @property
    def is_reading(self) -> bool:
        return any(opened.reads is not None and not opened.reads.builder.done for opened in self._opened.values())

    def packet(self, capture: str, wanted: WantedPacket) -> PacketEvent | None:
        """A packet with its captured bytes; ``None`` if it is not available (yet)."""
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
        for opened in self._opened.values():
            if opened.reads is not None:
                opened.reads.builder.give_way()

    def stop(self) -> None:
        while self._opened:
            self._close(next(iter(self._opened)))


def _of_frame(reads: SourceReading, frame: int) -> Iterator[tuple[int, IndexRow]]:
    """Rows of a frame; frame numbers of rows are in order with few exceptions."""
    rows = reads.builder.index.rows
    at = bisect_left(rows, frame, key=lambda row: row.frame)
    start = max(0, at - REACH)
    for number, row in enumerate(rows.run(start, at + REACH), start):
        if row.frame == frame:
            yield number, row
