"""PRF106."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect


class ProfileWillQos(Rule):
    """A will has a higher QoS than the service of the profile supports.

    The service refuses the CONNECT.

    Instead, set the will's QoS to at most what the service supports.
    """

    code = "PRF106"
    severity = Severity.ERROR
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER
    when = "will"
    settings = {"maximum_will_qos": 2, "profile": "the profile"}

    good = examples("""
        as much as the service takes
            settings maximum_will_qos=1; opened will=w will_payload=x will_qos=1
    """)
    bad = examples("""
        QoS 2 where 1 is the most
            settings maximum_will_qos=1; > connect will=w will_payload=x will_qos=2 !will.will_qos
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Compare with the profile."""
        limit = self.set["maximum_will_qos"]
        if packet.will is None or packet.will.will_qos <= limit:
            return None
        told = f"CONNECT: Will QoS {packet.will.will_qos}; {self.set['profile']} takes at most {limit}"
        return self.report("will.will_qos", told)
