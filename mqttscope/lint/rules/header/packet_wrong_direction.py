from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule, packet_name
from mqttscope.lint.rules import Confidence, RuleContext, Severity, examples, nothing_decoded, roles_guessed
from mqttscope.mqtt import Connack, Connect, Disconnect, Pingreq, Pingresp, Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.declare import ControlPacket

_REQUESTS = (Connect, Subscribe, Unsubscribe, Pingreq)


class PacketWrongDirection(Rule):
    """A packet is sent by a side that never sends this type.

    Clients connect, subscribe, unsubscribe and ping; servers answer.  Before MQTT 5.0 only clients send DISCONNECT, and
    servers just close the connection.  The receiver treats the packet as a protocol error.

    Instead, send only the packet types of your role; a server of MQTT 3.1 or 3.1.1 just closes.
    """

    code = "HDR103"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {
        V5: {"V5-TYPE-direction": ""},
        V3_1_1: {"V311-TYPE-direction": ""},
        V3_1: {"V31-DISCONNECT-client-only": "server disconnect"},
    }
    looks_at = (Connect, Connack, Subscribe, Suback, Unsubscribe, Unsuback, Pingreq, Pingresp, Disconnect)
    signs = ("wrong_sender",)

    good = examples("""
        requests and answers
            opened; > subscribe 1 a:0; < suback 1 0; > unsubscribe 2 a; < unsuback 2 0; > pingreq; < pingresp
            > publish b; > disconnect
        capture started in mid-connection, with unknown roles
            midstream; server 10.0.0.2:40000; version 3.1.1; > publish b hello & puback 1 & puback 2
            < publish c hello & disconnect
        a server of MQTT 5.0 sends DISCONNECT
            opened; < disconnect code=0x8b
    """)
    bad = examples("""
        a PINGRESP from the client
            opened; > pingresp !
        a PINGREQ from the server
            opened; < pingreq !
        a SUBSCRIBE from the server, in MQTT 3.1.1
            opened 3.1.1; < subscribe 1 a:0 !
        a DISCONNECT from the server, in MQTT 3.1.1
            opened 3.1.1; < disconnect !
        a DISCONNECT from the server, in MQTT 3.1
            opened 3.1; < disconnect !
        a CONNACK from the client
            opened; > connack !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare with the allowed sender of the type."""
        if isinstance(packet, Disconnect) and (at.version >= V5 or not at.connection.version_known):
            return None
        asks = isinstance(packet, (*_REQUESTS, Disconnect))
        if asks == at.from_client or roles_guessed(at) or nothing_decoded(at):
            return None
        sender, allowed = ("client", "server") if at.from_client else ("server", "client")
        return self.report(
            "",
            f"{packet_name(packet)} sent by the {sender}; only the {allowed} may send it",
            # After a gap, payload bytes may look like a packet.
            confidence=Confidence.LIKELY if at.sender.gapped else None,
        )
