"""What the other side does not take."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import Connack, Connect, Properties, Puback, Publish, Subscribe, Subscription, encode
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mutate import Chance
from mqttscope.mutate.flow import CLIENT, SERVER
from mqttscope.mutate.limits import exceeded
from mqttscope.mutate.mutation import target
from tests.mutate.talk import V3_1, V5, good, limited, made

ROWS = [
    (Publish(topic_name="a", properties=Properties()), ""),
    (Publish(topic_name="a", payload=bytes(1_000), properties=Properties()), "Maximum Packet Size 1000"),
    (Publish(topic_name="a", properties=Properties(topic_alias=1)), "a lower Topic Alias Maximum"),
    (Publish(topic_name="a", qos=1, packet_identifier=1, properties=Properties()), "a lower Maximum QoS"),
    (Publish(topic_name="a", retain=True, properties=Properties()), "Retain Available 0"),
    (Subscribe(packet_identifier=1, subscriptions=[Subscription("a/#")]), "Wildcard Subscription Available 0"),
    (Subscribe(packet_identifier=1, subscriptions=[Subscription("$share/g/a")]), "Shared Subscription Available 0"),
    (
        Subscribe(
            packet_identifier=1,
            subscriptions=[Subscription("a")],
            properties=Properties(subscription_identifier=1),
        ),
        "Subscription Identifier Available 0",
    ),
    (Subscribe(packet_identifier=1, subscriptions=[Subscription("a")]), ""),
]


@pytest.mark.parametrize(("packet", "words"), ROWS)
def test_what_goes_beyond_an_announcement(packet: ControlPacket, words: str) -> None:
    assert exceeded(encode(packet, V5), target(limited(), 0, Chance())) == words


def test_earlier_versions_announce_nothing() -> None:
    raw = encode(Publish(topic_name="a", qos=2, packet_identifier=1))

    assert exceeded(raw, target(good(V3_1), 0, Chance())) == ""


def test_a_client_that_wants_no_reasons_gets_none() -> None:
    silent = Connect(protocol_level=5, client_identifier="c", properties=Properties(request_problem_information=0))
    told = Puback(packet_identifier=1, reason_code=0, properties=Properties(reason_string="x"))
    flow = made(V5, (CLIENT, silent), (SERVER, Connack(properties=Properties())), (SERVER, told))

    assert exceeded(encode(told, V5), target(flow, 2, Chance())) == "Request Problem Information 0"
    assert exceeded(encode(Puback(packet_identifier=1), V5), target(flow, 2, Chance())) == ""
