from mqttscope.lint.rules import V5, Findings, Related, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import ControlPacket, Direction, PacketType


class PacketDuringAuth(Rule):
    """A client that chose enhanced authentication sends other packets before the CONNACK.

    Until the exchange ends the client is not authenticated, and the server accepts only AUTH and DISCONNECT; on other
    packets it closes the connection.  Without an Authentication Method a client may send early.

    Instead, wait for the CONNACK.
    """

    code = "AUT206"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-30": ""}}
    signs = ("early",)
    settled = False
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        AUTH only
            > connect authentication_method=SCRAM-SHA-1; < auth code=0x18 authentication_method=SCRAM-SHA-1
            > auth code=0x18 authentication_method=SCRAM-SHA-1; < connack authentication_method=SCRAM-SHA-1; > publish a
        given up
            > connect authentication_method=SCRAM-SHA-1; > disconnect
        early packets without a method
            > connect & publish a; < connack
        the capture has only the client's direction
            > connect authentication_method=SCRAM-SHA-1; lost < connack authentication_method=SCRAM-SHA-1; > publish a
        no method
            opened; > publish a
    """)
    bad = examples("""
        PUBLISH after CONNECT
            > connect authentication_method=SCRAM-SHA-1; > publish a !
        PUBLISH after AUTH
            > connect authentication_method=SCRAM-SHA-1; < auth code=0x18 authentication_method=SCRAM-SHA-1
            > auth code=0x18 authentication_method=SCRAM-SHA-1 & publish a !
            < connack authentication_method=SCRAM-SHA-1
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Check packets before the CONNACK, if the capture has all server bytes that the client had received."""
        history = at.history
        if history.connack is not None or history.connack_malformed is not None:
            return None
        connect, sent = history.connect, history.connect_sent
        if connect is None or sent is None or connect.properties is None or not is_fully_captured(at):
            return None
        method = connect.properties.authentication_method
        if method is None or packet.packet_type in (PacketType.CONNECT, PacketType.AUTH, PacketType.DISCONNECT):
            return None
        return self.report(
            "",
            f"the client sent {packet_name(packet)} before CONNACK although it uses Authentication Method {method!r}",
            related=(Related.to("the CONNECT", sent),),
        )


def is_fully_captured(at: RuleContext) -> bool:
    """Whether the capture has all bytes that the sender of this packet had received from the other side."""
    return not at.receiver.gapped and 0 <= at.party.acknowledged <= at.other.position
