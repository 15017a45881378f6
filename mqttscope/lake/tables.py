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
from mqttscope.lake.declared import PayloadPart
from mqttscope.lake.keys import Drop, SortPosition, connection_id, stage_key
from mqttscope.lake.metrics import metric_rows
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.rows import (
    RowPrefix,
    Values,
    connection_row,
    error_row,
    finding_row,
    gap_row,
    malformed_row,
    new_message,
    packet_row,
)
from mqttscope.lake.schemas import (
    EVENT_TABLES,
    FINDINGS,
    FLOW_KEYS,
    INTERNAL,
    OPEN,
    PACKETS,
    SPARKPLUG_METRICS,
    TABLES,
    event_schema,
)
from mqttscope.lake.tracker import LATE, Exchanges, KeyMemory, MetricMemory, OpenConnection, TrackedMessage, Tracker
from mqttscope.lint.context import WIDE, ConnectionKey, connection_key, is_of_one, scope_key
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Scope
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.net.segment import endpoints, flow_key, group_key
from mqttscope.payloads.sparkplug_topics import NAMESPACE
from mqttscope.secrets.findings import HidingOptions, conceal
from mqttscope.session.connection import Connection

_PUBLISH, _PUBCOMP = PacketType.PUBLISH, PacketType.PUBCOMP
MAX_WAITING = 10_000
"""Maximum number of findings of a connection that wait until its session is known; beyond it they are reported for
every session that the connection may have."""
MAX_IDENTIFIERS = 100_000
"""Maximum number of identifiers of connections that are remembered; then all of them are forgotten."""
MAX_ENDED = 100_000
"""Maximum number of ended flows with remembered holes; as many as a dissector has flows."""
LOOK = 1_024
"""Number of events between two checks of a collector for full batches."""
_SCHEMAS = {schema.name: schema.arrow() for schema in (*TABLES.values(), *INTERNAL)}


class Collector:
    """Rows of the events that it is fed, by table, until they are taken.

    Feed it each event before taking the next one from the generator: rows show the state before a packet.
    """

    def __init__(self, options: LakeOptions, *, rules: Iterable[Rule] | None = None, key: str | None = None) -> None:
        """``rules``: rules to run here, by default the rules of ``options`` that need one connection alone.

        Rules of wide scope need all connections of their keys here; late connections are judged by the other rules.
        ``key``: the events fed are of all connections of a key (`lake.keys.stage_key`), and perhaps of others between
        the endpoints; findings of wide rules for this key are the only rows.
        """
        self.options = options
        self._payload_part = PayloadPart(options.payload_limit, options.digest_digits)
        self._key = key
        if key is not None:
            rules = options.wide_rules()
        chosen = options.narrow_rules() if rules is None else list(rules)
        # A later judgement of several connections needs the linter's history, whatever rules run here.
        self.linter = Linter(chosen, complete=options.complete, together=options.deduplicate) if options.rules else None
        self.rows: dict[str, list[Values]] = {name: [] for name in (*EVENT_TABLES, FLOW_KEYS.name)}
        self.trackers: dict[int, Tracker] = {}
        """Trackers by connection number."""
        self.over = True
        """True if connections that close have ended; false if only their events up to now are known."""
        self.position = SortPosition()
        """The present segment; a caller that reads flow by flow keeps it up to date."""
        self.holes: dict[bytes, list[tuple[bool, int, int]]] = {}
        """Holes of ended flows, by `flow_key`: whether of the side that comes first in the key, start, end."""
        self.beginnings: dict[tuple[bytes, int], dict[bool, tuple[int, int]]] = {}
        """Checksums of first bytes of flows, by key and time (`FlowMemory.beginnings`)."""
        self._identifiers: set[str] = set()
        """Identifiers of the last connections: captures may have connections with equal times and numbers."""
        self.tables: Collection[str] = self.rows
        """Tables that get rows; a second process makes the others from the events it reads (`make_only`)."""
        self._makes_packets = True
        self.waiting = 0
        """Number of events since the last check for full batches."""
        self.dropping: set[str] = set() if self.linter is None else self.linter.dropping
        """Captures that are known by now to lack frames."""
        self.widest = options.widest()
        """Scope of the keys for judging connections together, if that is done elsewhere."""
        self.reads_late = False
        """Some connections are from late captures."""
        self._scopes = {rule.code: rule.scope for rule in chosen if rule.scope in WIDE}
        self._late_linter = self.linter
        self._unsettled: dict[int, list[Values]] = {}
        """Findings of connections without a known key, by connection number."""
        if self._scopes:
            # Rules of wide scope judge events in the order of time.
            self._late_linter = Linter(rule for rule in chosen if rule.scope not in WIDE)
            self._late_linter.dropping = self.dropping
            if self.linter is not None:
                # Failures are counted once, whichever of the two linters asked the rule.
                self._late_linter.failures = self.linter.failures
                self._late_linter.internal_errors = self.linter.internal_errors
        self._open: dict[ConnectionKey, OpenConnection] = {}
        self._drops: Mapping[str, Drop] = {}
        self._introductions: dict[int, RowPrefix] = {}
        self._hiding = HidingOptions(options.secret_length, 256)

    def feed(self, event: Event) -> None:
        """Feed one event."""
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
            self._metrics(event)  # type: ignore[arg-type]
        elif isinstance(event, DiscardedEvent):
            # The connection may have ended.
            intro = self._introductions.get(event.connection.number) or RowPrefix(
                connection_id(event.connection, self.options.group)
            )
            self.rows["gaps"].append(gap_row(event, intro, 0))
        elif isinstance(event, GapEvent | UnparsedEvent):
            tracker = self._tracker(event.connection)
            intro = self._introductions[event.connection.number]
            self.rows["gaps"].append(gap_row(event, intro, tracker.gaps))
            tracker.gaps += 1
            tracker.lose_metrics(event)
            if isinstance(event, GapEvent) and event.reason != "cut":
                tracker.note_hole(event.direction is Direction.CLIENT_TO_SERVER, event.stream_offset, event.length)
        elif isinstance(event, CaptureRemark):
            self.rows["ingest_errors"].append(error_row(event))

    def note_drops(self, captures: Iterable[str], later: Mapping[str, Drop] | None = None) -> None:
        """Note captures that are known to lack frames, besides captures that report it in an event.

        ``later``: captures that report it at a known place, without an event.
        """
        self.dropping.update(captures)
        self._drops = {capture: drop for capture, drop in (later or {}).items() if capture not in self.dropping}

    def _heed_drops(self, capture: str) -> None:
        """Compare with the notice: flows come one after the other, so the next place may be before it again."""
        drop = self._drops.get(capture)
        if drop is None:
            return
        if drop.is_before(self.position.place()):
            self.dropping.add(capture)
        else:
            self.dropping.discard(capture)

    def batches(self, *, everything: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Take the rows of tables with enough for a batch, or of all tables."""
        self.waiting = 0
        least = 1 if everything else self.options.batch_rows
        for name, rows in self.rows.items():
            if name not in self.tables:
                rows.clear()
            while len(rows) >= least:
                some = rows[: self.options.batch_rows]
                del rows[: self.options.batch_rows]
                yield name, batch(name, some)

    def make_only(self, tables: Collection[str]) -> None:
        """Make only the rows of these tables; without findings among them no rule is asked.

        Rows of messages are made of packets, so either both tables are among them or neither; without them unanswered
        messages are unknown (`Tracker.exchanges`).
        """
        self.tables = tables
        self._makes_packets = PACKETS.name in tables
        if FINDINGS.name not in tables:
            self.linter = self._late_linter = None

    def make_all(self, exchanges: Mapping[int, Exchanges]) -> None:
        """Make the rows of all tables again; ``exchanges``: of open connections, by number."""
        for name, rows in self.rows.items():
            if name not in self.tables:
                rows.clear()
        self.tables, self._makes_packets = self.rows, True
        for number, tracker in self.trackers.items():
            tracker.exchanges = exchanges.get(number) or Exchanges()

    def recall(self, memory: KeyMemory) -> None:
        """Continue with memories of wide rules, before any of these connections is adopted."""
        if self._scopes and self.linter is not None:
            self.linter.memories.adopt(memory.memories)
            self._open |= memory.open

    def adopt(self, connection: Connection, tracker: Tracker) -> None:
        """Continue with a connection from another collector's memory."""
        self.trackers[connection.number] = tracker
        self._introductions[connection.number] = RowPrefix(tracker.connection_id)
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
        """Memory of wide rules about the key of this collector; store it before feeding more."""
        return None if self._key is None else self.key_memories(connections).get(self._key)

    def key_memories(self, connections: Iterable[tuple[Connection, Tracker]]) -> dict[str, KeyMemory]:
        """Memories of wide rules, by `stage_key`; store them before feeding more.

        ``connections``: the open ones, with their trackers.
        """
        by_key: dict[str, KeyMemory] = {}
        if self.linter is None or self.widest is None or not self._scopes:
            return by_key
        connections = list(connections)
        nameless = {scope_key(Scope.SESSION, connection) for connection, _ in connections}
        for memory_key, memories in self.linter.remembered().items():
            if is_of_one(memory_key) and memory_key not in nameless:
                continue  # its connection has ended, or has a Client Identifier by now
            key = stage_key(memory_key, self.widest, self.options.group)
            by_key.setdefault(key, KeyMemory()).memories[memory_key] = memories
        for connection, tracker in connections:
            history = connection.history
            if history is None or tracker.late:
                continue
            asked, asked_next = (
                {code: when_ns for code, when_ns in times.items() if code in self._scopes}
                for times in (history.asked, history.asked_next)
            )
            if asked or asked_next or history.carries or tracker.wide_findings:
                opened = OpenConnection(asked, asked_next, history.carries, tracker.wide_findings)
                by_key.setdefault(self.key_of(connection), KeyMemory()).open[connection_key(connection)] = opened
        return by_key

    def key_of(self, connection: Connection) -> str:
        """The key for judging a connection with others, as far as it is known now."""
        assert self.widest is not None
        return stage_key(scope_key(self.widest, connection), self.widest, self.options.group)

    def _tracker(self, connection: Connection) -> Tracker:
        tracker = self.trackers.get(connection.number)
        if tracker is None:
            tracker = Tracker(
                self._new_identifier(connection), late=connection.number >= LATE,
                rule_generation=self.options.rule_generation,
            )  # fmt: skip
            self.trackers[connection.number] = tracker
            self._introductions[connection.number] = RowPrefix(tracker.connection_id)
        return tracker

    def _new_identifier(self, connection: Connection) -> str:
        """Identifier of a connection; a second connection with equal time and numbers has another one."""
        identifier, repetition = connection_id(connection, self.options.group), 0
        while identifier in self._identifiers:
            repetition += 1
            identifier = connection_id(connection, self.options.group, repetition)
        if len(self._identifiers) >= MAX_IDENTIFIERS:
            self._identifiers.clear()
        self._identifiers.add(identifier)
        return identifier

    def _packet(self, event: PacketEvent | MalformedEvent) -> None:
        tracker = self._tracker(event.connection)
        intro = self._introductions[event.connection.number]
        if isinstance(event, PacketEvent):
            packet = event.packet
            row, fields = packet_row(event, intro, self._payload_part)
        else:
            row, fields = malformed_row(event, intro, self._payload_part)
            if event.malformed.packet is None or not event.malformed.complete:
                self.rows["packets"].append(row)
                return
            packet = event.malformed.packet
        self.rows["packets"].append(row)
        if _PUBLISH <= packet.packet_type <= _PUBCOMP:
            message = new_message(event, packet, fields, intro)
            self._ended(tracker.exchanges.feed(event, packet, message))

    def _metrics(self, event: PacketEvent | MalformedEvent) -> None:
        """Rows of a message of Sparkplug."""
        if isinstance(event, MalformedEvent):
            self._tracker(event.connection).lose_metrics(event)
        elif event.topic and event.topic.startswith(NAMESPACE) and SPARKPLUG_METRICS.name in self.tables:
            tracker, intro = self._tracker(event.connection), self._introductions[event.connection.number]
            births = tracker.metrics.setdefault(str(event.direction), MetricMemory()).births_for(event)
            self.rows[SPARKPLUG_METRICS.name] += metric_rows(event, intro, births, self.options.payload_limit)

    def _ended(self, message: TrackedMessage | None) -> None:
        if message is not None:
            self.rows["messages"].append(message.row())

    def _findings(self, event: Scoped, findings: Iterable[Finding]) -> None:
        tracker, since = self._tracker(event.connection), self.options.since
        # A new rule has not seen the beginning of an older connection.
        judged = [finding for finding in findings if since.get(finding.rule, 1) <= tracker.rule_generation]
        rows = [self._finding_row(event, tracker, finding) for finding in judged]
        if self._key is None:
            self._take(rows)
            return
        waiting = self._unsettled.setdefault(event.connection.number, [])
        waiting += rows
        if self.widest is Scope.BROKER or event.connection.connack_packet is not None:
            self._settle(event.connection)
        elif len(waiting) > MAX_WAITING:
            # A duplicate under another key is better than a loss.
            self._take(waiting)
            self._unsettled[event.connection.number] = []

    def _settle(self, connection: Connection) -> None:
        """Report the findings of a connection with a known key, or leave them to another key."""
        waiting = self._unsettled.pop(connection.number, None)
        if waiting and self.key_of(connection) == self._key:
            self._take(waiting)

    def _finding_row(self, event: Scoped, tracker: Tracker, finding: Finding) -> Values:
        offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
        scope, number = self._count(finding, tracker)
        shown = conceal(finding, self._hiding)
        generation = self.options.rule_generation
        return finding_row(shown, tracker.connection_id, scope or "connection", number, offset, generation)

    def _take(self, rows: list[Values]) -> None:
        self.rows["findings"] += rows

    def _count(self, finding: Finding, tracker: Tracker) -> tuple[Scope | None, int]:
        """The scope of a finding, if it is a wide one, and its number within its connection and scope."""
        scope = self._scopes.get(finding.rule)
        if scope is None:
            tracker.findings += 1
            return None, tracker.findings - 1
        number = tracker.wide_findings.get(scope, 0)
        tracker.wide_findings[scope] = number + 1
        return scope, number

    def take_tracker(self, connection: Connection) -> Tracker | None:
        """Remove and return the tracker of a connection."""
        tracker = self.trackers.pop(connection.number, None)
        if tracker is not None:
            self._settle(connection)
        return tracker

    def _note_key(self, connection: Connection, tracker: Tracker) -> None:
        """Record the key for judging a connection with others, if that is done elsewhere."""
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
        self.holes[key] = [(is_client is hole.from_client, hole.start, hole.end) for hole in tracker.holes]

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self.trackers.pop(connection.number, None)
        self._introductions.pop(connection.number, None)

    def ended(self, dissector: Dissector) -> None:
        """Note the end of a flow."""


Scoped = PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionDue | ConnectionClosed
"""Events of a connection."""


def batch(name: str, rows: Sequence[Values]) -> pa.RecordBatch:
    """Rows of one table as a record batch."""
    return batch_of(_SCHEMAS[name], rows)


def event_batch(name: str, record_batch: pa.RecordBatch, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """A record batch of one table as rows of several: ``kind`` and a struct; the other structs are null.

    ``open/<table>`` is a separate kind with the struct of the table.
    """
    schema = schema or event_schema()
    count = record_batch.num_rows
    table = name.removeprefix(OPEN)
    arrays: list[pa.Array] = [array_of([name] * count, schema.field("kind").type)]
    for column in schema.names[1:]:
        kind = schema.field(column).type
        if column == table:
            arrays.append(pa.StructArray.from_arrays(record_batch.columns, fields=list(kind)))
        else:
            arrays.append(pa.nulls(count, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
