"""PRF102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule, packet_name
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.declare import ControlPacket


class ProfilePacketSize(Rule):
    """A packet is longer than the service of the profile takes.

    The service closes the connection, and a device that sends the same message again gets nowhere.

    Instead, send less in one message, or split it.
    """

    code = "PRF102"
    severity = Severity.ERROR
    looks_at = ControlPacket
    sender = Direction.CLIENT_TO_SERVER
    settings = {"maximum_packet_bytes": 268_435_460, "profile": "the profile"}

    good = examples("""
        as long as the limit
            settings maximum_packet_bytes=36; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """)
    bad = examples("""
        one byte more
            settings maximum_packet_bytes=36; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare with the profile."""
        length = len(packet.raw) + packet.missing
        limit = self.set["maximum_packet_bytes"]
        if length <= limit:
            return None
        return self.report(
            "", f"{packet_name(packet)} of {length:,} bytes; {self.set['profile']} takes at most {limit:,}"
        )
