"""What the tables have to remember of a connection while it is open, and rules of all connections of a key.

Of messages this is what became of each PUBLISH so far.  They are paired as `session.Connection` does it: a PUBLISH with
DUP repeats the running exchange of its packet identifier, one without takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.lint.context import ConnectionKey, Kept
from mqttscope.lint.finding import Scope
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V5, Direction, PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.session.capture_time import captured

C2S = Direction.CLIENT_TO_SERVER
REFUSED = 0x80
"""Reason codes from here on mean that the message was not taken."""

LONGEST_NS = (1 << 63) - 1
"""A clock that jumps further in between, 292 years, makes a latency that no column holds: it is null."""


@dataclass(slots=True)
class TrackedMessage:
    """A message that may still be answered."""

    head: list[Any]
    """Its columns up to the state, as `lake.rows` made them."""
    published_ns: int
    qos: int
    bad: list[dict[str, Any]] | None = None
    """Texts among them that are not UTF-8."""
    state: str = "sent"
    ended: str | None = None
    acknowledged_ns: int | None = None
    released_ns: int | None = None
    completed_ns: int | None = None
    retransmissions: int = 0
    acknowledge_reason_code: int | None = None
    release_reason_code: int | None = None
    complete_reason_code: int | None = None

    def row(self) -> tuple[Any, ...]:
        """The row of the table."""
        latency = None if self.completed_ns is None else self.completed_ns - self.published_ns
        if latency is not None and not -LONGEST_NS <= latency <= LONGEST_NS:
            latency = None
        return (
            *self.head, self.state, self.ended, captured(self.acknowledged_ns), captured(self.released_ns),
            captured(self.completed_ns), latency,
            self.retransmissions, self.acknowledge_reason_code, self.release_reason_code, self.complete_reason_code,
            self.bad or None,
        )  # fmt: skip


@dataclass(slots=True)
class Exchanges:
    """Messages of one connection that wait for an answer, at most one for each packet identifier and side."""

    client: dict[int, TrackedMessage] = field(default_factory=dict)
    """Those that the client sent."""
    server: dict[int, TrackedMessage] = field(default_factory=dict)

    def feed(
        self, event: PacketEvent | MalformedEvent, packet: ControlPacket, message: TrackedMessage | None
    ) -> TrackedMessage | None:
        """Take a packet; returns the message that it ends, if any.  ``message`` is what a PUBLISH begins."""
        from_client = event.direction is C2S
        own, other = (self.client, self.server) if from_client else (self.server, self.client)
        kind = packet.packet_type
        if message is not None:
            assert isinstance(packet, packets.Publish)
            return self._begin(own, packet, message)
        if kind == PacketType.PUBREL:
            running = own.get(packet.packet_identifier)  # type: ignore[attr-defined]
            if running is not None:
                running.state, running.released_ns = "released", event.timestamp_ns
                running.release_reason_code = _code(packet, event)
            return None
        if kind in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP):
            return self._answer(other, kind, packet, event)
        return None

    def close(self) -> Iterator[TrackedMessage]:
        """The connection has ended: what was not answered."""
        for table in (self.client, self.server):
            for message in table.values():
                message.ended = "connection"
                yield message
            table.clear()

    @staticmethod
    def _begin(
        own: dict[int, TrackedMessage], packet: packets.Publish, message: TrackedMessage
    ) -> TrackedMessage | None:
        identifier = packet.packet_identifier
        if not packet.qos or identifier is None:
            return message
        running = own.get(identifier)
        if running is not None and packet.dup:
            running.retransmissions += 1
            return None
        own.pop(identifier, None)
        own[identifier] = message
        if running is not None:
            running.ended = "replaced"
        return running

    @staticmethod
    def _answer(
        other: dict[int, TrackedMessage], kind: int, packet: ControlPacket, event: PacketEvent | MalformedEvent
    ) -> TrackedMessage | None:
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        running = other.get(identifier)
        if running is None:
            return None
        code = _code(packet, event)
        refused = (code or 0) >= REFUSED
        if kind == PacketType.PUBCOMP:
            running.complete_reason_code = code
        else:
            running.acknowledged_ns = event.timestamp_ns
            running.acknowledge_reason_code = code
            if kind == PacketType.PUBREC and not refused:
                running.state = "received"
                return None
        running.state, running.ended = "refused" if refused else "completed", "answer"
        running.completed_ns = event.timestamp_ns
        del other[identifier]
        return running


def _code(packet: ControlPacket, event: PacketEvent | MalformedEvent) -> int | None:
    """The reason code of an acknowledgement: 0 where 5.0 leaves it out, ``None`` before 5.0."""
    code: int | None = getattr(packet, "reason_code", None)
    return code or 0 if event.connection.version == V5 else None


LATE = 1 << 40
"""Connections with such numbers are of captures that came later than newer ones (`lake.memory`)."""
MAX_HOLES = 256
"""Of one connection; when there are more, the two that came first become one, with all between them."""


@dataclass(slots=True)
class Hole:
    """Bytes of a stream that no capture had when they were given up."""

    from_client: bool
    start: int
    """Stream offset of the first one."""
    end: int


@dataclass(slots=True)
class Tracker:
    """One connection.  Plain data: it can be written down and taken up again."""

    connection_id: str
    exchanges: Exchanges = field(default_factory=Exchanges)
    findings: int = 0
    """Those of rules that need this connection alone."""
    wide_findings: dict[Scope, int] = field(default_factory=dict)
    """The others, by the scope of the rule."""
    gaps: int = 0
    events: int = 0
    """Events that were counted for the order of findings (`lake.finding_collector`)."""
    holes: list[Hole] = field(default_factory=list)
    """What was given up of its streams: a capture that comes late may have it."""
    late: bool = False
    """Its captures came later than newer ones."""

    def note_hole(self, from_client: bool, start: int, length: int) -> None:
        """Know one hole more."""
        self.holes.append(Hole(from_client, start, start + length))
        if len(self.holes) > MAX_HOLES:
            first = self.holes.pop(0)
            other = next((one for one in self.holes if one.from_client is first.from_client), None)
            if other is not None:
                other.start, other.end = min(first.start, other.start), max(first.end, other.end)
            else:
                self.holes.append(first)


@dataclass(slots=True)
class OpenConnection:
    """What rules that look beyond one connection need of one that is still open, beside its history."""

    asked: dict[str, int] = field(default_factory=dict)
    """Rules that want to be asked again, by code, and when (`History.asked`)."""
    asked_next: dict[str, int] = field(default_factory=dict)
    """The same of `History.asked_next`."""
    carries: bool = False
    """Whether messages of an earlier connection matter to it (`History.carries`): whoever reads its flow alone has not
    found out."""
    findings: dict[Scope, int] = field(default_factory=dict)
    """How many findings there were (`Tracker.wide_findings`)."""


@dataclass(slots=True)
class KeyMemory:
    """What the rules of wide scopes remember of all connections of a key (`lake.keys.stage_key`).  Plain data."""

    memories: Kept = field(default_factory=dict)
    open: dict[ConnectionKey, OpenConnection] = field(default_factory=dict)
