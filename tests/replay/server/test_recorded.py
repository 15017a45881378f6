"""Who plays which recorded connection, which recorded packet a packet of a device is, and what was said to it."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, Malformed, Puback, Publish, Suback, decode
from mqttscope.replay.script import Entry
from mqttscope.replay.server.recorded import ConnectionMatcher, PacketMatcher, ServerScript, said_identifier
from tests.replay.server.desk import HELLO, SECOND, Desk
from tests.replay.talk import packet, record

TEXT = """
    a > connect
    b > connect
    a > fin
    a > connect
"""


def chosen(matcher: ConnectionMatcher, *names: str) -> list[int | None]:
    found = [matcher.choose(Connect(client_identifier=name)) for name in names]
    return [None if one is None else one.connection.number for one in found]


def test_by_identifier_and_in_order_for_unknown_ones() -> None:
    assert chosen(ConnectionMatcher(record(TEXT)), "a", "b", "a", "a") == [0, 1, 2, None]
    assert chosen(ConnectionMatcher(record(TEXT)), "x", "b", "a", "a", "x") == [0, 1, 2, None, None]


def test_again_from_the_beginning() -> None:
    assert chosen(ConnectionMatcher(record(TEXT), repeat=True), "a", "a", "a", "b", "b") == [0, 2, 0, 1, 1]
    assert chosen(ConnectionMatcher(record(TEXT), repeat=True), *"xyzx") == [0, 1, 2, 0]


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


class Found:
    def __init__(self) -> None:
        self.entries = record(PACKETS)[0].entries
        self.counterparts = PacketMatcher(self.entries)

    def of(self, line: str, expected: int | None = None) -> int | None:
        kind, *words = line.split()
        made = packet("dev", kind, words)
        topic = words[0] if kind == "publish" else None
        at: Entry | None = None if expected is None else self.entries[expected]
        found = self.counterparts.find(made, topic, at)
        return None if found is None else self.entries.index(found.entry)


def test_by_topic_and_payload_then_topic() -> None:
    found = Found()
    assert [found.of("publish a 3"), found.of("publish a other"), found.of("publish a third")] == [3, 1, None]


def test_what_only_resembles_takes_nothing_away() -> None:
    found = Found()
    assert found.of("publish a other") == 1
    assert [found.of("publish a 1"), found.of("publish a 3")] == [1, 3]


def test_another_topic_is_what_was_expected() -> None:
    found = Found()
    assert found.of("publish other 2") is None
    assert found.of("publish other 2", expected=2) == 2
    assert found.of("publish other 2", expected=4) is None


def test_requests() -> None:
    found = Found()
    assert found.of("subscribe 7 y:0 x:0") == 4
    assert found.of("subscribe 8 unknown:0") == 5
    assert found.of("subscribe 9 unknown:0") is None
    assert [found.of("pingreq"), found.of("pingreq")] == [6, None]


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
