import zlib

from mqttscope.lint.finding import Scope
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Related, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt.packets import Publish
from mqttscope.session.matching import Match, Subscribed

SETTLE_NS = SECOND_NS
"""How long after the SUBACK a message may still be one that the server took before."""
PAIRS = 3
"""Messages that came twice in a row before it counts as two copies of each."""


class StaleSubscriptionUsed(DeliveryRule):
    """A subscription was replaced, but what it asked for before is still in effect.

    A second SUBSCRIBE with the same Topic Filter replaces the first: its QoS and its Subscription Identifier count from
    then on, and there is still one subscription.  The old identifier, the old QoS, or each message in two copies show
    that the server kept both.  Messages that were under way are left out as far as a capture can tell, all of the first
    second after the SUBACK among them: the parts of a server learn of it one after the other.  Within ``grace`` seconds
    of the SUBACK the finding is a guess.

    Instead, replace the subscription and its options.
    """

    code = "DLV208"
    scope = Scope.SESSION
    statements = {V5: {"MQTT-3.8.4-3": ""}, V3_1_1: {"MQTT-3.8.4-3": ""}}
    signs = ("replaced",)
    settings = {"grace": 5}
    models = (SessionModel,)

    good = examples("""
        the new ones
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2; < suback 11 0; < publish a x subscription_identifier=2
        sent before the SUBACK
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2
            < publish a x qos=1 id=1 subscription_identifier=1 & suback 11 0; > puback 1
        a part of the server learns of the SUBSCRIBE a moment after the SUBACK
            opened; > subscribe 10 a:1 subscription_identifier=1; < suback 10 1
            > subscribe 11 a:0 subscription_identifier=2; < suback 11 0
            +0.5 < publish a x qos=1 id=1 subscription_identifier=1; > puback 1
        a message sent again
            opened 3.1.1; > subscribe 10 a:1; < suback 10 1; < publish a qos=1 id=1; > subscribe 11 a:0; < suback 11 0
            +9 < publish a dup qos=1 id=1; > puback 1
        each message once
            opened 3.1.1; > subscribe 10 a:0; < suback 10 0; > subscribe 11 a:0; < suback 11 0
            < publish a 1 & publish a 2
        two messages with the same content
            opened 3.1.1; > subscribe 10 a:0; < suback 10 0; > subscribe 11 a:0; < suback 11 0; < for 1..6: publish a 1
        the SUBSCRIBE that should replace it was refused
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
        """Only for topics of subscriptions that were replaced."""
        topic = at.topic
        if topic is None:
            return None
        found = session_match(topic, at)
        if not found.replaces or packet.dup or not found.known:
            return None
        if packet.packet_identifier is not None and at.sender.running(packet.packet_identifier, "publish"):
            return None
        carried = packet.properties.subscription_identifier if packet.properties is not None else ()
        for one in found.subscriptions:
            if one.granted is None or one.is_shared or at.timestamp_ns - one.granted_ns < SETTLE_NS:
                continue
            for number in one.formerly:
                if number in carried and not self._is_of_another(number, one, found):
                    old = f"its old Subscription Identifier {number}"
                    return self._stale(one, "properties.subscription_identifier", old, at)
            before = one.replaced
            if before is None or before.ended_ns is not None:
                continue
            if found.granted_qos < packet.qos <= before.qos and not self._has_another(packet.qos, one, found):
                return self._stale(one, "qos", f"its old QoS {before.qos}", at)
            if len(found.subscriptions) == 1 and not found.ended and self._comes_twice(packet, one, at):
                return self._stale(one, "", "the old one", at)
        return None

    def _stale(self, one: Subscribed, field: str, what: str, at: RuleContext) -> Findings:
        early = at.timestamp_ns - one.granted_ns <= self.nanoseconds("grace")
        still = "is still in effect" if field else "is still there: each message comes twice"
        return self.report(
            field,
            f"subscription {one.topic_filter!r} of {at.client_name!r} was replaced, but {what} {still}",
            confidence=Confidence.HEURISTIC if early else Confidence.LIKELY,
            related=(Related.to("the SUBSCRIBE that replaced it", one),),
        )

    def _is_of_another(self, number: int, one: Subscribed, found: Match) -> bool:
        """Whether another subscription explains the identifier."""
        return number in found.identifiers or any(
            other.subscription_identifier == number or number in other.formerly
            for other in (*found.subscriptions, *found.ended)
            if other.topic_filter != one.topic_filter
        )

    def _has_another(self, qos: int, one: Subscribed, found: Match) -> bool:
        return bool(found.ended or found.extended) or any(
            qos <= max(other.qos, other.former_qos)
            for other in found.subscriptions
            if other.topic_filter != one.topic_filter
        )

    def _comes_twice(self, packet: Publish, one: Subscribed, at: RuleContext) -> bool:
        """Whether this message ends the first three pairs since the SUBACK, each of its own content."""
        if packet.missing:
            return False
        seen: list[tuple[int, int]] = []
        for sent in reversed(at.party.recent):
            if sent.timestamp_ns <= one.granted_ns or len(seen) >= 2 * PAIRS:
                break
            if sent.topic == at.topic:
                seen.append((sent.checksum, sent.length))
        if len(seen) != 2 * PAIRS - 1:
            return False
        seen.insert(0, (zlib.crc32(packet.payload), len(packet.payload)))
        return len(set(seen[::2])) == PAIRS and seen[::2] == seen[1::2]
