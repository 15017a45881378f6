"""The input of a rule: one event, the state of its connection before it, and the memory of the rule.

`RuleContext` is the event with everything known before it.  `Memories` holds the state that rules keep beyond one
packet, by the key of their scope.  A finding depends only on the memory of its key and on its own connection.  So an
engine that sees all connections of one key finds exactly what an engine that sees everything finds for that key, and
a cluster can run one engine per key.  A connection gets its key with its CONNACK: before that, rules with the scope of
a session have nothing to remember.

A side may leave out bytes of a packet, or write another packet into its middle.  The receiver then reads packets that
nobody sent: a CONNACK of a client, a PUBLISH with QoS 3.  `RuleContext.read_again` proves the fault (`mqtt.repair`) at
a malformed packet of the side, and one finding of ENC107 stands for all that follows.  Packets that begin before
`PeerHistory.misread` are misread: another reading has whole packets there.  A malformed packet that begins before it
and ends after it moves it on, since nobody sent a packet that begins at its end.  Packets that begin later may be real,
and findings about them are likely.  If no other reading fills all bytes at hand with whole packets, or if the capture
lacks bytes of the side, everything is judged as it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Final, Protocol, TypeVar

from mqttscope.events import (
    ConnectionClosed,
    ConnectionDue,
    ConnectionOpened,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.lint.finding import Confidence, Report, Scope, Severity
from mqttscope.mqtt.codec import SpanIndex, packet_end
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, FaultReport
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import BY_IDENTIFIER, BY_NAME
from mqttscope.mqtt.repair import Misreading, misreading
from mqttscope.mqtt.wire import read_variable_byte_integer
from mqttscope.net.segment import flow_key
from mqttscope.session.connection import C2S, Connection
from mqttscope.session.history import History, PeerHistory, SentPacket
from mqttscope.session.inflight import ConnectionSide

MAX_KEYS = 100_000
"""Maximum number of sessions and servers with memories; the one unused for longest is dropped first."""
MAX_REREAD_BYTES = 65_536
"""Maximum bytes of a malformed packet that are read again."""
MAX_READ_AGAIN = 16
"""Maximum number of malformed packets of a side that are read again."""
WIDE = (Scope.SESSION, Scope.BROKER)
"""Scopes beyond one connection."""
RuleStates = dict[tuple[Hashable, ...], dict[str, Any]]
"""State of rules, by the key of their scope and then by their code."""
M = TypeVar("M")
ConnectionKey = tuple[bytes | str, int, int]
"""Identity of a connection, stable between runs: its flow (bytes), when it began, and the initial sequence number of
its initiator.  Without a captured flow: its capture, its number, and 0."""
_BROKER: Final = Scope.BROKER
_SESSION: Final = Scope.SESSION


class StateOwner(Protocol):
    """The part of `rule.Rule` and `model.Model` that `Memories` needs."""

    code: ClassVar[str]
    scope: ClassVar[Scope]
    Memory: ClassVar[type | None]


class StateSource(Protocol):
    """State of an earlier engine that an engine fetches on demand."""

    def bring_memories(self, key: tuple[Hashable, ...], code: str) -> None:
        """Pass the state of a rule or model for a key to the engine (`Memories.adopt`), if there is any."""

    def bring_connection(self, whom: ConnectionKey) -> None:
        """Pass an open connection to the engine (`Linter.adopt`), if it exists."""


class Memories:
    """The memories of all rules of one engine."""

    def __init__(self, *, together: bool = False) -> None:
        self.forgotten = 0
        """Number of keys dropped to make room."""
        self.together = together
        """Whether all captures are from taps of the same traffic."""
        self.open: dict[ConnectionKey, Connection] = {}
        """Connections seen that have not ended."""
        self.elsewhere: StateSource | None = None
        """Where missing state is fetched from."""
        self._states: RuleStates = {}
        self._last_key: tuple[Hashable, ...] = ()
        self._last: dict[str, Any] = {}
        """State of the session used last."""
        self._last_broker: tuple[Hashable, ...] = ()
        self._of_last_broker: dict[str, Any] = {}
        """State of the server used last: packets of many sessions usually belong to one server."""
        self._brokers: dict[str, tuple[Hashable, ...]] = {}

    @property
    def states(self) -> RuleStates:
        return self._states

    def adopt(self, states: RuleStates) -> None:
        """Continue with the state of another engine; existing state wins."""
        for key, memories in states.items():
            known = self._states.setdefault(key, {})
            for code, memory in memories.items():
                known.setdefault(code, memory)
        self._forget_last()

    def _forget_last(self) -> None:
        self._last_key, self._last = (), {}
        self._last_broker, self._of_last_broker = (), {}

    def memory_of(self, rule: StateOwner, at: RuleContext) -> Any:
        """The state of a rule for the key of its scope."""
        scope, code = rule.scope, rule.code
        if scope is not _BROKER and scope is not _SESSION:
            memories = at.history.memories
            memory = memories.get(code)
        else:
            memories = self._of_server(at.broker) if scope is _BROKER else self._of_session(at.connection)
            memory = memories.get(code)
            if memory is None and self.elsewhere is not None:
                key = at.broker if scope is _BROKER else scope_key(scope, at.connection)
                self.elsewhere.bring_memories(key, code)
                memory = memories.get(code)
        if memory is None:
            assert rule.Memory is not None
            memory = memories[code] = rule.Memory()
        return memory

    def _of_server(self, key: tuple[Hashable, ...]) -> dict[str, Any]:
        # Identity first: nearly all packets belong to the server of the packet before.
        if key is not self._last_broker and key != self._last_broker:
            memories = self._touch(key)
            self._last_broker, self._of_last_broker = key, memories
        return self._of_last_broker

    def _of_session(self, connection: Connection) -> dict[str, Any]:
        key = scope_key(_SESSION, connection)
        if key != self._last_key:
            memories = self._touch(key)
            self._last_key, self._last = key, memories
        return self._last

    def _touch(self, key: tuple[Hashable, ...]) -> dict[str, Any]:
        """The memories of a key, marked as the one used last."""
        states = self._states
        memories = states.pop(key, None)
        if memories is None:
            memories = {}
            if len(states) >= MAX_KEYS:
                # The server at hand was touched with every packet, though it has not moved.
                last = states.pop(self._last_broker, None)
                if last is not None:
                    states[self._last_broker] = last
                oldest = next(iter(states))
                del states[oldest]
                if oldest in (self._last_key, self._last_broker):
                    self._forget_last()
                self.forgotten += 1
        states[key] = memories
        return memories

    def broker(self, connection: Connection) -> tuple[Hashable, ...]:
        """The key of a server, the same object for all of its connections."""
        if len(self._brokers) >= MAX_KEYS:
            self._brokers.clear()
        return self._brokers.setdefault(connection.server, scope_key(_BROKER, connection))

    def broker_state(self, code: str, kind: type, at: RuleContext) -> Any:
        """The state of a rule or model with the scope of a broker, by its code and class."""
        memories = self._of_server(at.broker)
        memory = memories.get(code)
        if memory is None and self.elsewhere is not None:
            self.elsewhere.bring_memories(at.broker, code)
            memory = memories.get(code)
        if memory is None:
            memory = memories[code] = kind()
        return memory

    def connection(self, whom: ConnectionKey) -> Connection | None:
        """An open connection, or ``None``."""
        connection = self.open.get(whom)
        if connection is None and self.elsewhere is not None:
            self.elsewhere.bring_connection(whom)
            connection = self.open.get(whom)
        return connection

    def opened(self, at: RuleContext) -> None:
        self.open[at.key] = at.connection

    def closed(self, at: RuleContext) -> None:
        """Forget a connection that has ended."""
        self.open.pop(at.key, None)
        # State of this connection alone is no longer needed.
        if self._states.pop(own_key(at.connection), None) is not None:
            self._forget_last()


def scope_key(scope: Scope, connection: Connection) -> tuple[Hashable, ...]:
    """The key that findings of a scope depend on: one engine per key finds what a single engine finds."""
    if scope is _BROKER:
        return (connection.server,)
    if scope is _SESSION:
        known = connection.session_identifier
        name = connection.client_identifier if known is None else known
        if name:
            return (connection.server, name)
    # A client without a Client Identifier, or still waiting for one, shares its session with no known client.
    return own_key(connection)


def own_key(connection: Connection) -> tuple[Hashable, ...]:
    """The key of a connection that shares it with no other connection."""
    return (connection.server, connection_key(connection))


def is_of_one(key: tuple[Hashable, ...]) -> bool:
    """Whether a key of `scope_key` belongs to a single connection."""
    return not isinstance(key[-1], str)


def connection_key(connection: Connection) -> ConnectionKey:
    """Identity of a connection, see `ConnectionKey`."""
    if connection.flow_key:
        # The initiator may be a guess, so the key must not depend on it.
        return flow_key(connection.flow_key), connection.opened_ns, connection.initial_sequence
    return connection.capture, connection.number, 0


def forget_oldest(table: dict[Any, Any], most: int) -> bool:
    """Drop the oldest entry of a table with more than ``most`` entries; returns whether one was dropped."""
    if len(table) <= most:
        return False
    del table[next(iter(table))]
    return True


SECOND_NS: Final = 1_000_000_000

LintEvent = (
    PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionDue | ConnectionClosed
)


class RuleContext:
    """One event and everything known before it.

    The engine has one instance for each direction of a connection and moves it from event to event, so keep no
    reference to it.
    """

    __slots__ = (
        "_memories",
        "_spans",
        "broker",
        "client",
        "connection",
        "direction",
        "event",
        "from_client",
        "history",
        "key",
        "other",
        "party",
        "planned",
        "planned_settled",
        "planned_version",
        "receiver",
        "sender",
        "server",
        "timestamp_ns",
        "topic",
        "version",
    )

    event: LintEvent
    connection: Connection
    history: History
    key: ConnectionKey
    """Identity of the connection, for memories that must not refer to it."""
    broker: tuple[Hashable, ...]
    """The key of the server."""
    direction: Direction
    """Direction of the event; by default the client's."""
    from_client: bool
    sender: ConnectionSide
    """State of the side that sends."""
    receiver: ConnectionSide
    """State of the side that receives: its limits bind the sender."""
    party: PeerHistory
    """History of the side that sends."""
    other: PeerHistory
    """History of the side that receives."""
    version: ProtocolVersion
    topic: str | None
    """Resolved topic of a PUBLISH."""
    timestamp_ns: int
    planned: Any
    """The plans for packets, valid while the version and ``settled`` do not change."""
    planned_version: ProtocolVersion | None
    planned_settled: bool

    def __init__(
        self,
        memories: Memories,
        connection: Connection,
        history: History,
        direction: Direction,
        key: ConnectionKey | None = None,
    ) -> None:
        self._memories = memories
        self._spans: SpanIndex | None = None
        self.planned, self.planned_version, self.planned_settled = None, None, False
        self.connection, self.history, self.direction = connection, history, direction
        self.key = key or connection_key(connection)
        self.broker = memories.broker(connection)
        self.client, self.server = connection.client_side, connection.server_side
        self.from_client = direction is C2S
        if self.from_client:
            self.sender, self.receiver = self.client, self.server
            self.party, self.other = history.client, history.server
        else:
            self.sender, self.receiver = self.server, self.client
            self.party, self.other = history.server, history.client

    def move(self, event: LintEvent, topic: str | None = None) -> None:
        self.event, self.topic, self._spans = event, topic, None
        self.version = self.connection.version
        self.timestamp_ns = event.timestamp_ns

    def release(self) -> None:
        """Forget the event: the last packets of 100,000 open connections took 40 MB."""
        del self.event
        self._spans = None

    def is_apart(self, capture: str, other: str | None = None) -> bool:
        """Whether the capture differs from ``other``, by default the event's: traffic between the two may be missing.

        Nothing is missing between the captures of several taps that are read as one.
        """
        return capture != (self.event.capture if other is None else other) and not self._memories.together

    def is_misread(self, event: MalformedEvent) -> bool:
        """Whether a malformed packet of the sender begins at a wrong place."""
        party, end = self.party, event.stream_offset + len(event.malformed.raw)
        if not 0 <= event.stream_offset < party.misread:
            return False
        if end > party.misread:
            party.misread = end + 1  # a packet that begins at the end of this one as well
        return True

    def read_again(self, event: MalformedEvent) -> Misreading | None:
        """The proof that the sender is read at wrong places from here on; ``None`` after the first such place."""
        party, bad = self.party, event.malformed
        if party.misread >= 0 or event.stream_offset < 0 or self.sender.gapped or self.connection.gaps:
            return None
        if not self.connection.version_known or len(bad.raw) > MAX_REREAD_BYTES or party.malformed >= MAX_READ_AGAIN:
            return None
        return misreading(bad.raw + bad.after, bad.before, self.version)

    @property
    def spans(self) -> SpanIndex:
        """Positions of the packet's fields: traced on first use, once for all findings."""
        if self._spans is None:
            event = self.event
            assert isinstance(event, (PacketEvent, MalformedEvent))
            raw = event.packet.raw if isinstance(event, PacketEvent) else event.malformed.raw
            self._spans = SpanIndex(raw, self.version)
        return self._spans

    @property
    def number(self) -> int:
        event = self.event
        assert isinstance(event, (PacketEvent, MalformedEvent))
        return event.number

    @property
    def client_name(self) -> str:
        """Name of the client in messages: its Client Identifier, or its endpoint if that is unknown."""
        return self.connection.client_identifier or self.connection.client

    @property
    def acknowledged(self) -> int:
        """How far the sender had received the other direction when it began this packet; -1 if not proven."""
        begun = self.party.begun
        return self.party.acknowledged if begun is None else begun[0]

    @property
    def begun_ns(self) -> int:
        """Capture time of the packet's first byte."""
        begun = self.party.begun
        return self.timestamp_ns if begun is None else begun[1]

    def knew(self, sent: SentPacket | None) -> bool:
        """Whether TCP proves that the sender had received that packet of the other side when it sent this one.

        A capture shows the order at its tap, not at the endpoint.  The acknowledgment number in a segment proves what
        its sender had received.
        """
        return sent is not None and self.acknowledged >= sent.position > 0

    def awareness(self) -> tuple[Severity | None, Confidence | None]:
        """Severity and confidence of ignoring a CONNACK, if they differ from the usual ones.

        A client may send before the CONNACK arrives (5.0 3.1.4).  If TCP proves that it had not arrived, the severity
        is ``info``; if TCP proves nothing, the confidence is ``likely``.
        """
        sent = self.history.connack_sent
        if not self.from_client or self.knew(sent):
            return None, None
        if sent is not None and 0 <= self.acknowledged < sent.position:
            return Severity.INFO, None
        return None, Confidence.LIKELY

    def memory(self, rule: Any) -> Any:
        """The state of a rule for the key of its scope: an instance of its ``Memory``, created on first use."""
        return self._memories.memory_of(rule, self)

    def model(self, kind: type[M]) -> M:
        """The model of a class for the key of its scope, in the state before this event."""
        model: M = self._memories.memory_of(kind, self)  # type: ignore[arg-type]
        return model

    def history_of(self, whom: ConnectionKey) -> History | None:
        """The history of another connection of the same key, while it is open."""
        connection = self._memories.connection(whom)
        return None if connection is None else connection.history

    def connection_of(self, whom: ConnectionKey) -> Connection | None:
        """Another connection of the same key, until it has ended on both sides."""
        return self._memories.connection(whom)

    def ask(self, rule: Any, when_ns: int, whom: ConnectionKey | None = None) -> None:
        """Have ``check_due`` of a rule called at a capture time, before anything captured from then on is judged.

        It is called for this connection, or for another open connection of the same key.  A time in the past means its
        next event.  If the capture ends earlier, the rule is never called: the outcome is unknown.
        """
        connection = self.connection if whom is None else self._memories.connection(whom)
        if connection is not None and connection.history is not None:
            # After the clock was set back, future times are wrong, and waking by them would disturb the flows.
            wakes = when_ns > self.timestamp_ns and not connection.history.clock_back
            connection.history.ask(rule.code, when_ns, connection.alarm if wakes else None)

    def silence_ns(self, direction: Direction) -> int | None:
        """Nanoseconds since a side's last packet; ``None`` if it has sent nothing."""
        last = self.connection.side(direction).last_timestamp_ns
        return None if last is None else self.timestamp_ns - last


class BothSides:
    """Contexts of the two directions of a connection (`History.looked_at`)."""

    __slots__ = ("client", "memories", "server")

    def __init__(self, memories: Memories, connection: Connection, history: History) -> None:
        self.memories = memories
        """Memories of the engine that the contexts belong to."""
        self.client = RuleContext(memories, connection, history, C2S)
        """Context for packets of the client."""
        self.server = RuleContext(memories, connection, history, Direction.SERVER_TO_CLIENT, self.client.key)
        """Context for packets of the server."""


def place_of(report: Report, raw: bytes, at: RuleContext, fault: FaultReport | None) -> tuple[int | None, int | None]:
    """Offset and length in bytes of the blamed field; ``None`` if it is not part of a packet."""
    if not raw:
        return None, None
    if report.span is not None:
        return report.span
    if fault is not None:
        return place_of_fault(at.spans, raw, fault)
    event = at.event
    if not report.field:
        return 0, len(raw)
    packet: ControlPacket | None = None
    if isinstance(event, PacketEvent):
        packet = event.packet
        if packet.__class__ is Publish and not packet.missing and report.field.startswith("properties."):
            place = _property_place(packet, report.field[11:], raw)
            if place is not None:
                return place
    if isinstance(event, MalformedEvent):
        packet = event.malformed.packet
    if packet is not None:
        span = at.spans.of(packet, report.field)
        if span is not None:
            return span.start, span.end - span.start
    return 0, len(raw)


def _property_place(packet: Publish, name: str, raw: bytes) -> tuple[int, int] | None:
    """Offset and length of a property of a well-formed PUBLISH, else of the packet; ``None`` if it is repeated.

    Tracing all fields of the packet takes fifteen times as long.
    """
    row, block = BY_NAME.get(name), packet.properties
    if row is None or not block:
        return None
    body, end = packet_end(raw, 0, len(raw))
    at = body + 2 + (raw[body] << 8 | raw[body + 1]) + (2 if packet.qos else 0)
    _, at = read_variable_byte_integer(raw, at, end)
    place = None
    for number, _ in block.items:
        start = at
        _, at = BY_IDENTIFIER[number].wire.read(raw, at + 1, end)
        if number == row.identifier:
            if place is not None:
                return None
            place = start, at - start
    return place or (0, len(raw))


def place_of_fault(spans: SpanIndex, raw: bytes, fault: FaultReport) -> tuple[int, int]:
    """The field with the fault; if bytes are missing, the end of the packet."""
    start = min(fault.offset, len(raw))
    for span in spans.spans:
        if span.start <= start < span.end and (span.field == fault.field or not fault.field):
            return span.start, span.end - span.start
    return start, min(1, len(raw) - start)
