"""Strings that are none, and the longest and shortest; numbers and binary data."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, PacketType, ProtocolVersion, decode
from mqttscope.mqtt.codec import packet_end
from mqttscope.mutate import FlowVerdict, mutation, values
from mqttscope.mutate.fields import blocks
from mqttscope.mutate.flow import SERVER
from mqttscope.mutate.layout import LENGTH, PacketLayout
from mqttscope.mutate.mutation import senders_of
from tests.each import each
from tests.mutate.talk import (
    V3_1,
    V3_1_1,
    V5,
    authenticated,
    check_faults,
    check_not_applicable,
    check_values,
    decoded,
    good,
    limited,
    packet_of,
)


@each("slug", values.ILL_FORMED)
def test_bytes_that_are_no_utf8(slug: str) -> None:
    name = f"publish.topic_name:{slug}"

    check_faults({name: MalformedReason.UTF8_ILL_FORMED})
    assert decoded(name).field == "topic_name"


def test_ill_formed_is_ill_formed_for_python_too() -> None:
    for octets, words in values.ILL_FORMED.values():
        with pytest.raises(UnicodeDecodeError):
            octets.decode()
        assert words


@each("slug", [*values.CONTROL, *values.NON_CHARACTERS])
def test_characters_that_should_not_be_there(slug: str) -> None:
    name = f"publish.topic_name:{slug}"

    assert not isinstance(decoded(name), Malformed)
    assert mutation(name).verdict(V5) is FlowVerdict.DISCOURAGED
    assert mutation(name).verdict(V3_1) is FlowVerdict.OPEN


@each("part, pair", [("name", ("name\0", "value")), ("value", ("name", "value\0"))])
def test_both_parts_of_a_pair_are_mutated(part: str, pair: tuple[str, str]) -> None:
    result = decoded(f"publish.properties.user_property.{part}:null-character")

    assert isinstance(result, Malformed)
    assert result.packet.properties.user_property == [pair]  # type: ignore[union-attr]


def test_the_longest_strings() -> None:
    assert len(decoded("publish.topic_name:maximum-length").topic_name) == 65_535
    assert len(decoded("publish.topic_name:maximum-length", V3_1).topic_name) == 32_767


def test_an_empty_identifier_comes_with_a_clean_session() -> None:
    result = decoded("connect.client_identifier:empty", V3_1_1)

    assert (result.client_identifier, result.clean_start) == ("", True)


def test_an_empty_topic_with_an_alias_would_be_legal() -> None:
    flow = good(V5)
    for recorded_packet in flow.entries:
        if recorded_packet.raw[0] >> 4 == 3:
            recorded_packet.packet.properties = type(recorded_packet.packet.properties)(topic_alias=1)  # type: ignore[union-attr]

    check_not_applicable("publish.topic_name:empty", flow=flow)


def test_the_protocol_name_is_no_string_like_others() -> None:
    assert not [
        string_mutation for string_mutation in values.string_mutations() if string_mutation.field == "protocol_name"
    ]


@pytest.mark.parametrize("version", list(ProtocolVersion), ids=lambda each: str(each.text))
@pytest.mark.parametrize("length", values.VARIABLE_BYTE_INTEGER_BOUNDARIES)
def test_a_remaining_length_at_the_boundary(length: int, version: ProtocolVersion) -> None:
    raw = packet_of(f"publish.remaining_length:boundary-{length}", version)
    body, end = packet_end(raw, 0, len(raw))

    assert end - body == length
    assert end == len(raw)
    assert not isinstance(decode(raw, version), Malformed)


def test_the_boundaries_are_those_of_the_bytes_that_a_length_takes() -> None:
    sizes = [
        packet_end(raw, 0, len(raw))[0] - 1
        for raw in (
            packet_of(f"publish.remaining_length:boundary-{variable_byte_integer_boundary}")
            for variable_byte_integer_boundary in values.VARIABLE_BYTE_INTEGER_BOUNDARIES
        )
    ]

    assert sizes == [1, 2, 2, 3, 3, 4]


@each("kind, prefix", [(kind, prefix) for kind, _, prefix in blocks()])
@each("length", values.VARIABLE_BYTE_INTEGER_BOUNDARIES[:4])
def test_a_property_length_at_the_boundary(kind: PacketType, prefix: str, length: int) -> None:
    path = f"{prefix}properties.{LENGTH}"
    name = f"{kind.name.lower()}.{path}:boundary-{length}"
    flow = authenticated() if kind is PacketType.AUTH else None
    raw = packet_of(name, V5, sender=senders_of(kind)[0], flow=flow)
    layout = PacketLayout(raw, V5)

    assert not isinstance(decode(raw, V5), Malformed)
    assert (
        sum(len(field_bytes.data) for at, field_bytes in enumerate(layout.pieces) if layout.block(at) == path) == length
    )
    assert len(layout.piece(path).data) == {127: 1, 128: 2, 16_383: 2, 16_384: 3}[length]


def test_it_is_legal_but_for_what_the_receiver_announced() -> None:
    assert mutation("publish.remaining_length:boundary-16384").verdict(V3_1) is FlowVerdict.LEGAL
    assert mutation("subscribe.properties.property_length:boundary-128").verdict(V5) is FlowVerdict.LEGAL
    check_not_applicable("publish.remaining_length:boundary-16384", flow=limited(), match="Maximum Packet Size 1000")


def test_values_of_plain_fields() -> None:
    check_values(
        {
            "connect.keep_alive:maximum": 65_535,
            "connect.keep_alive:zero": 0,
            "publish.packet_identifier:zero": 0,
            "puback.packet_identifier:maximum": 65_535,
            "publish.payload:empty": b"",
            "connect.password:any-bytes": bytes(range(256)),
        }
    )
    assert len(decoded("publish.payload:large").payload) == 262_144


@each(
    "name, value, verdict",
    [
        ("connect.properties.receive_maximum:zero", 0, FlowVerdict.VIOLATION),
        ("connect.properties.receive_maximum:one", 1, FlowVerdict.LEGAL),
        ("connect.properties.request_problem_information:two", 2, FlowVerdict.VIOLATION),
        ("connect.properties.receive_maximum:sign-bit", 0x8000, FlowVerdict.LEGAL),
        ("connect.properties.session_expiry_interval:maximum", 0xFFFFFFFF, FlowVerdict.OPEN),
        ("publish.properties.message_expiry_interval:sign-bit", 0x80000000, FlowVerdict.LEGAL),
        ("subscribe.properties.subscription_identifier:boundary-127", 127, FlowVerdict.LEGAL),
        ("subscribe.properties.subscription_identifier:boundary-128", 128, FlowVerdict.LEGAL),
        ("subscribe.properties.subscription_identifier:boundary-2097152", 2_097_152, FlowVerdict.LEGAL),
        ("subscribe.properties.subscription_identifier:maximum", 268_435_455, FlowVerdict.LEGAL),
    ],
)
def test_values_of_properties(name: str, value: int, verdict: FlowVerdict) -> None:
    result = getattr(decoded(name).properties, name.partition("properties.")[2].partition(":")[0])

    assert result in (value, [value])
    assert mutation(name).verdict(V5) is verdict


def test_a_variable_byte_integer_too_long() -> None:
    field = "subscribe.properties.subscription_identifier"
    check_faults({f"{field}:not-minimal": MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL})
    check_faults({f"{field}:five-bytes": MalformedReason.VARIABLE_BYTE_INTEGER_TOO_LONG})


def test_an_identifier_is_not_given_to_a_message_of_qos_0_that_must_stay_so() -> None:
    check_not_applicable("publish.packet_identifier:maximum", flow=limited())
    assert decoded("publish.packet_identifier:maximum", sender=SERVER).qos > 0
