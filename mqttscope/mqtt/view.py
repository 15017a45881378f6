"""Packets as plain JSON values, with the attribute names as keys.

Binary values are ``{"length", "text"}`` when they are printable UTF-8, else ``{"length", "hex"}``; text that is not
valid UTF-8 has the ``hex`` form too.  Values longer than the limit are cut and marked ``"truncated": true``.  Passwords
and Authentication Data of MQTT 5.0, which may be one, are redacted unless requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from mqttscope.mqtt.constants import V5, PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.fields import PacketField, members_of
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_IDENTIFIER, LISTS, PROPERTIES, Properties, property_name

PAYLOAD_LIMIT: Final = 65_536
"""Default maximum of shown bytes of a binary value."""

_SECRETS: Final = frozenset(row.identifier for row in PROPERTIES if row.secret)

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_BYTE: Final = re.compile(b"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FIRST_BYTES: Final = 64
"""Number of bytes checked first: binary values mostly have a control byte among them."""
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_WITHOUT_BYTE: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that do not represent a byte."""

View = dict[str, Any]


def printable(value: bytes) -> str | None:
    """The text of bytes that are UTF-8 without control characters (tab and line ends are fine), else ``None``."""
    if not value.isascii() and _CONTROL_BYTE.search(value, 0, _FIRST_BYTES) is not None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or _CONTROL.search(text) is None else None


def binary(value: bytes, limit: int = PAYLOAD_LIMIT, missing: int = 0) -> View:
    """A binary value; ``missing`` bytes at its end were not captured."""
    length = len(value) + missing
    if len(value) <= limit:
        text = printable(value)
        shown: View = {"length": length, "text": text} if text is not None else {"length": length, "hex": value.hex()}
        if missing:
            shown["truncated"] = True
        return shown
    head = value[:limit]
    # A character that crosses the limit is dropped.
    whole = head.decode("utf-8", "ignore").encode() if printable(value) is not None else None
    shown = {"length": length, "text": whole.decode()} if whole is not None else {"length": length, "hex": head.hex()}
    shown["truncated"] = True
    return shown


def text(value: str) -> str | View:
    """A text value, or its bytes if they are not valid UTF-8."""
    if value.isascii() or _SURROGATE.search(value) is None:
        return value
    raw = value.encode("utf-8", "surrogateescape")
    return {"length": len(raw), "hex": raw.hex()}


def utf8(string: str) -> str:
    r"""Text that can be encoded as UTF-8: other captured bytes are escaped as ``\xff``."""
    if string.isascii():
        return string
    raw = string.encode("utf-8", "surrogatepass" if _WITHOUT_BYTE.search(string) else "surrogateescape")
    return raw.decode("utf-8", "backslashreplace")


def properties_view(block: Properties | None, limit: int = PAYLOAD_LIMIT, *, show_secrets: bool = False) -> View:
    """A property block as an object by name.

    ``user_property`` and ``subscription_identifier`` are always lists.  Any other repeated property, which the
    specification forbids, also becomes a list.
    """
    shown: View = {}
    if block is None:
        return shown
    for number, value in block.items:
        name = property_name(number)
        plain: Any
        if name == "user_property" and isinstance(value, tuple):
            plain = {"name": text(value[0]), "value": text(value[1])}
        elif number in _SECRETS and isinstance(value, bytes):
            plain = secret(value, limit, show=show_secrets)
        elif isinstance(value, bytes):
            plain = binary(value, limit) if number in BY_IDENTIFIER else {"length": len(value), "hex": value.hex()}
        elif isinstance(value, str):
            plain = text(value)
        else:
            plain = value
        if name in LISTS:
            shown.setdefault(name, []).append(plain)
        elif name not in shown:
            shown[name] = plain
        elif isinstance(shown[name], list):
            shown[name].append(plain)
        else:
            shown[name] = [shown[name], plain]
    return shown


def secret(value: bytes | None, limit: int, *, show: bool) -> View | None:
    """A password or Authentication Data: its length, or the value itself if secrets are to be shown."""
    if value is None:
        return None
    return binary(value, limit) if show else {"length": len(value), "redacted": True}


def view(
    packet: ControlPacket,
    version: ProtocolVersion,
    *,
    limit: int = PAYLOAD_LIMIT,
    show_secrets: bool = False,
    only: tuple[str, ...] | None = None,
    hide_payload: bool = False,
) -> View:
    """Fields of a packet by name.

    A field outside the version is omitted, a field that the packet lacks is ``None``.  An omitted
    reason code of 5.0 is shown as its meaning, 0, omitted properties as ``{}``.  ``only`` names the fields to show (for
    a malformed packet: the fields that were read).  ``hide_payload`` shows only the length of a PUBLISH payload.
    """
    if type(packet) is Publish and only is None:
        shown = _publish(packet, version, limit)
        if hide_payload:
            shown["payload"] = {"length": shown["payload"]["length"], "redacted": True}
        return shown
    shown = {}
    kind = packet.packet_type
    for name, how in _FIELDS[version][kind]:
        if only is not None and name not in only:
            continue
        value = getattr(packet, name)
        if how is properties_view:
            value = properties_view(value, limit, show_secrets=show_secrets)
        elif how is secret:
            value = secret(value, limit, show=show_secrets)
        elif how is not None:
            value = how(value, limit)
        if value is None and name in ("connect_flags", "acknowledge_flags"):
            continue
        shown[name] = value
        if name == "reason_code" and value is not None:
            shown["reason"] = reason_name(kind, value, version)
        elif name == "reason_codes" and value is not None:
            shown["reasons"] = [reason_name(kind, code, version) for code in value]
    if packet.header_flags is not None:
        shown["header_flags"] = packet.header_flags
    return shown


def _publish(packet: Publish, version: ProtocolVersion, limit: int) -> View:
    shown: View = {
        "dup": packet.dup,
        "qos": packet.qos,
        "retain": packet.retain,
        "topic_name": packet.topic_name,
        "packet_identifier": packet.packet_identifier,
    }
    if version == V5:
        block = packet.properties
        shown["properties"] = properties_view(block, limit) if block is not None and block.items else {}
    payload = packet.payload
    if packet.missing or len(payload) > limit:
        shown["payload"] = binary(payload, limit, packet.missing)
        return shown
    content = printable(payload)
    if content is not None:
        shown["payload"] = {"length": len(payload), "text": content}
    else:
        shown["payload"] = {"length": len(payload), "hex": payload.hex()}
    return shown


def malformed_view(malformed: Malformed, *, limit: int = PAYLOAD_LIMIT, redacted: bool = False) -> View:
    """The ``malformed`` object: reason, offset, reason code, bytes, and further faults if there are any.

    ``redacted``: secret bytes were replaced by asterisks (``2a``); the object is marked as redacted.
    """
    raw = malformed.raw
    shown: View = {
        "reason": str(malformed.reason),
        "offset": malformed.offset,
        "field": malformed.field or None,
        "detail": malformed.detail,
        "reason_code": malformed.reason_code,
        "raw": raw[:limit].hex(),
    }
    if redacted:
        shown["redacted"] = True
    if len(malformed.raw) > limit:
        shown["truncated"] = True
    if malformed.missing:
        shown["missing"] = malformed.missing
    if len(malformed.faults) > 1:
        shown["faults"] = [
            {"reason": str(fault.reason), "offset": fault.offset, "field": fault.field or None, "detail": fault.detail}
            for fault in malformed.faults
        ]
    return shown


How = Callable[..., Any]
"""Returns the JSON form of a value; takes the value and the limit of binary values."""
_Rows = tuple[tuple[str, How | None], ...]
"""Names of fields, and functions that convert their values; ``None`` for unchanged values."""


def _text(value: str | None, limit: int) -> str | View | None:
    return None if value is None else text(value)


def _binary(value: bytes | None, limit: int) -> View | None:
    return None if value is None else binary(value, limit)


def _implied_success(value: int | None, limit: int) -> int:
    return value or 0


def _part(rows: _Rows) -> How:
    """Converter of a Will or a subscription; reserved bits appear only if they are set."""

    def show(value: Will | Subscription | None, limit: int) -> View | None:
        if value is None:
            return None
        members = ((name, how, getattr(value, name)) for name, how in rows)
        return {
            name: member if how is None else how(member, limit)
            for name, how, member in members
            if member or name != "reserved"
        }

    return show


def _each(how: How) -> How:
    return lambda values, limit: [how(element, limit) for element in values or ()]


_BY_TYPE: Final[dict[type, How]] = {str: _text, bytes: _binary, Properties: properties_view}


def _how(field: PacketField, version: ProtocolVersion) -> How | None:
    if field.secret:
        return secret
    if field.name == "reason_code" and field.tail >= version:
        return _implied_success
    how = _BY_TYPE.get(field.value_type)
    if field.value_type in (Will, Subscription):
        how = _part(_rows(members_of(field.packet_type, field.path), version))
    return how if how is None or not field.path.endswith("[]") else _each(how)


def _rows(fields: tuple[PacketField, ...], version: ProtocolVersion) -> _Rows:
    return tuple((field.name, _how(field, version)) for field in fields if version in field.versions)


_FIELDS: Final[dict[int, dict[int, _Rows]]] = {
    version: {kind: _rows(members_of(kind), version) for kind in PacketType} for version in ProtocolVersion
}


def without_topic(packet: Publish) -> str:
    """Why a PUBLISH has no topic: it is ``empty``, or ``unknown`` if the definition of its alias was not captured."""
    alias = None if packet.properties is None else packet.properties.topic_alias
    return "empty" if alias is None and not packet.topic_name else "unknown"
