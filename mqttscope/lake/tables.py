"""From events to rows of all tables in one pass, and from rows to record batches.

Where captures say that frames were dropped: from there on rules are less sure of what they find in them.

A notice belongs to no flow, and whoever reads one flow alone does not come past it.  So its place is known before, and
each event is asked whether it comes out behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from mqttscope.dissect import Dissector
from mqttscope.dissect.transports import Place
from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    DiscardedEvent,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lake import rows
from mqttscope.lake.held import ScopeRow, settles
from mqttscope.lake.keys import connection_id, session_key
from mqttscope.lake.messages import Message
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES, INTERNAL, OPEN, SCOPE_EVENTS, SCOPE_ROWS, TABLES, event_schema
from mqttscope.lake.scopes import AT_THE_END, Emitted, Progress, beside, scope_row
from mqttscope.lake.tracker import LATE, Beside, Tracker
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.mqtt.constants import Direction
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.net.segment import endpoints, flow_key
from mqttscope.report.base import View
from mqttscope.report.findings.conceal import conceal
from mqttscope.session.connection import Connection


class Drop(NamedTuple):
    """The first notice of a capture that frames were dropped."""

    file: int
    """Place of the capture in the order of reading, from 0."""
    frame: int
    """How many frames of the capture come before."""
    timestamp_ns: int | None = None
    """Time of the latest segment before it; ``None`` where there is none."""

    def is_before(self, place: tuple[int, int, int]) -> bool:
        """Whether it comes before an event with this place (`lake.scopes.Emitted.place`)."""
        now_ns, file, frame = place
        if now_ns >= AT_THE_END:
            return True
        if frame > 0:
            return (self.file, self.frame) < (file, frame)
        # A time-out comes out at the first segment of its time.
        return self.timestamp_ns is None or self.timestamp_ns < now_ns


Values = rows.Values
MAX_ENDED = 100_000
"""Flows that have ended and whose holes are remembered; as many as a dissector has flows."""
LOOK = 1_024
"""After so many events it is time to look whether there are rows for a batch."""
_SCHEMAS = {name: one.arrow() for name, one in TABLES.items()} | {
    one.name: one.arrow() for one in (*INTERNAL, SCOPE_ROWS)
}


class Collector:
    """Rows of the events that it is fed, by table, until they are taken.

    Feed it each event before the next is taken from the generator: rows show the state before a packet.
    """

    def __init__(self, options: LakeOptions, *, linter: Linter | None = None) -> None:
        self.options = options
        narrow = options.narrow_rules()
        # Wider scopes need the history that the linter keeps, whether there are rules for it here or not.
        self.linter = linter or (Linter(narrow) if narrow or options.scope_events else None)
        self.rows: dict[str, list[Values]] = {name: [] for name in (*EVENT_TABLES, SCOPE_EVENTS.name)}
        self.trackers: dict[int, Tracker] = {}
        """By the number of the connection."""
        self.over = True
        """Connections that close have ended; else what is read of them so far ends here."""
        self.emitted = Emitted()
        """Which segment is read now; whoever drives the dissector keeps it up, where wider scopes are wanted."""
        self.ordered = options.scope_events
        """Rows tell where their events have their place among those of other flows."""
        self.holes: dict[bytes, list[tuple[bool, int, int]]] = {}
        """What was given up of flows that have ended, by `flow_key`: whether of the side that comes first in it, from
        where, to where."""
        self.waiting = 0
        """Events since rows were last looked for: that is worth while now and then."""
        self.dropping: set[str] = set() if self.linter is None else self.linter.dropping
        """Captures that are known by now to lack frames."""
        self._drops: Mapping[str, Drop] = {}
        self._gaps: list[GapEvent] = []
        """Those behind which nobody has looked yet."""
        self._introductions: dict[int, rows.Introduction] = {}
        self._view = View(width=0, payload_limit=256, secret_length=options.secret_length)

    def feed(self, event: Event) -> None:
        """Take one event."""
        self.waiting += 1
        if self._drops:
            self._heed_drops(event.capture)
        told: Beside = ()
        scoped = event if self.options.scope_events and isinstance(event, Scoped) else None
        if scoped is not None and self._tracker(scoped.connection).late:
            # Rules of wider scopes look at what comes in the order of time.
            scoped = None
        if self._gaps and not (isinstance(event, Scoped) and event.connection is self._gaps[-1].connection):
            self.time_passed()
        if scoped is not None:
            told = beside(scoped.connection, self._tracker(scoped.connection).beside)
        findings = self.linter.feed(event) if self.linter is not None else ()
        self._row(event)
        if findings:
            self._findings(event, findings)
        if scoped is not None:
            self._scope_event(scoped, told)
            if isinstance(event, GapEvent):
                self._gaps.append(event)
        if isinstance(event, ConnectionClosed):
            self._close(event)

    def _row(self, event: Event) -> None:
        """The row of an event itself."""
        kind = type(event)
        if kind is PacketEvent or kind is MalformedEvent:
            self._packet(event)  # type: ignore[arg-type]
        elif isinstance(event, DiscardedEvent):
            # The connection may be over.
            intro = self._introductions.get(event.connection.number) or rows.Introduction(
                connection_id(event.connection, self.options.group)
            )
            self.rows["gaps"].append(rows.gap_row(event, intro, 0))
        elif isinstance(event, GapEvent | UnparsedEvent):
            tracker = self._tracker(event.connection)
            intro = self._introductions[event.connection.number]
            self.rows["gaps"].append(rows.gap_row(event, intro, tracker.gaps))
            tracker.gaps += 1
            if isinstance(event, GapEvent) and event.reason != "cut":
                tracker.note_hole(event.direction is Direction.CLIENT_TO_SERVER, event.stream_offset, event.length)
        elif isinstance(event, CaptureError | CaptureDrops):
            self.rows["ingest_errors"].append(rows.error_row(event))

    def note_drops(self, captures: Iterable[str], later: Mapping[str, Drop] | None = None) -> None:
        """Captures that are known to lack frames, beside those that say so among the events.

        ``later``: those that say so at some place, where no event tells.
        """
        self.dropping.update(captures)
        self._drops = {capture: drop for capture, drop in (later or {}).items() if capture not in self.dropping}

    def _heed_drops(self, capture: str) -> None:
        """Flows come one behind the other, so that a place may be behind a notice and the next one before it."""
        drop = self._drops.get(capture)
        if drop is None:
            return
        if drop.is_before(self.emitted.place()):
            self.dropping.add(capture)
        else:
            self.dropping.discard(capture)

    def batches(self, *, everything: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take the rows of tables that have enough for a batch, or of all tables."""
        self.waiting = 0
        least = 1 if everything else self.options.batch_rows
        for name, found in self.rows.items():
            while len(found) >= least:
                some = found[: self.options.batch_rows]
                del found[: self.options.batch_rows]
                yield name, batch(name, some)

    def adopt(self, connection: Connection, tracker: Tracker) -> None:
        """Go on with a connection that another collector remembered."""
        self.trackers[connection.number] = tracker
        self._introductions[connection.number] = rows.Introduction(tracker.connection_id)

    def _tracker(self, connection: Connection) -> Tracker:
        tracker = self.trackers.get(connection.number)
        if tracker is None:
            tracker = Tracker(connection_id(connection, self.options.group), late=connection.number >= LATE)
            self.adopt(connection, tracker)
        return tracker

    def _packet(self, event: PacketEvent | MalformedEvent) -> None:
        tracker = self._tracker(event.connection)
        intro = self._introductions[event.connection.number]
        limit = self.options.payload_limit
        if isinstance(event, PacketEvent):
            packet = event.packet
            row, fields = rows.packet_row(event, intro, limit)
        else:
            row, fields = rows.malformed_row(event, intro, limit)
            if event.malformed.packet is None or not event.malformed.complete:
                self.rows["packets"].append(row)
                return
            packet = event.malformed.packet
        self.rows["packets"].append(row)
        if 3 <= packet.packet_type <= 7:
            message = rows.new_message(event, packet, row, fields, intro)
            self._ended(tracker.exchanges.feed(event, packet, message))

    def _ended(self, message: Message | None) -> None:
        if message is not None:
            self.rows["messages"].append(message.row())

    def _findings(self, event: Event, findings: Iterable[Finding]) -> None:
        assert isinstance(event, Scoped)
        tracker = self._tracker(event.connection)
        offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
        for finding in findings:
            shown = conceal(finding, self._view)
            row = rows.finding_row(shown, tracker.connection_id, "connection", tracker.findings, offset)
            self.rows["findings"].append(row)
            tracker.findings += 1

    def segment_taken(self, connection: Connection | None, segment: Place) -> None:
        """Look, behind all events of a segment, whether it did more to its connection than these tell."""
        self.time_passed()
        if connection is not None:
            self._look(connection, segment)

    def time_passed(self) -> None:
        """The same behind events that a time-out brought: what waited behind a hole may be part of a packet."""
        gaps, self._gaps = self._gaps, []
        for event in gaps:
            self._look(event.connection, event)

    def _look(self, connection: Connection, at: Place) -> None:
        tracker, history = self.trackers.get(connection.number), connection.history
        if tracker is None or tracker.late:
            return
        if history is not None and history.behind_a_hole is not tracker.hole:
            self._scope_event(
                Progress(connection, at.frame, at.timestamp_ns, at.capture), beside(connection, tracker.beside)
            )

    def _scope_event(self, event: Scoped | Progress, told: Beside) -> None:
        """Write an event down for rules of wider scopes, or have it wait until its session is known."""
        tracker = self._tracker(event.connection)
        held = tracker.held
        row = scope_row(event, told, tracker, self.emitted, dropped=event.capture in self.dropping)
        tracker.events += 1
        history = event.connection.history
        tracker.hole = history is not None and history.behind_a_hole
        if held.session is not None:
            self._tell(tracker, row, row.server, held.session)
            return
        held.hold(row)
        if settles(event) or held.full or isinstance(event, ConnectionClosed):
            held.session = session_key(event.connection, tracker.connection_id)
            for waited, known in held.release():
                self._tell(tracker, waited, None if known else waited.server, held.session)

    def _tell(self, tracker: Tracker, row: ScopeRow, server: str | None, session: str | None) -> None:
        self.rows[SCOPE_EVENTS.name].append(
            (tracker.connection_id, server, session, *row.place, row.number, not self.over, row.event)
        )

    def remember(self, connection: Connection) -> Tracker | None:
        """Give away what is known of a connection; rules of its server get what still waits for its session."""
        tracker = self.trackers.pop(connection.number, None)
        if tracker is not None:
            for row in tracker.held.tell():
                self._tell(tracker, row, row.server, None)
        return tracker

    def _close(self, event: ConnectionClosed) -> None:
        tracker = self._tracker(event.connection)
        for message in tracker.exchanges.close():
            if not self.over:
                message.ended = None
            self._ended(message)
        row = rows.connection_row(event, tracker.connection_id, self.options.group, over=self.over, late=tracker.late)
        self.rows["connections"].append(row)
        if tracker.holes:
            self._note_holes(event.connection, tracker)
        self.forget(event.connection)

    def _note_holes(self, connection: Connection, tracker: Tracker) -> None:
        key = flow_key(connection.flow_key)
        is_client = endpoints(key)[0] == connection.client
        self.holes.pop(key, None)
        if len(self.holes) >= MAX_ENDED:
            del self.holes[next(iter(self.holes))]
        self.holes[key] = [(is_client is one.from_client, one.start, one.end) for one in tracker.holes]

    def forget(self, connection: Connection) -> None:
        """Nothing more will come of a connection."""
        del self.trackers[connection.number], self._introductions[connection.number]

    def ended(self, dissector: Dissector) -> None:
        """All of a flow was read."""


Scoped = PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionClosed
"""Events of a connection."""


def batch(name: str, found: list[Values]) -> pa.RecordBatch:
    """Rows of one table as a record batch."""
    schema = _SCHEMAS[name]
    arrays = []
    for column, values in zip(schema, zip(*found, strict=True), strict=True):
        if values.count(None) == len(values):
            arrays.append(pa.nulls(len(values), column.type))
        else:
            arrays.append(pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def event_batch(name: str, found: pa.RecordBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """A record batch of one table as rows of several: ``kind`` and a struct, the other structs null.

    ``open/<table>`` is a kind of its own with the struct of the table.
    """
    schema = schema or event_schema()
    count = found.num_rows
    table = name.removeprefix(OPEN)
    arrays: list[pa.Array] = [pa.repeat(name, count)]
    for column in schema.names[1:]:
        kind = schema.field(column).type
        if column == table:
            arrays.append(pa.StructArray.from_arrays(found.columns, fields=list(kind)))
        else:
            arrays.append(pa.nulls(count, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_batch(found: pa.RecordBatch) -> tuple[str, pa.RecordBatch]:
    """What `event_batch` made, as it was: the kind and the rows of its table."""
    kind: str = found.column("kind")[0].as_py()
    table = kind.removeprefix(OPEN)
    return kind, pa.RecordBatch.from_arrays(found.column(table).flatten(), schema=_SCHEMAS[table])
