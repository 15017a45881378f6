"""The fields of all packets, read off their declarations: what there is to mutate by data type.

A field inside a list is named without its index, as in filters: ``subscribe.subscriptions.topic_filter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import PROPERTIES, WILL, Property

V3_1, V3_1_1, V5 = ProtocolVersion
REASON_CODE = "reason code"
"""Data type of a Byte that is a reason or return code: only values of a table are allowed."""
BITS = "bits"
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


def _properties(packet_type: PacketType, owner: int, prefix: str) -> list[Field]:
    return [
        Field(packet_type, f"{prefix}properties.{row.name}", row.wire.name, (V5,), row=row)
        for row in PROPERTIES
        if owner in row.packets
    ]


@cache
def fields_of(packet_type: PacketType) -> tuple[Field, ...]:
    """Every field that a packet type can have, in wire order."""
    declared: list[Field] = []
    for row in PACKETS[packet_type].declaration:
        if row.kind != "wire":
            continue
        versions = tuple(one for one in ProtocolVersion if row.exists_in(one))
        if packet_type == PacketType.AUTH:
            versions = (V5,)
        kind = row.wire_in(versions[-1]).name
        optional = row.tail > 0
        if kind == "Properties":
            declared += _properties(packet_type, packet_type, "")
        elif kind == "Will":
            declared += _properties(packet_type, WILL, "will.")
            declared.append(Field(packet_type, "will.will_topic", wire.UTF8.name, versions))
            declared.append(Field(packet_type, "will.will_payload", wire.BINARY.name, versions))
        elif kind == "subscriptions":
            declared.append(Field(packet_type, "subscriptions[0].topic_filter", wire.UTF8.name, versions))
            declared.append(Field(packet_type, "subscriptions[0].options", BITS, versions))
        elif kind == "topic filters":
            declared.append(Field(packet_type, "topic_filters[0]", wire.UTF8.name, versions))
        elif kind == "reason codes":
            declared.append(Field(packet_type, "reason_codes[0]", REASON_CODE, versions))
        elif row.name == "reason_code":
            declared.append(Field(packet_type, row.name, REASON_CODE, versions, optional))
        elif row.name in ("connect_flags", "acknowledge_flags"):
            declared.append(Field(packet_type, row.name, BITS, versions))
        else:
            declared.append(Field(packet_type, row.name, kind, versions, optional))
    return tuple(declared)


@cache
def all_fields() -> tuple[Field, ...]:
    """Every field of every packet type."""
    return tuple(one for kind in PacketType for one in fields_of(kind))


def blocks() -> tuple[tuple[PacketType, int, str], ...]:
    """Every property block: packet type, owner in table 2-4, and prefix of its paths."""
    found = []
    for kind in PacketType:
        if any(kind in row.packets for row in PROPERTIES):
            found.append((kind, int(kind), ""))
        if kind == PacketType.CONNECT:
            found.append((kind, WILL, "will."))
    return tuple(found)
