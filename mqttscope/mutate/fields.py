"""What there is to mutate by data type: the fields of `mqtt.fields` with bytes of their own; and what faults break.

A field inside a list is named without its index, as in filters: ``subscribe.subscriptions.topic_filter``.

Statements are identified as in the OASIS Standards, or where these have no identifiers as in this project; each stands
with its version, since the versions number different sentences alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from mqttscope.mqtt import fields
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties, Property
from mqttscope.mutate.mutation import ANY, Mutation, MutationKind, PacketChange, Reaction, row

REASON_CODE = "reason code"
"""Data type of a Byte that is a reason or return code: only values of a table are allowed."""
BITS = fields.BITS
"""Data type of a Byte whose bits have meanings of their own."""
_STRINGS = {
    "connect.client_identifier": "3.1.1 MQTT-3.1.3-4, 5.0 MQTT-3.1.3-4",
    "connect.will.will_topic": "3.1.1 MQTT-3.1.3-10, 5.0 MQTT-3.1.3-11",
    "connect.user_name": "3.1.1 MQTT-3.1.3-11, 5.0 MQTT-3.1.3-12",
    "publish.topic_name": "3.1.1 MQTT-3.3.2-1, 5.0 MQTT-3.3.2-1",
    "publish.properties.response_topic": "5.0 MQTT-3.3.2-13",
    "publish.properties.content_type": "5.0 MQTT-3.3.2-19",
    "subscribe.subscriptions.topic_filter": "3.1.1 MQTT-3.8.3-1, 5.0 MQTT-3.8.3-1",
    "unsubscribe.topic_filters": "3.1.1 MQTT-3.10.3-1, 5.0 MQTT-3.10.3-1",
}
"""Statements about one string that is not UTF-8."""
TOPICS = {
    "publish.topic_name",
    "publish.properties.response_topic",
    "connect.will.will_topic",
    "connect.will.properties.response_topic",
    "subscribe.subscriptions.topic_filter",
    "unsubscribe.topic_filters",
}
"""Fields that are Topic Names or Topic Filters (5.0 4.7.3)."""
_ACKS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
FIXED_BEFORE_5 = (PacketType.CONNACK, *_ACKS, PacketType.UNSUBACK)
"""Packets of a fixed length in 3.1.1, where a shorter one breaks another statement."""
FORBIDDEN_VALUES: dict[str, tuple[int, str]] = {
    "receive_maximum": (0, "5.0 V5-VALUE-receive-maximum-0"),
    "maximum_packet_size": (0, "5.0 V5-VALUE-max-packet-size-0"),
    "subscription_identifier": (0, "5.0 V5-VALUE-subscription-id-0"),
    "topic_alias": (0, "5.0 MQTT-3.3.2-8"),
    "request_problem_information": (2, "5.0 V5-VALUE-request-info"),
    "request_response_information": (2, "5.0 V5-VALUE-request-info"),
    "maximum_qos": (2, "5.0 V5-VALUE-connack-flags"),
    "retain_available": (2, "5.0 V5-VALUE-connack-flags"),
    "wildcard_subscription_available": (2, "5.0 V5-VALUE-connack-flags"),
    "subscription_identifier_available": (2, "5.0 V5-VALUE-connack-flags"),
    "shared_subscription_available": (2, "5.0 V5-VALUE-connack-flags"),
    "payload_format_indicator": (2, "5.0 V5-VALUE-payload-format"),
}
"""The least forbidden value of each property that has any (0: only that one; 2: all from there on)."""


@dataclass(slots=True, frozen=True)
class Field:
    """One field of one packet type."""

    packet_type: PacketType
    path: str
    """As `trace` spells it for the first element of a list: ``subscriptions[0].topic_filter``."""
    wire: str
    """Name of the data type."""
    versions: tuple[ProtocolVersion, ...]
    optional: bool = False
    """Whether the packet may end before it (in some version)."""
    row: Property | None = None
    """The row of table 2-4, for a property."""

    @property
    def name(self) -> str:
        """Mutation path: ``publish.topic_name``, without indexes."""
        return f"{self.packet_type.name.lower()}.{self.path.replace('[0]', '')}"

    @property
    def in_will(self) -> bool:
        return self.path.startswith("will.")


@cache
def fields_of(packet_type: PacketType) -> tuple[Field, ...]:
    """Every field of a packet type that has bytes of its own, and the bytes that hold the bits of others."""
    known = fields.fields_of(packet_type)
    holders = {one.byte: one.versions for one in reversed(known) if one.byte}
    found = []
    for one in known:
        if one.is_part or one.wire == BITS:
            continue
        wire = REASON_CODE if one.is_reason_code else BITS if one.path in holders else one.wire
        holders.pop(one.path, None)
        found.append(Field(packet_type, _first(one.path), wire, one.versions, one.tail > 0, one.row))
    # What is left is no field itself: the options of a subscription.
    found += (Field(packet_type, _first(byte), BITS, versions) for byte, versions in holders.items())
    return tuple(found)


def _first(path: str) -> str:
    return path.replace("[]", "[0]")


@cache
def all_fields() -> tuple[Field, ...]:
    return tuple(one for kind in PacketType for one in fields_of(kind))


def blocks() -> tuple[tuple[PacketType, int, str], ...]:
    """Every property block: packet type, owner in table 2-4, and prefix of its paths."""
    return tuple(
        (one.packet_type, one.owner, one.path.removesuffix("properties"))
        for one in fields.all_fields()
        if one.value_type is Properties
    )


def field_row(
    field: Field,
    /,
    slug: str,
    words: str,
    change: PacketChange,
    statements: str = "",
    reaction: Reaction = ANY,
    *,
    part: str = "",
    **more: Any,
) -> Mutation:
    """A mutation of a field, or of a part of its value, by its data type; ``words`` continue the sentence."""
    more = {"kind": MutationKind.WIRE, **more}
    sentence = f"{field.name}{part} {words}."
    return row(f"{field.name}{part}:{slug}", sentence, change, statements, reaction, field.versions, **more)


def ill_formed(field: Field) -> str:
    """Statements about a string that is not UTF-8 (5.0 1.5.4, 3.1.1 1.5.3)."""
    statements = ["3.1 V31-PUBLISH-utf, 3.1.1 MQTT-1.5.3-1, 5.0 MQTT-1.5.4-1"]
    if field.name in _STRINGS:
        statements.append(_STRINGS[field.name])
    if field.path.endswith("user_property") and not field.in_will:
        statements.append("5.0 MQTT-1.5.7-1")
    return ", ".join(statements)


def null_character(field: Field) -> str:
    """Statements about a string with U+0000 (5.0 1.5.4, 4.7.3)."""
    if field.name not in TOPICS:
        return "3.1.1 MQTT-1.5.3-2, 5.0 MQTT-1.5.4-2"
    return "3.1 V31-TOPIC-null, 3.1.1 MQTT-1.5.3-2, 3.1.1 MQTT-4.7.3-2, 5.0 MQTT-1.5.4-2, 5.0 MQTT-4.7.3-2"


CONTROL_CHARACTER = "3.1.1 V311-STRING-control-characters, 5.0 V5-STRING-control-characters"
"""A string should have no control character."""
NON_CHARACTER = "3.1.1 V311-STRING-control-characters, 5.0 V5-STRING-non-characters"
"""A string should have no code point that is not a character."""


def overrun(field: Field) -> str:
    """Statements about a field that reaches past its packet, a property past its block (5.0 2.1.4, 2.2.2.2)."""
    return f"3.1.1 V311-LENGTH-overrun, 5.0 {'V5-LENGTH-overrun' if field.row is None else 'V5-PROP-wrong-type'}"


def repeated_property(packet_type: PacketType, in_will: bool) -> str:
    """The statement that lists which properties must not repeat in a packet."""
    return f"5.0 V5-PROP-repeat-{'WILL' if in_will else 'ACKS' if packet_type in _ACKS else packet_type.name}"
