"""All fields by name, and those that are made from others on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mqttscope.filter.common import common_fields
from mqttscope.filter.declared import packet_fields
from mqttscope.filter.fields import Field, Kind
from mqttscope.mqtt.topics import utf8_length


@cache
def registry() -> dict[str, Field]:
    """All fields by name, ``.length`` and ``.count`` and bracketed names not included."""
    found = {one.name: one for one in packet_fields()}
    found.update((one.name, one) for one in common_fields())
    return found


def lookup(name: str) -> Field | None:
    """The field of this name; ``X.length`` and ``X.count`` are made from field ``X``."""
    found = registry().get(name)
    if found is not None:
        return found
    base_name, _, last = name.rpartition(".")
    base = registry().get(base_name)
    if base is None or base.kind is Kind.SECRET:
        return None
    if last == "length" and base.kind in (Kind.TEXT, Kind.BYTES):
        return _length(base, name)
    if last == "count" and base.many and (base.kind is not Kind.PRESENCE or base_name.endswith("subscriptions")):
        get = base.get
        return Field(name, Kind.NUMBER, lambda event, packet: len(get(event, packet)) or None)
    return None


def _length(base: Field, name: str) -> Field:
    get = base.get
    if base.many:
        measure: Callable[[Any], int] = utf8_length if base.kind is Kind.TEXT else len

        def lengths(event: Any, packet: Any) -> list[int]:
            return [measure(value) for value in get(event, packet)]

        return Field(name, Kind.NUMBER, lengths, many=True, unit="bytes")
    if base.kind is Kind.TEXT:

        def text_length(event: Any, packet: Any) -> int | None:
            value = get(event, packet)
            return None if value is None else utf8_length(value)

        return Field(name, Kind.NUMBER, text_length, unit="bytes")
    # Bytes that the capture lost can only be those of the payload, the last field of a packet.
    lost = base.name.rpartition(".")[2] == "payload"

    def length(event: Any, packet: Any) -> int | None:
        value = get(event, packet)
        return None if value is None else len(value) + (packet.missing if lost else 0)

    return Field(name, Kind.NUMBER, length, unit="bytes")


def keyed(base: Field, key: str) -> Field:
    """The values that a list of pairs has under one name."""
    get = base.get

    def values(event: Any, packet: Any) -> Sequence[str]:
        return [value for name, value in get(event, packet) if name == key]

    return Field(f"{base.name}[…]", Kind.TEXT, values, many=True)


def names() -> list[str]:
    """Names of all fields, sorted."""
    return sorted(registry())
