"""Topics for rules of practice: where a packet names them, and which topics are near misses of each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.context import forget_oldest
from mqttscope.mqtt import Connect, ControlPacket, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.topics import parse_shared

MAX_SEEN = 1_000
"""Maximum number of texts remembered per connection; the oldest is dropped first."""
NAMING = (Connect, Publish, Subscribe, Unsubscribe)
"""Packets that name topics."""


@dataclass(slots=True)
class ReportedTexts:
    """Texts that a rule has already reported on a connection."""

    texts: dict[str, bool] = field(default_factory=dict)

    def first(self, text: str) -> bool:
        """Whether the text is new; from now on it is known."""
        if text in self.texts:
            return False
        self.texts[text] = True
        forget_oldest(self.texts, MAX_SEEN)
        return True


@dataclass(slots=True)
class TopicField:
    """A Topic Name or a Topic Filter in a packet, with its field."""

    field: str
    text: str
    is_filter: bool = False


def named_topics(packet: ControlPacket) -> Iterator[TopicField]:
    """Every topic and filter in a packet; an empty Topic Name (beside a Topic Alias) does not count."""
    if isinstance(packet, Publish):
        if packet.topic_name:
            yield TopicField("topic_name", packet.topic_name)
        response = None if packet.properties is None else packet.properties.response_topic
        if response:
            yield TopicField("properties.response_topic", response)
    elif isinstance(packet, Subscribe):
        for index, row in enumerate(packet.subscriptions or ()):
            yield TopicField(f"subscriptions[{index}].topic_filter", row.topic_filter, is_filter=True)
    elif isinstance(packet, Unsubscribe):
        for index, text in enumerate(packet.topic_filters or ()):
            yield TopicField(f"topic_filters[{index}]", text, is_filter=True)
    elif isinstance(packet, Connect) and packet.will is not None:
        will = packet.will
        if will.will_topic:
            yield TopicField("will.will_topic", will.will_topic)
        response = None if will.properties is None else will.properties.response_topic
        if response:
            yield TopicField("will.properties.response_topic", response)


def plain(topic_filter: str) -> str:
    """A Topic Filter without ``$share/ShareName/``."""
    shared = parse_shared(topic_filter)
    return topic_filter if shared is None else shared[1]


def fold(topic: str) -> str:
    """The topic without upper case, slashes at the ends and spaces around levels: equal for near misses."""
    levels = [level.strip() for level in topic.casefold().split("/")]
    return "/".join(levels).strip("/")


def difference(topic: str, other: str) -> str:
    """How two topics with the same `fold` differ: ``upper and lower case``, ``a leading '/'``, ``spaces``."""
    differences = []
    bare = [text.replace(" ", "") for text in (topic, other)]
    if bare[0].startswith("/") != bare[1].startswith("/"):
        differences.append("a leading '/'")
    if bare[0].endswith("/") != bare[1].endswith("/"):
        differences.append("a trailing '/'")
    if _spaces(topic) != _spaces(other):
        differences.append("spaces")
    if _letters(topic) != _letters(other):
        differences.append("upper and lower case")
    return " and ".join(differences) or "slashes at its ends"


def _spaces(topic: str) -> list[tuple[int, int]]:
    """Number of spaces before and after each level that is not empty."""
    levels = [level for level in topic.split("/") if level.strip()]
    return [(len(level) - len(level.lstrip()), len(level) - len(level.rstrip())) for level in levels]


def _letters(topic: str) -> list[str]:
    return [level.strip() for level in topic.split("/") if level.strip()]
