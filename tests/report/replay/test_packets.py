"""Packets of replays as events, as plain values, and as fields: without secrets."""

from __future__ import annotations

import pytest

from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.replay.script import Entry, Script
from mqttscope.report.base import View
from mqttscope.report.replay.packets import concealed, event_of, fields_of, plain, type_of
from tests.replay.talk import record

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


def one(line: str) -> tuple[Entry, Script]:
    (script,) = record(f"dev {line}")
    return script.entries[0], script


def test_the_fields_of_a_delivery() -> None:
    fields = fields_of(*one("< publish a/b on qos=1 id=3 user_property=k:v correlation_data=\x01"), View())

    assert fields == {
        "topic": "a/b", "dup": "false", "qos": "1", "retain": "false", "packet_identifier": "3",
        "properties.user_property[0]": "k: v", "properties.correlation_data": "hex:01", "payload": "on",
    }  # fmt: skip


def test_reason_codes_have_their_names() -> None:
    assert fields_of(*one("< suback 1 0 0x87"), View()) == {
        "packet_identifier": "1",
        "reason_codes[0]": "0x00 Granted QoS 0",
        "reason_codes[1]": "0x87 Not authorized",
    }
    assert fields_of(*one("< puback 1"), View())["reason_code"] == "0x00 Success"


def test_an_alias_is_resolved_beside_its_topic_name() -> None:
    (script,) = record("dev < publish a x topic_alias=1\ndev < publish - y topic_alias=1")
    fields = fields_of(script.entries[1], script, View())

    assert (fields["topic"], fields["topic_name"], fields["properties.topic_alias"]) == ("a", "", "1")


def test_secrets_are_hidden() -> None:
    connect = fields_of(*one("> connect password=hush-hush"), View())
    assert connect["password"] == "9 bytes, hidden"
    assert fields_of(*one("> connect password=hush-hush"), View(show_secrets=True))["password"] == "hush-hush"
    auth = fields_of(*one("< auth authentication_data=hush-hush"), View())
    assert auth["properties.authentication_data"] == "9 bytes, hidden"
    message = fields_of(*one(f"< publish a {TOKEN} user_property=password:hush-hush"), View())
    assert "hush" not in str(message)
    assert TOKEN[10:] not in str(message)


def test_a_packet_that_cannot_be_read() -> None:
    entry, script = one("< raw 36070003612f620001")

    assert type_of(entry) == "MALFORMED PUBLISH"
    assert fields_of(entry, script, View())["reason"] == "qos_invalid"
    assert isinstance(event_of(entry, script), MalformedEvent)
    assert type_of(one("< raw 0000")[0]) == "MALFORMED RESERVED"


def test_a_packet_that_was_made_gets_its_bytes() -> None:
    entry, script = one("< publish a x")
    raw, entry.packet.raw = entry.packet.raw, b""
    event = event_of(entry, script)

    assert isinstance(event, PacketEvent)
    assert event.packet.raw == raw
    assert entry.packet.raw == b""


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("reason_code", 5, 5),
        ("qos", None, None),
        ("properties.content_type", "json", "json"),
        ("properties.content_type", None, None),
        ("properties.correlation_data", b"\x01", {"length": 1, "hex": "01"}),
        ("properties.authentication_data", b"hush", {"length": 4, "redacted": True}),
        ("properties.user_property", (("a", "b"), ("token", "hush")), [
            {"name": "a", "value": "b"}, {"name": "token", "value": "***"}]),
        ("properties.subscription_identifier", (1, 2), [1, 2]),
        ("properties.receive_maximum", (1, 2), [1, 2]),
        ("payload", b"on", {"length": 2, "text": "on"}),
        ("payload", bytes(30), {"length": 30, "hex": "00" * 30}),
        ("ending.by", "server", "server"),
        ("reason_codes", [0, 1], [0, 1]),
    ],
)  # fmt: skip
def test_values_of_differences_are_plain(field: str, value: object, shown: object) -> None:
    assert plain(field, value, View()) == shown


def test_secrets_may_be_asked_for() -> None:
    assert concealed({"name": "token", "value": "hush"}, View(show_secrets=True)) == {"name": "token", "value": "hush"}
