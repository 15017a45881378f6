"""Flags of the fixed header."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, PacketType, decode
from mqttscope.mutate import Verdict, mutation
from mqttscope.mutate.headers import header_mutations
from tests.mutate.talk import V3_1, V5, packet_of


@pytest.mark.parametrize("bit", range(4))
def test_one_bit_is_turned_over(bit: int) -> None:
    raw = packet_of(f"subscribe:reserved-flag-{bit}")
    found = decode(raw, V5)

    assert raw[0] & 15 == 2 ^ 1 << bit
    assert isinstance(found, Malformed)
    assert found.reason is MalformedReason.FIXED_HEADER_FLAGS


def test_all_bits_are_turned_over() -> None:
    assert packet_of("pubrel:reserved-flags-inverted")[0] & 15 == 0b1101
    assert packet_of("pingreq:reserved-flags-inverted")[0] & 15 == 0b1111


def test_publish_has_no_reserved_flags() -> None:
    assert {one.packet_type for one in header_mutations()} == set(PacketType) - {PacketType.PUBLISH}


def test_in_3_1_requests_may_have_dup() -> None:
    assert mutation("subscribe:reserved-flag-3").verdict(V3_1) is Verdict.LEGAL
    assert mutation("subscribe:reserved-flag-1").verdict(V3_1) is Verdict.VIOLATION
