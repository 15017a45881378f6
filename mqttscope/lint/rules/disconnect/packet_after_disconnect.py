from mqttscope.lint.examples import examples
from mqttscope.lint.rules import V3_1_1, V5, Findings, Needs, Related, Report, Rule, RuleContext, Severity, packet_name
from mqttscope.mqtt import ControlPacket, Malformed, PacketType


class PacketAfterDisconnect(Rule):
    """A side sends packets after its own DISCONNECT.

    DISCONNECT is the last packet of its sender; what follows is not read any more, so messages sent then are lost.

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
        the other side had not read it yet
            opened; > disconnect; crossing < publish a; > fin
        crossing DISCONNECT packets
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
        the server continues
            opened; < disconnect code=0x8b; < raw 30 04 0001 "a" 00 !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """The state knows who has taken leave."""
        if at.party.disconnect is None:
            return None
        return self._after(packet_name(packet), at)

    def check_damaged(self, found: Malformed, at: RuleContext) -> Findings:
        """The same for a packet that cannot be read to its end."""
        if at.party.disconnect is None or found.complete:
            return None
        kind = found.packet_type
        return self._after(f"a malformed {PacketType(kind).name}" if kind else "a packet of reserved type", at)

    def _after(self, what: str, at: RuleContext) -> Report:
        left = at.party.disconnect
        assert left is not None
        who = "the client" if at.from_client else "the server"
        leave = Related.to("the DISCONNECT", left)
        return self.report("", f"{who} sent {what} after its own DISCONNECT", related=(leave,))
