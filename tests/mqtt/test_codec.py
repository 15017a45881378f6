"""Single packets: every row of the table decoded, encoded and traced."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import (
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    MalformedReason,
    PacketType,
    Properties,
    ProtocolVersion,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    codec,
    decode,
    encode,
)
from mqttscope.mqtt.codec import decoder, implausible_length, packet_end
from mqttscope.mqtt.declare import PACKETS, plan
from mqttscope.mqtt.wire import LayoutFault
from tests.conftest import THOROUGH
from tests.each import each
from tests.mqtt.case import ALL, V3_1, V3_1_1, V5, Case, parse
from tests.mqtt.case import VERSIONS as VERSION_NAMES
from tests.mqtt.cases import BORDERS, CASES, GENERATED, GOOD, LONG, MALFORMED, ids
from tests.mqtt.checks import assert_malformed, assert_sound
from tests.mqtt.octets import framed, string, varint
from tests.mqtt.strategies import almost
from tests.mqtt.table_malformed import MANY_FAULTS
from tests.tables import cases_of, differing

VERSIONS = list(ProtocolVersion)
WRITTEN = (3, 4, 5, 6, 7)


def outcome(decode: Callable[[bytes, int], ControlPacket], raw: bytes, body: int) -> object:
    """The packet with all its attributes, or where and why it was refused."""
    try:
        packet = decode(raw, body)
    except LayoutFault as fault:
        return fault.reason, fault.offset, fault.detail, fault.field
    names = [*(row.name for row in packet.declaration), "raw", "header_flags", "missing"]
    return type(packet), [(name, type(getattr(packet, name)), getattr(packet, name)) for name in names]


def check(raw: bytes, version: ProtocolVersion) -> None:
    body, _ = packet_end(raw, 0, len(raw))
    if body > 0 and raw[0] >> 4 in WRITTEN:
        kind = raw[0] >> 4
        assert outcome(decoder(kind, version), raw, body) == outcome(plan(PACKETS[kind], version), raw, body)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", WRITTEN)
def test_written_out_decoders_give_what_the_declaration_gives(kind: int, version: ProtocolVersion) -> None:
    tried = 0
    for case in CASES:
        for flags in range(16):
            tried += 1
            check(bytes((kind << 4 | flags,)) + case.raw[1:], version)
    assert tried > 1_000


@pytest.mark.slow
@given(st.sampled_from(VERSIONS).flatmap(lambda version: st.tuples(st.just(version), almost(version))))
@settings(max_examples=2_000 if THOROUGH else 250, deadline=None, derandomize=True)
def test_also_for_damaged_packets(given_bytes: tuple[ProtocolVersion, bytes]) -> None:
    version, raw = given_bytes
    if raw:
        for kind in WRITTEN:
            check(bytes((kind << 4 | raw[0] & 15,)) + raw[1:], version)


R = MalformedReason


def test_the_table_is_not_empty_and_has_every_packet_version_and_reason() -> None:
    assert len({row.id for row in CASES}) == len(CASES) > 400
    kinds = {(row.version, row.raw[0] >> 4) for row in GOOD}

    assert kinds == {(version, kind) for version in ALL for kind in PacketType if kind != 15 or version == 5}
    assert {row.reason for row in MALFORMED} == set(MalformedReason)
    assert len(GENERATED) > 150
    assert len(LONG) == len(BORDERS)


@each("row", GOOD, ids=ids(GOOD))
def test_well_formed_bytes_decode_to_the_packet_and_back(row: Case) -> None:
    packet = assert_sound(row.raw, row.version)

    assert packet == row.packet
    if row.canonical:
        assert row.packet is not None
        assert encode(packet, row.version) == row.raw
        again = decode(encode(row.packet, row.version), row.version)
        assert again == row.packet


@each("row", MALFORMED, ids=ids(MALFORMED))
def test_malformed_bytes_become_a_value_that_names_the_first_fault(row: Case) -> None:
    packet = assert_sound(row.raw, row.version)

    assert isinstance(packet, Malformed)
    assert (packet.reason, packet.field, packet.offset) == (row.reason, row.field, row.offset)


@pytest.mark.parametrize("length", [*BORDERS, 0, 268_435_455])
def test_the_remaining_length_takes_as_many_bytes_as_its_value_needs(length: int) -> None:
    raw = encode(Publish(topic_name=""), remaining_length=length)

    assert raw == b"\x30" + varint(length) + b"\0\0"


def test_the_longest_packet_is_announced_and_not_believed_to_be_there() -> None:
    packet = decode(b"\x30" + varint(268_435_455) + string("t") + b"x")

    assert isinstance(packet, Malformed)
    assert packet.reason is R.TRUNCATED
    assert packet.missing == 268_435_455 - 4
    assert isinstance(packet.packet, Publish)
    assert packet.packet.payload == b"x"


class TestAbsentEmptyAndZero:
    @pytest.mark.parametrize(
        ("text", "user_name", "password"),
        [
            ("100c 00044d515454 04 02 0000 0000", None, None),
            ("100e 00044d515454 04 82 0000 0000 0000", "", None),
            ("1010 00044d515454 04 c2 0000 0000 0000 0000", "", b""),
        ],
        ids=["both absent", "an empty user name", "both empty"],
    )
    def test_credentials(self, text: str, user_name: str | None, password: bytes | None) -> None:
        packet = decode(bytes.fromhex(text))

        assert isinstance(packet, Connect)
        assert (packet.user_name, packet.password) == (user_name, password)

    def test_an_empty_property_block_is_not_an_absent_one(self) -> None:
        absent, empty = decode(bytes.fromhex("40030001 10"), V5), decode(bytes.fromhex("40040001 1000"), V5)

        assert absent == Puback(1, 0x10, None)
        assert empty == Puback(1, 0x10, Properties())
        assert absent != empty

    def test_a_reason_code_that_was_left_out_is_not_success(self) -> None:
        assert decode(b"\xe0\x00", V5) == Disconnect(None)
        assert decode(b"\xe0\x01\x00", V5) == Disconnect(0)
        assert encode(Disconnect(None), V5) == b"\xe0\x00"
        assert encode(Disconnect(0), V5) == b"\xe0\x01\x00"

    def test_fields_of_other_versions_are_none(self) -> None:
        unsuback = decode(b"\xb0\x02\0\x01", V3_1_1)

        assert isinstance(unsuback, Unsuback)
        assert unsuback.properties is None
        assert unsuback.reason_codes is None


class TestTheEncoderObeys:
    def test_qos_3(self) -> None:
        assert encode(Publish(qos=3, topic_name="t", packet_identifier=1), V3_1_1) == parse("36 05 00 01 74 00 01")

    def test_no_identifier_at_qos_1_and_one_at_qos_0(self) -> None:
        assert encode(Publish(qos=1, topic_name="t")) == parse("32 03 00 01 74")
        assert encode(Publish(topic_name="t", packet_identifier=1)) == parse("30 05 00 01 74 00 01")

    @pytest.mark.parametrize(
        ("length", "written"), [(0, "00"), (1, "01"), (200, "c8 01"), (268_435_456, "80 80 80 80 01")]
    )
    def test_a_lying_remaining_length(self, length: int, written: str) -> None:
        assert encode(Puback(1), remaining_length=length) == b"\x40" + parse(written) + b"\0\x01"

    def test_packet_identifier_0(self) -> None:
        assert encode(Puback(0)) == parse("40 02 00 00")

    def test_values_too_large_are_cut_to_their_width(self) -> None:
        assert encode(Puback(0x1FFFF)) == parse("40 02 ff ff")
        assert encode(Connack(reason_code=0x105), V3_1_1) == parse("20 02 00 05")
        assert encode(Connect(protocol_level=5, properties=Properties(maximum_packet_size=1 << 32)), V5)[
            13:18
        ] == parse("27 00 00 00 00")

    def test_a_property_twice_one_that_is_forbidden_and_one_that_nobody_knows(self) -> None:
        block = Properties.of([(0x23, 1), (0x23, 2), (0x13, 30), (0x7E, b"\x01\x02")])
        raw = encode(Publish(topic_name="t", properties=block), V5)

        assert raw == parse("30 10 00 01 74 0c 23 00 01 23 00 02 13 00 1e 7e 01 02")
        packet = decode(raw, V5)
        assert isinstance(packet, Malformed)
        assert [fault.reason for fault in packet.faults] == [R.PROPERTY_NOT_ALLOWED, R.PROPERTY_UNKNOWN]
        assert isinstance(packet.packet, Publish)
        assert packet.packet.properties == block
        assert encode(packet.packet, V5) == raw

    def test_flags_of_the_fixed_header(self) -> None:
        assert encode(Puback(1, header_flags=0xF)) == parse("4f 02 00 01")
        assert encode(Subscribe(1, header_flags=0)) == parse("80 02 00 01")

    def test_connect_and_acknowledge_flags_that_contradict_the_fields(self) -> None:
        assert encode(Connect(connect_flags=0xFF), V3_1_1) == parse("10 0c 00 04 4d 51 54 54 04 ff 00 00 00 00")
        assert encode(Connack(acknowledge_flags=0xFE), V3_1_1) == parse("20 02 fe 00")

    def test_ill_formed_text_is_written_as_the_bytes_it_came_from(self) -> None:
        raw = framed(0x30, string(b"a\xc3\x28"))
        packet = decode(raw)

        assert isinstance(packet, Malformed)
        assert isinstance(packet.packet, Publish)
        assert packet.packet.topic_name == "a\udcc3("
        assert encode(packet.packet) == raw

    def test_a_connect_is_written_in_the_layout_of_its_own_level(self) -> None:
        five = Connect(protocol_level=5, properties=Properties(receive_maximum=1))

        assert encode(five, V3_1) == encode(five, V5)
        assert b"\x03\x21\0\x01" in encode(five, V3_1)

    def test_properties_that_are_missing_are_written_empty_where_the_layout_needs_them(self) -> None:
        assert encode(Publish(topic_name="t"), V5) == parse("30 04 00 01 74 00")
        assert encode(Puback(1, None, Properties()), V5) == parse("40 04 00 01 00 00")
        assert encode(Suback(1, None, [0]), V5) == parse("90 04 00 01 00 00")
        assert encode(Puback(1, 0x10, Properties(reason_string="x")), V3_1_1) == parse("40 02 00 01")

    def test_an_unmutated_packet_is_replayed_from_its_raw_bytes_not_from_the_encoder(self) -> None:
        raw = parse("c0 80 00")
        packet = decode(raw, V3_1_1)

        assert not isinstance(packet, Malformed)
        assert packet.raw == raw
        assert encode(packet, V3_1_1) == parse("c0 00")


FAULTS = f"""
every fault is told in the order of the bytes
    {MANY_FAULTS} | 3.1.1 | faults.reason=[protocol_name_invalid,will_qos_invalid,connect_flags_reserved,\
utf8_null_character,utf8_ill_formed,connect_payload_mismatch] faults.offset=[2,9,9,14,17,21] complete=True
    packet.will.will_payload=b'x'
fields before the fault are kept and named
    32 04 00 01 74 00 | 3.1.1 | complete=False packet.topic_name=t packet.packet_identifier=None
    fields_read=[dup,qos,retain,topic_name]
a cut packet names only what was read, and no fault of the cut
    40 10 00 01 | 5.0 | fields_read=[packet_identifier] missing=14 faults.reason=[truncated]
a cut packet still tells faults before the cut
    36 20 00 02 61 ff 00 01 | 3.1.1 | faults.reason=[qos_invalid,utf8_ill_formed,truncated]
a cut CONNECT does not invent a clean start
    10 20 00 04 4d 51 54 54 04 | 3.1.1 | fields_read=[protocol_name,protocol_level]
unknown levels are read in the layout of 3.1.1
    10 0d 00 04 4d 51 54 54 07 02 00 1e 00 01 61 | 5.0 |
    packet.client_identifier=a packet.keep_alive=30 packet.version=4
"""


@pytest.mark.parametrize(("raw", "version", "facts"), cases_of(FAULTS, parse, VERSION_NAMES.__getitem__, str))
def test_what_is_known_of_a_malformed_packet(raw: bytes, version: ProtocolVersion, facts: str) -> None:
    packet = decode(raw, version)

    assert isinstance(packet, Malformed)
    assert_malformed(packet, raw)
    assert differing(packet, facts) == {}


class TestMalformedValues:
    def test_a_connect_cut_inside_its_protocol_name_is_read_as_far_as_it_goes(self) -> None:
        for size in range(2, 9):
            packet = decode(parse("10 20 00 04 4d 51 54 54 05 02")[:size])
            assert isinstance(packet, Malformed)
            assert packet.reason is R.TRUNCATED

    @pytest.mark.parametrize(
        ("raw", "version", "reason"),
        [
            ("61", V5, R.FIXED_HEADER_FLAGS),
            ("36 05", V3_1_1, R.QOS_INVALID),
            ("30 05 00 ff", V3_1_1, R.REMAINING_LENGTH_WRONG),
            ("40 ff ff 03 00 01", V3_1_1, R.REMAINING_LENGTH_WRONG),
            ("6a 30 00", V3_1, R.REMAINING_LENGTH_WRONG),
            ("00 ff 01", V5, R.PACKET_TYPE_RESERVED),
            ("f0 ff", V3_1_1, R.PACKET_TYPE_RESERVED),
        ],
    )
    def test_a_header_that_is_not_believed_says_what_is_wrong_with_it(
        self, raw: str, version: ProtocolVersion, reason: MalformedReason
    ) -> None:
        malformed = implausible_length(parse(raw), version)

        assert_malformed(malformed, parse(raw))
        assert malformed.reason is reason
        assert malformed.missing == 0


def test_any_bytes_like_input_is_taken() -> None:
    assert decode(memoryview(b"\xc0\x00")) == decode(bytearray(b"\xc0\x00"))


def test_topics_that_come_again_are_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def published(body: bytes) -> Publish | Malformed:
        packet = decode(framed(0x30, body), V3_1_1)
        assert isinstance(packet, Publish | Malformed)
        return packet

    topic = b"a/topic/that/comes/again"
    first, second = published(string(topic) + b"1"), published(string(topic) + b"22")
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.topic_name is second.topic_name
    assert first.topic_name == topic.decode()
    # A length that goes beyond the packet is a fault, though the bytes that are there are a topic.
    assert isinstance(published(bytes([0, len(topic) + 1]) + topic), Malformed)
    assert isinstance(published(string(b"a\0b")), Malformed)
    assert isinstance(published(string(b"a\0b")), Malformed)
    long = b"x" * (codec.MAX_NAME_BYTES + 1)
    assert published(string(long)).topic_name == published(string(long)).topic_name == long.decode()  # type: ignore[union-attr]
