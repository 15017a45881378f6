"""Walking over the strings of packets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mqttscope.lint.strings import MAX_SHOWN, find, has_odd_strings, shown, strings_of
from mqttscope.mqtt.codec import decode, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connect, Disconnect, Puback, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties

V5 = ProtocolVersion.V5
TAB = re.compile("\t")

EVERYWHERE: list[tuple[Any, str]] = [
    (Publish(topic_name="a\tb"), "topic_name"),
    (Publish(topic_name="a", properties=Properties(content_type="\t")), "properties.content_type"),
    (Publish(topic_name="a", properties=Properties(user_property=[("k", "\t")])), "properties.user_property"),
    (Publish(topic_name="a", properties=Properties(user_property=[("\t", "v")])), "properties.user_property"),
    (Connect(client_identifier="\t"), "client_identifier"),
    (Connect(user_name="\t"), "user_name"),
    (Connect(will=Will("a\t")), "will.will_topic"),
    (
        Connect(will=Will("a", properties=Properties(response_topic="\t")), protocol_level=5),
        "will.properties.response_topic",
    ),
    (Subscribe(1, subscriptions=[Subscription("a"), Subscription("\t")]), "subscriptions[1].topic_filter"),
    (Unsubscribe(1, topic_filters=["a", "b", "\t"]), "topic_filters[2]"),
    (Puback(1, 0x87, Properties(reason_string="\t")), "properties.reason_string"),
    (Disconnect(0x9C, Properties(server_reference="\t")), "properties.server_reference"),
]


@pytest.mark.parametrize(("packet", "field"), EVERYWHERE, ids=[field for _, field in EVERYWHERE])
def test_every_string_is_looked_at(packet: Any, field: str) -> None:
    assert has_odd_strings(packet)
    assert [(hit.field, hit.character) for hit in find(packet, TAB)] == [(field, "\t")]


@pytest.mark.parametrize(("packet", "field"), EVERYWHERE, ids=[field for _, field in EVERYWHERE])
def test_paths_are_those_of_the_spans(packet: Any, field: str) -> None:
    version = packet.version if isinstance(packet, Connect) else V5
    from mqttscope.mqtt.codec import SpanIndex

    read = decode(encode(packet, version), version)

    assert SpanIndex(read.raw, version).of(read, field) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "packet",
    [
        Publish(topic_name="a/b", payload=b"\x01"),
        Publish(topic_name="a", properties=Properties(topic_alias=1, correlation_data=b"\x01", content_type="a/b")),
        Publish(topic_name="größe/室温", properties=Properties(user_property=[("k", "v")])),
        Connect(client_identifier="c", user_name="u", password=b"\x01", will=Will("a", b"\x01")),
        Subscribe(1, subscriptions=[Subscription("a/#")]),
        Puback(1),
        Disconnect(),
    ],
)
def test_binary_fields_and_usual_text_are_not_odd(packet: Any) -> None:
    assert not has_odd_strings(packet)


@pytest.mark.parametrize("topic", ["", "a/+/b", "#"])
def test_topic_names_without_a_name_are_odd(topic: str) -> None:
    assert has_odd_strings(Publish(topic_name=topic))


def test_what_is_not_well_formed_is_left_out() -> None:
    assert list(find(Publish(topic_name="\t\udcff"), TAB)) == []


def test_a_field_gives_one_hit() -> None:
    block = Properties(user_property=[("\t", "\t"), ("k", "\t")])

    assert [hit.field for hit in find(Publish(properties=block), TAB)] == ["properties.user_property"]


def test_fields_that_were_not_read_are_left_out() -> None:
    damaged: Any = Connect()
    damaged.client_identifier = None

    assert list(strings_of(damaged)) == []


def test_long_text_is_cut() -> None:
    assert shown("a\t") == repr("a\t")
    assert len(shown("x" * 1000)) < MAX_SHOWN + 10


def test_a_code_point_is_written_as_unicode_writes_it() -> None:
    (hit,) = find(Publish(topic_name="ab\t"), TAB)

    assert (hit.code_point, hit.index) == ("U+0009", 2)
