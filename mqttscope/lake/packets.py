"""Rows of packets as packets again: the way back from the columns that `lake.declared` makes.

What a lake does not keep is not there either.  Of a secret it has the length, so asterisks stand for it; of a payload
it may have the beginning or nothing, and the rest counts as missing.  The bytes of a packet are encoded from its
fields, so its properties stand in the order of the specification and not in that of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from mqttscope.lake.declared import packet_columns
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import RESERVED, MalformedReason, PacketType, ProtocolVersion, type_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket, FaultReport, Malformed
from mqttscope.mqtt.fields import Field, members_of
from mqttscope.mqtt.packets import Connect, version_of_level
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_IDENTIFIER, LISTS, PROPERTIES, Properties
from mqttscope.mqtt.stream import Unparsed
from mqttscope.mqtt.wire import REST, UTF8

Row = Mapping[str, Any]
Texts = dict[str, bytes]
"""Texts of a row that are not UTF-8, by the path of their field."""
_TYPES = {kind.name.lower(): kind for kind in PacketType}


class _Source:
    """A row, and what of it stands beside its columns."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.texts: Texts = {one["field"]: one["value"] for one in row.get("not_utf8") or ()}
        self.others: list[Row] = list(row.get("other_properties") or ())

    def text(self, value: str, path: str) -> str:
        """A text of the row, as it was captured."""
        raw = self.texts.get(path)
        return value if raw is None else raw.decode("utf-8", "surrogateescape")


def version_of(row: Row) -> ProtocolVersion:
    """The version that the connection of a row speaks."""
    return ProtocolVersion.from_text(row["version"])


def topic_of(row: Row) -> str | None:
    topic = row["topic"]
    return None if topic is None else _Source(row).text(topic, "topic")


def packet_of(row: Row) -> ControlPacket | None:
    """The packet of a row of ``packets``; ``None`` for one of a type that this program does not know.

    ``raw`` is encoded from the fields.  What the lake has not kept of a payload is missing (`ControlPacket.missing`).
    """
    kind = _TYPES.get(row["type"] or "")
    if kind is None:
        return None
    version = version_of(row)
    made = _made(_Source(row), kind, version, None)
    length = row["remaining_length"]
    made.raw = _encoded(made, version, length)
    return made


def malformed_of(row: Row) -> Malformed:
    """What a row of ``packets`` says of a packet that breaks the layout; its bytes have asterisks for secrets."""
    told = row["malformed"]
    kind = _TYPES.get(row["type"] or "")
    packet = None
    names = tuple(told["fields_read"] or ())
    if kind is not None and told["fields_read"] is not None:
        packet = _made(_Source(row), kind, version_of(row), names)
        packet.raw = told["raw"] or b""
    number = RESERVED if row["type"] == type_name(RESERVED) else None if kind is None else int(kind)
    first = _fault(told)
    faults = tuple(_fault(one) for one in told["faults"] or ()) or (first,)
    return Malformed(
        first.reason, first.offset, first.field, first.detail, told["raw"] or b"", number, packet, names, False, faults,
        told["missing"] or 0,
    )  # fmt: skip


def unparsed_of(row: Row) -> Unparsed:
    """The bytes of a row of ``gaps`` that are no packet."""
    raw = row["raw"]
    if raw is None:
        raw = b"*" * (row["raw_length"] or 0) if row["redacted"] else b""
    return Unparsed(row["reason"], row["length"], raw, row["missing"] or 0, row["packet_type"])


def _fault(told: Row) -> FaultReport:
    return FaultReport(MalformedReason(told["reason"]), told["offset"], told["field"] or "", told["detail"] or "")


def _made(source: _Source, kind: PacketType, version: ProtocolVersion, only: tuple[str, ...] | None) -> ControlPacket:
    """A packet with the fields of its row; ``only``: those that could be read, so that the others are ``None``."""
    row = source.row
    made: Any = PACKETS[kind]()
    inner = row.get(kind.name.lower())
    if kind is PacketType.CONNECT and inner is not None:
        version = version_of_level(inner["protocol_level"])
    for field, struct in _plan(kind):
        name = field.name
        if only is not None and name not in only:
            setattr(made, name, None)
        elif version in field.versions:
            setattr(made, name, _value(source, field, (inner or {}) if struct else row, struct))
            if field.wire == REST.name and not field.secret:
                made.missing = (row[f"{name}_length"] or 0) - len(getattr(made, name) or b"")
        elif name in ("properties", "reason_codes", "reason_code", "session_present"):
            setattr(made, name, None)
    made.header_flags = row["header_flags"]
    found: ControlPacket = made
    return found


@cache
def _plan(kind: PacketType) -> tuple[tuple[Field, str], ...]:
    """The fields of a packet, each with the path of the struct that its column is in."""
    columns, struct = packet_columns(), kind.name.lower()
    return tuple((one, "" if _column(one) in columns else f"{struct}.") for one in members_of(kind))


def _column(field: Field) -> str:
    return f"{field.name}_length" if field.secret else field.name


def _value(source: _Source, field: Field, holder: Row, place: str) -> Any:
    """The value of one field.  ``place``: path of what holds it."""
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
    return [_part(source, field, one, f"{path}[{at}]") for at, one in enumerate(value or ())]


def _of_length(kept: bytes | None, length: int) -> bytes:
    """A field whose length is known, with asterisks for what was not kept of it."""
    kept = kept or b""
    return kept + b"*" * (length - len(kept))


def _part(source: _Source, field: Field, value: Any, path: str) -> Any:
    if value is None:
        return None
    if field.value_type is str:
        return source.text(value, path)
    if field.value_type not in (Will, Subscription):
        return value
    made: Any = Will() if field.value_type is Will else Subscription("")
    for member in members_of(field.packet_type, field.path):
        found = _value(source, member, value, f"{path}.")
        if found is None and member.name == "reserved":
            found = 0
        if found is not None:
            setattr(made, member.name, found)
    return made


_COLUMNS = tuple((f"{one.name}_length" if one.secret else one.name, one) for one in PROPERTIES)


def _block(source: _Source, shown: Row | None, path: str) -> Properties | None:
    """A property block from its struct, and from what had no place in it."""
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
                told = source.text(pair["name"], f"{where}.name"), source.text(pair["value"], f"{where}.value")
                items.append((number, told))
        elif name in LISTS:
            items += ((number, one) for one in value)
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


def _other(told: Row) -> Any:
    """The value of a property that the struct has no place for."""
    declared = BY_IDENTIFIER.get(told["identifier"])
    number, value = told.get("number"), told.get("value")
    if declared is not None and declared.secret:
        return b"*" * (number or 0)
    if number is not None:
        return number
    if declared is not None and declared.wire.name == UTF8.name and value is not None:
        return value.decode("utf-8", "surrogateescape")
    return value


def _encoded(made: Any, version: ProtocolVersion, length: int) -> bytes:
    """The bytes of a packet; what may be left out at its end is left out where its length says so."""
    if made.missing or isinstance(made, Connect):
        return encode(made, version, remaining_length=length)
    raw = encode(made, version)
    if _body(raw) == length:
        return raw
    for name in ("properties", "reason_code"):
        # A row has what a field means that was left out: success, and no properties.
        if not getattr(made, name, 1):
            setattr(made, name, None)
            shorter = encode(made, version)
            if _body(shorter) == length:
                return shorter
    return raw


def _body(raw: bytes) -> int:
    at = 2
    while raw[at - 1] & 0x80:
        at += 1
    return len(raw) - at
