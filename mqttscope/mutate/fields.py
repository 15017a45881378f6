"""What there is to mutate by data type: the fields of `mqtt.fields` with bytes of their own; and what faults break.

A field inside a list is named without its index, as in filters: ``subscribe.subscriptions.topic_filter``.

Statements are identified as in the OASIS Standards, or where these have no identifiers as in this project; each stands
with its version, since the versions number different sentences alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mqttscope.mqtt import fields
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties, Property

REASON_CODE = "reason code"
"""Data type of a Byte that is a reason or return code: only values of a table are allowed."""
BITS = fields.BITS
"""Data type of a Byte whose bits have meanings of their own."""
_STRING_5 = {
    "connect.client_identifier": ("MQTT-3.1.3-4",),
    "connect.will.will_topic": ("MQTT-3.1.3-11",),
    "connect.user_name": ("MQTT-3.1.3-12",),
    "publish.topic_name": ("MQTT-3.3.2-1",),
    "publish.properties.response_topic": ("MQTT-3.3.2-13",),
    "publish.properties.content_type": ("MQTT-3.3.2-19",),
    "subscribe.subscriptions.topic_filter": ("MQTT-3.8.3-1",),
    "unsubscribe.topic_filters": ("MQTT-3.10.3-1",),
}
_STRING_3_1_1 = {
    "connect.client_identifier": ("MQTT-3.1.3-4",),
    "connect.will.will_topic": ("MQTT-3.1.3-10",),
    "connect.user_name": ("MQTT-3.1.3-11",),
    "publish.topic_name": ("MQTT-3.3.2-1",),
    "subscribe.subscriptions.topic_filter": ("MQTT-3.8.3-1",),
    "unsubscribe.topic_filters": ("MQTT-3.10.3-1",),
}
TOPICS = {
    "publish.topic_name",
    "publish.properties.response_topic",
    "connect.will.will_topic",
    "connect.will.properties.response_topic",
    "subscribe.subscriptions.topic_filter",
    "unsubscribe.topic_filters",
}
"""Fields that are Topic Names or Topic Filters (5.0 4.7.3)."""
_REPEATED = {
    PacketType.PUBACK: "ACKS",
    PacketType.PUBREC: "ACKS",
    PacketType.PUBREL: "ACKS",
    PacketType.PUBCOMP: "ACKS",
}
REASON_CODES_5 = {
    PacketType.CONNACK: ("MQTT-3.2.2-8",),
    PacketType.PUBACK: ("MQTT-3.4.2-1",),
    PacketType.PUBREC: ("MQTT-3.5.2-1",),
    PacketType.PUBREL: ("MQTT-3.6.2-1",),
    PacketType.PUBCOMP: ("MQTT-3.7.2-1",),
    PacketType.SUBACK: ("MQTT-3.9.3-2",),
    PacketType.UNSUBACK: ("MQTT-3.11.3-2",),
    PacketType.DISCONNECT: ("MQTT-3.14.2-1",),
    PacketType.AUTH: ("MQTT-3.15.2-1",),
}
"""Statements that bind reason codes to the table of the packet."""
REASON_CODES_3_1_1 = {PacketType.CONNACK: ("MQTT-3.2.2-6",), PacketType.SUBACK: ("MQTT-3.9.3-2",)}
REASON_CODES_3_1 = {PacketType.CONNACK: ("V31-CONNACK-codes",), PacketType.SUBACK: ("V31-SUBACK-codes",)}

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
        """Whether it is one of the will fields of a CONNECT."""
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
    """Every field of every packet type."""
    return tuple(one for kind in PacketType for one in fields_of(kind))


def blocks() -> tuple[tuple[PacketType, int, str], ...]:
    """Every property block: packet type, owner in table 2-4, and prefix of its paths."""
    return tuple(
        (one.packet_type, one.owner, one.path.removesuffix("properties"))
        for one in fields.all_fields()
        if one.value_type is Properties
    )


def told(field: Field, version: str, *identifiers: str) -> tuple[str, ...]:
    """Statements with their version, where the field exists in it."""
    known = version in {one.text for one in field.versions}
    return tuple(f"{version} {one}" for one in identifiers) if known else ()


def ill_formed(field: Field) -> tuple[str, ...]:
    """A string that is not UTF-8 (5.0 1.5.4, 3.1.1 1.5.3)."""
    five = ["MQTT-1.5.4-1", *_STRING_5.get(field.name, ())]
    if field.path.endswith("user_property") and not field.in_will:
        five.append("MQTT-1.5.7-1")
    return (
        *told(field, "3.1", "V31-PUBLISH-utf"),
        *told(field, "3.1.1", "MQTT-1.5.3-1", *_STRING_3_1_1.get(field.name, ())),
        *told(field, "5.0", *five),
    )


def null_character(field: Field) -> tuple[str, ...]:
    """A string with U+0000 (5.0 1.5.4, 4.7.3)."""
    if field.name not in TOPICS:
        return (*told(field, "3.1.1", "MQTT-1.5.3-2"), *told(field, "5.0", "MQTT-1.5.4-2"))
    return (
        *told(field, "3.1", "V31-TOPIC-null"),
        *told(field, "3.1.1", "MQTT-1.5.3-2", "MQTT-4.7.3-2"),
        *told(field, "5.0", "MQTT-1.5.4-2", "MQTT-4.7.3-2"),
    )


def control_character(field: Field) -> tuple[str, ...]:
    """A string with a control character, which it should not have."""
    return (
        *told(field, "3.1.1", "V311-STRING-control-characters"),
        *told(field, "5.0", "V5-STRING-control-characters"),
    )


def non_character(field: Field) -> tuple[str, ...]:
    """A string with a code point that is no character, which it should not have."""
    return (*told(field, "3.1.1", "V311-STRING-control-characters"), *told(field, "5.0", "V5-STRING-non-characters"))


def overrun(field: Field) -> tuple[str, ...]:
    """A field that reaches past its packet, a property past its block (5.0 2.1.4, 2.2.2.2)."""
    five = "V5-LENGTH-overrun" if field.row is None else "V5-PROP-wrong-type"
    return (*told(field, "3.1.1", "V311-LENGTH-overrun"), *told(field, "5.0", five))


def repeated_property(packet_type: PacketType, in_will: bool) -> str:
    """The statement that lists what must not repeat in a packet."""
    where = "WILL" if in_will else _REPEATED.get(packet_type, packet_type.name)
    return f"5.0 V5-PROP-repeat-{where}"
