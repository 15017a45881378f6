from mqttscope.lint.rules import Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction


class LegacyVersion(Rule):
    """A client speaks an old version of MQTT.

    MQTT 3.1 was never a standard: it limits Client Identifiers to 23 characters, cannot refuse a subscription and
    cannot say whether a session was there.  Servers begin to drop it.

    Instead, use MQTT 5.0, or 3.1.1 where a library knows no better.
    """

    code = "OPS108"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Protocol level, the lowest that is not reported: 4 is MQTT 3.1.1; 5 reports MQTT 3.1.1 too.
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
        MQTT 3.1.1 where 5.0 is wanted
            settings lowest=5; opened 3.1.1 !protocol_level
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Bit 7 is the mark of a bridge, not of a version."""
        level = packet.protocol_level
        if level is None or not 3 <= level & 0x7F < self.set["lowest"] or level & 0x7F > 5:
            return None
        return self.report("protocol_level", f"CONNECT of {at.client_name!r}: MQTT {packet.version.text}")
