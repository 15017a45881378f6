"""Who plays which recorded connection, and which recorded packet a packet of a device is."""

from __future__ import annotations

from mqttscope.mqtt import Connect, Malformed, Publish, decode
from mqttscope.replay.script import Entry
from mqttscope.replay.server.matching import ConnectionMatcher, Match, PacketMatcher, said_identifier
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
    assert chosen(ConnectionMatcher(record(TEXT), Match.CLIENT), "x", "a") == [None, 0]
    assert chosen(ConnectionMatcher(record(TEXT), Match.ORDER), "b", "b", "b", "b") == [0, 1, 2, None]


def test_again_from_the_beginning() -> None:
    assert chosen(ConnectionMatcher(record(TEXT), repeat=True), "a", "a", "a", "b", "b") == [0, 2, 0, 1, 1]
    assert chosen(ConnectionMatcher(record(TEXT), Match.ORDER, repeat=True), *"aaaa") == [0, 1, 2, 0]


def test_what_is_left() -> None:
    matcher = ConnectionMatcher(record(TEXT))
    chosen(matcher, "a", "b")
    assert [said_identifier(one) for one in matcher.free] == ["a"]


def test_a_first_packet_that_is_no_connect() -> None:
    matcher = ConnectionMatcher(record(TEXT), Match.CLIENT)
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
