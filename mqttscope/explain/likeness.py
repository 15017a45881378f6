"""Topic Filters that are like a topic and do not match it: what the author of a filter may have meant."""

from __future__ import annotations

from difflib import SequenceMatcher

from mqttscope.mqtt.topics import matches

MAX_COMPARED_LENGTH = 256
"""Characters of a topic that filters are compared with by their letters."""
LIKE = 0.75
"""How like the topic a filter has to be to be named, from 0 to 1."""


def likeness(topic: str, plain: str) -> tuple[float, str] | None:
    """How like a topic a filter is that does not match it, from 0 to 1, and the difference; ``None``: not at all."""
    if matches(plain, topic, shared=False):
        return None
    if matches(plain.lower(), topic.lower(), shared=False):
        return 1.0, " (upper and lower case differ)"
    bare = plain.strip("/")
    if bare and matches(bare, topic.strip("/"), shared=False):
        return 1.0, " (a slash at an end is a level of its own)"
    if matches(plain.rstrip("/") + "/#", topic, shared=False):
        return 1.0, " (without /# it has no levels below)"
    if abs(len(plain) - len(topic)) > len(topic) * (1 - LIKE) or len(topic) > MAX_COMPARED_LENGTH:
        return None
    pair = SequenceMatcher(None, plain, topic)
    if pair.quick_ratio() < LIKE:
        return None
    ratio = pair.ratio()
    return (ratio, "") if ratio >= LIKE else None
