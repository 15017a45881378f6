"""PRF104."""

from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Severity
from mqttscope.lint.shared_checks import TopicLimit
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Subscribe
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

    good = examples("""
        as much as the limit
            settings maximum_topic_levels=3; opened; > publish a/b/c
        a prefix that does not count
            settings maximum_topic_levels=3 uncounted_topic_prefix=$in/+/; opened; > publish $in/x/a/b/c
    """)
    bad = examples("""
        a topic name beyond it
            settings maximum_topic_levels=3; opened; > publish a/b/c/d !topic_name
        a topic filter beyond it
            settings maximum_topic_levels=3; opened; > subscribe 1 a/#:0 a/b/c/d:0 !subscriptions[1].topic_filter
    """)

    def count(self, topic: str) -> int:
        """Its levels, without a prefix that does not count."""
        prefix = str(self.set["uncounted_topic_prefix"]).rstrip("/")
        if prefix and matches(f"{prefix}/#", topic):
            return topic.count("/") - prefix.count("/")
        return topic.count("/") + 1
