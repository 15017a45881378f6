"""The slow walk: which bytes belong to which field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.mqtt import Connect, ProtocolVersion, Publish, Subscribe, decode, trace
from mqttscope.mqtt.codec import field_span
from tests.mqtt.case import ALL, V3_1_1, V5, parse
from tests.mqtt.cases import GOOD, LONG
from tests.mqtt.checks import assert_partition


class TestTrace:
    def test_a_publish(self) -> None:
        spans = trace(parse("32 0c 00 00 00 0a 03 23 00 01 64 61 74 61"), V5)

        assert [(one.field, one.start, one.end) for one in spans] == [
            ("flags", 0, 1),
            ("remaining_length", 1, 2),
            ("topic_name", 2, 4),
            ("packet_identifier", 4, 6),
            ("properties.property_length", 6, 7),
            ("properties.topic_alias", 7, 10),
            ("payload", 10, 14),
        ]

    def test_a_connect_with_a_will(self) -> None:
        row = next(one for one in GOOD if one.id == "5.0: CONNECT with a will carries user_property")

        assert [one.field for one in trace(row.raw, V5)] == [
            "header_flags",
            "remaining_length",
            "protocol_name",
            "protocol_level",
            "connect_flags",
            "keep_alive",
            "properties.property_length",
            "client_identifier",
            "will.properties.property_length",
            "will.properties.user_property",
            "will.will_topic",
            "will.will_payload",
        ]

    def test_a_subscribe_and_its_acknowledgement(self) -> None:
        assert [one.field for one in trace(parse("82 0a 00 01 00 01 61 00 00 01 62 01"), V3_1_1)][3:] == [
            "subscriptions[0].topic_filter",
            "subscriptions[0].options",
            "subscriptions[1].topic_filter",
            "subscriptions[1].options",
        ]
        assert [one.field for one in trace(parse("90 04 00 01 00 01"), V3_1_1)][3:] == [
            "reason_codes[0]",
            "reason_codes[1]",
        ]

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

    def test_bytes_that_were_not_reached_are_one_span(self) -> None:
        assert [(one.field, one.start) for one in trace(parse("30 05 00 ff 61 62 63"))][2:] == [("unparsed", 2)]
        assert [(one.field, one.end) for one in trace(parse("00 03 01 02 03"))] == [
            ("packet_type", 1),
            ("remaining_length", 2),
            ("unparsed", 5),
        ]
        assert [one.field for one in trace(b"\0\0")] == ["packet_type", "remaining_length"]
        assert [(one.field, one.end) for one in trace(parse("30 ff ff ff ff"))] == [("fixed_header", 5)]
        assert [(one.field, one.end) for one in trace(parse("30 ff ff ff ff 01"))] == [
            ("fixed_header", 5),
            ("unparsed", 6),
        ]
        assert [(one.field, one.end) for one in trace(parse("30 ff"))] == [("fixed_header", 2)]
        assert trace(b"") == []

    def test_bytes_behind_the_packet_do_not_become_part_of_it(self) -> None:
        raw = parse("30 04 00 01 74 70 c0 00")

        assert_partition(raw, V3_1_1)
        assert [(one.field, one.start, one.end) for one in trace(raw)][3:] == [("payload", 5, 6), ("unparsed", 6, 8)]


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
        span = field_span(packet, path, V3_1_1)
        assert span is not None
        assert (span.field, span.start, span.end) == (path, start, end)

    @pytest.mark.parametrize(
        ("path", "start", "end"),
        [("qos", 0, 1), ("properties", 7, 14), ("properties.user_property", 8, 14), ("payload", 14, 15)],
    )
    def test_of_a_publish(self, path: str, start: int, end: int) -> None:
        packet = decode(parse("32 0d 00 01 74 00 01 06 26 00 01 61 00 00 70"), V5)

        assert isinstance(packet, Publish)
        span = field_span(packet, path, V5)
        assert span is not None
        assert (span.start, span.end) == (start, end)

    def test_a_list_is_covered_whole_and_what_is_absent_has_none(self) -> None:
        packet = decode(parse("82 0a 00 01 00 01 61 00 00 01 62 01"))

        assert isinstance(packet, Subscribe)
        whole = field_span(packet, "subscriptions", V3_1_1)
        assert whole is not None
        assert (whole.start, whole.end) == (4, 12)
        assert field_span(packet, "properties", V3_1_1) is None

    def test_every_field_of_every_packet_that_is_not_none_has_a_span(self) -> None:
        for row in GOOD:
            packet = row.packet
            assert packet is not None
            made = replace(packet, raw=row.raw)
            for declared in packet.declaration:
                if getattr(packet, declared.name) not in (None, [], b"") and row not in LONG:
                    assert field_span(made, declared.name, row.version) is not None, (row.id, declared.name)


def test_any_bytes_like_input_is_taken() -> None:
    assert len(trace(memoryview(b"\xc0\x00"))) == 2  # type: ignore[arg-type]
