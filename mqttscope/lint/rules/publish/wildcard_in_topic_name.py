"""PUB103."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.mqtt.packets import Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties


class WildcardInTopicName(Rule):
    """A PUBLISH has a wildcard character in its Topic Name.

    Wildcards are for filters.  A message published to ``a/+`` does not reach the subscribers of ``a/b``; servers close
    the connection or drop the message.  The characters are forbidden anywhere in the name, not only as a whole level.

    Instead, publish to each topic by its full name.
    """

    code = "PUB103"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-3.3.2-2": "", "MQTT-4.7.0-1": ""},
        V3_1_1: {"MQTT-3.3.2-2": "", "MQTT-4.7.1-1": ""},
        V3_1: {"V31-PUBLISH-no-wildcards": ""},
    }
    looks_at = Publish
    when = "odd_strings"
    signs = ("wildcard",)

    good = examples(
        lambda: [
            conversation("a plain name", *opened(), client(Publish(topic_name="a/x/b", payload=b"hi"))),
            conversation(
                "a wildcard in a filter",
                *opened(V3_1_1),
                client(Subscribe(packet_identifier=1, subscriptions=[Subscription("a/+/b")])),
                server(Suback(packet_identifier=1, reason_codes=[0])),
                server(Publish(topic_name="a/x/b")),
            ),
            conversation(
                "no name beside an alias",
                *opened(connack=Properties(topic_alias_maximum=5)),
                client(Publish(topic_name="a/b", properties=Properties(topic_alias=1))),
                client(Publish(properties=Properties(topic_alias=1))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation("a whole level", *opened(), client(Publish(topic_name="a/+/b")).marked("topic_name")),
            conversation("inside a level", *opened(V3_1_1), client(Publish(topic_name="a/b#")).marked("topic_name")),
            conversation(
                "from the server, in MQTT 3.1", *opened(V3_1), server(Publish(topic_name="+")).marked("topic_name")
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for either character."""
        topic = packet.topic_name
        if "+" not in topic and "#" not in topic:
            return None
        character = next(one for one in topic if one in "+#")
        return self.report("topic_name", f"PUBLISH topic name {topic!r} has the wildcard {character!r}")
