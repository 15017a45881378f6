"""Property blocks: table 2-4 written down a second time, order, repetition, and blocks made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, PacketType, Properties, Publish, decode, encode, properties
from mqttscope.mqtt.properties import (
    BY_NAME,
    LISTS,
    PROPERTIES,
    WILL,
    property_default,
    property_name,
    write_properties,
)
from mqttscope.mqtt.wire import LayoutFault
from tests.each import each
from tests.mqtt.case import V5
from tests.mqtt.cases import CARRIERS, SAMPLES, carrier, carrier_name
from tests.mqtt.checks import assert_sound
from tests.mqtt.octets import block

# identifier, name, type, packets as in table 2-4: C CONNECT, c CONNACK, P PUBLISH, W will, a the four
# acknowledgements, S SUBSCRIBE, s SUBACK, U UNSUBSCRIBE, u UNSUBACK, D DISCONNECT, A AUTH.
TABLE_2_4 = """
01 payload_format_indicator           Byte                  PW
02 message_expiry_interval            Four_Byte_Integer     PW
03 content_type                       UTF-8_Encoded_String  PW
08 response_topic                     UTF-8_Encoded_String  PW
09 correlation_data                   Binary_Data           PW
0b subscription_identifier            Variable_Byte_Integer PS
11 session_expiry_interval            Four_Byte_Integer     CcD
12 assigned_client_identifier         UTF-8_Encoded_String  c
13 server_keep_alive                  Two_Byte_Integer      c
15 authentication_method              UTF-8_Encoded_String  CcA
16 authentication_data                Binary_Data           CcA
17 request_problem_information        Byte                  C
18 will_delay_interval                Four_Byte_Integer     W
19 request_response_information       Byte                  C
1a response_information               UTF-8_Encoded_String  c
1c server_reference                   UTF-8_Encoded_String  cD
1f reason_string                      UTF-8_Encoded_String  casuDA
21 receive_maximum                    Two_Byte_Integer      Cc
22 topic_alias_maximum                Two_Byte_Integer      Cc
23 topic_alias                        Two_Byte_Integer      P
24 maximum_qos                        Byte                  c
25 retain_available                   Byte                  c
26 user_property                      UTF-8_String_Pair     CcPWaSsUuDA
27 maximum_packet_size                Four_Byte_Integer     Cc
28 wildcard_subscription_available    Byte                  c
29 subscription_identifier_available  Byte                  c
2a shared_subscription_available      Byte                  c
"""
LETTERS = {
    "C": (1,), "c": (2,), "P": (3,), "W": (WILL,), "a": (4, 5, 6, 7), "S": (8,), "s": (9,), "U": (10,), "u": (11,),
    "D": (14,), "A": (15,),
}  # fmt: skip


def test_the_table_is_table_2_4() -> None:
    rows = [line.split() for line in TABLE_2_4.split("\n") if line]

    assert [(f"{row.identifier:02x}", row.name, row.wire.name.replace(" ", "_")) for row in PROPERTIES] == [
        (number, name, kind) for number, name, kind, _ in rows
    ]
    assert len(PROPERTIES) == 27
    for row, (_, _, _, letters) in zip(PROPERTIES, rows, strict=True):
        assert sorted(row.packets) == sorted(number for letter in letters for number in LETTERS[letter])


@pytest.mark.parametrize("owner", CARRIERS, ids=carrier_name)
def test_a_packet_carries_all_its_properties_at_once_in_any_order_and_refuses_the_others(owner: int) -> None:
    allowed = [row.identifier for row in PROPERTIES if owner in row.packets]
    for order in (allowed, allowed[::-1], allowed * 2):
        items = Properties.of([(number, SAMPLES[number][0]) for number in order])
        packet, raw = carrier(owner, items, block(*(bytes([number]) + SAMPLES[number][1] for number in order)))
        assert assert_sound(raw, V5) == packet
        assert encode(packet, V5) == raw
    for row in PROPERTIES:
        value, written = SAMPLES[row.identifier]
        if owner not in row.packets:
            packet, raw = carrier(
                owner, Properties.of([(row.identifier, value)]), block(bytes([row.identifier]) + written)
            )
            actual_packet = assert_sound(raw, V5)
            assert isinstance(actual_packet, Malformed)
            assert actual_packet.reason is MalformedReason.PROPERTY_NOT_ALLOWED
            assert actual_packet.packet == packet
            assert actual_packet.complete


@each("number", sorted(SAMPLES), ids=property_name)
def test_a_property_that_is_cut_by_the_end_of_its_block_is_named(number: int) -> None:
    owner = next(row for row in PROPERTIES if row.identifier == number).packets[0]
    raw_value = bytes([number]) + SAMPLES[number][1]
    for size in range(1, len(raw_value)):
        _, raw = carrier(owner, Properties(), block(raw_value[:size]))
        packet = assert_sound(raw, V5)
        assert isinstance(packet, Malformed)
        assert packet.reason is MalformedReason.PROPERTY_LENGTH_OVERRUN
        assert packet.field.endswith(property_name(number))


def test_blocks_are_kept_up_to_a_limit_and_only_where_nothing_is_wrong_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(properties, "MAX_CACHED_BLOCKS", 3)
    monkeypatch.setattr(properties, "MAX_CACHED_BLOCK_BYTES", 8)
    read = properties.reader(PacketType.PUBLISH)
    short = [bytes((3, 0x23, 0, alias)) for alias in range(5)]
    assert all(read(raw, 0, 4)[0] is read(raw, 0, 4)[0] for raw in short)
    assert read(short[4], 0, 4)[0].topic_alias == 4
    first = read(short[0], 0, 4)[0]
    for raw in short[1:]:
        read(raw, 0, 4)
    assert read(short[0], 0, 4)[0] is not first
    long = bytes((12, 0x03, 0, 9)) + b"text/json"
    assert read(long, 0, len(long))[0] is not read(long, 0, len(long))[0]
    wrong = bytes((3, 0x24, 0, 1))  # Maximum QoS is none of a PUBLISH
    for _ in range(2):
        with pytest.raises(LayoutFault):
            read(wrong, 0, 4)


def test_duplicates_keep_number_and_order() -> None:
    raw = bytes.fromhex("301a 000174 15 260001610001312600016100013226000162000133 78")
    packet = decode(raw, V5)

    assert isinstance(packet, Publish)
    assert packet.properties is not None
    assert packet.properties.user_property == [("a", "1"), ("a", "2"), ("b", "3")]
    assert encode(packet, V5) == raw


@pytest.mark.parametrize("size", [127, 128, 16_384])
def test_a_block_longer_than_one_length_byte_can_say(size: int) -> None:
    text = "x" * (size - 5)
    packet = Publish(topic_name="t", properties=Properties(user_property=[("", text)]), payload=b"p")
    raw = encode(packet, V5)

    assert block(b"\x26\0\0" + (size - 5).to_bytes(2, "big") + text.encode()) in raw
    assert assert_sound(raw, V5) == packet


class TestBlocks:
    def test_attributes_give_the_first_value_or_none_and_lists_are_always_lists(self) -> None:
        some = Properties.of([(0x23, 1), (0x23, 2), (0x0B, 5)])

        assert some.topic_alias == 1
        assert some.all(0x23) == [1, 2]
        assert some.content_type is None
        assert some.subscription_identifier == [5]
        assert some.user_property == []
        assert set(BY_NAME) >= LISTS

    def test_every_property_has_an_attribute(self) -> None:
        for row in PROPERTIES:
            value: Any = SAMPLES[row.identifier][0]
            new_properties = Properties(**{row.name: value})
            assert getattr(new_properties, row.name) == ([value] if row.name in LISTS else value)

    def test_zero_is_there(self) -> None:
        assert Properties(message_expiry_interval=0).message_expiry_interval == 0
        assert Properties(message_expiry_interval=0) != Properties()

    def test_keywords_keep_their_order_and_take_lists(self) -> None:
        new_properties = Properties(user_property=[["a", "b"], ("c", "d")], topic_alias=1, subscription_identifier=7)

        assert new_properties.items == ((0x26, ("a", "b")), (0x26, ("c", "d")), (0x23, 1), (0x0B, 7))

    def test_an_unknown_name_is_misuse(self) -> None:
        with pytest.raises(TypeError, match="no property 'topik_alias'"):
            Properties(topik_alias=1)

    def test_blocks_are_values(self) -> None:
        single_properties, other = Properties(topic_alias=1), Properties.of([(0x23, 1)])

        assert single_properties == other
        assert hash(single_properties) == hash(other)
        assert single_properties != "topic_alias"
        assert (len(single_properties), bool(single_properties), bool(Properties())) == (1, True, False)
        assert repr(Properties.of([(0x23, 1), (0x7E, b"x")])) == (
            "Properties.of([('topic_alias', 1), ('unknown_0x7e', b'x')])"
        )

    def test_values_of_another_type_are_written_as_they_are(self) -> None:
        assert write_properties(Properties.of([(0x23, b"\x01")])) == b"\x02\x23\x01"
        assert write_properties(Properties.of([(0x80, b"z")])) == b"\x03\x80\x01z"
        assert write_properties(None) == b"\0"


def test_only_packets_with_a_property_block_are_in_the_table() -> None:
    assert {number for row in PROPERTIES for number in row.packets} == set(CARRIERS)
    assert set(PacketType) - set(CARRIERS) == {PacketType.PINGREQ, PacketType.PINGRESP}


@pytest.mark.parametrize(
    ("name", "owner", "value"),
    [
        ("receive_maximum", PacketType.CONNECT, 65_535),
        ("maximum_qos", PacketType.CONNACK, 2),
        ("request_problem_information", PacketType.CONNECT, 1),
        ("will_delay_interval", WILL, 0),
        ("session_expiry_interval", PacketType.CONNECT, 0),
        ("session_expiry_interval", PacketType.CONNACK, None),
        ("session_expiry_interval", PacketType.DISCONNECT, None),
        ("server_keep_alive", PacketType.CONNACK, None),
        ("content_type", PacketType.PUBLISH, None),
    ],
)
def test_what_leaving_out_a_property_means(name: str, owner: int, value: int | None) -> None:
    assert property_default(BY_NAME[name].identifier, owner) == value


def test_unknown_properties_mean_nothing_when_they_are_left_out() -> None:
    assert property_default(0x7E, PacketType.CONNECT) is None
