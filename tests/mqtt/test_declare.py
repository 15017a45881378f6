"""One declaration, many products: plans by version, encoding of parts, which bytes belong to which field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.mqtt import (
    Connect,
    Malformed,
    PacketType,
    ProtocolVersion,
    Puback,
    Publish,
    Subscribe,
    decode,
    encode,
    trace,
)
from mqttscope.mqtt.codec import SpanIndex
from mqttscope.mqtt.declare import PACKETS, ControlPacket, frame_packet, plan
from mqttscope.mqtt.wire import LayoutFault
from tests.mqtt.case import ALL, V3_1, V3_1_1, V5, VERSIONS, parse
from tests.mqtt.cases import GOOD, LONG
from tests.mqtt.checks import assert_partition, broken
from tests.tables import cases_of


def test_a_declaration_names_its_fields_in_the_order_of_the_wire() -> None:
    names = [row.name for row in Publish.declaration]
    assert names == ["dup", "qos", "retain", "topic_name", "packet_identifier", "properties", "payload"]
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
        with pytest.raises(LayoutFault):
            read(parse(text), 2)


def test_flags_of_the_fixed_header_are_kept_only_where_they_say_something() -> None:
    assert plan(Puback, V3_1)(parse("4f 02 00 07"), 2).header_flags == 15
    assert plan(Puback, V3_1)(parse("40 02 00 07"), 2).header_flags is None
    assert plan(Subscribe, V3_1)(parse("82 02 00 07"), 2).header_flags is None


def test_a_publish_that_is_decoded_again_shares_no_state_with_the_first() -> None:
    raw = parse("32 05 00 01 74 00 01")
    packet, other = decode(raw), decode(raw)

    assert packet == other
    assert isinstance(packet, Publish)
    packet.topic_name = "changed"
    assert decode(raw) == other != packet


def test_what_is_only_partly_there_is_written_as_far_as_it_goes() -> None:
    malformed = broken("32 04 00 01 74 00")

    assert isinstance(malformed.packet, Publish)
    assert encode(malformed.packet) == parse("32 03 00 01 74")
    cut = broken("10 09 00 04 4d 51 54 54 04 02 00")

    assert cut.packet is not None
    assert encode(cut.packet) == parse("10 08 00 04 4d 51 54 54 04 02")


def test_a_frame_takes_the_length_it_is_told() -> None:
    assert frame_packet(3, 0xF2, b"ab") == parse("32 02 61 62")
    assert frame_packet(3, 2, b"ab", 300) == parse("32 ac 02 61 62")


def test_a_packet_without_computed_attributes_has_nothing_to_settle() -> None:
    assert ControlPacket().settle(V5) == []
    assert ControlPacket().prepare(V5) == {}


TRACES = """
a PUBLISH
    32 0c 00 00 00 0a 03 23 00 01 64 61 74 61 | 5.0 | flags:0-1 remaining_length:1-2 topic_name:2-4
    packet_identifier:4-6 properties.property_length:6-7 properties.topic_alias:7-10 payload:10-14
a CONNECT with a will that has a User Property
    10 1b 00 04 4d 51 54 54 05 06 00 00 00 00 00 07 26 00 01 6b 00 01 76 00 01 77 00 01 78 | 5.0 |
    header_flags:0-1 remaining_length:1-2 protocol_name:2-8 protocol_level:8-9 connect_flags:9-10 keep_alive:10-12
    properties.property_length:12-13 client_identifier:13-15 will.properties.property_length:15-16
    will.properties.user_property:16-23 will.will_topic:23-26 will.will_payload:26-29
a SUBSCRIBE
    82 0a 00 01 00 01 61 00 00 01 62 01 | 3.1.1 | header_flags:0-1 remaining_length:1-2 packet_identifier:2-4
    subscriptions[0].topic_filter:4-7 subscriptions[0].options:7-8 subscriptions[1].topic_filter:8-11
    subscriptions[1].options:11-12
a SUBACK
    90 04 00 01 00 01 | 3.1.1 |
    header_flags:0-1 remaining_length:1-2 packet_identifier:2-4 reason_codes[0]:4-5 reason_codes[1]:5-6
# Bytes that were not reached are one span.
an overrun
    30 05 00 ff 61 62 63 | 3.1.1 | flags:0-1 remaining_length:1-2 unparsed:2-7
a reserved packet type
    00 03 01 02 03 | 3.1.1 | packet_type:0-1 remaining_length:1-2 unparsed:2-5
a reserved packet type alone
    00 00 | 3.1.1 | packet_type:0-1 remaining_length:1-2
a length that never ends
    30 ff ff ff ff | 3.1.1 | fixed_header:0-5
a length that never ends, and more
    30 ff ff ff ff 01 | 3.1.1 | fixed_header:0-5 unparsed:5-6
half a length
    30 ff | 3.1.1 | fixed_header:0-2
nothing at all
    nothing | 3.1.1 | nothing
"""


@pytest.mark.parametrize(("raw", "version", "spans"), cases_of(TRACES, parse, VERSIONS.__getitem__, str))
def test_each_byte_has_its_field(raw: bytes, version: ProtocolVersion, spans: str) -> None:
    texts = [f"{span.field}:{span.start}-{span.end}" for span in trace(raw, version)]

    assert texts == spans.replace("nothing", "").split()


class TestTrace:
    @pytest.mark.parametrize("version", ALL)
    def test_names_lead_to_attributes_of_the_packet(self, version: ProtocolVersion) -> None:
        beside = {"flags", "header_flags", "remaining_length", "property_length", "options"}
        for row in GOOD:
            if row.version is version and row not in LONG:
                for span in trace(row.raw, version):
                    value: object = row.packet
                    for step in span.field.replace("]", "").replace("[", ".").split("."):
                        if step in beside:
                            break
                        assert not (step.isdigit() and int(step) >= len(value)), span  # type: ignore[arg-type]
                        value = value[int(step)] if step.isdigit() else getattr(value, step)  # type: ignore[index]

    def test_bytes_behind_the_packet_do_not_become_part_of_it(self) -> None:
        raw = parse("30 04 00 01 74 70 c0 00")

        assert_partition(raw, V3_1_1)
        assert [(span.field, span.start, span.end) for span in trace(raw)][3:] == [
            ("payload", 5, 6),
            ("unparsed", 6, 8),
        ]


PUBLISHED = "32 0d 00 01 74 00 01 06 26 00 01 61 00 00 70"


class TestFieldSpan:
    @pytest.mark.parametrize(
        ("path", "start", "end"),
        [
            ("protocol_name", 2, 8),
            ("clean_start", 9, 10),
            ("will.will_qos", 9, 10),
            ("will.will_retain", 9, 10),
            ("will.will_topic", 15, 18),
            ("will", 15, 21),
            ("user_name", 21, 24),
            ("header_flags", 0, 1),
            ("remaining_length", 1, 2),
        ],
    )
    def test_of_a_connect(self, path: str, start: int, end: int) -> None:
        packet = decode(parse("10 16 00 04 4d 51 54 54 04 86 00 00 00 01 63 00 01 77 00 01 78 00 01 75"))

        assert isinstance(packet, Connect)
        span = SpanIndex(packet.raw, V3_1_1).of(packet, path)
        assert span is not None
        assert (span.field, span.start, span.end) == (path, start, end)

    @pytest.mark.parametrize(
        ("raw", "version", "path", "place"),
        [
            (PUBLISHED, V5, "qos", (0, 1)),
            (PUBLISHED, V5, "properties", (7, 14)),
            (PUBLISHED, V5, "properties.user_property", (8, 14)),
            (PUBLISHED, V5, "payload", (14, 15)),
            ("82 0a 00 01 00 01 61 00 00 01 62 01", V3_1_1, "subscriptions", (4, 12)),
            ("82 0a 00 01 00 01 61 00 00 01 62 01", V3_1_1, "properties", None),
        ],
    )
    def test_of_others(self, raw: str, version: ProtocolVersion, path: str, place: tuple[int, int] | None) -> None:
        """A list has one span for all of it, and an absent field has no span."""
        packet = decode(parse(raw), version)

        assert isinstance(packet, ControlPacket)
        span = SpanIndex(packet.raw, version).of(packet, path)
        assert (span and (span.start, span.end)) == place

    @pytest.mark.parametrize(
        "octets",
        [
            "30 04 00 01 74 70",
            "30 03 00 01 74",
            "30 84 00 00 01 74 70",
            "32 0d 00 01 74 00 01 06 26 00 01 61 00 00 70",
            "30 06 00 02 ff 74 70 70",
            "30 06 00 02 00 74 70 70",
            "30 04 00 05 74 70",
            "36 06 00 01 74 00 01 70",
            "30 02 00 00 ff",
            "30 85 01 00 80" + " 74" * 131,
        ],
    )
    @pytest.mark.parametrize("version", [V3_1_1, V5])
    def test_the_topic_of_a_publish_lies_where_a_trace_of_all_fields_finds_it(
        self, octets: str, version: ProtocolVersion
    ) -> None:
        raw = parse(octets)
        actual_packet = decode(raw, version)
        packet = actual_packet.packet if isinstance(actual_packet, Malformed) else actual_packet
        if not isinstance(packet, Publish):
            packet = Publish(raw=raw)
        traced = [
            (field_span.start, field_span.end) for field_span in trace(raw, version) if field_span.field == "topic_name"
        ]
        span = SpanIndex(raw, version).of(packet, "topic_name")

        assert ([] if span is None else [(span.start, span.end)]) == traced

    def test_a_client_identifier_lies_where_a_trace_of_all_fields_finds_it(self) -> None:
        looked_at = 0
        for row in GOOD:
            if isinstance(row.packet, Connect):
                for length in range(len(row.raw), max(len(row.raw) - 40, 1), -1):  # and what is left of cut ones
                    raw = row.raw[:length]
                    actual_packet = decode(raw, row.version)
                    packet = actual_packet.packet if isinstance(actual_packet, Malformed) else actual_packet
                    if isinstance(packet, Connect):
                        traced = [
                            (field_span.start, field_span.end)
                            for field_span in trace(raw)
                            if field_span.field == "client_identifier"
                        ]
                        span = SpanIndex(raw, row.version).of(packet, "client_identifier")
                        looked_at += 1

                        assert ([] if span is None else [(span.start, span.end)]) == traced, row.id
        assert looked_at > 100

    def test_every_field_of_every_packet_that_is_not_none_has_a_span(self) -> None:
        for row in GOOD:
            packet = row.packet
            assert packet is not None
            control_packet = replace(packet, raw=row.raw)
            for declared in packet.declaration:
                if getattr(packet, declared.name) not in (None, [], b"") and row not in LONG:
                    assert SpanIndex(control_packet.raw, row.version).of(control_packet, declared.name) is not None, (
                        row.id,
                        declared.name,
                    )


def test_any_bytes_like_input_is_taken() -> None:
    assert len(trace(memoryview(b"\xc0\x00"))) == 2
