"""PRF111."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect


class ProfileVersion(Rule):
    """A client speaks a version of MQTT that the service of the profile does not.

    The service refuses the CONNECT or closes the connection.

    Instead, speak one of the versions that the service supports.
    """

    code = "PRF111"
    severity = Severity.ERROR
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER
    settings = {"versions": ["3.1", "3.1.1", "5.0"], "profile": "the profile"}

    good = examples("""
        a version of the service
            settings versions=["3.1.1"]; opened 3.1.1
    """)
    bad = examples("""
        another version
            settings versions=["3.1.1"]; > connect !protocol_level
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Compare with the profile."""
        spoken = packet.version.text
        if spoken in self.set["versions"]:
            return None
        told = f"CONNECT: MQTT {spoken}; {self.set['profile']} speaks {', '.join(self.set['versions'])}"
        return self.report("protocol_level", told)
