"""SUB102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Unsubscribe


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

    good = examples("""
        one Topic Filter
            opened; > unsubscribe 10 a/b; < unsuback 10 0x11
    """)
    bad = examples("""
        nothing after the properties
            opened; > unsubscribe 10 !
        nothing after the identifier in 3.1.1
            opened 3.1.1; > unsubscribe 10 !
        the same in 3.1
            opened 3.1; > unsubscribe 10 !
    """)

    def check(self, packet: Unsubscribe, at: RuleContext) -> Findings:
        """An empty list was read to its end."""
        if packet.topic_filters is None or packet.topic_filters:
            return None
        return self.report("", f"UNSUBSCRIBE with packet identifier {packet.packet_identifier} has no topic filter")
