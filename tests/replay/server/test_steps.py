"""What the recorded server said by itself: when it comes, and what it waits for."""

from __future__ import annotations

from tests.replay.server.desk import MESSAGES, SECOND, V3_1_1, Desk


def test_a_delivery_waits_for_what_the_device_did_before_it_and_not_for_ever() -> None:
    desk = Desk(MESSAGES)
    device, _ = desk.connect()
    device.say("subscribe 1 t/#:2")
    desk.later(4.5)
    assert device.heard() == []
    desk.later(1)

    # Five seconds later than recorded.
    assert device.heard() == ["publish t/b two qos=1 id=8", "publish t/c three qos=0"]
    assert any("waited in vain for PUBLISH" in note.text for note in device.player.live.notes)


def test_deliveries_of_topics_that_the_device_did_not_subscribe_to_are_held_back() -> None:
    desk = Desk(MESSAGES, patience_ns=SECOND)
    device, _ = desk.connect()
    device.say("subscribe 1 t/b:2", "publish cmd go qos=1 id=2")
    desk.later(3)
    assert device.heard() == []
    device.say("puback 8")

    assert device.say("subscribe 2 t/c:0") == ["suback id=2 0", "publish t/c three qos=0"]
    device.vanish()
    assert ("PUBLISH held back: the device has not subscribed to its topic", 1) in [
        (note.text, times) for note, times in device.player.live.notes.items()
    ]


def test_a_session_that_goes_on_gets_again_what_it_did_not_acknowledge() -> None:
    text = """
    dev > connect resume
    dev < connack
    dev > subscribe 1 t:2
    dev < suback 1 2
    dev < publish t one qos=1 id=1
    dev < publish t two qos=2 id=2
    dev > pubrec 2
    dev < pubrel 2
    dev > fin
    dev > connect resume
    dev < connack present
    dev < publish t one qos=1 id=1 dup
    dev < pubrel 2
    dev > puback 1
    dev > pubcomp 2
    dev > disconnect
    """
    desk = Desk(text, V3_1_1)
    device, _ = desk.connect("dev connect resume")
    device.say("subscribe 5 t:2")
    assert device.say("pubrec 2") == ["pubrel id=2"]
    device.vanish()
    again, heard = desk.connect("dev connect resume")

    assert heard == ["connack present", "publish t one qos=1 dup id=1", "pubrel id=2"]
    assert again.say("puback 1", "pubcomp 2") == []
    assert desk.sessions.of("dev").unfinished == {}


def test_a_device_that_acknowledged_more_gets_nothing_again_and_one_that_starts_clean_has_no_session() -> None:
    text = """
    dev > connect resume
    dev < connack
    dev > subscribe 1 t:1
    dev < suback 1 1
    dev < publish t one qos=1 id=1
    dev > fin
    dev > connect resume
    dev < connack present
    dev < publish t one qos=1 id=1 dup
    dev > puback 1
    dev > fin
    dev > connect resume
    dev < connack present
    """
    desk = Desk(text, V3_1_1)
    device, _ = desk.connect("dev connect resume")
    device.say("subscribe 5 t:1")
    device.say("puback 1")
    device.vanish()
    again, heard = desk.connect("dev connect resume")
    assert heard == ["connack present"]
    again.vanish()
    assert desk.connect()[1] == ["connack"]
