"""PUB210."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, crossing, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties


class RetainNotAvailable(Rule):
    """A client publishes a retained message to a server that keeps none.

    The server said so in CONNACK (Retain Available 0) and closes the connection with 0x9A (Retain not supported).  A
    client that publishes before the CONNACK has reached it only guesses, so then the finding is likely at best.

    Instead, look at Retain Available in CONNACK and publish with RETAIN 0.
    """

    code = "PUB210"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x9A
    versions = (V5,)
    statements = {V5: {"MQTT-3.2.2-14": ""}}
    also = {V5: ("V5-PUBLISH-retain-unavailable",)}
    looks_at = Publish
    sender = Direction.CLIENT_TO_SERVER
    when = "retain"
    needs = Needs.OPENING

    good = examples(
        lambda: [
            conversation(
                "RETAIN 0",
                *opened(connack=Properties(retain_available=0)),
                client(Publish(topic_name="a", payload=b"x")),
            ),
            conversation(
                "available",
                *opened(connack=Properties(retain_available=1)),
                client(Publish(topic_name="a", retain=True)),
            ),
            conversation("available by default", *opened(), client(Publish(topic_name="a", retain=True, payload=b"x"))),
            conversation(
                "what binds the client does not bind the server",
                *opened(connack=Properties(retain_available=0)),
                server(Publish(topic_name="a", retain=True, payload=b"x")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "RETAIN 1 all the same",
                *opened(connack=Properties(retain_available=0)),
                client(Publish(topic_name="a", retain=True, payload=b"x")).marked("retain"),
            ),
            conversation(
                "sent before the CONNACK had arrived",
                *opened(connack=Properties(retain_available=0)),
                crossing(client(Publish(topic_name="a", retain=True, payload=b"x"))).marked("retain"),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with what CONNACK announced."""
        if at.connection.retain_available:
            return None
        severity, confidence = at.awareness()
        return self.report(
            "retain",
            f"PUBLISH {at.topic!r} has RETAIN 1, the server announced Retain Available 0",
            severity=severity,
            confidence=confidence,
        )
