"""PRF110."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Subscribe


class ProfileSubscriptionsPerPacket(Rule):
    """A SUBSCRIBE asks for more topic filters at once than the service of the profile takes.

    The service refuses the packet or closes the connection.

    Instead, spread the topic filters over several SUBSCRIBE packets.
    """

    code = "PRF110"
    severity = Severity.ERROR
    looks_at = Subscribe
    sender = Direction.CLIENT_TO_SERVER
    settings = {"maximum_subscriptions_per_packet": 268_435_455, "profile": "the profile"}

    good = examples("""
        as many as the limit
            settings maximum_subscriptions_per_packet=2; opened; > subscribe 1 a:0 b:0; < suback 1 0 0
    """)
    bad = examples("""
        one more
            settings maximum_subscriptions_per_packet=2; opened; > subscribe 1 a:0 b:0 c:0 !subscriptions
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Compare with the profile."""
        count = len(packet.subscriptions or ())
        limit = self.set["maximum_subscriptions_per_packet"]
        if count <= limit:
            return None
        told = f"SUBSCRIBE with {count:,} topic filters; {self.set['profile']} takes at most {limit:,}"
        return self.report("subscriptions", told)
