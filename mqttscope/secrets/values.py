"""Packets without their secrets, for whoever keeps them: the same lengths, an asterisk for each hidden byte."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.secrets.credentials import starred_name, without_told
from mqttscope.secrets.forms import without_tokens
from mqttscope.secrets.packets import AUTHENTICATION_DATA, Ranges, covered, visible_fields


def public(packet: ControlPacket, hidden: Ranges) -> ControlPacket:
    """A packet without what stands in the hidden ranges of its bytes."""
    changed: dict[str, Any] = {"raw": covered(packet.raw, hidden)}
    if isinstance(packet, Connect) and packet.password is not None:
        changed["password"] = b"*" * len(packet.password)
    if isinstance(packet, Connect) and packet.will is not None:
        payload = packet.will.will_payload
        shown = without_tokens(payload)
        if shown is payload and payload in packet.raw and payload not in changed["raw"]:
            # Hidden among the bytes: where a password has no user name before it, which field is which is in doubt.
            shown = b"*" * len(payload)
        told = without_told(packet.will.properties)
        if shown is not payload or told is not packet.will.properties:
            changed["will"] = replace(packet.will, will_payload=shown, properties=told)
    if (
        isinstance(packet, Publish)
        and packet.payload
        and hidden
        and hidden[-1][1] > len(packet.raw) - len(packet.payload)
    ):
        changed["payload"] = changed["raw"][len(packet.raw) - len(packet.payload) :]
    block: Properties | None = getattr(packet, "properties", None)
    if block is not None and block.first(AUTHENTICATION_DATA) is not None:
        block = changed["properties"] = _without_data(block)
    if block:
        changed["properties"] = without_told(block)
    return replace(packet, **changed)


def without_tokens_of(packet: ControlPacket, limit: int | None = None) -> ControlPacket:
    """A packet whose payload and properties, or those of its will, show no credentials; itself without any.

    ``limit``: bytes of a payload that are shown at most.
    """
    changed: dict[str, Any] = {}
    if isinstance(packet, Publish):
        shown = without_tokens(packet.payload, limit)
        if shown is not packet.payload:
            changed["payload"] = shown
    elif isinstance(packet, Connect) and packet.will is not None:
        will = packet.will
        shown, told = without_tokens(will.will_payload, limit), without_told(will.properties)
        if shown is not will.will_payload or told is not will.properties:
            changed["will"] = replace(will, will_payload=shown, properties=told)
    block: Properties | None = getattr(packet, "properties", None)
    if block and (told := without_told(block)) is not block:
        changed["properties"] = told
    return replace(packet, **changed) if changed else packet


def without_names_of(packet: ControlPacket) -> ControlPacket:
    """A packet whose Client Identifier, User Name and topics show no credentials; itself where they have none.

    Nearly all have none.  Its bytes are left as they are.
    """
    if isinstance(packet, Publish):
        name = starred_name(packet.topic_name)
        return packet if name == packet.topic_name else replace(packet, topic_name=name)
    if isinstance(packet, Subscribe) and packet.subscriptions:
        names = [starred_name(one.topic_filter) for one in packet.subscriptions]
        if names == [one.topic_filter for one in packet.subscriptions]:
            return packet
        rows = [replace(one, topic_filter=name) for one, name in zip(packet.subscriptions, names, strict=True)]
        return replace(packet, subscriptions=rows)
    if isinstance(packet, Unsubscribe) and packet.topic_filters:
        names = [starred_name(one) for one in packet.topic_filters]
        return packet if names == list(packet.topic_filters) else replace(packet, topic_filters=names)
    if isinstance(packet, Connect):
        name = starred_name(packet.client_identifier)
        if name != packet.client_identifier:
            packet = replace(packet, client_identifier=name)
        if packet.user_name and starred_name(packet.user_name) != packet.user_name:
            packet = replace(packet, user_name=starred_name(packet.user_name))
        will = packet.will
        if will is not None and starred_name(will.will_topic) != will.will_topic:
            packet = replace(packet, will=replace(will, will_topic=starred_name(will.will_topic)))
    return packet


def starred_texts(value: Any) -> Any:
    """Rows of a report with asterisks for the credentials in each of their texts."""
    if isinstance(value, str):
        return starred_name(value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {one.name: starred_texts(getattr(value, one.name)) for one in fields(value)}
        return replace(value, **changes)
    if isinstance(value, dict):
        return {starred_texts(key): starred_texts(row) for key, row in value.items()}
    return type(value)(map(starred_texts, value)) if type(value) in (list, tuple) else value


def public_damaged(found: Malformed, hidden: Ranges, version: ProtocolVersion) -> Malformed:
    """The same of a packet that breaks the layout; values that are hidden in part are hidden whole."""
    made = found.packet
    if made is not None:
        made = public(made, hidden)
        seen = set(visible_fields(found.fields_read, found.raw, version, hidden))
        lost = [row.name for row in made.declaration if row.kind == "wire" and row.name not in seen]
        made = replace(made, **{name: _starred(getattr(made, name)) for name in lost})
        made.raw = covered(found.raw, hidden)
    return replace(found, raw=covered(found.raw, hidden), packet=made)


def _starred(value: Any) -> Any:
    """A value of the same form and length with nothing in it."""
    if isinstance(value, str):
        return "*" * len(value)
    if isinstance(value, bytes):
        return b"*" * len(value)
    if isinstance(value, tuple):
        return tuple(_starred(one) for one in value)
    if isinstance(value, list):
        return [_starred(one) for one in value]
    if isinstance(value, Properties):
        return Properties.of((number, _starred(one)) for number, one in value.items)
    if isinstance(value, Will):
        return replace(
            value, will_topic=_starred(value.will_topic), will_payload=_starred(value.will_payload),
            properties=_starred(value.properties),
        )  # fmt: skip
    if isinstance(value, Subscription):
        return replace(value, topic_filter=_starred(value.topic_filter))
    return value


def _without_data(block: Properties) -> Properties:
    return Properties.of(
        (number, _starred(value) if number == AUTHENTICATION_DATA else value) for number, value in block.items
    )
