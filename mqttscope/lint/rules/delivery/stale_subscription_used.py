import zlib

from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Related, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import ClientSubscription, Match

SETTLE_NS = SECOND_NS
"""Time after the SUBACK during which messages may still follow the old subscription."""
PAIRS = 3
"""Consecutive pairs of equal messages that prove double delivery."""


class StaleSubscriptionUsed(DeliveryRule):
    """A subscription was replaced, but the old one is still in effect.

    A second SUBSCRIBE with the same Topic Filter replaces the first: from then on its QoS and its Subscription
    Identifier apply, and there is still only one subscription.  The old identifier, the old QoS, or two copies of each
    message show that the server kept both.  Messages that may be in flight are excluded.  So are all messages of the
    first second after the SUBACK, since some parts of the server may learn of the change later.  Within ``grace``
    seconds of the SUBACK the finding is heuristic.

    Instead, replace the subscription together with its options.
    """

    code = "DLV208"
    scope = Scope.SESSION
    statements = {V5: {"MQTT-3.8.4-3": ""}, V3_1_1: {"MQTT-3.8.4-3": ""}}
    signs = ("replaced",)
    settings = {"grace": 5}
    models = (SessionModel,)

    good = examples("""
        the new identifier and QoS
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2; < suback 11 0; < publish a x subscription_identifier=2
        sent before the SUBACK
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2
            < publish a x qos=1 id=1 subscription_identifier=1 & suback 11 0; > puback 1
        part of the server applies the SUBSCRIBE shortly after the SUBACK
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2; < suback 11 0
            +0.5 < publish a x qos=1 id=1 subscription_identifier=1; > puback 1
        a resent message
            opened 3.1.1; > subscribe 10 a:1; < suback 10 1; < publish a qos=1 id=1; > subscribe 11 a:0; < suback 11 0
            +9 < publish a dup qos=1 id=1; > puback 1
        each message once
            opened 3.1.1; > subscribe 10 a:0; < suback 10 0; > subscribe 11 a:0; < suback 11 0
            < publish a 1 & publish a 2
        two messages with the same content
            opened 3.1.1; > subscribe 10 a:0; < suback 10 0; > subscribe 11 a:0; < suback 11 0; < for 1..6: publish a 1
        the replacing SUBSCRIBE was refused
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2; < suback 11 0x97
            < publish a x qos=1 id=1 subscription_identifier=1; > puback 1
    """)
    bad = examples("""
        old identifier and old QoS
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2; < suback 11 0
            +2 < publish a x qos=1 id=1 subscription_identifier=1 !properties.subscription_identifier; > puback 1
        old QoS
            opened 3.1.1; > subscribe 10 a:1; < suback 10 1; > subscribe 11 a:0; < suback 11 0
            +6 < publish a qos=1 id=1 !qos; > puback 1
        two copies of each message, in 3.1
            opened 3.1; > subscribe 10 a:0; < suback 10 0; > subscribe 11 a:0; < suback 11 0
            +6 < publish a 1 & publish a 1 & publish a 2 & publish a 2 & publish a 3 & publish a 3 !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Check messages that match a replaced subscription."""
        topic = at.topic
        if topic is None:
            return None
        match = session_match(topic, at)
        if not match.replaces or packet.dup or not match.known:
            return None
        if packet.packet_identifier is not None and at.sender.running(packet.packet_identifier, "publish"):
            return None
        carried = packet.properties.subscription_identifier if packet.properties is not None else ()
        for row in match.subscriptions:
            if row.granted is None or row.is_shared or at.timestamp_ns - row.granted_ns < SETTLE_NS:
                continue
            for number in row.formerly:
                if number in carried and not self._is_identifier_explained(number, row, match):
                    old = f"its old Subscription Identifier {number}"
                    return self._stale(row, "properties.subscription_identifier", old, at)
            before = row.replaced
            if before is None or before.ended_ns is not None:
                continue
            if match.granted_qos < packet.qos <= before.qos and not self._is_qos_explained(packet.qos, row, match):
                return self._stale(row, "qos", f"its old QoS {before.qos}", at)
            if len(match.subscriptions) == 1 and not match.ended and self._is_doubled(packet, row, at):
                return self._stale(row, "", "the old one", at)
        return None

    def _stale(self, subscription: ClientSubscription, field: str, remnant: str, at: RuleContext) -> Findings:
        early = at.timestamp_ns - subscription.granted_ns <= self.nanoseconds("grace")
        still = "is still in effect" if field else "still exists: each message arrives twice"
        return self.report(
            field,
            f"subscription {subscription.topic_filter!r} of {at.client_name!r} was replaced, but {remnant} {still}",
            confidence=Confidence.HEURISTIC if early else Confidence.LIKELY,
            related=(Related.to("the SUBSCRIBE that replaced it", subscription),),
        )

    def _is_identifier_explained(self, number: int, subscription: ClientSubscription, match: Match) -> bool:
        """Whether another subscription explains the identifier."""
        return number in match.identifiers or any(
            other.subscription_identifier == number or number in other.formerly
            for other in (*match.subscriptions, *match.ended)
            if other.topic_filter != subscription.topic_filter
        )

    def _is_qos_explained(self, qos: int, subscription: ClientSubscription, match: Match) -> bool:
        return bool(match.ended or match.extended) or any(
            qos <= max(other.qos, other.former_qos)
            for other in match.subscriptions
            if other.topic_filter != subscription.topic_filter
        )

    def _is_doubled(self, packet: Publish, subscription: ClientSubscription, at: RuleContext) -> bool:
        """Whether this message completes the first three pairs since the SUBACK, each with different content."""
        if packet.missing:
            return False
        seen: list[tuple[int, int]] = []
        for sent in reversed(at.party.recent):
            if sent.timestamp_ns <= subscription.granted_ns or len(seen) >= 2 * PAIRS:
                break
            if sent.topic == at.topic:
                seen.append((sent.checksum, sent.length))
        if len(seen) != 2 * PAIRS - 1:
            return False
        seen.insert(0, (zlib.crc32(packet.payload), len(packet.payload)))
        return len(set(seen[::2])) == PAIRS and seen[::2] == seen[1::2]
