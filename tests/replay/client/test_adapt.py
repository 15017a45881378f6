"""Recorded packets fitted to a live server, one at a time."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import (
    Connect,
    ControlPacket,
    Properties,
    ProtocolVersion,
    Publish,
    Subscribe,
    Subscription,
    decode,
    encode,
)
from mqttscope.replay.client import adapt
from mqttscope.replay.script import Entry
from mqttscope.session.connection import Connection
from tests.replay.recordings import V5, connect, publish


def connection(**limits: object) -> Connection:
    """A connection whose server announced these."""
    made = Connection(0, "", "", "x", 0, 0, handshake_seen=True, version=V5)
    for name, value in limits.items():
        target = made if hasattr(made, name) else made.server_side
        setattr(target, name, value)
    made.server_side.limits_known = True
    return made


def entry(packet: ControlPacket, topic: str | None = None, version: ProtocolVersion = V5) -> Entry:
    raw = encode(packet, version)
    whole = decode(raw, version)
    assert isinstance(whole, ControlPacket)
    return Entry(True, whole, topic, 0, 0, raw=raw)


@pytest.mark.parametrize(
    ("packet", "limits", "field", "value"),
    [
        (publish("t", qos=2, packet_identifier=1), {"maximum_qos": 1}, "qos", 1),
        (publish("t", qos=1, packet_identifier=1), {"maximum_qos": 0}, "packet_identifier", None),
        (publish("t", retain=True), {"retain_available": False}, "retain", False),
    ],
)
def test_limits_of_messages(packet: Publish, limits: dict[str, object], field: str, value: object) -> None:
    recorded = entry(packet, "t")
    fitted = adapt.publish(recorded, connection(**limits), connection())

    assert getattr(fitted.packet, field) == value
    assert decode(fitted.raw, V5) == fitted.packet
    assert len(fitted.notes) == 1
    # Who broke the limit in the recording does so again.
    assert adapt.publish(recorded, connection(**limits), connection(**limits)).raw == recorded.raw


def test_aliases_that_the_server_does_not_take_are_written_out() -> None:
    recorded = entry(publish("", properties=Properties(topic_alias=3)), "long/topic")
    fitted = adapt.publish(recorded, connection(topic_alias_maximum=2), connection(topic_alias_maximum=5))

    assert isinstance(fitted.packet, Publish)
    assert (fitted.packet.topic_name, fitted.packet.properties) == ("long/topic", Properties())


def test_an_alias_of_which_nobody_knows_the_topic_cannot_be_sent() -> None:
    recorded = entry(publish("", properties=Properties(topic_alias=3)))

    assert adapt.publish(recorded, connection(), connection(topic_alias_maximum=5)).refused is not None


def test_packets_that_are_too_long_are_refused_unless_they_were_before() -> None:
    recorded = entry(publish("t", payload=bytes(100)), "t")

    assert adapt.publish(recorded, connection(maximum_packet_size=50), connection()).refused is not None
    assert (
        adapt.publish(recorded, connection(maximum_packet_size=50), connection(maximum_packet_size=60)).refused is None
    )


def test_subscriptions() -> None:
    packet = Subscribe(1, Properties(subscription_identifier=[7]), [Subscription("$share/g/a/#", 0)])
    recorded = entry(packet)
    refused = [
        adapt.subscribe(recorded, connection(**{name: False}), connection()).refused
        for name in ("wildcard_subscription_available", "shared_subscription_available")
    ]
    fitted = adapt.subscribe(recorded, connection(subscription_identifier_available=False), connection())

    assert all(one is not None for one in refused)
    assert fitted.packet.properties == Properties()  # type: ignore[attr-defined]
    assert adapt.subscribe(recorded, connection(), connection()).raw == recorded.raw


def test_who_connects() -> None:
    recorded = entry(connect("given"))
    fitted = adapt.connect(recorded, {"given": "assigned"}, "ada", b"secret")
    whole = decode(fitted.raw, V5)

    assert isinstance(whole, Connect)
    assert (whole.client_identifier, whole.user_name, whole.password) == ("assigned", "ada", b"secret")
    assert not any("secret" in note.text for note in fitted.notes)
    assert adapt.connect(recorded, {}).raw == recorded.raw


def test_identifiers() -> None:
    recorded = entry(publish("t", qos=1, packet_identifier=7), "t")
    fitted = adapt.publish(recorded, connection(), connection())
    changed = adapt.identified(fitted, 8, V5)

    assert decode(changed.raw, V5).packet_identifier == 8  # type: ignore[union-attr]
    assert recorded.packet.packet_identifier == 7  # type: ignore[union-attr]
