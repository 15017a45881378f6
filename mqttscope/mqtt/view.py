"""Packets as plain JSON values: the same keys as the attributes, nothing lost that a reader could want.

Binary values are ``{"length", "text"}`` when they are printable UTF-8, else ``{"length", "hex"}``; text that is not
valid UTF-8 has the ``hex`` form too.  Values past the limit are cut and marked ``"truncated": true``.  Passwords are
redacted unless asked for, and so is the Authentication Data of MQTT 5.0, which may be one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import PACKETS, ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_IDENTIFIER, LISTS, Properties, property_name

PAYLOAD_LIMIT = 65_536
"""Bytes of a binary value that are shown unless another limit is given."""

AUTHENTICATION_DATA = 0x16

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")

View = dict[str, Any]


def printable(value: bytes) -> str | None:
    """The text of bytes that are UTF-8 without control characters (tab and line ends are fine), else ``None``."""
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
    raw = told.encode("utf-8", "surrogateescape" if _escaped_bytes_only(told) else "surrogatepass")
    return raw.decode("utf-8", "backslashreplace")


def _escaped_bytes_only(told: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff" for char in told)


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
        elif number == AUTHENTICATION_DATA and isinstance(value, bytes):
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


def _will(will: Will | None, version: ProtocolVersion, limit: int) -> View | None:
    if will is None:
        return None
    shown: View = {
        "will_topic": text(will.will_topic),
        "will_payload": binary(will.will_payload, limit),
        "will_qos": will.will_qos,
        "will_retain": will.will_retain,
    }
    if version == ProtocolVersion.V5:
        shown["properties"] = properties_view(will.properties, limit)
    return shown


def _subscription(row: Subscription, version: ProtocolVersion) -> View:
    shown: View = {"topic_filter": text(row.topic_filter), "maximum_qos": row.maximum_qos}
    if version == ProtocolVersion.V5:
        shown["no_local"] = row.no_local
        shown["retain_as_published"] = row.retain_as_published
        shown["retain_handling"] = row.retain_handling
    if row.reserved:
        shown["reserved"] = row.reserved
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
    if packet.packet_type == 3 and only is None:
        shown = _publish(packet, version, limit)  # type: ignore[arg-type]
        if hide_payload:
            shown["payload"] = {"length": shown["payload"]["length"], "redacted": True}
        return shown
    shown = {}
    kind = packet.packet_type
    for name, how in _FIELDS[version][kind]:
        if only is not None and name not in only:
            continue
        value = getattr(packet, name)
        if how is _block:
            value = properties_view(value, limit, show_secrets=show_secrets)
        elif how is not None:
            value = how(value, version, limit)
        elif name == "password":
            value = secret(value, limit, show=show_secrets)
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
    if version == 5:
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


def malformed_view(found: Malformed, *, limit: int = PAYLOAD_LIMIT, raw: bytes | None = None) -> View:
    """The ``malformed`` object: reason, place, reason code, bytes, and further faults where there are any.

    ``raw`` are the bytes as they are to be shown, where that is not as they are: those of a secret are ``2a`` (an
    asterisk), and ``redacted`` says so.
    """
    raw = found.raw if raw is None else raw
    shown: View = {
        "reason": str(found.reason),
        "offset": found.offset,
        "field": found.field or None,
        "detail": found.detail,
        "reason_code": found.reason_code,
        "raw": raw[:limit].hex(),
    }
    if raw != found.raw:
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


How = Callable[[Any, ProtocolVersion, int], Any]


def _block(value: Properties | None, version: ProtocolVersion, limit: int) -> View:
    return properties_view(value, limit)


_BY_WIRE: dict[str, How] = {
    "UTF-8 Encoded String": lambda value, version, limit: None if value is None else text(value),
    "rest of the packet": lambda value, version, limit: None if value is None else binary(value, limit),
    "Properties": _block,
    "Will": _will,
    "subscriptions": lambda value, version, limit: [_subscription(row, version) for row in value or ()],
    "topic filters": lambda value, version, limit: [text(row) for row in value or ()],
}


def _fields(kind: int, version: ProtocolVersion) -> tuple[tuple[str, How | None], ...]:
    rows: list[tuple[str, How | None]] = []
    for row in PACKETS[kind].declaration:
        if row.kind != "wire":
            rows.append((row.name, None))
        elif row.exists_in(version):
            how = _BY_WIRE.get(row.wire_in(version).name)
            if row.name == "reason_code" and row.tail >= version:
                how = _implied_success
            rows.append((row.name, how))
    return tuple(rows)


def _implied_success(value: int | None, version: ProtocolVersion, limit: int) -> int:
    return value or 0


_FIELDS: dict[int, dict[int, tuple[tuple[str, How | None], ...]]] = {
    version: {kind: _fields(kind, version) for kind in PacketType} for version in ProtocolVersion
}
