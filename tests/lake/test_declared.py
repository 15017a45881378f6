"""Columns of packets follow from the declarations."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mqttscope.lake.declared import (
    MAX_KNOWN,
    PayloadPart,
    packet_columns,
    packet_fields,
    properties_row,
    properties_type,
    text,
)
from mqttscope.lake.manifest import ALL_DIGITS
from mqttscope.lake.rows import _publish
from mqttscope.mqtt import ProtocolVersion, packets
from mqttscope.mqtt.declare import PACKETS
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import PROPERTIES, Properties

V5, V3_1_1 = ProtocolVersion.V5, ProtocolVersion.V3_1_1


def test_every_declared_field_has_its_column() -> None:
    columns = packet_columns()
    inner = {name for kind in ("connect", "connack") for name in (each.name for each in columns[kind])}
    for cls in PACKETS.values():
        for row in cls.declaration:
            assert {row.name, f"{row.name}_length"} & (set(columns) | inner), row.name
    assert "password" not in inner
    assert {"topic_name", "qos", "packet_identifier", "payload_length", "payload_sha256"} <= set(columns)


def test_the_struct_of_properties_is_the_table_of_the_specification() -> None:
    result = [each.name for each in properties_type()]

    assert len(result) == len(PROPERTIES) == 27
    wanted = [row.name for row in PROPERTIES]
    assert result == [f"{name}_length" if name == "authentication_data" else name for name in wanted]
    assert str(properties_type().field("user_property").type) == "list<item: struct<name: string, value: string>>"
    assert str(properties_type().field("subscription_identifier").type) == "list<item: int64>"


def rows(block: Properties) -> tuple[dict[str, Any], list[Any], list[Any]]:
    bad: list[Any] = []
    other: list[Any] = []
    return properties_row(block, "properties", bad, other), bad, other


def test_properties_that_have_no_place_are_beside() -> None:
    block = Properties.of(
        [(0x23, 1), (0x23, 2), (0x7E, b"ab"), (0x03, "a"), (0x03, "b\udcff"), (0x16, b"one"), (0x16, b"secret")]
    )
    document, bad, other = rows(block)

    assert document == {"topic_alias": 1, "content_type": "a", "authentication_data_length": 3}
    assert not bad
    assert [(row["identifier"], row.get("number"), row.get("value")) for row in other] == [
        (0x23, 2, None), (0x7E, None, b"ab"), (0x03, None, b"b\xff"), (0x16, 6, None),
    ]  # fmt: skip


def test_credentials_in_texts_of_answers_are_asterisks() -> None:
    document, bad, other = rows(Properties(reason_string="password=hunter2", content_type="password=hunter2"))

    assert document == {"reason_string": "password=*******", "content_type": "password=*******"}
    assert not bad
    assert not other


def test_texts_that_are_not_utf_8_keep_their_bytes() -> None:
    bad: list[Any] = []

    assert text("é", "x", bad) == "é"
    assert text("a\udcffb", "topic", bad) == "a\ufffdb"
    assert bad == [{"field": "topic", "value": b"a\xffb"}]
    document, bad, _ = rows(Properties(user_property=[("k", "v"), ("\udcfe", "w")]))
    assert document["user_property"][1] == {"name": "\ufffd", "value": "w"}
    assert bad == [{"field": "properties.user_property[1].name", "value": b"\xfe"}]


def test_payloads() -> None:
    assert PayloadPart(2).columns(b"abc", 0)[::2] == (3, b"ab")
    assert PayloadPart().columns(b"abc", 4) == (7, None, None)
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert PayloadPart(9).columns(b"", 0) == (0, digest[:32], b"")
    assert PayloadPart(0, ALL_DIGITS).columns(b"", 0) == (0, digest, None)
    assert PayloadPart().columns(bytes(MAX_KNOWN + 1), 0)[1] == hashlib.sha256(bytes(MAX_KNOWN + 1)).hexdigest()[:32]


def test_connect_is_a_struct() -> None:
    packet = packets.Connect(
        client_identifier="x", user_name="u", password=b"secret",
        will=Will("w", b"gone", 1, True, Properties(will_delay_interval=3)), properties=Properties(receive_maximum=9),
    )  # fmt: skip
    document = packet_fields(packet, V5, PayloadPart(2), [], [])

    assert document["properties"] == {"receive_maximum": 9}
    assert document["connect"]["password_length"] == 6
    assert document["connect"]["will"]["will_payload"] == b"go"
    assert document["connect"]["will"]["properties"] == {"will_delay_interval": 3}
    assert b"secret" not in repr(document).encode()
    old = packet_fields(packet, V3_1_1, PayloadPart(2), [], [])
    assert "properties" not in old
    assert "properties" not in old["connect"]["will"]


def test_subscriptions_and_what_was_read() -> None:
    packet = packets.Subscribe(7, Properties(), [Subscription("a/#", 1, True, False, 2, 0x40)])
    document = packet_fields(packet, V5, PayloadPart(0), [], [])

    assert document["subscriptions"] == [
        {"topic_filter": "a/#", "maximum_qos": 1, "no_local": True, "retain_as_published": False,
         "retain_handling": 2, "reserved": 0x40}
    ]  # fmt: skip
    assert packet_fields(packet, V5, PayloadPart(0), [], [], ("packet_identifier",)) == {"packet_identifier": 7}
    assert packet_fields(packets.Puback(3), V5, PayloadPart(0), [], [])["reason_code"] == 0


@given(
    st.text(max_size=5), st.binary(max_size=9), st.integers(0, 2), st.booleans(), st.sampled_from([V5, V3_1_1]),
    st.sampled_from([Properties(), Properties(topic_alias=3), Properties(user_property=[("a", "b")])]),
)  # fmt: skip
def test_the_quick_way_says_the_same(
    topic: str, payload: bytes, qos: int, retain: bool, version: ProtocolVersion, block: Properties
) -> None:
    packet = packets.Publish(
        qos=qos, retain=retain, topic_name=topic, packet_identifier=5 if qos else None, payload=payload,
        properties=block if version == V5 else None,
    )  # fmt: skip

    assert _publish(packet, version, PayloadPart(4), [], []) == packet_fields(packet, version, PayloadPart(4), [], [])
