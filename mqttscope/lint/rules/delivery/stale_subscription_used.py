"""DLV208."""

import zlib

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, SECOND_NS
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from mqttscope.session.matching import Match, Subscribed

SETTLE_NS = SECOND_NS
"""How long after the SUBACK a message may still be one that the server took before."""
PAIRS = 3
"""Messages that came twice in a row before it counts as two copies of each."""


def _subscribe(number: int, qos: int, packet_identifier: int) -> Subscribe:
    return Subscribe(packet_identifier, Properties(subscription_identifier=number), [Subscription("a", qos)])


def _message(number: int, qos: int = 1) -> Publish:
    identifier = 1 if qos else None
    block = Properties(subscription_identifier=[number])
    return Publish(qos=qos, topic_name="a", packet_identifier=identifier, properties=block, payload=b"x")


_REPLACED = (
    client(_subscribe(1, 1, 10)),
    server(Suback(10, reason_codes=[1])),
    client(_subscribe(2, 0, 11)),
    server(Suback(11, reason_codes=[0])),
)
_AGAIN = (
    client(Subscribe(10, subscriptions=[Subscription("a", 0)])),
    server(Suback(10, reason_codes=[0])),
    client(Subscribe(11, subscriptions=[Subscription("a", 0)])),
    server(Suback(11, reason_codes=[0])),
)


def _twice(*payloads: bytes) -> list[Publish]:
    return [Publish(topic_name="a", payload=one) for one in payloads for _ in range(2)]


class StaleSubscriptionUsed(Rule):
    """A subscription was replaced, but what it asked for before is still in effect.

    A second SUBSCRIBE with the same Topic Filter replaces the first: its QoS and its Subscription Identifier count from
    then on, and there is still one subscription.  The old identifier, the old QoS, or each message in two copies show
    that the server kept both.  Messages that were under way are left out as far as a capture can tell, all of the first
    second after the SUBACK among them: the parts of a server learn of it one after the other.  Within ``grace`` seconds
    of the SUBACK the finding is a guess.

    Instead, replace the subscription and its options.
    """

    code = "DLV208"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.8.4-3": ""}, V3_1_1: {"MQTT-3.8.4-3": ""}}
    looks_at = Publish
    signs = ("replaced",)
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"grace": 5}

    good = examples(
        lambda: [
            conversation("the new ones", *opened(), *_REPLACED, server(_message(2, 0))),
            conversation(
                "sent before the SUBACK",
                *opened(),
                *_REPLACED[:3],
                server(_message(1), Suback(11, reason_codes=[0])),
                client(Puback(1)),
            ),
            conversation(
                "a part of the server learns of the SUBSCRIBE a moment after the SUBACK",
                *opened(),
                *_REPLACED,
                server(_message(1), after=0.5),
                client(Puback(1)),
            ),
            conversation(
                "a message sent again",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a", 1)])),
                server(Suback(10, reason_codes=[1])),
                server(Publish(qos=1, topic_name="a", packet_identifier=1)),
                client(Subscribe(11, subscriptions=[Subscription("a", 0)])),
                server(Suback(11, reason_codes=[0])),
                server(Publish(qos=1, dup=True, topic_name="a", packet_identifier=1), after=9),
                client(Puback(1)),
            ),
            conversation("each message once", *opened(V3_1_1), *_AGAIN, server(*_twice(b"1", b"2")[::2])),
            conversation(
                "two messages with the same content",
                *opened(V3_1_1),
                *_AGAIN,
                server(*_twice(b"1", b"1", b"1")),
            ),
            conversation(
                "the SUBSCRIBE that should replace it was refused",
                *opened(),
                *_REPLACED[:3],
                server(Suback(11, reason_codes=[0x97])),
                server(_message(1)),
                client(Puback(1)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "old identifier and old QoS",
                *opened(),
                *_REPLACED,
                server(_message(1), after=2).marked("properties.subscription_identifier"),
                client(Puback(1)),
            ),
            conversation(
                "old QoS",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a", 1)])),
                server(Suback(10, reason_codes=[1])),
                client(Subscribe(11, subscriptions=[Subscription("a", 0)])),
                server(Suback(11, reason_codes=[0])),
                server(Publish(qos=1, topic_name="a", packet_identifier=1), after=6).marked("qos"),
                client(Puback(1)),
            ),
            conversation(
                "two copies of each message, in 3.1",
                *opened(V3_1),
                *_AGAIN,
                server(*_twice(b"1", b"2", b"3"), after=6).marked(""),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Only for topics of subscriptions that were replaced."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
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
        early = at.timestamp_ns - one.granted_ns <= float(self.set["grace"]) * SECOND_NS
        still = "is still in effect" if field else "is still there: each message comes twice"
        return self.report(
            field,
            f"subscription {one.topic_filter!r} of {at.client_name!r} was replaced, but {what} {still}",
            confidence=Confidence.HEURISTIC if early else None,
            related=(Related("the SUBSCRIBE that replaced it", one.packet, one.frame, one.timestamp_ns),),
        )

    def _is_of_another(self, number: int, one: Subscribed, found: Match) -> bool:
        """Whether another subscription explains the identifier."""
        return number in found.identifiers or any(
            other.subscription_identifier == number or number in other.formerly
            for other in (*found.subscriptions, *found.ended)
            if other.topic_filter != one.topic_filter
        )

    def _has_another(self, qos: int, one: Subscribed, found: Match) -> bool:
        """Whether another subscription explains the QoS."""
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
