"""The wills of a server: which connection has one, when it is due, and which messages may look like it.

A will is stored when its connection is accepted.  A DISCONNECT with Reason Code 0 drops it (any DISCONNECT before 5.0).
Any other end makes it due: at once, or when Will Delay or the session is over, unless the client is back before.  Many
clients publish the content of their will themselves before they leave, and several clients may have equal wills.  So a
delivery counts as a will only if nothing else in the capture has the same content.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from mqttscope.lint.broker_watch import BrokerWatch
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Related, Scope
from mqttscope.lint.rule import V5
from mqttscope.mqtt import Connack, Connect, Properties, Publish, Will
from mqttscope.session.connection import Connection

MAX_ARMED = 10_000
"""Maximum number of wills of open connections; beyond it, nothing of the server is judged."""
MAX_ENDED = 1_000
"""Maximum number of wills of ended connections; the one that ended first is dropped first."""
MAX_SAME = 16
"""Maximum number of wills per topic that can be distinguished."""
MAX_READERS = 8
"""Maximum number of clients remembered per topic that received its messages."""
MAX_COPIES = 64
"""Maximum number of subscribers per will with a count of deliveries."""
KEPT = ("content_type", "response_topic", "correlation_data", "payload_format_indicator", "user_property")
"""Properties that a will is published with."""
UNKNOWN_NS = 60 * SECOND_NS
"""How long after the end of a connection with an unknown CONNECT its will may be published."""
_TOLD_TO_GO = (0x8B, 0x98)
"""Reason Codes of a server that ends all connections: shutdown, or a session ended by an operator."""

ARMED, DROPPED, DUE, TAKEN_BACK, OPEN = "armed", "dropped", "due", "taken back", "open"
"""Phases of a will: its connection is open; a DISCONNECT dropped it; it must be published, now or later; the client
came back in time; unknown."""


@dataclass(slots=True)
class StoredWill:
    """The will of one connection."""

    client: str
    topic: str
    checksum: int
    """CRC-32 of its payload."""
    qos: int
    retain: bool
    delay_s: int
    expires: bool
    """Whether it has a Message Expiry Interval."""
    size: int
    """Bytes of topic, payload and properties."""
    properties: dict[str, int] | None
    """CRC-32 of each property in `KEPT`; ``None`` before 5.0."""
    capture: str
    connect: Related
    phase: str = ARMED
    ended_ns: int = 0
    """When the connection ended, or when DISCONNECT was sent."""
    due_ns: int = 0
    is_challenged: bool = False
    """Whether its client has sent CONNECT on another connection; from then on the server may publish it at any time."""
    back_ns: int = 0
    """When the client was accepted again."""
    resumed: bool = False
    """Whether the client then continued its session."""
    back: Related | None = None
    twin: bool = False
    """Whether the same content was published after the will was stored."""
    written: int = -1
    """CRC-32 of the client's last message on the topic."""
    proven: bool = False
    """Whether a subscriber received such a message, so that the client may write to the topic."""
    copies: dict[ConnectionKey, int] = field(default_factory=dict)
    """Number of messages with its content, by subscriber."""


@dataclass(slots=True)
class Wills(BrokerWatch):
    """The wills of a server."""

    code = "wills"
    scope = Scope.BROKER
    looks_at = (Publish, Connect, Connack)

    armed: dict[ConnectionKey, StoredWill] = field(default_factory=dict)
    ended: dict[ConnectionKey, StoredWill] = field(default_factory=dict)
    topics: dict[str, list[ConnectionKey]] = field(default_factory=dict)
    """Connections with a will per topic, ended ones included."""
    by_client: dict[str, ConnectionKey] = field(default_factory=dict)
    """The last connection with a will, by Client Identifier."""
    readers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Clients that received messages of a topic with a will."""
    published_ns: dict[str, int] = field(default_factory=dict)
    """Time of the last publication on a topic with a will."""
    fresh: dict[ConnectionKey, bool] | None = None
    """Connections with a will that are newer than the last `forget`; ``None`` before the first one."""
    unknown_ns: int = 0
    """Time until which a will with an unknown CONNECT may be published."""
    crowded: bool = False
    """Whether there were more wills than can be remembered."""

    def follows_will(self, will: Will) -> bool:
        """Never: this model judges the topics of wills instead of leaving them alone."""
        return False

    def forget(self) -> None:
        """Mark that the content of any will may have been published otherwise."""
        for key in (*self.armed, *self.ended) if self.fresh is None else self.fresh:
            will = self.of(key)
            if will is not None:
                will.twin = True
        self.fresh = {}

    def forget_topic(self, topic: str) -> None:
        """Nothing to discard for a topic."""

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Handle a packet: wills of connections, and messages on their topics."""
        if isinstance(packet, Publish):
            if packet.missing:
                self.torn_ns = at.timestamp_ns
            if at.topic is None:
                if at.from_client:
                    self.forget()
            elif at.topic in self.topics:
                self._handle_message(packet, at.topic, at)
            return
        self.take(packet, at)
        if isinstance(packet, Connect):
            before = self.armed.get(self.by_client.get(packet.client_identifier or "", at.key))
            if before is not None:
                before.is_challenged = True
        if isinstance(packet, Connack) and not packet.reason_code and at.history.connack is None:
            self._accepted(packet, at)

    def _accepted(self, packet: Connack, at: RuleContext) -> None:
        connect, sent = at.history.connect, at.history.connect_sent
        name, event = at.connection.client_identifier, at.event
        if connect is None or sent is None or connect.missing:
            return
        before = None if name is None else self.of(self.by_client.get(name))
        if before is not None and before.phase in (ARMED, DUE) and not before.back_ns:
            before.back_ns = at.timestamp_ns
            before.resumed = packet.session_present is True and not connect.clean_start
            before.back = Related("the CONNACK of the next connection", at.number, event.frame, event.timestamp_ns)
            if before.phase == DUE and before.due_ns > at.timestamp_ns:
                before.phase = TAKEN_BACK if before.resumed else OPEN
        will = connect.will
        if will is None or not name or not will.will_topic or will.will_topic[0] == "$":
            return
        if len(self.armed) >= MAX_ARMED:
            self.crowded = True
            return
        block = will.properties
        self.armed[at.key] = StoredWill(
            name,
            will.will_topic,
            zlib.crc32(will.will_payload),
            will.will_qos,
            will.will_retain,
            0 if block is None else block.will_delay_interval or 0,
            block is not None and block.message_expiry_interval is not None,
            len(will.will_topic) * 3 + len(will.will_payload) + (0 if block is None else 16 + len(connect.raw)),
            None if at.version is not V5 else summaries(block),
            event.capture,
            Related.to("the CONNECT with the will", sent),
        )
        if self.fresh is not None:
            self.fresh[at.key] = True
        self.topics.setdefault(will.will_topic, []).append(at.key)
        self.by_client.pop(name, None)
        self.by_client[name] = at.key

    def _handle_message(self, packet: Publish, topic: str, at: RuleContext) -> None:
        """Handle a message on the topic of a will, from a client or to one."""
        checksum = zlib.crc32(packet.payload)
        if at.from_client:
            self.published_ns[topic] = at.timestamp_ns
        elif at.client_name not in self.readers.get(topic, ()):
            self.readers[topic] = (*self.readers.get(topic, ()), at.client_name)[-MAX_READERS:]
        for key in self.topics[topic]:
            will = self.of(key)
            if will is None:
                continue
            if at.from_client:
                will.twin = will.twin or checksum == will.checksum or bool(packet.missing)
                if at.key == key:
                    will.written = checksum
                continue
            will.proven = will.proven or checksum == will.written
            counts = not (packet.dup or packet.retain or packet.missing) and checksum == will.checksum
            if counts and (at.key in will.copies or len(will.copies) < MAX_COPIES):
                will.copies[at.key] = will.copies.get(at.key, 0) + 1

    @property
    def has_room(self) -> bool:
        return not self.crowded

    def of(self, key: ConnectionKey | None) -> StoredWill | None:
        """The will of a connection, open or ended."""
        if key is None:
            return None
        return self.armed.get(key) or self.ended.get(key)

    def phase_of(self, key: ConnectionKey, will: StoredWill, at: RuleContext) -> tuple[str, int]:
        """Phase of a will and end of its connection, even before the connection has ended completely."""
        connection = at.connection_of(key)
        if will.phase != ARMED or connection is None or connection.history is None:
            return will.phase, will.ended_ns
        disconnect = connection.history.client.disconnect
        if disconnect is not None and not disconnect.reason_code:
            is_reset = connection.closed_how == "reset" or connection.reset_after_fin
            return (OPEN if is_reset else DROPPED), disconnect.timestamp_ns
        if connection.closed_ns:
            return (OPEN if will.delay_s else DUE), connection.closed_ns
        return ARMED, 0

    def alone(self, topic: str, checksum: int, at: RuleContext) -> tuple[ConnectionKey, StoredWill] | None:
        """The only will that a message with this content can be, apart from a new will of the same client.

        ``None`` if several wills match, if a PUBLISH may have the content, or if missing bytes may contain such a
        PUBLISH.
        """
        keys = self.topics.get(topic, ())
        if self.crowded or len(keys) > MAX_SAME:
            return None
        match: tuple[ConnectionKey, StoredWill] | None = None
        again: list[tuple[StoredWill, ConnectionKey]] = []
        for key in keys:
            will = self.of(key)
            if will is None or will.checksum != checksum:
                continue
            if self.phase_of(key, will, at)[0] == ARMED:
                again.append((will, key))
            elif match is None:
                match = key, will
            else:
                return None
        if match is None or any(armed.client != match[1].client or armed.is_challenged for armed, _ in again):
            return None
        will = match[1]
        if will.twin or any(armed.twin for armed, _ in again) or at.timestamp_ns <= self.unknown_ns:
            return None
        if any(_is_overdue(at.connection_of(key), at.timestamp_ns) for _, key in again):
            return None
        if at.is_apart(will.capture) or self.waits_behind_a_hole(at):
            return None
        return match

    def ending(self, will: StoredWill, connection: Connection, at: RuleContext) -> tuple[str, int]:
        """Phase of a will after the end of its connection, and when it is due."""
        history, ended_ns = at.history, connection.closed_ns or at.timestamp_ns
        how = {connection.closed_how, None if connection.also_closed is None else connection.also_closed.how} - {None}
        if connection.closed_how not in ("fin", "reset") or at.client.gapped or history.client.malformed:
            return OPEN, 0
        client_disconnect, server_disconnect = history.client.disconnect, history.server.disconnect
        if client_disconnect is not None and not client_disconnect.reason_code:
            # After a reset it is unknown whether the server has read the DISCONNECT.
            return (DROPPED if how == {"fin"} and not connection.reset_after_fin else OPEN), 0
        if server_disconnect is not None and server_disconnect.reason_code in _TOLD_TO_GO:
            return OPEN, 0
        if will.delay_s and will.back_ns:
            # A new session ends the old one and makes its will due; a new connection deletes it (5.0 MQTT-3.1.2-8).
            return (TAKEN_BACK if will.resumed else OPEN), ended_ns + will.delay_s * SECOND_NS
        seconds = min(will.delay_s, connection.session_expiry_interval or 0)
        return DUE, ended_ns + seconds * SECOND_NS

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of a connection: its will is dropped, or due."""
        BrokerWatch.closed(self, connection, at)
        connect, disconnect = at.history.connect, at.history.client.disconnect
        if (connect is None or connect.missing) and (disconnect is None or disconnect.reason_code):
            self.unknown_ns = max(self.now_ns, at.timestamp_ns) + UNKNOWN_NS
        will = self.armed.pop(at.key, None)
        if will is None:
            return
        will.phase, will.due_ns = self.ending(will, connection, at)
        will.ended_ns = connection.closed_ns or at.timestamp_ns
        if disconnect is not None and will.phase == DROPPED:
            will.ended_ns = disconnect.timestamp_ns
        self.ended[at.key] = will
        if len(self.ended) > MAX_ENDED:
            key = next(iter(self.ended))
            self._remove(key, self.ended.pop(key))

    def _remove(self, key: ConnectionKey, will: StoredWill) -> None:
        if self.fresh is not None:
            self.fresh.pop(key, None)
        keys = self.topics.get(will.topic, [])
        if key in keys:
            keys.remove(key)
        if not keys:
            for table in (self.topics, self.readers, self.published_ns):
                table.pop(will.topic, None)
        if self.by_client.get(will.client) == key:
            del self.by_client[will.client]


def _is_overdue(connection: Connection | None, now_ns: int) -> bool:
    """Whether a client has been silent for longer than its Keep Alive: the server may already have ended it."""
    if connection is None or not connection.keep_alive:
        return False
    last_ns = connection.client_side.last_timestamp_ns
    return last_ns is not None and now_ns - last_ns > connection.keep_alive * SECOND_NS


def summaries(block: Properties | None) -> dict[str, int]:
    """CRC-32 of the properties that a message takes from its will."""
    checksums = {}
    for name in KEPT:
        value = None if block is None else getattr(block, name)
        if value:
            checksums[name] = zlib.crc32(repr(value).encode("utf-8", "surrogatepass"))
    return checksums
