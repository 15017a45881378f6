import zlib
from dataclasses import dataclass, field

from mqttscope.lint.message_model import MAX_WAITING, SETTLE_NS, Messages, PublishedMessage
from mqttscope.lint.rules import V3_1, V3_1_1, V5, ConnectionKey, Findings, Related, Report, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule, filters_of, pairing_of, steady_match
from mqttscope.mqtt.packets import Publish
from mqttscope.session.connection import Connection

MAX_LOWER = 64
"""Maximum number of deliveries of one connection that wait for a copy with the right QoS."""


@dataclass(slots=True)
class MismatchedDelivery:
    """A delivery with a different QoS than expected."""

    sent: PublishedMessage
    qos: int
    expected: int
    filters: str
    packet: int
    frame: int
    timestamp_ns: int


@dataclass(slots=True)
class MismatchedDeliveries:
    """Mismatched deliveries of each connection, by topic and checksum, oldest first."""

    by_connection: dict[ConnectionKey, dict[tuple[str, int], MismatchedDelivery]] = field(default_factory=dict)


class DeliveryQosWrong(DeliveryRule):
    """A message is delivered with a QoS other than the lower of published and granted QoS.

    A lower QoS loses messages that both sides wanted delivered reliably; a higher one causes unnecessary
    acknowledgements.  With several matching subscriptions there may be one copy for each, and one copy must have the
    highest granted QoS.  So the rule waits ``timeout`` seconds for other copies before it reports; they may also come
    from another publisher that was not captured.

    Instead, send with the lower of the published QoS and the highest granted QoS.
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
    Memory = MismatchedDeliveries

    good = examples("""
        QoS as granted and as published
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +2 > publish a other; @1 < publish a other
            +12 @1 > pingreq
        one copy for each subscription
            @1 opened client=c2; @1 > subscribe 1 a/#:0 a:1; @1 < suback 1 0 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +12 @1 > pingreq
        the copy with the right QoS arrives after the publication was discarded
            @1 opened client=c2; @1 > subscribe 1 a/#:0 a:1; @1 < suback 1 0 1; opened; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5; +2 > publish a 0
            for 1..127: > publish a {n}
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; +12 @1 > pingreq
        also from another publisher that was not captured
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
        QoS 0 only, with two matching subscriptions
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
        """Note a delivery with a different QoS, and drop it when a copy with the right QoS arrives."""
        memory: MismatchedDeliveries = at.memory(self)
        others = memory.by_connection.get(at.key)
        if others and at.topic is not None:
            # The publication may have been discarded by now: topic and payload alone identify a copy.
            name = at.topic, zlib.crc32(packet.payload)
            waiting = others.get(name)
            if waiting is not None and waiting.expected == packet.qos:
                del others[name]
        pairing = pairing_of(packet, at)
        if pairing is None or pairing.retained or packet.qos > 2:
            return None
        sent = pairing.candidates[-1]
        if any(other.qos != sent.qos or other.crowded for other in pairing.candidates):
            return None
        match = at.history.subscriptions.match(sent.topic)
        expected = min(sent.qos, match.granted_qos)
        if packet.qos == expected:
            return None
        name = sent.topic, sent.checksum
        if steady_match(sent.topic, pairing.candidates[0].timestamp_ns - SETTLE_NS, at) is None:
            return None
        if any(subscription.is_shared for subscription in match.subscriptions) and len(match.subscriptions) > 1:
            return None
        if others is None:
            if len(memory.by_connection) >= MAX_WAITING:
                return None
            others = memory.by_connection[at.key] = {}
        if name in others or len(others) >= MAX_LOWER:
            return None
        if at.client_name in sent.copies:
            return None  # the client already received a copy
        filters = filters_of(match.subscriptions)
        place = at.number, at.event.frame, at.timestamp_ns
        others[name] = MismatchedDelivery(sent, packet.qos, expected, filters, *place)
        at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Report mismatched deliveries that had no matching copy in time."""
        memory: MismatchedDeliveries = at.memory(self)
        others = memory.by_connection.get(at.key, {})
        reports = []
        for name, delivery in list(others.items()):
            due_ns = delivery.timestamp_ns + self.nanoseconds("timeout")
            if due_ns > at.timestamp_ns:
                at.ask(self, due_ns)
                break
            del others[name]
            if not at.model(Messages).hides(delivery.sent.topic) and not delivery.sent.refused:
                reports.append(self._judge(delivery, at))
        if not others:
            memory.by_connection.pop(at.key, None)
        return reports

    def _judge(self, delivery: MismatchedDelivery, at: RuleContext) -> Report:
        sent = delivery.sent
        return self.report(
            "",
            f"message on {sent.topic!r} published with QoS {sent.qos} was delivered to {at.client_name!r} "
            f"({delivery.filters}) with QoS {delivery.qos} instead of {delivery.expected}",
            related=(Related.to("the message as published", sent), Related.to("the message as delivered", delivery)),
            sender=self.sender,
            overdue=True,
            topic=sent.topic,
        )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Discard deliveries that are not due yet."""
        memory: MismatchedDeliveries = at.memory(self)
        memory.by_connection.pop(at.key, None)
        return None
