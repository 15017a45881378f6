"""The fields a filter can ask for: names, kinds, and how an event gives their values.

Names are the keys of the JSON form.  Fields of packets come from the declarations: each has its qualified name
(``publish.properties.topic_alias``) and every shorter one (``properties.topic_alias``, ``topic_alias``,
``publish.topic_alias``), which means the value wherever a packet has it.

A getter takes the event and its packet (``None`` when it has none) and returns the value or ``None``; for a field that
can have several values, a sequence of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Get = Callable[[Any, Any], Any]


class Kind(StrEnum):
    """What values a field has; decides which operators and which values it is compared with."""

    FLAG = "a flag"
    NUMBER = "a number"
    TEXT = "text"
    BYTES = "binary"
    WORD = "a word"
    VERSION = "an MQTT version"
    TIME = "a time"
    ENDPOINT = "an endpoint"
    ADDRESS = "an address"
    PRESENCE = "something that is there or not"
    PAIRS = "a list of names and values"
    SECRET = "a secret"


@dataclass(slots=True)
class Field:
    """One field."""

    name: str
    kind: Kind
    get: Get
    many: bool = False
    """Whether ``get`` gives a sequence: a comparison is true when it is for any value in it."""
    unit: str = ""
    """``bytes`` or ``seconds``: values may be written as sizes or durations."""
    words: Mapping[str, Any] = field(default_factory=dict)
    """Of a `Kind.WORD`: the words and the values they stand for."""
    open: bool = False
    """Of a `Kind.WORD`: whether text in quotes may be another word."""
    topic: bool = False
    """Text that holds a Topic Name or Topic Filter, so that ``matches`` applies."""

    @property
    def holds_filters(self) -> bool:
        """Whether the values are Topic Filters, which may begin with ``$share/…/``."""
        return self.topic and self.name.rpartition(".")[2].startswith("topic_filter")


def unit_of(name: str) -> str:
    """Unit of a number by the last word of its name."""
    last = name.rpartition(".")[2]
    if last.endswith(("_interval", "keep_alive")):
        return "seconds"
    if last in ("length", "remaining_length", "maximum_packet_size", "missing", "gap_bytes", "discarded_bytes"):
        return "bytes"
    return ""
