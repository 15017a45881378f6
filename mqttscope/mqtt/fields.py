"""The one catalogue of the fields of MQTT Control Packets, read off their declarations.

`fields_of` returns every field of a packet, `members_of` the direct fields of a packet or of one of its parts.  A part
comes before its fields: ``will``, then ``will.will_topic``.  Filters, the JSON form, the columns of a lake, mutations
and the rewriting of recordings are made from this catalogue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket, declaration_of
from mqttscope.mqtt.parts import FILTERS, Subscription, Will
from mqttscope.mqtt.properties import PROPERTIES, WILL, Properties, Property
from mqttscope.mqtt.wire import BINARY, REST, U8, U16, U32, UTF8, UTF8_PAIR, VARIABLE_BYTE_INTEGER

BITS: Final = "bits"
"""Data type of a field that is some bits of a byte."""
TYPES: Final[dict[str, type]] = {
    **{wire_type.name: int for wire_type in (U8, U16, U32, VARIABLE_BYTE_INTEGER)},
    UTF8.name: str,
    BINARY.name: bytes,
    REST.name: bytes,
    UTF8_PAIR.name: tuple,
    "Properties": Properties,
    "Will": Will,
    "subscriptions": Subscription,
}
"""Class of the values of each data type; for a list, the class of its elements."""
_LISTS: Final = {"subscriptions": "subscriptions", FILTERS.name: UTF8.name, "reason codes": U8.name}
"""Data types that are lists, with the data type of an element."""


@dataclass(frozen=True)
class PacketField:
    """One field of one packet type."""

    packet_type: PacketType
    path: str
    """As in JSON, with ``[]`` after a list: ``will.properties.content_type``, ``subscriptions[].topic_filter``."""
    value_type: type
    """Class of its values: bool, int, str, bytes, tuple (a User Property), or a class with fields of its own."""
    wire: str
    """Data type in the specification, for a list the type of its elements; ``bits`` for some bits of a byte."""
    versions: tuple[ProtocolVersion, ...]
    """Versions that have it."""
    tail: int = 0
    """Highest version that allows a packet to end before this field; 0 if no version does."""
    byte: str = ""
    """For bits: path of the byte that contains them; empty for the first byte of the packet."""
    secret: bool = False
    """Whether no output may show its values."""
    row: Property | None = None
    """For a property: its row of table 2-4."""

    @property
    def packet(self) -> type[ControlPacket]:
        return PACKETS[self.packet_type]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the path, without list marks."""
        return tuple(self.path.replace("[]", "").split("."))

    @cached_property
    def name(self) -> str:
        """The last word of the path: the name of the attribute or of the property."""
        return self.words[-1]

    @property
    def key(self) -> str:
        """The path with the packet type in front, without list marks: ``subscribe.subscriptions.no_local``."""
        return ".".join((type_name(self.packet_type), *self.words))

    @property
    def owner(self) -> int:
        """For a property or property block: its owner in table 2-4, a packet type or ``WILL``."""
        return WILL if self.path.startswith("will.") else self.packet_type

    @property
    def is_part(self) -> bool:
        """Whether it has fields of its own: a property block, a Will, a subscription."""
        return self.value_type in (Properties, Will, Subscription)

    @property
    def is_reason_code(self) -> bool:
        """Whether its values are reason or return codes, so that a table lists the allowed ones."""
        return self.name in ("reason_code", "reason_codes")


@cache
def fields_of(packet_type: int) -> tuple[PacketField, ...]:
    """Every field of a packet type, its parts and its properties, in the order of the declarations."""
    return tuple(_walk(PACKETS[packet_type], PACKETS[packet_type], "", tuple(ProtocolVersion)))


def members_of(packet_type: int, part: str = "") -> tuple[PacketField, ...]:
    """The direct fields of a packet, or of the part at this path (``will``, ``subscriptions[]``)."""
    prefix = f"{part}." if part else ""
    inside = (field for field in fields_of(packet_type) if field.path.startswith(prefix))
    return tuple(field for field in inside if "." not in field.path.removeprefix(prefix))


@cache
def all_fields() -> tuple[PacketField, ...]:
    return tuple(field for kind in PacketType for field in fields_of(kind))


def _walk(
    packet: type[ControlPacket], holder: type, prefix: str, versions: tuple[ProtocolVersion, ...]
) -> Iterator[PacketField]:
    """The fields that a class declares: a packet class, or the class of a part of it."""
    defaults = {attribute.name: attribute.default for attribute in dataclasses.fields(holder)}
    kind = packet.packet_type
    for row in declaration_of(holder):
        path = prefix + row.name
        own = tuple(version for version in versions if row.exists_in(version))
        if row.kind != "wire":
            values = bool if isinstance(defaults[row.name], bool) else int
            yield PacketField(kind, path, values, BITS, own, byte=packet.byte_of.get(path, ""))
            continue
        wire = row.wire_in(ProtocolVersion.V5).name
        if wire in _LISTS:
            path, wire = f"{path}[]", _LISTS[wire]
        field = PacketField(kind, path, TYPES[wire], wire, own, row.tail, secret=row.secret)
        yield field
        if field.value_type is Properties:
            yield from _properties(field)
        elif field.is_part:
            yield from _walk(packet, field.value_type, f"{path}.", own)


def _properties(block: PacketField) -> Iterator[PacketField]:
    for row in PROPERTIES:
        if block.owner in row.packets:
            yield dataclasses.replace(
                block,
                path=f"{block.path}.{row.name}",
                value_type=TYPES[row.wire.name],
                wire=row.wire.name,
                tail=0,
                secret=row.secret,
                row=row,
            )
