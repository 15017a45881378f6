"""Scripts of what a device says, what it is answered, and what the server says by itself: when, and after what."""

from __future__ import annotations

from tests.replay.server.desk import HELLO, MESSAGES, SECOND, V3_1_1, Desk


def test_answers_are_the_recorded_ones_with_the_identifiers_of_the_device() -> None:
    device, heard = Desk(MESSAGES).connect()

    assert heard == ["connack"]
    assert device.say("subscribe 41 t/#:2") == ["suback id=41 1", "publish t/a one qos=1 id=7"]
    assert device.say("publish cmd go qos=1 id=42") == [
        "puback id=42 0x10", "publish t/b two qos=1 id=8", "publish t/c three qos=0",
    ]  # fmt: skip
    assert device.say("puback 8", "puback 7", "disconnect") == []
    assert device.closed is not None
    assert device.player.exhausted


def test_qos_2_goes_through_both_ways() -> None:
    text = f"""{HELLO}
    dev > publish a x qos=2 id=1
    dev < pubrec 1
    dev > pubrel 1
    dev < pubcomp 1
    dev < publish b y qos=2 id=1
    dev > pubrec 1
    dev < pubrel 1
    dev > pubcomp 1
    """
    device, _ = Desk(text).connect()

    assert device.say("publish a x qos=2 id=9") == ["pubrec id=9", "publish b y qos=2 id=1"]
    assert device.say("publish a x qos=2 id=9 dup") == ["pubrec id=9"]
    assert device.say("pubrel 9") == ["pubcomp id=9"]
    assert device.say("pubrel 9") == ["pubcomp id=9 0x92"]
    assert device.say("pubrec 1") == ["pubrel id=1"]
    assert device.say("pubrec 5") == ["pubrel id=5 0x92"]
    assert device.say("pubcomp 1") == []


def test_the_keep_alive_of_the_device_is_enforced() -> None:
    desk = Desk("dev > connect keep_alive=10\ndev < connack\ndev > disconnect")
    device, _ = desk.connect("dev connect keep_alive=10")
    desk.later(14)
    assert device.say("pingreq") == ["pingresp"]
    desk.later(14.9)
    assert device.heard() == []
    desk.later(0.2)
    assert device.heard() == ["disconnect 0x8d"]


def test_a_client_that_connects_anew_ends_its_old_connection() -> None:
    desk = Desk(
        HELLO + "two > connect client=dev\ntwo < connack\ndev < disconnect code=0x8e\ndev < fin\ntwo > disconnect"
    )
    device, heard = desk.connect()
    assert heard == ["connack"]
    device.player.take_over(desk.now)
    assert device.heard() == ["disconnect 0x8e"]

    desk = Desk(HELLO + "dev > disconnect")
    device, _ = desk.connect()
    device.player.take_over(desk.now)
    assert device.heard() == ["disconnect 0x8e"]


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
    assert desk.sessions.session_of("dev").unfinished == {}


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
