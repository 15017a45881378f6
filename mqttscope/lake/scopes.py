"""Rules that look further than one connection: events as rows, brought together by key, and events again.

A rule of session scope needs all connections of a Client Identifier on a server, one of broker scope all of a server.
So the kernel writes each event down, with what the dissector told the connection beside it (`beside`); the packets
themselves move the state on when they are fed again.  The rows of a key, in the order of `ORDER`, go through
`ScopeRun`, which runs the rules in the same engine.

These rows hold packets as they were, payloads included, but for passwords and Authentication Data, which are asterisks
of the same length.  They are for the way between two stages and not for keeping.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mqttscope.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lake.state import dump, load
from mqttscope.lake.tracker import Beside, Tracker
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.lint.rule import Rule, Scope
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connect
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.view import AUTHENTICATION_DATA, redacted
from mqttscope.report.base import may_hold_password
from mqttscope.session.connection import Connection
from mqttscope.session.history import History
from mqttscope.session.party import Party

ORDER = ("emitted_ns", "file", "frame", "connection_id", "event_in_connection")
"""Columns that put the rows of a key into the order in which one dissector gives the events."""
_CONNECTION = (
    "version", "version_known", "version_evidence", "client_identifier", "decrypted", "gaps", "gap_bytes", "closed_by",
    "closed_how", "revision",
)  # fmt: skip
_PARTY = (
    "position", "acknowledged", "segment_ns", "begun", "segment_length", "length_before", "single_bytes", "shown",
)  # fmt: skip


@dataclass(slots=True)
class Emitted:
    """The segment at which events come out, which need not be the one they belong to."""

    now_ns: int = 0
    file: int = 0
    frame: int = 0
    due_ns: int = 0
    """When a hole or the flow was waited for long enough.  Whoever sees all flows at once notices it with the next
    segment of any of them, and so before those that came between then and now."""

    def set(self, now_ns: int, file: int, frame: int) -> None:
        """Go on to another one."""
        self.now_ns, self.file, self.frame, self.due_ns = now_ns, file, frame, now_ns

    def place(self, timestamp_ns: int) -> tuple[int, int, int]:
        """Where an event of this time has its place among those of other flows."""
        if timestamp_ns < self.now_ns and self.due_ns < self.now_ns:
            return self.due_ns, 0, 0
        return self.now_ns, self.file, self.frame


def beside(connection: Connection) -> Beside:
    """What the dissector, not a packet, has changed of a connection; taken before the linter sees the event.

    Its fields of `_CONNECTION`, how far its sides are read and whether they lost bytes, details of the transport, and
    how far TCP had come on both sides.
    """
    history = connection.history
    tcp: Any = None
    if history is not None:
        tcp = (history.disordered, *(tuple(getattr(one, name) for name in _PARTY) for one in _parties(history)))
    return (
        tuple(getattr(connection, name) for name in _CONNECTION),
        tuple((side.gapped, side.stream_offset) for side in (connection.client_side, connection.server_side)),
        copy.deepcopy(connection.details) if connection.details else {},
        tcp,
    )


def _parties(history: History) -> tuple[Party, Party]:
    return history.client, history.server


def _tell(connection: Connection, told: Beside) -> None:
    """Make a connection as `beside` saw it."""
    fields, sides, details, tcp = told
    for name, value in zip(_CONNECTION, fields, strict=True):
        setattr(connection, name, value)
    for side, (gapped, offset) in zip((connection.client_side, connection.server_side), sides, strict=True):
        side.gapped, side.stream_offset = gapped, offset
    if details is not None:
        connection.details = details
    if tcp is not None:
        history = connection.history = connection.history or History()
        history.disordered = tcp[0]
        for party, values in zip(_parties(history), tcp[1:], strict=True):
            for name, value in zip(_PARTY, values, strict=True):
                setattr(party, name, value)


def scope_row(event: Any, told: Beside, tracker: Tracker, at: Emitted) -> tuple[Any, ...]:
    """The row of an event; ``told`` is what `beside` gave before anybody looked at the event."""
    connection = event.connection
    place = (event.frame, event.timestamp_ns, event.capture)
    if tracker.beside and tracker.beside[2] == told[2]:
        # Details of TLS are long and hardly ever change.
        written: Beside = (*told[:2], None, told[3])
    else:
        written = told
    tracker.beside = told
    what: Any
    if isinstance(event, PacketEvent):
        what = (event.direction, event.number, _public(event.packet, connection), event.topic, event.stream_offset)
    elif isinstance(event, MalformedEvent):
        found = event.malformed
        raw = redacted(found.raw, connection.version)
        if may_hold_password(event):
            raw = b"*" * len(raw)
        packet = None if found.packet is None else _public(found.packet, connection)
        what = (event.direction, event.number, replace(found, raw=raw, packet=packet), event.topic, event.stream_offset)
    elif isinstance(event, GapEvent):
        what = (event.direction, event.length, event.reason, event.stream_offset)
    elif isinstance(event, UnparsedEvent):
        raw = redacted(event.unparsed.raw, connection.version)
        if may_hold_password(event):
            raw = b"*" * len(raw)
        what = (event.direction, replace(event.unparsed, raw=raw), event.stream_offset)
    elif isinstance(event, ConnectionOpened):
        what = replace(connection, history=None, details=copy.deepcopy(connection.details))
    else:
        what = None
    data = dump((type(event).__name__, place, written, what), compress=False)
    return (
        tracker.connection_id, connection.server, _utf8(connection.client_identifier),
        *at.place(event.timestamp_ns), tracker.events, data,
    )  # fmt: skip


def _utf8(value: str | None) -> str | None:
    return None if value is None else value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _public(packet: ControlPacket, connection: Connection) -> ControlPacket:
    """A packet without its secrets."""
    raw = redacted(packet.raw, connection.version)
    if raw == packet.raw:
        return packet
    changed: dict[str, Any] = {"raw": raw}
    if isinstance(packet, Connect) and packet.password is not None:
        changed["password"] = b"*" * len(packet.password)
    block: Properties | None = getattr(packet, "properties", None)
    if block is not None:
        changed["properties"] = Properties.of(
            (number, b"*" * len(value) if number == AUTHENTICATION_DATA else value) for number, value in block.items
        )
    return replace(packet, **changed)


class ScopeRun:
    """The rules of one scope over the events of one key."""

    def __init__(self, rules: Iterable[Rule], *, strict: bool = False) -> None:
        self.linter = Linter(rules, strict=strict)
        self._connections: dict[str, Connection] = {}
        self._numbers = 0

    def feed(self, row: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        """Take the next row of the key; returns findings with the connections they belong to."""
        name = row["connection_id"]
        event = self._event(name, row["event"])
        if event is None:
            return []
        found = [(name, finding) for finding in self.linter.feed(event)]
        if isinstance(event, PacketEvent):
            event.connection.apply(event.packet, event.direction, event.number, event.frame, event.timestamp_ns)
        elif isinstance(event, MalformedEvent) and event.malformed.packet is not None and event.malformed.complete:
            packet = event.malformed.packet
            event.connection.apply(packet, event.direction, event.number, event.frame, event.timestamp_ns)
        elif isinstance(event, ConnectionClosed):
            del self._connections[name]
        return found

    def _event(self, name: str, data: bytes) -> Event | None:
        kind, place, told, what = load(data)
        if kind == "ConnectionOpened":
            # Numbers of different flows may be the same.
            what.number = self._numbers
            self._numbers += 1
            self._connections[name] = what
            return ConnectionOpened(what, *place)
        connection = self._connections.get(name)
        if connection is None:
            return None  # its beginning is not among the rows
        _tell(connection, told)
        if kind == "PacketEvent":
            return PacketEvent(connection, what[0], what[1], *place, *what[2:])
        if kind == "MalformedEvent":
            return MalformedEvent(connection, what[0], what[1], *place, *what[2:])
        if kind == "GapEvent":
            return GapEvent(connection, what[0], *place, *what[1:])
        if kind == "UnparsedEvent":
            return UnparsedEvent(connection, what[0], *place, *what[1:])
        return ConnectionClosed(connection, *place)


def run_scope(
    rows: Iterable[Mapping[str, Any]], rules: Iterable[Rule], *, strict: bool = False
) -> Iterator[tuple[str, Finding]]:
    """Findings of rules over the rows of one key, which come in the order of `ORDER`."""
    run = ScopeRun(rules, strict=strict)
    for row in rows:
        yield from run.feed(row)


def group_rows(rows: Iterable[dict[str, Any]], scope: Scope) -> dict[tuple[str | None, ...], list[dict[str, Any]]]:
    """Rows by the key of a scope, each group in order; a session is known by the identifier that its client has last.

    An engine that runs per group finds what one finds that sees everything; only of a client that names itself
    twice on one connection, which the specification forbids, the first name is not seen.
    """
    found = sorted(rows, key=lambda row: tuple(row[name] for name in ORDER))
    last: dict[str, str] = {}
    for row in found:
        if row["client_identifier"]:
            last[row["connection_id"]] = row["client_identifier"]
    groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for row in found:
        key: tuple[str | None, ...] = (row["server"],)
        if scope is not Scope.BROKER:
            name = row["connection_id"]
            key = (row["server"], last[name]) if name in last else (row["server"], None, name)
        groups.setdefault(key, []).append(row)
    return groups
