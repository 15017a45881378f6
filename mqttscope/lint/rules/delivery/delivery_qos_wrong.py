import zlib
from dataclasses import dataclass, field

from mqttscope.lint.message_model import MAX_WAITING, SETTLE_NS, Messages, Sent
from mqttscope.lint.rules import V3_1, V3_1_1, V5, ConnectionKey, Findings, Related, Report, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule, filters_of, paired, steady_match
from mqttscope.mqtt.packets import Publish
from mqttscope.session.connection import Connection

MAX_LOWER = 64
"""Deliveries of one connection that may be followed by one with the right QoS."""


@dataclass(slots=True)
class Other:
    """A delivery with another QoS than expected."""

    sent: Sent
    qos: int
    expected: int
    filters: str
    packet: int
    frame: int
    timestamp_ns: int


@dataclass(slots=True)
class Others:
    """Those of each connection, by topic and checksum, in the order of their times."""

    by_connection: dict[ConnectionKey, dict[tuple[str, int], Other]] = field(default_factory=dict)


class DeliveryQosWrong(DeliveryRule):
    """A message is delivered with another QoS than the lower one of published and granted.

    A lower QoS loses messages that both sides wanted to be safe; a higher one makes acknowledgments that nobody asked
    for.  With several matching subscriptions there may be a copy for each, and one of them has to have the highest
    granted QoS.  So the rule waits for other copies before it says anything: they may also be those of another
    publisher, whom nobody captured.

    Instead, send with the lower one of the published QoS and the highest granted one.
    """

    code = "DLV411"
    statements = {
        V5: {"MQTT-3.3.4-2": ""},
        V3_1_1: {"MQTT-3.3.5-1": ""},
        V3_1: {"V31-PUBLISH-retained-original-qos": ""},
    }
    also = {V5: ("MQTT-3.8.4-8",), V3_1_1: ("MQTT-3.8.4-6",)}
    settings = {"timeout": 10}
    models = (Messages,)
    Memory = Others

    good = examples("""
        as granted, and as published
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +2 > publish a other; @1 < publish a other
            +12 @1 > pingreq
        a copy for each subscription
            @1 opened client=c2; @1 > subscribe 1 a/#:0 a:1; @1 < suback 1 0 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +12 @1 > pingreq
        the copy with the right QoS comes when the message is forgotten
            @1 opened client=c2; @1 > subscribe 1 a/#:0 a:1; @1 < suback 1 0 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; +2 > publish a 0
            for 1..127: > publish a {n}
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +12 @1 > pingreq
        of another publisher too, who was not captured
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +12 @1 > pingreq
        retained
            opened; +2 > publish a 21.5 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21.5 retain; +12 @1 > pingreq
        the subscription has changed since
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 > subscribe 2 a:0; @1 < suback 2 0; @1 < publish a 21.5; +12 @1 > pingreq
        the same payload with different QoS
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; > publish a 21.5; @1 < publish a 21.5; +12 @1 > pingreq
    """)
    bad = examples("""
        QoS 0 of two that match
            @1 opened client=c2; @1 > subscribe 1 a/#:0 a:1; @1 < suback 1 0 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; +12 @1 > pingreq !!
        lower than published and granted, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; +12 @1 > pingreq !!
        higher than published
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +12 @1 > pingreq !!
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Note a delivery with another QoS, and forget it where one with the right QoS comes."""
        memory: Others = at.memory(self)
        others = memory.by_connection.get(at.key)
        if others and at.topic is not None:
            # The message may be forgotten by now: a copy is one by topic and payload alone.
            name = at.topic, zlib.crc32(packet.payload)
            waiting = others.get(name)
            if waiting is not None and waiting.expected == packet.qos:
                del others[name]
        found = paired(packet, at)
        if found is None or found.retained or packet.qos > 2:
            return None
        sent = found.candidates[-1]
        if any(one.qos != sent.qos or one.crowded for one in found.candidates):
            return None
        match = at.history.subscriptions.match(sent.topic)
        expected = min(sent.qos, match.granted_qos)
        if packet.qos == expected:
            return None
        name = sent.topic, sent.checksum
        if steady_match(sent.topic, found.candidates[0].timestamp_ns - SETTLE_NS, at) is None:
            return None
        if any(one.is_shared for one in match.subscriptions) and len(match.subscriptions) > 1:
            return None
        if others is None:
            if len(memory.by_connection) >= MAX_WAITING:
                return None
            others = memory.by_connection[at.key] = {}
        if name in others or len(others) >= MAX_LOWER:
            return None
        if at.client_name in sent.copies:
            return None  # it has got one before
        filters = filters_of(match.subscriptions)
        others[name] = Other(sent, packet.qos, expected, filters, at.number, at.event.frame, at.timestamp_ns)
        at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge those that no other delivery has followed."""
        memory: Others = at.memory(self)
        others = memory.by_connection.get(at.key, {})
        found = []
        for name, one in list(others.items()):
            due_ns = one.timestamp_ns + self.nanoseconds("timeout")
            if due_ns > at.timestamp_ns:
                at.ask(self, due_ns)
                break
            del others[name]
            if not at.model(Messages).hides(one.sent.topic) and not one.sent.refused:
                found.append(self._judge(one, at))
        if not others:
            memory.by_connection.pop(at.key, None)
        return found

    def _judge(self, one: Other, at: RuleContext) -> Report:
        sent = one.sent
        return self.report(
            "",
            f"message on {sent.topic!r} published with QoS {sent.qos} was delivered to {at.client_name!r} "
            f"({one.filters}) with QoS {one.qos}, not {one.expected}",
            related=(Related.to("the message as published", sent), Related.to("the message as delivered", one)),
            sender=self.sender,
            overdue=True,
            topic=sent.topic,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """What was due by now has been judged."""
        memory: Others = at.memory(self)
        memory.by_connection.pop(at.key, None)
        return None
