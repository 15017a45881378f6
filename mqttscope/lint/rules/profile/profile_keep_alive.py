"""PRF108."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, make_connect, opened
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

    good = examples(
        lambda: [
            conversation("the highest value", *opened(keep_alive=60), settings={"maximum_keep_alive": 60}),
            conversation("the lowest value", *opened(keep_alive=30), settings={"minimum_keep_alive": 30}),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "too long",
                client(make_connect(keep_alive=61)).marked("keep_alive"),
                settings={"maximum_keep_alive": 60},
            ),
            conversation(
                "too short",
                client(make_connect(keep_alive=29)).marked("keep_alive"),
                settings={"minimum_keep_alive": 30},
            ),
            conversation(
                "switched off, which is longer than any",
                client(make_connect(keep_alive=0)).marked("keep_alive"),
                settings={"maximum_keep_alive": 60},
            ),
        ]
    )

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
