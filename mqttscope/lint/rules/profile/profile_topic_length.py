"""PRF105."""

from mqttscope.lint.examples import client, conversation, opened
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.moment import Moment
from mqttscope.lint.rule import Findings, Rule
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.topics import utf8_length


class ProfileTopicLength(Rule):
    """A topic name or topic filter is longer than the service of the profile takes.

    The service refuses the message or the subscription, or closes the connection.

    Instead, design topics that stay within the limit of the service.
    """

    code = "PRF105"
    severity = Severity.ERROR
    looks_at = (Publish, Subscribe)
    sender = Direction.CLIENT_TO_SERVER
    settings = {"maximum_topic_bytes": 65_535, "profile": "the profile"}

    good = [
        conversation(
            "as much as the limit",
            *opened(),
            client(Publish(topic_name="a/b/c")),
            settings={"maximum_topic_bytes": 5},
        ),
    ]
    bad = [
        conversation(
            "a topic name beyond it",
            *opened(),
            client(Publish(topic_name="a/b/c/")).marked("topic_name"),
            settings={"maximum_topic_bytes": 5},
        ),
        conversation(
            "a topic filter beyond it",
            *opened(),
            client(Subscribe(packet_identifier=1, subscriptions=[Subscription("a/#"), Subscription("a/b/c/")])).marked(
                "subscriptions[1].topic_filter"
            ),
            settings={"maximum_topic_bytes": 5},
        ),
    ]

    def check(self, packet: Publish | Subscribe, at: Moment) -> Findings:
        """Compare each topic with the profile."""
        limit = self.set["maximum_topic_bytes"]
        if isinstance(packet, Publish):
            topic = packet.topic_name or ""
            return self._told("topic_name", topic, limit) if self._count(topic) > limit else None
        return [
            self._told(f"subscriptions[{index}].topic_filter", row.topic_filter, limit)
            for index, row in enumerate(packet.subscriptions or ())
            if self._count(row.topic_filter) > limit
        ]

    def _told(self, field: str, topic: str, limit: int) -> Report:
        return self.report(
            field, f"{topic!r} has {self._count(topic):,} bytes; {self.set['profile']} takes at most {limit:,}"
        )

    def _count(self, topic: str) -> int:
        return utf8_length(topic)
