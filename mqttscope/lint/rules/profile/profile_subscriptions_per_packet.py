"""PRF110."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Suback, Subscribe
from mqttscope.mqtt.parts import Subscription


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

    good = examples(
        lambda: [
            conversation(
                "as many as the limit",
                *opened(),
                client(Subscribe(packet_identifier=1, subscriptions=[Subscription("a"), Subscription("b")])),
                server(Suback(packet_identifier=1, reason_codes=[0, 0])),
                settings={"maximum_subscriptions_per_packet": 2},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "one more",
                *opened(),
                client(
                    Subscribe(
                        packet_identifier=1, subscriptions=[Subscription("a"), Subscription("b"), Subscription("c")]
                    )
                ).marked("subscriptions"),
                settings={"maximum_subscriptions_per_packet": 2},
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Compare with the profile."""
        count = len(packet.subscriptions or ())
        limit = self.set["maximum_subscriptions_per_packet"]
        if count <= limit:
            return None
        told = f"SUBSCRIBE with {count:,} topic filters; {self.set['profile']} takes at most {limit:,}"
        return self.report("subscriptions", told)
