"""OPS103."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription, Will


class NoWill(Rule):
    """A client that publishes has no will message.

    When it dies, nobody is told: its last values look as if they were current.  Reported with the first PUBLISH, since
    clients that only subscribe need no will.

    Instead, give it a retained will on a state topic, and publish the opposite state there after connecting.
    """

    code = "OPS103"
    severity = Severity.INFO
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER

    good = examples(
        lambda: [
            conversation(
                "a will", *opened(will=Will("state/c1", b"offline", will_retain=True)), client(Publish(topic_name="a"))
            ),
            conversation(
                "a client that only subscribes",
                *opened(),
                client(Subscribe(1, None, [Subscription("a")])),
                server(Suback(1, None, [0]), Publish(topic_name="a", payload=b"1")),
            ),
            conversation(
                "nobody knows what CONNECT said",
                client(Publish(topic_name="a/b", payload=b"1"), Publish(topic_name="a/b", payload=b"2")),
                server(Publish(topic_name="a/b", payload=b"3")),
                handshake=False,
                version=V3_1_1,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "no will, reported once",
                *opened(),
                client(Publish(topic_name="a")).marked(""),
                client(Publish(topic_name="a")),
            ),
            conversation("MQTT 3.1", *opened(V3_1), client(Publish(topic_name="a")).marked("")),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """The first PUBLISH only."""
        if at.party.counts[3]:
            return None
        connect, sent = at.history.connect, at.history.connect_sent
        if connect is None or sent is None or connect.will is not None:
            return None
        return self.report(
            "",
            f"CONNECT of {at.client_name!r}: no will message, but the client publishes",
            related=(Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns),),
        )
