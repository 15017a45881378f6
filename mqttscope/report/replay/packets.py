"""Packets of a recording and of its replay as reports show them: as events, as plain values, and field by field.

Passwords and Authentication Data are never shown unless secrets are asked for, and what looks like a secret is hidden
wherever it stands, since these reports end up in logs of build servers.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import Direction, type_name
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.properties import BY_NAME, Properties
from mqttscope.mqtt.view import binary, malformed_view, properties_view, text, view
from mqttscope.redact.addresses import REDACTED
from mqttscope.redact.packets import BROKEN, Ranges, hides_payload
from mqttscope.redact.secrets import is_secret_name
from mqttscope.redact.tokens import without_tokens
from mqttscope.redact.values import without_tokens_of
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import reason_text
from mqttscope.report.base import View, hidden_of
from mqttscope.report.findings.conceal import masked
from mqttscope.session.connection import Connection

IDLE = ("packet_identifier", "dup", "topic_name", "properties.topic_alias", "properties.reason_string")
"""Fields that do not count."""


def event_of(entry: Entry, script: Script) -> PacketEvent | MalformedEvent:
    """The event of a packet, as if it had come from a capture; its number is its place."""
    direction = Direction.CLIENT_TO_SERVER if entry.from_client else Direction.SERVER_TO_CLIENT
    place = _as_it_was(entry, script), direction, entry.place, entry.frame, entry.timestamp_ns, entry.capture
    packet = entry.packet
    if isinstance(packet, Malformed):
        return MalformedEvent(*place, packet, entry.topic)
    if not packet.raw:
        packet = copy(packet)
        packet.raw = entry.raw or encode(packet, script.version)
    return PacketEvent(*place, packet, entry.topic)


def _as_it_was(entry: Entry, script: Script) -> Connection:
    """The connection with what was in doubt when the packet came."""
    connection = copy(script.connection)
    side = copy(connection.client_side if entry.from_client else connection.server_side)
    side.doubt, connection.doubtful = entry.doubt, entry.doubt >= BROKEN
    if entry.from_client:
        connection.client_side = side
    else:
        connection.server_side = side
    return connection


def concealed(value: Any, shown: View) -> Any:
    """A plain value without what looks like a secret."""
    if shown.show_secrets:
        return value
    if isinstance(value, str):
        return masked(value, shown.secret_length)
    if isinstance(value, list):
        return [concealed(one, shown) for one in value]
    if not isinstance(value, dict):
        return value
    name = value.get("name")
    if set(value) == {"name", "value"} and isinstance(name, str) and is_secret_name(name):
        return {"name": name, "value": REDACTED}
    # Digits of bytes look like keys, all of them.
    return {key: one if key in ("hex", "raw") else concealed(one, shown) for key, one in value.items()}


def plain(field: str, value: Any, shown: View) -> Any:
    """One value of a difference as JSON has it."""
    name = field.rpartition(".")[2]
    if field.startswith("properties.") and value is not None and name in BY_NAME:
        number = BY_NAME[name].identifier
        several = value if isinstance(value, tuple) else (value,)
        block = properties_view(
            Properties.of((number, one) for one in several), shown.payload_limit, show_secrets=shown.show_secrets
        )
        value = block[name]
    elif isinstance(value, bytes):
        value = binary(value if shown.show_secrets else without_tokens(value, shown.payload_limit), shown.payload_limit)
    elif isinstance(value, str):
        value = text(value)
    elif isinstance(value, tuple):
        value = [plain("", one, shown) for one in value]
    return concealed(value, shown)


def fields_of(entry: Entry, script: Script, shown: View) -> dict[str, str]:
    """The fields of a packet by their paths, as text that is not escaped yet; absent ones are left out."""
    packet = entry.packet
    version = packet.version if isinstance(packet, Connect) else script.version
    hidden: Ranges = []
    if not shown.show_secrets:
        hidden = hidden_of(event_of(entry, script))
    if isinstance(packet, Malformed):
        values = malformed_view(packet, limit=shown.payload_limit)
        # Bytes may hold anything; that there are further faults is for JSON.
        del values["raw"]
        values.pop("faults", None)
    else:
        values = view(
            packet if shown.show_secrets else without_tokens_of(packet, shown.payload_limit),
            version,
            limit=shown.payload_limit,
            show_secrets=shown.show_secrets,
            hide_payload=bool(hidden) and isinstance(packet, Publish) and hides_payload(packet, entry.doubt),
        )
        kind = packet.packet_type
        values.pop("reason", None)
        values.pop("reasons", None)
        if values.get("reason_code") is not None:
            values["reason_code"] = reason_text(kind, values["reason_code"], version)
        if values.get("reason_codes") is not None:
            values["reason_codes"] = [reason_text(kind, code, version) for code in values["reason_codes"]]
    if isinstance(packet, Publish) and entry.topic is not None:
        values = {"topic": text(entry.topic)} | values
        if packet.topic_name == entry.topic:
            del values["topic_name"]
    found: dict[str, str] = {}
    _flatten("", concealed(values, shown), found)
    return found


def _flatten(path: str, value: Any, found: dict[str, str]) -> None:
    if value is None:
        return
    if isinstance(value, dict):
        if "length" in value:
            found[path] = _binary(value)
        elif set(value) == {"name", "value"}:
            found[path] = f"{_text(value['name'])}: {_text(value['value'])}"
        else:
            for key, one in value.items():
                _flatten(f"{path}.{key}" if path else key, one, found)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            _flatten(f"{path}[{index}]", one, found)
    elif isinstance(value, bool):
        found[path] = "true" if value else "false"
    else:
        found[path] = str(value)


def _text(value: Any) -> str:
    return _binary(value) if isinstance(value, dict) else str(value)


def _binary(value: dict[str, Any]) -> str:
    if value.get("redacted"):
        return f"{value['length']} bytes, hidden"
    more = f"... ({value['length']} bytes)" if value.get("truncated") else ""
    return f"{value['text']}{more}" if "text" in value else f"hex:{value.get('hex', '')}{more}"


def type_of(entry: Entry) -> str:
    """``PUBACK``; ``MALFORMED PUBACK`` for what cannot be read."""
    packet = entry.packet
    if not isinstance(packet, Malformed):
        return entry.type.upper()
    kind = packet.packet_type
    return "MALFORMED packet" if kind is None else f"MALFORMED {type_name(kind).upper()}"
