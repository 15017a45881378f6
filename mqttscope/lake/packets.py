"""Packets from rows: the inverse of the columns that `lake.declared` makes.

Data outside the lake is lost.  Of a secret it has the length, so asterisks replace it; of a payload it may have
the beginning or nothing, and the rest counts as missing.  The bytes of a packet are encoded from its fields, so its
properties are in the order of the specification, not of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from mqttscope.lake.declared import packet_columns
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import RESERVED, MalformedReason, PacketType, ProtocolVersion, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket, FaultReport, Malformed
from mqttscope.mqtt.fields import PacketField, members_of
from mqttscope.mqtt.packets import Connect, version_of_level
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_IDENTIFIER, LISTS, PROPERTIES, Properties
from mqttscope.mqtt.stream import Unparsed
from mqttscope.mqtt.wire import REST, UTF8

Row = Mapping[str, Any]
Texts = dict[str, bytes]
"""Texts of a row that are not UTF-8, by field path."""
_TYPES = {kind.name.lower(): kind for kind in PacketType}


class _PacketRow:
    """A row, with its values outside the columns."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.texts: Texts = {damaged["field"]: damaged["value"] for damaged in row.get("not_utf8") or ()}
        self.others: list[Row] = list(row.get("other_properties") or ())

    def text(self, value: str, path: str) -> str:
        """A text of the row as captured."""
        raw = self.texts.get(path)
        return value if raw is None else raw.decode("utf-8", "surrogateescape")


def version_of(row: Row) -> ProtocolVersion:
    """The protocol version of a row's connection."""
    return ProtocolVersion.from_text(row["version"])


def topic_of(row: Row) -> str | None:
    topic = row["topic"]
    return None if topic is None else _PacketRow(row).text(topic, "topic")


def packet_of(row: Row) -> ControlPacket | None:
    """The packet of a row of ``packets``; ``None`` for an unknown packet type.

    ``raw`` is encoded from the fields.  Payload bytes outside the lake are missing (`ControlPacket.missing`).
    """
    kind = _TYPES.get(row["type"] or "")
    if kind is None:
        return None
    version = version_of(row)
    packet = _packet(_PacketRow(row), kind, version, None)
    length = row["remaining_length"]
    packet.raw = _encoded(packet, version, length)
    return packet


def malformed_of(row: Row) -> Malformed:
    """The malformed packet of a row of ``packets``; its bytes have asterisks for secrets."""
    cell = row["malformed"]
    kind = _TYPES.get(row["type"] or "")
    packet = None
    names = tuple(cell["fields_read"] or ())
    if kind is not None and cell["fields_read"] is not None:
        packet = _packet(_PacketRow(row), kind, version_of(row), names)
        packet.raw = cell["raw"] or b""
    number = RESERVED if row["type"] == type_name(RESERVED) else None if kind is None else int(kind)
    first = _fault(cell)
    faults = tuple(_fault(fault) for fault in cell["faults"] or ()) or (first,)
    return Malformed(
        first.reason, first.offset, first.field, first.detail, cell["raw"] or b"", number, packet, names, False, faults,
        cell["missing"] or 0,
    )  # fmt: skip


def unparsed_of(row: Row) -> Unparsed:
    """The bytes of a row of ``gaps`` that are not a packet."""
    raw = row["raw"]
    if raw is None:
        raw = b"*" * (row["raw_length"] or 0) if row["redacted"] else b""
    return Unparsed(row["reason"], row["length"], raw, row["missing"] or 0, row["packet_type"])


def _fault(cell: Row) -> FaultReport:
    return FaultReport(MalformedReason(cell["reason"]), cell["offset"], cell["field"] or "", cell["detail"] or "")


def _packet(
    source: _PacketRow, kind: PacketType, version: ProtocolVersion, only: tuple[str, ...] | None
) -> ControlPacket:
    """A packet with the fields of its row; ``only``: fields that could be read, so that the others are ``None``."""
    row = source.row
    packet: Any = PACKETS[kind]()
    inner = row.get(kind.name.lower())
    if kind is PacketType.CONNECT and inner is not None:
        version = version_of_level(inner["protocol_level"])
    for field, struct in _plan(kind):
        name = field.name
        if only is not None and name not in only:
            setattr(packet, name, None)
        elif version in field.versions:
            setattr(packet, name, _value(source, field, (inner or {}) if struct else row, struct))
            if field.wire == REST.name and not field.secret:
                packet.missing = (row[f"{name}_length"] or 0) - len(getattr(packet, name) or b"")
        elif name in ("properties", "reason_codes", "reason_code", "session_present"):
            setattr(packet, name, None)
    packet.header_flags = row["header_flags"]
    typed: ControlPacket = packet
    return typed


@cache
def _plan(kind: PacketType) -> tuple[tuple[PacketField, str], ...]:
    """The fields of a packet, each with the path of the struct that contains its column."""
    columns, struct = packet_columns(), kind.name.lower()
    return tuple((field, "" if _column(field) in columns else f"{struct}.") for field in members_of(kind))


def _column(field: PacketField) -> str:
    return f"{field.name}_length" if field.secret else field.name


def _value(source: _PacketRow, field: PacketField, holder: Row, place: str) -> Any:
    """The value of one field.  ``place``: path of the struct around it."""
    name = field.name
    path = place + name
    if field.value_type is Properties:
        return _block(source, holder.get(name), path)
    value = holder.get(_column(field))
    if field.secret:
        return None if value is None else b"*" * value
    if name == "payload":
        return value or b""
    if name == "will_payload":
        return _of_length(value, holder.get("will_payload_length") or 0)
    if not field.path.endswith("[]"):
        return _part(source, field, value, path)
    return [_part(source, field, element, f"{path}[{at}]") for at, element in enumerate(value or ())]


def _of_length(beginning: bytes | None, length: int) -> bytes:
    """A field of known length, with asterisks for bytes outside the lake."""
    beginning = beginning or b""
    return beginning + b"*" * (length - len(beginning))


def _part(source: _PacketRow, field: PacketField, value: Any, path: str) -> Any:
    if value is None:
        return None
    if field.value_type is str:
        return source.text(value, path)
    if field.value_type not in (Will, Subscription):
        return value
    part: Any = Will() if field.value_type is Will else Subscription("")
    for member in members_of(field.packet_type, field.path):
        content = _value(source, member, value, f"{path}.")
        if content is None and member.name == "reserved":
            content = 0
        if content is not None:
            setattr(part, member.name, content)
    return part


_COLUMNS = tuple((f"{declared.name}_length" if declared.secret else declared.name, declared) for declared in PROPERTIES)


def _block(source: _PacketRow, shown: Row | None, path: str) -> Properties | None:
    if shown is None:
        return None
    items: list[tuple[int, Any]] = []
    for column, declared in _COLUMNS:
        value = shown.get(column)
        if value is None:
            continue
        number, name = declared.identifier, declared.name
        if name == "user_property":
            for at, pair in enumerate(value):
                where = f"{path}.{name}[{at}]"
                texts = source.text(pair["name"], f"{where}.name"), source.text(pair["value"], f"{where}.value")
                items.append((number, texts))
        elif name in LISTS:
            items += ((number, element) for element in value)
        elif declared.secret:
            items.append((number, b"*" * value))
        elif isinstance(value, str):
            items.append((number, source.text(value, f"{path}.{column}")))
        else:
            items.append((number, value))
    for other in source.others:
        if other["path"] == path:
            items.append((other["identifier"], _other(other)))
    return Properties.of(items)


def _other(row: Row) -> Any:
    declared = BY_IDENTIFIER.get(row["identifier"])
    number, value = row.get("number"), row.get("value")
    if declared is not None and declared.secret:
        return b"*" * (number or 0)
    if number is not None:
        return number
    if declared is not None and declared.wire.name == UTF8.name and value is not None:
        return value.decode("utf-8", "surrogateescape")
    return value


def _encoded(packet: Any, version: ProtocolVersion, length: int) -> bytes:
    """The bytes of a packet; optional fields at its end are omitted if its length requires it."""
    if packet.missing or isinstance(packet, Connect):
        return encode(packet, version, remaining_length=length)
    raw = encode(packet, version)
    if _body(raw) == length:
        return raw
    for name in ("properties", "reason_code"):
        # A row has the meaning of an omitted field: success, and empty properties.
        if not getattr(packet, name, 1):
            setattr(packet, name, None)
            shorter = encode(packet, version)
            if _body(shorter) == length:
                return shorter
    return raw


def _body(raw: bytes) -> int:
    at = 2
    while raw[at - 1] & 0x80:
        at += 1
    return len(raw) - at
