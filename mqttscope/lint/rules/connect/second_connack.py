"""CON214."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, make_connect, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Rule
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

    good = examples(
        lambda: [
            conversation("one CONNACK", *opened()),
            conversation("one refusal", client(make_connect()), server(Connack(reason_code=0x88)), closes("server")),
        ]
    )
    bad = examples(
        lambda: [
            conversation("and one more", *opened(), server(Connack()).marked("")),
            conversation(
                "two together in 3.1.1", client(make_connect(V3_1_1)), server(Connack(), Connack()).marked("")
            ),
            conversation(
                "accepted after a refusal",
                client(make_connect()),
                server(Connack(reason_code=0x87)),
                client(make_connect()),
                server(Connack()).marked(""),
            ),
        ]
    )

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """The state knows the first one."""
        first = at.history.connack_sent
        if first is None:
            return None
        earlier = Related("the first CONNACK", first.packet, first.frame, first.timestamp_ns)
        return self.report("", "second CONNACK on one connection", related=(earlier,))
