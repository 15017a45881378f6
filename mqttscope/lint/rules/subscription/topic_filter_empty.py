"""SUB108."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe, Unsubscribe


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

    good = examples("""
        one character, and levels that are empty
            opened; > subscribe 10 a:1 /:1; < suback 10 1 1; > unsubscribe 11 /; < unsuback 11 0
    """)
    bad = examples("""
        length 0 in SUBSCRIBE
            opened; > raw 82 06 000a00000001 !subscriptions[0].topic_filter
        length 0 in UNSUBSCRIBE
            opened 3.1.1; > unsubscribe 10 a - !topic_filters[1]
        in 3.1
            opened 3.1; > subscribe 10 -:0 !subscriptions[0].topic_filter
    """)

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
