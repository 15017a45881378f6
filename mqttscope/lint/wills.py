"""The wills of a server: which connection has one, when it is due, and what may have been sent in its place.

A will is stored when its connection is accepted.  A DISCONNECT with Reason Code 0 drops it (any DISCONNECT before 5.0);
any other end makes it due, at once or when Will Delay or the session is over, unless the client is back before.  Many
clients publish the words of their will themselves before they leave, and clients may share one will; so what a
subscriber gets is taken for a will only where nothing else is seen to have the same content.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from mqttscope.lint.broker_watch import Watch
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Related, Scope
from mqttscope.lint.rule import V5
from mqttscope.mqtt import Connack, Connect, Properties, Publish, Will
from mqttscope.session.connection import Connection

MAX_ARMED = 10_000
"""Wills of open connections that are followed; beyond them nothing of the server is judged any more."""
MAX_ENDED = 1_000
"""Wills of connections that have ended; the one that ended first is forgotten first."""
MAX_SAME = 16
"""Wills of one topic; more cannot be distinguished."""
MAX_READERS = 8
"""Clients that are remembered as having got messages of a topic."""
MAX_COPIES = 64
"""Subscribers of which it is counted how often they got a will."""
KEPT = ("content_type", "response_topic", "correlation_data", "payload_format_indicator", "user_property")
"""Properties that a will is published with."""
UNKNOWN_NS = 60 * SECOND_NS
"""How long after the end of a connection whose CONNECT is not known its will may come."""
_TOLD_TO_GO = (0x8B, 0x98)
"""Reasons of a server to end all connections: it is being shut down, or an operator has ended the session."""

ARMED, DROPPED, DUE, TAKEN_BACK, OPEN = "armed", "dropped", "due", "taken back", "open"
"""Phases of a will: its connection is there; a DISCONNECT has dropped it; it has to be published, now or later; the
client has come back in time; unknown."""


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
    """CRC-32 of those of `KEPT`; ``None`` before 5.0."""
    capture: str
    connect: Related
    phase: str = ARMED
    ended_ns: int = 0
    """When the connection ended, or DISCONNECT was sent."""
    due_ns: int = 0
    back_ns: int = 0
    """When the client was accepted again."""
    resumed: bool = False
    """Whether that continued its session."""
    back: Related | None = None
    twin: bool = False
    """Whether the same content was published since it is there."""
    written: int = -1
    """CRC-32 of what its client published last on the topic."""
    proven: bool = False
    """Whether a subscriber has got that, so that the client may write to the topic."""
    copies: dict[ConnectionKey, int] = field(default_factory=dict)
    """How often subscribers got a message with its content."""


@dataclass(slots=True)
class Wills(Watch):
    """The wills of a server."""

    code = "wills"
    scope = Scope.BROKER
    looks_at = (Publish, Connect, Connack)

    armed: dict[ConnectionKey, StoredWill] = field(default_factory=dict)
    ended: dict[ConnectionKey, StoredWill] = field(default_factory=dict)
    topics: dict[str, list[ConnectionKey]] = field(default_factory=dict)
    """The connections with a will on a topic, those that have ended included."""
    by_client: dict[str, ConnectionKey] = field(default_factory=dict)
    """The last connection with a will, by Client Identifier."""
    readers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Clients that have got messages of one of the topics."""
    said: dict[str, int] = field(default_factory=dict)
    """When a client published last on one of the topics."""
    fresh: dict[ConnectionKey, bool] | None = None
    """Connections with a will that came since all were in doubt (`forget`); ``None`` while they never were."""
    unknown_ns: int = 0
    """Until when a will may come that is not known, since its CONNECT is not."""
    crowded: bool = False
    """Whether there were more wills than can be remembered."""

    def minds(self, will: Will) -> bool:
        """Topics with a will are what is looked at here, and not what is left alone."""
        return False

    def forget(self) -> None:
        """The content of any will may have been published."""
        for key in (*self.armed, *self.ended) if self.fresh is None else self.fresh:
            will = self.of(key)
            if will is not None:
                will.twin = True
        self.fresh = {}

    def forget_topic(self, topic: str) -> None:
        """What is open of a topic makes no difference."""

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Follow which connection has a will, and what is published to its topic."""
        if isinstance(packet, Publish):
            if packet.missing:
                self.torn_ns = at.timestamp_ns
            if at.topic is None:
                if at.from_client:
                    self.forget()
            elif at.topic in self.topics:
                self._said(packet, at.topic, at)
            return
        self.take(packet, at)
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

    def _said(self, packet: Publish, topic: str, at: RuleContext) -> None:
        """A client publishes on the topic of a will, or gets a message of it."""
        checksum = zlib.crc32(packet.payload)
        if at.from_client:
            self.said[topic] = at.timestamp_ns
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
        """The will of a connection, also of one that has ended."""
        if key is None:
            return None
        return self.armed.get(key) or self.ended.get(key)

    def phase_of(self, key: ConnectionKey, will: StoredWill, at: RuleContext) -> tuple[str, int]:
        """Its phase, and when its connection ended, before the end of the connection is known in full as well."""
        connection = at.connection_of(key)
        if will.phase != ARMED or connection is None or connection.history is None:
            return will.phase, will.ended_ns
        left = connection.history.client.disconnect
        if left is not None and not left.reason_code:
            is_reset = connection.closed_how == "reset" or connection.reset_after_fin
            return (OPEN if is_reset else DROPPED), left.timestamp_ns
        if connection.closed_ns:
            return (OPEN if will.delay_s else DUE), connection.closed_ns
        return ARMED, 0

    def alone(self, topic: str, checksum: int, at: RuleContext) -> tuple[ConnectionKey, StoredWill] | None:
        """The one will that a message with this content can be, apart from another one of its client that is armed.

        ``None`` where there are several, where the content may be of a PUBLISH, and where bytes are lost that may
        have held one.
        """
        keys = self.topics.get(topic, ())
        if self.crowded or len(keys) > MAX_SAME:
            return None
        found: tuple[ConnectionKey, StoredWill] | None = None
        again: list[StoredWill] = []
        for key in keys:
            will = self.of(key)
            if will is None or will.checksum != checksum:
                continue
            if self.phase_of(key, will, at)[0] == ARMED:
                again.append(will)
            elif found is None:
                found = key, will
            else:
                return None
        if found is None or any(one.client != found[1].client for one in again):
            return None
        will = found[1]
        if will.twin or any(one.twin for one in again) or at.timestamp_ns <= self.unknown_ns:
            return None
        if at.is_apart(will.capture) or self.waits_behind_a_hole(at):
            return None
        return found

    def ending(self, will: StoredWill, connection: Connection, at: RuleContext) -> tuple[str, int]:
        """The phase of a will when its connection has ended, and when it is due."""
        history, ended_ns = at.history, connection.closed_ns or at.timestamp_ns
        how = {connection.closed_how, None if connection.also_closed is None else connection.also_closed.how} - {None}
        if connection.closed_how not in ("fin", "reset") or at.client.gapped or history.client.malformed:
            return OPEN, 0
        left, told = history.client.disconnect, history.server.disconnect
        if left is not None and not left.reason_code:
            # After a reset nobody knows whether the server has read the DISCONNECT.
            return (DROPPED if how == {"fin"} and not connection.reset_after_fin else OPEN), 0
        if told is not None and told.reason_code in _TOLD_TO_GO:
            return OPEN, 0
        if will.delay_s and will.back_ns:
            # A new session ends the old one, whose will is due then; a new connection deletes it (5.0 MQTT-3.1.2-8).
            return (TAKEN_BACK if will.resumed else OPEN), ended_ns + will.delay_s * SECOND_NS
        seconds = min(will.delay_s, connection.session_expiry_interval or 0)
        return DUE, ended_ns + seconds * SECOND_NS

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """A connection ends: its will is dropped, or due."""
        Watch.closed(self, connection, at)
        connect, left = at.history.connect, at.history.client.disconnect
        if (connect is None or connect.missing) and (left is None or left.reason_code):
            self.unknown_ns = max(self.now_ns, at.timestamp_ns) + UNKNOWN_NS
        will = self.armed.pop(at.key, None)
        if will is None:
            return
        will.phase, will.due_ns = self.ending(will, connection, at)
        will.ended_ns = connection.closed_ns or at.timestamp_ns
        if left is not None and will.phase == DROPPED:
            will.ended_ns = left.timestamp_ns
        self.ended[at.key] = will
        if len(self.ended) > MAX_ENDED:
            key = next(iter(self.ended))
            self._remove(key, self.ended.pop(key))

    def _remove(self, key: ConnectionKey, will: StoredWill) -> None:
        """Forget a will."""
        if self.fresh is not None:
            self.fresh.pop(key, None)
        keys = self.topics.get(will.topic, [])
        if key in keys:
            keys.remove(key)
        if not keys:
            for table in (self.topics, self.readers, self.said):
                table.pop(will.topic, None)
        if self.by_client.get(will.client) == key:
            del self.by_client[will.client]


def summaries(block: Properties | None) -> dict[str, int]:
    """CRC-32 of the properties that a message takes from its will."""
    found = {}
    for name in KEPT:
        value = None if block is None else getattr(block, name)
        if value:
            found[name] = zlib.crc32(repr(value).encode("utf-8", "surrogatepass"))
    return found
