"""Whether a damaged packet is well formed in the layout of another version: then an encoder took the wrong one."""

from __future__ import annotations

from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Publish

V3_1_1, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5

REFUSAL_OF_3_1_1 = b"\x20\x02\x00\x01"
"""The CONNACK with which a server that knows only 3.1.1 refuses any other protocol level (3.1.1 MQTT-3.1.2-2)."""


def other_layout(found: Malformed, version: ProtocolVersion) -> ProtocolVersion | None:
    """The version in whose layout a damaged packet of ``version`` is well formed, where that can be no accident.

    3.1 and 3.1.1 have one layout, which 3.1.1 stands for.  A CONNECT brings its own version.
    """
    other = V3_1_1 if version == V5 else V5
    if found.packet_type == PacketType.CONNECT or any(
        _says_nothing(fault.reason, fault.field) for fault in found.faults
    ):
        return None
    read = decode(found.raw, other)
    if isinstance(read, Malformed):
        return None
    if isinstance(read, Publish) and other == V3_1_1 and not _lacks_properties(found, read.payload):
        return None
    return other


def _says_nothing(reason: MalformedReason, field: str) -> bool:
    """Faults that 3.1.1 merely does not know, and bytes that are no packet in any version."""
    if reason is MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL:
        return field == "remaining_length"
    return reason in (MalformedReason.TRUNCATED, MalformedReason.REMAINING_LENGTH_TOO_LONG)


def _lacks_properties(found: Malformed, payload: bytes) -> bool:
    """Whether what stands where the properties of a PUBLISH should be is its payload.

    Any bytes can be a payload, so that a broken property block reads well too.  Text cannot be a block: each property
    of a PUBLISH but one has a byte below 0x20 in it.
    """
    if found.reason is MalformedReason.PROPERTY_LENGTH_MISSING:
        return True
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n" for character in text)
