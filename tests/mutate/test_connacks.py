"""CONNACK."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, decode
from mqttscope.mutate import NotApplicable
from mqttscope.mutate.flow import CLIENT, SERVER
from tests.mutate.talk import V3_1, V5, good, made, packet_of


@pytest.mark.parametrize("bit", range(1, 8))
def test_reserved_bits_of_the_acknowledge_flags(bit: int) -> None:
    assert packet_of(f"connack:acknowledge-flag-{bit}")[2] == 1 << bit


def test_a_refusal_that_claims_a_session() -> None:
    found = decode(packet_of("connack:session-present-on-refusal"), V5)

    assert (found.session_present, found.reason_code) == (True, 0x88)  # type: ignore[union-attr]


def test_a_session_that_nobody_asked_for() -> None:
    assert packet_of("connack:session-present-with-clean-start")[2] == 1
    rest = good(V5).entries[1:]
    connect = Connect(protocol_level=5, client_identifier="c", clean_start=False)
    other = made(V5, (CLIENT, connect), (SERVER, rest[0].packet))  # type: ignore[arg-type]
    with pytest.raises(NotApplicable, match="new session"):
        packet_of("connack:session-present-with-clean-start", flow=other)


def test_3_1_has_no_session_present() -> None:
    with pytest.raises(NotApplicable):
        packet_of("connack:session-present-on-refusal", V3_1)
