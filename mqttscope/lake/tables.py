"""Converts events to rows of all tables in one pass, and rows to record batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from mqttscope.dissect import Dissector
from mqttscope.events import (
    CaptureRemark,
    ConnectionClosed,
    ConnectionDue,
    ConnectionOpened,
    DiscardedEvent,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lake.columns import array_of, batch_of
from mqttscope.lake.keys import Drop, SortPosition, connection_id, stage_key
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.rows import (
    Introduction,
    Values,
    connection_row,
    error_row,
    finding_row,
    gap_row,
    malformed_row,
    new_message,
    packet_row,
)
from mqttscope.lake.schemas import EVENT_TABLES, FINDINGS, FLOW_KEYS, INTERNAL, OPEN, PACKETS, TABLES, event_schema
from mqttscope.lake.tracker import LATE, Exchanges, KeyMemory, OpenConnection, TrackedMessage, Tracker
from mqttscope.lint.context import WIDE, ConnectionKey, connection_key, is_of_one, scope_key
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Scope
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.net.segment import endpoints, flow_key, group_key
from mqttscope.secrets.findings import Hiding, conceal
from mqttscope.session.connection import Connection

_PUBLISH, _PUBCOMP = PacketType.PUBLISH, PacketType.PUBCOMP
MAX_WAITING = 10_000
"""Maximum number of findings of a connection that wait until its session is known; more are of every session that it
may have."""
MAX_ENDED = 100_000
"""Maximum number of flows that have ended and whose holes are remembered; as many as a dissector has flows."""
LOOK = 1_024
"""Number of events after which whoever feeds a collector looks whether there are rows for a batch."""
_SCHEMAS = {name: one.arrow() for name, one in TABLES.items()} | {one.name: one.arrow() for one in INTERNAL}


class Collector:
    """Rows of the events that it is fed, by table, until they are taken.

    Feed it each event before the next is taken from the generator: rows show the state before a packet.
    """

    def __init__(self, options: LakeOptions, *, rules: Iterable[Rule] | None = None, key: str | None = None) -> None:
        """``rules``: those that run here, by default those of ``options`` that need one connection alone.

        Rules of wide scopes need all connections of their keys here; what comes late is left to the others.
        ``key``: what is fed are all connections of a key (`lake.keys.stage_key`), and perhaps others that ran between
        the same endpoints; findings of the rules of wide scopes for this key are the only rows.
        """
        self.options = options
        self._key = key
        if key is not None:
            rules = options.wide_rules()
        found = options.narrow_rules() if rules is None else list(rules)
        # Whoever judges connections together later needs the history that the linter keeps, whatever rules run here.
        self.linter = Linter(found, complete=options.complete, together=options.deduplicate) if options.rules else None
        self.rows: dict[str, list[Values]] = {name: [] for name in (*EVENT_TABLES, FLOW_KEYS.name)}
        self.trackers: dict[int, Tracker] = {}
        """By the number of the connection."""
        self.over = True
        """Connections that close have ended; else what is read of them so far ends here."""
        self.position = SortPosition()
        """Which segment is read now; a caller that reads flow by flow keeps it up to date."""
        self.holes: dict[bytes, list[tuple[bool, int, int]]] = {}
        """What was given up of flows that have ended, by `flow_key`: whether of the side that comes first in it, from
        where, to where."""
        self.tables: Collection[str] = self.rows
        """Those whose rows are made; others make these elsewhere, of the same events (`make_only`)."""
        self._makes_packets = True
        self.waiting = 0
        """Events since rows were last looked for: that is worth while now and then."""
        self.dropping: set[str] = set() if self.linter is None else self.linter.dropping
        """Captures that are known by now to lack frames."""
        self.widest = options.widest()
        """The scope of the keys by which connections are brought together, where that is done elsewhere."""
        self.reads_late = False
        """Some connections are of captures that came later than newer ones."""
        self._scopes = {rule.code: rule.scope for rule in found if rule.scope in WIDE}
        self._late_linter = self.linter
        self._unsettled: dict[int, list[Values]] = {}
        """Findings of connections whose key is not known yet, by their number."""
        if self._scopes:
            # Rules of wide scopes look at what comes in the order of time.
            self._late_linter = Linter(rule for rule in found if rule.scope not in WIDE)
            self._late_linter.dropping = self.dropping
            if self.linter is not None:
                # What fails is counted once, whichever of the two has asked the rule.
                self._late_linter.failures = self.linter.failures
                self._late_linter.internal_errors = self.linter.internal_errors
        self._open: dict[ConnectionKey, OpenConnection] = {}
        self._drops: Mapping[str, Drop] = {}
        self._introductions: dict[int, Introduction] = {}
        self._hiding = Hiding(options.secret_length, 256)

    def feed(self, event: Event) -> None:
        """Take one event."""
        self.waiting += 1
        if self._drops:
            self._heed_drops(event.capture)
        linter = self.linter
        if self.reads_late and isinstance(event, Scoped) and self._tracker(event.connection).late:
            if self._key is not None:
                return
            linter = self._late_linter
        findings = linter.feed(event) if linter is not None else ()
        if isinstance(event, ConnectionOpened):
            self._tracker(event.connection)
        if self._key is None:
            self._row(event)
        if findings:
            assert isinstance(event, Scoped)
            self._findings(event, findings)
        if isinstance(event, ConnectionClosed):
            self._close(event)

    def _row(self, event: Event) -> None:
        kind = type(event)
        if kind is PacketEvent or kind is MalformedEvent:
            if self._makes_packets:
                self._packet(event)  # type: ignore[arg-type]
        elif isinstance(event, DiscardedEvent):
            # The connection may be over.
            intro = self._introductions.get(event.connection.number) or Introduction(
                connection_id(event.connection, self.options.group)
            )
            self.rows["gaps"].append(gap_row(event, intro, 0))
        elif isinstance(event, GapEvent | UnparsedEvent):
            tracker = self._tracker(event.connection)
            intro = self._introductions[event.connection.number]
            self.rows["gaps"].append(gap_row(event, intro, tracker.gaps))
            tracker.gaps += 1
            if isinstance(event, GapEvent) and event.reason != "cut":
                tracker.note_hole(event.direction is Direction.CLIENT_TO_SERVER, event.stream_offset, event.length)
        elif isinstance(event, CaptureRemark):
            self.rows["ingest_errors"].append(error_row(event))

    def note_drops(self, captures: Iterable[str], later: Mapping[str, Drop] | None = None) -> None:
        """Captures that are known to lack frames, beside those that say so among the events.

        ``later``: those that say so at some place, where no event tells.
        """
        self.dropping.update(captures)
        self._drops = {capture: drop for capture, drop in (later or {}).items() if capture not in self.dropping}

    def _heed_drops(self, capture: str) -> None:
        """Flows come one after the other, so that a place may be after a notice and the next one before it."""
        drop = self._drops.get(capture)
        if drop is None:
            return
        if drop.is_before(self.position.place()):
            self.dropping.add(capture)
        else:
            self.dropping.discard(capture)

    def batches(self, *, everything: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take the rows of tables that have enough for a batch, or of all tables."""
        self.waiting = 0
        least = 1 if everything else self.options.batch_rows
        for name, found in self.rows.items():
            if name not in self.tables:
                found.clear()
            while len(found) >= least:
                some = found[: self.options.batch_rows]
                del found[: self.options.batch_rows]
                yield name, batch(name, some)

    def make_only(self, tables: Collection[str]) -> None:
        """Make the rows of these tables alone; no rule is asked where findings are not among them.

        Rows of messages are made of packets, so both are or neither is; without them nothing is known of the messages
        that wait for an answer (`Tracker.exchanges`).
        """
        self.tables = tables
        self._makes_packets = PACKETS.name in tables
        if FINDINGS.name not in tables:
            self.linter = self._late_linter = None

    def make_all(self, exchanges: Mapping[int, Exchanges]) -> None:
        """Make the rows of all tables again; ``exchanges``: those of connections that are open, by their numbers."""
        for name, found in self.rows.items():
            if name not in self.tables:
                found.clear()
        self.tables, self._makes_packets = self.rows, True
        for number, tracker in self.trackers.items():
            tracker.exchanges = exchanges.get(number) or Exchanges()

    def recall(self, memory: KeyMemory) -> None:
        """Continue with what rules of wide scopes remember, before any of these connections is adopted."""
        if self._scopes and self.linter is not None:
            self.linter.memories.adopt(memory.memories)
            self._open |= memory.open

    def adopt(self, connection: Connection, tracker: Tracker) -> None:
        """Continue with a connection that another collector remembered."""
        self.trackers[connection.number] = tracker
        self._introductions[connection.number] = Introduction(tracker.connection_id)
        if tracker.late:
            self.reads_late = True
        elif self._scopes and self.linter is not None:
            history = self.linter.adopt(connection)
            known = self._open.pop(connection_key(connection), None)
            if known is not None:
                tracker.wide_findings = known.findings
                history.carries = history.carries or known.carries
                for code, when_ns in known.asked.items():
                    history.ask(code, when_ns, connection.alarm)
                for code, when_ns in known.asked_next.items():
                    history.ask(code, when_ns)

    def key_memory(self, connections: Iterable[tuple[Connection, Tracker]]) -> KeyMemory | None:
        """What rules of wide scopes remember of the one key; write it down before anything else is fed."""
        return None if self._key is None else self.key_memories(connections).get(self._key)

    def key_memories(self, connections: Iterable[tuple[Connection, Tracker]]) -> dict[str, KeyMemory]:
        """What rules of wide scopes remember, by `stage_key`; write it down before anything else is fed.

        ``connections``: those that are open, as they are remembered.
        """
        found: dict[str, KeyMemory] = {}
        if self.linter is None or self.widest is None or not self._scopes:
            return found
        connections = list(connections)
        nameless = {scope_key(Scope.SESSION, connection) for connection, _ in connections}
        for kept_key, memories in self.linter.remembered().items():
            if is_of_one(kept_key) and kept_key not in nameless:
                continue  # its connection has ended, or has a Client Identifier by now
            key = stage_key(kept_key, self.widest, self.options.group)
            found.setdefault(key, KeyMemory()).memories[kept_key] = memories
        for connection, tracker in connections:
            history = connection.history
            if history is None or tracker.late:
                continue
            asked, asked_next = (
                {code: when_ns for code, when_ns in times.items() if code in self._scopes}
                for times in (history.asked, history.asked_next)
            )
            if asked or asked_next or history.carries or tracker.wide_findings:
                one = OpenConnection(asked, asked_next, history.carries, tracker.wide_findings)
                found.setdefault(self.key_of(connection), KeyMemory()).open[connection_key(connection)] = one
        return found

    def key_of(self, connection: Connection) -> str:
        """The key by which a connection is brought together with others, as far as it is known now."""
        assert self.widest is not None
        return stage_key(scope_key(self.widest, connection), self.widest, self.options.group)

    def _tracker(self, connection: Connection) -> Tracker:
        tracker = self.trackers.get(connection.number)
        if tracker is None:
            tracker = Tracker(connection_id(connection, self.options.group), late=connection.number >= LATE)
            self.trackers[connection.number] = tracker
            self._introductions[connection.number] = Introduction(tracker.connection_id)
        return tracker

    def _packet(self, event: PacketEvent | MalformedEvent) -> None:
        tracker = self._tracker(event.connection)
        intro = self._introductions[event.connection.number]
        limit = self.options.payload_limit
        if isinstance(event, PacketEvent):
            packet = event.packet
            row, fields = packet_row(event, intro, limit)
        else:
            row, fields = malformed_row(event, intro, limit)
            if event.malformed.packet is None or not event.malformed.complete:
                self.rows["packets"].append(row)
                return
            packet = event.malformed.packet
        self.rows["packets"].append(row)
        if _PUBLISH <= packet.packet_type <= _PUBCOMP:
            message = new_message(event, packet, fields, intro)
            self._ended(tracker.exchanges.feed(event, packet, message))

    def _ended(self, message: TrackedMessage | None) -> None:
        if message is not None:
            self.rows["messages"].append(message.row())

    def _findings(self, event: Scoped, findings: Iterable[Finding]) -> None:
        tracker = self._tracker(event.connection)
        made = [self._finding_row(event, tracker, one) for one in findings]
        if self._key is None:
            self._take(made)
            return
        waiting = self._unsettled.setdefault(event.connection.number, [])
        waiting += made
        if self.widest is Scope.BROKER or event.connection.connack_packet is not None:
            self._settle(event.connection)
        elif len(waiting) > MAX_WAITING:
            # Rather under two keys than under none.
            self._take(waiting)
            self._unsettled[event.connection.number] = []

    def _settle(self, connection: Connection) -> None:
        """The key of a connection is known: its findings are rows, or are left to another key."""
        waiting = self._unsettled.pop(connection.number, None)
        if waiting and self.key_of(connection) == self._key:
            self._take(waiting)

    def _finding_row(self, event: Scoped, tracker: Tracker, finding: Finding) -> Values:
        offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
        scope, number = self._count(finding, tracker)
        shown = conceal(finding, self._hiding)
        return finding_row(shown, tracker.connection_id, scope or "connection", number, offset)

    def _take(self, found: list[Values]) -> None:
        self.rows["findings"] += found

    def _count(self, finding: Finding, tracker: Tracker) -> tuple[Scope | None, int]:
        """The scope of a finding, where it is a wide one, and its number among those of its connection and scope."""
        scope = self._scopes.get(finding.rule)
        if scope is None:
            tracker.findings += 1
            return None, tracker.findings - 1
        number = tracker.wide_findings.get(scope, 0)
        tracker.wide_findings[scope] = number + 1
        return scope, number

    def remember(self, connection: Connection) -> Tracker | None:
        """Give away what is known of a connection."""
        tracker = self.trackers.pop(connection.number, None)
        if tracker is not None:
            self._settle(connection)
        return tracker

    def _note_key(self, connection: Connection, tracker: Tracker) -> None:
        """Say with which other connections one is judged, where that is done elsewhere."""
        if self.widest is not None and not self._scopes and not tracker.late:
            self.rows[FLOW_KEYS.name].append((group_key(connection.flow_key), self.key_of(connection)))

    def _close(self, event: ConnectionClosed) -> None:
        if self._key is not None:
            self._settle(event.connection)
            self.forget(event.connection)
            return
        tracker = self._tracker(event.connection)
        for message in tracker.exchanges.close():
            if not self.over:
                message.ended = None
            self._ended(message)
        row = connection_row(event, tracker.connection_id, self.options.group, over=self.over, late=tracker.late)
        self.rows["connections"].append(row)
        if tracker.holes:
            self._note_holes(event.connection, tracker)
        self._note_key(event.connection, tracker)
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
        self.trackers.pop(connection.number, None)
        self._introductions.pop(connection.number, None)

    def ended(self, dissector: Dissector) -> None:
        """All of a flow was read."""


Scoped = PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionDue | ConnectionClosed
"""Events of a connection."""


def batch(name: str, found: Sequence[Values]) -> pa.RecordBatch:
    """Rows of one table as a record batch."""
    return batch_of(_SCHEMAS[name], found)


def event_batch(name: str, found: pa.RecordBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """A record batch of one table as rows of several: ``kind`` and a struct, the other structs null.

    ``open/<table>`` is a kind of its own with the struct of the table.
    """
    schema = schema or event_schema()
    count = found.num_rows
    table = name.removeprefix(OPEN)
    arrays: list[pa.Array] = [array_of([name] * count, schema.field("kind").type)]
    for column in schema.names[1:]:
        kind = schema.field(column).type
        if column == table:
            arrays.append(pa.StructArray.from_arrays(found.columns, fields=list(kind)))
        else:
            arrays.append(pa.nulls(count, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
