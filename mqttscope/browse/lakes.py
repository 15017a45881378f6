"""An index over a lake: rows of packets by time, and any of them back from the columns of the lake.

`LakeBuilder` goes through the lake from its first time to its last, a stretch at a time, and remembers of each packet
what a row holds (`browse.rows`); nothing else of the lake stays in memory.  `LakeIndex` asks for the columns of those
rows that are looked at, a page at a time, and makes packets of them.  Where the capture that a packet was in is still
there (`browse.originals`), its bytes come from it.
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
from mqttscope.browse.building import LOOK_EVENTS, Filling
from mqttscope.browse.index import FROM_SERVER, VERSION, VERSION_KNOWN, VERSIONS, Captured, Connections, Index
from mqttscope.browse.originals import Originals
from mqttscope.browse.rows import MAX_COUNT, PACKETS, SPOOLED, Row, RowKind, Spool
from mqttscope.errors import MqttscopeError
from mqttscope.lake.packets import malformed_of, packet_of, topic_of, unparsed_of, version_of
from mqttscope.lint.finding import Confidence, Finding, Place, Related, Severity
from mqttscope.mqtt import ControlPacket, Direction, PacketType, ProtocolVersion
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.session.connection import Connection, ConnectionPhase
from mqttscope.session.inflight import Side

PAGE_ROWS: Final = 512
"""Rows whose columns are asked for at once."""
MAX_PAGES: Final = 12
STRETCH_ROWS: Final = 50_000
"""Packets of a stretch of time that is gone through at once, about."""
FIRST_ROWS: Final = 2_000
"""Those of the first, so that a screen is there soon."""
MAX_STRETCHES: Final = 4_000
MAX_OPEN_EXCHANGES: Final = 1 << 18
"""Exchanges without an answer that are remembered; of those beyond, the oldest is forgotten."""
CLIENT, SERVER = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
_TYPES: Final = {kind.name.lower(): int(kind) for kind in PacketType}
_ENDINGS: Final = ("fin", "reset")
_CONNECT, _PING = -1, -2
"""What stands for a Packet Identifier in exchanges that have none."""
_SUBSCRIBING: Final = 1 << 16
"""What tells exchanges of SUBSCRIBE and UNSUBSCRIBE from those of PUBLISH."""

Record = Mapping[str, Any]
Key = tuple[str, int, bool, int]
"""What names a packet: capture, frame, whether the server sent it, place in the stream."""


class Tables(Protocol):
    """The tables of a lake, for one thread."""

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query by their columns; `MqttscopeError` where the lake cannot be read."""

    def tuples(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The same as tuples."""

    def number_connections(self) -> None:
        """Make the table ``numbered`` of connections: ``connection_id``, ``number`` in their order, and ``in_capture``.

        The same endpoints at the same time in two captures are two connections of one name; then ``in_capture`` says
        in which capture their rows are.  It is null for all others, which may continue in any capture.
        """


class LakeConnections(Connections):
    """Connections of a lake; all are known before their rows are."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool)
        self.complete = False
        """Whether all rows are there."""

    def is_open(self, number: int) -> bool:
        return not self.complete


class LakeIndex(Index):
    """Rows, connections and findings of a lake."""

    def __init__(
        self, spool: Spool, captured: Captured, tables: Tables, originals: Originals, *, kept_blocks: int | None = None
    ) -> None:
        """``tables``: for the thread that looks."""
        super().__init__(spool, captured, kept_blocks=kept_blocks)
        self.connections: LakeConnections = LakeConnections(spool)
        self.tables = tables
        self.originals = originals
        self.keeps_payloads = True
        """Whether any payload is in the lake."""
        self.failure = ""
        """Why columns could not be read, where they could not."""
        self._pages: OrderedDict[int, dict[Key, Record]] = OrderedDict()
        self._looked_at = (-1, -1)
        """The packet that was asked for last, and its row."""

    @property
    def lacks(self) -> str:
        return "" if self.keeps_payloads else "the lake keeps no payloads (ingest --payload-limit)"

    def event(self, number: int, row: Row | None = None, *, whole: bool = True) -> events.Event:
        """As of captures; where a packet stands need not be looked for."""
        row = self.rows[number] if row is None else row
        if row.kind == RowKind.PACKET:
            self._looked_at = row.number, number
        return super().event(number, row, whole=whole)

    def record(self, row: Row) -> Record | None:
        """The columns of a packet; ``None`` where they cannot be read."""
        packet, number = self._looked_at
        if packet != row.number:
            found_row = self.rows.of_packet(row.number)
            if found_row is None:
                return None
            number = found_row
        page = number // PAGE_ROWS
        found = self._pages.get(page)
        if found is None:
            found = self._pages[page] = self._page(page)
            if len(self._pages) > MAX_PAGES:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(page)
        return found.get(self._key(row))

    def _key(self, row: Row) -> Key:
        return self.captures[row.capture], row.frame, bool(row.flags & FROM_SERVER), row.place

    def _page(self, page: int) -> dict[Key, Record]:
        rows = [one for one in self.rows.run(page * PAGE_ROWS, (page + 1) * PAGE_ROWS) if one.kind == RowKind.PACKET]
        times = [one.timestamp_ns for one in rows]
        frames = [one.frame for one in rows]
        wanted = set(map(self._key, rows))
        try:
            found = self.tables.rows(
                'select * exclude ("timestamp") from packets where timestamp_ns between ? and ? '
                "and frame between ? and ?",
                (min(times), max(times), min(frames), max(frames)),
            )
        except MqttscopeError as error:
            self.failure = str(error)
            return {}
        named = ((_key_of(one), one) for one in found)
        return {key: one for key, one in named if key in wanted}

    def _decoded(self, row: Row) -> tuple[ControlPacket | None, str | None]:
        """The packet of a row as its columns say, and its topic."""
        if row.place & SPOOLED:
            return super()._decoded(row)
        record = self.record(row)
        packet = None if record is None else packet_of(record)
        return (None, None) if record is None or packet is None else (packet, topic_of(record))

    def exact(self, number: int) -> events.Event:
        """The event of a row with the bytes that were captured, where the capture is still there and was read."""
        event, row = self.event(number), self.rows[number]
        if not isinstance(event, events.PacketEvent) or row.place & SPOOLED:
            return event
        capture = self.captures[row.capture]
        found = self.originals.packet(capture, self._wanted(number, row))
        if found is None or type(found.packet) is not type(event.packet):
            return event
        # What was damaged before it says how much of it is shown.
        connection = copy(event.connection)
        side, other = copy(connection.side(event.direction)), found.connection
        side.doubt = other.side(event.direction).doubt
        connection.doubtful = other.doubtful
        if event.direction is CLIENT:
            connection.client_side = side
        else:
            connection.server_side = side
        return replace(event, packet=found.packet, connection=connection)

    def _wanted(self, number: int, row: Row) -> tuple[int, bool, int, int, str, int]:
        """How a packet is found in its capture: frame, side, first byte, length, client, which of several it is."""
        nth, at = 0, number - 1
        while at >= 0 and (other := self.rows[at]).frame == row.frame and other.capture == row.capture:
            alike = (one.kind in PACKETS and one.flags & FROM_SERVER for one in (row, other))
            nth += len(set(alike)) == 1 and (other.header, other.length) == (row.header, row.length)
            at -= 1
        client = self.connections[row.connection].client
        return row.frame, bool(row.flags & FROM_SERVER), row.header, row.length, client, nth

    def remark(self, number: int) -> str:
        """What has to be said of a row: where its bytes come from, where that is not the capture."""
        row = self.rows[number]
        if row.kind not in PACKETS:
            return ""
        capture = self.captures[row.capture]
        state = self.originals.state(capture)
        if not state:
            return ""
        return f"made of the columns of the lake: {state}"

    def same_payload(self, event: events.PacketEvent) -> object:
        """What two messages with the same payload have in common."""
        row = self.rows.of_packet(event.number)
        record = None if row is None or self.rows[row].kind != RowKind.PACKET else self.record(self.rows[row])
        if record is not None and record["payload_sha256"] is not None:
            return record["payload_sha256"]
        return super().same_payload(event)

    def feed_packet(self, told: Sequence[Any], number: int, root: int) -> int:
        """Make a row of the columns that `LakeBuilder` asks for."""
        (timestamp_ns, capture, frame, connection, from_server, offset, kind, length, version, known, _, dup, qos,
         retain, flags) = told  # fmt: skip
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
        """The row of a packet of a connection by its time and frame."""
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


class _Exchanges:
    """Which packets began the exchanges that are open."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, bool, int], int] = OrderedDict()

    def root(self, connection: int, from_server: bool, kind: int, identifier: int | None, number: int, *,
             again: bool) -> int:  # fmt: skip
        """The number of the packet that began the exchange of this one; `MAX_COUNT` where there is none.

        ``again``: it is a PUBLISH with DUP.
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
"""Which of several connections of one name a row is of (`Tables.number_connections`)."""
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
"""What happened in a stretch of time, in its order; kinds: opened, gaps, packets, malformed packets, closed."""
_OPENED, _GAP, _PACKET, _MALFORMED, _CLOSED = range(1, 6)
_PACKET_COLUMNS: Final = 15


class LakeBuilder(Filling):
    """Goes through a lake in a thread, and feeds an index."""

    def __init__(self, index: LakeIndex, tables: Tables, size: int) -> None:
        """``tables``: for the thread of the builder.  ``size``: packets of the lake, as far as that is known."""
        super().__init__()
        self.index: LakeIndex = index
        self.position = 0
        """Packets so far."""
        self._tables = tables
        self._size = size
        self._exchanges = _Exchanges()

    def stop(self) -> None:
        self._stopping = True
        self.index.originals.stop()
        super().stop()

    def give_way(self) -> None:
        super().give_way()
        self.index.originals.give_way()

    def fill(self) -> None:
        """Go through the lake to its end."""
        self._connections()
        for start, end in self._stretches():
            self._stretch(start, end)
        self._errors()
        self.index.connections.complete = True

    def _connections(self) -> None:
        """Take all connections, in the order in which they were recognised."""
        tables, connections = self._tables, self.index.connections
        tables.number_connections()
        at, step = 0, 1_000
        while True:
            found = tables.rows(
                'select * exclude ("timestamp", closed) from connections join numbered using (connection_id) '
                f"where {_MINE} and number >= ? and number < ? order by number",
                (at, at + step),
            )
            for record in found:
                self.look()
                if record["number"] < len(connections):
                    continue
                made = connection_of(record, record["number"])
                connections.open(made)
                connections.close(made)
            if not found:
                return
            at += step
            step = 20_000

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Stretches of time that have about as many packets each, the first with fewer, so that it is there soon."""
        self.index.keeps_payloads = bool(self._tables.tuples("select 1 from packets where payload is not null limit 1"))
        count = self._size or self._tables.tuples("select count(*) from packets")[0][0]
        bounds: list[int] = []
        if count > STRETCH_ROWS:
            stretches = min(MAX_STRETCHES, count // STRETCH_ROWS + 1)
            parts = [FIRST_ROWS / count, *(at / stretches for at in range(1, stretches))]
            told = self._tables.tuples(
                f"select approx_quantile(timestamp_ns, [{', '.join(f'{one:.9f}' for one in parts)}]) from packets"
            )
            bounds = sorted(set(map(int, told[0][0] or ())))
        ends = [-(1 << 63), *bounds, (1 << 63) - 1]
        yield from pairwise(ends)

    def _stretch(self, start: int, end: int) -> None:
        """Take what happened from a time on and before another."""
        self.look()
        tables, index, place = self._tables, self.index, (start, end)
        found = tables.tuples(_LIGHT, place * 5)
        kinds = {one[_PACKET_COLUMNS] for one in found}
        odd: dict[tuple[Any, ...], Record] = {}
        if _MALFORMED in kinds:
            told = tables.rows(
                f"select * exclude (\"timestamp\") from packets where event <> 'packet' and {_STRETCH}", place
            )
            odd |= {
                (_MALFORMED, one["connection_id"], one["capture"], one["packet_in_connection"]): one for one in told
            }
        if _GAP in kinds:
            told = tables.rows(f'select * exclude ("timestamp") from gaps where {_STRETCH}', place)
            odd |= {
                (_GAP, one["connection_id"], one["capture"], one["event"], one["event_in_connection"]): one
                for one in told
            }
        names = dict[int, str]()
        if odd:
            wanted = {one["connection_id"] for one in odd.values()}
            query = "select number, connection_id from numbered where connection_id in (select unnest(?))"
            names = dict(tables.tuples(query, (list(wanted),)))
        rows: dict[tuple[int, int], int] = {}
        """Rows of packets by their connections and their numbers in these."""
        for at, told_row in enumerate(found):
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
        elif record["event"] == "gap":
            event = events.GapEvent(*head, *place, record["length"], record["reason"])
        else:
            event = events.DiscardedEvent(*head, *place, record["length"], record["reason"])
        self.index.feed(event)

    def _known(self, record: Record, number: int) -> Connection:
        made = self.index.connections[number]
        made.version, made.version_known = version_of(record), record["version_known"]
        return made

    def _of_connection(self, kind: int, told: Sequence[Any]) -> None:
        timestamp_ns, capture, frame, number = told[:4]
        connection = self.index.connections[number]
        if kind == _OPENED:
            made: RowKind = RowKind.OPENED
            event: events.ConnectionOpened | events.ConnectionEnding | events.ConnectionClosed
            event = events.ConnectionOpened(connection, frame, timestamp_ns, capture)
        elif told[6] in _ENDINGS:
            made, event = RowKind.ENDING, events.ConnectionEnding(connection, frame, timestamp_ns, capture)
        else:
            made, event = RowKind.CLOSED, events.ConnectionClosed(connection, frame, timestamp_ns, capture)
        self.index.feed_connection(made, event)

    def _findings(self, place: tuple[int, int], rows: Mapping[tuple[int, int], int]) -> None:
        found = self._tables.rows(
            'select * exclude ("timestamp") from findings join numbered using (connection_id) '
            f"where {_MINE} and {_STRETCH} order by timestamp_ns, scope, finding_in_connection",
            place,
        )
        for at, record in enumerate(found):
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
        for one in record["related"] or ():
            at = rows.get((number, one["packet_in_connection"]))
            if at is None:
                at = index.row_at(one["timestamp_ns"], one["frame"], number)
            if at is not None:
                told = one["message"], index.rows[at].number, one["frame"], one["timestamp_ns"]
                related.append(Related(*told))
        return Finding(
            record["rule"], record["slug"], Severity(record["severity"]), Confidence(record["confidence"]),
            record["message"], tuple(record["statements"] or ()), record["version"] or "", record["capture"],
            record["frame"], record["timestamp_ns"], number, record["client"], record["server"],
            record["client_identifier"], record["direction"], packet, record["packet_type"], record["field"] or "",
            record["offset"], record["length"], record["reason_code"], record["fingerprint"] or "", record["topic"],
            tuple(related), count=record["count"] or 1,
            places=tuple(Place(one["field"], one["offset"], one["length"]) for one in record["places"] or ()),
        )  # fmt: skip

    def _errors(self) -> None:
        """What was wrong with captures, which has no time: at the end."""
        for one in self._tables.rows("select * from ingest_errors order by capture, event, message"):
            self.look()
            if one["event"] == "capture_drops":
                told = (one["interface"] or 0, one["received"], one["dropped"] or 0)
                self.index.feed(CaptureDrops(one["capture"], *told))
            else:
                self.index.feed(CaptureError(one["capture"], one["message"], one["offset"], one["frames"] or 0))


def connection_of(record: Record, number: int) -> Connection:
    """A connection from its row, with what is shown of it."""
    details: dict[str, object] = json.loads(record["details"]) if record["details"] else {}
    for name in ("tcp", "proxy"):
        if record[name] is not None:
            details[name] = record[name]
    how = record["closed_how"]
    sides = [
        Side(packets=record["packets"][name] or 0, bytes=record["bytes"][name] or 0, doubt=0)
        for name in ("client_to_server", "server_to_client")
    ]
    texts = {one["field"]: one["value"].decode("utf-8", "surrogateescape") for one in record["not_utf8"] or ()}
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
