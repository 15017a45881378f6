"""Memories for the tables about open connections, and memories of rules about all connections of a key.

The memory of messages is the present state of each PUBLISH.  PUBLISH packets are paired as in `session.Connection`: a
PUBLISH with DUP repeats the exchange in progress of its packet identifier; one without DUP replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mqttscope.events import GapEvent, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.context import ConnectionKey, RuleStates
from mqttscope.lint.finding import Scope
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V5, Direction, PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.payloads.sparkplug import Births
from mqttscope.session.capture_time import captured

C2S = Direction.CLIENT_TO_SERVER
REFUSED = 0x80
"""Lowest reason code of a message that was not accepted."""

LONGEST_NS = (1 << 63) - 1
"""Largest latency of a column; a clock that jumps by more than 292 years gives null."""


@dataclass(slots=True)
class TrackedMessage:
    """A message that may still be answered."""

    head: list[Any]
    """Its columns up to the state, from `lake.rows`."""
    published_ns: int
    qos: int
    bad: list[dict[str, Any]] | None = None
    """Texts in the columns that are not UTF-8."""
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
        """The row of ``messages``."""
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
    """Messages from the client."""
    server: dict[int, TrackedMessage] = field(default_factory=dict)

    def feed(
        self, event: PacketEvent | MalformedEvent, packet: ControlPacket, message: TrackedMessage | None
    ) -> TrackedMessage | None:
        """Take a packet; return the message that it ends, if any.  ``message`` begins with a PUBLISH."""
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
        """Yield the unanswered messages when the connection has ended."""
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
"""Lowest number of connections from late captures (`lake.memory`)."""
MAX_HOLES = 256
"""Maximum number of holes of one connection; beyond it the first two become one, with everything between them."""


@dataclass(slots=True)
class Hole:
    """Bytes of a stream that no capture had when they were given up."""

    from_client: bool
    start: int
    """Stream offset of the first byte."""
    end: int


@dataclass(slots=True)
class MetricMemory:
    """Births of Sparkplug that one direction of a connection has shown."""

    births: Births = field(default_factory=Births)
    lost_at: int = -1
    """Offset of the last lost bytes: a birth among them may have replaced the births before."""

    def lose(self, stream_offset: int) -> None:
        """Forget the births: the capture lacks bytes, or they could not be read."""
        self.births, self.lost_at = Births(), max(self.lost_at, stream_offset)

    def births_for(self, event: PacketEvent) -> Births:
        """The births before a message; it adds its own, unless lost bytes after it are known."""
        return self.births if event.stream_offset > self.lost_at else Births()


@dataclass(slots=True)
class Tracker:
    """One connection.  Plain data that can be stored and continued."""

    connection_id: str
    exchanges: Exchanges = field(default_factory=Exchanges)
    findings: int = 0
    """Number of findings of rules that need only this connection."""
    wide_findings: dict[Scope, int] = field(default_factory=dict)
    """Number of other findings, by the scope of the rule."""
    gaps: int = 0
    events: int = 0
    """Number of events, for the order of findings (`lake.finding_collector`)."""
    holes: list[Hole] = field(default_factory=list)
    """Bytes that its streams gave up: a late capture may have them."""
    late: bool = False
    """Its captures came later than newer ones."""
    rule_generation: int = 1
    """The rules of its beginning (`LakeOptions.rule_generation`)."""
    metrics: dict[str, MetricMemory] = field(default_factory=dict)
    """Births of Sparkplug, by direction."""

    def lose_metrics(self, event: GapEvent | UnparsedEvent | MalformedEvent) -> None:
        """Forget the births of a direction after bytes that may contain another one."""
        if self.metrics:
            self.metrics.setdefault(str(event.direction), MetricMemory()).lose(event.stream_offset)

    def note_hole(self, from_client: bool, start: int, length: int) -> None:
        """Add a hole."""
        self.holes.append(Hole(from_client, start, start + length))
        if len(self.holes) > MAX_HOLES:
            first = self.holes.pop(0)
            other = next((hole for hole in self.holes if hole.from_client is first.from_client), None)
            if other is not None:
                other.start, other.end = min(first.start, other.start), max(first.end, other.end)
            else:
                self.holes.append(first)


@dataclass(slots=True)
class OpenConnection:
    """Data about an open connection, besides its history, for rules that look beyond one connection."""

    asked: dict[str, int] = field(default_factory=dict)
    """Times when rules want to be asked again, by rule code (`History.asked`)."""
    asked_next: dict[str, int] = field(default_factory=dict)
    """Times when rules want to be asked at the next event, by rule code (`History.asked_next`)."""
    carries: bool = False
    """Whether messages of an earlier connection matter to it (`History.carries`); its flow alone does not show that."""
    findings: dict[Scope, int] = field(default_factory=dict)
    """Number of its findings (`Tracker.wide_findings`)."""


@dataclass(slots=True)
class KeyMemory:
    """Memories of wide rules about all connections of a key (`lake.keys.stage_key`).  Plain data."""

    memories: RuleStates = field(default_factory=dict)
    open: dict[ConnectionKey, OpenConnection] = field(default_factory=dict)
