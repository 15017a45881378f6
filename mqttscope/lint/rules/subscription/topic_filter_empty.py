"""SUB108."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.parts import Subscription


class TopicFilterEmpty(Rule):
    """A SUBSCRIBE or UNSUBSCRIBE has a Topic Filter without any character.

    No topic can match it.  A setting that was never filled in is the usual cause.

    Instead, use at least one character; ``#`` is the filter for everything.
    """

    code = "SUB108"
    severity = Severity.ERROR
    also = {V5: ("MQTT-4.7.3-1",), V3_1_1: ("MQTT-4.7.3-1",)}
    looks_at = (Subscribe, Unsubscribe)
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "one character, and levels that are empty",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("a", 1), Subscription("/", 1)])),
                server(Suback(10, reason_codes=[1, 1])),
                client(Unsubscribe(11, topic_filters=["/"])),
                server(Unsuback(11, reason_codes=[0])),
            )
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "length 0 in SUBSCRIBE",
                *opened(),
                client(hexadecimal("82 06 00 0a 00 00 00 01")).marked("subscriptions[0].topic_filter"),
            ),
            conversation(
                "length 0 in UNSUBSCRIBE",
                *opened(V3_1_1),
                client(Unsubscribe(10, topic_filters=["a", ""])).marked("topic_filters[1]"),
            ),
            conversation(
                "in 3.1",
                *opened(V3_1),
                client(Subscribe(10, subscriptions=[Subscription("")])).marked("subscriptions[0].topic_filter"),
            ),
        ]
    )

    def check(self, packet: Subscribe | Unsubscribe, at: RuleContext) -> Iterator[Report]:
        """Each filter."""
        if isinstance(packet, Subscribe):
            for index, row in enumerate(packet.subscriptions or ()):
                if row.topic_filter == "":
                    yield self.report(f"subscriptions[{index}].topic_filter", "SUBSCRIBE with an empty topic filter")
        else:
            for index, name in enumerate(packet.topic_filters or ()):
                if name == "":
                    yield self.report(f"topic_filters[{index}]", "UNSUBSCRIBE with an empty topic filter")
