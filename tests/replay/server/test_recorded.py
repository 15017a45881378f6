"""Who plays which recorded connection, which recorded packet a packet of a device is, and what was said to it."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, Malformed, Puback, Publish, Suback, decode
from mqttscope.replay.server.recorded import ConnectionMatcher, PacketMatcher, ServerScript, said_identifier
from tests.each import each
from tests.replay.server.desk import HELLO, SECOND, Desk
from tests.replay.talk import read, record

TEXT = """
    a > connect
    b > connect
    a > fin
    a > connect
"""


def chosen(matcher: ConnectionMatcher, *names: str) -> list[int | None]:
    found = [matcher.choose(Connect(client_identifier=name)) for name in names]
    return [None if one is None else one.connection.number for one in found]


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
    assert [said_identifier(one) for one in matcher.free] == ["a"]


def test_a_first_packet_that_is_no_connect() -> None:
    matcher = ConnectionMatcher(record(TEXT))
    assert chosen(matcher, "a", "b", "a") == [0, 1, 2]
    assert matcher.choose(Publish(topic_name="a")) is None
    bad = decode(bytes.fromhex("1003000000"))
    assert isinstance(bad, Malformed)
    assert matcher.choose(bad) is None


PACKETS = """
    dev > connect
    dev > publish a 1
    dev > publish b 2
    dev > publish a 3
    dev > subscribe 1 x:1 y:2
    dev > subscribe 2 z:0
    dev > pingreq
"""


@each(
    "asked, places",
    [
        # By topic and payload, then by topic.
        (["publish a 3", "publish a other", "publish a third"], [3, 1, None]),
        # What only resembles takes nothing away.
        (["publish a other", "publish a 1", "publish a 3"], [1, 1, 3]),
        # Another topic is what was expected.
        (["publish other 2", ("publish other 2", 2), ("publish other 2", 4)], [None, 2, None]),
        (["subscribe 7 y:0 x:0", "subscribe 8 unknown:0", "subscribe 9 unknown:0"], [4, 5, None]),
        (["pingreq", "pingreq"], [6, None]),
    ],
)
def test_which_recorded_packet_a_live_one_is(asked: list[str | tuple[str, int]], places: list[int | None]) -> None:
    """Packets in words, some with the place of the packet that is expected."""
    entries = record(PACKETS)[0].entries
    matcher, found = PacketMatcher(entries), []
    for row in asked:
        words, expected = (row, None) if isinstance(row, str) else row
        packet = read(words)
        topic = packet.topic_name if isinstance(packet, Publish) else None
        match = matcher.find(packet, topic, None if expected is None else entries[expected])
        found.append(None if match is None else entries.index(match.entry))

    assert found == places


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
