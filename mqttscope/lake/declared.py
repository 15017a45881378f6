"""Columns of packets, made of the declarations in `mqtt.packets` and the table of properties: nothing is typed twice.

What only CONNECT or only CONNACK has is in a struct of that name; the other fields are columns, since a name means the
same in every packet.  Arrow's text is UTF-8 and a captured one need not be: the column then has U+FFFD for each byte
that does not fit, and the bytes themselves are in ``not_utf8`` by the path of the field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import pyarrow as pa

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, ControlPacket, Declared
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import LISTS, PROPERTIES, Properties
from mqttscope.mqtt.view import AUTHENTICATION_DATA
from mqttscope.redact.tokens import without_tokens

Row = dict[str, Any]
Bad = list[Row]
"""Texts that are not UTF-8: ``field`` and ``value``."""

_V5 = ProtocolVersion.V5
# Signed and wide enough: Spark has no unsigned numbers.
_BY_WIRE = {
    "Byte": pa.int16(),
    "Two Byte Integer": pa.int32(),
    "Four Byte Integer": pa.int64(),
    "Variable Byte Integer": pa.int64(),
    "UTF-8 Encoded String": pa.string(),
    "Binary Data": pa.binary(),
    "UTF-8 String Pair": pa.struct([("name", pa.string()), ("value", pa.string())]),
    "reason codes": pa.list_(pa.int16()),
    "topic filters": pa.list_(pa.string()),
}
NOT_UTF8 = pa.list_(pa.struct([("field", pa.string()), ("value", pa.binary())]))
OTHER_PROPERTIES = pa.list_(
    pa.struct([("identifier", pa.int64()), ("path", pa.string()), ("number", pa.int64()), ("value", pa.binary())])
)
"""Properties that the struct has no place for: unknown ones, and repetitions that the specification forbids."""
SUBSCRIPTION = pa.struct(
    [
        ("topic_filter", pa.string()),
        ("maximum_qos", pa.int16()),
        ("no_local", pa.bool_()),
        ("retain_as_published", pa.bool_()),
        ("retain_handling", pa.int16()),
        ("reserved", pa.int16()),
    ]
)
_SECRET = "authentication_data_length"


@cache
def properties_type() -> pa.DataType:
    """The struct of the 27 properties."""
    fields = []
    for row in PROPERTIES:
        kind = _BY_WIRE[row.wire.name]
        if row.identifier == AUTHENTICATION_DATA:
            # A secret: only its length is told.
            fields.append((_SECRET, pa.int32()))
        else:
            fields.append((row.name, pa.list_(kind) if row.name in LISTS else kind))
    return pa.struct(fields)


@cache
def will_type() -> pa.DataType:
    """The struct of the Will of a CONNECT."""
    return pa.struct(
        [
            ("will_topic", pa.string()),
            ("will_payload_length", pa.int32()),
            ("will_payload_sha256", pa.string()),
            ("will_payload", pa.binary()),
            ("will_qos", pa.int16()),
            ("will_retain", pa.bool_()),
            ("properties", properties_type()),
        ]
    )


def _columns_of(row: Declared) -> list[tuple[str, pa.DataType]]:
    """The columns of one declared field."""
    if row.kind != "wire":
        return [(row.name, pa.int16() if row.kind == "flag" and not row.boolean else pa.bool_())]
    name = row.wire_in(_V5).name
    if row.name == "password":
        return [("password_length", pa.int32())]
    if name == "rest of the packet":
        return [("payload_length", pa.int64()), ("payload_sha256", pa.string()), ("payload", pa.binary())]
    special: dict[str, Callable[[], pa.DataType]] = {
        "Properties": properties_type,
        "Will": will_type,
        "subscriptions": lambda: pa.list_(SUBSCRIPTION),
    }
    kind = special[name]() if name in special else _BY_WIRE[name]
    return [(row.name, kind)]


@cache
def packet_columns() -> dict[str, pa.DataType]:
    """Columns of the fields of all packets, in the order of their declarations."""
    owners: dict[str, set[int]] = {}
    for kind, cls in PACKETS.items():
        for row in cls.declaration:
            owners.setdefault(row.name, set()).add(kind)
    structs: dict[int, list[tuple[str, pa.DataType]]] = {PacketType.CONNECT: [], PacketType.CONNACK: []}
    flat: dict[str, pa.DataType] = {}
    for kind, cls in PACKETS.items():
        for row in cls.declaration:
            found = _columns_of(row)
            if owners[row.name] == {kind} and kind in structs:
                structs[kind] += found
            else:
                flat.update(found)
    named = {PacketType(kind).name.lower(): pa.struct(fields) for kind, fields in structs.items()}
    return flat | named


def text(value: str, path: str, bad: Bad) -> str:
    """A text for a column; its bytes go to ``bad`` where they are not UTF-8."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogateescape")
        bad.append({"field": path, "value": raw})
        return raw.decode("utf-8", "replace")
    return value


def payload_columns(value: bytes, missing: int, limit: int) -> tuple[int, str | None, bytes | None]:
    """Length, SHA-256 (of a payload that is there in full) and, where ``limit`` is not 0, its beginning."""
    digest = None if missing else sha256(value).hexdigest()
    return len(value) + missing, digest, without_tokens(value, limit)[:limit] if limit else None


def properties_row(block: Properties, path: str, bad: Bad, other: Bad) -> Row:
    """The struct of a property block; what it has no place for goes to ``other``."""
    shown: Row = {}
    value: Any
    for number, value in block.items:
        row = _PROPERTY.get(number)
        name = "" if row is None else row[0]
        usual = row is not None and isinstance(value, row[1])
        if not usual or (name in shown and name not in LISTS):
            if number == AUTHENTICATION_DATA and isinstance(value, bytes):
                other.append({"identifier": number, "path": path, "number": len(value)})
            else:
                other.append({"identifier": number, "path": path, **_loose(value)})
        elif name == "user_property":
            pairs = shown.setdefault(name, [])
            at = f"{path}.user_property[{len(pairs)}]"
            pairs.append({"name": text(value[0], f"{at}.name", bad), "value": text(value[1], f"{at}.value", bad)})
        elif name == "subscription_identifier":
            shown.setdefault(name, []).append(value)
        elif number == AUTHENTICATION_DATA:
            shown[_SECRET] = len(value)
        else:
            shown[name] = text(value, f"{path}.{name}", bad) if isinstance(value, str) else value
    return shown


def _loose(value: Any) -> Row:
    if isinstance(value, int):
        return {"number": value}
    return {"value": value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)}


_PYTHON: dict[str, type] = {"UTF-8 Encoded String": str, "Binary Data": bytes, "UTF-8 String Pair": tuple}
_PROPERTY: dict[int, tuple[str, type]] = {
    row.identifier: (
        _SECRET if row.identifier == AUTHENTICATION_DATA else row.name,
        _PYTHON.get(row.wire.name, int),
    )
    for row in PROPERTIES
}


def packet_fields(
    packet: ControlPacket,
    version: ProtocolVersion,
    limit: int,
    bad: Bad,
    other: Bad,
    only: tuple[str, ...] | None = None,
) -> Row:
    """Values of the columns of one packet; ``only`` names the fields to show.

    ``limit``: bytes of a payload that are kept, 0 for none.
    """
    kind = packet.packet_type
    flat: Row = {}
    name = "connect" if kind == PacketType.CONNECT else "connack" if kind == PacketType.CONNACK else ""
    inner: Row | None = {} if name else None
    columns = packet_columns()
    for row in packet.declaration:
        if (only is not None and row.name not in only) or (row.kind == "wire" and not row.exists_in(version)):
            continue
        value = getattr(packet, row.name)
        found = _values(row, value, packet, version, limit, bad, other)
        for column, one in found.items():
            if inner is not None and column not in columns:
                inner[column] = one
            else:
                flat[column] = one
    if inner is not None:
        flat[name] = inner
    return flat


def _values(
    row: Declared, value: Any, packet: ControlPacket, version: ProtocolVersion, limit: int, bad: Bad, other: Bad
) -> Row:
    name = row.name
    if row.kind != "wire":
        return {name: value}
    how = row.wire_in(version).name
    if how == "Properties":
        return {name: properties_row(value, name, bad, other) if value is not None else {}}
    if how == "rest of the packet":
        if value is None:
            return {}
        return dict(zip(_PAYLOAD, payload_columns(value, packet.missing, limit), strict=True))
    if name == "reason_code" and row.tail >= version:
        return {name: value or 0}  # left out means success
    if name == "password":
        return {"password_length": None if value is None else len(value)}
    if value is None:
        return {name: [] if how in ("subscriptions", "topic filters") else None}
    special = _SPECIAL.get(how)
    if special is not None:
        return {name: special(value, version, limit, bad, other)}
    path = f"connect.{name}" if isinstance(packet, packets.Connect) else name
    return {name: text(value, path, bad) if isinstance(value, str) else value}


_PAYLOAD = ("payload_length", "payload_sha256", "payload")


def _will(will: Will, version: ProtocolVersion, limit: int, bad: Bad, other: Bad) -> Row:
    length, digest, kept = payload_columns(will.will_payload, 0, limit)
    shown: Row = {
        "will_topic": text(will.will_topic, "connect.will.will_topic", bad),
        "will_payload_length": length,
        "will_payload_sha256": digest,
        "will_payload": kept,
        "will_qos": will.will_qos,
        "will_retain": will.will_retain,
    }
    if version == _V5:
        shown["properties"] = properties_row(will.properties or Properties(), "connect.will.properties", bad, other)
    return shown


def _subscriptions(rows: list[Subscription], version: ProtocolVersion, limit: int, bad: Bad, other: Bad) -> list[Row]:
    shown = []
    for index, row in enumerate(rows):
        one: Row = {"topic_filter": text(row.topic_filter, f"subscriptions[{index}].topic_filter", bad)}
        one["maximum_qos"] = row.maximum_qos
        if version == _V5:
            one |= {name: getattr(row, name) for name in ("no_local", "retain_as_published", "retain_handling")}
        one["reserved"] = row.reserved or None
        shown.append(one)
    return shown


def _filters(rows: list[str], version: ProtocolVersion, limit: int, bad: Bad, other: Bad) -> list[str]:
    return [text(row, f"topic_filters[{index}]", bad) for index, row in enumerate(rows)]


_SPECIAL: dict[str, Callable[..., Any]] = {"Will": _will, "subscriptions": _subscriptions, "topic filters": _filters}
