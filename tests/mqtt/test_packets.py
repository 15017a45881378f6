"""The declarations: classes, versions, computed attributes."""

from __future__ import annotations

from mqttscope.mqtt import Connect, PacketType, Puback, decode
from mqttscope.mqtt.declare import PACKETS
from tests.mqtt.case import V3, V3_1, V3_1_1, V5, parse


def test_every_packet_class_is_registered_under_its_type() -> None:
    assert list(PACKETS) == list(PacketType)
    assert all(cls.packet_type == kind and cls.__doc__ for kind, cls in PACKETS.items())


def test_packets_have_no_dict_and_compare_without_their_bytes() -> None:
    packet, other = decode(parse("40 02 00 01"), V3_1_1), Puback(1)

    assert packet == other
    assert not hasattr(other, "__dict__")
    assert decode(parse("4f 02 00 01"), V3_1) != other


def test_a_connect_knows_its_version_and_whether_it_is_a_bridge() -> None:
    assert [Connect(protocol_level=level).version for level in (3, 4, 5, 0x83, 0x84, 9)] == [*V3, V5, *V3, V3_1_1]
    assert [Connect(protocol_level=level).bridge for level in (4, 0x84)] == [False, True]
