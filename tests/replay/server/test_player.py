"""Scripts of what a device says, and what it is answered."""

from __future__ import annotations

from tests.replay.server.desk import HELLO, MESSAGES, Desk


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
    text = (
        HELLO
        + """
    dev > publish a x qos=2 id=1
    dev < pubrec 1
    dev > pubrel 1
    dev < pubcomp 1
    dev < publish b y qos=2 id=1
    dev > pubrec 1
    dev < pubrel 1
    dev > pubcomp 1
    """
    )
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
