"""Numbers and names of the specifications: versions, packet types, reason codes, reasons for Malformed.

Sections: packet types 5.0 2.1.2, reason codes 5.0 2.4 and the table of each packet, 3.1.1 tables 3.1 and 3.9.3.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class ProtocolVersion(IntEnum):
    """A version of MQTT; the value is the protocol level of its CONNECT."""

    V3_1 = 3
    V3_1_1 = 4
    V5 = 5

    @property
    def text(self) -> str:
        """The version as people write it: ``3.1``, ``3.1.1``, ``5.0``."""
        return _VERSION_TEXT[self.value]

    @classmethod
    def from_text(cls, text: str) -> ProtocolVersion:
        """The version for ``3.1``, ``3.1.1``, ``5.0`` or ``5``; ValueError for anything else."""
        version = _VERSIONS.get(text)
        if version is None:
            raise ValueError(f"{text!r} is not an MQTT version (3.1, 3.1.1 or 5.0)")
        return version


V3_1, V3_1_1, V5 = ProtocolVersion
_VERSION_TEXT: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}
_VERSIONS: Final = {"3.1": V3_1, "3.1.1": V3_1_1, "5.0": V5, "5": V5}


class PacketType(IntEnum):
    """MQTT Control Packet type, bits 7-4 of byte 1.  0 is reserved in every version, 15 before 5.0."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


RESERVED: Final = 0
"""The packet type that is reserved in every version."""


def type_name(number: int) -> str:
    """Name of a packet type as used in JSON: ``publish``; ``reserved`` for type 0."""
    return PacketType(number).name.lower() if 1 <= number <= 15 else "reserved"


class Direction(StrEnum):
    """Who sent a packet, in the words of the specification."""

    CLIENT_TO_SERVER = "client_to_server"
    SERVER_TO_CLIENT = "server_to_client"

    @property
    def opposite(self) -> Direction:
        return Direction.SERVER_TO_CLIENT if self is Direction.CLIENT_TO_SERVER else Direction.CLIENT_TO_SERVER


class MalformedReason(StrEnum):
    """Why bytes are not a well-formed packet.  Every member is explained by exactly one rule of the linter."""

    TRUNCATED = "truncated"
    """The packet is incomplete: the input ended before its Remaining Length was used up."""
    PACKET_TYPE_RESERVED = "packet_type_reserved"
    """Type 0, or AUTH before 5.0."""
    FIXED_HEADER_FLAGS = "fixed_header_flags"
    """Reserved flag bits of the fixed header differ from the table (5.0 2.1.3)."""
    REMAINING_LENGTH_TOO_LONG = "remaining_length_too_long"
    """A fourth length byte asks for a fifth; framing is lost."""
    REMAINING_LENGTH_WRONG = "remaining_length_wrong"
    """The packet type has another length in this version."""
    QOS_INVALID = "qos_invalid"
    """Both QoS bits of a PUBLISH are set."""
    FIELD_OVERRUN = "field_overrun"
    """A field reaches past the end of the packet."""
    TRAILING_BYTES = "trailing_bytes"
    """Bytes are left over after the last field."""
    UTF8_ILL_FORMED = "utf8_ill_formed"
    UTF8_NULL_CHARACTER = "utf8_null_character"
    VARIABLE_BYTE_INTEGER_TOO_LONG = "variable_byte_integer_too_long"
    VARIABLE_BYTE_INTEGER_NOT_MINIMAL = "variable_byte_integer_not_minimal"
    PROPERTY_LENGTH_MISSING = "property_length_missing"
    PROPERTY_LENGTH_OVERRUN = "property_length_overrun"
    """The property block is longer than the packet, or its last property crosses its end."""
    PROPERTY_UNKNOWN = "property_unknown"
    PROPERTY_NOT_ALLOWED = "property_not_allowed"
    REASON_CODE_INVALID = "reason_code_invalid"
    """The reason or return code is not in the table of this packet and version."""
    PROTOCOL_NAME_INVALID = "protocol_name_invalid"
    PROTOCOL_VERSION_UNKNOWN = "protocol_version_unknown"
    CONNECT_FLAGS_RESERVED = "connect_flags_reserved"
    CONNECT_PAYLOAD_MISMATCH = "connect_payload_mismatch"
    """The payload of a CONNECT lacks a field that its flags announce, or has bytes after the announced fields."""
    CLIENT_IDENTIFIER_MISSING = "client_identifier_missing"
    WILL_QOS_INVALID = "will_qos_invalid"
    WILL_FLAGS_WITHOUT_WILL = "will_flags_without_will"
    CONNACK_FLAGS_RESERVED = "connack_flags_reserved"
    SUBSCRIPTION_OPTIONS_RESERVED = "subscription_options_reserved"
    SUBSCRIPTION_QOS_INVALID = "subscription_qos_invalid"


REASON_CODES: Final[dict[int, str]] = {
    0x00: "Success",
    0x01: "Granted QoS 1",
    0x02: "Granted QoS 2",
    0x04: "Disconnect with Will Message",
    0x10: "No matching subscribers",
    0x11: "No subscription existed",
    0x18: "Continue authentication",
    0x19: "Re-authenticate",
    0x80: "Unspecified error",
    0x81: "Malformed Packet",
    0x82: "Protocol Error",
    0x83: "Implementation specific error",
    0x84: "Unsupported Protocol Version",
    0x85: "Client Identifier not valid",
    0x86: "Bad User Name or Password",
    0x87: "Not authorized",
    0x88: "Server unavailable",
    0x89: "Server busy",
    0x8A: "Banned",
    0x8B: "Server shutting down",
    0x8C: "Bad authentication method",
    0x8D: "Keep Alive timeout",
    0x8E: "Session taken over",
    0x8F: "Topic Filter invalid",
    0x90: "Topic Name invalid",
    0x91: "Packet Identifier in use",
    0x92: "Packet Identifier not found",
    0x93: "Receive Maximum exceeded",
    0x94: "Topic Alias invalid",
    0x95: "Packet too large",
    0x96: "Message rate too high",
    0x97: "Quota exceeded",
    0x98: "Administrative action",
    0x99: "Payload format invalid",
    0x9A: "Retain not supported",
    0x9B: "QoS not supported",
    0x9C: "Use another server",
    0x9D: "Server moved",
    0x9E: "Shared Subscriptions not supported",
    0x9F: "Connection rate exceeded",
    0xA0: "Maximum connect time",
    0xA1: "Subscription Identifiers not supported",
    0xA2: "Wildcard Subscriptions not supported",
}
"""Reason codes of 5.0 (table 2-6)."""

_PUBLISH_ACKNOWLEDGEMENT: Final = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
_RELEASE: Final = {0x00, 0x92}

# 0x8C is in table 2-6 for DISCONNECT but not in table 3-10: the decoder leaves the stricter reading to a lint rule.
_ALLOWED_5: Final[dict[int, set[int]]] = {
    PacketType.CONNACK: {0x00} | set(range(0x80, 0x8B)) | {0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    PacketType.PUBACK: _PUBLISH_ACKNOWLEDGEMENT,
    PacketType.PUBREC: _PUBLISH_ACKNOWLEDGEMENT,
    PacketType.PUBREL: _RELEASE,
    PacketType.PUBCOMP: _RELEASE,
    PacketType.SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    PacketType.UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    PacketType.DISCONNECT: {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B}
    | set(range(0x8C, 0x91))
    | set(range(0x93, 0xA3)),
    PacketType.AUTH: {0x00, 0x18, 0x19},
}
_ALLOWED_3_1_1: Final[dict[int, set[int]]] = {
    PacketType.CONNACK: set(range(6)),
    PacketType.SUBACK: {0, 1, 2, 0x80},
}
_ALLOWED_3_1: Final[dict[int, set[int]]] = {
    PacketType.CONNACK: set(range(6)),
    PacketType.SUBACK: {0, 1, 2},
}

RETURN_CODES: Final[dict[int, str]] = {
    0: "Connection Accepted",
    1: "Connection Refused, unacceptable protocol version",
    2: "Connection Refused, identifier rejected",
    3: "Connection Refused, Server unavailable",
    4: "Connection Refused, bad user name or password",
    5: "Connection Refused, not authorized",
}
"""Connect Return codes of 3.1 and 3.1.1 (3.1.1 table 3.1)."""

_SUBACK_CODES: Final = {0: "Granted QoS 0", 1: "Granted QoS 1", 2: "Granted QoS 2", 0x80: "Failure"}


_ALLOWED: Final[dict[int, dict[int, set[int]]]] = {
    ProtocolVersion.V3_1: _ALLOWED_3_1,
    ProtocolVersion.V3_1_1: _ALLOWED_3_1_1,
    ProtocolVersion.V5: _ALLOWED_5,
}


def allowed_reason_codes(packet_type: int, version: ProtocolVersion) -> frozenset[int]:
    """Reason or return codes in the table of this packet type and version; empty when it has no table."""
    table = _ALLOWED[version]
    return frozenset(table.get(packet_type, ()))


def reason_name(packet_type: int, code: int, version: ProtocolVersion) -> str:
    """Name of a reason or return code in the table of this packet type; ``Unknown`` for a code outside the table."""
    if version < ProtocolVersion.V5:
        names = RETURN_CODES if packet_type == PacketType.CONNACK else _SUBACK_CODES
        return names.get(code, "Unknown")
    if code == 0 and packet_type == PacketType.DISCONNECT:
        return "Normal disconnection"
    if code == 0 and packet_type == PacketType.SUBACK:
        return "Granted QoS 0"
    return REASON_CODES.get(code, "Unknown")
