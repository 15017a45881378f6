"""Columns of packets, derived from the catalogue of their fields (`mqtt.fields`): nothing is declared twice.

Fields that only CONNECT or only CONNACK has are in a struct with its name; the other fields are columns, since a name
has one meaning in all packets.  Arrow's text is UTF-8, and a captured text may be invalid: the column then has U+FFFD
for each bad byte, and ``not_utf8`` has the bytes by field path.
"""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from mqttscope.lake.manifest import DIGEST_DIGITS
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.fields import BITS, TYPES, PacketField, members_of
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_NAME, LISTS, PROPERTIES, Properties, Property
from mqttscope.mqtt.wire import BINARY, REST, U8, U16, U32, UTF8, UTF8_PAIR, VARIABLE_BYTE_INTEGER
from mqttscope.secrets.credentials import METHOD, TEXTS, starred, starred_name, starred_pair
from mqttscope.secrets.forms import without_tokens

Row = dict[str, Any]
Bad = list[Row]
"""Texts that are not UTF-8: ``field`` and ``value``."""

# Signed and wide enough: Spark lacks unsigned numbers.
_BY_WIRE = {
    U8.name: pa.int16(),
    U16.name: pa.int32(),
    U32.name: pa.int64(),
    VARIABLE_BYTE_INTEGER.name: pa.int64(),
    UTF8.name: pa.string(),
    BINARY.name: pa.binary(),
    UTF8_PAIR.name: pa.struct([("name", pa.string()), ("value", pa.string())]),
}
NOT_UTF8 = pa.list_(pa.struct([("field", pa.string()), ("value", pa.binary())]))
OTHER_PROPERTIES = pa.list_(
    pa.struct([("identifier", pa.int64()), ("path", pa.string()), ("number", pa.int64()), ("value", pa.binary())])
)
"""Properties outside the struct: unknown ones, and repetitions that the specification forbids."""


@cache
def properties_type() -> pa.DataType:
    """The struct of the 27 properties."""
    return pa.struct([(_property_column(row), _property_type(row)) for row in PROPERTIES])


def _property_column(row: Property) -> str:
    """The name of a property's column; a secret has only its length."""
    return f"{row.name}_length" if row.secret else row.name


def _property_type(row: Property) -> pa.DataType:
    kind = pa.int32() if row.secret else _BY_WIRE[row.wire.name]
    return pa.list_(kind) if row.name in LISTS else kind


def _columns_of(field: PacketField) -> list[tuple[str, pa.DataType]]:
    name = field.name
    if field.secret:
        return [(f"{name}_length", pa.int32())]
    if _is_payload(field):
        length = pa.int64() if field.wire == REST.name else pa.int32()
        return [(f"{name}_length", length), (f"{name}_sha256", pa.string()), (name, pa.binary())]
    if field.value_type is Properties:
        kind = properties_type()
    elif field.value_type in (Will, Subscription):
        kind = pa.struct([part for member in members_of(field.packet_type, field.path) for part in _columns_of(member)])
    elif field.wire == BITS:
        kind = pa.bool_() if field.value_type is bool else pa.int16()
    else:
        kind = _BY_WIRE[field.wire]
    return [(name, pa.list_(kind) if field.path.endswith("[]") else kind)]


def _is_payload(field: PacketField) -> bool:
    return field.name in ("payload", "will_payload")


_STRUCTS = {PacketType.CONNECT: "connect", PacketType.CONNACK: "connack"}
"""Packets with a struct of their own fields."""


@cache
def packet_columns() -> dict[str, pa.DataType]:
    """Columns of the fields of all packets, in the order of their declarations."""
    owners: dict[str, set[int]] = {}
    for kind in PacketType:
        for field in members_of(kind):
            owners.setdefault(field.name, set()).add(kind)
    structs: dict[PacketType, list[tuple[str, pa.DataType]]] = {kind: [] for kind in _STRUCTS}
    flat: dict[str, pa.DataType] = {}
    for kind in PacketType:
        for field in members_of(kind):
            columns = _columns_of(field)
            if owners[field.name] == {kind} and kind in structs:
                structs[kind] += columns
            else:
                flat.update(columns)
    named = {_STRUCTS[kind]: pa.struct(fields) for kind, fields in structs.items()}
    return flat | named


def text(value: str, path: str, bad: Bad) -> str:
    """A text for a column; its bytes go to ``bad`` if they are not UTF-8."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogateescape")
        bad.append({"field": path, "value": raw})
        return raw.decode("utf-8", "replace")
    return value


MAX_KNOWN = 512
"""Maximum size of a payload with a cached digest."""


@lru_cache(maxsize=4_096)
def _known_sha256(value: bytes) -> str:
    return sha256(value).hexdigest()


class PayloadPart(NamedTuple):
    """How much of a payload its columns keep."""

    limit: int = 0
    """Maximum number of payload bytes, 0 to leave the payload out."""
    digits: int = DIGEST_DIGITS
    """Number of hexadecimal digits of its SHA-256."""

    def columns(self, value: bytes, missing: int) -> tuple[int, str | None, bytes | None]:
        """Length, beginning of the SHA-256 (of a complete payload) and, unless ``limit`` is 0, beginning."""
        digest, limit = None, self.limit
        if not missing:
            # A server sends a payload to each subscriber.
            digest = (_known_sha256(value) if len(value) <= MAX_KNOWN else sha256(value).hexdigest())[: self.digits]
        return len(value) + missing, digest, without_tokens(value, limit)[:limit] if limit else None


MAX_BLOCKS = 4_096
"""Maximum number of cached structs of property blocks; most blocks recur."""
MAX_BLOCK = 256
"""Maximum size of a cached property block, in properties and in characters and bytes."""
_NO_PROPERTIES: Row = {}
_blocks: dict[tuple[tuple[int, Any], ...], Row] = {}


def properties_row(block: Properties | None, path: str, bad: Bad, other: Bad) -> Row:
    """The struct of a property block, never to be modified; properties outside the struct go to ``other``."""
    if not block:
        return _NO_PROPERTIES
    known = _blocks.get(block.items)
    if known is not None:
        return known
    before = len(bad) + len(other)
    shown = _properties_row(block, path, bad, other)
    if len(bad) + len(other) == before and _is_short(block):
        if len(_blocks) >= MAX_BLOCKS:
            _blocks.clear()
        _blocks[block.items] = shown
    return shown


def _is_short(block: Properties) -> bool:
    sizes = [len(part) for _, value in block.items if not isinstance(value, int) for part in _texts(value)]
    return len(block.items) <= MAX_BLOCK and sum(sizes) <= MAX_BLOCK


def _texts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _properties_row(block: Properties, path: str, bad: Bad, other: Bad) -> Row:
    shown: Row = {}
    value: Any
    for number, value in block.items:
        column, kind, secret = _PROPERTY.get(number, _UNKNOWN)
        if not isinstance(value, kind) or (column in shown and column not in LISTS):
            if secret and isinstance(value, bytes):
                other.append({"identifier": number, "path": path, "number": len(value)})
            elif number == METHOD and isinstance(value, str):
                # It may be Authentication Data with a damaged identifier.
                other.append({"identifier": number, "path": path, **_loose("*" * len(value))})
            else:
                other.append({"identifier": number, "path": path, **_loose(value)})
        elif column == "user_property":
            pairs = shown.setdefault(column, [])
            at = f"{path}.user_property[{len(pairs)}]"
            value = starred_pair(*value)
            pairs.append({"name": text(value[0], f"{at}.name", bad), "value": text(value[1], f"{at}.value", bad)})
        elif column in LISTS:
            shown.setdefault(column, []).append(value)
        elif secret:
            shown[column] = len(value)
        else:
            if isinstance(value, str):
                value = text(starred(value) if number in _STARRED else value, f"{path}.{column}", bad)
            shown[column] = value
    return shown


def _loose(value: Any) -> Row:
    if isinstance(value, int):
        return {"number": value}
    if isinstance(value, str):
        return {"value": starred(value).encode("utf-8", "surrogateescape")}
    return {"value": without_tokens(bytes(value))}


_PROPERTY: dict[int, tuple[str, Any, bool]] = {
    row.identifier: (_property_column(row), TYPES[row.wire.name], row.secret) for row in PROPERTIES
}
"""Column, class of its values, and whether it is a secret, by identifier."""
_STARRED = TEXTS - {BY_NAME["assigned_client_identifier"].identifier}
"""Texts that may contain credentials; Client Identifiers stay, since they join rows."""
_UNKNOWN: tuple[str, Any, bool] = ("", (), False)


def packet_fields(
    packet: ControlPacket,
    version: ProtocolVersion,
    part: PayloadPart,
    bad: Bad,
    other: Bad,
    only: tuple[str, ...] | None = None,
) -> Row:
    """Values of the columns of one packet; ``only``: names of the fields to show."""
    kind = packet.packet_type
    flat: Row = {}
    inner: Row = {}
    for field, is_plain, place in _plan(kind, version):
        if only is not None and field.name not in only:
            continue
        row = inner if place else flat
        if is_plain:
            row[field.name] = getattr(packet, field.name)
        else:
            row |= _values(field, packet, place, version, part, bad, other)
    if kind in _STRUCTS:
        flat[_STRUCTS[kind]] = inner
    return flat


@cache
def _plan(
    packet_type: PacketType, version: ProtocolVersion, part: str = ""
) -> tuple[tuple[PacketField, bool, str], ...]:
    """The fields of a packet, or of a part of it, in a version.

    Each with a flag, true if its column has the value unchanged, and the path of the struct that contains the column.
    """
    columns, struct = packet_columns(), _STRUCTS.get(packet_type, "")
    return tuple(
        (field, _is_plain(field, version), f"{struct}." if struct and _columns_of(field)[0][0] not in columns else "")
        for field in members_of(packet_type, part)
        if version in field.versions
    )


def _is_plain(field: PacketField, version: ProtocolVersion) -> bool:
    if field.name == "reason_code":
        return field.tail < version
    return field.value_type in (bool, int) and field.name != "reserved"


def _values(
    field: PacketField, holder: Any, place: str, version: ProtocolVersion, part: PayloadPart, bad: Bad, other: Bad
) -> Row:
    """Values of the columns of one field; ``place``: path of the packet or part around it."""
    name = field.name
    value = getattr(holder, name)
    path = place + name
    if field.value_type is Properties:
        return {name: properties_row(value, path, bad, other)}
    if field.secret:
        return {f"{name}_length": None if value is None else len(value)}
    if _is_payload(field):
        if value is None:
            return {}
        missing = holder.missing if field.wire == REST.name else 0
        columns = f"{name}_length", f"{name}_sha256", name
        return dict(zip(columns, part.columns(value, missing), strict=True))
    if name == "reason_code":
        return {name: value or 0}  # an omitted code means success
    if name == "reserved":
        return {name: value or None}
    if not field.path.endswith("[]"):
        return {name: _value(field, value, path, version, part, bad, other)}
    values = enumerate(value or ())
    return {name: [_value(field, element, f"{path}[{at}]", version, part, bad, other) for at, element in values]}


def _value(
    field: PacketField, value: Any, path: str, version: ProtocolVersion, part: PayloadPart, bad: Bad, other: Bad
) -> Any:
    """A text, or the struct of a Will or of a subscription."""
    if value is None:
        return None
    if field.value_type is str:
        return text(starred_name(value) if field.name == "user_name" else value, path, bad)
    shown: Row = {}
    for member, is_plain, _ in _plan(field.packet_type, version, field.path):
        if is_plain:
            shown[member.name] = getattr(value, member.name)
        else:
            shown |= _values(member, value, f"{path}.", version, part, bad, other)
    return shown
