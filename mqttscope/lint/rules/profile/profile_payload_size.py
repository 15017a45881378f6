"""PRF103."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.lint.rules import properties_lost
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish


class ProfilePayloadSize(Rule):
    """A message has a larger payload than the service of the profile takes.

    The service refuses the message or closes the connection.

    Instead, send less in one message, or put large data elsewhere and publish where it is.
    """

    code = "PRF103"
    severity = Severity.ERROR
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    settings = {"maximum_payload_bytes": 268_435_455, "profile": "the profile"}

    good = examples("""
        as large as the limit
            settings maximum_payload_bytes=32; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """)
    bad = examples("""
        one byte more
            settings maximum_payload_bytes=32; opened; > publish a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the profile; bytes that the capture lost count too."""
        if properties_lost(packet, at):
            return None  # how much of what is missing is payload?
        length = len(packet.payload) + packet.missing
        limit = self.set["maximum_payload_bytes"]
        if length <= limit:
            return None
        return self.report(
            "payload",
            f"PUBLISH {at.topic!r}: payload of {length:,} bytes; {self.set['profile']} takes at most {limit:,}",
        )
