"""Recorded packets fitted to a live server, one at a time."""

from __future__ import annotations

from typing import Any

from mqttscope.mqtt import Connect, ControlPacket, Properties, Publish, decode
from mqttscope.replay.client import adapt
from mqttscope.replay.script import ScriptEntry
from mqttscope.session.connection import Connection
from tests.each import each
from tests.replay.recordings import V5
from tests.replay.talk import said_bytes


def connection(**limits: object) -> Connection:
    """A connection whose server announced these."""
    new_connection = Connection(0, "", "", "x", 0, 0, handshake_seen=True, version=V5)
    for name, value in limits.items():
        target = new_connection if hasattr(new_connection, name) else new_connection.server_side
        setattr(target, name, value)
    new_connection.server_side.limits_known = True
    return new_connection


def entry(words: str, topic: str | None = None) -> ScriptEntry:
    raw = said_bytes("given", words)
    packet = decode(raw, V5)
    assert isinstance(packet, ControlPacket)
    return ScriptEntry(True, packet, topic, 0, 0, raw=raw)


@each(
    "words, limits, field, value",
    [
        ("publish t qos=2 id=1", {"maximum_qos": 1}, "qos", 1),
        ("publish t qos=1 id=1", {"maximum_qos": 0}, "packet_identifier", None),
        ("publish t retain", {"retain_available": False}, "retain", False),
    ],
)
def test_limits_of_messages(words: str, limits: dict[str, object], field: str, value: object) -> None:
    recorded = entry(words, "t")
    fitted = adapt.publish(recorded, connection(**limits), connection())

    assert getattr(fitted.packet, field) == value
    assert decode(fitted.raw, V5) == fitted.packet
    assert len(fitted.notes) == 1
    # Who broke the limit in the recording does so again.
    assert adapt.publish(recorded, connection(**limits), connection(**limits)).raw == recorded.raw


def test_aliases_that_the_server_does_not_take_are_written_out() -> None:
    recorded = entry("publish - topic_alias=3", "long/topic")
    fitted = adapt.publish(recorded, connection(topic_alias_maximum=2), connection(topic_alias_maximum=5))

    assert isinstance(fitted.packet, Publish)
    assert (fitted.packet.topic_name, fitted.packet.properties) == ("long/topic", Properties())


@each(
    "words, topic, now, then, is_refused",
    [
        # Nobody knows the topic of the alias.
        ("publish - topic_alias=3", None, {}, {"topic_alias_maximum": 5}, True),
        # A packet that is too long is refused unless it was too long before.
        (f"publish t {'x' * 100}", "t", {"maximum_packet_size": 50}, {}, True),
        (f"publish t {'x' * 100}", "t", {"maximum_packet_size": 50}, {"maximum_packet_size": 60}, False),
    ],
)
def test_what_cannot_be_sent(words: str, topic: str | None, now: Any, then: Any, is_refused: bool) -> None:
    fitted = adapt.publish(entry(words, topic), connection(**now), connection(**then))
    assert (fitted.refused is not None) is is_refused


def test_subscriptions() -> None:
    recorded = entry("subscribe 1 $share/g/a/#:0 subscription_identifier=7")
    for name in ("wildcard_subscription_available", "shared_subscription_available"):
        assert adapt.subscribe(recorded, connection(**{name: False}), connection()).refused is not None
    fitted = adapt.subscribe(recorded, connection(subscription_identifier_available=False), connection())

    assert fitted.packet.properties == Properties()  # type: ignore[attr-defined]
    assert adapt.subscribe(recorded, connection(), connection()).raw == recorded.raw


def test_who_connects() -> None:
    recorded = entry("connect")
    fitted = adapt.connect(recorded, {"given": "assigned"}, "ada", b"secret")
    whole = decode(fitted.raw, V5)

    assert isinstance(whole, Connect)
    assert (whole.client_identifier, whole.user_name, whole.password) == ("assigned", "ada", b"secret")
    assert not any("secret" in note.text for note in fitted.notes)
    assert adapt.connect(recorded, {}).raw == recorded.raw


def test_identifiers() -> None:
    recorded = entry("publish t qos=1 id=7", "t")
    changed = adapt.identified(adapt.publish(recorded, connection(), connection()), 8, V5)

    assert decode(changed.raw, V5).packet_identifier == 8  # type: ignore[union-attr]
    assert recorded.packet.packet_identifier == 7  # type: ignore[union-attr]
