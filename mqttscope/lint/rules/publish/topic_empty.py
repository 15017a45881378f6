"""PUB104."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules import properties_lost
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties


class TopicEmpty(Rule):
    """A PUBLISH has an empty Topic Name where nothing stands in for it.

    Nobody can tell where the message belongs.  MQTT 5.0 lets the name be empty when a Topic Alias takes its place;
    before 5.0 there is no such thing.

    Instead, send a Topic Name of at least one character, or in MQTT 5.0 a Topic Alias that was set before.
    """

    code = "PUB104"
    severity = Severity.ERROR
    reason_code = 0x82
    statements = {V5: {"MQTT-4.7.3-1": "", "V5-PUBLISH-empty-topic": ""}, V3_1_1: {"MQTT-4.7.3-1": ""}}
    also = {V3_1: ("V31-PUBLISH-topic-length",)}
    looks_at = Publish
    when = "odd_strings"
    signs = ("nameless",)

    good = examples(
        lambda: [
            conversation("one character is enough", *opened(), client(Publish(topic_name="a"))),
            conversation(
                "an alias takes its place",
                *opened(connack=Properties(topic_alias_maximum=5)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=1))),
                client(Publish(properties=Properties(topic_alias=1))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("neither name nor alias", *opened(), client(Publish(payload=b"hi")).marked("topic_name")),
            conversation(
                "properties, but no alias among them",
                *opened(),
                server(Publish(properties=Properties(content_type="x"))).marked("topic_name"),
            ),
            conversation("in MQTT 3.1.1", *opened(V3_1_1), client(Publish(payload=b"hi")).marked("topic_name")),
            conversation("in MQTT 3.1", *opened(V3_1), client(Publish(payload=b"hi")).marked("topic_name")),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """An empty name needs an alias."""
        if packet.topic_name:
            return None
        block = packet.properties
        if block and block.topic_alias is not None:
            return None
        if properties_lost(packet, at) or (at.version is not V5 and not at.connection.version_known):
            return None  # an alias may stand where nobody can see it
        why = " and no Topic Alias" if at.version is V5 else f"; MQTT {at.version.text} has no Topic Alias"
        return self.report("topic_name", f"PUBLISH has an empty topic name{why}")
