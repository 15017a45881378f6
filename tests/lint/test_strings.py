"""Walking over the strings of packets."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mqttscope.lint.strings import find, has_odd_strings, shown, strings_of
from mqttscope.mqtt.codec import SpanIndex, decode, encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connect, Disconnect, Puback, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from tests.each import each

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


@each("packet, field", EVERYWHERE)
def test_every_string_is_looked_at_and_has_the_path_of_its_span(packet: Any, field: str) -> None:
    assert has_odd_strings(packet)
    assert [(hit.field, hit.character) for hit in find(packet, TAB)] == [(field, "\t")]
    version = packet.version if isinstance(packet, Connect) else V5
    read: Any = decode(encode(packet, version), version)
    assert SpanIndex(read.raw, version).of(read, field) is not None


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


def test_what_is_left_out() -> None:
    # What is not well-formed, a second hit of a field, and fields that were not read.
    assert list(find(Publish(topic_name="\t\udcff"), TAB)) == []
    block = Properties(user_property=[("\t", "\t"), ("k", "\t")])
    assert [hit.field for hit in find(Publish(properties=block), TAB)] == ["properties.user_property"]
    damaged: Any = Connect()
    damaged.client_identifier = None
    assert list(strings_of(damaged)) == []


def test_how_a_hit_is_shown() -> None:
    (hit,) = find(Publish(topic_name="ab\t"), TAB)

    assert (hit.code_point, hit.index) == ("U+0009", 2)
    assert shown("a\t") == repr("a\t")
