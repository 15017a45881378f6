"""PRF105."""

from mqttscope.lint.examples import client, conversation, examples, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.shared_checks import TopicLimit
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import utf8_length


class ProfileTopicLength(TopicLimit):
    """A topic name or topic filter is longer than the service of the profile takes.

    The service refuses the message or the subscription, or closes the connection.

    Instead, design topics that stay within the limit of the service.
    """

    code = "PRF105"
    severity = Severity.ERROR
    looks_at = (Publish, Subscribe)
    sender = Direction.CLIENT_TO_SERVER
    setting, unit = "maximum_topic_bytes", "bytes"
    settings = {"maximum_topic_bytes": 65_535, "profile": "the profile"}

    good = examples(
        lambda: [
            conversation(
                "as much as the limit",
                *opened(),
                client(Publish(topic_name="a/b/c")),
                settings={"maximum_topic_bytes": 5},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a topic name beyond it",
                *opened(),
                client(Publish(topic_name="a/b/c/")).marked("topic_name"),
                settings={"maximum_topic_bytes": 5},
            ),
            conversation(
                "a topic filter beyond it",
                *opened(),
                client(
                    Subscribe(packet_identifier=1, subscriptions=[Subscription("a/#"), Subscription("a/b/c/")])
                ).marked("subscriptions[1].topic_filter"),
                settings={"maximum_topic_bytes": 5},
            ),
        ]
    )

    def count(self, topic: str) -> int:
        """Its bytes in UTF-8."""
        return utf8_length(topic)
