"""Who plays which recorded connection, and what was said to a recorded packet."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, Malformed, Puback, Publish, Suback, decode
from mqttscope.replay.server.recorded import ConnectionMatcher, ServerScript, recorded_identifier
from tests.each import each
from tests.replay.server.desk import HELLO, SECOND, Desk
from tests.replay.talk import record

TEXT = """
    a > connect
    b > connect
    a > fin
    a > connect
"""


def chosen(matcher: ConnectionMatcher, *names: str) -> list[int | None]:
    scripts = [matcher.choose(Connect(client_identifier=name)) for name in names]
    return [None if script is None else script.connection.number for script in scripts]


@each(
    "repeat, names, numbers",
    [
        (False, "abaa", [0, 1, 2, None]),
        # Unknown ones in order.
        (False, "xbaax", [0, 1, 2, None, None]),
        # Again from the beginning.
        (True, "aaabb", [0, 2, 0, 1, 1]),
        (True, "xyzx", [0, 1, 2, 0]),
    ],
)
def test_connections_are_chosen_by_identifier(repeat: bool, names: str, numbers: list[int | None]) -> None:
    assert chosen(ConnectionMatcher(record(TEXT), repeat=repeat), *names) == numbers


def test_what_is_left() -> None:
    matcher = ConnectionMatcher(record(TEXT))
    chosen(matcher, "a", "b")
    assert [recorded_identifier(script) for script in matcher.free] == ["a"]


def test_a_first_packet_that_is_no_connect() -> None:
    matcher = ConnectionMatcher(record(TEXT))
    assert chosen(matcher, "a", "b", "a") == [0, 1, 2]
    assert matcher.choose(Publish(topic_name="a")) is None
    bad = decode(bytes.fromhex("1003000000"))
    assert isinstance(bad, Malformed)
    assert matcher.choose(bad) is None


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
    assert [step.type for step in script.steps] == ["publish", "disconnect"]
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
