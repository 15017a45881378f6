from dataclasses import dataclass

from mqttscope.lint.rules import V3_1_1, V5, Findings, Related, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.declare import ControlPacket


@dataclass(slots=True)
class RefusalReports:
    """Sides that have been reported."""

    client: bool = False
    server: bool = False


class PacketAfterConnackRefusal(Rule):
    """A side sends a packet after the server has refused the connection.

    A refusing CONNACK is the last packet.  A server that sends more has processed packets that a refused client sent
    with its CONNECT.  A client that sends more gets no answer, which is a warning.  Packets that the client sent before
    the refusal reached it are not reported, nor is a DISCONNECT.  Only the first packet of each side is reported.

    Instead, close the connection: the server after its CONNACK, the client when it receives it.
    """

    code = "CON221"
    severities = (Severity.ERROR, Severity.WARNING)
    statements = {V5: {"MQTT-3.1.4-6": ""}, V3_1_1: {"MQTT-3.1.4-5": ""}}
    signs = ("refused",)
    settled = False
    Memory = RefusalReports

    good = examples("""
        sent together with the CONNECT
            > connect & subscribe 1 a:0; < connack code=0x87; < fin
        already sent when the refusal arrived
            opened < code=0x87; crossing > publish a; < fin
        a client that sends DISCONNECT
            opened 3.1.1 < code=0x05; > disconnect; < fin
        accepted
            opened; > publish a
    """)
    bad = examples("""
        the server answers a refused client
            > connect & subscribe 1 a:0; < connack code=0x87 & suback 1 0 !
        the server answers a refused client of 3.1.1
            > connect 3.1.1 & pingreq; < connack code=0x05; < raw d0 00 !; < raw d0 00
        the client had received the refusal
            opened < code=0x86; > publish a !; > publish a
        the client had received the refusal in 3.1
            opened 3.1 < code=0x04; > pingreq !
        both sides continue
            opened < code=0x86; > pingreq !; < raw d0 00 !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Report the first packet of each side after a refusal."""
        connack = at.history.connack
        if connack is None or not connack.reason_code:
            return None
        kind, sent = packet.packet_type, at.history.connack_sent
        if kind == PacketType.DISCONNECT or sent is None:
            return None
        memory: RefusalReports = at.memory(self)
        if at.from_client:
            if memory.client or kind == PacketType.AUTH or not at.knew(sent):
                return None
            memory.client, who = True, "the client"
        else:
            if memory.server:
                return None
            memory.server, who = True, "the server"
        code = connack.reason_code
        name = reason_name(PacketType.CONNACK, code, at.version)
        return self.report(
            "",
            f"{who} sent {packet_name(packet)} after the refusing CONNACK 0x{code:02x} ({name})",
            # The statements bind only the server; a client just gets no answer.
            severity=Severity.WARNING if at.from_client else None,
            related=(Related.to("the refusal", sent),),
        )
