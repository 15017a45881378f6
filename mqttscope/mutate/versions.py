"""Packets of another version than the connection's: what a client that mixes them up sends.

A packet of 3.1 or 3.1.1 that is laid out as in 5.0 has properties where none are read.  The other way round it has
none where some are read, which is what ``properties:missing`` does.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.mutation import (
    ANY,
    MALFORMED,
    Kind,
    Mutation,
    PacketChange,
    Target,
    senders_of,
)

V3_1, V3_1_1, V5 = ProtocolVersion
_FIXED = ("3.1.1 V311-LENGTH-fixed",)
_BROKEN: dict[PacketType, tuple[str, ...]] = {
    PacketType.CONNACK: _FIXED,
    PacketType.PUBACK: _FIXED,
    PacketType.PUBREC: _FIXED,
    PacketType.PUBREL: _FIXED,
    PacketType.PUBCOMP: _FIXED,
    PacketType.UNSUBACK: _FIXED,
    PacketType.DISCONNECT: _FIXED,
    # The Property Length is read as the first of the return codes.
    PacketType.SUBACK: ("3.1.1 MQTT-3.8.4-5",),
}
"""What the layout of 5.0 breaks in 3.1.1; of the others it depends on their bytes."""
_SAME_IN_5 = (PacketType.CONNECT, PacketType.PINGREQ, PacketType.PINGRESP, PacketType.AUTH)
"""Packets that say their version themselves, have no fields, or do not exist before."""


def version_mutations() -> Iterator[Mutation]:
    """Each packet in the layout of 5.0, and each CONNECT as another version has it."""
    for kind in PacketType:
        if kind in _SAME_IN_5:
            continue
        statements = _BROKEN.get(kind, ())
        yield Mutation(
            f"{kind.name.lower()}:layout-of-5.0",
            Kind.PACKET,
            f"{kind.name} is laid out as in MQTT 5.0, with a Property Length.",
            change_packet=_as_in_5,
            packet_type=kind,
            versions=(V3_1, V3_1_1),
            senders=senders_of(kind) if kind != PacketType.DISCONNECT else (CLIENT,),
            statements=statements,
            reaction=MALFORMED if statements == _FIXED else ANY,
        )
    for version in ProtocolVersion:
        yield Mutation(
            f"connect:of-{version.text}",
            Kind.PACKET,
            f"CONNECT is one of MQTT {version.text} from first to last, and what follows it is not.",
            change_packet=_connect(version),
            packet_type=PacketType.CONNECT,
            field="protocol_level",
            versions=tuple(one for one in ProtocolVersion if one != version),
        )


def _as_in_5(target: Target) -> bytes:
    packet = target.packet
    packet.properties = Properties()
    if getattr(packet, "reason_code", 0) is None:
        packet.reason_code = 0
    if packet.packet_type == PacketType.UNSUBACK:
        packet.reason_codes = [0]
    return encode(packet, V5)


def _connect(version: ProtocolVersion) -> PacketChange:
    def change(target: Target) -> bytes:
        packet = target.packet
        five = version == V5
        packet.protocol_name = "MQIsdp" if version == V3_1 else "MQTT"
        packet.protocol_level = version.value
        packet.properties = Properties() if five else None
        if packet.will is not None:
            packet.will.properties = Properties() if five else None
        if packet.user_name is None and not five:
            # Before 5.0 there is no password without a user name (3.1.1 MQTT-3.1.2-22).
            packet.password = None
        return encode(packet, version)

    return change


__all__ = ["version_mutations"]
