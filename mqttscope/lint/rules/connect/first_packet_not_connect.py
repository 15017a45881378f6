from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Needs, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import ControlPacket, Direction, Malformed, PacketType


class FirstPacketNotConnect(Rule):
    """The first packet from a client is not CONNECT.

    Without a CONNECT the server cannot identify client and version, and closes the connection.  Reported only if the
    capture has the TCP handshake and all bytes after it; a capture that starts in mid-connection proves nothing.

    Instead, start every TCP connection with CONNECT, even when a layer below the client library reconnects.
    """

    code = "CON211"
    severity = Severity.ERROR
    version_matters = False
    statements = {V5: {"MQTT-3.1.0-1": ""}, V3_1_1: {"MQTT-3.1.0-1": ""}, V3_1: {"V31-CONNECT-first": ""}}
    signs = ("early",)
    settled = False
    sender = Direction.CLIENT_TO_SERVER
    needs = Needs.WHOLE_SENDER

    good = examples("""
        CONNECT first
            opened; > pingreq; < raw d0 00
        capture started in mid-connection
            midstream; > pingreq & pingreq; < raw d0 00 & raw d0 00
        a capture that lost the CONNECT
            lost > connect; < connack; > pingreq; < raw d0 00
    """)
    bad = examples("""
        a truncated packet first
            > raw 32 03 0001 "a" !
        PINGREQ first
            > raw c0 00 !
        PUBLISH first
            > publish a ! & pingreq
        CONNECT second
            > pingreq !; opened; > pingreq
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        if at.history.connect_sent is not None or packet.packet_type == PacketType.CONNECT or not _is_first(at):
            return None
        return self.report("", f"the first packet from the client is {packet_name(packet)}, must be CONNECT")

    def check_damaged(self, malformed: Malformed, at: RuleContext) -> Findings:
        """Check a packet that cannot be decoded to its end but has a type."""
        kind = malformed.packet_type
        if malformed.complete or not at.from_client or not kind or kind == PacketType.CONNECT or not _is_first(at):
            return None
        return self.report(
            "", f"the first packet from the client is a malformed {PacketType(kind).name}, must be CONNECT"
        )


def _is_first(at: RuleContext) -> bool:
    """Whether this is the client's first packet on a connection captured from its start."""
    if not at.connection.handshake_seen or at.history.connect_sent is not None:
        return False
    return not at.party.malformed and not any(at.party.counts)
