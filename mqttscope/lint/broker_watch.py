"""Which facts about a server's memory a rule can rely on: the base of the rules about a server.

A rule with the scope of a broker combines what one client published with what another one received.  What it remembers
is a fact only while nothing outside the capture can have changed it.  A `BrokerWatch` therefore follows the connections
of the server, for one rule (`BrokerRule`) or as a model that several rules read:

* bytes of a client that are missing from the capture may contain anything: all facts are forgotten;
* a will may be published at any time while it is armed: facts about its topic are forgotten;
* a server that restarts may lose its memory.  A connection that stays open proves that it did not restart: such a
  witness is needed from before the fact until the finding;
* facts of another capture may be about another server with the same address: findings from them are heuristic.

A rule with such a memory of its own is a `BrokerRule`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mqttscope.events import GapEvent
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.model import Model
from mqttscope.lint.rule import V3_1, Findings, Rule
from mqttscope.mqtt import Connack, Connect, ControlPacket, Malformed, Puback, Pubcomp, Publish, Pubrec, Unparsed, Will
from mqttscope.session.connection import C2S, Connection

MAX_TOPICS = 10_000
"""Maximum number of topics remembered per server; the one with the oldest publication is dropped first."""
MAX_WITNESSES = 1_000
"""Maximum number of open connections that count as witnesses against a restart of the server."""
MAX_UNANSWERED = 1_000
"""Maximum number of unanswered messages remembered; when exceeded, the oldest never counts as accepted."""
MAX_WILLS = 10_000
"""Maximum number of topics of retained wills; beyond it, nothing of the server is judged."""


TORN_NS = 600 * SECOND_NS
"""How long a packet of another client may have been among missing bytes."""


@dataclass(slots=True)
class BrokerWatch(Model):
    """The connections of one server."""

    now_ns: int = 0
    """Time of the last packet."""
    witnesses: dict[ConnectionKey, int] = field(default_factory=dict)
    """Open connections, with the time of their first sight, oldest first."""
    wills: dict[str, int] = field(default_factory=dict)
    """Topics of retained wills, with the number of connections that hold or delayed one."""
    blind: bool = False
    """Whether there were more wills than can be remembered."""
    torn_ns: int = -TORN_NS
    """When bytes were last missing, in either direction of any connection."""
    unanswered: dict[tuple[ConnectionKey, int], str] = field(default_factory=dict)
    """Topics of messages with QoS above 0 that the server has not answered, by connection and packet identifier."""

    def forget(self) -> None:
        """Discard everything learned."""
        raise NotImplementedError

    def forget_topic(self, topic: str) -> None:
        """Discard everything learned about this topic."""
        raise NotImplementedError

    def accept(self, topic: str, now_ns: int) -> None:
        """Handle that the server has acknowledged in full a message of this topic."""

    def wait_for_answer(self, at: RuleContext, packet: Publish, topic: str) -> None:
        """Remember a PUBLISH: it is evidence about its topic only once the server has accepted it."""
        if packet.packet_identifier is not None:
            self.unanswered[at.key, packet.packet_identifier] = topic
            forget_oldest(self.unanswered, MAX_UNANSWERED)

    def take_answer(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> None:
        """Handle an answer of the server: PUBACK and PUBCOMP accept, Reason Codes from 0x80 refuse."""
        refused = (packet.reason_code or 0) >= 0x80
        if at.from_client or (isinstance(packet, Pubrec) and not refused):
            return
        topic = self.unanswered.pop((at.key, packet.packet_identifier), None)
        if topic is None:
            return
        if refused:
            self.forget_topic(topic)
        else:
            self.accept(topic, at.timestamp_ns)

    def pass_time(self, now_ns: int) -> None:
        """Advance the time.  If it runs backwards, the clock was set or another capture begins: forget everything."""
        if now_ns < self.now_ns - SECOND_NS:
            self.forget()
            self.witnesses.clear()
        self.now_ns = now_ns

    def arm(self, topic: str) -> None:
        """A will of this topic may be published from now on."""
        self.forget_topic(topic)
        if topic in self.wills or len(self.wills) < MAX_WILLS:
            self.wills[topic] = self.wills.get(topic, 0) + 1
        else:
            self.blind = True

    def disarm(self, topic: str) -> None:
        """Handle that a will of this topic was published or can no longer be."""
        self.forget_topic(topic)
        remaining = self.wills.get(topic, 0) - 1
        if remaining > 0:
            self.wills[topic] = remaining
        else:
            self.wills.pop(topic, None)

    def hides(self, topic: str) -> bool:
        return self.blind or topic in self.wills

    @property
    def has_room(self) -> bool:
        return not self.blind

    def waits_behind_a_hole(self, at: RuleContext) -> bool:
        """Whether the server acknowledged bytes of a client that are missing from the capture; others may follow."""
        for key in self.witnesses:
            history = at.history_of(key)
            if history is not None and history.behind_a_hole:
                return True
        return False

    def witnessed(self, since_ns: int) -> bool:
        """Whether a connection that is still open proves that the server has not restarted since."""
        return bool(self.witnesses) and next(iter(self.witnesses.values())) <= since_ns

    def follows_will(self, will: Will) -> bool:
        """Whether the will may change what is remembered about its topic."""
        return will.will_retain

    def take(self, packet: ControlPacket, at: RuleContext) -> None:
        """Handle a CONNECT, a CONNACK or an answer to a PUBLISH, and the time of any packet."""
        self.pass_time(at.timestamp_ns)
        if packet.missing:
            self.torn_ns = at.timestamp_ns
        if isinstance(packet, Connect):
            will = packet.will
            if at.history.connect is None and will is not None and self.follows_will(will):
                self.arm(will.will_topic)
        elif isinstance(packet, Connack):
            if not packet.reason_code:
                self._see(at)
        elif self.unanswered and isinstance(packet, (Puback, Pubrec, Pubcomp)):
            self.take_answer(packet, at)

    def _see(self, at: RuleContext) -> None:
        if at.key not in self.witnesses and len(self.witnesses) < MAX_WITNESSES:
            self.witnesses[at.key] = at.timestamp_ns

    def opened(self, connection: Connection, at: RuleContext) -> None:
        """Count a connection from before the capture as a witness from its first frame on."""
        if not connection.handshake_seen and connection.transport != "tls":
            self._see(at)

    def is_torn(self, at: RuleContext) -> bool:
        """Whether bytes were missing recently: they may have contained a packet that seems not to have been sent."""
        return at.timestamp_ns < self.torn_ns + TORN_NS

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        """Handle missing bytes: if a client sent them, they may have contained anything."""
        self.torn_ns = at.timestamp_ns
        if event.direction is C2S:
            self.forget()

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        """Handle bytes outside any packet: if a client sent them, they may mean anything."""
        if at.direction is C2S and unparsed.reason != "proxy_header":
            self.forget()

    def damaged(self, packet: Malformed, at: RuleContext) -> None:
        """Handle a packet that could not be read completely: one of a client may have contained anything."""
        self.torn_ns = at.timestamp_ns
        if at.direction is C2S and not packet.complete:
            self.forget()

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of a connection: its will may be published, and unacknowledged messages may be lost."""
        self.witnesses.pop(at.key, None)
        if connection.transport == "tls" and not connection.decrypted:
            return
        connect, disconnect = at.history.connect, at.history.client.disconnect
        orderly = disconnect is not None and not disconnect.reason_code
        if connect is None:
            if not orderly and (connection.gaps or not connection.handshake_seen):
                self.forget()  # its will is unknown
        elif connect.will is not None and self.follows_will(connect.will):
            block = connect.will.properties
            if orderly or block is None or not block.will_delay_interval:
                self.disarm(connect.will.will_topic)
            else:
                self.forget_topic(connect.will.will_topic)  # it is published later, at an unknown time
        for exchange in at.client.exchanges.values():
            if exchange.kind == "publish" and exchange.topic is not None:
                self.forget_topic(exchange.topic)
                self.unanswered.pop((at.key, exchange.packet_identifier), None)


class BrokerRule(Rule):
    """A rule with a `BrokerWatch` as its ``Memory``; it calls `watch` for each CONNECT, CONNACK and PUBLISH."""

    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY

    def watch(self, packet: Any, at: RuleContext) -> BrokerWatch:
        """The memory, updated with the packet."""
        memory: BrokerWatch = at.memory(self)
        memory.take(packet, at)
        return memory

    def check_opened(self, connection: Connection, at: RuleContext) -> Findings:
        at.memory(self).opened(connection, at)
        return None

    def check_gap(self, event: GapEvent, at: RuleContext) -> Findings:
        at.memory(self).gap(event, at)
        return None

    def check_unparsed(self, unparsed: Unparsed, at: RuleContext) -> Findings:
        at.memory(self).unparsed(unparsed, at)
        return None

    def check_damaged(self, packet: Malformed, at: RuleContext) -> Findings:
        at.memory(self).damaged(packet, at)
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        at.memory(self).closed(connection, at)
        return None

    def doubt(self, at: RuleContext, *, doubtful: bool = False) -> dict[str, Any]:
        """Severity and confidence of a report: lowered if something other than a mistake may explain it."""
        return doubt(at, doubtful=doubtful)


def doubt(at: RuleContext, *, doubtful: bool = False) -> dict[str, Any]:
    """Severity and confidence of a report about what a server keeps: lowered if it may not be a mistake."""
    if at.version is V3_1:
        # In 3.1 the server keeps retained messages "if possible".
        return {"severity": Severity.INFO, "confidence": Confidence.HEURISTIC if doubtful else None}
    if doubtful:
        return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}
    return {}


def expires_or_retained(packet: Publish) -> bool:
    """Whether a message has a Message Expiry Interval, or is retained and may have had one."""
    block = packet.properties
    return packet.retain or (block is not None and bool(block.items) and block.message_expiry_interval is not None)
