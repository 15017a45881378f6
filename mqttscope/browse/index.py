"""The index of a browser: takes events as they come, and gives any of them back from a few bytes and the capture.

`Index.feed` makes a row of an event while its connection is in the state before it.  What the bytes of a packet say is
not kept: `Index.event` decodes them again when a row is looked at.  Rare events, whose bytes do not say all of it, are
put aside on the spool as they are, and so are connections once they are over.

One writer feeds; others may look at the rows that are there meanwhile.
"""

from __future__ import annotations

import pickle
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Protocol

from mqttscope.browse.rows import MAX_COUNT, SPOOLED, Row, RowKind, RowStore, Spool
from mqttscope.events import (
    CaptureRemark,
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    Damage,
    DiscardedEvent,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connect, ControlPacket, Direction, Malformed, PacketType, ProtocolVersion, Publish, decode
from mqttscope.net.frame import CaptureError
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import C2S, S2C, AcknowledgmentLookup, Connection
from mqttscope.session.inflight import Exchange, Side

VERSIONS: Final = tuple(ProtocolVersion)
MAX_FINDINGS: Final = 200_000
"""Findings that are remembered; further ones are counted."""
MAX_SHOWN: Final = 512
"""Connections whose shown form is kept ready."""
FROM_SERVER, DOUBT, DOUBTFUL, VERSION, VERSION_KNOWN = 1, 2, 16, 32, 128
"""Bits of `Row.flags`: one, three from 2 on, one, two from 32 on, one."""
_BEGINS = frozenset((PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ))

Locate = Callable[[bytes], int]
"""Gives the offset of bytes in the capture; -1 where it does not have them in one piece."""


class Captured(Protocol):
    """The bytes of captures."""

    def read(self, capture: str, offset: int, size: int) -> bytes:
        """Bytes of a capture; fewer where it does not have them any more."""


class LostEvent(UnparsedEvent):
    """What stands for a packet whose bytes the capture does not have any more."""


class Connections:
    """What is remembered of connections: those that are open as they are, others on the spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._open: dict[int, Connection] = {}
        self._places = array("Q")
        self._sizes = array("I")
        self.first_rows = array("Q")
        self.last_rows = array("Q")
        """The first and the last row of each."""
        self.rows = array("Q")
        """How many rows each has."""
        self.findings = (array("I"), array("I"), array("I"))
        """Findings of each: information, warnings, errors."""

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, connection: Connection) -> None:
        """Take a new one."""
        self._open[connection.number] = connection
        while len(self.rows) <= connection.number:
            for column in (self._places, self._sizes, self.first_rows, self.last_rows, *self.findings):
                column.append(0)
            # Last, since readers in other threads go by it.
            self.rows.append(0)

    def close(self, connection: Connection) -> None:
        """Put one aside that is over."""
        data = pickle.dumps(slim(connection))
        self._places[connection.number] = self._spool.write(data)
        self._sizes[connection.number] = len(data)
        self._open.pop(connection.number, None)

    def note_row(self, number: int, row: int) -> None:
        """Count a row of a connection."""
        if not self.rows[number]:
            self.first_rows[number] = row
        self.rows[number] += 1
        self.last_rows[number] = row

    def is_open(self, number: int) -> bool:
        """Whether more may come of a connection."""
        return number in self._open

    def __getitem__(self, number: int) -> Connection:
        """A connection as it stands now, without what it remembers of exchanges."""
        live = self._open.get(number)
        if live is not None:
            return slim(live)
        found: Connection = pickle.loads(self._spool.read(self._places[number], self._sizes[number]))
        return found

    def revision(self, number: int) -> int:
        """Another number whenever what is shown of a connection has changed."""
        live = self._open.get(number)
        return -1 if live is None else live.revision


def slim(connection: Connection) -> Connection:
    """A connection without what judging and exchanges need of it."""
    made = copy(connection)
    made.history = made.alarm = made.acknowledgments = None
    made.details = dict(connection.details)
    made.client_side, made.server_side = _counts(connection.client_side), _counts(connection.server_side)
    return made


def _counts(side: Side) -> Side:
    return Side(
        packets=side.packets, bytes=side.bytes, last_timestamp_ns=side.last_timestamp_ns,
        aliases_dropped=side.aliases_dropped, doubt=side.doubt,
    )  # fmt: skip


class FoundRows:
    """Findings in the order of their rows."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.rows = array("Q")
        self._places = array("Q")
        self.left_out = 0
        """Findings beyond `MAX_FINDINGS`."""

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: int, finding: Finding) -> None:
        """Put one aside."""
        if len(self.rows) >= MAX_FINDINGS:
            self.left_out += 1
            return
        data = pickle.dumps(finding)
        at = bisect_right(self.rows, row)
        # Whoever reads in between gets its neighbour, but never half a finding.
        self._places.insert(at, self._spool.write(len(data).to_bytes(4, "little") + data))
        self.rows.insert(at, row)

    def __getitem__(self, at: int) -> Finding:
        place = self._places[at]
        size = int.from_bytes(self._spool.read(place, 4), "little")
        found: Finding = pickle.loads(self._spool.read(place + 4, size))
        return found

    def of_row(self, row: int) -> list[Finding]:
        return [self[at] for at in range(bisect_left(self.rows, row), bisect_right(self.rows, row))]


class Index:
    """Rows, connections and findings of captures, while these are read."""

    def __init__(self, spool: Spool, captured: Captured, *, kept_blocks: int | None = None) -> None:
        self._spool = spool
        self._captured = captured
        self.rows = RowStore(spool, kept_blocks=kept_blocks)
        self.connections = Connections(spool)
        self.findings = FoundRows(spool)
        self.captures: list[str] = []
        self._numbers: dict[str, int] = {}
        self.acknowledgments: AcknowledgmentLookup | None = None
        """Answers whether TCP acknowledged packets; ``None`` if nobody knows."""
        self.packets = 0
        """Packets so far, malformed ones included."""
        self.first_ns = 0
        self._ended: set[int] = set()
        """Open connections of which a row says that they end."""
        self._shown: OrderedDict[tuple[int, int, int], Connection] = OrderedDict()

    def feed(self, event: Event, locate: Locate | None = None) -> int | None:
        """Make a row of an event; returns its number, ``None`` where it has none.

        ``locate`` finds bytes in the capture.
        """
        made: int | None = None
        if type(event) is PacketEvent:
            made = self._packet(event, locate)
        elif isinstance(event, Damage):
            made = self._special(event)
        elif isinstance(event, ConnectionOpened):
            self.connections.open(event.connection)
            made = self.feed_connection(RowKind.OPENED, event)
        elif isinstance(event, ConnectionEnding):
            self._ended.add(event.connection.number)
            made = self.feed_connection(RowKind.ENDING, event)
        elif isinstance(event, ConnectionClosed):
            if event.connection.number not in self._ended:
                made = self.feed_connection(RowKind.CLOSED, event)
            self._ended.discard(event.connection.number)
            self.connections.close(event.connection)
        elif isinstance(event, CaptureRemark):
            kind = RowKind.ERROR if isinstance(event, CaptureError) else RowKind.DROPS
            data = pickle.dumps(event)
            last_ns = self.rows[len(self.rows) - 1].timestamp_ns if len(self.rows) else 0
            made = self._add(kind, self._put(data), last_ns, len(data), 0, MAX_COUNT, event.capture)
        return made

    def note(self, row: int | None, finding: Finding) -> None:
        """Take a finding about the event of a row; one without a row is about its connection."""
        severity, number = finding.severity.rank, finding.connection
        known = 0 <= number < len(self.connections)
        if row is None:
            if not known:
                return
            row = self.connections.last_rows[number]
        if row >= len(self.rows):
            return
        self.findings.add(row, finding)
        self.rows.note(row, severity + 1)
        if known:
            self.connections.findings[severity][number] += 1

    def _packet(self, event: PacketEvent, locate: Locate | None) -> int:
        packet, connection = event.packet, event.connection
        raw, place, kind = packet.raw, -1, RowKind.PACKET
        topic = event.topic
        if packet.missing or not raw or not (connection.version_known or _says_all(event)):
            data = pickle.dumps((packet, topic))
            place, kind = self._put(data), RowKind.ODD_PACKET
            length = len(data)
        else:
            length = len(raw)
            if topic is not None and type(packet) is Publish and topic != packet.topic_name:
                name = topic.encode("utf-8", "surrogateescape")
                data = len(name).to_bytes(4, "little") + name + raw
                place, kind, length = self._put(data), RowKind.ALIASED, len(data)
            else:
                if locate is not None:
                    place = locate(raw)
                if place < 0:
                    place = self._put(raw)
        self.packets = event.number + 1
        return self._add(
            kind, place, event.timestamp_ns, length, event.frame, connection.number, event.capture,
            number=event.number, root=_root(event), header=raw[0] if raw else 0, flags=_flags(event),
        )  # fmt: skip

    def _special(self, event: Damage) -> int:
        """The row of an event that is kept as it is."""
        number, header = self.packets, 0
        what: Any
        if isinstance(event, MalformedEvent):
            kind, number = RowKind.MALFORMED, event.number
            self.packets = number + 1
            what = event.malformed, event.topic
            header = event.malformed.raw[0] if event.malformed.raw else 0
        elif isinstance(event, GapEvent):
            kind, what = RowKind.GAP, (event.length, event.reason)
        elif isinstance(event, UnparsedEvent):
            kind, what = RowKind.UNPARSED, event.unparsed
        else:
            kind, what = RowKind.DISCARDED, (event.length, event.reason)
        data = pickle.dumps((what, event.connection.side(event.direction).packets))
        return self._add(
            kind, self._put(data), event.timestamp_ns, len(data), event.frame, event.connection.number, event.capture,
            number=number, header=header, flags=_flags(event),
        )  # fmt: skip

    def feed_connection(self, kind: RowKind, event: ConnectionOpened | ConnectionEnding | ConnectionClosed) -> int:
        """Make a row of the beginning or the end of a connection that is known; returns its number."""
        return self._add(kind, 0, event.timestamp_ns, 0, event.frame, event.connection.number, event.capture)

    def _put(self, data: bytes) -> int:
        return self._spool.write(data) | SPOOLED

    def _add(
        self, kind: RowKind, place: int, timestamp_ns: int, length: int, frame: int, connection: int, capture: str, *,
        number: int | None = None, root: int = MAX_COUNT, header: int = 0, flags: int = 0,
    ) -> int:  # fmt: skip
        named = self._numbers.get(capture)
        if named is None:
            # Captures beyond what a row can name share the last name.
            named = self._numbers[capture] = min(len(self.captures), 0xFFFF)
            if len(self.captures) <= named:
                self.captures.append(capture)
        if not len(self.rows):
            self.first_ns = captured(timestamp_ns)
        number = self.packets if number is None else number
        row = Row(
            place, captured(timestamp_ns), length, min(frame, MAX_COUNT), min(connection, MAX_COUNT),
            min(root, MAX_COUNT), min(number, MAX_COUNT), kind, flags, header, 0, named,
        )  # fmt: skip
        made = self.rows.append(row)
        if connection < len(self.connections):
            self.connections.note_row(connection, made)
        return made

    def event(self, number: int, row: Row | None = None, *, whole: bool = True) -> Event:
        """The event of a row.  Its connection is in no state but that of its beginning.

        ``whole``: an answer knows what it answers, which takes a look at another row.
        """
        row = self.rows[number] if row is None else row
        capture = self.captures[row.capture]
        kind = row.kind
        if kind == RowKind.ERROR or kind == RowKind.DROPS:
            found: Event = pickle.loads(self._bytes(row))
            return found
        connection = self._connection(row)
        place = (row.frame, row.timestamp_ns, capture)
        if kind == RowKind.OPENED:
            return ConnectionOpened(connection, *place)
        if kind == RowKind.ENDING:
            return ConnectionEnding(connection, *place)
        if kind == RowKind.CLOSED:
            return ConnectionClosed(connection, *place)
        direction = S2C if row.flags & FROM_SERVER else C2S
        if kind <= RowKind.ODD_PACKET:
            packet, topic = self._decoded(row)
            if packet is None:
                from mqttscope.mqtt.stream import Unparsed

                lost = Unparsed("capture_changed", row.length, b"", row.length, row.header >> 4)
                return LostEvent(connection, direction, *place, lost)
            if whole and row.root != row.number and row.root != MAX_COUNT:
                connection = self._answering(connection, packet, direction, row.root)
            return PacketEvent(connection, direction, row.number, *place, packet, topic)
        what, before = pickle.loads(self._bytes(row))
        if not before:
            connection = copy(connection)
            connection.client_side, connection.server_side = copy(connection.client_side), copy(connection.server_side)
            connection.side(direction).packets = 0
        if kind == RowKind.MALFORMED:
            malformed, topic = what
            return MalformedEvent(connection, direction, row.number, *place, malformed, topic)
        if kind == RowKind.GAP:
            return GapEvent(connection, direction, *place, *what)
        if kind == RowKind.UNPARSED:
            return UnparsedEvent(connection, direction, *place, what)
        return DiscardedEvent(connection, direction, *place, *what)

    def exact(self, number: int) -> Event:
        """The event of a row with all that is known of it, however long that takes to look for."""
        return self.event(number)

    def remark(self, number: int) -> str:
        """What has to be said of the fields and bytes of a row; empty where these are what was captured."""
        return ""

    @property
    def lacks(self) -> str:
        """What a search or a filter cannot look at here; empty where there is nothing of the kind."""
        return ""

    def same_payload(self, event: PacketEvent) -> object:
        """What two messages with the same payload have in common."""
        return event.packet.payload  # type: ignore[attr-defined]

    def raw(self, row: Row) -> bytes:
        """The bytes of a packet without a fault; empty for other rows."""
        if row.kind > RowKind.ODD_PACKET:
            return b""
        packet, _ = self._decoded(row)
        return b"" if packet is None else packet.raw

    def _bytes(self, row: Row) -> bytes:
        if row.place & SPOOLED:
            return self._spool.read(row.place & ~SPOOLED, row.length)
        return self._captured.read(self.captures[row.capture], row.place, row.length)

    def _decoded(self, row: Row) -> tuple[ControlPacket | None, str | None]:
        """The packet of a row and its topic; no packet where the capture has changed."""
        data = self._bytes(row)
        if row.kind == RowKind.ODD_PACKET:
            packet, topic = pickle.loads(data)
            return packet, topic
        topic = None
        if row.kind == RowKind.ALIASED:
            length = int.from_bytes(data[:4], "little")
            topic, data = data[4 : 4 + length].decode("utf-8", "surrogateescape"), data[4 + length :]
        elif len(data) != row.length or data[0] != row.header:
            return None, None
        made = decode(data, VERSIONS[row.flags // VERSION & 3])
        if isinstance(made, Malformed):
            return None, None
        if topic is None and type(made) is Publish:
            topic = made.topic_name or None
        return made, topic

    def _connection(self, row: Row) -> Connection:
        """The connection of a row as the row remembers it."""
        number = row.connection
        key = (number, self.connections.revision(number), row.flags)
        known = self._shown.get(key)
        if known is not None and key[1] < 0:
            return known
        made = self.connections[number]
        made.acknowledgments = self.acknowledgments
        if row.kind <= RowKind.DISCARDED and row.kind != RowKind.OPENED:
            made.version = VERSIONS[row.flags // VERSION & 3]
            made.version_known = bool(row.flags & VERSION_KNOWN)
            made.side(S2C if row.flags & FROM_SERVER else C2S).doubt = row.flags // DOUBT & 7
            made.doubtful = bool(row.flags & DOUBTFUL)
        self._shown[key] = made
        if len(self._shown) > MAX_SHOWN:
            self._shown.popitem(last=False)
        return made

    def _answering(self, connection: Connection, packet: ControlPacket, direction: Direction, root: int) -> Connection:
        """A connection that remembers the exchange which a packet belongs to."""
        number = self.rows.of_packet(root)
        if number is None:
            return connection
        row = self.rows[number]
        made = copy(connection)
        made.client_side, made.server_side = copy(made.client_side), copy(made.server_side)
        kind = row.header >> 4
        asking = made.server_side if row.flags & FROM_SERVER else made.client_side
        if kind == PacketType.CONNECT:
            made.connect_packet, made.connect_timestamp_ns = root, row.timestamp_ns
        elif kind == PacketType.PINGREQ:
            asking.ping_packet, asking.ping_timestamp_ns = root, row.timestamp_ns
        else:
            name = {PacketType.SUBSCRIBE: "subscribe", PacketType.UNSUBSCRIBE: "unsubscribe"}.get(
                PacketType(kind), "publish"
            )
            identifier = getattr(packet, "packet_identifier", None) or 0
            topic = None
            if name == "publish" and row.kind <= RowKind.ODD_PACKET:
                topic = self._decoded(row)[1]
            asking.exchanges = {identifier: Exchange(identifier, root, row.frame, row.timestamp_ns, name, topic=topic)}
        return made


def _flags(event: PacketEvent | Damage) -> int:
    connection, direction = event.connection, event.direction
    version = connection.version
    if type(event) is PacketEvent and type(event.packet) is Connect:
        version = event.packet.version
    return (
        (0 if direction is C2S else FROM_SERVER)
        | (connection.side(direction).doubt & 7) * DOUBT
        | (DOUBTFUL if connection.doubtful else 0)
        | VERSIONS.index(version) * VERSION
        | (VERSION_KNOWN if connection.version_known else 0)
    )


def _says_all(event: PacketEvent) -> bool:
    """Whether a packet is decoded to the same again: the version may have been another one when it was."""
    return decode(event.packet.raw, event.connection.version) == event.packet


def _root(event: PacketEvent) -> int:
    """Number of the packet that began the exchange of this one; `MAX_COUNT` for a packet that stands alone."""
    packet, connection = event.packet, event.connection
    kind = packet.packet_type
    if kind is PacketType.PUBLISH:
        identifier = packet.packet_identifier  # type: ignore[attr-defined]
        if identifier is None:
            return MAX_COUNT
        if packet.dup:  # type: ignore[attr-defined]
            running = connection.side(event.direction).running(identifier, "publish")
            if running is not None:
                return running.packet
        return event.number
    if kind in _BEGINS:
        return event.number
    found: int | None = None
    if kind is PacketType.CONNACK:
        found = connection.connect_packet
    elif kind is PacketType.PINGRESP:
        found = connection.receiver(event.direction).ping_packet
    else:
        exchange = connection.answered_by(packet, event.direction)
        found = None if exchange is None else exchange.packet
    return MAX_COUNT if found is None else found
