"""Collects findings as the linter makes them, instead of tables, for a run of ``lint`` that is distributed over tasks.

`Judge` stands in for the collector of tables in the kernel of flows.  Its rows hold complete findings, encoded by
`lake.state`, with the place at which each came out, so that all of them can be put into the order of one run; and for
each connection the place at which it was recognised, by which `lint` numbers connections.
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
from mqttscope.lint.failures import Failures
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Selection, client_key
from mqttscope.lint.quality import Quality, QualityLedger, is_whole_packet
from mqttscope.session.connection import Connection

MAX_CLIENTS = 100_000
"""Clients that are remembered by one task."""
MAX_CHOSEN_WAITING = 1 << 20
"""Findings and events of one connection that wait for its Client Identifier."""
Row = tuple[Any, ...]


class MarkRow(NamedTuple):
    """Marks an event as part of the selection."""

    connection_id: str
    emitted_ns: int
    file: int
    frame: int
    event_in_connection: int


class FoundRow(NamedTuple):
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
class OfConnections:
    """What is counted of connections beside their packets, for the lines on standard error."""

    discarded_segments: int = 0
    discarded_bytes: int = 0
    copied_segments: int = 0
    one_sided: int = 0
    overlaps: int = 0
    damaged_segments: int = 0


OF_CONNECTIONS = tuple(one.name for one in fields(OfConnections))


@dataclass(slots=True)
class Sums(OfConnections):
    """What tasks count, beside what they find.  Plain data."""

    ledger: QualityLedger = field(default_factory=QualityLedger)
    withheld: dict[str, int] = field(default_factory=dict)
    awaited: dict[str, int] = field(default_factory=dict)
    ripe: set[str] = field(default_factory=set)
    failures: Failures = field(default_factory=Failures)
    clients: set[str] = field(default_factory=set)
    spoken: dict[str, int] = field(default_factory=dict)
    """Packets by capture."""
    understood: set[str] = field(default_factory=set)
    """Captures in which one of them is well formed."""
    met: set[str] = field(default_factory=set)
    """Servers seen of those whose connections are all captured."""
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
        """How good all captures together are."""
        return self.ledger.total()

    def take_chosen(self, events: int, packets: int, spoken: set[str], left_out: int) -> None:
        """Add what is in a selection."""
        self.chosen_events += events
        self.chosen_packets += packets
        self.chosen_spoken |= spoken
        self.left_out += left_out

    def take_linter(self, linter: Linter, *, quality: bool, but: Collection[str] = ()) -> None:
        """Add what a linter counted; ``but``: codes of rules whose failures another one reports."""
        if quality:
            self.ledger.add(linter.ledger)
        _add(self.withheld, linter.withheld)
        _add(self.awaited, linter.awaited)
        self.ripe |= linter.ripe
        self.failures.take(linter, but=but)
        self.met |= linter.met

    def take_dissector(self, dissector: Dissector) -> None:
        """Add what a dissector counted."""
        self.connections += dissector.connections
        self.opened_flows += dissector.flows.opened_flows
        self.cut_bytes += dissector.cut_bytes
        self.kept_bytes += dissector.kept_bytes
        for name in OF_CONNECTIONS:
            setattr(self, name, getattr(self, name) + getattr(dissector, name))
        _add(self.other_tls, dissector.other_tls)
        _add(self.named_otherwise, dissector.named_otherwise)

    def add(self, other: Sums) -> None:
        """Add what another task counted."""
        self.ledger.add(other.ledger)
        self.ripe |= other.ripe
        for name in ("withheld", "awaited", "spoken", "other_tls", "named_otherwise"):
            _add(getattr(self, name), getattr(other, name))
        self.failures.add(other.failures)
        self.clients |= other.clients
        self.understood |= other.understood
        self.met |= other.met
        self.take_chosen(other.chosen_events, other.chosen_packets, other.chosen_spoken, other.left_out)
        for name in ("connections", "opened_flows", "cut_bytes", "kept_bytes", *OF_CONNECTIONS):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def _add(sums: dict[Any, int], more: dict[Any, int] | Counter[Any]) -> None:
    for name, count in more.items():
        sums[name] = sums.get(name, 0) + count


@dataclass(slots=True)
class _Chosen:
    """What is in the selection of one connection."""

    connection_id: str
    selection: Selection[FoundRow | MarkRow]


class Judge(Collector):
    """Findings of the events that it is fed, until they are taken."""

    def __init__(
        self,
        options: LakeOptions,
        ends: tuple[int, ...] = (),
        selection: Selection[Any] | None = None,
        *,
        key: str | None = None,
    ) -> None:
        """``ends``: times of the last segments of all captures, in the order of reading.

        ``selection``: of which findings are wanted alone; which connections these are is left to who numbers them.
        ``key``: run the rules of wide scopes over the connections of this key (`lake.keys.stage_key`), all of which are
        fed; else the others run, and everything is counted.
        """
        super().__init__(options, key=key)
        self.found: list[Any] = []
        """Findings, as `found_row` makes them."""
        self.seen: list[Row] = []
        """Connections: connection, place."""
        self.packets: list[Row] = []
        """Packets: place, number in the connection, frame, time, capture."""
        self.marks: list[Row] = []
        """Events that are in the selection: connection, place at which that is known, event in the connection."""
        self.tallies: list[Row] = []
        """What is in it of each connection, where some are selected by number: connection, counts."""
        self._selection = selection
        self._chosen: dict[int, _Chosen] = {}
        self.sums = Sums()
        self._names = Counter[str]()
        """How many connections had a name, in the flows that are read together."""
        self.position.ends = ends

    def _tracker(self, connection: Connection) -> Tracker:
        """Names two connections apart that began at the same time with the same numbers."""
        tracker = self.trackers.get(connection.number)
        if tracker is None:
            tracker = super()._tracker(connection)
            self._names[tracker.connection_id] += 1
            if (count := self._names[tracker.connection_id]) > 1:
                tracker.connection_id += f"+{count}"
        return tracker

    def feed(self, event: Event) -> None:
        """Take one event."""
        tracker = self._tracker(event.connection) if isinstance(event, Scoped) else None
        connection = None if self._selection is None else getattr(event, "connection", None)
        before = len(self.found)
        super().feed(event)
        if tracker is not None and not isinstance(event, ConnectionDue):
            # At which times rules are woken depends on which ones a stage runs.
            tracker.events += 1
        if connection is None:
            return
        found = self.found[before:]
        del self.found[before:]
        if tracker is not None and self.widest is not None:
            found.append(MarkRow(tracker.connection_id, *self.position.place(), tracker.events - 1))
        chosen = self._chosen.get(connection.number)
        if chosen is None:
            assert self._selection is not None
            own = replace(self._selection, connections=(), most=MAX_CHOSEN_WAITING)
            name = self._tracker(connection).connection_id
            chosen = self._chosen[connection.number] = _Chosen(name, own)
        for row in chosen.selection.take(event, found):
            # Where a finding waited for the client to be known, its place is where that was.
            emitted_ns, file, frame = self.position.place()
            placed = row._replace(emitted_ns=emitted_ns, file=file, frame=frame)
            (self.found if isinstance(placed, FoundRow) else self.marks).append(placed)

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
            self.seen.append((self._tracker(event.connection).connection_id, *place))

    def _finding_row(self, event: Scoped, tracker: Tracker, finding: Finding) -> Row:
        _, number = self._count(finding, tracker)
        return found_row(tracker.connection_id, self.position.place(), tracker.events, finding, number)

    def _take(self, found: list[Row]) -> None:
        self.found += found

    def ended(self, dissector: Dissector) -> None:
        """All of a flow was read."""
        self.sums.take_dissector(dissector)
        for one in self._chosen.values():
            own = one.selection
            told = own.events, own.packets, own.spoken, own.left_out
            if self._selection is not None and self._selection.connections:
                self.tallies.append((one.connection_id, dump(told)))
            else:
                self.sums.take_chosen(*told)
        self._chosen.clear()
        self._names.clear()

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


def found_row(connection_id: str, place: tuple[int, int, int], event: int, finding: Finding, number: int) -> FoundRow:
    """The row of a finding."""
    named = [{"frame": one.frame, "timestamp_ns": one.timestamp_ns, "number": one.packet} for one in finding.related]
    if finding.packet is not None:
        named.append({"frame": finding.frame, "timestamp_ns": finding.timestamp_ns, "number": finding.packet})
    return FoundRow(connection_id, *place, event, finding.rule, number, named, dump(finding, compress=False))
