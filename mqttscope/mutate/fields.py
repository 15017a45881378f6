"""What there is to mutate by data type: the fields of `mqtt.fields` that have bytes of their own.

A field inside a list is named without its index, as in filters: ``subscribe.subscriptions.topic_filter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mqttscope.mqtt import fields
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties, Property

REASON_CODE = "reason code"
"""Data type of a Byte that is a reason or return code: only values of a table are allowed."""
BITS = fields.BITS
"""Data type of a Byte whose bits have meanings of their own."""


@dataclass(slots=True, frozen=True)
class Field:
    """One field of one packet type."""

    packet_type: PacketType
    path: str
    """As `trace` spells it for the first element of a list: ``subscriptions[0].topic_filter``."""
    wire: str
    """Name of the data type."""
    versions: tuple[ProtocolVersion, ...]
    optional: bool = False
    """Whether the packet may end before it (in some version)."""
    row: Property | None = None
    """The row of table 2-4, for a property."""

    @property
    def name(self) -> str:
        """Mutation path: ``publish.topic_name``, without indexes."""
        return f"{self.packet_type.name.lower()}.{self.path.replace('[0]', '')}"

    @property
    def in_will(self) -> bool:
        """Whether it is one of the will fields of a CONNECT."""
        return self.path.startswith("will.")


@cache
def fields_of(packet_type: PacketType) -> tuple[Field, ...]:
    """Every field of a packet type that has bytes of its own, and the bytes that hold the bits of others."""
    known = fields.fields_of(packet_type)
    holders = {one.byte: one.versions for one in reversed(known) if one.byte}
    found = []
    for one in known:
        if one.is_part or one.wire == BITS:
            continue
        wire = REASON_CODE if one.is_reason_code else BITS if one.path in holders else one.wire
        holders.pop(one.path, None)
        found.append(Field(packet_type, _first(one.path), wire, one.versions, one.tail > 0, one.row))
    # What is left is no field itself: the options of a subscription.
    found += (Field(packet_type, _first(byte), BITS, versions) for byte, versions in holders.items())
    return tuple(found)


def _first(path: str) -> str:
    return path.replace("[]", "[0]")


@cache
def all_fields() -> tuple[Field, ...]:
    """Every field of every packet type."""
    return tuple(one for kind in PacketType for one in fields_of(kind))


def blocks() -> tuple[tuple[PacketType, int, str], ...]:
    """Every property block: packet type, owner in table 2-4, and prefix of its paths."""
    return tuple(
        (one.packet_type, one.owner, one.path.removesuffix("properties"))
        for one in fields.all_fields()
        if one.value_type is Properties
    )
