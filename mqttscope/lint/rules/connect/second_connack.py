"""CON214."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connack


class SecondConnack(Rule):
    """A server sends CONNACK twice on one connection.

    A connection is accepted or refused once.  A client that gets another CONNACK cannot tell which limits hold and
    closes the connection.

    Instead, answer the one CONNECT once, and close the connection on a second CONNECT.
    """

    code = "CON214"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.2.0-2": ""}}
    looks_at = Connack
    signs = ("again",)
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        one CONNACK
            opened
        one refusal
            opened < code=0x88; < fin
    """)
    bad = examples("""
        and one more
            opened; < connack !
        two together in 3.1.1
            > connect 3.1.1; < connack & connack !
        accepted after a refusal
            opened < code=0x87; opened < !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """The state knows the first one."""
        first = at.history.connack_sent
        if first is None:
            return None
        earlier = Related("the first CONNACK", first.packet, first.frame, first.timestamp_ns)
        return self.report("", "second CONNACK on one connection", related=(earlier,))
