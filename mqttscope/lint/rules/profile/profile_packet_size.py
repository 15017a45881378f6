"""PRF102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule, packet_name
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish


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

    good = examples(
        lambda: [
            conversation(
                "as long as the limit",
                *opened(),
                client(Publish(topic_name="a", payload=b"x" * 30)),
                settings={"maximum_packet_bytes": 36},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "one byte more",
                *opened(),
                client(Publish(topic_name="a", payload=b"x" * 31)).marked(""),
                settings={"maximum_packet_bytes": 36},
            ),
        ]
    )

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Compare with the profile."""
        length = len(packet.raw) + packet.missing
        limit = self.set["maximum_packet_bytes"]
        if length <= limit:
            return None
        return self.report(
            "", f"{packet_name(packet)} of {length:,} bytes; {self.set['profile']} takes at most {limit:,}"
        )
