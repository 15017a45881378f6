"""CON212."""

from mqttscope.lint.examples import client, conversation, make_connect, opened
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.moment import Moment
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect


class SecondConnect(Rule):
    """A client sends CONNECT twice on one connection.

    A connection has one session and one CONNECT; the server closes it as a protocol error.

    Instead, open a new TCP connection for another CONNECT.
    """

    code = "CON212"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {V3_1: {"V31-CONNECT-second": ""}}
    also = {V5: ("MQTT-3.1.0-2",), V3_1_1: ("MQTT-3.1.0-2",)}
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER

    good = [conversation("one CONNECT", *opened())]
    bad = [conversation("and one more", *opened(), client(make_connect()).marked(""))]

    def check(self, packet: Connect, at: Moment) -> Findings:
        """The state knows the first one."""
        first = at.history.connect_sent
        if first is None:
            return None
        earlier = Related("the first CONNECT", first.packet, first.frame, first.timestamp_ns)
        return self.report("", "second CONNECT on one connection", related=(earlier,))
