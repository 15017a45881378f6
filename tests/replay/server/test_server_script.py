"""What a recording says of its server."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Puback, Suback
from mqttscope.replay.server.server_script import ServerScript
from tests.replay.server.desk import HELLO, SECOND, Desk
from tests.replay.talk import record


def test_what_the_recorded_client_did_wrong_has_the_recorded_end() -> None:
    text = HELLO + "dev > publish a/+ x\ndev < disconnect code=0x82\ndev < fin"
    device, _ = Desk(text).connect()

    assert device.say("publish a/+ x") == ["disconnect 0x82"]
    good, _ = Desk(text).connect()
    # Who does it right is not disconnected for it.
    assert good.say("publish a/b x") == []
    good.desk.later(100)
    assert good.heard() == []


ASKED = """
    dev > connect
    dev < connack
    dev > publish a one qos=1 id=1
    dev < puback 1
    dev > publish a two qos=1 id=2
    dev < publish b three
    dev > subscribe 3 c:0
    dev < disconnect code=0x8b
    dev < fin
"""


def test_what_is_answered_what_is_not_and_what_comes_unasked() -> None:
    script = ServerScript(record(ASKED)[0])
    entries = script.script.entries

    assert script.answered(entries[0], Connack) is entries[1]
    assert script.answered(entries[2], Puback) is entries[3]
    assert script.answered(entries[2], Suback) is None
    assert [script.silent_to(entries[at], Puback) for at in (2, 4)] == [False, True]
    assert [one.type for one in script.steps] == ["publish", "disconnect"]
    assert script.ends
    assert not script.ending_next


def test_steps_wait_for_what_the_client_sent_before_them() -> None:
    script = ServerScript(record(ASKED)[0])
    entries = script.script.entries
    assert script.next_needed is entries[0]
    script.done.update((entries[0], entries[2]))

    assert script.frontier == entries[4].place
    assert script.give_up(entries[5].place) == [entries[4]]
    assert script.next_needed is entries[6]


def test_a_server_may_end_a_connection_for_its_keep_alive() -> None:
    text = "dev > connect keep_alive=2\ndev < connack\n+3.5 dev < fin"
    assert ServerScript(record(text)[0]).silence_ns > 3 * SECOND
    assert ServerScript(record(text.replace("3.5", "1.5"))[0]).silence_ns == 0
