"""PRF108."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Connect


class ProfileKeepAlive(Rule):
    """A client asks for a Keep Alive outside the range of the service of the profile.

    The service takes another value instead, or refuses the CONNECT; a device that does not know it is cut off.

    Instead, ask for a Keep Alive within the range.
    """

    code = "PRF108"
    severity = Severity.ERROR
    looks_at = Connect
    sender = Direction.CLIENT_TO_SERVER
    settings = {"minimum_keep_alive": 0, "maximum_keep_alive": 65_535, "profile": "the profile"}

    good = examples("""
        the highest value
            settings maximum_keep_alive=60; opened
        the lowest value
            settings minimum_keep_alive=30; opened keep_alive=30
    """)
    bad = examples("""
        too long
            settings maximum_keep_alive=60; > connect keep_alive=61 !keep_alive
        too short
            settings minimum_keep_alive=30; > connect keep_alive=29 !keep_alive
        switched off, which is longer than any
            settings maximum_keep_alive=60; > connect keep_alive=0 !keep_alive
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Compare with the profile; 0 switches the timer off, which a service with a maximum does not take."""
        asked = packet.keep_alive
        if asked is None:
            return None
        lowest, highest = self.set["minimum_keep_alive"], self.set["maximum_keep_alive"]
        if asked == 0:
            if highest >= 65_535:
                return None
        elif lowest <= asked <= highest:
            return None
        told = f"CONNECT: Keep Alive {asked} s; {self.set['profile']} takes {max(lowest, 1)} to {highest} s"
        return self.report("keep_alive", told)
