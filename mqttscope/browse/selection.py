"""Which rows are looked at: all, or those that match, found a piece at a time; and the search for text among them.

A `Selection` looks at a limited number of rows at a time, so that the screen keeps answering; it grows with its index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from mqttscope.browse.index import Index
from mqttscope.browse.rows import PACKETS, Row
from mqttscope.compressed import unpack
from mqttscope.events import CaptureRemark, Event, PacketEvent
from mqttscope.filter import Filter
from mqttscope.mqtt.packets import Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.wire import counted
from mqttscope.report.public import public_event, with_public_names

MAX_UNPACKED: Final = 1 << 16
"""Maximum number of bytes of a compressed payload that are unpacked for a search."""
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x04\x22")
"""How payloads begin that a search unpacks."""


def as_shown(event: Event, *, show_secrets: bool) -> Event:
    """An event as it may be shown, with the places of its fields."""
    if show_secrets:
        return event
    return with_public_names(public_event(event, spans=True), spans=True)


class Selection:
    """Rows of an index that match."""

    def __init__(
        self,
        index: Index,
        *,
        wanted: Filter | None = None,
        connection: int | None = None,
        rows: set[int] | None = None,
        found: bool = False,
    ) -> None:
        """``wanted``: only events that match this filter; ``connection``: only those of one.

        ``rows``: only these; ``found``: only those with findings.
        """
        self.index = index
        self.wanted = wanted
        self.connection = connection
        self._only = rows
        self._found = found
        self.everything = wanted is None and connection is None and rows is None and not found
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
        """The number of a row by its place in the selection."""
        if self.everything:
            return at
        return self._rows[at]

    def place(self, row: int) -> int:
        """The place of a row, or of the first one after it."""
        return row if self.everything else bisect_left(self._rows, row)

    def has(self, row: int) -> bool:
        at = self.place(row)
        return at < len(self) and self[at] == row

    @property
    def is_complete(self) -> bool:
        """Whether all rows that there are were looked at."""
        return self.everything or self._only is not None or self._scanned >= self._end()

    @property
    def scanned(self) -> float:
        """Which part of the rows was looked at, from 0 to 1."""
        count = len(self.index.rows)
        return 1.0 if self.is_complete or not count else self._scanned / count

    def advance(self, count: int) -> None:
        """Look at ``count`` more rows at most."""
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

    def _matches(self, number: int, row: Row) -> bool:
        if self.connection is not None and row.connection != self.connection:
            return False
        if self._found and not row.severity:
            return False
        if self.wanted is None:
            return True
        event = self.index.event(number, row, whole=False)
        return isinstance(event, CaptureRemark) or self.wanted.matches(event)


def searched(event: Event, note_cut: Callable[[], object] = lambda: None) -> Iterator[bytes]:
    """The texts of a packet that a search looks through: topics, payloads, Topic Filters and names of clients.

    ``note_cut``: called for a compressed payload of which only the beginning is unpacked.
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
        for one in packet.subscriptions or ():
            yield one.topic_filter.encode("utf-8", "surrogateescape")
    elif isinstance(packet, Unsubscribe):
        for name in packet.topic_filters or ():
            yield name.encode("utf-8", "surrogateescape")
    elif isinstance(packet, Connect):
        yield packet.client_identifier.encode("utf-8", "surrogateescape")
        if packet.will is not None:
            yield packet.will.will_topic.encode("utf-8", "surrogateescape")
            yield packet.will.will_payload


class Search:
    """Looks for text in the rows of a selection, from a place on, forwards or backwards, and round once."""

    def __init__(self, selection: Selection, text: str, start: int, *, back: bool, show_secrets: bool) -> None:
        """``start``: the place to begin after.  Capital letters count where the text has any."""
        self.selection = selection
        self.text = text
        self._exact = text != text.lower()
        sought = text.encode("utf-8", "surrogateescape")
        self._sought = sought if self._exact else _small(sought)
        self._back = back
        self._at = start
        self._left = len(selection)
        self._show_secrets = show_secrets
        self.found: int | None = None
        """The place where it was found."""
        self.wrapped = False
        """Whether it continued from the other end."""
        self._cut = 0

    @property
    def is_over(self) -> bool:
        """Whether it was found, or is nowhere."""
        return self.found is not None or self._left <= 0

    @property
    def left_out(self) -> str:
        """What the search could not look at, as the end of a sentence; empty if it looked at everything."""
        return f"; limit: {counted(self._cut, 'compressed payload')} searched in part" if self._cut else ""

    def _note_cut(self) -> None:
        self._cut += 1

    def advance(self, until: Callable[[], bool]) -> None:
        """Look on until it is found, or ``until`` says so."""
        index, selection = self.selection.index, self.selection
        while self._left > 0 and self.found is None:
            count = len(selection)
            self._at += -1 if self._back else 1
            if not 0 <= self._at < count:
                self._at, self.wrapped = (count - 1 if self._back else 0), True
            self._left -= 1
            number = selection[self._at]
            row = index.rows[number]
            if row.kind in PACKETS and self._is_in(number, row):
                self.found = self._at
            elif not self._left & 31 and until():
                return

    def _is_in(self, number: int, row: Row) -> bool:
        event = self.selection.index.event(number, row, whole=False)
        if not any(self._holds(text) for text in searched(event, self._note_cut)):
            return False
        # What is hidden is not found either.
        shown = as_shown(event, show_secrets=self._show_secrets)
        return shown is event or any(self._holds(text) for text in searched(shown))

    def _holds(self, text: bytes) -> bool:
        return self._sought in (text if self._exact else _small(text))


def _small(text: bytes) -> bytes:
    """Bytes in small letters, as far as they are text."""
    if text.isascii():
        return text.lower()
    return text.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")
