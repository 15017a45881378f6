from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class LegacyVersion(Rule):
    """A client uses an old version of MQTT.

    MQTT 3.1 was never a standard: it limits Client Identifiers to 23 characters, cannot refuse a subscription and has
    no Session Present flag.  Servers are dropping support for it.

    Instead, use MQTT 5.0, or 3.1.1 if your library does not support 5.0.
    """

    code = "OPS108"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Lowest protocol level that is not reported: 4 is MQTT 3.1.1; 5 also reports MQTT 3.1.1.
        "lowest": 4,
    }

    good = examples("""
        MQTT 5.0
            settings lowest=5; opened
        MQTT 3.1.1
            opened 3.1.1
    """)
    bad = examples("""
        MQTT 3.1
            opened 3.1 !protocol_level
        MQTT 3.1.1 with the lowest level set to 5
            settings lowest=5; opened 3.1.1 !protocol_level
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Ignore bit 7, which marks a bridge."""
        level = packet.protocol_level
        if level is None or not 3 <= level & 0x7F < self.set["lowest"] or level & 0x7F > 5:
            return None
        return self.report("protocol_level", f"CONNECT of {at.client_name!r}: MQTT {packet.version.text}")
