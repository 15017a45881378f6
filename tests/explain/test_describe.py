"""Words for packets and times."""

from __future__ import annotations

import pytest

from mqttscope.explain import describe
from mqttscope.mqtt.constants import PacketType, ProtocolVersion

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (400_000, "0.4 ms"),
        (6_003_000_000, "6.003 s"),
        (-2 * SECOND, "-2.000 s"),
        (723 * SECOND, "12 min 3 s"),
        (18_120 * SECOND, "5 h 2 min"),
        (72 * 3600 * SECOND - SECOND, "71 h 59 min"),
        (72 * 3600 * SECOND, "3 days"),
        (400 * 86_400 * SECOND, "400 days"),
    ],
)
def test_lengths_of_time(length: int, expected: str) -> None:
    assert describe.span(length) == expected


def test_seconds_have_no_zeros() -> None:
    assert (describe.seconds(6.0), describe.seconds(4.5)) == ("6 s", "4.5 s")


def test_names_are_without_secrets() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwdW1wIn0.abcdef0123456789"

    assert describe.name("plant/7") == "plant/7"
    assert describe.name("") == "(empty)"
    assert [describe.name(text) for text in ("a/ 0", "a ", "a b/c", "a/b")] == ['"a/ 0"', '"a "', "a b/c", "a/b"]
    assert token not in describe.name(f"plant/{token}")


def test_reasons_have_their_number_and_their_name() -> None:
    v5, old = ProtocolVersion.V5, ProtocolVersion.V3_1_1

    assert describe.reason(PacketType.DISCONNECT, 0x8D, v5) == "0x8D Keep Alive timeout"
    assert describe.reason(PacketType.CONNACK, 5, old) == "5 not authorized"
    assert describe.reason(PacketType.SUBACK, 0x80, old) == "0x80 Failure"
    assert describe.reason(PacketType.CONNACK, 77, old) == "77"
