"""The catalogue of fields agrees with the classes, with table 2-4 and with the spans of real packets."""

from __future__ import annotations

import dataclasses
import re

import pytest

from mqttscope.mqtt import ControlPacket, PacketType, Properties, Subscription, Will, decode, trace
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.fields import BITS, PacketField, all_fields, fields_of, members_of
from mqttscope.mqtt.properties import PROPERTIES, WILL
from tests.mqtt.case import V3_1, V3_1_1, V5
from tests.mqtt.cases import CASES

FIXED_HEADER = {"packet_type", "flags", "header_flags", "remaining_length", "dup", "qos", "retain"}
"""Spans and fields of the first bytes of a packet."""
BY_KEY = {field.key: field for field in all_fields()}
EVERY_PACKET_HAS = {field.name for field in dataclasses.fields(ControlPacket)}


def attributes(cls: type) -> list[str]:
    """Attributes of a class that stand for something on the wire."""
    return [field.name for field in dataclasses.fields(cls) if field.name not in EVERY_PACKET_HAS]


@pytest.mark.parametrize("kind", PacketType)
def test_the_members_of_a_packet_are_its_attributes_in_their_order(kind: PacketType) -> None:
    assert [member.name for member in members_of(kind)] == attributes(PACKETS[kind])
    assert all(field.packet is PACKETS[kind] for field in fields_of(kind))


def test_the_members_of_parts_are_the_attributes_of_their_classes() -> None:
    assert [member.name for member in members_of(PacketType.CONNECT, "will")] == attributes(Will)
    assert [member.name for member in members_of(PacketType.SUBSCRIBE, "subscriptions[]")] == attributes(Subscription)


def test_a_part_comes_before_its_fields_and_no_path_comes_twice() -> None:
    for kind in PacketType:
        paths = [field.path for field in fields_of(kind)]
        assert len(set(paths)) == len(paths)
        for path in paths:
            part = path.rpartition(".")[0]
            assert not part or paths.index(part) < paths.index(path)


def test_properties_are_where_table_2_4_allows_them() -> None:
    pairs = {(field.owner, field.name) for field in all_fields() if field.row is not None}
    blocks = [field.owner for field in all_fields() if field.value_type is Properties]

    assert pairs == {(owner, row.name) for row in PROPERTIES for owner in row.packets}
    assert sorted(blocks) == sorted({owner for row in PROPERTIES for owner in row.packets})
    assert WILL in blocks


def test_what_is_secret() -> None:
    assert {field.key for field in all_fields() if field.secret} == {
        "connect.password",
        "connect.properties.authentication_data",
        "connack.properties.authentication_data",
        "auth.properties.authentication_data",
    }


@pytest.mark.parametrize(
    ("key", "path", "value_type", "wire"),
    [
        ("publish.qos", "qos", int, BITS),
        ("publish.retain", "retain", bool, BITS),
        ("publish.payload", "payload", bytes, "rest of the packet"),
        ("connack.session_present", "session_present", bool, BITS),
        ("connect.will", "will", Will, "Will"),
        ("connect.will.properties", "will.properties", Properties, "Properties"),
        ("connect.will.will_retain", "will.will_retain", bool, BITS),
        ("publish.properties.user_property", "properties.user_property", tuple, "UTF-8 String Pair"),
        ("subscribe.subscriptions", "subscriptions[]", Subscription, "subscriptions"),
        ("subscribe.subscriptions.topic_filter", "subscriptions[].topic_filter", str, "UTF-8 Encoded String"),
        ("unsubscribe.topic_filters", "topic_filters[]", str, "UTF-8 Encoded String"),
        ("suback.reason_codes", "reason_codes[]", int, "Byte"),
    ],
)
def test_paths_and_types(key: str, path: str, value_type: type, wire: str) -> None:
    field = BY_KEY[key]

    assert (field.path, field.value_type, field.wire) == (path, value_type, wire)
    assert field.is_part is (value_type in (Will, Properties, Subscription))
    assert field.is_reason_code is ("reason_code" in key)


@pytest.mark.parametrize(
    ("key", "versions"),
    [
        ("connect.will.will_qos", (V3_1, V3_1_1, V5)),
        ("connect.will.properties.content_type", (V5,)),
        ("subscribe.subscriptions.maximum_qos", (V3_1, V3_1_1, V5)),
        ("subscribe.subscriptions.retain_handling", (V5,)),
        ("puback.packet_identifier", (V3_1, V3_1_1, V5)),
        ("puback.reason_code", (V5,)),
        ("auth.reason_code", (V5,)),
    ],
)
def test_versions(key: str, versions: tuple[int, ...]) -> None:
    assert BY_KEY[key].versions == versions


def test_packets_may_end_before_some_fields() -> None:
    assert {field.key: field.tail for field in fields_of(PacketType.CONNECT) if field.tail} == {
        "connect.user_name": V3_1,
        "connect.password": V3_1,
    }
    assert {field.tail for field in fields_of(PacketType.PUBACK) if field.row is None} == {0, V5}


def place(field: PacketField) -> str:
    """The span that holds a field."""
    return field.byte or field.path


def test_spans_of_well_formed_packets_are_those_of_the_catalogue() -> None:
    seen: set[str] = set()
    for row in CASES:
        packet = decode(row.raw, row.version)
        if not isinstance(packet, ControlPacket):
            continue
        known = {place(packet_field): packet_field for packet_field in fields_of(packet.packet_type)}
        for span in trace(row.raw, row.version):
            path = re.sub(r"\[[0-9]+\]", "[]", span.field)
            if path in known:
                assert row.version in known[path].versions
                seen.add(f"{packet.packet_type.name} {path}")
            else:
                assert path.endswith("property_length") or path in FIXED_HEADER, path
    with_bytes = {
        f"{packet_field.packet_type.name} {place(packet_field)}"
        for packet_field in all_fields()
        if not packet_field.is_part and place(packet_field) not in FIXED_HEADER and packet_field.row is None
    }
    assert seen >= with_bytes
