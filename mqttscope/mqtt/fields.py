"""The one catalogue of the fields of MQTT Control Packets, read off their declarations.

`fields_of` gives every field of a packet, `members_of` those that stand directly in it or in one of its parts.  What
has fields of its own comes before them: ``will``, then ``will.will_topic``.  Filters, the JSON form, the columns of a
lake, mutations and the rewriting of recordings are made of this catalogue; each adds what it alone needs to know.
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
    **{one.name: int for one in (U8, U16, U32, VARIABLE_BYTE_INTEGER)},
    UTF8.name: str,
    BINARY.name: bytes,
    REST.name: bytes,
    UTF8_PAIR.name: tuple,
    "Properties": Properties,
    "Will": Will,
    "subscriptions": Subscription,
}
"""Class of the values of each data type, of a list that of one value."""
_LISTS: Final = {"subscriptions": "subscriptions", FILTERS.name: UTF8.name, "reason codes": U8.name}
"""Data types that are lists, and the type of one value."""


@dataclass(frozen=True)
class Field:
    """One field of one packet type."""

    packet_type: PacketType
    path: str
    """As in JSON, ``[]`` after what is a list: ``will.properties.content_type``, ``subscriptions[].topic_filter``."""
    value_type: type
    """Class of its values: bool, int, str, bytes, tuple (a User Property), or that of a part with fields of its own."""
    wire: str
    """Data type as the specification calls it, of a list that of one value; ``bits`` for some bits of a byte."""
    versions: tuple[ProtocolVersion, ...]
    """Versions that have it."""
    tail: int = 0
    """Highest version in which the packet may end before it; 0 for none."""
    byte: str = ""
    """Of bits: path of the byte that holds them; empty for the first byte of the packet."""
    secret: bool = False
    """Whether no output may show its values."""
    row: Property | None = None
    """Of a property: its row of table 2-4."""

    @property
    def packet(self) -> type[ControlPacket]:
        return PACKETS[self.packet_type]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the path, without marks of lists."""
        return tuple(self.path.replace("[]", "").split("."))

    @cached_property
    def name(self) -> str:
        """The last word of the path: the name of the attribute or of the property."""
        return self.words[-1]

    @property
    def key(self) -> str:
        """The path with the packet type in front and without marks of lists: ``subscribe.subscriptions.no_local``."""
        return ".".join((type_name(self.packet_type), *self.words))

    @property
    def owner(self) -> int:
        """Of a property or property block: what table 2-4 lists as the place of it, a packet type or ``WILL``."""
        return WILL if self.path.startswith("will.") else self.packet_type

    @property
    def is_part(self) -> bool:
        """Whether it has fields of its own: a property block, a Will, a subscription."""
        return self.value_type in (Properties, Will, Subscription)

    @property
    def is_reason_code(self) -> bool:
        """Whether its values are reason or return codes, of which a table lists the allowed ones."""
        return self.name in ("reason_code", "reason_codes")


@cache
def fields_of(packet_type: int) -> tuple[Field, ...]:
    """Every field of a packet type, its parts and its properties, in the order of the declarations."""
    return tuple(_walk(PACKETS[packet_type], PACKETS[packet_type], "", tuple(ProtocolVersion)))


def members_of(packet_type: int, part: str = "") -> tuple[Field, ...]:
    """The fields that stand directly in a packet, or in the part of this path (``will``, ``subscriptions[]``)."""
    prefix = f"{part}." if part else ""
    inside = (one for one in fields_of(packet_type) if one.path.startswith(prefix))
    return tuple(one for one in inside if "." not in one.path.removeprefix(prefix))


@cache
def all_fields() -> tuple[Field, ...]:
    return tuple(one for kind in PacketType for one in fields_of(kind))


def _walk(
    packet: type[ControlPacket], holder: type, prefix: str, versions: tuple[ProtocolVersion, ...]
) -> Iterator[Field]:
    """The fields that a class declares: the packet, or what holds a part of it."""
    defaults = {one.name: one.default for one in dataclasses.fields(holder)}
    kind = packet.packet_type
    for row in declaration_of(holder):
        path = prefix + row.name
        own = tuple(one for one in versions if row.exists_in(one))
        if row.kind != "wire":
            values = bool if isinstance(defaults[row.name], bool) else int
            yield Field(kind, path, values, BITS, own, byte=packet.byte_of.get(path, ""))
            continue
        wire = row.wire_in(ProtocolVersion.V5).name
        if wire in _LISTS:
            path, wire = f"{path}[]", _LISTS[wire]
        found = Field(kind, path, TYPES[wire], wire, own, row.tail, secret=row.secret)
        yield found
        if found.value_type is Properties:
            yield from _properties(found)
        elif found.is_part:
            yield from _walk(packet, found.value_type, f"{path}.", own)


def _properties(block: Field) -> Iterator[Field]:
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
