"""Packets of other versions."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connect, Malformed, MalformedReason, ProtocolVersion, decode
from mqttscope.mutate import NotApplicable, Verdict, mutation
from mqttscope.mutate.flow import SERVER
from tests.mutate.talk import V3_1, V3_1_1, V5, good, packet_of


@pytest.mark.parametrize("name", ["puback", "pubrec", "pubcomp", "disconnect"])
def test_an_acknowledgement_as_in_5_is_too_long_before(name: str) -> None:
    raw = packet_of(f"{name}:layout-of-5.0", V3_1_1)
    before, five = decode(raw, V3_1_1), decode(raw, V5)

    assert isinstance(before, Malformed)
    assert before.reason is MalformedReason.REMAINING_LENGTH_WRONG
    assert five.reason_code == 0  # type: ignore[union-attr]
    assert mutation(f"{name}:layout-of-5.0").verdict(V3_1_1) is Verdict.VIOLATION
    assert mutation(f"{name}:layout-of-5.0").verdict(V3_1) is Verdict.OPEN


@pytest.mark.parametrize("name", ["publish", "subscribe", "unsubscribe"])
def test_a_packet_as_in_5_has_a_property_length_more(name: str) -> None:
    raw = packet_of(f"{name}:layout-of-5.0", V3_1)
    found = decode(raw, V5)

    assert not isinstance(found, Malformed)
    assert found.properties is not None  # type: ignore[attr-defined]
    assert not found.properties  # type: ignore[attr-defined]


def test_a_suback_as_in_5_has_a_code_more() -> None:
    found = decode(packet_of("suback:layout-of-5.0", V3_1_1, sender=SERVER), V3_1_1)

    assert found.reason_codes == [0, 2, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("version", list(ProtocolVersion), ids=lambda one: str(one.text))
def test_a_connect_of_another_version_is_well_formed(version: ProtocolVersion) -> None:
    for recorded in ProtocolVersion:
        if recorded is version:
            with pytest.raises(NotApplicable):
                packet_of(f"connect:of-{version.text}", recorded)
            continue
        found = decode(packet_of(f"connect:of-{version.text}", recorded), recorded)

        assert isinstance(found, Connect)
        assert found.version is version
        assert found.protocol_name == ("MQIsdp" if version is V3_1 else "MQTT")


def test_a_password_does_not_stay_alone_before_5() -> None:
    flow = good(V5)
    flow.entries[0].packet.password = b"password"  # type: ignore[union-attr]
    found = decode(packet_of("connect:of-3.1.1", flow=flow), V3_1_1)

    assert isinstance(found, Connect)
    assert found.password is None
