"""Which answers a broker owes to which packet (5.0 3.1 to 3.12)."""

from __future__ import annotations

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed

V3_1, V3_1_1, V5 = ProtocolVersion
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

ANSWERED_BY = {
    (V3_1, PacketType.CONNACK): "3.1 V31-CONNACK-first",
    (V3_1, PacketType.PUBACK): "3.1 V31-PUBLISH-response",
    (V3_1, PacketType.PUBREC): "3.1 V31-PUBLISH-response",
    (V3_1, PacketType.SUBACK): "3.1 V31-SUBACK-answer",
    (V3_1, PacketType.UNSUBACK): "3.1 V31-UNSUBACK-answer",
    (V3_1, PacketType.PINGRESP): "3.1 V31-PINGREQ-answer",
    (V3_1_1, PacketType.CONNACK): "3.1.1 MQTT-3.1.4-4",
    (V3_1_1, PacketType.PUBACK): "3.1.1 MQTT-4.3.2-2",
    (V3_1_1, PacketType.PUBREC): "3.1.1 MQTT-4.3.3-2",
    (V3_1_1, PacketType.PUBCOMP): "3.1.1 MQTT-4.3.3-2",
    (V3_1_1, PacketType.SUBACK): "3.1.1 MQTT-3.8.4-1",
    (V3_1_1, PacketType.UNSUBACK): "3.1.1 MQTT-3.10.4-4",
    (V3_1_1, PacketType.PINGRESP): "3.1.1 MQTT-3.12.4-1",
    (V5, PacketType.CONNACK): "5.0 MQTT-3.1.4-5",
    (V5, PacketType.PUBACK): "5.0 MQTT-4.3.2-4",
    (V5, PacketType.PUBREC): "5.0 MQTT-4.3.3-8",
    (V5, PacketType.PUBCOMP): "5.0 MQTT-4.3.3-11",
    (V5, PacketType.SUBACK): "5.0 MQTT-3.8.4-1",
    (V5, PacketType.UNSUBACK): "5.0 MQTT-3.10.4-4",
    (V5, PacketType.PINGRESP): "5.0 MQTT-3.12.4-1",
}
"""The statements that demand an answer, by version and the answer's type."""


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
