"""Packets of public test suites as facts: bytes, and what the suite says they mean.

Small ones of permissive licences are in tests/data, others in the corpora.  Where a row and the standard disagree the
standard wins; such rows are listed here with the reason.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqttscope.mqtt import (
    Connect,
    ControlPacket,
    Malformed,
    MalformedReason,
    PacketStream,
    Properties,
    ProtocolVersion,
    Publish,
    Subscribe,
    decode,
    encode,
)
from mqttscope.mqtt.properties import LISTS, property_name
from tests import corpora
from tests.mqtt.checks import assert_sound, run

SOURCES = [
    "gmqtt", "hbmqtt", "mochi", "mqtt-packet", "mqttnet", "mqttproto", "rumqtt", "vernemq",
    *(
        pytest.param(name, marks=corpora.needs(f"vectors/{name}.jsonl"))
        for name in ("mosquitto-client", "scapy", "suricata-parser")
    ),
]  # fmt: skip
SEQUENCES = "mosquitto-sequences"

STANDARD_WINS: dict[tuple[str, str, str], str] = {
    (
        "mqtt-packet",
        "Cannot parse username",
        "102000064d514973647003f6001e0005746f70696300077061796c6f616400020000",
    ): "a CONNECT of 3.1 may announce a user name and leave it out (3.1, section 3.1, User name and password flags)",
}
"""Rows by file, case and hex, with the reason why the standard wins."""

STANDARD_CALLS_MALFORMED = {
    MalformedReason.PROPERTY_NOT_ALLOWED: "5.0 section 2.2.2.2: an identifier not valid for its packet type",
}
"""Protocol Errors of the source's checker that are Malformed Packets in the standard."""


def rows(name: str) -> list[dict[str, Any]]:
    result = [json.loads(line) for line in corpora.path("vectors", f"{name}.jsonl").read_text("utf-8").splitlines()]
    assert result, f"{name}.jsonl is empty"
    return result


def version_of(row: dict[str, Any]) -> ProtocolVersion:
    """The version of a row; a source that does not care is read as 3.1.1."""
    return ProtocolVersion(row["version"] or 4)


@pytest.mark.parametrize("name", SOURCES)
def test_valid_packets_decode_with_the_fields_the_source_states(name: str) -> None:
    valid = [row for row in rows(name) if row["scope"] == "valid"]
    assert valid or name == "vernemq"
    for row in valid:
        raw, version = bytes.fromhex(row["hex"]), version_of(row)
        packet = assert_sound(raw, version)
        assert isinstance(packet, ControlPacket), row
        version = packet.version if isinstance(packet, Connect) else version
        assert encode(packet, version) == raw, row
        assert packet.packet_type.name.lower() == row["expect"]["packet"], row
        for key, value in row["expect"].items():
            if key != "packet":
                assert stated(packet, key) == normal(key, value), (key, row)


@pytest.mark.parametrize("name", SOURCES)
def test_packets_that_are_invalid_as_bytes_are_malformed(name: str) -> None:
    for row in rows(name):
        category = row["ref"].get("category")
        packet = assert_sound(bytes.fromhex(row["hex"]), version_of(row))
        excused = (name, row["case"], row["hex"]) in STANDARD_WINS
        if row["scope"] == "codec" and category == "malformed":
            assert isinstance(packet, Malformed) != excused, row
        elif row["scope"] == "codec" and isinstance(packet, Malformed):
            assert packet.reason in STANDARD_CALLS_MALFORMED, row


def test_every_exception_still_exists() -> None:
    for name, case, text in STANDARD_WINS:
        assert any((row["case"], row["hex"]) == (case, text) for row in rows(name))


@pytest.mark.parametrize("name", SOURCES)
def test_a_stream_says_of_a_single_packet_what_the_decoder_says(name: str) -> None:
    for row in rows(name):
        raw, version = bytes.fromhex(row["hex"]), version_of(row)
        packet = decode(raw, version)
        items = run([raw[at : at + 1] for at in range(len(raw))], PacketStream(version))
        if isinstance(packet, ControlPacket):
            assert items == [packet], row
        else:
            assert b"".join(packet.raw for packet in items) == raw


@corpora.needs(f"vectors/{SEQUENCES}.jsonl")
def test_conversations_run_through_streams() -> None:
    conversations = rows(SEQUENCES)
    assert len(conversations) > 1000
    for row in conversations:
        version = ProtocolVersion(row["version"])
        sides = {"send": PacketStream(version), "recv": PacketStream(version)}
        argument = {"send": b"", "recv": b""}
        for step in row["steps"]:
            if step["op"] in sides and step.get("hex"):
                raw = bytes.fromhex(step["hex"])
                sides[step["op"]].feed(raw)
                argument[step["op"]] += raw
        for side, raw in argument.items():
            sides[side].close()
            items = run([raw[at : at + 3] for at in range(0, len(raw), 3)], PacketStream(version))
            assert b"".join(packet.raw for packet in items) == raw


ATTRIBUTES = {
    "packet_id": "packet_identifier",
    "topic": "topic_name",
    "client_id": "client_identifier",
    "username": "user_name",
    "bridge_mode": "bridge",
    "filters": "topic_filters",
}


def stated(packet: ControlPacket, key: str) -> Any:
    """What a packet says where the source says ``key``, in the source's form."""
    if key == "payload_hex":
        assert isinstance(packet, Publish)
        return packet.payload.hex()
    if key == "password_hex":
        assert isinstance(packet, Connect)
        return packet.password.hex() if packet.password is not None else None
    if key == "properties":
        return properties_of(getattr(packet, "properties"))  # noqa: B009
    if key == "will":
        assert isinstance(packet, Connect)
        if packet.will is None:
            return None
        will = packet.will
        return {
            "topic": will.will_topic,
            "payload_hex": will.will_payload.hex(),
            "qos": will.will_qos,
            "retain": will.will_retain,
            "properties": properties_of(will.properties),
        }
    if key == "subscriptions":
        assert isinstance(packet, Subscribe)
        return [
            {
                "filter": subscription.topic_filter,
                "qos": subscription.maximum_qos,
                "no_local": subscription.no_local,
                "retain_as_published": subscription.retain_as_published,
                "retain_handling": subscription.retain_handling,
            }
            for subscription in packet.subscriptions
        ]
    value = getattr(packet, ATTRIBUTES.get(key, key))
    if key == "reason_code" and value is None:
        return 0
    return bool(value) if key == "session_present" else value


def properties_of(block: Properties | None) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for number, value in block.items if block is not None else ():
        name = property_name(number)
        if name in LISTS:
            shown.setdefault(name, []).append(list(value) if isinstance(value, tuple) else value)
        else:
            shown[f"{name}_hex" if isinstance(value, bytes) else name] = (
                value.hex() if isinstance(value, bytes) else value
            )
    return shown


def normal(key: str, value: Any) -> Any:
    """A value of the source with what it leaves unsaid."""
    if key == "properties":
        return normal_properties(value or {})
    if key == "will" and value is not None:
        return {**value, "properties": normal_properties(value.get("properties") or {})}
    if key == "subscriptions":
        unsaid = {"qos": 0, "no_local": False, "retain_as_published": False, "retain_handling": 0}
        return [
            unsaid | {name: each for name, each in row.items() if name != "subscription_identifier"} for row in value
        ]
    return value


def normal_properties(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value if name not in LISTS or isinstance(value, list) else [value] for name, value in block.items()}
