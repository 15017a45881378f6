"""Which recorded packet of the server a live one is, and what is no longer waited for."""

from __future__ import annotations

from mqttscope.mqtt import Disconnect, Puback, Publish
from mqttscope.replay.client.correspondence import Correspondence, Deliveries
from mqttscope.replay.script import Entry
from tests.replay.client.playing import BYE
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


def live(source: Entry, answers: Entry | None = None) -> Entry:
    """The same packet once more."""
    return Entry(source.from_client, source.packet, source.topic, 0, 0, answers=answers)


def test_an_answer_is_the_recorded_one_and_ends_what_is_waited_for() -> None:
    script = conversation(
        (">", connect()), ("<", connack()), (">", publish("a", qos=1, packet_identifier=1)), ("<", Puback(1)), BYE
    )  # fmt: skip
    _, _, published, acknowledged, _ = script.entries
    found = Correspondence(script)
    sent = live(published)
    sent.source = published
    answer = live(acknowledged, sent)
    found.answer(answer)

    assert answer.source is acknowledged
    assert found.came == {acknowledged}
    assert acknowledged in found.done
    again = live(acknowledged, sent)
    found.answer(again)
    assert again.source is None


def test_the_answer_to_a_fence_is_all_that_it_is_for() -> None:
    script = conversation((">", connect()), ("<", connack()), (">", publish("a")), BYE)
    found = Correspondence(script, {script.entries[2]})
    ping = Entry(True, Puback(1), None, 0, 0)
    found.fence(ping, script.entries[2])
    answer = Entry(False, Puback(1), None, 0, 0, answers=ping)
    found.answer(answer)

    assert found.done == [script.entries[2]]
    assert answer.source is None


def test_what_is_said_instead_lets_nobody_wait_for_what_was_next() -> None:
    script = conversation((">", connect()), ("<", connack()), ("<", publish("a")), ("<", publish("b")), BYE)
    found = Correspondence(script)
    found.match(live(script.entries[1]), found.awaited)
    found.done.clear()
    found.replaced()

    assert found.done == [script.entries[2]]
    found.await_nothing()
    assert set(found.done) == set(script.entries[1:4])
