from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1_1, V5, Findings, Needs, Related, Report, Rule, RuleContext, Severity, packet_name
from mqttscope.mqtt import ControlPacket, Malformed, PacketType


class PacketAfterDisconnect(Rule):
    """A side sends packets after its own DISCONNECT.

    DISCONNECT is the last packet of its sender.  The receiver does not read anything after it, so later messages are
    lost.

    Instead, send everything first, then DISCONNECT, and close the connection.
    """

    code = "DIS201"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.14.4-1": ""}, V3_1_1: {"MQTT-3.14.4-2": "client"}}
    signs = ("disconnected",)
    settled = False
    needs = Needs.WHOLE_SENDER

    good = examples("""
        DISCONNECT last
            opened; > publish a; > disconnect; > fin
        the other side had not received it yet
            opened; > disconnect; crossing < publish a; > fin
        both sides send DISCONNECT at once
            opened; < disconnect code=0x8b; crossing > disconnect; < fin
    """)
    bad = examples("""
        a message after DISCONNECT
            opened; > disconnect; > publish a !
        two more packets in 3.1.1
            opened 3.1.1; > disconnect & publish a ! & pingreq !
        DISCONNECT twice in 3.1
            opened 3.1; > disconnect & disconnect !
        bytes of type 0
            opened; > disconnect; > raw 00 00 !
        by the server
            opened; < disconnect code=0x8b; < raw 30 04 0001 "a" 00 !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Report a packet from a side that has sent DISCONNECT."""
        if at.party.disconnect is None:
            return None
        return self._after(packet_name(packet), at)

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        """Report a malformed packet from a side that has sent DISCONNECT."""
        if at.party.disconnect is None or malformed.complete:
            return None
        kind = malformed.packet_type
        return self._after(f"a malformed {PacketType(kind).name}" if kind else "a packet of reserved type", at)

    def _after(self, name: str, at: RuleContext) -> Report:
        left = at.party.disconnect
        assert left is not None
        who = "the client" if at.from_client else "the server"
        leave = Related.to("the DISCONNECT", left)
        return self.report("", f"{who} sent {name} after its own DISCONNECT", related=(leave,))
