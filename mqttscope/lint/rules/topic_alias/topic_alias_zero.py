"""ALS101."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties


class TopicAliasZero(Rule):
    """A PUBLISH has the Topic Alias 0, which is no alias.

    The receiver closes the connection with 0x94 (Topic Alias invalid).

    Instead, count aliases from 1 to the receiver's Topic Alias Maximum, and leave the property out where none is meant.
    """

    code = "ALS101"
    severity = Severity.ERROR
    reason_code = 0x94
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-8": ""}}
    also = {V5: ("V5-PUBLISH-alias-range",)}
    looks_at = Publish
    when = "properties"
    signs = ("odd_alias",)

    good = examples(
        lambda: [
            conversation(
                "the lowest alias",
                *opened(connack=Properties(topic_alias_maximum=1)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=1))),
            ),
            conversation("none", *opened(), client(Publish(topic_name="a/b", properties=Properties(content_type="x")))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "from the client",
                *opened(connack=Properties(topic_alias_maximum=1)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=0))).marked(
                    "properties.topic_alias"
                ),
            ),
            conversation(
                "from the server",
                *opened(),
                server(Publish(topic_name="a/b", properties=Properties(topic_alias=0))).marked(
                    "properties.topic_alias"
                ),
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look at the property."""
        assert packet.properties is not None
        if packet.properties.topic_alias != 0:
            return None
        return self.report("properties.topic_alias", f"PUBLISH {at.topic!r} has Topic Alias 0")
