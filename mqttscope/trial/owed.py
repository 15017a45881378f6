"""Which answers a broker owes to which packet (5.0 3.1 to 3.12)."""

from __future__ import annotations

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed

ANSWERS = {
    PacketType.CONNACK,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBCOMP,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
}
"""What a broker owes: everything else may stay away."""


def owed(packet: ControlPacket | Malformed) -> frozenset[PacketType]:
    """Types of the answers that a packet asks for; none for one that is malformed."""
    if isinstance(packet, packets.Connect):
        return frozenset({PacketType.CONNACK})
    if isinstance(packet, packets.Publish):
        by_qos = {1: {PacketType.PUBACK}, 2: {PacketType.PUBREC, PacketType.PUBCOMP}}
        return frozenset(by_qos.get(packet.qos, ()))
    by_type = {
        PacketType.SUBSCRIBE: PacketType.SUBACK,
        PacketType.UNSUBSCRIBE: PacketType.UNSUBACK,
        PacketType.PINGREQ: PacketType.PINGRESP,
        PacketType.PUBREL: PacketType.PUBCOMP,
    }
    found = None if isinstance(packet, Malformed) else by_type.get(packet.packet_type)
    return frozenset() if found is None else frozenset({found})
