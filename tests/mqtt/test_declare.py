"""One declaration, many products: plans by version, encoding of what is only partly there."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, Malformed, PacketType, Puback, Publish, Subscribe, decode, encode
from mqttscope.mqtt.declare import PACKETS, ControlPacket, frame_packet, plan
from mqttscope.mqtt.wire import Fault
from tests.mqtt.case import ALL, V3_1, V3_1_1, V5, parse


def test_a_declaration_names_its_fields_in_the_order_of_the_wire() -> None:
    assert [row.name for row in Publish.declaration] == [
        "dup",
        "qos",
        "retain",
        "topic_name",
        "packet_identifier",
        "properties",
        "payload",
    ]
    assert [row.kind for row in Connect.declaration if row.kind != "wire"] == ["computed"]


def test_fields_that_came_with_5_0() -> None:
    new = {
        f"{kind.name} {row.name}"
        for kind, cls in ((cls.packet_type, cls) for cls in PACKETS.values())
        for row in cls.declaration
        if not row.exists_in(V3_1_1)
    }
    blocks = {f"{kind.name} properties" for kind in PacketType if kind.name not in ("PINGREQ", "PINGRESP")}
    codes = {f"{name} reason_code" for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "DISCONNECT", "AUTH")}

    assert new == blocks | codes | {"UNSUBACK reason_codes"}
    for cls in PACKETS.values():
        assert all(row.exists_in(V5) and row.exists_in(V3_1) == row.exists_in(V3_1_1) for row in cls.declaration)


def test_every_field_has_a_type_in_every_version_it_exists_in() -> None:
    for version in ALL:
        for cls in PACKETS.values():
            for row in cls.declaration:
                if row.kind == "wire" and row.exists_in(version):
                    assert row.wire_in(version).name


def test_computed_attributes_say_which_byte_holds_them() -> None:
    for cls in PACKETS.values():
        names = [row.name for row in cls.declaration]
        for row in cls.declaration:
            if row.kind == "computed":
                assert cls.byte_of[row.name] in names


def test_a_plan_raises_at_the_first_fault_and_keeps_the_bytes_otherwise() -> None:
    read = plan(Puback, V3_1_1)

    assert read(parse("40 02 00 07"), 2) == Puback(7)
    assert read(parse("40 02 00 07"), 2).raw == parse("40 02 00 07")
    for text in ("40 01 00", "40 03 00 07 00", "41 02 00 07"):
        with pytest.raises(Fault):
            read(parse(text), 2)


def test_flags_of_the_fixed_header_are_kept_only_where_they_say_something() -> None:
    assert plan(Puback, V3_1)(parse("4f 02 00 07"), 2).header_flags == 15
    assert plan(Puback, V3_1)(parse("40 02 00 07"), 2).header_flags is None
    assert plan(Subscribe, V3_1)(parse("82 02 00 07"), 2).header_flags is None


def test_a_publish_that_is_decoded_again_shares_no_state_with_the_first() -> None:
    raw = parse("32 05 00 01 74 00 01")
    one, other = decode(raw), decode(raw)

    assert one == other
    assert isinstance(one, Publish)
    one.topic_name = "changed"
    assert decode(raw) == other != one


def test_what_is_only_partly_there_is_written_as_far_as_it_goes() -> None:
    found = decode(parse("32 04 00 01 74 00"))

    assert isinstance(found, Malformed)
    assert isinstance(found.packet, Publish)
    assert encode(found.packet) == parse("32 03 00 01 74")
    cut = decode(parse("10 09 00 04 4d 51 54 54 04 02 00"))
    assert isinstance(cut, Malformed)
    assert cut.packet is not None
    assert encode(cut.packet) == parse("10 08 00 04 4d 51 54 54 04 02")


def test_a_frame_takes_the_length_it_is_told() -> None:
    assert frame_packet(3, 0xF2, b"ab") == parse("32 02 61 62")
    assert frame_packet(3, 2, b"ab", 300) == parse("32 ac 02 61 62")


def test_a_packet_without_computed_attributes_has_nothing_to_settle() -> None:
    assert ControlPacket().settle(V5) == []
    assert ControlPacket().prepare(V5) == {}
