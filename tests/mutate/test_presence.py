"""Fields left out and written twice."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, decode
from mqttscope.mqtt.codec import packet_end
from mqttscope.mutate import Verdict, mutation
from mqttscope.mutate.fields import all_fields
from mqttscope.mutate.presence import presence_mutations
from tests.mutate.talk import V3_1, V3_1_1, V5, good, packet_of


@pytest.mark.parametrize(("slug", "times"), [("missing", 0), ("repeated", 2)])
def test_the_rest_moves_and_the_remaining_length_is_right(slug: str, times: int) -> None:
    whole = good(V5).entries[0].raw
    raw = packet_of(f"connect.client_identifier:{slug}")
    identifier = b"\x00\x07device1"

    assert raw[2:] == whole[2:].replace(identifier, identifier * times)
    assert packet_end(raw, 0, len(raw))[1] == len(raw)


@pytest.mark.parametrize("slug", ["missing", "repeated"])
def test_a_packet_of_one_length_is_malformed_without_and_with_more(slug: str) -> None:
    found = decode(packet_of(f"puback.packet_identifier:{slug}", V3_1_1), V3_1_1)

    assert isinstance(found, Malformed)
    assert found.reason is MalformedReason.REMAINING_LENGTH_WRONG
    assert mutation(f"puback.packet_identifier:{slug}").verdict(V3_1_1) is Verdict.VIOLATION
    assert mutation(f"puback.packet_identifier:{slug}").verdict(V5) is Verdict.OPEN
    assert mutation(f"puback.packet_identifier:{slug}").verdict(V3_1) is Verdict.OPEN


def test_no_field_is_forgotten() -> None:
    names = {one.name.rpartition(":")[0] for one in presence_mutations()}

    for field in all_fields():
        plain = field.row is None and "[0]" not in field.path and field.path != "payload"
        assert (field.name in names) == plain, field.name


def test_a_reason_code_that_may_be_left_out_is_not_missing() -> None:
    names = {one.name for one in presence_mutations()}

    assert {"puback.reason_code:repeated", "connack.reason_code:missing"} <= names
    assert "puback.reason_code:missing" not in names
