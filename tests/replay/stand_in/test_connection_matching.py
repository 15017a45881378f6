"""Who plays which recorded connection."""

from __future__ import annotations

from mqttscope.mqtt import Connect, Malformed, Publish, decode
from mqttscope.replay.stand_in.connection_matching import Casting, Match, said_identifier
from tests.replay.talk import record

TEXT = """
    a > connect
    b > connect
    a > fin
    a > connect
"""


def chosen(casting: Casting, *names: str) -> list[int | None]:
    found = [casting.choose(Connect(client_identifier=name)) for name in names]
    return [None if one is None else one.connection.number for one in found]


def test_by_identifier_and_in_order_for_unknown_ones() -> None:
    assert chosen(Casting(record(TEXT)), "a", "b", "a", "a") == [0, 1, 2, None]
    assert chosen(Casting(record(TEXT)), "x", "b", "a", "a", "x") == [0, 1, 2, None, None]
    assert chosen(Casting(record(TEXT), Match.CLIENT), "x", "a") == [None, 0]
    assert chosen(Casting(record(TEXT), Match.ORDER), "b", "b", "b", "b") == [0, 1, 2, None]


def test_again_from_the_beginning() -> None:
    assert chosen(Casting(record(TEXT), repeat=True), "a", "a", "a", "b", "b") == [0, 2, 0, 1, 1]
    assert chosen(Casting(record(TEXT), Match.ORDER, repeat=True), *"aaaa") == [0, 1, 2, 0]


def test_what_is_left() -> None:
    casting = Casting(record(TEXT))
    chosen(casting, "a", "b")
    assert [said_identifier(one) for one in casting.free] == ["a"]


def test_a_first_packet_that_is_no_connect() -> None:
    casting = Casting(record(TEXT), Match.CLIENT)
    assert casting.choose(Publish(topic_name="a")) is None
    bad = decode(bytes.fromhex("1003000000"))
    assert isinstance(bad, Malformed)
    assert casting.choose(bad) is None
