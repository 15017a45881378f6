from mqttscope.lint.rules import V3_1, V3_1_1, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class BridgeBit(Rule):
    """A client marks itself as a bridge with bit 7 of the protocol level.

    No specification has that bit; mosquitto introduced it for bridges between brokers.  A server that knows it keeps
    RETAIN on what it forwards and sends no message back where it came from; one that does not refuses the protocol
    level.

    Instead, use a bridge of MQTT 5.0, which has No Local and Retain As Published for it.
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
        """The decoder knows the levels of bridges."""
        if not packet.bridge:
            return None
        return self.report(
            "protocol_level",
            f"CONNECT of {at.client_name!r}: bridge bit set in protocol level 0x{packet.protocol_level:02x} "
            f"(MQTT {packet.version.text})",
        )
