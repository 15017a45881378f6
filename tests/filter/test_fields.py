"""Fields come from the declarations, and none of them raises on any event."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope import filter as filters
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.filter import FieldKind, lookup, names
from mqttscope.filter.fields import common_fields, packet_fields, split_endpoint
from mqttscope.filter.parser import RESERVED
from mqttscope.mqtt import Malformed, PacketType, ProtocolVersion, Subscription, Will, decode
from mqttscope.mqtt.constants import MalformedReason, type_name
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.properties import LISTS, PROPERTIES, WILL
from mqttscope.mqtt.view import view
from tests.conftest import THOROUGH
from tests.each import each
from tests.filter.samples import C2S, SAMPLES, START_NS, five, old

DECLARED = [(cls, row) for cls in PACKETS.values() for row in cls.declaration]
LITERALS = {
    FieldKind.FLAG: "true",
    FieldKind.NUMBER: "1",
    FieldKind.TEXT: '"a"',
    FieldKind.BYTES: '"a"',
    FieldKind.VERSION: "5.0",
    FieldKind.TIME: "+1s",
    FieldKind.ENDPOINT: "10.0.0.4:51234",
    FieldKind.ADDRESS: "10.0.0.4",
}


def questions() -> Iterator[str]:
    """Expressions that between them use every field with every operator that applies to it."""
    for name in names():
        field = lookup(name)
        assert field is not None
        yield f"exists {name}"
        if field.kind in (FieldKind.SECRET, FieldKind.PAIRS):
            continue
        if field.kind is FieldKind.PRESENCE:
            yield name
            continue
        value = LITERALS.get(field.kind) or next(iter(field.words))
        yield f"{name} == {value}"
        yield f"{name} != {value}"
        if field.kind is FieldKind.NUMBER:
            yield f"{name} < {value} or {name} in 2..3 or {name} not in {{1, 5}}"
        elif field.kind in (FieldKind.TEXT, FieldKind.BYTES, FieldKind.WORD):
            yield f"{name} contains 'a' or {name} startswith 'a' or {name} endswith 'a' or {name} like 'a'"
        if field.kind in (FieldKind.TEXT, FieldKind.BYTES):
            yield f"{name}.length > 1"
        if field.topic:
            yield f"{name} matches '+/#'"
        if field.many:
            yield f"{name}.count > 1"
    for name in ("user_property", "publish.properties.user_property"):
        yield f'{name}["k"] == "v"'
        yield f"{name}.count == 1"


COMPILED = {text: filters.compile(text) for text in questions()}


def test_every_operator_of_every_field_answers_for_every_sample() -> None:
    assert len(COMPILED) > 1_000
    for text, compiled in COMPILED.items():
        for event in SAMPLES.values():
            assert isinstance(compiled.matches(event), bool), text


@each("cls, row", DECLARED, ids=[f"{type_name(cls.packet_type)}.{row.name}" for cls, row in DECLARED])
def test_every_declared_field_has_a_qualified_and_a_short_name(cls: type, row: object) -> None:
    name = row.name  # type: ignore[attr-defined]
    kind = type_name(cls.packet_type)  # type: ignore[attr-defined]
    assert lookup(f"{kind}.{name}") is not None
    assert lookup(name) is not None


@each("row", PROPERTIES, ids=[row.name for row in PROPERTIES])
def test_every_property_has_a_name_of_its_own_and_one_in_each_packet_that_may_carry_it(row: object) -> None:
    name, owners = row.name, row.packets  # type: ignore[attr-defined]
    assert lookup(name) is not None
    assert lookup(f"properties.{name}") is not None
    for number in PacketType:
        field = lookup(f"{type_name(number)}.properties.{name}")
        assert (field is not None) is (number in owners)
    assert (lookup(f"connect.will.properties.{name}") is not None) is (WILL in owners)


def test_every_part_of_a_will_and_of_a_subscription_has_its_names() -> None:
    for field in dataclasses.fields(Will):
        assert lookup(f"connect.will.{field.name}") is not None
        assert lookup(f"will.{field.name}") is not None
    for field in dataclasses.fields(Subscription):
        assert lookup(f"subscribe.subscriptions.{field.name}") is not None
        assert lookup(field.name) is not None


def test_every_packet_type_and_malformed_reason_is_a_word() -> None:
    for number in PacketType:
        filters.compile(f"type == {type_name(number)} and {type_name(number)}")
    for reason in MalformedReason:
        filters.compile(f"malformed.reason == {reason}")


def test_names_that_mean_the_connection_rather_than_the_packet() -> None:
    overridden = {common_field.name for common_field in common_fields()} & {
        packet_field.name for packet_field in packet_fields()
    }
    assert overridden == {"client_identifier", "user_name"}


def test_no_field_is_named_like_a_keyword() -> None:
    assert not RESERVED & set(names())


def test_names_are_those_of_the_json_form() -> None:
    for event in SAMPLES.values():
        if isinstance(event, PacketEvent):
            kind = event.type
            for key, value in view(event.packet, event.connection.version).items():
                assert lookup(f"{kind}.{key}") is not None, (kind, key)
                if key == "properties":
                    for inner in value:
                        assert lookup(f"{kind}.properties.{inner}") is not None, (kind, inner)


def test_short_names_select_what_the_json_form_shows() -> None:
    for event in SAMPLES.values():
        if not isinstance(event, PacketEvent):
            continue
        for key, value in view(event.packet, event.connection.version).items():
            name = f"{event.type}.{key}"
            if isinstance(value, bool | int | str):
                assert filters.compile(f"{name} == {json.dumps(value)}").matches(event), (name, value)
            elif value is None:
                assert not filters.compile(f"exists {name}").matches(event), name
            elif key in ("payload", "password"):
                assert filters.compile(f"exists {name}").matches(event), name


def test_properties_that_come_twice_are_compared_one_by_one() -> None:
    raw = bytes.fromhex("30 0c 00 01 61 06 23 00 01 23 00 02 68 69")
    packet = decode(raw, ProtocolVersion.V5)
    assert not isinstance(packet, Malformed)
    event = PacketEvent(five, C2S, 0, 1, START_NS, "a.pcap", packet, "a")
    for expression in ("topic_alias == 1", "topic_alias == 2", "topic_alias.count == 2", "topic_alias != 3"):
        assert filters.compile(expression).matches(event), expression
    assert not filters.compile("topic_alias != 2").matches(event)
    assert {row.name for row in PROPERTIES} >= LISTS


@settings(max_examples=250 if THOROUGH else 125, deadline=None)
@given(
    kind=st.integers(0, 15),
    flags=st.integers(0, 15),
    body=st.binary(max_size=60),
    five_spoken=st.booleans(),
)
def test_no_field_raises_on_whatever_the_decoder_makes_of_bytes(
    kind: int, flags: int, body: bytes, five_spoken: bool
) -> None:
    connection = five if five_spoken else old
    raw = bytes((kind << 4 | flags, len(body))) + body
    packet = decode(raw, connection.version)
    event: Event
    if isinstance(packet, Malformed):
        event = MalformedEvent(connection, C2S, 0, 1, START_NS, "a.pcap", packet, None)
    else:
        event = PacketEvent(connection, C2S, 0, 1, START_NS, "a.pcap", packet, None)
    for compiled in COMPILED.values():
        compiled.matches(event)


CONNECT = bytes.fromhex(
    "10 35 0004 4d515454 05 c6 003c 05 11 00000010 0002 6331 06 26 0001 61 0001"  # will properties cut short on purpose
    "62 0003 742f61 0002 6869 0001 75 0001 70 000000000000000000000000000000"
)


@each("length", range(2, len(CONNECT) + 1))
def test_no_field_raises_on_a_connect_that_ends_anywhere(length: int) -> None:
    for raw in (CONNECT[:length], bytes((0x10, length - 2)) + CONNECT[2:length]):
        packet = decode(raw, five.version)
        assert isinstance(packet, Malformed)
        event = MalformedEvent(five, C2S, 0, 1, START_NS, "a.pcap", packet, None)
        for compiled in COMPILED.values():
            compiled.matches(event)


@pytest.mark.parametrize(
    ("endpoint", "parts"),
    [
        ("10.0.0.4:51234", ("10.0.0.4", "51234")),
        ("[fd00::1]:1883", ("fd00::1", "1883")),
        ("broker.example:8883", ("broker.example", "8883")),
        ("10.0.0.4", ("10.0.0.4", "")),
        ("fd00::1", ("fd00::1", "")),
        ("[fd00::1]", ("fd00::1", "")),
        ("host:", ("host:", "")),
        ("", ("", "")),
    ],
    ids=["IPv4", "IPv6", "a name", "IPv4 alone", "IPv6 alone", "IPv6 in brackets alone", "an empty port", "nothing"],
)
def test_address_and_port_of_an_endpoint(endpoint: str, parts: tuple[str, str]) -> None:
    assert split_endpoint(endpoint) == parts


def test_remaining_length_is_absent_where_the_fixed_header_cannot_be_read() -> None:
    for raw in ("30 ff ff ff ff 01", "30 80", "30"):
        packet = decode(bytes.fromhex(raw), five.version)
        assert isinstance(packet, Malformed)
        event = MalformedEvent(five, C2S, 0, 1, START_NS, "a.pcap", packet, None)
        assert not filters.compile("exists remaining_length").matches(event)
        assert filters.compile("exists length").matches(event)


def test_the_length_of_a_malformed_packet_counts_what_the_capture_lacks() -> None:
    sample = next(event for event in SAMPLES.values() if isinstance(event, MalformedEvent))
    malformed = Malformed(MalformedReason.TRUNCATED, 3, "", "", b"\x30\x05\x00", missing=4)
    event = dataclasses.replace(sample, malformed=malformed)

    assert filters.compile("length == 7").matches(event)
    assert not filters.compile("length == 3").matches(event)
