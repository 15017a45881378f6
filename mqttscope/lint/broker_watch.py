"""What rules about a server share: which facts about its memory can be relied on, and what the capture does not show.

A rule with the scope of a broker puts together what one client published and what another one got.  What it remembers
is a fact only as long as nothing can have changed it out of sight, so a `Watch` follows the connections of the server,
for one rule (`BrokerRule`) or as a model that several rules read:

* bytes that a client sent and the capture does not have may hold anything: all facts are forgotten;
* a will may be published at any time while it is armed, so its topic is left alone;
* a server that restarts may lose what it held.  A connection that is open all the time proves that it did not: there
  has to be such a witness from before the fact until the finding;
* facts of another capture may be of another server with the same address: what rests on them is heuristic.

A rule that has such a memory of its own is a `BrokerRule`.
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
"""Topics that a rule remembers of a server; the one published to longest ago is dropped first, and no longer judged."""
MAX_WITNESSES = 1_000
"""Open connections that are followed as witnesses that a server did not restart; later ones prove nothing."""
MAX_UNANSWERED = 1_000
"""Messages whose answers are waited for; one that was published longer ago is never taken for accepted."""
MAX_WILLS = 10_000
"""Topics of retained wills; beyond them nothing of the server is judged any more."""


TORN_NS = 600 * SECOND_NS
"""How long after bytes were missing a packet of another client may have been in them."""


@dataclass(slots=True)
class Watch(Model):
    """The connections of one server."""

    now_ns: int = 0
    """Time of the last packet that was taken note of."""
    witnesses: dict[ConnectionKey, int] = field(default_factory=dict)
    """Open connections in order of the times since when they were seen."""
    wills: dict[str, int] = field(default_factory=dict)
    """Topics of retained wills, with the number of connections that hold one, and of wills that are delayed."""
    blind: bool = False
    """Whether there were more of them than can be remembered."""
    torn_ns: int = -TORN_NS
    """When bytes were missing last, in either direction of any connection."""
    unanswered: dict[tuple[ConnectionKey, int], str] = field(default_factory=dict)
    """Topics of messages with QoS above 0 that rest on an answer of the server, by their packet identifier."""

    def forget(self) -> None:
        """Nothing that was learned so far is certain any more."""
        raise NotImplementedError

    def forget_topic(self, topic: str) -> None:
        """Nothing that was learned of this topic is certain any more."""
        raise NotImplementedError

    def accept(self, topic: str, now_ns: int) -> None:
        """The server has acknowledged in full what was published of this topic."""

    def wait_for_answer(self, at: RuleContext, packet: Publish, topic: str) -> None:
        """A message is evidence about its topic only when the server has accepted it."""
        if packet.packet_identifier is not None:
            self.unanswered[at.key, packet.packet_identifier] = topic
            forget_oldest(self.unanswered, MAX_UNANSWERED)

    def take_answer(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> None:
        """The server has answered: PUBACK and PUBCOMP accept, a Reason Code from 0x80 on refuses."""
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
        """Time continues.  When it runs backwards, a clock was set or another capture begins."""
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
        """It cannot come any more, or has come."""
        self.forget_topic(topic)
        left = self.wills.get(topic, 0) - 1
        if left > 0:
            self.wills[topic] = left
        else:
            self.wills.pop(topic, None)

    def hides(self, topic: str) -> bool:
        return self.blind or topic in self.wills

    @property
    def has_room(self) -> bool:
        return not self.blind

    def waits_behind_a_hole(self, at: RuleContext) -> bool:
        """Whether the server has acknowledged bytes of some client that the capture has not shown: nor what follows."""
        for key in self.witnesses:
            history = at.history_of(key)
            if history is not None and history.behind_a_hole:
                return True
        return False

    def witnessed(self, since_ns: int) -> bool:
        """Whether a connection that is still open proves that the server has not restarted since."""
        return bool(self.witnesses) and next(iter(self.witnesses.values())) <= since_ns

    def minds(self, will: Will) -> bool:
        """Whether the will may change what is remembered of its topic."""
        return will.will_retain

    def take(self, packet: ControlPacket, at: RuleContext) -> None:
        """Take note of a CONNECT, a CONNACK or an answer to a PUBLISH, and of the time of every packet."""
        self.pass_time(at.timestamp_ns)
        if packet.missing:
            self.torn_ns = at.timestamp_ns
        if isinstance(packet, Connect):
            will = packet.will
            if at.history.connect is None and will is not None and self.minds(will):
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
        """A connection that was open before the capture is a witness from its first frame on."""
        if not connection.handshake_seen and connection.transport != "tls":
            self._see(at)

    def is_torn(self, at: RuleContext) -> bool:
        """Whether bytes were missing lately, so that they may hold a packet which seems never to have been sent."""
        return at.timestamp_ns < self.torn_ns + TORN_NS

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        """What a client sent there may have been anything."""
        self.torn_ns = at.timestamp_ns
        if event.direction is C2S:
            self.forget()

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        """The same of bytes that hold no packet."""
        if at.direction is C2S and unparsed.reason != "proxy_header":
            self.forget()

    def damaged(self, found: Malformed, at: RuleContext) -> None:
        """The same of a packet that could not be read to its end."""
        self.torn_ns = at.timestamp_ns
        if at.direction is C2S and not found.complete:
            self.forget()

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """A connection ends: its will may be published, and what the server has not acknowledged may be lost."""
        self.witnesses.pop(at.key, None)
        if connection.transport == "tls" and not connection.decrypted:
            return
        connect, left = at.history.connect, at.history.client.disconnect
        orderly = left is not None and not left.reason_code
        if connect is None:
            if not orderly and (connection.gaps or not connection.handshake_seen):
                self.forget()  # its will is not known
        elif connect.will is not None and self.minds(connect.will):
            block = connect.will.properties
            if orderly or block is None or not block.will_delay_interval:
                self.disarm(connect.will.will_topic)
            else:
                self.forget_topic(connect.will.will_topic)  # it comes later, nobody knows when
        for one in at.client.exchanges.values():
            if one.kind == "publish" and one.topic is not None:
                self.forget_topic(one.topic)
                self.unanswered.pop((at.key, one.packet_identifier), None)


class BrokerRule(Rule):
    """A rule whose ``Memory`` is a `Watch`, and which calls `watch` for each CONNECT, CONNACK and PUBLISH it gets."""

    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY

    def watch(self, packet: Any, at: RuleContext) -> Watch:
        """The memory, after it has taken note of the packet."""
        memory: Watch = at.memory(self)
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

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        at.memory(self).damaged(found, at)
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        at.memory(self).closed(connection, at)
        return None

    def doubt(self, at: RuleContext, *, doubtful: bool = False) -> dict[str, Any]:
        """Severity and confidence for a report: lowered where something else than a mistake may explain it."""
        return doubt(at, doubtful=doubtful)


def doubt(at: RuleContext, *, doubtful: bool = False) -> dict[str, Any]:
    """Severity and confidence for a report about what a server keeps, lowered where that need not be a mistake."""
    if at.version is V3_1:
        # There the server keeps retained messages "if possible".
        return {"severity": Severity.INFO, "confidence": Confidence.HEURISTIC if doubtful else None}
    if doubtful:
        return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}
    return {}


def expires_or_retained(packet: Publish) -> bool:
    """Whether a message has an interval after which it expires, or is one that may have had it."""
    block = packet.properties
    return packet.retain or (block is not None and bool(block.items) and block.message_expiry_interval is not None)
