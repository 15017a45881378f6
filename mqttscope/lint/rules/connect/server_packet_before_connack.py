from dataclasses import dataclass

from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules import RuleContext, Severity, examples, nothing_decoded
from mqttscope.mqtt import ControlPacket, Direction, PacketType


@dataclass(slots=True)
class ReportedBeforeConnack:
    """Whether the connection has already been reported."""

    is_reported: bool = False


class ServerPacketBeforeConnack(Rule):
    """A server sends another packet before its CONNACK.

    Clients treat a server that sends anything but CONNACK (or AUTH) first as broken and close the connection.  Messages
    of a resumed session are lost with it, at every attempt.  Only the first such packet is reported.

    Instead, send CONNACK first, and only then the queued messages of the session.
    """

    code = "CON213"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-3.2.0-1": ""}, V3_1_1: {"MQTT-3.2.0-1": ""}, V3_1: {"V31-CONNACK-first": ""}}
    signs = ("early",)
    settled = False
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.WHOLE_SENDER
    Memory = ReportedBeforeConnack

    good = examples("""
        CONNACK first
            opened resume < present; < publish a/b
        AUTH may precede it
            > connect authentication_method=SCRAM-SHA-1; < auth code=0x18 authentication_method=SCRAM-SHA-1
            > auth code=0x18 authentication_method=SCRAM-SHA-1; < connack authentication_method=SCRAM-SHA-1
        capture started in mid-connection
            midstream; < publish a & publish b
    """)
    bad = examples("""
        a message before CONNACK
            > connect resume; < publish a/b !; < publish a/c; < connack present
        a message before CONNACK in 3.1.1
            > connect 3.1.1 resume; < publish a/b ! & connack present
        an answer before CONNACK in 3.1
            > connect 3.1 & raw c0 00; < raw d0 00 !
        a message after AUTH
            > connect authentication_method=SCRAM-SHA-1; < auth code=0x18 authentication_method=SCRAM-SHA-1
            < publish a !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Report the first packet of a fully captured connection that precedes CONNACK."""
        history = at.history
        if history.connack is not None or history.connack_malformed is not None:
            return None
        kind = packet.packet_type
        if kind == PacketType.CONNACK or kind == PacketType.AUTH or not at.connection.handshake_seen:
            return None
        if nothing_decoded(at) or (kind == PacketType.DISCONNECT and history.connect_sent is not None):
            return None  # DIS202 reports a DISCONNECT in more detail, and HDR103 before 5.0
        memory: ReportedBeforeConnack = at.memory(self)
        if memory.is_reported:
            return None
        memory.is_reported = True
        return self.report("", f"the server sent {packet_name(packet)} before CONNACK")
