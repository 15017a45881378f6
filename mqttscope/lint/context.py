"""What a rule can look at: one event, the state of its connection before it, and the memory of the rule.

`RuleContext` is the event with everything known before it.  `Memories` holds what rules keep beyond one packet, by the
key of their scope: a finding of that scope depends on nothing but the memory of its key and the connection that it is
about.  So an engine that sees all connections of one key finds for it the same as an engine that sees everything, and
a cluster can run one engine per key.  A connection gets its key with its CONNACK: before that, rules with the scope of
a session have nothing to remember.
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
from mqttscope.lint.finding import Confidence, Scope, Severity
from mqttscope.mqtt.codec import SpanIndex
from mqttscope.mqtt.constants import Direction, ProtocolVersion
from mqttscope.net.segment import flow_key
from mqttscope.session.connection import C2S, Connection
from mqttscope.session.history import History, PeerHistory, Sent
from mqttscope.session.inflight import Side

MAX_KEYS = 100_000
"""Sessions, and servers, whose memories are kept; the one untouched for longest goes first, and is counted."""
WIDE = (Scope.SESSION, Scope.BROKER)
"""Scopes that look beyond one connection."""
Kept = dict[tuple[Hashable, ...], dict[str, Any]]
"""What rules keep, by the key of their scope and their code."""
M = TypeVar("M")
ConnectionKey = tuple[bytes | str, int, int]
"""What distinguishes a connection from all others, also in a later run: its flow (bytes), when it began, and the
initial sequence number of its initiator.  Where there is no flow, since it was not captured: its capture, its number,
and 0."""
_BROKER: Final = Scope.BROKER
_SESSION: Final = Scope.SESSION


class KeepsState(Protocol):
    """What is known here of a `rule.Rule` or a `model.Model`: whose memory it is, and how one begins."""

    code: ClassVar[str]
    scope: ClassVar[Scope]
    Memory: ClassVar[type | None]


class Elsewhere(Protocol):
    """What an engine continues with, as far as nothing has asked for it yet."""

    def bring_memories(self, key: tuple[Hashable, ...], code: str) -> None:
        """Give what a rule or model keeps for a key to the engine (`Memories.adopt`), where it is there."""

    def bring_connection(self, whom: ConnectionKey) -> None:
        """Give an open connection to the engine (`Linter.adopt`), where it is there."""


class Memories:
    """The memories of all rules of one engine."""

    def __init__(self) -> None:
        self.forgotten = 0
        """Keys that had to make room."""
        self.together = False
        """All captures are those of taps of the same traffic."""
        self.open: dict[ConnectionKey, Connection] = {}
        """Connections that were seen and have not ended."""
        self.elsewhere: Elsewhere | None = None
        """Asked for what is not here."""
        self._kept: Kept = {}
        self._last_key: tuple[Hashable, ...] = ()
        self._last: dict[str, Any] = {}
        """Of the session that was touched last."""
        self._last_broker: tuple[Hashable, ...] = ()
        self._of_last_broker: dict[str, Any] = {}
        """Of the server that was: packets of many sessions are all of one."""
        self._brokers: dict[str, tuple[Hashable, ...]] = {}

    @property
    def kept(self) -> Kept:
        return self._kept

    def adopt(self, kept: Kept) -> None:
        """Continue with what another engine kept, beside what is known already."""
        for key, memories in kept.items():
            known = self._kept.setdefault(key, {})
            for code, memory in memories.items():
                known.setdefault(code, memory)
        self._forget_last()

    def _forget_last(self) -> None:
        self._last_key, self._last = (), {}
        self._last_broker, self._of_last_broker = (), {}

    def of(self, rule: KeepsState, at: RuleContext) -> Any:
        """What a rule keeps for the key of its scope."""
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
        # Identity first: nearly all packets are of the server that the last one was of.
        if key is not self._last_broker and key != self._last_broker:
            found = self._touch(key)
            self._last_broker, self._of_last_broker = key, found
        return self._of_last_broker

    def _of_session(self, connection: Connection) -> dict[str, Any]:
        key = scope_key(_SESSION, connection)
        if key != self._last_key:
            found = self._touch(key)
            self._last_key, self._last = key, found
        return self._last

    def _touch(self, key: tuple[Hashable, ...]) -> dict[str, Any]:
        """The memories of a key, which is now the one that was touched last."""
        kept = self._kept
        found = kept.pop(key, None)
        if found is None:
            found = {}
            if len(kept) >= MAX_KEYS:
                # The server at hand was touched with every packet, though it has not moved.
                last = kept.pop(self._last_broker, None)
                if last is not None:
                    kept[self._last_broker] = last
                oldest = next(iter(kept))
                del kept[oldest]
                if oldest in (self._last_key, self._last_broker):
                    self._forget_last()
                self.forgotten += 1
        kept[key] = found
        return found

    def broker(self, connection: Connection) -> tuple[Hashable, ...]:
        """The key of a server, the same object for all of its connections."""
        if len(self._brokers) >= MAX_KEYS:
            self._brokers.clear()
        return self._brokers.setdefault(connection.server, scope_key(_BROKER, connection))

    def of_broker(self, code: str, kind: type, at: RuleContext) -> Any:
        """The same as `of` for what belongs to a server, given its code and class."""
        memories = self._of_server(at.broker)
        memory = memories.get(code)
        if memory is None and self.elsewhere is not None:
            self.elsewhere.bring_memories(at.broker, code)
            memory = memories.get(code)
        if memory is None:
            memory = memories[code] = kind()
        return memory

    def connection(self, whom: ConnectionKey) -> Connection | None:
        """A connection that is open."""
        found = self.open.get(whom)
        if found is None and self.elsewhere is not None:
            self.elsewhere.bring_connection(whom)
            found = self.open.get(whom)
        return found

    def opened(self, at: RuleContext) -> None:
        self.open[at.key] = at.connection

    def closed(self, at: RuleContext) -> None:
        """A connection has ended."""
        self.open.pop(at.key, None)
        # Nobody else can have what is kept for one connection alone.
        if self._kept.pop(own_key(at.connection), None) is not None:
            self._forget_last()


def scope_key(scope: Scope, connection: Connection) -> tuple[Hashable, ...]:
    """The key that findings of a scope depend on: run per key, an engine finds the same."""
    if scope is _BROKER:
        return (connection.server,)
    if scope is _SESSION:
        known = connection.session_identifier
        name = connection.client_identifier if known is None else known
        if name:
            return (connection.server, name)
    # Who has not said a Client Identifier, or waits for one, shares a session with nobody that is known.
    return own_key(connection)


def own_key(connection: Connection) -> tuple[Hashable, ...]:
    """The key of a connection that shares it with no other."""
    return (connection.server, connection_key(connection))


def is_of_one(key: tuple[Hashable, ...]) -> bool:
    """Whether a key of `scope_key` is that of one connection, which shares it with no other."""
    return not isinstance(key[-1], str)


def connection_key(connection: Connection) -> ConnectionKey:
    """What distinguishes a connection from all others."""
    if connection.flow_key:
        # Which side is the initiator may be a guess.
        return flow_key(connection.flow_key), connection.opened_ns, connection.initial_sequence
    return connection.capture, connection.number, 0


def forget_oldest(table: dict[Any, Any], most: int) -> bool:
    """Take the first entry out of a table that has more than ``most``; whether it had."""
    if len(table) <= most:
        return False
    del table[next(iter(table))]
    return True


SECOND_NS: Final = 1_000_000_000

Looked = PacketEvent | MalformedEvent | GapEvent | UnparsedEvent | ConnectionOpened | ConnectionDue | ConnectionClosed


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

    event: Looked
    connection: Connection
    history: History
    key: ConnectionKey
    """The connection, for memories that may not refer to it."""
    broker: tuple[Hashable, ...]
    """The key of the server."""
    direction: Direction
    """Of the event; the client's where an event has none."""
    from_client: bool
    sender: Side
    """State of the side that sends."""
    receiver: Side
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
    """What the engine asks about packets like these, as long as the version and what is settled stay the same."""
    planned_version: ProtocolVersion | None
    planned_settled: bool

    def __init__(self, memories: Memories, connection: Connection, history: History, direction: Direction) -> None:
        self._memories = memories
        self._spans: SpanIndex | None = None
        self.planned, self.planned_version, self.planned_settled = None, None, False
        self.connection, self.history, self.direction = connection, history, direction
        self.key = connection_key(connection)
        self.broker = memories.broker(connection)
        self.client, self.server = connection.client_side, connection.server_side
        self.from_client = direction is C2S
        if self.from_client:
            self.sender, self.receiver = self.client, self.server
            self.party, self.other = history.client, history.server
        else:
            self.sender, self.receiver = self.server, self.client
            self.party, self.other = history.server, history.client

    def move(self, event: Looked, topic: str | None = None) -> None:
        self.event, self.topic, self._spans = event, topic, None
        self.version = self.connection.version
        self.timestamp_ns = event.timestamp_ns

    def is_apart(self, capture: str, other: str | None = None) -> bool:
        """Whether something may have passed unseen between a capture and ``other``, by default that of the event.

        Captures of several taps that are read as one have no time between them.
        """
        return capture != (self.event.capture if other is None else other) and not self._memories.together

    @property
    def spans(self) -> SpanIndex:
        """Where the fields of the packet are: traced when first asked for, and once for all findings."""
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
        """The client for messages: its Client Identifier, or its endpoint where that is not known."""
        return self.connection.client_identifier or self.connection.client

    @property
    def acknowledged(self) -> int:
        """How far the sender had received the other side's stream when it began this packet; -1 where unproven."""
        begun = self.party.begun
        return self.party.acknowledged if begun is None else begun[0]

    @property
    def begun_ns(self) -> int:
        """When the first byte of this packet was captured."""
        begun = self.party.begun
        return self.timestamp_ns if begun is None else begun[1]

    def knew(self, sent: Sent | None) -> bool:
        """Whether TCP proves that the sender had received that packet of the other side when it sent this one.

        The capture shows the order at the place of capture, not at the endpoint; an acknowledgment number in the
        segment itself cannot lie about what its sender had.
        """
        return sent is not None and self.acknowledged >= sent.position > 0

    def awareness(self) -> tuple[Severity | None, Confidence | None]:
        """Severity and confidence of breaking what CONNACK announced, where they are not the usual ones.

        A client need not wait for CONNACK (5.0 3.1.4): where TCP proves that it had none when it began this packet,
        that is worth a note, and where nothing is proven the finding is only likely.
        """
        sent = self.history.connack_sent
        if not self.from_client or self.knew(sent):
            return None, None
        if sent is not None and 0 <= self.acknowledged < sent.position:
            return Severity.INFO, None
        return None, Confidence.LIKELY

    def memory(self, rule: Any) -> Any:
        """What a rule keeps for the key of its scope: an instance of its ``Memory``, made when first asked for."""
        return self._memories.of(rule, self)

    def model(self, kind: type[M]) -> M:
        """The model of a kind for the key of its scope, in the state before this event."""
        found: M = self._memories.of(kind, self)  # type: ignore[arg-type]
        return found

    def history_of(self, whom: ConnectionKey) -> History | None:
        """The history of another connection of the same key, while it is open."""
        connection = self._memories.connection(whom)
        return None if connection is None else connection.history

    def connection_of(self, whom: ConnectionKey) -> Connection | None:
        """Another connection of the same key, until it has ended on both sides."""
        return self._memories.connection(whom)

    def ask(self, rule: Any, when_ns: int, whom: ConnectionKey | None = None) -> None:
        """Have ``check_due`` of a rule called when capture time comes there, before all that is captured then.

        It is called for this connection, or for another one that is open and has the same key.  A time that has come
        already means its next event.  Where the capture ends before, the rule is never called: the outcome is unknown.
        """
        connection = self.connection if whom is None else self._memories.connection(whom)
        if connection is not None and connection.history is not None:
            # Where the clock was set back, times to come are no times, and waking by them would disturb the flows.
            wakes = when_ns > self.timestamp_ns and not connection.history.clock_back
            connection.history.ask(rule.code, when_ns, connection.alarm if wakes else None)

    def silence_ns(self, direction: Direction) -> int | None:
        """Nanoseconds since a side's last packet, ``None`` when it has sent none."""
        last = self.connection.side(direction).last_timestamp_ns
        return None if last is None else self.timestamp_ns - last


class BothSides:
    """What rules look at of one connection: the contexts of its two directions (`History.looked_at`)."""

    __slots__ = ("client", "memories", "server")

    def __init__(self, memories: Memories, connection: Connection, history: History) -> None:
        self.memories = memories
        """Those of the engine that it belongs to."""
        self.client = RuleContext(memories, connection, history, C2S)
        """For what the client sends."""
        self.server = RuleContext(memories, connection, history, Direction.SERVER_TO_CLIENT)
        """For what the server sends."""
