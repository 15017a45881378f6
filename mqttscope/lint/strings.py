"""The UTF-8 strings of a packet with the paths of their fields, for rules about characters.

What such rules look for is never printable in the sense of `str.isprintable`, so `has_odd_strings` clears nearly all
packets with one look at the topic.
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
"""Characters of a string that a message shows."""
WITH_STRINGS = tuple(one.packet for one in all_fields() if one.path == "properties")
"""Packets that may hold strings: all that may have properties."""

_ESCAPED = re.compile(r"[\ud800-\udfff]")
"""What stands for bytes that are no UTF-8."""

Place = tuple[str, str]
"""Path of a field and its string."""


@dataclass(slots=True)
class Hit:
    """A string that a pattern was found in."""

    field: str
    text: str
    index: int
    """Of the character."""
    character: str

    @property
    def code_point(self) -> str:
        """``U+0009``."""
        return f"U+{ord(self.character):04X}"


def has_odd_strings(packet: Any) -> bool:
    """Whether a string of the packet holds anything but printable characters, or a topic name nothing or wildcards.

    Quick, so that what looks closer is not asked about most packets.
    """
    block = packet.properties
    if block is not None and block is not EMPTY and _odd_block(block):
        return True
    if type(packet) is Publish:
        name = packet.topic_name
        return not name.isprintable() or "+" in name or "#" in name or not name
    return has_odd_fields(packet)


def has_odd_fields(packet: Any) -> bool:
    """The same of strings that are no properties, for any packet but PUBLISH."""
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


def strings_of(packet: Any) -> Iterator[Place]:
    """Path and text of every string of a packet but the protocol name, in the order of the packet's attributes."""
    others = _OTHERS.get(type(packet))
    if others is not None:
        yield from others(packet)
    yield from _block("", packet.properties)


def find(packet: Any, pattern: re.Pattern[str]) -> Iterator[Hit]:
    """The first hit of a pattern of one character in each field; strings that are not well-formed are left out."""
    seen = set()
    for field, text in strings_of(packet):
        if field in seen:
            continue
        hit = pattern.search(text)
        if hit is not None and not _ESCAPED.search(text):
            seen.add(field)
            yield Hit(field, text, hit.start(), hit[0])


def shown(text: str) -> str:
    """The string as messages show it: as Python would write it, and not too long."""
    return repr(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "...")


def _block(prefix: str, block: Properties | None) -> Iterator[Place]:
    for number, value in () if block is None else block.items:
        if isinstance(value, str):
            yield f"{prefix}properties.{property_name(number)}", value
        elif isinstance(value, tuple):
            for one in value:
                yield f"{prefix}properties.{property_name(number)}", one


def _connect(packet: Connect) -> Iterator[Place]:
    if packet.client_identifier is not None:
        yield "client_identifier", packet.client_identifier
    if packet.will is not None:
        yield "will.will_topic", packet.will.will_topic
        yield from _block("will.", packet.will.properties)
    if packet.user_name is not None:
        yield "user_name", packet.user_name


def _publish(packet: Publish) -> Iterator[Place]:
    yield "topic_name", packet.topic_name


def _subscribe(packet: Subscribe) -> Iterator[Place]:
    for index, row in enumerate(packet.subscriptions or ()):
        yield f"subscriptions[{index}].topic_filter", row.topic_filter


def _unsubscribe(packet: Unsubscribe) -> Iterator[Place]:
    for index, topic_filter in enumerate(packet.topic_filters or ()):
        yield f"topic_filters[{index}]", topic_filter


_OTHERS: dict[type[ControlPacket], Callable[[Any], Iterator[Place]]] = {
    Connect: _connect,
    Publish: _publish,
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
}
"""Strings outside the properties of the packet."""
