"""CONNECT."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, decode
from mqttscope.mutate import Demand, Verdict, mutation
from mqttscope.mutate.flow import CLIENT
from tests.mutate.talk import V3_1, V3_1_1, V5, packet_of


@pytest.mark.parametrize(
    ("slug", "reason"),
    [
        ("protocol-name-lower-case", MalformedReason.PROTOCOL_NAME_INVALID),
        ("protocol-name-empty", MalformedReason.PROTOCOL_NAME_INVALID),
        ("protocol-level-6", MalformedReason.PROTOCOL_VERSION_UNKNOWN),
        ("reserved-connect-flag", MalformedReason.CONNECT_FLAGS_RESERVED),
        ("will-qos-3", MalformedReason.WILL_QOS_INVALID),
        ("will-retain-without-will", MalformedReason.WILL_FLAGS_WITHOUT_WILL),
        ("will-missing", MalformedReason.CONNECT_PAYLOAD_MISMATCH),
        ("password-missing", MalformedReason.CONNECT_PAYLOAD_MISMATCH),
        ("password-unannounced", MalformedReason.CONNECT_PAYLOAD_MISMATCH),
    ],
)
def test_what_is_wrong_with_it(slug: str, reason: MalformedReason) -> None:
    found = decode(packet_of(f"connect:{slug}", V3_1_1))

    assert isinstance(found, Malformed)
    assert found.reason is reason


def test_an_unknown_level_binds_the_server_alone() -> None:
    one = mutation("connect:protocol-level-6")

    assert one.verdict(V3_1_1) is Verdict.OPEN
    assert one.reaction_in(V3_1_1).demand is Demand.CLOSE
    assert one.demanded_by(V3_1_1) == ("3.1.1 MQTT-3.1.2-2",)


def test_a_password_alone_is_legal_in_5_0() -> None:
    found = decode(packet_of("connect:password-without-user-name"), V5)

    assert (found.user_name, found.password) == (None, b"password")  # type: ignore[union-attr]
    assert mutation("connect:password-without-user-name").verdict(V5) is Verdict.LEGAL
    assert mutation("connect:password-without-user-name").verdict(V3_1) is Verdict.VIOLATION


def test_every_field_at_once_is_well_formed() -> None:
    for version in (V3_1, V3_1_1, V5):
        found = decode(packet_of("connect:every-field", version, sender=CLIENT))
        assert not isinstance(found, Malformed)
        assert found.will is not None  # type: ignore[attr-defined]
