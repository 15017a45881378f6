"""An index over a lake: rows of packets by time, recreated from the columns of the lake.

`LakeBuilder` reads the lake in order of time, one interval after another, and stores a row for each packet
(`browse.rows`); nothing else of the lake stays in memory.  `LakeIndex` queries the columns of shown rows, a page at a
time, and makes packets from them.  If the source capture of a packet still exists (`browse.originals`), its bytes come
from there.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Protocol

from mqttscope import events
from mqttscope.browse.building import LOOK_EVENTS, IndexFiller
from mqttscope.browse.index import FROM_SERVER, VERSION, VERSION_KNOWN, VERSIONS, CaptureBytes, ConnectionTable, Index
from mqttscope.browse.originals import Originals
from mqttscope.browse.rows import MAX_COUNT, PACKETS, SPOOLED, ByteSpool, IndexRow, RowKind
from mqttscope.errors import MqttscopeError
from mqttscope.lake.packets import malformed_of, packet_of, topic_of, unparsed_of, version_of
from mqttscope.lint.finding import Confidence, FieldPlace, Finding, Related, Severity
from mqttscope.mqtt import ControlPacket, Direction, PacketType, ProtocolVersion
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.session.connection import Connection, ConnectionPhase
from mqttscope.session.inflight import ConnectionSide

PAGE_ROWS: Final = 512
"""Number of rows per query for columns."""
MAX_PAGES: Final = 12
STRETCH_ROWS: Final = 50_000
"""Approximate number of packets per interval."""
FIRST_ROWS: Final = 2_000
"""Number of packets in the first interval, so that the screen fills quickly."""
MAX_STRETCHES: Final = 4_000
MAX_OPEN_EXCHANGES: Final = 1 << 18
"""Maximum number of open exchanges; beyond it the oldest is dropped."""
CLIENT, SERVER = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
_TYPES: Final = {kind.name.lower(): int(kind) for kind in PacketType}
_ENDINGS: Final = ("fin", "reset")
_CONNECT, _PING = -1, -2
"""Placeholders in exchanges without a Packet Identifier."""
_SUBSCRIBING: Final = 1 << 16
"""Bit that distinguishes exchanges of SUBSCRIBE and UNSUBSCRIBE from exchanges of PUBLISH."""

Record = Mapping[str, Any]
Key = tuple[str, int, bool, int]
"""Key of a packet: capture, frame, whether the server sent it, offset in the stream."""


class TableQueries(Protocol):
    """Tables of a lake, for use by one thread."""

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query as dictionaries; `MqttscopeError` if the lake cannot be read."""

    def tuples(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query as tuples."""

    def number_connections(self) -> None:
        """Make the table ``numbered`` of connections: ``connection_id``, ``number`` in order, and ``in_capture``.

        Equal endpoints at one time in two captures are two connections with one id; ``in_capture`` is then the capture
        of their rows.  It is null for all other connections, which may continue in any capture.
        """


class LakeConnections(ConnectionTable):
    """Connections of a lake; all are loaded before their rows."""

    def __init__(self, spool: ByteSpool) -> None:
        super().__init__(spool)
        self.complete = False
        """Whether all rows are loaded."""

    def is_open(self, number: int) -> bool:
        return not self.complete


class LakeIndex(Index):
    """Rows, connections and findings of a lake."""

    def __init__(
        self, spool: ByteSpool, captured: CaptureBytes, tables: TableQueries, originals: Originals, *,
        kept_blocks: int | None = None
    ) -> None:  # fmt: skip
        """``tables``: for the thread of the screens."""
        super().__init__(spool, captured, kept_blocks=kept_blocks)
        self.connections: LakeConnections = LakeConnections(spool)
        self.tables = tables
        self.originals = originals
        self.keeps_payloads = True
        """Whether the lake contains any payload."""
        self.failure = ""
        """Reason why columns could not be read, or empty."""
        self._pages: OrderedDict[int, dict[Key, Record]] = OrderedDict()
        self._looked_at = (-1, -1)
        """Last requested packet, and its row."""

    @property
    def lacks(self) -> str:
        return "" if self.keeps_payloads else "the lake keeps no payloads (ingest --payload-limit)"

    def event(self, number: int, row: IndexRow | None = None, *, whole: bool = True) -> events.Event:
        """Like `Index.event`, but remembers the row of the packet."""
        row = self.rows[number] if row is None else row
        if row.kind == RowKind.PACKET:
            self._looked_at = row.number, number
        return super().event(number, row, whole=whole)

    def record(self, row: IndexRow) -> Record | None:
        """Columns of a packet; ``None`` if they cannot be read."""
        packet, number = self._looked_at
        if packet != row.number:
            found_row = self.rows.of_packet(row.number)
            if found_row is None:
                return None
            number = found_row
        page = number // PAGE_ROWS
        records = self._pages.get(page)
        if records is None:
            records = self._pages[page] = self._page(page)
            if len(self._pages) > MAX_PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(page)
        return records.get(self._key(row))

    def _key(self, row: IndexRow) -> Key:
        return self.captures[row.capture], row.frame, bool(row.flags & FROM_SERVER), row.place

    def _page(self, page: int) -> dict[Key, Record]:
        rows = [row for row in self.rows.run(page * PAGE_ROWS, (page + 1) * PAGE_ROWS) if row.kind == RowKind.PACKET]
        times = [row.timestamp_ns for row in rows]
        frames = [row.frame for row in rows]
        wanted = set(map(self._key, rows))
        try:
            records = self.tables.rows(
                'select * exclude ("timestamp") from packets where timestamp_ns between ? and ? '
                "and frame between ? and ?",
                (min(times), max(times), min(frames), max(frames)),
            )
        except MqttscopeError as error:
            self.failure = str(error)
            return {}
        named = ((_key_of(record), record) for record in records)
        return {key: record for key, record in named if key in wanted}

    def _decoded(self, row: IndexRow) -> tuple[ControlPacket | None, str | None]:
        """Packet and topic of a row, from its columns."""
        if row.place & SPOOLED:
            return super()._decoded(row)
        record = self.record(row)
        packet = None if record is None else packet_of(record)
        return (None, None) if record is None or packet is None else (packet, topic_of(record))

    def exact(self, number: int) -> events.Event:
        """Event of a row with the captured bytes, if its source capture was read."""
        event, row = self.event(number), self.rows[number]
        if not isinstance(event, events.PacketEvent) or row.place & SPOOLED:
            return event
        capture = self.captures[row.capture]
        original = self.originals.packet(capture, self._wanted(number, row))
        if original is None or type(original.packet) is not type(event.packet):
            return event
        # Damage before the packet determines how much of it may be shown.
        connection = copy(event.connection)
        side, other = copy(connection.side(event.direction)), original.connection
        side.doubt = other.side(event.direction).doubt
        connection.doubtful = other.doubtful
        if event.direction is CLIENT:
            connection.client_side = side
        else:
            connection.server_side = side
        return replace(event, packet=original.packet, connection=connection)

    def _wanted(self, number: int, row: IndexRow) -> tuple[int, bool, int, int, str, int]:
        """Search key of a packet in its capture: frame, side, first byte, length, client, index among equal ones."""
        nth, at = 0, number - 1
        while at >= 0 and (other := self.rows[at]).frame == row.frame and other.capture == row.capture:
            alike = (packet_row.kind in PACKETS and packet_row.flags & FROM_SERVER for packet_row in (row, other))
            nth += len(set(alike)) == 1 and (other.header, other.length) == (row.header, row.length)
            at -= 1
        client = self.connections[row.connection].client
        return row.frame, bool(row.flags & FROM_SERVER), row.header, row.length, client, nth

    def remark(self, number: int) -> str:
        """Remark if the bytes of a row do not come from the capture, or empty."""
        row = self.rows[number]
        if row.kind not in PACKETS:
            return ""
        capture = self.captures[row.capture]
        state = self.originals.state(capture)
        if not state:
            return ""
        return f"rebuilt from the columns of the lake: {state}"

    def same_payload(self, event: events.PacketEvent) -> object:
        """Comparison key for the payload of a message."""
        row = self.rows.of_packet(event.number)
        record = None if row is None or self.rows[row].kind != RowKind.PACKET else self.record(self.rows[row])
        if record is not None and record["payload_sha256"] is not None:
            return record["payload_sha256"]
        return super().same_payload(event)

    def feed_packet(self, columns: Sequence[Any], number: int, root: int) -> int:
        """Make a row of the columns from `LakeBuilder`."""
        (timestamp_ns, capture, frame, connection, from_server, offset, kind, length, version, known, _, dup, qos,
         retain, flags) = columns  # fmt: skip
        header = _TYPES.get(kind, 0)
        if header == PacketType.PUBLISH:
            nibble = (dup or 0) << 3 | (qos or 0) << 1 | (retain or 0)
        else:
            nibble = _FIXED.get(header, 0) if flags is None else flags
        self.packets = number + 1
        return self._add(
            RowKind.PACKET, max(0, offset), timestamp_ns, min(length, MAX_COUNT), frame, connection, capture,
            number=number, root=root, header=header << 4 | nibble,
            flags=(FROM_SERVER if from_server else 0) | VERSIONS.index(ProtocolVersion.from_text(version)) * VERSION
            | (VERSION_KNOWN if known else 0),
        )  # fmt: skip

    def row_at(self, timestamp_ns: int, frame: int, connection: int) -> int | None:
        """Row of a packet by time, frame and connection."""
        rows = self.rows
        first = bisect_left(rows, timestamp_ns, key=lambda row: row.timestamp_ns)
        for at, row in enumerate(rows.run(first, len(rows)), first):
            if row.timestamp_ns > timestamp_ns:
                break
            if (row.frame, row.connection) == (frame, connection) and row.kind <= RowKind.MALFORMED:
                return at
        return None


_FIXED: Final[dict[int, int]] = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}


def _key_of(record: Record) -> Key:
    return (
        record["capture"], min(record["frame"], MAX_COUNT), record["direction"] == SERVER,
        max(0, record["stream_offset"]),
    )  # fmt: skip


class _ExchangeRoots:
    """Open exchanges and the packets that started them."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, bool, int], int] = OrderedDict()

    def root(self, connection: int, from_server: bool, kind: int, identifier: int | None, number: int, *,
             again: bool) -> int:  # fmt: skip
        """Number of the packet that started the exchange of this one; `MAX_COUNT` without an exchange.

        ``again``: whether it is a PUBLISH with DUP.
        """
        name, begins, ends = identifier, False, False
        sender = from_server
        if kind == PacketType.CONNECT:
            name, begins = _CONNECT, True
        elif kind == PacketType.CONNACK:
            name, sender = _CONNECT, False
        elif kind == PacketType.PINGREQ:
            name, begins = _PING, True
        elif kind == PacketType.PINGRESP:
            name, sender, ends = _PING, not from_server, True
        elif identifier is None:
            return MAX_COUNT
        elif kind == PacketType.PUBLISH:
            begins = True
        elif kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
            name, begins = identifier | _SUBSCRIBING, True
        elif kind in (PacketType.SUBACK, PacketType.UNSUBACK):
            name, sender, ends = identifier | _SUBSCRIBING, not from_server, True
        elif kind != PacketType.PUBREL:
            sender, ends = not from_server, kind != PacketType.PUBREC
        assert name is not None
        key = connection, sender, name
        if begins and not (again and key in self._open):
            self._open[key] = number
            if len(self._open) > MAX_OPEN_EXCHANGES:
                self._open.popitem(last=False)
        return (self._open.pop if ends else self._open.get)(key, MAX_COUNT)


_MINE: Final = "(in_capture is null or in_capture = capture)"
"""Condition that matches a row to its connection among connections with one id (`TableQueries.number_connections`)."""
_STRETCH: Final = "timestamp_ns >= ? and timestamp_ns < ?"
_LIGHT: Final = f"""
select timestamp_ns, capture, frame, number, direction = 'server_to_client', stream_offset, type, length, version,
       version_known, packet_identifier, dup, qos, retain, header_flags, 3 as kind, packet_in_connection as nth
from packets join numbered using (connection_id) where {_MINE} and event = 'packet' and {_STRETCH}
union all
select timestamp_ns, capture, frame, number, direction = 'server_to_client', stream_offset, null, 0, version,
       version_known, null, null, null, null, null, 4, packet_in_connection
from packets join numbered using (connection_id) where {_MINE} and event <> 'packet' and {_STRETCH}
union all
select timestamp_ns, capture, frame, number, direction = 'server_to_client', null, event, 0, version, version_known,
       null, null, null, null, null, 2, event_in_connection
from gaps join numbered using (connection_id) where {_MINE} and {_STRETCH}
union all
select timestamp_ns, capture, frame, number, false, null, null, 0, version, version_known, null, null, null, null, null,
       1, 0
from connections join numbered using (connection_id) where {_MINE} and {_STRETCH}
union all
select closed_ns, closed_capture, closed_frame, number, false, null, closed_how, 0, version, version_known, null, null,
       null, null, null, 5, 0
from connections join numbered using (connection_id)
where {_MINE} and closed_ns is not null and closed_ns >= ? and closed_ns < ?
order by timestamp_ns, capture, frame, kind, number, nth
"""
"""Events of a time interval in order; kinds: opened, gaps, packets, malformed packets, closed."""
_OPENED, _GAP, _PACKET, _MALFORMED, _CLOSED = range(1, 6)
_PACKET_COLUMNS: Final = 15


class LakeBuilder(IndexFiller):
    """Reads a lake in a thread, and feeds an index."""

    def __init__(self, index: LakeIndex, tables: TableQueries, size: int) -> None:
        """``tables``: for the thread of the builder.  ``size``: number of packets in the lake, or 0 if unknown."""
        super().__init__()
        self.index: LakeIndex = index
        self.position = 0
        """Number of packets read."""
        self._tables = tables
        self._size = size
        self._exchanges = _ExchangeRoots()

    def stop(self) -> None:
        self._stopping = True
        self.index.originals.stop()
        super().stop()

    def give_way(self) -> None:
        super().give_way()
        self.index.originals.give_way()

    def fill(self) -> None:
        """Read the lake to its end."""
        self._connections()
        for start, end in self._stretches():
            self._stretch(start, end)
        self._errors()
        self.index.connections.complete = True

    def _connections(self) -> None:
        """Load all connections in order of recognition."""
        tables, connections = self._tables, self.index.connections
        tables.number_connections()
        at, step = 0, 1_000
        while True:
            records = tables.rows(
                'select * exclude ("timestamp", closed) from connections join numbered using (connection_id) '
                f"where {_MINE} and number >= ? and number < ? order by number",
                (at, at + step),
            )
            for record in records:
                self.look()
                if record["number"] < len(connections):
                    continue
                connection = connection_of(record, record["number"])
                connections.open(connection)
                connections.close(connection)
            if not records:
                return
            at += step
            step = 20_000

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Time intervals with about equal numbers of packets; the first is smaller, so that it loads quickly."""
        self.index.keeps_payloads = bool(self._tables.tuples("select 1 from packets where payload is not null limit 1"))
        count = self._size or self._tables.tuples("select count(*) from packets")[0][0]
        bounds: list[int] = []
        if count > STRETCH_ROWS:
            stretches = min(MAX_STRETCHES, count // STRETCH_ROWS + 1)
            parts = [FIRST_ROWS / count, *(at / stretches for at in range(1, stretches))]
            quantiles = self._tables.tuples(
                f"select approx_quantile(timestamp_ns, [{', '.join(f'{part:.9f}' for part in parts)}]) from packets"
            )
            bounds = sorted(set(map(int, quantiles[0][0] or ())))
        ends = [-(1 << 63), *bounds, (1 << 63) - 1]
        yield from pairwise(ends)

    def _stretch(self, start: int, end: int) -> None:
        """Load the events of one interval."""
        self.look()
        tables, index, place = self._tables, self.index, (start, end)
        happenings = tables.tuples(_LIGHT, place * 5)
        kinds = {columns[_PACKET_COLUMNS] for columns in happenings}
        odd: dict[tuple[Any, ...], Record] = {}
        if _MALFORMED in kinds:
            records = tables.rows(
                f"select * exclude (\"timestamp\") from packets where event <> 'packet' and {_STRETCH}", place
            )
            odd |= {
                (_MALFORMED, record["connection_id"], record["capture"], record["packet_in_connection"]): record
                for record in records
            }
        if _GAP in kinds:
            records = tables.rows(f'select * exclude ("timestamp") from gaps where {_STRETCH}', place)
            odd |= {
                (_GAP, *(record[name] for name in ("connection_id", "capture", "event", "event_in_connection"))): record
                for record in records
            }
        names = dict[int, str]()
        if odd:
            wanted = {record["connection_id"] for record in odd.values()}
            query = "select number, connection_id from numbered where connection_id in (select unnest(?))"
            names = dict(tables.tuples(query, (list(wanted),)))
        rows: dict[tuple[int, int], int] = {}
        """Rows of packets by connection and number within the connection."""
        for at, told_row in enumerate(happenings):
            if not at % LOOK_EVENTS:
                self.look()
            kind, number = told_row[_PACKET_COLUMNS], told_row[3]
            if kind == _PACKET:
                count = index.packets
                root = self._exchanges.root(
                    number, told_row[4], _TYPES.get(told_row[6], 0), told_row[10], count, again=bool(told_row[11])
                )
                rows[number, told_row[-1]] = index.feed_packet(told_row[:_PACKET_COLUMNS], count, root)
                self.position += 1
            elif kind == _MALFORMED:
                row = self._malformed(odd[kind, names[number], told_row[1], told_row[-1]], number)
                rows[number, told_row[-1]] = row
            elif kind == _GAP:
                self._gap(odd[kind, names[number], told_row[1], told_row[6], told_row[-1]], number)
            else:
                self._of_connection(kind, told_row)
        self._findings(place, rows)

    def _malformed(self, record: Record, number: int) -> int:
        connection = self._known(record, number)
        place = (record["frame"], record["timestamp_ns"], record["capture"])
        direction = Direction(record["direction"])
        event = events.MalformedEvent(
            connection, direction, self.index.packets, *place, malformed_of(record), topic_of(record),
            record["stream_offset"],
        )  # fmt: skip
        self.position += 1
        row = self.index.feed(event)
        assert row is not None
        return row

    def _gap(self, record: Record, number: int) -> None:
        head = (self._known(record, number), Direction(record["direction"]))
        place = (record["frame"], record["timestamp_ns"], record["capture"])
        event: events.Event
        if record["event"] == "unparsed":
            event = events.UnparsedEvent(*head, *place, unparsed_of(record))
        else:
            lost = events.GapEvent if record["event"] == "gap" else events.DiscardedEvent
            event = lost(*head, *place, **{name: record[name] for name in events.LOSS_VALUES})
        self.index.feed(event)

    def _known(self, record: Record, number: int) -> Connection:
        connection = self.index.connections[number]
        connection.version, connection.version_known = version_of(record), record["version_known"]
        return connection

    def _of_connection(self, kind: int, columns: Sequence[Any]) -> None:
        timestamp_ns, capture, frame, number = columns[:4]
        connection = self.index.connections[number]
        if kind == _OPENED:
            row_kind: RowKind = RowKind.OPENED
            event: events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed
            event = events.ConnectionOpened(connection, frame, timestamp_ns, capture)
        elif columns[6] in _ENDINGS:
            row_kind, event = RowKind.ENDING, events.ConnectionEnding(connection, frame, timestamp_ns, capture)
        else:
            row_kind, event = RowKind.CLOSED, events.ConnectionClosed(connection, frame, timestamp_ns, capture)
        self.index.feed_connection(row_kind, event)

    def _findings(self, place: tuple[int, int], rows: Mapping[tuple[int, int], int]) -> None:
        records = self._tables.rows(
            'select * exclude ("timestamp") from findings join numbered using (connection_id) '
            f"where {_MINE} and {_STRETCH} order by timestamp_ns, scope, finding_in_connection",
            place,
        )
        for at, record in enumerate(records):
            if not at % LOOK_EVENTS:
                self.look()
            number, packet = record["number"], record["packet_in_connection"]
            row = None if packet is None else rows.get((number, packet))
            if row is None:
                row = self.index.row_at(record["timestamp_ns"], record["frame"], number)
            self.index.note(row, self._finding(record, number, row, rows))

    def _finding(self, record: Record, number: int, row: int | None, rows: Mapping[tuple[int, int], int]) -> Finding:
        index = self.index
        packet = None
        if row is not None and record["packet_in_connection"] is not None:
            packet = index.rows[row].number
        related = []
        for relation in record["related"] or ():
            at = rows.get((number, relation["packet_in_connection"]))
            if at is None:
                at = index.row_at(relation["timestamp_ns"], relation["frame"], number)
            if at is not None:
                reference = relation["message"], index.rows[at].number, relation["frame"], relation["timestamp_ns"]
                related.append(Related(*reference))
        return Finding(
            record["rule"], record["slug"], Severity(record["severity"]), Confidence(record["confidence"]),
            record["message"], tuple(record["statements"] or ()), record["version"] or "", record["capture"],
            record["frame"], record["timestamp_ns"], number, record["client"], record["server"],
            record["client_identifier"], record["direction"], packet, record["packet_type"], record["field"] or "",
            record["offset"], record["length"], record["reason_code"], record["fingerprint"] or "", record["topic"],
            tuple(related), count=record["count"] or 1,
            places=tuple(
                FieldPlace(place["field"], place["offset"], place["length"]) for place in record["places"] or ()
            ),
        )  # fmt: skip

    def _errors(self) -> None:
        """Load capture errors at the end, because they have no time."""
        for error in self._tables.rows("select * from ingest_errors order by capture, event, message"):
            self.look()
            if error["event"] == "capture_drops":
                drops = (error["interface"] or 0, error["received"], error["dropped"] or 0)
                self.index.feed(CaptureDrops(error["capture"], *drops))
            else:
                self.index.feed(CaptureError(error["capture"], error["message"], error["offset"], error["frames"] or 0))


def connection_of(record: Record, number: int) -> Connection:
    """Make a connection from its row."""
    details: dict[str, object] = json.loads(record["details"]) if record["details"] else {}
    for name in ("tcp", "proxy"):
        if record[name] is not None:
            details[name] = record[name]
    how = record["closed_how"]
    sides = [
        ConnectionSide(packets=record["packets"][name] or 0, bytes=record["bytes"][name] or 0, doubt=0)
        for name in ("client_to_server", "server_to_client")
    ]
    texts = {text["field"]: text["value"].decode("utf-8", "surrogateescape") for text in record["not_utf8"] or ()}
    return Connection(
        number, record["client"], record["server"], record["capture"], record["frame"], record["timestamp_ns"],
        transport=record["transport"], handshake_seen=bool(record["handshake_seen"]),
        roles_known=bool(record["roles_known"]), roles_evidence=record["roles_evidence"] or "",
        version=ProtocolVersion.from_text(record["version"]), version_known=bool(record["version_known"]),
        version_evidence=record["version_evidence"] or "none",
        client_identifier=texts.get("client_identifier", record["client_identifier"]),
        client_side=sides[0], server_side=sides[1], phase=ConnectionPhase(record["phase"]),
        keep_alive=record["keep_alive"], clean_start=record["clean_start"], session_present=record["session_present"],
        session_expiry_interval=record["session_expiry_interval"], disconnect_by=record["disconnect_by"],
        disconnect_reason=record["disconnect_reason"], closed_how="capture_end" if how == "open" else how,
        closed_by=record["closed_by"], closed_frame=record["closed_frame"] or 0, closed_ns=record["closed_ns"] or 0,
        closed_capture=record["closed_capture"] or "", discarded_segments=record["discarded_segments"] or 0,
        discarded_bytes=record["discarded_bytes"] or 0, copied_segments=record["copied_segments"] or 0,
        one_sided=record["one_sided"], decrypted=bool(record["decrypted"]), gaps=record["gaps"] or 0,
        gap_bytes=record["gap_bytes"] or 0, details=details, found_frame=record["found_frame"] or 0,
        found_ns=record["found_ns"] or 0, found_capture=record["found_capture"] or "",
    )  # fmt: skip
