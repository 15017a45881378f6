"""Topics and Client Identifiers, wherever they stand in packets."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Pingreq, Publish, Subscribe, Unsubscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import EMPTY, Properties
from mqttscope.replay.rewrite.packets import shared_too, with_client, with_topics


def upper(text: str) -> str:
    return text.upper()


TOPICS: list[tuple[ControlPacket, ControlPacket, list[str]]] = [
    (Publish(topic_name="a"), Publish(topic_name="A"), ["Topic Name"]),
    (
        Publish(topic_name="", properties=Properties(topic_alias=1, response_topic="r")),
        Publish(topic_name="", properties=Properties(topic_alias=1, response_topic="R")),
        ["Response Topic"],
    ),
    (
        Connect(will=Will("a", properties=Properties(response_topic="r", will_delay_interval=3))),
        Connect(will=Will("A", properties=Properties(response_topic="R", will_delay_interval=3))),
        ["Will Topic", "Response Topic"],
    ),
    (
        Subscribe(subscriptions=[Subscription("a", 1), Subscription("$share/g/b", 2, True)]),
        Subscribe(subscriptions=[Subscription("A", 1), Subscription("$share/g/B", 2, True)]),
        ["Topic Filter", "Topic Filter"],
    ),
    (
        Unsubscribe(topic_filters=["a", "A", "$share/g/a"]),
        Unsubscribe(topic_filters=["A", "A", "$share/g/A"]),
        ["Topic Filter", "Topic Filter"],
    ),
]


@pytest.mark.parametrize(("packet", "wanted", "counted"), TOPICS)
def test_topics_are_changed_wherever_they_stand(
    packet: ControlPacket, wanted: ControlPacket, counted: list[str]
) -> None:
    found: list[str] = []
    before = repr(packet)

    assert with_topics(packet, upper, shared_too(upper), found.append) == wanted
    assert found == counted
    assert repr(packet) == before


@pytest.mark.parametrize(
    "packet",
    [
        Publish(topic_name="A", properties=EMPTY),
        Publish(topic_name="", properties=Properties(content_type="a")),
        Connect(),
        Connect(will=Will("A")),
        Subscribe(subscriptions=[Subscription("A")]),
        Unsubscribe(topic_filters=["A"]),
        Pingreq(),
    ],
)
def test_what_does_not_change_is_the_same_packet(packet: ControlPacket) -> None:
    assert with_topics(packet, upper, upper, lambda thing: pytest.fail(thing)) is packet


def test_client_identifiers_are_changed_in_both_directions() -> None:
    assert with_client(Connect(client_identifier="a"), upper) == Connect(client_identifier="A")
    assigned = Connack(properties=Properties(assigned_client_identifier="a", receive_maximum=3))
    assert with_client(assigned, upper) == Connack(
        properties=Properties(assigned_client_identifier="A", receive_maximum=3)
    )
    for packet in (Connect(), Connect(client_identifier="A"), Connack(), Connack(properties=EMPTY), Pingreq()):
        assert with_client(packet, lambda one: one.upper() or "x") is packet
