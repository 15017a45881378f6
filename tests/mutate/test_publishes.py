"""PUBLISH."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Malformed, MalformedReason, Publish, decode
from mqttscope.mutate import NotApplicableError, Verdict, mutation
from mqttscope.mutate.flow import CLIENT, SERVER
from tests.mutate.talk import V3_1, V5, good, limited, packet_of


def publish(name: str, **more: object) -> Publish:
    """The mutated packet."""
    found = decode(packet_of(name, **more), V5)  # type: ignore[arg-type]
    assert isinstance(found, Publish)
    return found


def test_qos_3() -> None:
    found = decode(packet_of("publish:qos-3"), V5)

    assert isinstance(found, Malformed)
    assert found.reason is MalformedReason.QOS_INVALID


def test_dup_at_qos_0() -> None:
    found = publish("publish:dup-with-qos-0")

    assert (found.dup, found.qos, found.packet_identifier) == (True, 0, None)
    assert mutation("publish:dup-with-qos-0").verdict(V3_1) is Verdict.LEGAL


def test_aliases_at_and_above_the_limit_of_the_receiver() -> None:
    assert publish("publish.topic_alias:at-maximum").properties.topic_alias == 5  # type: ignore[union-attr]
    assert publish("publish.topic_alias:above-maximum").properties.topic_alias == 6  # type: ignore[union-attr]
    assert publish("publish.topic_alias:above-maximum", sender=SERVER).properties.topic_alias == 6  # type: ignore[union-attr]
    with pytest.raises(NotApplicableError):
        publish("publish.topic_alias:at-maximum", flow=limited())


def test_what_the_server_announced_not_to_have() -> None:
    assert publish("publish.qos:above-maximum", flow=limited()).qos == 1
    assert publish("publish.retain:not-available", flow=limited()).retain
    assert len(packet_of("publish:maximum-packet-size-exceeded", flow=limited())) > 1_000
    for name in ("publish.qos:above-maximum", "publish.retain:not-available", "publish:maximum-packet-size-exceeded"):
        with pytest.raises(NotApplicableError):
            publish(name, flow=good(V5))


def test_statements_are_those_of_the_sender() -> None:
    one = mutation("publish.topic_alias:above-maximum")

    assert "5.0 MQTT-3.3.2-9" in one.broken(V5, CLIENT)
    assert "5.0 MQTT-3.3.2-11" in one.broken(V5, SERVER)


def test_every_property_at_once() -> None:
    assert len(publish("publish:every-property").properties) >= 6  # type: ignore[arg-type]
