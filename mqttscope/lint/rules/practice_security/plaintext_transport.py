"""SEC103."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import conversation, examples, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, Findings, Rule
from mqttscope.lint.shared_checks import is_loopback, is_plain
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect


class PlaintextTransport(Rule):
    """MQTT crosses the network without TLS.

    Everybody on the way can read topics and payloads, and change them.  Connections within one host are not reported.

    Instead, connect with TLS, usually to port 8883.
    """

    code = "SEC103"
    severity = Severity.INFO
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER

    good = examples(lambda: [conversation("within one host", *opened(), server="127.0.0.1:1883")])
    bad = examples(
        lambda: [
            conversation("to another host", opened()[0].marked(""), opened()[1]),
            conversation("on any port", opened(V3_1_1)[0].marked(""), opened(V3_1_1)[1], server="192.0.2.7:18830"),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """The first CONNECT of a connection says it."""
        connection = at.connection
        if at.history.connect_sent is not None or not is_plain(connection) or is_loopback(connection.server):
            return None
        return self.report("", f"MQTT in the clear to {connection.server}")
