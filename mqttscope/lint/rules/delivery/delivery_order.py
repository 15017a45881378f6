from dataclasses import dataclass, field

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.message_model import SETTLE_NS, Messages
from mqttscope.lint.rules import V3_1_1, V5, Findings, Needs, Related, Severity, examples, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, MessageRule, pairing_of, steady_match
from mqttscope.lint.session_model import SessionModel, session_match
from mqttscope.mqtt import Publish

MAX_LAST = 10_000
"""Maximum number of last messages kept, one for each subscriber, topic, publisher and QoS."""


@dataclass(slots=True)
class LastDelivery:
    """The newest message that a subscriber has received."""

    number: int
    published: tuple[int, int, int]
    """Packet, frame and time of the PUBLISH from its publisher."""
    delivered: tuple[int, int, int]


@dataclass(slots=True)
class LastDeliveries:
    """The last message for each subscriber, topic, publisher and QoS."""

    last: dict[tuple[str, str, ConnectionKey, int], LastDelivery] = field(default_factory=dict)


class DeliveryOrder(MessageRule):
    """A client receives two messages of one publisher and topic in the wrong order.

    A client that stores the last value of a topic then stores the wrong one.  Only the first transmission of each
    message matters; repeats of earlier messages are allowed.  Shared Subscriptions guarantee no order, and several
    matching subscriptions may have separate queues.

    Instead, send the messages of one topic and QoS in the order in which the publisher sent them.
    """

    code = "DLV412"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-4.6.0-5": "", "MQTT-4.6.0-6": ""}, V3_1_1: {"MQTT-4.6.0-5": "", "MQTT-4.6.0-6": ""}}
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages, SessionModel)
    Memory = LastDeliveries

    good = examples("""
        in order
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a one qos=1 id=1
            @1 < publish a two qos=1 id=2; @1 > puback 1; @1 > puback 2
        resent
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a one qos=1 id=1
            @1 < publish a two qos=1 id=2; @1 < publish a one qos=1 id=3; @1 > puback 1; @1 > puback 2; @1 > puback 3
        from two publishers
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; @2 opened client=c3; +2 @2 > publish a two qos=1 id=2; @2 < puback 2
            @1 < publish a two qos=1 id=2; @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        with different QoS
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two; @1 < publish a two; @1 < publish a one qos=1 id=1; @1 > puback 1
        a Shared Subscription
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        two subscriptions with separate queues
            @1 opened client=c2; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        two messages with equal payloads cannot be distinguished
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; > publish a one qos=1 id=3; < puback 3
            @1 < publish a two qos=1 id=2; @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        published again after the other message
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1; > fin
            @2 opened resume < present; +2 @2 > publish a two qos=1 id=2; @2 < puback 2
            @2 > publish a one dup qos=1 id=1; @2 < puback 1; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1; @1 > puback 2; @1 > puback 1
        kept for a client with two subscriptions, which may have separate queues
            @1 opened client=c2 session_expiry_interval=600; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1
            +2 @1 > disconnect; @1 > fin; opened
            +2 > publish a one qos=1 id=1; < puback 1; > publish a two qos=1 id=2; < puback 2
            @2 opened resume client=c2 < present; @2 < publish a two qos=1 id=2; @2 < publish a one qos=1 id=1
            @2 > puback 2; @2 > puback 1
    """)
    bad = examples("""
        kept for a client that was away
            @1 opened client=c2 resume session_expiry_interval=600; @1 > subscribe 1 a:1; @1 < suback 1 1
            +2 @1 > disconnect; @1 > fin; opened; +2 > publish a one qos=1 id=1; < puback 1
            > publish a two qos=1 id=2; < puback 2
            @2 opened resume client=c2 session_expiry_interval=600 < present; @2 < publish a two qos=1 id=2
            @2 < publish a one qos=1 id=1 !; @2 > puback 2; @2 > puback 1
        the second message first
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a one qos=1 id=1
            < puback 1; > publish a two qos=1 id=2; < puback 2; @1 < publish a two qos=1 id=2
            @1 < publish a one qos=1 id=1 !; @1 > puback 2; @1 > puback 1
        QoS 0, with a wildcard, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; +2 > publish a one
            > publish a two; @1 < publish a two; @1 < publish a one !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the newest message from the same publisher that the client has received."""
        pairing = pairing_of(packet, at)
        sent = None if pairing is None or pairing.retained else pairing.sole
        # With QoS 2 a server may wait for the publisher's PUBREL before forwarding the message.
        if pairing is None or sent is None or sent.resent or sent.qos > 1:
            return None
        owner = pairing.owner
        if owner in sent.copies:
            return None
        memory: LastDeliveries = at.memory(self)
        name = (owner, sent.topic, sent.key, packet.qos << 2 | sent.qos)
        last = memory.last.get(name)
        if last is not None and last.number > sent.number:
            match = steady_match(sent.topic, sent.timestamp_ns - SETTLE_NS, at, session_match(sent.topic, at))
            if match is None or len(match.subscriptions) > 1 or match.subscriptions[0].is_shared:
                return None
            connect = at.history.connect
            if (connect is not None and connect.bridge) or pairing.topic.recent[0].number > sent.number:
                return None
            apart = (last.published[2] - sent.timestamp_ns) / SECOND_NS
            return self.report(
                "",
                f"{owner!r} receives a message on {sent.topic!r} (QoS {packet.qos}) after one that {sent.publisher!r} "
                f"published {apart:,.3f} s later",
                related=(
                    Related.to("the message as published", sent),
                    Related("the later message as published", *last.published),
                    Related("the later message as delivered", *last.delivered),
                ),
            )
        now = (at.number, at.event.frame, at.timestamp_ns)
        memory.last[name] = LastDelivery(sent.number, (sent.packet, sent.frame, sent.timestamp_ns), now)
        forget_oldest(memory.last, MAX_LAST)
        return None
