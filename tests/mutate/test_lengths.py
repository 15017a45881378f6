"""Lengths that lie, and packets that end where they should not."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import MalformedReason, PacketType
from mqttscope.mqtt.codec import packet_end
from mqttscope.mutate import Chance, FlowVerdict, MutationKind, apply, mutation
from mqttscope.mutate.fields import all_fields
from mqttscope.mutate.flow import SERVER
from mqttscope.mutate.lengths import RANDOM, cut_mutations, header_mutations, presence_mutations
from tests.each import each
from tests.mutate.talk import V3_1, V3_1_1, V5, check_faults, check_not_applicable, good, packet_of, reason

MUTATIONS = list(RANDOM)


@pytest.mark.parametrize("expected", MUTATIONS, ids=lambda each: each.name)
def test_damage_follows_from_the_key_and_is_damage(expected) -> None:  # type: ignore[no-untyped-def]
    flow = good(V5)
    flows = [apply(expected, flow, Chance("damage", number)) for number in range(20)]

    assert flows == [apply(expected, flow, Chance("damage", number)) for number in range(20)]
    for case in flows:
        assert case.steps[case.at].data != flow.entries[case.at].raw
        assert case.changes


def test_nothing_is_promised_about_them() -> None:
    assert {mutation.kind for mutation in MUTATIONS} == {MutationKind.RANDOM}
    assert {mutation.verdict(V5) for mutation in MUTATIONS} == {FlowVerdict.OPEN}


@pytest.mark.parametrize(("slug", "times"), [("missing", 0), ("repeated", 2)])
def test_the_rest_moves_and_the_remaining_length_is_right(slug: str, times: int) -> None:
    whole = good(V5).entries[0].raw
    raw = packet_of(f"connect.client_identifier:{slug}")
    identifier = b"\x00\x07device1"

    assert raw[2:] == whole[2:].replace(identifier, identifier * times)
    assert packet_end(raw, 0, len(raw))[1] == len(raw)


@each("slug", ["missing", "repeated"])
def test_a_packet_of_one_length_is_malformed_without_and_with_more(slug: str) -> None:
    name = f"puback.packet_identifier:{slug}"

    check_faults({name: MalformedReason.REMAINING_LENGTH_WRONG}, V3_1_1)
    assert mutation(name).verdict(V3_1_1) is FlowVerdict.VIOLATION
    assert mutation(name).verdict(V5) is mutation(name).verdict(V3_1) is FlowVerdict.OPEN


def test_no_field_is_forgotten() -> None:
    names = {presence_mutation.name.rpartition(":")[0] for presence_mutation in presence_mutations()}

    for field in all_fields():
        plain = field.row is None and "[0]" not in field.path and field.path != "payload"
        assert (field.name in names) == plain, field.name


def test_a_reason_code_that_may_be_left_out_is_not_missing() -> None:
    names = {presence_mutation.name for presence_mutation in presence_mutations()}

    assert {"puback.reason_code:repeated", "connack.reason_code:missing"} <= names
    assert "puback.reason_code:missing" not in names


@each("bit", range(4))
def test_one_bit_is_turned_over(bit: int) -> None:
    name = f"subscribe:reserved-flag-{bit}"

    assert packet_of(name)[0] & 15 == 2 ^ 1 << bit
    check_faults({name: MalformedReason.FIXED_HEADER_FLAGS})


def test_all_bits_are_turned_over() -> None:
    assert packet_of("pubrel:reserved-flags-inverted")[0] & 15 == 0b1101
    assert packet_of("pingreq:reserved-flags-inverted")[0] & 15 == 0b1111


def test_publish_has_no_reserved_flags() -> None:
    assert {header_mutation.packet_type for header_mutation in header_mutations()} == set(PacketType) - {
        PacketType.PUBLISH
    }


def test_in_3_1_requests_may_have_dup() -> None:
    assert mutation("subscribe:reserved-flag-3").verdict(V3_1) is FlowVerdict.LEGAL
    assert mutation("subscribe:reserved-flag-1").verdict(V3_1) is FlowVerdict.VIOLATION


@pytest.mark.parametrize(("slug", "difference"), [("plus-one", 1), ("minus-one", -1)])
def test_a_remaining_length_that_lies(slug: str, difference: int) -> None:
    raw = packet_of(f"subscribe.remaining_length:{slug}")
    body, end = packet_end(raw, 0, len(raw))

    assert body == 2
    assert end - len(raw) == difference


def test_a_remaining_length_that_is_written_wrongly() -> None:
    not_minimal = reason(packet_of("publish.remaining_length:not-minimal"))
    assert not_minimal is MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL
    assert reason(packet_of("publish.remaining_length:five-bytes")) is MalformedReason.REMAINING_LENGTH_TOO_LONG
    assert reason(packet_of("publish.remaining_length:maximum")) is MalformedReason.TRUNCATED


def test_a_packet_without_a_body_has_no_shorter_length() -> None:
    check_not_applicable("pingreq.remaining_length:zero")


def test_every_cut_has_a_lying_twin() -> None:
    names = {cut_mutation.name for cut_mutation in cut_mutations()}

    assert {name for name in names if not name.endswith("-lying")} == {
        name.removesuffix("-lying") for name in names if name.endswith("-lying")
    }


def test_a_byte_too_many() -> None:
    assert reason(packet_of("connect:extra-byte")) is MalformedReason.CONNECT_PAYLOAD_MISMATCH
    assert reason(packet_of("puback:extra-byte")) is MalformedReason.TRAILING_BYTES
    assert reason(packet_of("puback:extra-byte", V3_1_1), V3_1_1) is MalformedReason.REMAINING_LENGTH_WRONG
    assert reason(packet_of("pingresp:extra-byte", sender=SERVER)) is MalformedReason.REMAINING_LENGTH_WRONG


def test_every_field_that_has_an_inside_is_cut() -> None:
    cut = {cut_mutation.name.partition(":")[0] for cut_mutation in cut_mutations()}

    assert {field.name for field in all_fields() if field.row is not None} <= cut
