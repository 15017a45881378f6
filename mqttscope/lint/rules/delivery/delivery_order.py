"""DLV412."""

from dataclasses import dataclass, field

from mqttscope.lint.context import ConnectionKey, RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.message_model import SETTLE_NS, Messages
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import (
    ALL_SUBSCRIPTIONS,
    SECOND_NS,
    message,
    paired,
    publishes,
    steady_match,
    subscriber,
)
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish

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


_ONE, _TWO = message(b"one"), message(b"two", packet_identifier=2)
_ACKS = client(Puback(1)), client(Puback(2))


class DeliveryOrder(Rule):
    """A client gets two messages of one publisher and topic in the wrong order.

    Whoever keeps the last value of a topic then keeps the wrong one.  What counts is the first time that each message
    is sent; repeats of earlier ones are allowed.  Shared Subscriptions promise no order, and with several matching
    subscriptions there may be a queue for each.

    Instead, send the messages of one topic and QoS in the order in which their publisher sent them.
    """

    code = "DLV412"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-4.6.0-5": "", "MQTT-4.6.0-6": ""}, V3_1_1: {"MQTT-4.6.0-5": "", "MQTT-4.6.0-6": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics")
    Memory = Newest

    good = examples(
        lambda: [
            conversation(
                "in their order",
                *subscriber(),
                *opened(),
                *publishes(_ONE, _TWO),
                *on(1, server(_ONE), server(_TWO), *_ACKS),
            ),
            conversation(
                "sent again",
                *subscriber(),
                *opened(),
                *publishes(_ONE, _TWO),
                *on(
                    1,
                    server(_ONE),
                    server(_TWO),
                    server(message(b"one", packet_identifier=3)),
                    *_ACKS,
                    client(Puback(3)),
                ),
            ),
            conversation(
                "of two publishers",
                *subscriber(),
                *opened(),
                *publishes(_ONE),
                *on(2, *opened(client_identifier="c3"), *publishes(_TWO)),
                *on(1, server(_TWO), server(_ONE), *_ACKS[::-1]),
            ),
            conversation(
                "with different QoS",
                *subscriber(),
                *opened(),
                *publishes(_ONE, message(b"two", qos=0)),
                *on(1, server(message(b"two", qos=0)), server(_ONE), _ACKS[0]),
            ),
            conversation(
                "a share",
                *subscriber(V5, "$share/g/a"),
                *opened(),
                *publishes(_ONE, _TWO),
                *on(1, server(_TWO), server(_ONE), *_ACKS[::-1]),
            ),
            conversation(
                "a queue for each of two subscriptions",
                *subscriber(V5, "a", "#"),
                *opened(),
                *publishes(_ONE, _TWO),
                *on(1, server(_TWO), server(_ONE), *_ACKS[::-1]),
            ),
            conversation(
                "a payload that came before: nobody can tell them apart",
                *subscriber(),
                *opened(),
                *publishes(_ONE, _TWO, message(b"one", packet_identifier=3)),
                *on(1, server(_TWO), server(_ONE), *_ACKS[::-1]),
            ),
            conversation(
                "the publisher has sent it again after the other one",
                *subscriber(),
                *opened(),
                client(_ONE, after=2),
                closes("client"),
                *on(2, *opened(clean_start=False, session_present=True), *publishes(_TWO)),
                *on(2, client(message(b"one", dup=True)), server(Puback(1))),
                *on(1, server(_TWO), server(_ONE), *_ACKS[::-1]),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the second one first",
                *subscriber(),
                *opened(),
                *publishes(_ONE, _TWO),
                *on(1, server(_TWO), server(_ONE).marked(""), *_ACKS[::-1]),
            ),
            conversation(
                "QoS 0, in 3.1.1, by a wildcard",
                *subscriber(V3_1_1, "#"),
                *opened(V3_1_1),
                *publishes(message(b"one", qos=0), message(b"two", qos=0)),
                *on(1, server(message(b"two", qos=0)), server(message(b"one", qos=0)).marked("")),
            ),
        ]
    )

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
                    Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns),
                    Related("the later one as published", *last.published),
                    Related("the later one as delivered", *last.delivered),
                ),
            )
        now = (at.number, at.event.frame, at.timestamp_ns)
        memory.last[name] = Last(sent.number, (sent.packet, sent.frame, sent.timestamp_ns), now)
        if len(memory.last) > MAX_LAST:
            del memory.last[next(iter(memory.last))]
        return None
