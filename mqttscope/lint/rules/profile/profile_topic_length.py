"""PRF105."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.shared_checks import TopicLimit
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Subscribe
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

    good = examples("""
        as much as the limit
            settings maximum_topic_bytes=5; opened; > publish a/b/c
    """)
    bad = examples("""
        a topic name beyond it
            settings maximum_topic_bytes=5; opened; > publish a/b/c/ !topic_name
        a topic filter beyond it
            settings maximum_topic_bytes=5; opened; > subscribe 1 a/#:0 a/b/c/:0 !subscriptions[1].topic_filter
    """)

    def count(self, topic: str) -> int:
        """Its bytes in UTF-8."""
        return utf8_length(topic)
