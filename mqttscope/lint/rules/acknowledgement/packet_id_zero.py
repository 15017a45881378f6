from mqttscope.lint.rules import V3_1, V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe


class PacketIdZero(Rule):
    """A packet has packet identifier 0, which is reserved.

    Zero is reserved so that wrongly built packets can be detected: a counter that wrapped around to 0, or a field that
    was never set.  Some servers close the connection, others lose track of the message.

    Instead, count from 1 to 65,535 and start again at 1.
    """

    code = "ACK101"
    severities = (Severity.ERROR, Severity.INFO)
    statements = {
        V3_1_1: {"MQTT-2.3.1-1": "publish,subscribe,unsubscribe"},
        V3_1: {"V31-MSGID-nonzero": "", "V31-PUBLISH-msgid-nonzero": "publish"},
    }
    also = {
        V5: ("MQTT-2.2.1-3", "MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1"),
        V3_1_1: ("MQTT-4.3.2-1",),
    }
    looks_at = (Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback)
    when = "qos"
    always = (Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback)
    signs = ("zero_identifier",)

    good = examples("""
        1 and 65,535
            opened; > publish a qos=1 id=1; < puback 1; > publish a qos=1 id=65535; < puback 65535
        QoS 0 does not use an identifier
            opened 3.1.1; > publish a
    """)
    bad = examples("""
        PUBLISH
            opened; > publish a qos=1 id=0 !packet_identifier
        PUBLISH from the server, in MQTT 3.1.1
            opened 3.1.1; < publish a qos=2 id=0 !packet_identifier
        PUBLISH in MQTT 3.1
            opened 3.1; > publish a qos=1 id=0 !packet_identifier
        SUBSCRIBE and the SUBACK that copies it
            opened; > subscribe 0 a:0 !packet_identifier; < suback 0 0 !packet_identifier
        UNSUBSCRIBE
            opened; > unsubscribe 0 a !packet_identifier
        acknowledgements
            opened; < puback 0 !packet_identifier; > pubrec 0 !packet_identifier; > pubrel 0 !packet_identifier
            > pubcomp 0 !packet_identifier; < unsuback 0 0 !packet_identifier
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Report identifier 0; an answer that copies it from the request is only info."""
        if packet.packet_identifier != 0:  # type: ignore[attr-defined]
            return None
        asks = isinstance(packet, Publish | Subscribe | Unsubscribe)
        echo = not asks and (0 in at.receiver.exchanges or at.other.has_sent(0) or 0 in at.party.owes_pubcomp)
        if at.version is V5:
            cited: tuple[str, ...] | None = ()
            if asks:
                cited = ("MQTT-2.2.1-3" if at.from_client else "MQTT-2.2.1-4",)
        else:
            cited = None
        return self.report(
            "packet_identifier",
            f"{packet_name(packet)} {'repeats' if echo else 'has'} packet identifier 0",
            severity=Severity.INFO if echo else None,
            statements=cited,
        )
