"""Fields that can be mutated by data type, and the statements that faults in them break.

A field inside a list is named without its index, as in filters: ``subscribe.subscriptions.topic_filter``.

Statements have the identifiers of the OASIS Standards, or identifiers of this project for sentences without one.  Each
identifier includes the version, because versions use one number for different sentences.
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
"""Data type of a Byte that is a reason or return code, limited to the values of a table."""
BITS = fields.BITS
"""Data type of a Byte with a separate meaning for each bit."""
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
"""Further statements broken when a particular string is not UTF-8."""
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
"""Packets with a fixed length in 3.1.1: a shorter packet breaks a statement about that length."""
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
"""Lowest forbidden value of a property (0: only 0 is forbidden; 2: 2 and all greater values)."""


@dataclass(slots=True, frozen=True)
class MutationField:
    """One field of a packet type that can be mutated."""

    packet_type: PacketType
    path: str
    """Path as in `trace`; in lists, of the first element: ``subscriptions[0].topic_filter``."""
    wire: str
    """Data type."""
    versions: tuple[ProtocolVersion, ...]
    optional: bool = False
    """Whether the packet may end before the field (in some version)."""
    row: Property | None = None
    """Declaration of a property (table 2-4), or ``None``."""

    @property
    def name(self) -> str:
        """Path in the names of mutations, without indexes: ``publish.topic_name``."""
        return f"{self.packet_type.name.lower()}.{self.path.replace('[0]', '')}"

    @property
    def in_will(self) -> bool:
        return self.path.startswith("will.")


@cache
def fields_of(packet_type: PacketType) -> tuple[MutationField, ...]:
    """Every field of a packet type that has its own bytes, and the bytes that contain fields of single bits."""
    known = fields.fields_of(packet_type)
    holders = {field.byte: field.versions for field in reversed(known) if field.byte}
    result = []
    for field in known:
        if field.is_part or field.wire == BITS:
            continue
        wire = REASON_CODE if field.is_reason_code else BITS if field.path in holders else field.wire
        holders.pop(field.path, None)
        result.append(MutationField(packet_type, _first(field.path), wire, field.versions, field.tail > 0, field.row))
    # The remaining byte is not a field: the options of a subscription.
    result += (MutationField(packet_type, _first(byte), BITS, versions) for byte, versions in holders.items())
    return tuple(result)


def _first(path: str) -> str:
    return path.replace("[]", "[0]")


@cache
def all_fields() -> tuple[MutationField, ...]:
    return tuple(field for kind in PacketType for field in fields_of(kind))


def blocks() -> tuple[tuple[PacketType, int, str], ...]:
    """Every property block: packet type, owner in table 2-4, and path prefix."""
    return tuple(
        (field.packet_type, field.owner, field.path.removesuffix("properties"))
        for field in fields.all_fields()
        if field.value_type is Properties
    )


def field_row(
    field: MutationField,
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
    """A mutation of a field, or of a part of its value; ``words`` complete the description."""
    more = {"kind": MutationKind.WIRE, **more}
    sentence = f"{field.name}{part} {words}."
    return row(f"{field.name}{part}:{slug}", sentence, change, statements, reaction, field.versions, **more)


def ill_formed(field: MutationField) -> str:
    """Statements broken by a string that is not UTF-8 (5.0 1.5.4, 3.1.1 1.5.3)."""
    statements = ["3.1 V31-PUBLISH-utf, 3.1.1 MQTT-1.5.3-1, 5.0 MQTT-1.5.4-1"]
    if field.name in _STRINGS:
        statements.append(_STRINGS[field.name])
    if field.path.endswith("user_property") and not field.in_will:
        statements.append("5.0 MQTT-1.5.7-1")
    return ", ".join(statements)


def null_character(field: MutationField) -> str:
    """Statements broken by a string that contains U+0000 (5.0 1.5.4, 4.7.3)."""
    if field.name not in TOPICS:
        return "3.1.1 MQTT-1.5.3-2, 5.0 MQTT-1.5.4-2"
    return "3.1 V31-TOPIC-null, 3.1.1 MQTT-1.5.3-2, 3.1.1 MQTT-4.7.3-2, 5.0 MQTT-1.5.4-2, 5.0 MQTT-4.7.3-2"


CONTROL_CHARACTER = "3.1.1 V311-STRING-control-characters, 5.0 V5-STRING-control-characters"
"""Strings should not contain control characters."""
NON_CHARACTER = "3.1.1 V311-STRING-control-characters, 5.0 V5-STRING-non-characters"
"""Strings should not contain code points that are not characters."""


def overrun(field: MutationField) -> str:
    """Statements broken by a field beyond the end of its packet or property block (5.0 2.1.4, 2.2.2.2)."""
    return f"3.1.1 V311-LENGTH-overrun, 5.0 {'V5-LENGTH-overrun' if field.row is None else 'V5-PROP-wrong-type'}"


def repeated_property(packet_type: PacketType, in_will: bool) -> str:
    """The statement that lists the properties that must not be repeated in a packet."""
    return f"5.0 V5-PROP-repeat-{'WILL' if in_will else 'ACKS' if packet_type in _ACKS else packet_type.name}"
