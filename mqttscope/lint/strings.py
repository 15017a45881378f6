"""The UTF-8 strings of a packet with the paths of their fields, for rules about characters.

Such rules search for characters that are never printable (`str.isprintable`).  `has_odd_strings` therefore dismisses
nearly all packets after one test of the topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mqttscope.mqtt import Connect, ControlPacket, Properties, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.fields import all_fields
from mqttscope.mqtt.properties import EMPTY, property_name

MAX_SHOWN = 60
"""Maximum number of characters of a string in a message."""
WITH_STRINGS = tuple(field.packet for field in all_fields() if field.path == "properties")
"""Packets that may have strings: all packets that may have properties."""

CONTROL = re.compile("[\x01-\x1f\x7f-\x9f]")
"""Control characters: a receiver may close the connection because of them (5.0 1.5.4, 3.1.1 1.5.3)."""
_ESCAPED = re.compile(r"[\ud800-\udfff]")
"""Stands for bytes that are not UTF-8."""


def has_controls(text: str) -> bool:
    """Whether a text has a control character."""
    return not text.isprintable() and CONTROL.search(text) is not None


FieldText = tuple[str, str]
"""Path of a field and its string."""


@dataclass(slots=True)
class PatternMatch:
    """A string that a pattern of one character matches."""

    field: str
    text: str
    index: int
    """Index of the character."""
    character: str

    @property
    def code_point(self) -> str:
        """``U+0009``."""
        return f"U+{ord(self.character):04X}"


def has_odd_strings(packet: Any) -> bool:
    """Whether a string of the packet has a character that is not printable, or a topic name is empty or has wildcards.

    Fast, so that slower checks are not called for most packets.
    """
    block = packet.properties
    if block is not None and block is not EMPTY and _odd_block(block):
        return True
    if type(packet) is Publish:
        name = packet.topic_name
        return not name.isprintable() or "+" in name or "#" in name or not name
    return has_odd_fields(packet)


def has_odd_fields(packet: Any) -> bool:
    """Whether a string outside the properties has a character that is not printable, for packets other than PUBLISH."""
    others = _OTHERS.get(type(packet))
    return others is not None and any(not text.isprintable() for _, text in others(packet))


def _odd_block(block: Properties) -> bool:
    for _, value in block.items:
        if type(value) is str:
            if not value.isprintable():
                return True
        elif type(value) is tuple and not (value[0].isprintable() and value[1].isprintable()):
            return True
    return False


def strings_of(packet: Any) -> Iterator[FieldText]:
    """Path and text of every string of a packet but the protocol name, in the order of the packet's attributes."""
    others = _OTHERS.get(type(packet))
    if others is not None:
        yield from others(packet)
    yield from _block("", packet.properties)


def find(packet: Any, pattern: re.Pattern[str]) -> Iterator[PatternMatch]:
    """The first match of a one-character pattern in each field; malformed strings are left out."""
    seen = set()
    for field, text in strings_of(packet):
        if field in seen:
            continue
        hit = pattern.search(text)
        if hit is not None and not _ESCAPED.search(text):
            seen.add(field)
            yield PatternMatch(field, text, hit.start(), hit[0])


def shown(text: str) -> str:
    """The string as a Python literal, shortened for messages."""
    return repr(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "...")


def _block(prefix: str, block: Properties | None) -> Iterator[FieldText]:
    for number, value in () if block is None else block.items:
        if isinstance(value, str):
            yield f"{prefix}properties.{property_name(number)}", value
        elif isinstance(value, tuple):
            for text in value:
                yield f"{prefix}properties.{property_name(number)}", text


def _connect(packet: Connect) -> Iterator[FieldText]:
    if packet.client_identifier is not None:
        yield "client_identifier", packet.client_identifier
    if packet.will is not None:
        yield "will.will_topic", packet.will.will_topic
        yield from _block("will.", packet.will.properties)
    if packet.user_name is not None:
        yield "user_name", packet.user_name


def _publish(packet: Publish) -> Iterator[FieldText]:
    yield "topic_name", packet.topic_name


def _subscribe(packet: Subscribe) -> Iterator[FieldText]:
    for index, row in enumerate(packet.subscriptions or ()):
        yield f"subscriptions[{index}].topic_filter", row.topic_filter


def _unsubscribe(packet: Unsubscribe) -> Iterator[FieldText]:
    for index, topic_filter in enumerate(packet.topic_filters or ()):
        yield f"topic_filters[{index}]", topic_filter


_OTHERS: dict[type[ControlPacket], Callable[[Any], Iterator[FieldText]]] = {
    Connect: _connect,
    Publish: _publish,
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
}
"""Strings outside the properties, by packet."""
