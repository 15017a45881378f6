"""PRF104."""

from mqttscope.lint.examples import client, conversation, examples, opened
from mqttscope.lint.finding import Severity
from mqttscope.lint.shared_checks import TopicLimit
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import matches


class ProfileTopicLevels(TopicLimit):
    """A topic name or topic filter has more levels than the service of the profile takes.

    The service refuses the message or the subscription, or closes the connection.

    Instead, design topics that stay within the limit of the service.
    """

    code = "PRF104"
    severity = Severity.ERROR
    looks_at = (Publish, Subscribe)
    sender = Direction.CLIENT_TO_SERVER
    setting, unit = "maximum_topic_levels", "levels"
    settings = {"maximum_topic_levels": 65_536, "uncounted_topic_prefix": "", "profile": "the profile"}

    good = examples(
        lambda: [
            conversation(
                "as much as the limit",
                *opened(),
                client(Publish(topic_name="a/b/c")),
                settings={"maximum_topic_levels": 3},
            ),
            conversation(
                "a prefix that does not count",
                *opened(),
                client(Publish(topic_name="$in/x/a/b/c")),
                settings={"maximum_topic_levels": 3, "uncounted_topic_prefix": "$in/+/"},
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a topic name beyond it",
                *opened(),
                client(Publish(topic_name="a/b/c/d")).marked("topic_name"),
                settings={"maximum_topic_levels": 3},
            ),
            conversation(
                "a topic filter beyond it",
                *opened(),
                client(
                    Subscribe(packet_identifier=1, subscriptions=[Subscription("a/#"), Subscription("a/b/c/d")])
                ).marked("subscriptions[1].topic_filter"),
                settings={"maximum_topic_levels": 3},
            ),
        ]
    )

    def count(self, topic: str) -> int:
        """Its levels, without a prefix that does not count."""
        prefix = str(self.set["uncounted_topic_prefix"]).rstrip("/")
        if prefix and matches(f"{prefix}/#", topic):
            return topic.count("/") - prefix.count("/")
        return topic.count("/") + 1
