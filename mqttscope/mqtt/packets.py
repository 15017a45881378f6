"""The 15 MQTT Control Packets, declared once each (5.0 chapter 3, 3.1.1 chapter 3, 3.1 chapter 3).

Attribute names come from the specification; JSON, filters and mutation paths use them too.  A field that a packet or a
version does not have is ``None``, which differs from an empty or zero field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mqttscope.mqtt import parts
from mqttscope.mqtt.constants import V3_1, V3_1_1, V5, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, FieldValue, computed, declaration_of, declare, flag, wire
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.wire import BINARY, REST, U8, U16, UTF8, LayoutFault


@declare(PacketType.CONNECT)
@dataclass(slots=True)
class Connect(ControlPacket):
    """CONNECT - connection request.  5.0 section 3.1, 3.1.1 section 3.1."""

    protocol_name: FieldValue[str] = wire(UTF8, default="MQTT")
    protocol_level: FieldValue[int] = wire(U8, default=4)
    connect_flags: int | None = wire(U8, compare=False, repr=False, default=None)
    """The flags byte if it contradicts the other fields; ``None`` when it follows from them."""
    clean_start: FieldValue[bool] = computed(default=True)
    """Clean Start of 5.0, CleanSession of 3.1 and 3.1.1."""
    keep_alive: FieldValue[int] = wire(U16, default=0)
    """Keep Alive in seconds."""
    properties: Properties | None = wire(parts.properties_of(PacketType.CONNECT), since=V5, default=None)
    client_identifier: FieldValue[str] = wire(UTF8, default="")
    will: parts.Will | None = wire(parts.will_in, when="connect_flags&0x04", default=None)
    user_name: str | None = wire(UTF8, when="connect_flags&0x80", tail=V3_1, default=None)
    password: bytes | None = wire(BINARY, when="connect_flags&0x40", tail=V3_1, secret=True, default=None)

    byte_of: ClassVar[dict[str, str]] = {
        "clean_start": "connect_flags",
        "will.will_qos": "connect_flags",
        "will.will_retain": "connect_flags",
    }

    @property
    def version(self) -> ProtocolVersion:
        """The version of the protocol level; for an unknown level, the version with the most similar layout."""
        return version_of_level(self.protocol_level)

    @property
    def bridge(self) -> bool:
        """Bit 7 of the protocol level: the mark of bridges between brokers in 3.1 and 3.1.1."""
        return self.protocol_level in BRIDGE_LEVELS

    def derived_flags(self) -> int:
        """The flags byte as it follows from the other fields (5.0 3.1.2.3)."""
        flags = self.clean_start << 1 | (self.user_name is not None) << 7 | (self.password is not None) << 6
        if self.will is not None:
            flags |= 4 | (self.will.will_qos & 3) << 3 | self.will.will_retain << 5
        return flags

    def prepare(self, version: ProtocolVersion) -> dict[str, Any]:
        """The flags byte, computed unless it was set."""
        return {"connect_flags": self.derived_flags() if self.connect_flags is None else self.connect_flags}

    def settle(self, version: ProtocolVersion) -> list[LayoutFault]:
        """Clean Start and the will's bits from the flags byte; faults of name, level and flags."""
        faults = list(_protocol_faults(self.protocol_name, self.protocol_level))
        flags = self.connect_flags
        if flags is None:
            return faults
        self.clean_start = bool(flags & 2)
        if self.will is not None:
            self.will.will_qos, self.will.will_retain = flags >> 3 & 3, bool(flags & 0x20)
        if self.derived_flags() == flags:
            self.connect_flags = None
        if flags & 0x18 == 0x18:
            faults.append(_flag_fault(MalformedReason.WILL_QOS_INVALID, "both Will QoS bits are set"))
        if version != V3_1:
            if flags & 1:
                faults.append(_flag_fault(MalformedReason.CONNECT_FLAGS_RESERVED, "reserved bit 0 is set"))
            if not flags & 4 and flags & 0x38:
                faults.append(
                    _flag_fault(
                        MalformedReason.WILL_FLAGS_WITHOUT_WILL, "Will QoS or Will Retain is set but the Will Flag is 0"
                    )
                )
        return faults


def _flag_fault(reason: MalformedReason, detail: str) -> LayoutFault:
    return LayoutFault(reason, 0, detail, field="connect_flags")


BRIDGE_BIT: Final = 0x80
LEVELS_3_1_1: Final = (V3_1_1, V3_1_1 | BRIDGE_BIT)
"""Protocol levels of 3.1.1, of clients and of bridges."""
BRIDGE_LEVELS: Final = (V3_1 | BRIDGE_BIT, V3_1_1 | BRIDGE_BIT)
"""Protocol levels of bridges in 3.1 and 3.1.1."""
_KNOWN: Final = {
    ("MQIsdp", V3_1),
    ("MQTT", V3_1_1),
    ("MQTT", V5),
    *((name, level) for name in ("MQIsdp", "MQTT") for level in BRIDGE_LEVELS),
}


def version_of_level(level: int | None) -> ProtocolVersion:
    """The version of a protocol level; 3.1.1 for an unknown level."""
    if level == V5:
        return V5
    return V3_1 if level in (V3_1, BRIDGE_LEVELS[0]) else V3_1_1


MAX_QUOTED_NAME: Final = 5
"""Maximum length of an unknown protocol name that a fault quotes, in characters."""


def _protocol_faults(name: str | None, level: int | None) -> list[LayoutFault]:
    if (name, level) in _KNOWN or name is None:
        return []
    if name not in ("MQTT", "MQIsdp"):
        # A name with a wrong length may contain the rest of the packet, with its password.
        problem = f"is {name!r}" if len(name) <= MAX_QUOTED_NAME else f"has {len(name)} characters"
        detail = f"protocol name {problem}, must be 'MQTT' (or 'MQIsdp' for MQTT 3.1)"
        return [LayoutFault(MalformedReason.PROTOCOL_NAME_INVALID, 0, detail, field="protocol_name")]
    if level is None:
        return []
    detail = f"protocol level {level} with name {name!r} is not a known MQTT version"
    return [LayoutFault(MalformedReason.PROTOCOL_VERSION_UNKNOWN, 0, detail, field="protocol_level")]


@declare(PacketType.CONNACK)
@dataclass(slots=True)
class Connack(ControlPacket):
    """CONNACK - connect acknowledgement.  5.0 section 3.2, 3.1.1 section 3.2."""

    acknowledge_flags: int | None = wire(U8, compare=False, repr=False, default=None)
    """Byte 1 if any of its bits 7-1 is set; ``None`` when it follows from ``session_present``."""
    session_present: bool | None = computed(default=False)
    """``None`` in 3.1, where the whole byte is reserved (it was kept for a topic compression response)."""
    reason_code: FieldValue[int] = wire(parts.reason_of(PacketType.CONNACK), default=0)
    """Connect Reason Code of 5.0, Connect Return code of 3.1 and 3.1.1."""
    properties: Properties | None = wire(parts.properties_of(PacketType.CONNACK), since=V5, default=None)

    byte_of: ClassVar[dict[str, str]] = {"session_present": "acknowledge_flags"}

    def prepare(self, version: ProtocolVersion) -> dict[str, Any]:
        """Byte 1, computed unless it was set."""
        flags = int(bool(self.session_present)) if self.acknowledge_flags is None else self.acknowledge_flags
        return {"acknowledge_flags": flags}

    def settle(self, version: ProtocolVersion) -> list[LayoutFault]:
        """Session Present from byte 1; a fault when reserved bits are set (3.1.1 and 5.0)."""
        flags = self.acknowledge_flags
        if flags is None:
            self.session_present = None
            return []
        if version == V3_1:
            self.session_present = None
            self.acknowledge_flags = flags or None
            return []
        self.session_present = bool(flags & 1)
        if flags < 2:
            self.acknowledge_flags = None
            return []
        detail = f"bits 7-1 of the acknowledge flags 0x{flags:02x} are set"
        return [LayoutFault(MalformedReason.CONNACK_FLAGS_RESERVED, 0, detail, field="acknowledge_flags")]


@declare(PacketType.PUBLISH)
@dataclass(slots=True)
class Publish(ControlPacket):
    """PUBLISH - publish message.  5.0 section 3.3, 3.1.1 section 3.3."""

    dup: FieldValue[bool] = flag(3, default=False)
    qos: FieldValue[int] = flag(1, width=2, default=0)
    retain: FieldValue[bool] = flag(0, default=False)
    topic_name: FieldValue[str] = wire(UTF8, default="")
    packet_identifier: int | None = wire(U16, when="qos", default=None)
    """Message ID of 3.1; only with QoS 1 and 2."""
    properties: Properties | None = wire(parts.properties_of(PacketType.PUBLISH), since=V5, default=None)
    payload: FieldValue[bytes] = wire(REST, default=b"")


@dataclass(slots=True)
class Acknowledgement(ControlPacket):
    """Common base of the four acknowledgements of a PUBLISH."""

    packet_identifier: FieldValue[int] = wire(U16, default=0)
    reason_code: int | None = None
    """``None`` where it was left out, which means 0x00."""
    properties: Properties | None = None


@declare(PacketType.PUBACK)
@dataclass(slots=True)
class Puback(Acknowledgement):
    """PUBACK - QoS 1 acknowledgement.  5.0 section 3.4."""

    reason_code: int | None = wire(parts.reason_of(PacketType.PUBACK), since=V5, tail=V5, default=None)
    properties: Properties | None = wire(parts.properties_of(PacketType.PUBACK), since=V5, tail=V5, default=None)


@declare(PacketType.PUBREC)
@dataclass(slots=True)
class Pubrec(Acknowledgement):
    """PUBREC - QoS 2, part 1: received.  5.0 section 3.5."""

    reason_code: int | None = wire(parts.reason_of(PacketType.PUBREC), since=V5, tail=V5, default=None)
    properties: Properties | None = wire(parts.properties_of(PacketType.PUBREC), since=V5, tail=V5, default=None)


@declare(PacketType.PUBREL, fixed_flags=2)
@dataclass(slots=True)
class Pubrel(Acknowledgement):
    """PUBREL - QoS 2, part 2: release.  5.0 section 3.6.  In 3.1 its flags may carry DUP."""

    reason_code: int | None = wire(parts.reason_of(PacketType.PUBREL), since=V5, tail=V5, default=None)
    properties: Properties | None = wire(parts.properties_of(PacketType.PUBREL), since=V5, tail=V5, default=None)


@declare(PacketType.PUBCOMP)
@dataclass(slots=True)
class Pubcomp(Acknowledgement):
    """PUBCOMP - QoS 2, part 3: complete.  5.0 section 3.7."""

    reason_code: int | None = wire(parts.reason_of(PacketType.PUBCOMP), since=V5, tail=V5, default=None)
    properties: Properties | None = wire(parts.properties_of(PacketType.PUBCOMP), since=V5, tail=V5, default=None)


@declare(PacketType.SUBSCRIBE, fixed_flags=2)
@dataclass(slots=True)
class Subscribe(ControlPacket):
    """SUBSCRIBE - subscribe request.  5.0 section 3.8, 3.1.1 section 3.8.  In 3.1 its flags may carry DUP."""

    packet_identifier: FieldValue[int] = wire(U16, default=0)
    properties: Properties | None = wire(parts.properties_of(PacketType.SUBSCRIBE), since=V5, default=None)
    subscriptions: FieldValue[list[parts.Subscription]] = wire(parts.subscriptions_in, default_factory=list)

    byte_of: ClassVar[dict[str, str]] = {
        f"subscriptions[].{row.name}": "subscriptions[].options"
        for row in declaration_of(parts.Subscription)
        if row.kind == "computed"
    }


@declare(PacketType.SUBACK)
@dataclass(slots=True)
class Suback(ControlPacket):
    """SUBACK - subscribe acknowledgement.  5.0 section 3.9, 3.1.1 section 3.9."""

    packet_identifier: FieldValue[int] = wire(U16, default=0)
    properties: Properties | None = wire(parts.properties_of(PacketType.SUBACK), since=V5, default=None)
    reason_codes: FieldValue[list[int]] = wire(parts.reasons_of(PacketType.SUBACK), default_factory=list)
    """One per Topic Filter: granted QoS or failure."""


@declare(PacketType.UNSUBSCRIBE, fixed_flags=2)
@dataclass(slots=True)
class Unsubscribe(ControlPacket):
    """UNSUBSCRIBE - unsubscribe request.  5.0 section 3.10."""

    packet_identifier: FieldValue[int] = wire(U16, default=0)
    properties: Properties | None = wire(parts.properties_of(PacketType.UNSUBSCRIBE), since=V5, default=None)
    topic_filters: FieldValue[list[str]] = wire(parts.FILTERS, default_factory=list)


@declare(PacketType.UNSUBACK)
@dataclass(slots=True)
class Unsuback(ControlPacket):
    """UNSUBACK - unsubscribe acknowledgement.  5.0 section 3.11."""

    packet_identifier: FieldValue[int] = wire(U16, default=0)
    properties: Properties | None = wire(parts.properties_of(PacketType.UNSUBACK), since=V5, default=None)
    reason_codes: list[int] | None = wire(parts.reasons_of(PacketType.UNSUBACK), since=V5, default=None)
    """One per Topic Filter; ``None`` before 5.0."""


@declare(PacketType.PINGREQ)
@dataclass(slots=True)
class Pingreq(ControlPacket):
    """PINGREQ - ping request.  5.0 section 3.12."""


@declare(PacketType.PINGRESP)
@dataclass(slots=True)
class Pingresp(ControlPacket):
    """PINGRESP - ping response.  5.0 section 3.13."""


@declare(PacketType.DISCONNECT)
@dataclass(slots=True)
class Disconnect(ControlPacket):
    """DISCONNECT - disconnect notification.  5.0 section 3.14; before 5.0 sent by clients only, without a body."""

    reason_code: int | None = wire(parts.reason_of(PacketType.DISCONNECT), since=V5, tail=V5, default=None)
    """``None`` where it was left out, which means 0x00."""
    properties: Properties | None = wire(parts.properties_of(PacketType.DISCONNECT), since=V5, tail=V5, default=None)


@declare(PacketType.AUTH)
@dataclass(slots=True)
class Auth(ControlPacket):
    """AUTH - authentication exchange.  5.0 section 3.15; does not exist before."""

    reason_code: int | None = wire(parts.reason_of(PacketType.AUTH), since=V5, tail=V5, default=None)
    properties: Properties | None = wire(parts.properties_of(PacketType.AUTH), since=V5, tail=V5, default=None)


FIXED_LENGTHS: Final[dict[tuple[int, int], tuple[int, int]]] = {
    **{(kind, version): (0, 0) for kind in (PacketType.PINGREQ, PacketType.PINGRESP) for version in ProtocolVersion},
    **{
        (kind, version): (2, 2)
        for kind in (
            PacketType.CONNACK,
            PacketType.PUBACK,
            PacketType.PUBREC,
            PacketType.PUBREL,
            PacketType.PUBCOMP,
            PacketType.UNSUBACK,
        )
        for version in (V3_1, V3_1_1)
    },
    (PacketType.DISCONNECT, V3_1): (0, 0),
    (PacketType.DISCONNECT, V3_1_1): (0, 0),
    **{
        (kind, V5): (2, 1 << 28)
        for kind in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP, PacketType.CONNACK)
    },
}
"""Lowest and highest Remaining Length by packet type and version, where the specification fixes them."""
