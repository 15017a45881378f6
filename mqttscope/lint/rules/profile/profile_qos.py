"""PRF101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Puback, Publish


class ProfileQos(Rule):
    """A client publishes with a higher QoS than the service of the profile supports.

    Services without QoS 2 close the connection when they get it, whatever they announce.

    Instead, publish with at most the QoS that the service supports.
    """

    code = "PRF101"
    severity = Severity.ERROR
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    when = "qos"
    settings = {"maximum_qos": 2, "profile": "the profile"}

    good = examples(
        lambda: [
            conversation(
                "as much as the service takes",
                *opened(),
                client(Publish(qos=1, topic_name="a", packet_identifier=1)),
                server(Puback(packet_identifier=1)),
                settings={"maximum_qos": 1},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "QoS 2 where 1 is the most",
                *opened(),
                client(Publish(qos=2, topic_name="a", packet_identifier=1)).marked("qos"),
                settings={"maximum_qos": 1},
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the profile; QoS 3 is wrong everywhere."""
        limit = self.set["maximum_qos"]
        if packet.qos <= limit or packet.qos == 3:
            return None
        return self.report(
            "qos", f"PUBLISH {at.topic!r} has QoS {packet.qos}; {self.set['profile']} takes at most {limit}"
        )
