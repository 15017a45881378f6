"""PRF101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish


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

    good = examples("""
        as much as the service takes
            settings maximum_qos=1; opened; > publish a qos=1 id=1; < puback 1
    """)
    bad = examples("""
        QoS 2 where 1 is the most
            settings maximum_qos=1; opened; > publish a qos=2 id=1 !qos
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the profile; QoS 3 is wrong everywhere."""
        limit = self.set["maximum_qos"]
        if packet.qos <= limit or packet.qos == 3:
            return None
        return self.report(
            "qos", f"PUBLISH {at.topic!r} has QoS {packet.qos}; {self.set['profile']} takes at most {limit}"
        )
