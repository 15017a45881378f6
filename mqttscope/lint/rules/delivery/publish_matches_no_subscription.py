"""DLV201."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Suback, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties

_SUBSCRIBED = (client(Subscribe(10, subscriptions=[Subscription("a/+", 0)])), server(Suback(10, reason_codes=[0])))


class PublishMatchesNoSubscription(Rule):
    """A client gets a message whose topic none of its subscriptions matches.

    Clients hand messages to the subscription they match, so this one is dropped, or it lands in a handler for the
    rest.  Servers may assign subscriptions and map topics on their own, which a capture does not show; hence a warning.
    Topics that match after a change (DLV209), ``$`` topics under a wildcard (DLV206) and filters that were
    unsubscribed (DLV207) have rules of their own.

    Instead, send only what a filter of the client's session matches, character by character.
    """

    code = "DLV201"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.2-3": "", "V5-PUBLISH-unsolicited-qos": "client"},
        V3_1_1: {"MQTT-3.3.2-3": ""},
    }
    looks_at = Publish
    signs = ("unmatched",)
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS

    good = examples(
        lambda: [
            conversation("a topic that matches", *opened(), *_SUBSCRIBED, server(Publish(topic_name="a/c"))),
            conversation(
                "sent before the SUBACK",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("a/+", 0)])),
                server(Publish(topic_name="a/c"), Suback(10, reason_codes=[0])),
            ),
            conversation(
                "while an UNSUBSCRIBE is under way",
                *opened(V3_1_1),
                *_SUBSCRIBED,
                client(Unsubscribe(11, topic_filters=["a/+"])),
                server(Publish(topic_name="a/c")),
            ),
            conversation(
                "a Shared Subscription",
                *opened(),
                client(Subscribe(10, subscriptions=[Subscription("$share/g/a/+", 0)])),
                server(Suback(10, reason_codes=[0])),
                server(Publish(topic_name="a/c")),
            ),
            conversation(
                "a server that knows $share in 3.1.1",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("$share/g/a/+", 0)])),
                server(Suback(10, reason_codes=[0])),
                server(Publish(topic_name="a/c")),
            ),
            conversation(
                "a session from before may have any subscription",
                *opened(clean_start=False, session_present=True),
                *_SUBSCRIBED,
                server(Publish(topic_name="b/c")),
            ),
            conversation(
                "a response below the Response Information",
                *opened(
                    connect=Properties(request_response_information=1), connack=Properties(response_information="r/1")
                ),
                server(Publish(topic_name="r/1/x")),
            ),
            conversation(
                "the capture begins in the middle",
                *_SUBSCRIBED,
                server(Publish(topic_name="b/c")),
                handshake=False,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "another topic",
                *opened(),
                *_SUBSCRIBED,
                server(Publish(topic_name="b/c")).marked("topic_name"),
            ),
            conversation(
                "a refused filter does not count, in 3.1.1",
                *opened(V3_1_1),
                client(Subscribe(10, subscriptions=[Subscription("b/c", 0), Subscription("a", 0)])),
                server(Suback(10, reason_codes=[0x80, 0])),
                server(Publish(topic_name="b/c")).marked("topic_name"),
            ),
            conversation(
                "nothing subscribed in 3.1", *opened(V3_1), server(Publish(topic_name="x")).marked("topic_name")
            ),
        ]
    )

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look the topic up, and leave out what explains it."""
        topic = at.topic
        if topic is None:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if found.subscriptions or found.ended or found.extended or found.beside or not found.known or packet.dup:
            return None
        if table.near(topic) is not None:
            return None
        connack = at.history.connack
        if connack is not None and connack.properties is not None:
            information = connack.properties.response_information
            if information and topic.startswith(information):
                return None
        return self.report(
            "topic_name",
            f"PUBLISH {topic!r} to {at.client_name!r} matches none of its {len(table.live)} subscriptions",
        )
