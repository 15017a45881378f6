"""Decoders of PUBLISH and its acknowledgements, written out: they are most of all traffic.

They give what `declare.plan` makes of the declarations, and leave to it whatever is not plain; a test holds both equal.
"""

from __future__ import annotations

from collections.abc import Callable

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, ControlPacket, plan, qos_fault
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.mqtt.properties import EMPTY, reader
from mqttscope.mqtt.wire import read_u16, read_utf8

Decoder = Callable[[bytes, int], ControlPacket]

_new = object.__new__


def decoder(kind: int, version: ProtocolVersion) -> Decoder:
    """The decoder of a packet type in a version, written out or planned: ``(raw, start of the body) -> packet``."""
    if kind == PacketType.PUBLISH:
        return _publish(version)
    cls = PACKETS[kind]
    if cls is Puback or cls is Pubrec or cls is Pubrel or cls is Pubcomp:
        return _acknowledgement(cls, version)
    return plan(cls, version)


def _publish(version: ProtocolVersion) -> Decoder:
    five = version == ProtocolVersion.V5
    read_block = reader(PacketType.PUBLISH)

    def decode(raw: bytes, position: int) -> ControlPacket:
        flags = raw[0]
        qos = flags >> 1 & 3
        if qos == 3:
            raise qos_fault()
        end = len(raw)
        start = position + 2
        after = start + (raw[position] << 8 | raw[position + 1]) if start <= end else end + 1
        try:
            topic_name = raw[start:after].decode()
        except UnicodeDecodeError:
            topic_name = "\0"
        if after > end or "\0" in topic_name:
            topic_name, after = read_utf8(raw, position, end)  # which says what is wrong
        packet_identifier = None
        if qos:
            packet_identifier, after = read_u16(raw, after, end)
        properties = None
        if five:
            if raw[after : after + 1] == b"\0":
                properties = EMPTY
                after += 1
            else:
                properties, after = read_block(raw, after, end)
        made = _new(Publish)
        made.dup = flags & 8 != 0
        made.qos = qos
        made.retain = flags & 1 != 0
        made.topic_name = topic_name
        made.packet_identifier = packet_identifier
        made.properties = properties
        made.payload = raw[after:]
        made.raw = raw
        made.header_flags = None
        made.missing = 0
        return made

    return decode


def _acknowledgement(cls: type[Puback | Pubrec | Pubrel | Pubcomp], version: ProtocolVersion) -> Decoder:
    planned = plan(cls, version)
    first = cls.packet_type << 4 | cls.fixed_flags

    def decode(raw: bytes, position: int) -> ControlPacket:
        if len(raw) != 4 or position != 2 or raw[0] != first:
            return planned(raw, position)
        made = _new(cls)
        made.packet_identifier = raw[2] << 8 | raw[3]
        made.reason_code = None
        made.properties = None
        made.raw = raw
        made.header_flags = None
        made.missing = 0
        return made

    return decode
