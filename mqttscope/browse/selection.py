"""Selection of rows: all, or the matching ones, found in small steps; and text search in them.

A `ShownRows` checks a limited number of rows at a time, so that the screen responds; it grows with its index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from mqttscope.browse.index import Index
from mqttscope.browse.rows import PACKETS, IndexRow
from mqttscope.compressed import unpack
from mqttscope.events import CaptureRemark, Event, PacketEvent
from mqttscope.filter import Filter
from mqttscope.mqtt.packets import Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.wire import counted
from mqttscope.report.public import public_event, with_public_names

MAX_UNPACKED: Final = 1 << 16
"""Maximum number of bytes that a search unpacks from a compressed payload."""
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x04\x22")
"""First bytes of payloads that a search unpacks."""


def as_shown(event: Event, *, show_secrets: bool) -> Event:
    """An event with secrets hidden, with the byte ranges of its fields."""
    if show_secrets:
        return event
    return with_public_names(public_event(event, spans=True), spans=True)


class ShownRows:
    """Matching rows of an index."""

    def __init__(
        self,
        index: Index,
        *,
        wanted: Filter | None = None,
        connection: int | None = None,
        rows: set[int] | None = None,
        with_findings: bool = False,
    ) -> None:
        """``wanted``: only events that match this filter; ``connection``: only events of this connection.

        ``rows``: only these rows; ``with_findings``: only rows with findings.
        """
        self.index = index
        self.wanted = wanted
        self.connection = connection
        self._only = rows
        self._only_with_findings = with_findings
        self.everything = wanted is None and connection is None and rows is None and not with_findings
        self._rows = array("Q")
        self._scanned = 0
        if rows is not None:
            self._rows.extend(sorted(rows))
            self._scanned = len(index.rows)
        elif connection is not None and connection < len(index.connections):
            self._scanned = index.connections.first_rows[connection]

    def __len__(self) -> int:
        return len(self.index.rows) if self.everything else len(self._rows)

    def __getitem__(self, at: int) -> int:
        """Number of a row by its place in the selection."""
        if self.everything:
            return at
        return self._rows[at]

    def place(self, row: int) -> int:
        """Place of a row, or of the next row in the selection."""
        return row if self.everything else bisect_left(self._rows, row)

    def has(self, row: int) -> bool:
        at = self.place(row)
        return at < len(self) and self[at] == row

    @property
    def is_complete(self) -> bool:
        """Whether all existing rows were checked."""
        return self.everything or self._only is not None or self._scanned >= self._end()

    @property
    def scanned(self) -> float:
        """Share of the rows that were checked, from 0 to 1."""
        count = len(self.index.rows)
        return 1.0 if self.is_complete or not count else self._scanned / count

    def advance(self, count: int) -> None:
        """Check at most ``count`` more rows."""
        if self.is_complete:
            return
        stop = min(self._scanned + count, self._end())
        for number, row in enumerate(self.index.rows.run(self._scanned, stop), self._scanned):
            if self._matches(number, row):
                self._rows.append(number)
        self._scanned = stop

    def _end(self) -> int:
        connection, connections = self.connection, self.index.connections
        if connection is None or connection >= len(connections) or connections.is_open(connection):
            return len(self.index.rows)
        return int(connections.last_rows[connection]) + 1

    def _matches(self, number: int, row: IndexRow) -> bool:
        if self.connection is not None and row.connection != self.connection:
            return False
        if self._only_with_findings and not row.severity:
            return False
        if self.wanted is None:
            return True
        event = self.index.event(number, row, whole=False)
        return isinstance(event, CaptureRemark) or self.wanted.matches(event)


def searched(event: Event, note_cut: Callable[[], object] = lambda: None) -> Iterator[bytes]:
    """Searchable texts of a packet: topics, payloads, Topic Filters and Client Identifiers.

    ``note_cut``: called for a compressed payload that is only partly unpacked.
    """
    if not isinstance(event, PacketEvent):
        return
    packet = event.packet
    if isinstance(packet, Publish):
        yield (event.topic or packet.topic_name or "").encode("utf-8", "surrogateescape")
        payload = packet.payload
        yield payload
        if payload[:2] in _COMPRESSED:
            inner = unpack(payload, MAX_UNPACKED, missing=packet.missing)
            if inner is not None:
                if inner.cut:
                    note_cut()
                yield inner.data
    elif isinstance(packet, Subscribe):
        for subscription in packet.subscriptions or ():
            yield subscription.topic_filter.encode("utf-8", "surrogateescape")
    elif isinstance(packet, Unsubscribe):
        for name in packet.topic_filters or ():
            yield name.encode("utf-8", "surrogateescape")
    elif isinstance(packet, Connect):
        yield packet.client_identifier.encode("utf-8", "surrogateescape")
        if packet.will is not None:
            yield packet.will.will_topic.encode("utf-8", "surrogateescape")
            yield packet.will.will_payload


class Search:
    """Searches the rows of a selection for text, from a place, forwards or backwards, wrapping around once."""

    def __init__(self, selection: ShownRows, text: str, start: int, *, back: bool, show_secrets: bool) -> None:
        """``start``: place before the first one to check.  A text with capital letters is case-sensitive."""
        self.selection = selection
        self.text = text
        self._exact = text != text.lower()
        sought = text.encode("utf-8", "surrogateescape")
        self._sought = sought if self._exact else _small(sought)
        self._back = back
        self._at = start
        self._count = self._left = len(selection)
        self._show_secrets = show_secrets
        self.match: int | None = None
        """Place of the match."""
        self.wrapped = False
        """Whether the search has wrapped around."""
        self._cut = 0

    @property
    def is_over(self) -> bool:
        """Whether the search is finished."""
        return self.match is not None or self._left <= 0

    @property
    def share(self) -> float:
        """Share of the rows that was searched."""
        return 1 - self._left / self._count if self._count else 1.0

    @property
    def left_out(self) -> str:
        """End of a sentence about texts that could not be searched, or empty."""
        return f"; limit: {counted(self._cut, 'compressed payload')} searched in part" if self._cut else ""

    def _note_cut(self) -> None:
        self._cut += 1

    def advance(self, until: Callable[[], bool]) -> None:
        """Search until a match, or until ``until`` returns true."""
        index, selection = self.selection.index, self.selection
        while self._left > 0 and self.match is None:
            count = len(selection)
            self._at += -1 if self._back else 1
            if not 0 <= self._at < count:
                self._at, self.wrapped = (count - 1 if self._back else 0), True
            self._left -= 1
            number = selection[self._at]
            row = index.rows[number]
            if row.kind in PACKETS and self._is_in(number, row):
                self.match = self._at
            elif not self._left & 31 and until():
                return

    def _is_in(self, number: int, row: IndexRow) -> bool:
        event = self.selection.index.event(number, row, whole=False)
        if not any(self._holds(text) for text in searched(event, self._note_cut)):
            return False
        # Hidden text cannot be found.
        shown = as_shown(event, show_secrets=self._show_secrets)
        return shown is event or any(self._holds(text) for text in searched(shown))

    def _holds(self, text: bytes) -> bool:
        return self._sought in (text if self._exact else _small(text))


def _small(text: bytes) -> bytes:
    """Bytes with text in lower case."""
    if text.isascii():
        return text.lower()
    return text.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")
