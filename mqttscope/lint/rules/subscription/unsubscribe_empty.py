"""SUB102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Unsuback, Unsubscribe


class UnsubscribeEmpty(Rule):
    """A client sends an UNSUBSCRIBE that names no Topic Filter.

    It ends nothing, and servers close the connection because of it.

    Instead, name at least one Topic Filter, or send no UNSUBSCRIBE.
    """

    code = "SUB102"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {V5: {"MQTT-3.10.3-2": ""}, V3_1_1: {"MQTT-3.10.3-2": ""}}
    also = {V3_1: ("V31-UNSUBACK-answer",)}
    looks_at = Unsubscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "one Topic Filter",
                *opened(),
                client(Unsubscribe(10, topic_filters=["a/b"])),
                server(Unsuback(10, reason_codes=[0x11])),
            )
        ]
    )
    bad = examples(
        lambda: [
            conversation("nothing after the properties", *opened(), client(Unsubscribe(10)).marked("")),
            conversation("nothing after the identifier in 3.1.1", *opened(V3_1_1), client(Unsubscribe(10)).marked("")),
            conversation("the same in 3.1", *opened(V3_1), client(Unsubscribe(10)).marked("")),
        ]
    )

    def check(self, packet: Unsubscribe, at: RuleContext) -> Findings:
        """An empty list was read to its end."""
        if packet.topic_filters is None or packet.topic_filters:
            return None
        return self.report("", f"UNSUBSCRIBE with packet identifier {packet.packet_identifier} has no topic filter")
