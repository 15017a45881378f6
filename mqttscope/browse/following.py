"""Which packets belong to one: the others of its exchange, and those of its message from publisher to subscribers.

`partner` goes round an exchange.  `Following` finds the packets that carry a message, and those that answer them.
Nothing in MQTT says which delivery is of which message, so it is known by its server, topic and payload.  A message
that is published again with the same payload ends what is followed: later deliveries are of the other one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.browse.index import FROM_SERVER, Index
from mqttscope.browse.rows import MAX_COUNT, PACKETS, Row
from mqttscope.events import PacketEvent
from mqttscope.filter.fields import split_endpoint
from mqttscope.mqtt import PacketType, Publish

REACH_NS: Final = 60_000_000_000
"""Maximum time from publication to delivery: sleeping clients get the message later, and are not looked for."""
MAX_ROWS: Final = 200_000
"""Maximum number of rows that are looked through before a delivery, and after the publication."""

MAX_APART: Final = 100_000
"""Maximum distance in rows of two packets of one exchange."""


def partner(index: Index, number: int) -> int | None:
    """The row of the next packet of the same exchange, round and round; ``None`` where it stands alone."""
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
class Followed:
    """The way of a message."""

    rows: set[int] = field(default_factory=set)
    """Its packets, and those that answer them."""
    publisher: int | None = None
    """The row of the PUBLISH to the server; ``None`` where that is not in the capture."""
    deliveries: int = 0
    is_cut: bool = False
    """Whether later rows were not looked through."""


class Following:
    """Looks for the packets of a message, a limited number of rows at a time."""

    def __init__(self, index: Index, row: int) -> None:
        """``row``: that of a PUBLISH; see `starts_at`."""
        self.index = index
        self.found = Followed()
        event = index.event(row, whole=False)
        assert isinstance(event, PacketEvent)
        assert isinstance(event.packet, Publish)
        self._topic, self._payload = event.topic, index.same_payload(event)
        self._server = _host(event.connection.server)
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
        """Whether it was published again."""
        self.is_over = False
        if self._from_publisher:
            self._publish(row, held)

    @staticmethod
    def starts_at(index: Index, row: int) -> bool:
        """Whether a row is a PUBLISH with a topic that is known."""
        event = index.event(row, whole=False)
        return isinstance(event, PacketEvent) and isinstance(event.packet, Publish) and bool(event.topic)

    def advance(self, count: int) -> None:
        """Look at ``count`` more rows: back to the publisher, then forward to the subscribers."""
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
                self.found.rows.add(number)
            elif row.header >> 4 == PacketType.PUBLISH and number != self._began and self._carries(number, row):
                self._take(number, row)
        self._at = stop
        if stop >= end and not self.is_over:
            self.is_over, self.found.is_cut = True, end < len(rows)

    def _look_back(self, count: int) -> None:
        """Look for the latest PUBLISH to the server that a delivery may be of."""
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
            # Retained, or of a client that was not captured: this delivery and those after it.
            self._back = None
            self._deliver(self._began, self.index.rows[self._began])

    def _carries(self, number: int, row: Row) -> bool:
        event = self.index.event(number, row, whole=False)
        return (
            isinstance(event, PacketEvent)
            and isinstance(event.packet, Publish)
            and event.topic == self._topic
            and self.index.same_payload(event) == self._payload
            and _host(event.connection.server) == self._server
        )

    def _take(self, number: int, row: Row) -> None:
        if row.flags & FROM_SERVER:
            if row.connection not in self._reached and not self._again:
                self._deliver(number, row)
        else:
            # What is delivered now is of that one; the answers to this one may still come.
            self._again = True

    def _publish(self, number: int, row: Row) -> None:
        self.found.publisher = number
        self.found.rows.add(number)
        self._roots.add(row.root)

    def _deliver(self, number: int, row: Row) -> None:
        self._reached[row.connection] = number
        self.found.deliveries += 1
        self.found.rows.add(number)
        self._roots.add(row.root)


def _host(endpoint: str) -> str:
    return split_endpoint(endpoint)[0]
