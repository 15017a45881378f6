"""Packets without their secrets, for storing: an asterisk replaces each hidden byte, so that lengths stay."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connect, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from mqttscope.secrets.credentials import starred_name, without_property_credentials
from mqttscope.secrets.forms import without_tokens
from mqttscope.secrets.packets import AUTHENTICATION_DATA, Ranges, covered, visible_fields


def public(packet: ControlPacket, hidden: Ranges) -> ControlPacket:
    """The packet without the values in the hidden ranges of its bytes."""
    changed: dict[str, Any] = {"raw": covered(packet.raw, hidden)}
    if isinstance(packet, Connect) and packet.password is not None:
        changed["password"] = b"*" * len(packet.password)
    if isinstance(packet, Connect) and packet.will is not None:
        payload = packet.will.will_payload
        shown = without_tokens(payload)
        if shown is payload and payload in packet.raw and payload not in changed["raw"]:
            # The bytes are hidden: for a password without a user name, it is uncertain which field is which.
            shown = b"*" * len(payload)
        properties = without_property_credentials(packet.will.properties)
        if shown is not payload or properties is not packet.will.properties:
            changed["will"] = replace(packet.will, will_payload=shown, properties=properties)
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
        changed["properties"] = without_property_credentials(block)
    return replace(packet, **changed)


def without_tokens_of(packet: ControlPacket, limit: int | None = None) -> ControlPacket:
    """The packet without credentials in the payload and properties of the packet or its will.

    Returns the packet itself without credentials.  ``limit`` is the maximum number of shown payload bytes.
    """
    changed: dict[str, Any] = {}
    if isinstance(packet, Publish):
        shown = without_tokens(packet.payload, limit)
        if shown is not packet.payload:
            changed["payload"] = shown
    elif isinstance(packet, Connect) and packet.will is not None:
        will = packet.will
        shown, properties = without_tokens(will.will_payload, limit), without_property_credentials(will.properties)
        if shown is not will.will_payload or properties is not will.properties:
            changed["will"] = replace(will, will_payload=shown, properties=properties)
    block: Properties | None = getattr(packet, "properties", None)
    if block and (properties := without_property_credentials(block)) is not block:
        changed["properties"] = properties
    return replace(packet, **changed) if changed else packet


def without_names_of(packet: ControlPacket) -> ControlPacket:
    """The packet without credentials in Client Identifier, User Name and topics; its bytes stay unchanged.

    Returns the packet itself without credentials, as for nearly all packets.
    """
    if isinstance(packet, Publish):
        name = starred_name(packet.topic_name)
        return packet if name == packet.topic_name else replace(packet, topic_name=name)
    if isinstance(packet, Subscribe) and packet.subscriptions:
        names = [starred_name(subscription.topic_filter) for subscription in packet.subscriptions]
        if names == [subscription.topic_filter for subscription in packet.subscriptions]:
            return packet
        pairs = zip(packet.subscriptions, names, strict=True)
        rows = [replace(subscription, topic_filter=name) for subscription, name in pairs]
        return replace(packet, subscriptions=rows)
    if isinstance(packet, Unsubscribe) and packet.topic_filters:
        names = [starred_name(topic_filter) for topic_filter in packet.topic_filters]
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
    """Rows of a report with asterisks for credentials in all texts."""
    if isinstance(value, str):
        return starred_name(value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {field_.name: starred_texts(getattr(value, field_.name)) for field_ in fields(value)}
        return replace(value, **changes)
    if isinstance(value, dict):
        return {starred_texts(key): starred_texts(row) for key, row in value.items()}
    return type(value)(map(starred_texts, value)) if type(value) in (list, tuple) else value


def public_damaged(damaged: Malformed, hidden: Ranges, version: ProtocolVersion) -> Malformed:
    """A malformed packet without the values in hidden ranges; partly hidden values are hidden completely."""
    packet = damaged.packet
    if packet is not None:
        packet = public(packet, hidden)
        seen = set(visible_fields(damaged.fields_read, damaged.raw, version, hidden))
        lost = [row.name for row in packet.declaration if row.kind == "wire" and row.name not in seen]
        packet = replace(packet, **{name: _starred(getattr(packet, name)) for name in lost})
        packet.raw = covered(damaged.raw, hidden)
    return replace(damaged, raw=covered(damaged.raw, hidden), packet=packet)


def _starred(value: Any) -> Any:
    """A value with the form and length of the original, filled with asterisks."""
    if isinstance(value, str):
        return "*" * len(value)
    if isinstance(value, bytes):
        return b"*" * len(value)
    if isinstance(value, tuple):
        return tuple(_starred(part) for part in value)
    if isinstance(value, list):
        return [_starred(part) for part in value]
    if isinstance(value, Properties):
        return Properties.of((number, _starred(part)) for number, part in value.items)
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
