"""Rules that look further than one connection: events as rows, brought together by key, and events again.

A rule of session scope needs all connections of a Client Identifier on a server, one of broker scope all of a server.
So the kernel writes each event down, with what the dissector told the connection beside it (`beside`); the packets
themselves move the state on when they are fed again.  What other connections look at, holes, is written down also when
it changes without an event.  The rows of a key, in the order of `ORDER`, go through
`ScopeRun`, which runs the rules in the same engine.  What it remembers can be written down, so that the rows of a later
ingest go on where these end.

These rows hold packets as they were, payloads included, but for passwords and Authentication Data, which are asterisks
of the same length.  They are for the way between two stages and not for keeping.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple

from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lake import packet_rows
from mqttscope.lake.held import ScopeRow
from mqttscope.lake.packet_rows import PacketRow
from mqttscope.lake.state import dump, load
from mqttscope.lake.tracker import Beside, Tracker
from mqttscope.lint.context import Kept, is_of_one, own_key
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding, Scope
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish
from mqttscope.redact.packets import CLEAR, covered
from mqttscope.redact.text import public_details
from mqttscope.redact.values import public, public_damaged
from mqttscope.report.base import hidden_of
from mqttscope.session.connection import Connection
from mqttscope.session.history import History, PeerHistory

C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
ORDER = ("emitted_ns", "file", "frame", "connection_id", "event_in_connection")
"""Columns that put the rows of a key into the order in which one dissector gives the events."""
_CONNECTION = (
    "version", "version_known", "version_evidence", "client_identifier", "decrypted", "gaps", "gap_bytes", "closed_by",
    "closed_how", "revision",
)  # fmt: skip
_PARTY = (
    "position", "acknowledged", "segment_ns", "begun", "segment_length", "length_before", "single_bytes", "shown",
)  # fmt: skip
_fields_of, _seen_of = attrgetter(*_CONNECTION), attrgetter(*_PARTY)

AT_THE_END = (1 << 63) - 1
"""When flows that are still open are told to be over: behind all segments, in the order in which they began."""

BEFORE_ALL = 1 << 62
"""Taken from the number of a frame where events come out before all segments of their time."""


@dataclass(slots=True)
class Emitted:
    """The segment at which events come out, which need not be the one they belong to."""

    now_ns: int = 0
    file: int = 0
    frame: int = 0
    ends: tuple[int, ...] = ()
    """Times of the last segments of all captures, which are read one behind the other in this order; empty where they
    are read together.  A time-out has its place in the capture that is read when its time has come."""
    read: int = 0
    """The capture of the last segment of the flow."""

    def set(self, now_ns: int, file: int, frame: int) -> None:
        """Go on to another one."""
        self.now_ns, self.file, self.frame = now_ns, file, frame

    def segment(self, now_ns: int, file: int, frame: int) -> None:
        """Go on to the segment that is read now."""
        self.set(now_ns, file, frame)
        self.read = file

    def time_out(self, due_ns: int, last_frame: int) -> None:
        """Go on to a time-out, which counts before the segments of its time; of several the one of the earlier flow."""
        # A capture may end at the end of all times that there are.
        self.set(min(due_ns, AT_THE_END), self._capture_at(due_ns), last_frame - BEFORE_ALL)

    def place(self) -> tuple[int, int, int]:
        """Where events that come out now have their place among those of other flows: time, capture, frame."""
        return self.now_ns, self.file, self.frame

    def _capture_at(self, now_ns: int) -> int:
        behind = len(self.ends)
        return next((file for file in range(self.read, behind) if self.ends[file] >= now_ns), behind)


def beside(connection: Connection, before: Beside = ()) -> Beside:
    """What the dissector, not a packet, has changed of a connection; taken before the linter sees the event.

    Its fields of `_CONNECTION`, how far its sides are read and whether they lost bytes, details of the transport, and
    how far TCP had come on both sides.  ``before`` is what this was at the event before: what is equal is not copied.
    """
    history, client, server = connection.history, connection.client_side, connection.server_side
    details: Any = connection.details
    if details:
        details = public_details(details)
        details = before[2] if before and before[2] == details else copy.deepcopy(details)
    return (
        _fields_of(connection),
        ((client.gapped, client.stream_offset), (server.gapped, server.stream_offset)),
        details or {},
        None if history is None else (history.disordered, _seen_of(history.client), _seen_of(history.server)),
    )


def _tell(connection: Connection, told: Beside) -> None:
    """Make a connection as `beside` saw it; ``None`` stands for what is as it was at the event before."""
    fields, sides, details, tcp = told
    if fields is not None:
        for name, value in zip(_CONNECTION, fields, strict=True):
            setattr(connection, name, value)
    client, server = connection.client_side, connection.server_side
    (client.gapped, client.stream_offset), (server.gapped, server.stream_offset) = sides
    # What may be of a secret is hidden in the rows already.
    client.doubt = server.doubt = CLEAR
    connection.doubtful = False
    if details is not None:
        connection.details = details
    if tcp is not None:
        history = connection.history = connection.history or History()
        history.disordered, seen_client, seen_server = tcp
        if seen_client is not None:
            _tell_party(history.client, seen_client)
        if seen_server is not None:
            _tell_party(history.server, seen_server)


def _tell_party(party: PeerHistory, seen: tuple[Any, ...]) -> None:
    for name, value in zip(_PARTY, seen, strict=True):
        setattr(party, name, value)


def _news(told: Beside, before: Beside) -> Beside:
    """What is not as it was at the event before: the rest hardly ever changes."""
    if not before:
        return told
    (fields, sides, details, tcp), (old_fields, _, old_details, old_tcp) = told, before
    if tcp is not None and old_tcp is not None:
        (disordered, client, server), (_, old_client, old_server) = tcp, old_tcp
        tcp = disordered, None if client == old_client else client, None if server == old_server else server
    return (
        None if fields == old_fields else fields,
        sides,
        None if details == old_details else details,
        tcp,
    )


@dataclass(slots=True)
class Fed(Emitted):
    """For who sees all flows at once: events have the order in which they are fed."""

    def place(self) -> tuple[int, int, int]:
        """The next place."""
        self.frame += 1
        return self.now_ns, self.file, self.frame


@dataclass(slots=True)
class Progress:
    """A segment without a packet has changed whether a connection is behind a hole."""

    connection: Connection
    frame: int
    timestamp_ns: int
    capture: str


def scope_row(event: Any, told: Beside, tracker: Tracker, at: Emitted, *, dropped: bool = False) -> ScopeRow:
    """The row of an event; ``told`` is what `beside` gave before anybody looked at the event.

    A `Progress` stands for none.  ``dropped`` says that its capture is known by now to lack frames.
    """
    connection = event.connection
    place = (event.frame, event.timestamp_ns, event.capture)
    written, tracker.beside = _news(told, tracker.beside), told
    what: Any
    data: bytes | None = None
    if isinstance(event, PacketEvent):
        hidden = hidden_of(event)
        packet = public(event.packet, hidden) if hidden else event.packet
        # Bytes with something hidden in them need not be a packet any more.
        if not hidden and _is_as_its_bytes_say(packet, connection):
            data = packet_rows.write(event, packet.raw, written, dropped=dropped)
        what = (event.direction is C2S, event.number, packet, event.topic, event.stream_offset)
    elif isinstance(event, MalformedEvent):
        found = event.malformed
        hidden = hidden_of(event)
        damaged = public_damaged(found, hidden, connection.version) if hidden else found
        topic = event.topic
        if topic is not None and hidden and damaged.packet is not None:
            topic = getattr(damaged.packet, "topic_name", None) or "*" * len(topic)
        what = (event.direction is C2S, event.number, damaged, topic, event.stream_offset)
    elif isinstance(event, GapEvent):
        what = (event.direction is C2S, event.length, event.reason, event.stream_offset)
    elif isinstance(event, UnparsedEvent):
        raw = covered(event.unparsed.raw, hidden_of(event))
        what = (event.direction is C2S, replace(event.unparsed, raw=raw), event.stream_offset)
    elif isinstance(event, ConnectionOpened):
        what = replace(connection, history=None, details=copy.deepcopy(public_details(connection.details)))
    else:
        what = None
    if data is None:
        data = dump((type(event).__name__, place, dropped, written, what), compress=False)
    return ScopeRow(connection.server, at.place(), tracker.events, data)


def _is_as_its_bytes_say(packet: ControlPacket, connection: Connection) -> bool:
    """Whether its bytes give a packet again, which is nearly always so."""
    if type(packet) is Publish and packet.raw and not packet.missing:
        # Its layout depends on nothing but whether there are properties.
        return (packet.properties is not None) is (connection.version is ProtocolVersion.V5)
    return not packet.missing and decode(packet.raw, connection.version) == packet


@dataclass(slots=True)
class Running:
    """A connection whose end has not come."""

    connection: Connection
    findings: dict[Scope, int] = field(default_factory=dict)
    """How many it has had, by the scope of the rule."""


@dataclass(slots=True)
class Remembered:
    """What the rules of a key remember between two ingests.  Plain data."""

    numbers: int = 0
    """Connections that there were."""
    running: dict[str, Running] = field(default_factory=dict)
    """By their ``connection_id``."""
    memories: Kept = field(default_factory=dict)


class Found(NamedTuple):
    """A finding, with what its row has beside it."""

    connection_id: str
    finding: Finding
    scope: Scope
    """That of the rule."""
    number: int
    """Counts the findings of the connection and this scope."""
    stream_offset: int | None


class ScopeRun:
    """Rules over the events of one key."""

    def __init__(self, rules: Iterable[Rule], before: Remembered | None = None, *, strict: bool = False) -> None:
        """``before`` is what an earlier run remembers; it is used up."""
        self.linter = Linter(rules, strict=strict)
        self._state = before or Remembered()
        histories = {}
        for one in self._state.running.values():
            connection = one.connection
            connection.history = connection.history or History()
            histories[connection.capture, connection.number] = connection.history
        self.linter.memories.resume(self._state.memories, histories)
        self._scopes = {rule.code: rule.scope for rule in self.linter.rules}

    def feed(self, connection_id: str, data: bytes) -> list[Found]:
        """Take the next event of the key, as `scope_row` wrote it; returns what is found."""
        event = self._event(connection_id, data)
        if event is None:
            return []
        running = self._state.running[connection_id]
        found = []
        for finding in self.linter.feed(event):
            offset = event.stream_offset if isinstance(event, PacketEvent | MalformedEvent) else None
            scope = self._scopes[finding.rule]
            number = running.findings.get(scope, 0)
            found.append(Found(connection_id, finding, scope, number, offset))
            running.findings[scope] = number + 1
        if type(event) is PacketEvent:
            event.connection.apply(event.packet, event.direction, event.number, event.frame, event.timestamp_ns)
        elif isinstance(event, MalformedEvent) and event.malformed.packet is not None and event.malformed.complete:
            packet = event.malformed.packet
            event.connection.apply(packet, event.direction, event.number, event.frame, event.timestamp_ns)
        elif isinstance(event, ConnectionClosed):
            del self._state.running[connection_id]
        return found

    def remembered(self) -> Remembered | None:
        """What a later run has to know; ``None`` where that is nothing.  Write it down before anything else is fed."""
        state = self._state
        fresh = {rule.code: rule.Memory() for rule in self.linter.rules if rule.Memory is not None}
        kept: Kept = {}
        alone = {own_key(one.connection) for one in state.running.values()}
        for key, memories in self.linter.memories.kept.items():
            if is_of_one(key) and key not in alone:
                continue  # nobody can have it again
            told = {code: memory for code, memory in memories.items() if memory != fresh[code]}
            if told:
                kept[key] = told
        if not state.running and not kept:
            return None
        return Remembered(state.numbers, state.running, kept)

    def _event(self, name: str, data: bytes) -> Event | None:
        if data.startswith(packet_rows.MAGIC):
            return self._packet_event(name, packet_rows.read(data))
        kind, place, dropped, told, what = load(data)
        self._note_drops(place, dropped)
        running = self._state.running
        if kind == "ConnectionOpened":
            # Numbers of different flows may be the same.
            what.number = self._state.numbers
            self._state.numbers += 1
            running[name] = Running(what)
            return ConnectionOpened(what, *place)
        if name not in running:
            return None  # its beginning is not among the rows
        connection = running[name].connection
        _tell(connection, told)
        if kind == "Progress":
            return None
        if kind == "ConnectionClosed":
            return ConnectionClosed(connection, *place)
        direction = C2S if what[0] else S2C
        if kind == "PacketEvent":
            return PacketEvent(connection, direction, what[1], *place, *what[2:])
        if kind == "MalformedEvent":
            return MalformedEvent(connection, direction, what[1], *place, *what[2:])
        if kind == "GapEvent":
            return GapEvent(connection, direction, *place, *what[1:])
        return UnparsedEvent(connection, direction, *place, *what[1:])

    def _packet_event(self, name: str, row: PacketRow) -> PacketEvent | None:
        self._note_drops(row.place, row.dropped)
        running = self._state.running.get(name)
        if running is None:
            return None  # its beginning is not among the rows
        connection = running.connection
        _tell(connection, row.told)
        packet: Any = decode(row.raw, connection.version)
        topic = packet.topic_name if row.own_topic else row.topic
        direction = C2S if row.to_server else S2C
        return PacketEvent(connection, direction, row.number, *row.place, packet, topic, row.stream_offset)

    def _note_drops(self, place: tuple[int, int, str], dropped: bool) -> None:
        if dropped:
            self.linter.dropping.add(place[2])
