from mqttscope.lint.rules import V3_1, V3_1_1, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class BridgeBit(Rule):
    """A client marks itself as a bridge with bit 7 of the protocol level.

    The bit is not part of any specification; mosquitto introduced it for bridges between brokers.  A server that
    supports it keeps RETAIN on forwarded messages and does not return messages to their sender; other servers refuse
    the protocol level.

    Instead, use a bridge with MQTT 5.0, which has No Local and Retain As Published for this purpose.
    """

    code = "OPS109"
    severity = Severity.INFO
    versions = (V3_1, V3_1_1)
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        an ordinary client
            opened 3.1.1
        an ordinary client of MQTT 3.1
            opened 3.1
    """)
    bad = examples("""
        MQTT 3.1.1
            opened 3.1.1 protocol_level=0x84 !protocol_level
        MQTT 3.1
            opened 3.1 protocol_level=0x83 !protocol_level
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Report the bridge bit that the decoder found."""
        if not packet.bridge:
            return None
        return self.report(
            "protocol_level",
            f"CONNECT of {at.client_name!r}: bridge bit set in protocol level 0x{packet.protocol_level:02x} "
            f"(MQTT {packet.version.text})",
        )
