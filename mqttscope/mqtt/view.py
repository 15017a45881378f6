"""Packets as plain JSON values: the same keys as the attributes, nothing lost that a reader could want.

Binary values are ``{"length", "text"}`` when they are printable UTF-8, else ``{"length", "hex"}``; text that is not
valid UTF-8 has the ``hex`` form too.  Values past the limit are cut and marked ``"truncated": true``.  Passwords are
redacted unless asked for, and so is the Authentication Data of MQTT 5.0, which may be one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from mqttscope.mqtt.constants import V5, PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.fields import Field, members_of
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_IDENTIFIER, LISTS, PROPERTIES, Properties, property_name

PAYLOAD_LIMIT: Final = 65_536
"""Bytes of a binary value that are shown unless another limit is given."""

_SECRETS: Final = frozenset(row.identifier for row in PROPERTIES if row.secret)

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_BYTE: Final = re.compile(b"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FIRST_BYTES: Final = 64
"""So many bytes are looked at before others: what is no text at all shows it there."""
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_WITHOUT_BYTE: Final = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that stand for no byte."""

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
    """A binary value; ``missing`` bytes at its end were never captured."""
    length = len(value) + missing
    if len(value) <= limit:
        text = printable(value)
        shown: View = {"length": length, "text": text} if text is not None else {"length": length, "hex": value.hex()}
        if missing:
            shown["truncated"] = True
        return shown
    head = value[:limit]
    # A character that the limit cuts in two is dropped whole.
    whole = head.decode("utf-8", "ignore").encode() if printable(value) is not None else None
    shown = {"length": length, "text": whole.decode()} if whole is not None else {"length": length, "hex": head.hex()}
    shown["truncated"] = True
    return shown


def text(value: str) -> str | View:
    """A text value; the bytes of one that is not valid UTF-8."""
    if value.isascii() or _SURROGATE.search(value) is None:
        return value
    raw = value.encode("utf-8", "surrogateescape")
    return {"length": len(raw), "hex": raw.hex()}


def utf8(told: str) -> str:
    r"""Text that can be encoded: bytes of the capture that are not UTF-8 as ``\xff``."""
    if told.isascii():
        return told
    raw = told.encode("utf-8", "surrogatepass" if _WITHOUT_BYTE.search(told) else "surrogateescape")
    return raw.decode("utf-8", "backslashreplace")


def properties_view(block: Properties | None, limit: int = PAYLOAD_LIMIT, *, show_secrets: bool = False) -> View:
    """A property block as an object by name.

    ``user_property`` and ``subscription_identifier`` are always lists; another property that is repeated, which the
    specification forbids, becomes a list as well.
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
    """A password or Authentication Data: its length, or the value itself when secrets are asked for."""
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

    A field that the version does not have is left out, one that the packet does not have is ``None``.  An omitted
    reason code of 5.0 is shown as the 0 it means, omitted properties as ``{}``.  ``only`` names the fields to show (of
    a malformed packet: those that were read).  ``hide_payload`` leaves of the payload of a PUBLISH its length.
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


def malformed_view(found: Malformed, *, limit: int = PAYLOAD_LIMIT, redacted: bool = False) -> View:
    """The ``malformed`` object: reason, place, reason code, bytes, and further faults where there are any.

    ``redacted``: the bytes of a secret in it are asterisks (``2a``), which is said.
    """
    raw = found.raw
    shown: View = {
        "reason": str(found.reason),
        "offset": found.offset,
        "field": found.field or None,
        "detail": found.detail,
        "reason_code": found.reason_code,
        "raw": raw[:limit].hex(),
    }
    if redacted:
        shown["redacted"] = True
    if len(found.raw) > limit:
        shown["truncated"] = True
    if found.missing:
        shown["missing"] = found.missing
    if len(found.faults) > 1:
        shown["faults"] = [
            {"reason": str(one.reason), "offset": one.offset, "field": one.field or None, "detail": one.detail}
            for one in found.faults
        ]
    return shown


How = Callable[..., Any]
"""Gives what is shown of a value; it takes the value and the limit of binary values."""
_Rows = tuple[tuple[str, How | None], ...]
"""Names of fields, and how their values are shown; ``None`` for as they are."""


def _text(value: str | None, limit: int) -> str | View | None:
    return None if value is None else text(value)


def _binary(value: bytes | None, limit: int) -> View | None:
    return None if value is None else binary(value, limit)


def _implied_success(value: int | None, limit: int) -> int:
    return value or 0


def _part(rows: _Rows) -> How:
    """Shows a Will or a subscription; its reserved bits only where they lie."""

    def show(value: Will | Subscription | None, limit: int) -> View | None:
        if value is None:
            return None
        found = ((name, how, getattr(value, name)) for name, how in rows)
        return {name: one if how is None else how(one, limit) for name, how, one in found if one or name != "reserved"}

    return show


def _each(how: How) -> How:
    return lambda values, limit: [how(one, limit) for one in values or ()]


_BY_TYPE: Final[dict[type, How]] = {str: _text, bytes: _binary, Properties: properties_view}


def _how(field: Field, version: ProtocolVersion) -> How | None:
    if field.secret:
        return secret
    if field.name == "reason_code" and field.tail >= version:
        return _implied_success
    how = _BY_TYPE.get(field.value_type)
    if field.value_type in (Will, Subscription):
        how = _part(_rows(members_of(field.packet_type, field.path), version))
    return how if how is None or not field.path.endswith("[]") else _each(how)


def _rows(fields: tuple[Field, ...], version: ProtocolVersion) -> _Rows:
    return tuple((one.name, _how(one, version)) for one in fields if version in one.versions)


_FIELDS: Final[dict[int, dict[int, _Rows]]] = {
    version: {kind: _rows(members_of(kind), version) for kind in PacketType} for version in ProtocolVersion
}


def without_topic(packet: Publish) -> str:
    """Why a PUBLISH has no topic, in a word: it is ``empty``, or ``unknown`` where its alias was not seen to be set."""
    alias = None if packet.properties is None else packet.properties.topic_alias
    return "empty" if alias is None and not packet.topic_name else "unknown"
