"""Strings that are none, and the longest and shortest."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, decode
from mqttscope.mutate import NotApplicableError, Verdict, mutation
from mqttscope.mutate.strings import CONTROL, ILL_FORMED, NON_CHARACTERS, string_mutations
from tests.mutate.talk import V3_1, V3_1_1, V5, good, packet_of


@pytest.mark.parametrize("slug", ILL_FORMED)
def test_bytes_that_are_no_utf8(slug: str) -> None:
    found = decode(packet_of(f"publish.topic_name:{slug}"), V5)

    assert isinstance(found, Malformed)
    assert [one.reason for one in found.faults] == [MalformedReason.UTF8_ILL_FORMED]
    assert found.field == "topic_name"


def test_ill_formed_is_ill_formed_for_python_too() -> None:
    for octets, words in ILL_FORMED.values():
        with pytest.raises(UnicodeDecodeError):
            octets.decode()
        assert words


@pytest.mark.parametrize("slug", [*CONTROL, *NON_CHARACTERS])
def test_characters_that_should_not_be_there(slug: str) -> None:
    found = decode(packet_of(f"publish.topic_name:{slug}"), V5)

    assert not isinstance(found, Malformed)
    assert mutation(f"publish.topic_name:{slug}").verdict(V5) is Verdict.DISCOURAGED
    assert mutation(f"publish.topic_name:{slug}").verdict(V3_1) is Verdict.OPEN


def test_both_parts_of_a_pair_are_mutated() -> None:
    name = decode(packet_of("publish.properties.user_property.name:null-character"), V5)
    value = decode(packet_of("publish.properties.user_property.value:null-character"), V5)

    assert isinstance(name, Malformed)
    assert isinstance(value, Malformed)
    assert name.packet.properties.user_property == [("name\0", "value")]  # type: ignore[union-attr]
    assert value.packet.properties.user_property == [("name", "value\0")]  # type: ignore[union-attr]


def test_the_longest_strings() -> None:
    assert len(decode(packet_of("publish.topic_name:maximum-length"), V5).topic_name) == 65_535  # type: ignore[union-attr]
    assert len(decode(packet_of("publish.topic_name:maximum-length", V3_1), V3_1).topic_name) == 32_767  # type: ignore[union-attr]


def test_an_empty_identifier_comes_with_a_clean_session() -> None:
    found = decode(packet_of("connect.client_identifier:empty", V3_1_1))

    assert found.client_identifier == ""  # type: ignore[union-attr]
    assert found.clean_start  # type: ignore[union-attr]


def test_an_empty_topic_with_an_alias_would_be_legal() -> None:
    flow = good(V5)
    for one in flow.entries:
        if one.raw[0] >> 4 == 3:
            one.packet.properties = type(one.packet.properties)(topic_alias=1)  # type: ignore[union-attr]

    with pytest.raises(NotApplicableError):
        packet_of("publish.topic_name:empty", flow=flow)


def test_the_protocol_name_is_no_string_like_others() -> None:
    assert not [one for one in string_mutations() if one.field == "protocol_name"]
