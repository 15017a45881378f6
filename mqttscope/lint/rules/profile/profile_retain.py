"""PRF107."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish


class ProfileRetain(Rule):
    """A client publishes a retained message to a service that keeps none.

    The service drops the flag or refuses the message: late subscribers never get it.

    Instead, ask for the last value in another way that the service offers.
    """

    code = "PRF107"
    severity = Severity.ERROR
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"
    settings = {"retain_available": True, "profile": "the profile"}

    good = examples("""
        not retained
            settings retain_available=false; opened; > publish a
        the service keeps it
            opened; > publish a retain
    """)
    bad = examples("""
        retained
            settings retain_available=false; opened; > publish a retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the profile."""
        if self.set["retain_available"]:
            return None
        return self.report(
            "retain", f"PUBLISH {at.topic!r} is retained; {self.set['profile']} keeps no retained messages"
        )
