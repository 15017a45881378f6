"""CON212."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.declare import Malformed
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
    signs = ("again",)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        one CONNECT
            opened
    """)
    bad = examples("""
        and one more
            opened; > connect !
        one more whose Client Identifier is longer than the packet
            opened 3.1.1; > raw 10 0e 0004 "MQTT" 0402003c00096331 !
        one more that breaks off
            opened; > raw 10 20 0004 "MQTT" 0502003c00 !; > fin
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """The state knows the first one."""
        return self._again(at)

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        """The same for one that cannot be read to its end; the protocol name shows that it is a CONNECT."""
        packet = found.packet
        if found.complete or not at.from_client or not isinstance(packet, Connect):
            return None
        return self._again(at) if packet.protocol_name in ("MQTT", "MQIsdp") else None

    def _again(self, at: RuleContext) -> Findings:
        first = at.history.connect_sent
        if first is None:
            return None
        earlier = Related("the first CONNECT", first.packet, first.frame, first.timestamp_ns)
        return self.report("", "second CONNECT on one connection", related=(earlier,))
