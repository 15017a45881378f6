"""CON212, CON214: a second CONNECT or CONNACK on one connection."""

from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Related, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Connect, Direction, Malformed
from mqttscope.session.history import SentPacket


class SecondPacketRule(Rule):
    """A packet that may occur only once on a connection is repeated."""

    severity = Severity.ERROR
    signs = ("again",)

    def second(self, first: SentPacket | None, name: str) -> Findings:
        """The report, if there was a first packet."""
        if first is None:
            return None
        return self.report("", f"second {name} on one connection", related=(Related.to(f"the first {name}", first),))


class SecondConnect(SecondPacketRule):
    """A client sends CONNECT twice on one connection.

    A connection has one session and one CONNECT; the server treats a second one as a protocol error and closes.

    Instead, open a new TCP connection for another CONNECT.
    """

    code = "CON212"
    reason_code = 0x82
    statements = {V3_1: {"V31-CONNECT-second": ""}}
    also = {V5: ("MQTT-3.1.0-2",), V3_1_1: ("MQTT-3.1.0-2",)}
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        one CONNECT
            opened
    """)
    bad = examples("""
        a second CONNECT
            opened; > connect !
        a second one with a Client Identifier longer than the packet
            opened 3.1.1; > raw 10 0e 0004 "MQTT" 0402003c00096331 !
        a truncated second one
            opened; > raw 10 20 0004 "MQTT" 0502003c00 !; > fin
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report every CONNECT after the first."""
        return self.second(at.history.connect_sent, "CONNECT")

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        """Check a packet that cannot be decoded to its end but has the protocol name of a CONNECT."""
        packet = malformed.packet
        if malformed.complete or not at.from_client or not isinstance(packet, Connect):
            return None
        is_connect = packet.protocol_name in ("MQTT", "MQIsdp")
        return self.second(at.history.connect_sent, "CONNECT") if is_connect else None


class SecondConnack(SecondPacketRule):
    """A server sends CONNACK twice on one connection.

    A connection is accepted or refused once.  A client that gets another CONNACK cannot decide which limits apply and
    closes the connection.

    Instead, answer CONNECT once, and close the connection on a second CONNECT.
    """

    code = "CON214"
    statements = {V5: {"MQTT-3.2.0-2": ""}}
    sender = Direction.SERVER_TO_CLIENT

    good = examples("""
        one CONNACK
            opened
        one refusal
            opened < code=0x88; < fin
    """)
    bad = examples("""
        a second CONNACK
            opened; < connack !
        two in one segment in 3.1.1
            > connect 3.1.1; < connack & connack !
        accepted after a refusal
            opened < code=0x87; opened < !
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Report every CONNACK after the first."""
        return self.second(at.history.connack_sent, "CONNACK")
