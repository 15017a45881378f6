"""Which recorded delivery a live one is."""

from __future__ import annotations

from mqttscope.mqtt import Disconnect, Publish
from mqttscope.replay.player.deliveries import Deliveries
from tests.replay.recordings import connack, connect, conversation, publish


def test_equal_ones_in_their_order_and_each_once() -> None:
    script = conversation(
        (">", connect()),
        ("<", connack()),
        ("<", publish("a", payload=b"1")),
        ("<", publish("b", payload=b"1")),
        ("<", publish("a", payload=b"1")),
        (">", publish("a", payload=b"2")),
        (">", Disconnect()),
    )
    deliveries = Deliveries(script.entries)
    live = Publish(topic_name="a", payload=b"1")

    assert [deliveries.match("a", live) for _ in range(3)] == [script.entries[2], script.entries[4], None]
    assert deliveries.match("b", live) is script.entries[3]
    assert deliveries.match("a", Publish(topic_name="a", payload=b"2")) is None
