from dataclasses import dataclass, field

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.message_model import SETTLE_NS
from mqttscope.lint.rules import V3_1_1, V5, Findings, Needs, Related, Severity, examples, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, MessageRule, paired, steady_match
from mqttscope.mqtt import Publish

MAX_LAST = 10_000
"""Subscribers and topics whose last message is remembered, each with its publisher."""


@dataclass(slots=True)
class Last:
    """The newest message that a subscriber has got."""

    number: int
    published: tuple[int, int, int]
    """Packet, frame and time of its PUBLISH."""
    delivered: tuple[int, int, int]


@dataclass(slots=True)
class Newest:
    """By subscriber, topic, publisher and QoS."""

    last: dict[tuple[str, str, ConnectionKey, int], Last] = field(default_factory=dict)


class DeliveryOrder(MessageRule):
    """A client gets two messages of one publisher and topic in the wrong order.

    Whoever keeps the last value of a topic then keeps the wrong one.  What counts is the first time that each message
    is sent; repeats of earlier ones are allowed.  Shared Subscriptions promise no order, and with several matching
    subscriptions there may be a queue for each.

    Instead, send the messages of one topic and QoS in the order in which their publisher sent them.
    """

    code = "DLV412"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-4.6.0-5": "", "MQTT-4.6.0-6": ""}, V3_1_1: {"MQTT-4.6.0-5": "", "MQTT-4.6.0-6": ""}}
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    Memory = Newest

    good = examples("""
        in their order
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a one qos=1 id=1
            @1 < publish a two qos=1 id=2; @1 > puback 1; @1 > puback 2
        sent again
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a one qos=1 id=1
            @1 < publish a two qos=1 id=2; @1 < publish a one qos=1 id=3; @1 > puback 1; @1 > puback 2; @1 > puback 3
        of two publishers
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; @2 opened client=c3; +2 @2 > publish a two qos=1 id=2; @2 < puback 2
            @1 < publish a two qos=1 id=2; @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        with different QoS
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two; @1 < publish a two; @1 < publish a one qos=1 id=1; @1 > puback 1
        a share
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        a queue for each of two subscriptions
            @1 opened client=c2; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        a payload that came before: nobody can tell them apart
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; > publish a one qos=1 id=3; < puback 3
            @1 < publish a two qos=1 id=2; @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        the publisher has sent it again after the other one
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1; > fin
            @2 opened resume < present; +2 @2 > publish a two qos=1 id=2; @2 < puback 2
            @2 > publish a one dup qos=1 id=1; @2 < puback 1; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
    """)
    bad = examples("""
        the second one first
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1 !; @1 > puback 2; @1 > puback 1
        QoS 0, in 3.1.1, by a wildcard
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; +2 > publish a one
            > publish a two; @1 < publish a two; @1 < publish a one !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the newest message of the same publisher that the client has got."""
        found = paired(packet, at)
        sent = None if found is None or found.retained else found.sole
        # With QoS 2 a server may hand a message on when its PUBREL comes.
        if found is None or sent is None or sent.resent or sent.qos > 1:
            return None
        owner = found.owner
        if owner in sent.copies:
            return None
        memory: Newest = at.memory(self)
        name = (owner, sent.topic, sent.key, packet.qos << 2 | sent.qos)
        last = memory.last.get(name)
        if last is not None and last.number > sent.number:
            match = steady_match(sent.topic, sent.timestamp_ns - SETTLE_NS, at)
            if match is None or len(match.subscriptions) > 1 or match.subscriptions[0].is_shared:
                return None
            connect = at.history.connect
            if (connect is not None and connect.bridge) or found.topic.recent[0].number > sent.number:
                return None
            apart = (last.published[2] - sent.timestamp_ns) / SECOND_NS
            return self.report(
                "",
                f"{owner!r} gets a message on {sent.topic!r} (QoS {packet.qos}) after one that {sent.publisher!r} "
                f"published {apart:,.3f} s later",
                related=(
                    Related.to("the message as published", sent),
                    Related("the later one as published", *last.published),
                    Related("the later one as delivered", *last.delivered),
                ),
            )
        now = (at.number, at.event.frame, at.timestamp_ns)
        memory.last[name] = Last(sent.number, (sent.packet, sent.frame, sent.timestamp_ns), now)
        forget_oldest(memory.last, MAX_LAST)
        return None
