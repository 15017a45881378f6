"""The index of a browser: stores a few bytes per event, and recreates events from them and the capture.

`Index.feed` makes a row of an event before the event changes the state of its connection.  Packets are not stored:
`Index.event` decodes their bytes again when a row is shown.  Rare events that cannot be recreated from bytes go to the
spool, and so do closed connections.

One thread feeds; others may read existing rows at the same time.
"""

from __future__ import annotations

import pickle
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Protocol

from mqttscope.browse.rows import MAX_COUNT, SPOOLED, ByteSpool, IndexRow, RowKind, RowStore
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
from mqttscope.explain.model import Cause, Explanation, NodeAnswer
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connect, ControlPacket, Direction, Malformed, PacketType, ProtocolVersion, Publish, decode
from mqttscope.net.frame import CaptureError
from mqttscope.session.capture_time import captured
from mqttscope.session.connection import C2S, S2C, AcknowledgmentLookup, Connection
from mqttscope.session.inflight import ConnectionSide, Exchange

VERSIONS: Final = tuple(ProtocolVersion)
MAX_FINDINGS: Final = 200_000
"""Maximum number of findings stored; the rest is counted."""
MAX_LOOKED_AT: Final = 200_000
"""Maximum number of rows looked at to find a frame before the end of its connection."""
MAX_SHOWN: Final = 512
"""Maximum number of cached connections."""
FROM_SERVER, DOUBT, DOUBTFUL, VERSION, VERSION_KNOWN = 1, 2, 16, 32, 128
"""Bits of `IndexRow.flags`: one, three from 2 on, one, two from 32 on, one."""
_BEGINS = frozenset((PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ))

Locate = Callable[[bytes], int]
"""Returns the offset of bytes in the capture; -1 if they are not contiguous there."""


class CaptureBytes(Protocol):
    """Access to the bytes of captures."""

    def read(self, capture: str, offset: int, size: int) -> bytes:
        """Read bytes of a capture; fewer if it has shrunk."""


class LostEvent(UnparsedEvent):
    """Placeholder for a packet that is no longer in the capture."""


class ConnectionTable:
    """Connections of an index: open ones in memory, closed ones on the spool."""

    def __init__(self, spool: ByteSpool) -> None:
        self._spool = spool
        self._open: dict[int, Connection] = {}
        self._places = array("Q")
        self._sizes = array("I")
        self.first_rows = array("Q")
        self.last_rows = array("Q")
        """First and last row of each connection."""
        self.rows = array("Q")
        """Number of rows of each connection."""
        self.findings = (array("I"), array("I"), array("I"))
        """Number of findings of each connection: information, warnings, errors."""

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, connection: Connection) -> None:
        """Add a new connection."""
        self._open[connection.number] = connection
        while len(self.rows) <= connection.number:
            for column in (self._places, self._sizes, self.first_rows, self.last_rows, *self.findings):
                column.append(0)
            # Last, because readers in other threads check its length.
            self.rows.append(0)

    def close(self, connection: Connection) -> None:
        """Move a closed connection to the spool."""
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
        """Whether a connection may have further events."""
        return number in self._open

    def __getitem__(self, number: int) -> Connection:
        """Current state of a connection, without its exchanges."""
        live = self._open.get(number)
        if live is not None:
            return slim(live)
        connection: Connection = pickle.loads(self._spool.read(self._places[number], self._sizes[number]))
        return connection

    def revision(self, number: int) -> int:
        """A number that changes with the visible state of a connection."""
        live = self._open.get(number)
        return -1 if live is None else live.revision


def slim(connection: Connection) -> Connection:
    """A copy of a connection without the state for rules and exchanges."""
    slimmed = copy(connection)
    slimmed.history = slimmed.alarm = slimmed.acknowledgments = None
    slimmed.details = dict(connection.details)
    slimmed.client_side, slimmed.server_side = _counts(connection.client_side), _counts(connection.server_side)
    return slimmed


def _counts(side: ConnectionSide) -> ConnectionSide:
    return ConnectionSide(
        packets=side.packets, bytes=side.bytes, last_timestamp_ns=side.last_timestamp_ns,
        aliases_dropped=side.aliases_dropped, doubt=side.doubt,
    )  # fmt: skip


class FoundRows:
    """Findings in order of their rows."""

    def __init__(self, spool: ByteSpool) -> None:
        self._spool = spool
        self.rows = array("Q")
        self._places = array("Q")
        self.left_out = 0
        """Number of findings beyond `MAX_FINDINGS`."""

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: int, finding: Finding) -> None:
        """Store a finding on the spool."""
        if len(self.rows) >= MAX_FINDINGS:
            self.left_out += 1
            return
        data = pickle.dumps(finding)
        at = bisect_right(self.rows, row)
        # A reader in between gets a neighbouring finding, but never half a finding.
        self._places.insert(at, self._spool.write(len(data).to_bytes(4, "little") + data))
        self.rows.insert(at, row)

    def __getitem__(self, at: int) -> Finding:
        place = self._places[at]
        size = int.from_bytes(self._spool.read(place, 4), "little")
        finding: Finding = pickle.loads(self._spool.read(place + 4, size))
        return finding

    def of_row(self, row: int) -> list[Finding]:
        return [self[at] for at in range(bisect_left(self.rows, row), bisect_right(self.rows, row))]


class StoredExplanations:
    """Why connections ended, on the spool."""

    def __init__(self, spool: ByteSpool) -> None:
        self._spool = spool
        self._places: dict[int, tuple[int, int]] = {}
        self.causes: dict[int, Cause] = {}
        """The most probable cause of each explained end, by connection."""
        self.nodes: tuple[NodeAnswer, ...] = ()
        """Answers about edge nodes of Sparkplug, complete when all is read."""

    def add(self, explanation: Explanation) -> None:
        data = pickle.dumps(explanation)
        self._places[explanation.connection] = self._spool.write(data), len(data)
        self.causes[explanation.connection] = explanation.cause

    def get(self, connection: int) -> Explanation | None:
        """The explanation of the end of a connection; ``None`` until it is complete."""
        if connection not in self.causes:
            return None
        explanation: Explanation = pickle.loads(self._spool.read(*self._places[connection]))
        return explanation


class Index:
    """Rows, connections, findings and explanations of captures, also during reading."""

    def __init__(self, spool: ByteSpool, captured: CaptureBytes, *, kept_blocks: int | None = None) -> None:
        self._spool = spool
        self._captured = captured
        self.rows = RowStore(spool, kept_blocks=kept_blocks)
        self.connections = ConnectionTable(spool)
        self.findings = FoundRows(spool)
        self.explanations = StoredExplanations(spool)
        self.captures: list[str] = []
        self._numbers: dict[str, int] = {}
        self.acknowledgments: AcknowledgmentLookup | None = None
        """Looks up whether TCP acknowledged packets; ``None`` if that is unknown."""
        self.packets = 0
        """Number of packets read, including malformed ones."""
        self.first_ns = 0
        self._ended: set[int] = set()
        """Open connections with an ENDING row."""
        self._shown: OrderedDict[tuple[int, int, int], Connection] = OrderedDict()

    def feed(self, event: Event, locate: Locate | None = None) -> int | None:
        """Make a row of an event; returns its number, or ``None`` for an event without a row.

        ``locate``: finds bytes in the capture.
        """
        row: int | None = None
        if type(event) is PacketEvent:
            row = self._packet(event, locate)
        elif isinstance(event, Damage):
            row = self._special(event)
        elif isinstance(event, ConnectionOpened):
            self.connections.open(event.connection)
            row = self.feed_connection(RowKind.OPENED, event)
        elif isinstance(event, ConnectionEnding):
            self._ended.add(event.connection.number)
            row = self.feed_connection(RowKind.ENDING, event)
        elif isinstance(event, ConnectionClosed):
            if event.connection.number not in self._ended:
                row = self.feed_connection(RowKind.CLOSED, event)
            self._ended.discard(event.connection.number)
            self.connections.close(event.connection)
        elif isinstance(event, CaptureRemark):
            kind = RowKind.ERROR if isinstance(event, CaptureError) else RowKind.DROPS
            data = pickle.dumps(event)
            last_ns = self.rows[len(self.rows) - 1].timestamp_ns if len(self.rows) else 0
            row = self._add(kind, self._put(data), last_ns, len(data), 0, MAX_COUNT, event.capture)
        return row

    def note(self, row: int | None, finding: Finding) -> None:
        """Add a finding for a row; without a row it applies to the connection."""
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
        """Make a row of an event that is stored on the spool."""
        number, header = self.packets, 0
        what: Any
        if isinstance(event, MalformedEvent):
            kind, number = RowKind.MALFORMED, event.number
            self.packets = number + 1
            what = event.malformed, event.topic
            header = event.malformed.raw[0] if event.malformed.raw else 0
        elif isinstance(event, UnparsedEvent):
            kind, what = RowKind.UNPARSED, event.unparsed
        else:
            kind, what = RowKind[event.kind.upper()], event.values
        data = pickle.dumps((what, event.connection.side(event.direction).packets))
        return self._add(
            kind, self._put(data), event.timestamp_ns, len(data), event.frame, event.connection.number, event.capture,
            number=number, header=header, flags=_flags(event),
        )  # fmt: skip

    def feed_connection(self, kind: RowKind, event: ConnectionOpened | ConnectionEnding | ConnectionClosed) -> int:
        """Make a row of the start or end of a known connection; returns its number."""
        return self._add(kind, 0, event.timestamp_ns, 0, event.frame, event.connection.number, event.capture)

    def _put(self, data: bytes) -> int:
        return self._spool.write(data) | SPOOLED

    def _add(
        self, kind: RowKind, place: int, timestamp_ns: int, length: int, frame: int, connection: int, capture: str, *,
        number: int | None = None, root: int = MAX_COUNT, header: int = 0, flags: int = 0,
    ) -> int:  # fmt: skip
        named = self._numbers.get(capture)
        if named is None:
            # Captures beyond the largest number in a row share the last number.
            named = self._numbers[capture] = min(len(self.captures), 0xFFFF)
            if len(self.captures) <= named:
                self.captures.append(capture)
        if not len(self.rows):
            self.first_ns = captured(timestamp_ns)
        number = self.packets if number is None else number
        row = IndexRow(
            place, captured(timestamp_ns), length, min(frame, MAX_COUNT), min(connection, MAX_COUNT),
            min(root, MAX_COUNT), min(number, MAX_COUNT), kind, flags, header, 0, named,
        )  # fmt: skip
        row_number = self.rows.append(row)
        if connection < len(self.connections):
            self.connections.note_row(connection, row_number)
        return row_number

    def row_of_frame(self, connection: int, frame: int) -> int:
        """The row of a connection with a frame, nearest to its end; -1 if it is not among its last rows."""
        first, stop = int(self.connections.first_rows[connection]), int(self.connections.last_rows[connection]) + 1
        first = max(first, stop - MAX_LOOKED_AT)
        step = 4_096
        for end in range(stop, first, -step):
            start = max(first, end - step)
            rows = list(self.rows.run(start, end))
            for number in range(end - 1, start - 1, -1):
                row = rows[number - start]
                if row.connection == connection and row.frame == frame and row.kind < RowKind.ERROR:
                    return number
        return -1

    def event(self, number: int, row: IndexRow | None = None, *, whole: bool = True) -> Event:
        """Recreate the event of a row, with its connection in the initial state.

        ``whole``: link an answer to its request, which needs another row.
        """
        row = self.rows[number] if row is None else row
        capture = self.captures[row.capture]
        kind = row.kind
        if kind == RowKind.ERROR or kind == RowKind.DROPS:
            event: Event = pickle.loads(self._bytes(row))
            return event
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
        if kind == RowKind.UNPARSED:
            return UnparsedEvent(connection, direction, *place, what)
        return (GapEvent if kind == RowKind.GAP else DiscardedEvent)(connection, direction, *place, **what)

    def exact(self, number: int) -> Event:
        """Event of a row with the original bytes, even if finding them is slow."""
        return self.event(number)

    def remark(self, number: int) -> str:
        """Remark if fields and bytes of a row are not the captured ones, or empty."""
        return ""

    @property
    def lacks(self) -> str:
        """Notice about data that cannot be searched or filtered, or empty."""
        return ""

    def same_payload(self, event: PacketEvent) -> object:
        """Comparison key for the payload of a message."""
        return event.packet.payload  # type: ignore[attr-defined]

    def raw(self, row: IndexRow) -> bytes:
        """Bytes of a well-formed packet; empty for other rows."""
        if row.kind > RowKind.ODD_PACKET:
            return b""
        packet, _ = self._decoded(row)
        return b"" if packet is None else packet.raw

    def _bytes(self, row: IndexRow) -> bytes:
        if row.place & SPOOLED:
            return self._spool.read(row.place & ~SPOOLED, row.length)
        return self._captured.read(self.captures[row.capture], row.place, row.length)

    def _decoded(self, row: IndexRow) -> tuple[ControlPacket | None, str | None]:
        """Packet and topic of a row; no packet if the capture has changed."""
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
        decoded = decode(data, VERSIONS[row.flags // VERSION & 3])
        if isinstance(decoded, Malformed):
            return None, None
        if topic is None and type(decoded) is Publish:
            topic = decoded.topic_name or None
        return decoded, topic

    def _connection(self, row: IndexRow) -> Connection:
        """Connection of a row, with the state stored in the row."""
        number = row.connection
        key = (number, self.connections.revision(number), row.flags)
        known = self._shown.get(key)
        if known is not None and key[1] < 0:
            return known
        connection = self.connections[number]
        connection.acknowledgments = self.acknowledgments
        if row.kind <= RowKind.DISCARDED and row.kind != RowKind.OPENED:
            connection.version = VERSIONS[row.flags // VERSION & 3]
            connection.version_known = bool(row.flags & VERSION_KNOWN)
            connection.side(S2C if row.flags & FROM_SERVER else C2S).doubt = row.flags // DOUBT & 7
            connection.doubtful = bool(row.flags & DOUBTFUL)
        self._shown[key] = connection
        if len(self._shown) > MAX_SHOWN:
            self._shown.popitem(last=False)
        return connection

    def _answering(self, connection: Connection, packet: ControlPacket, direction: Direction, root: int) -> Connection:
        """A copy of a connection with the exchange of a packet."""
        number = self.rows.of_packet(root)
        if number is None:
            return connection
        row = self.rows[number]
        answering = copy(connection)
        answering.client_side, answering.server_side = copy(answering.client_side), copy(answering.server_side)
        kind = row.header >> 4
        asking = answering.server_side if row.flags & FROM_SERVER else answering.client_side
        if kind == PacketType.CONNECT:
            answering.connect_packet, answering.connect_timestamp_ns = root, row.timestamp_ns
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
        return answering


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
    """Whether decoding a packet again yields an equal packet: the assumed version may have changed."""
    return decode(event.packet.raw, event.connection.version) == event.packet


def _root(event: PacketEvent) -> int:
    """Number of the packet that started the exchange of this one; `MAX_COUNT` for a packet without an exchange."""
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
    root: int | None = None
    if kind is PacketType.CONNACK:
        root = connection.connect_packet
    elif kind is PacketType.PINGRESP:
        root = connection.receiver(event.direction).ping_packet
    else:
        exchange = connection.answered_by(packet, event.direction)
        root = None if exchange is None else exchange.packet
    return MAX_COUNT if root is None else root
