"""Topics and Topic Filters that are like each other and do not match."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

from mqttscope.explain import describe
from mqttscope.mqtt.topics import matches

MAX_COMPARED_LENGTH = 256
"""Maximum number of characters of a topic that filters are compared with by their letters."""
CASE, BLANK, SLASH = (
    " (upper and lower case differ)",
    " (only blanks differ)",
    " (a slash at an end is a level of its own)",
)
DOLLAR = (
    " (a filter that begins with a wildcard does not match a topic that begins with $: 5.0 and 3.1.1, MQTT-4.7.2-1)"
)
LIKE = 0.75
"""How like the topic a filter has to be to be named, from 0 to 1."""


def likeness(topic: str, plain: str) -> tuple[float, str] | None:
    """How like a topic a filter is that does not match it, from 0 to 1, and the difference; ``None``: not at all."""
    if matches(plain, topic, shared=False):
        return None
    if is_hidden(topic, plain):
        return 1.0, DOLLAR
    if matches(plain.lower(), topic.lower(), shared=False):
        return 1.0, CASE
    if matches("".join(plain.split()), "".join(topic.split()), shared=False):
        return 1.0, BLANK
    bare = plain.strip("/")
    if bare and matches(bare, topic.strip("/"), shared=False):
        return 1.0, SLASH
    if matches(plain.rstrip("/") + "/#", topic, shared=False):
        return 1.0, " (without /# it has no levels below)"
    if abs(len(plain) - len(topic)) > len(topic) * (1 - LIKE) or len(topic) > MAX_COMPARED_LENGTH:
        return None
    pair = SequenceMatcher(None, plain, topic, autojunk=False)
    if pair.quick_ratio() < LIKE:
        return None
    ratio = pair.ratio()
    return (ratio, "") if ratio >= LIKE else None


def is_hidden(topic: str, plain: str) -> bool:
    """Whether a filter does not match a topic only because it begins with a wildcard and the topic with $."""
    begins = topic.startswith("$") and plain.startswith(("#", "+"))
    return begins and matches(plain, f"x{topic[1:]}", shared=False)


def nearest(topics: Iterable[str], topic_filter: str) -> list[str]:
    """Names of the topics that come nearest to a filter; if some differ only by case or blanks, these alone."""
    near = [(degree, topic) for topic in topics if (degree := likeness(topic, topic_filter)) is not None]
    near = [row for row in near if row[0][1] in (CASE, BLANK)] or sorted(near, key=lambda row: -row[0][0])
    return [f"{describe.name(topic)}{why}" for (_, why), topic in near]
