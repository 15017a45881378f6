"""Packets related to a packet: its exchange, and its message from publisher to subscribers.

`partner` cycles through an exchange.  `MessageSearch` finds the packets that carry a message, and their
acknowledgments.  MQTT does not identify the message of a delivery, so deliveries are matched by server, topic and
payload.  If identical content is published again, later deliveries belong to the newer message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.browse.index import FROM_SERVER, Index
from mqttscope.browse.rows import MAX_COUNT, PACKETS, IndexRow
from mqttscope.events import PacketEvent
from mqttscope.mqtt import PacketType, Publish
from mqttscope.session.connection import host_of

REACH_NS: Final = 60_000_000_000
"""Maximum time from publication to delivery; later deliveries to sleeping clients are not found."""
MAX_ROWS: Final = 200_000
"""Maximum number of rows searched before a delivery, and after the publication."""

MAX_APART: Final = 100_000
"""Maximum distance in rows of two packets of one exchange."""


def partner(index: Index, number: int) -> int | None:
    """Row of the next packet of the exchange, cyclically; ``None`` for a packet without an exchange."""
    row = index.rows[number]
    if row.kind not in PACKETS or row.root == MAX_COUNT:
        return None
    last = int(index.connections.last_rows[row.connection]) + 1
    end = min(last, number + 1 + MAX_APART)
    for at, other in enumerate(index.rows.run(number + 1, end), number + 1):
        if other.connection != row.connection or other.kind not in PACKETS:
            continue
        if other.root == row.root:
            return at
    first = index.rows.of_packet(row.root)
    return None if first is None or first == number else first


@dataclass(slots=True)
class FollowedMessage:
    """Packets of a message."""

    rows: set[int] = field(default_factory=set)
    """Rows of its packets and their acknowledgments."""
    publisher: int | None = None
    """Row of the PUBLISH to the server; ``None`` if it was not captured."""
    deliveries: int = 0
    is_cut: bool = False
    """Whether the search ended before the last row."""


class MessageSearch:
    """Searches for the packets of a message, a limited number of rows at a time."""

    def __init__(self, index: Index, row: int) -> None:
        """``row``: row of a PUBLISH; see `starts_at`."""
        self.index = index
        self.message = FollowedMessage()
        event = index.event(row, whole=False)
        assert isinstance(event, PacketEvent)
        assert isinstance(event.packet, Publish)
        self._topic, self._payload = event.topic, index.same_payload(event)
        self._server = host_of(event.connection.server)
        self._roots: set[int] = set()
        self._reached: dict[int, int] = {}
        """Rows of deliveries, by connection."""
        held = index.rows[row]
        self._began = row
        self._from_publisher = not held.flags & FROM_SERVER
        self._back: range | None = None if self._from_publisher else range(max(0, row - MAX_ROWS), row)
        self._at = row
        self._start_ns = held.timestamp_ns
        self._again = False
        """Whether identical content was published again."""
        self.is_over = False
        if self._from_publisher:
            self._publish(row, held)

    @staticmethod
    def starts_at(index: Index, row: int) -> bool:
        """Whether a row is a PUBLISH with a known topic."""
        event = index.event(row, whole=False)
        return isinstance(event, PacketEvent) and isinstance(event.packet, Publish) and bool(event.topic)

    def advance(self, count: int) -> None:
        """Search ``count`` more rows: back to the publisher, then forward to the subscribers."""
        if self.is_over:
            return
        if self._back is not None:
            self._look_back(count)
            return
        rows = self.index.rows
        end = min(len(rows), self._began + 1 + MAX_ROWS)
        stop = min(self._at + count, end)
        for number, row in enumerate(rows.run(self._at, stop), self._at):
            if row.timestamp_ns - self._start_ns > REACH_NS:
                self.is_over = True
                break
            if row.kind not in PACKETS:
                continue
            if row.root in self._roots and row.root != MAX_COUNT:
                self.message.rows.add(number)
            elif row.header >> 4 == PacketType.PUBLISH and number != self._began and self._carries(number, row):
                self._take(number, row)
        self._at = stop
        if stop >= end and not self.is_over:
            self.is_over, self.message.is_cut = True, end < len(rows)

    def _look_back(self, count: int) -> None:
        """Search for the latest PUBLISH to the server that may have caused a delivery."""
        back = self._back
        assert back is not None
        start = max(back.start, back.stop - count)
        for number in range(back.stop - 1, start - 1, -1):
            row = self.index.rows[number]
            if row.header >> 4 != PacketType.PUBLISH or row.kind not in PACKETS or row.flags & FROM_SERVER:
                continue
            if self._carries(number, row):
                self._publish(number, row)
                self._began = self._at = number
                self._start_ns, self._back = row.timestamp_ns, None
                return
        self._back = range(back.start, start)
        if not self._back:
            # A retained message, or an uncaptured publisher: follow this delivery and later ones.
            self._back = None
            self._deliver(self._began, self.index.rows[self._began])

    def _carries(self, number: int, row: IndexRow) -> bool:
        event = self.index.event(number, row, whole=False)
        return (
            isinstance(event, PacketEvent)
            and isinstance(event.packet, Publish)
            and event.topic == self._topic
            and self.index.same_payload(event) == self._payload
            and host_of(event.connection.server) == self._server
        )

    def _take(self, number: int, row: IndexRow) -> None:
        if row.flags & FROM_SERVER:
            if row.connection not in self._reached and not self._again:
                self._deliver(number, row)
        else:
            # Later deliveries belong to the newer message, but acknowledgments of this one may follow.
            self._again = True

    def _publish(self, number: int, row: IndexRow) -> None:
        self.message.publisher = number
        self.message.rows.add(number)
        self._roots.add(row.root)

    def _deliver(self, number: int, row: IndexRow) -> None:
        self._reached[row.connection] = number
        self.message.deliveries += 1
        self.message.rows.add(number)
        self._roots.add(row.root)
