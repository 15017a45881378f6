"""SUB101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe


class SubscribeEmpty(Rule):
    """A client sends a SUBSCRIBE that asks for no Topic Filter at all.

    There is nothing that the server could grant, and no SUBACK could have a code for it; servers close the connection.
    A list of topics that happened to be empty is the usual cause.

    Instead, send no SUBSCRIBE while there is nothing to subscribe to.
    """

    code = "SUB101"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {
        V5: {"MQTT-3.8.3-2": ""},
        V3_1_1: {"MQTT-3.8.3-3": ""},
        V3_1: {"V31-SUBSCRIBE-at-least-one": ""},
    }
    looks_at = Subscribe
    signs = ("odd_filter",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        one Topic Filter
            opened; > subscribe 10 a/b:1; < suback 10 1
    """)
    bad = examples("""
        nothing after the properties
            opened; > subscribe 10 !
        nothing after the identifier in 3.1.1
            opened 3.1.1; > subscribe 10 !
        the same in 3.1
            opened 3.1; > subscribe 10 !
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """An empty list was read to its end."""
        if packet.subscriptions is None or packet.subscriptions:
            return None
        return self.report("", f"SUBSCRIBE with packet identifier {packet.packet_identifier} has no topic filter")
