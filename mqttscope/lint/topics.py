"""Topics as rules of practice look at them: where a packet names them, and which are near misses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.context import forget_oldest
from mqttscope.mqtt import Connect, ControlPacket, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.topics import parse_shared

MAX_SEEN = 1_000
"""Texts that a rule remembers of a connection; the oldest is forgotten first."""
NAMING = (Connect, Publish, Subscribe, Unsubscribe)
"""Packets that name topics."""


@dataclass(slots=True)
class Seen:
    """Texts that a rule has reported on a connection, so that each is reported once."""

    texts: dict[str, bool] = field(default_factory=dict)

    def first(self, text: str) -> bool:
        """Whether the text was not seen before; from now on it is."""
        if text in self.texts:
            return False
        self.texts[text] = True
        forget_oldest(self.texts, MAX_SEEN)
        return True


@dataclass(slots=True)
class Named:
    """A Topic Name or a Topic Filter in a packet."""

    field: str
    text: str
    is_filter: bool = False


def named_topics(packet: ControlPacket) -> Iterator[Named]:
    """Every topic and filter that a packet spells out; an empty Topic Name beside a Topic Alias names none."""
    if isinstance(packet, Publish):
        if packet.topic_name:
            yield Named("topic_name", packet.topic_name)
        response = None if packet.properties is None else packet.properties.response_topic
        if response:
            yield Named("properties.response_topic", response)
    elif isinstance(packet, Subscribe):
        for index, row in enumerate(packet.subscriptions or ()):
            yield Named(f"subscriptions[{index}].topic_filter", row.topic_filter, is_filter=True)
    elif isinstance(packet, Unsubscribe):
        for index, text in enumerate(packet.topic_filters or ()):
            yield Named(f"topic_filters[{index}]", text, is_filter=True)
    elif isinstance(packet, Connect) and packet.will is not None:
        will = packet.will
        if will.will_topic:
            yield Named("will.will_topic", will.will_topic)
        response = None if will.properties is None else will.properties.response_topic
        if response:
            yield Named("will.properties.response_topic", response)


def plain(topic_filter: str) -> str:
    """A Topic Filter without ``$share/ShareName/``."""
    shared = parse_shared(topic_filter)
    return topic_filter if shared is None else shared[1]


def fold(topic: str) -> str:
    """What near misses have in common: without upper case, slashes at the ends and spaces at the ends of levels."""
    levels = [level.strip() for level in topic.casefold().split("/")]
    return "/".join(levels).strip("/")


def difference(one: str, other: str) -> str:
    """In which of these two spellings of one `fold` differ: ``upper and lower case``, ``a leading '/'``, ``spaces``."""
    told = []
    bare = [text.replace(" ", "") for text in (one, other)]
    if bare[0].startswith("/") != bare[1].startswith("/"):
        told.append("a leading '/'")
    if bare[0].endswith("/") != bare[1].endswith("/"):
        told.append("a trailing '/'")
    if _spaces(one) != _spaces(other):
        told.append("spaces")
    if _letters(one) != _letters(other):
        told.append("upper and lower case")
    return " and ".join(told) or "slashes at its ends"


def _spaces(topic: str) -> list[tuple[int, int]]:
    """How many spaces stand before and after each level that is not empty."""
    levels = [level for level in topic.split("/") if level.strip()]
    return [(len(level) - len(level.lstrip()), len(level) - len(level.rstrip())) for level in levels]


def _letters(topic: str) -> list[str]:
    return [level.strip() for level in topic.split("/") if level.strip()]
