"""Numbers and binary data."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, decode
from mqttscope.mutate import NotApplicable, Verdict, mutation
from mqttscope.mutate.flow import SERVER
from tests.mutate.talk import V5, limited, mutated, packet_of


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connect.keep_alive:maximum", 65_535),
        ("connect.keep_alive:zero", 0),
        ("publish.packet_identifier:zero", 0),
        ("puback.packet_identifier:maximum", 65_535),
    ],
)
def test_values_of_plain_fields(name: str, value: int) -> None:
    found = decode(packet_of(name), V5)

    assert getattr(found, mutation(name).field) == value


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("connect.properties.receive_maximum:zero", 0, Verdict.VIOLATION),
        ("connect.properties.receive_maximum:one", 1, Verdict.LEGAL),
        ("connect.properties.request_problem_information:two", 2, Verdict.VIOLATION),
        ("connect.properties.receive_maximum:sign-bit", 0x8000, Verdict.LEGAL),
        ("connect.properties.session_expiry_interval:maximum", 0xFFFFFFFF, Verdict.OPEN),
        ("publish.properties.message_expiry_interval:sign-bit", 0x80000000, Verdict.LEGAL),
        ("subscribe.properties.subscription_identifier:boundary-127", 127, Verdict.LEGAL),
        ("subscribe.properties.subscription_identifier:boundary-128", 128, Verdict.LEGAL),
        ("subscribe.properties.subscription_identifier:boundary-2097152", 2_097_152, Verdict.LEGAL),
        ("subscribe.properties.subscription_identifier:maximum", 268_435_455, Verdict.LEGAL),
    ],
)
def test_values_of_properties(name: str, value: int, verdict: Verdict) -> None:
    found = decode(packet_of(name), V5)
    told = getattr(found.properties, name.partition("properties.")[2].partition(":")[0])  # type: ignore[union-attr]

    assert told in (value, [value])
    assert mutation(name).verdict(V5) is verdict


def test_a_variable_byte_integer_too_long() -> None:
    minimal = decode(packet_of("subscribe.properties.subscription_identifier:not-minimal"), V5)
    five = decode(packet_of("subscribe.properties.subscription_identifier:five-bytes"), V5)

    assert isinstance(minimal, Malformed)
    assert minimal.reason is MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL
    assert isinstance(five, Malformed)
    assert five.reason is MalformedReason.VARIABLE_BYTE_INTEGER_TOO_LONG


def test_binary_data_may_be_anything() -> None:
    assert decode(packet_of("connect.password:any-bytes")).password == bytes(range(256))  # type: ignore[union-attr]
    assert decode(packet_of("publish.payload:empty"), V5).payload == b""  # type: ignore[union-attr]
    assert len(decode(packet_of("publish.payload:large"), V5).payload) == 262_144  # type: ignore[union-attr]


def test_an_identifier_is_not_given_to_a_message_of_qos_0_that_must_stay_so() -> None:
    with pytest.raises(NotApplicable):
        mutated("publish.packet_identifier:maximum", flow=limited())
    assert decode(packet_of("publish.packet_identifier:maximum", sender=SERVER), V5).qos > 0  # type: ignore[union-attr]
