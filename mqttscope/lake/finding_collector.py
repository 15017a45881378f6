"""Collects the linter's findings instead of rows of tables, for a run of ``lint`` that is distributed over tasks.

`FindingCollector` replaces the collector of tables in the kernel of flows.  Its rows have complete findings, encoded by
`lake.state`, with the place of each, so that all of them can be sorted into the order of one run; and for each
connection the place of its recognition; `lint` numbers connections in this order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from mqttscope.dissect import Dissector
from mqttscope.events import ConnectionClosed, ConnectionDue, ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump
from mqttscope.lake.tables import Collector, Scoped
from mqttscope.lake.tracker import Tracker
from mqttscope.lint.engine import Linter
from mqttscope.lint.failures import RuleFailures
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import FindingSelection, client_key
from mqttscope.lint.quality import Quality, QualityLedger, is_whole_packet

MAX_CLIENTS = 100_000
"""Maximum number of clients that one task remembers."""
MAX_CHOSEN_WAITING = 1 << 20
"""Maximum number of findings and events of one connection that wait for its Client Identifier."""
Row = tuple[Any, ...]


class MarkRow(NamedTuple):
    """Marks an event as part of the selection."""

    connection_id: str
    emitted_ns: int
    file: int
    frame: int
    event_in_connection: int


class FindingRow(NamedTuple):
    """A finding, with the frame, time and number in the connection of each packet that it names."""

    connection_id: str
    emitted_ns: int
    file: int
    frame: int
    event_in_connection: int
    rule: str
    number: int
    packets: list[dict[str, int]]
    data: bytes


@dataclass(slots=True)
class ConnectionCounts:
    """Counters of connections besides their packets, for the lines on standard error."""

    discarded_segments: int = 0
    discarded_bytes: int = 0
    copied_segments: int = 0
    one_sided: int = 0
    overlaps: int = 0
    damaged_segments: int = 0


CONNECTION_COUNTS = tuple(counter.name for counter in fields(ConnectionCounts))


@dataclass(slots=True)
class Sums(ConnectionCounts):
    """Counters of tasks, besides their findings.  Plain data."""

    ledger: QualityLedger = field(default_factory=QualityLedger)
    withheld: dict[str, int] = field(default_factory=dict)
    awaited: dict[str, int] = field(default_factory=dict)
    ripe: set[str] = field(default_factory=set)
    failures: RuleFailures = field(default_factory=RuleFailures)
    clients: set[str] = field(default_factory=set)
    spoken: dict[str, int] = field(default_factory=dict)
    """Packets by capture."""
    understood: set[str] = field(default_factory=set)
    """Captures with a well-formed packet."""
    met: set[str] = field(default_factory=set)
    """Servers that were seen, among the servers with completely captured connections."""
    connections: int = 0
    opened_flows: int = 0
    cut_bytes: int = 0
    kept_bytes: int = 0
    other_tls: dict[str, int] = field(default_factory=dict)
    named_otherwise: dict[tuple[int, str, str], int] = field(default_factory=dict)
    chosen_events: int = 0
    chosen_packets: int = 0
    chosen_spoken: set[str] = field(default_factory=set)
    left_out: int = 0

    @property
    def quality(self) -> Quality:
        """Quality of all captures together."""
        return self.ledger.total()

    def take_chosen(self, events: int, packets: int, spoken: set[str], left_out: int) -> None:
        """Add the counts of a selection."""
        self.chosen_events += events
        self.chosen_packets += packets
        self.chosen_spoken |= spoken
        self.left_out += left_out

    def take_linter(self, linter: Linter, *, quality: bool, but: Collection[str] = ()) -> None:
        """Add the counts of a linter; ``but``: codes of rules with failures that another linter reports."""
        if quality:
            self.ledger.add(linter.ledger)
        _add(self.withheld, linter.withheld)
        _add(self.awaited, linter.awaited)
        self.ripe |= linter.ripe
        self.failures.take(linter, but=but)
        self.met |= linter.met

    def take_dissector(self, dissector: Dissector) -> None:
        """Add the counts of a dissector."""
        self.connections += dissector.connections
        self.opened_flows += dissector.flows.opened_flows
        self.cut_bytes += dissector.cut_bytes
        self.kept_bytes += dissector.kept_bytes
        for name in CONNECTION_COUNTS:
            setattr(self, name, getattr(self, name) + getattr(dissector, name))
        _add(self.other_tls, dissector.other_tls)
        _add(self.named_otherwise, dissector.named_otherwise)

    def add(self, other: Sums) -> None:
        """Add the counts of another task."""
        self.ledger.add(other.ledger)
        self.ripe |= other.ripe
        for name in ("withheld", "awaited", "spoken", "other_tls", "named_otherwise"):
            _add(getattr(self, name), getattr(other, name))
        self.failures.add(other.failures)
        self.clients |= other.clients
        self.understood |= other.understood
        self.met |= other.met
        self.take_chosen(other.chosen_events, other.chosen_packets, other.chosen_spoken, other.left_out)
        for name in ("connections", "opened_flows", "cut_bytes", "kept_bytes", *CONNECTION_COUNTS):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def _add(sums: dict[Any, int], more: dict[Any, int] | Counter[Any]) -> None:
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


@dataclass(slots=True)
class _ConnectionSelection:
    connection_id: str
    selection: FindingSelection[FindingRow | MarkRow]


class FindingCollector(Collector):
    """Findings of the events that it is fed, until they are taken."""

    def __init__(
        self,
        options: LakeOptions,
        ends: tuple[int, ...] = (),
        selection: FindingSelection[Any] | None = None,
        *,
        key: str | None = None,
    ) -> None:
        """``ends``: times of the last segments of all captures, in the order of reading.

        ``selection``: findings to keep; connections by number are selected later, when they are numbered.
        ``key``: run the wide rules over the connections of this key (`lake.keys.stage_key`), fed completely; without
        a key the narrow rules run, and everything is counted.
        """
        super().__init__(options, key=key)
        self.finding_rows: list[Any] = []
        """Findings, from `task_row`."""
        self.connection_rows: list[Row] = []
        """Connections: identifier, place."""
        self.packets: list[Row] = []
        """Packets: place, number in the connection, frame, time, capture."""
        self.marks: list[Row] = []
        """Selected events: connection, place where the selection is known, event in the connection."""
        self.tallies: list[Row] = []
        """Selected counts of each connection, if connections are selected by number: identifier, counts."""
        self._selection = selection
        self._chosen: dict[int, _ConnectionSelection] = {}
        self.sums = Sums()
        self.position.ends = ends

    def feed(self, event: Event) -> None:
        """Feed one event."""
        tracker = self._tracker(event.connection) if isinstance(event, Scoped) else None
        connection = None if self._selection is None else getattr(event, "connection", None)
        before = len(self.finding_rows)
        super().feed(event)
        if tracker is not None and not isinstance(event, ConnectionDue):
            # The times when rules are woken depend on the rules of a stage.
            tracker.events += 1
        if connection is None:
            return
        rows = self.finding_rows[before:]
        del self.finding_rows[before:]
        if tracker is not None and self.widest is not None:
            rows.append(MarkRow(tracker.connection_id, *self.position.place(), tracker.events - 1))
        chosen = self._chosen.get(connection.number)
        if chosen is None:
            assert self._selection is not None
            own = replace(self._selection, connections=(), most=MAX_CHOSEN_WAITING)
            name = self._tracker(connection).connection_id
            chosen = self._chosen[connection.number] = _ConnectionSelection(name, own)
        for row in chosen.selection.take(event, rows):
            # A finding that waited for the client is placed where the client became known.
            emitted_ns, file, frame = self.position.place()
            placed = row._replace(emitted_ns=emitted_ns, file=file, frame=frame)
            (self.finding_rows if isinstance(placed, FindingRow) else self.marks).append(placed)

    def _row(self, event: Event) -> None:
        if isinstance(event, PacketEvent | MalformedEvent):
            place = self.position.place()
            self.packets.append((*place, event.number, event.frame, event.timestamp_ns, event.capture))
            if is_whole_packet(event):
                _add(self.sums.spoken, {event.capture: 1})
                if isinstance(event, PacketEvent):
                    self.sums.understood.add(event.capture)
        elif isinstance(event, ConnectionOpened):
            place = self.position.place()
            self.connection_rows.append((self._tracker(event.connection).connection_id, *place))

    def _finding_row(self, event: Scoped, tracker: Tracker, finding: Finding) -> Row:
        _, number = self._count(finding, tracker)
        return task_row(tracker.connection_id, self.position.place(), tracker.events, finding, number)

    def _take(self, rows: list[Row]) -> None:
        self.finding_rows += rows

    def ended(self, dissector: Dissector) -> None:
        """Note the end of a flow."""
        self.sums.take_dissector(dissector)
        for chosen in self._chosen.values():
            own = chosen.selection
            counts = own.events, own.packets, own.spoken, own.left_out
            if self._selection is not None and self._selection.connections:
                self.tallies.append((chosen.connection_id, dump(counts)))
            else:
                self.sums.take_chosen(*counts)
        self._chosen.clear()

    def _close(self, event: ConnectionClosed) -> None:
        if self._key is not None:
            super()._close(event)
            return
        connection, clients = event.connection, self.sums.clients
        self._note_key(connection, self._tracker(connection))
        if len(clients) < MAX_CLIENTS:
            clients.add(client_key(connection.client_identifier))
            if connection.connect_packet != 0:
                clients.add(client_key(None))
        self.forget(connection)


def task_row(connection_id: str, place: tuple[int, int, int], event: int, finding: Finding, number: int) -> FindingRow:
    """The row of a finding."""
    related = finding.related
    named = [{"frame": at.frame, "timestamp_ns": at.timestamp_ns, "number": at.packet} for at in related]
    if finding.packet is not None:
        named.append({"frame": finding.frame, "timestamp_ns": finding.timestamp_ns, "number": finding.packet})
    return FindingRow(connection_id, *place, event, finding.rule, number, named, dump(finding, compress=False))
