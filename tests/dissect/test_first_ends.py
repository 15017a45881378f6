"""Who ended a connection first, how and where, held against conversations whose ends are known."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from mqttscope.events import ConnectionClosed, ConnectionEnding, PacketEvent
from mqttscope.mqtt import Disconnect
from mqttscope.net.segment import ACK, FIN
from tests.dissect.scenes import opened
from tests.dissect.talk import PUBLISH_1, SECOND, Talk, names, only

OTHER = {"client": "server", "server": "client"}


@dataclass
class Truth:
    """How a connection really ended."""

    by: str
    how: str
    frame: int
    also: str | None
    """How the other side ended, ``None`` where it did not."""
    polite: bool


def ending(chance: random.Random) -> tuple[Talk, Truth]:
    """A connection that ends somehow: FIN or RST of one side, then one, the other or both again, or nothing."""
    talk = opened()
    first = chance.choice(("client", "server"))
    second = OTHER[first]
    polite = first == "client" and chance.random() < 0.5
    if polite:
        talk.client(Disconnect())
    if chance.random() < 1 / 3:
        return talk, Truth(first, "reset", talk.reset(first), None, polite)
    frame = talk.fin(first)
    if chance.random() < 0.7:
        talk.ack(second)
    if chance.random() < 0.3:
        talk.position[first] -= 1
        talk.tape.wait(0.3)
        talk.fin(first)
    if second == "server" and chance.random() < 0.3:
        talk.server(PUBLISH_1)
    also = chance.choice((None, "fin", "reset"))
    talk.tape.wait(chance.choice((0.0005, 0.01, 1, 6, 30, 100)))
    if also == "fin":
        talk.fin(second)
    elif also == "reset":
        talk.reset(second)
    if chance.random() < 0.3:
        talk.tape.wait(2)
        talk.reset(first)
    return talk, Truth(first, "fin", frame, also, polite)


@pytest.mark.parametrize("seed", range(200))
def test_the_first_end_is_told_as_it_was(seed: int) -> None:
    talk, truth = ending(random.Random(seed))

    events = talk.events()

    (closed,) = only(events, ConnectionClosed)
    (told,) = only(events, ConnectionEnding)
    connection = closed.connection
    other = connection.also_closed
    assert (connection.closed_how, connection.closed_by) == (truth.how, truth.by)
    assert (connection.closed_frame, told.frame, closed.frame) == (truth.frame,) * 3
    assert (None if other is None else other.how) == truth.also
    assert (connection.disconnect_by == "client") is truth.polite


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_of_the_side_that_sent_fin_is_no_end_of_the_other(who: str) -> None:
    talk = opened()
    talk.fin(who)
    talk.tape.wait(100)
    talk.reset(who)

    (closed,) = only(talk.events(), ConnectionClosed)

    assert (closed.connection.closed_by, closed.connection.also_closed) == (who, None)


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_that_answers_a_fin_is_the_end_of_the_other(who: str) -> None:
    talk = opened()
    talk.fin(who)
    talk.tape.wait(100)
    frame = talk.reset(OTHER[who])

    (closed,) = only(talk.events(), ConnectionClosed)

    other = closed.connection.also_closed
    assert other is not None
    assert (closed.connection.closed_by, other.how, other.frame) == (who, "reset", frame)
    assert other.timestamp_ns - closed.connection.closed_ns > 100 * SECOND


def test_an_end_waits_for_what_its_side_said_behind_a_hole() -> None:
    """DISCONNECT was captured, and so was FIN: that a segment before is lost makes neither of them later."""
    talk = opened()
    lost = talk.position["client"]
    talk.lose("client", 40)
    talk.client(Disconnect())
    # The server takes less than the client has sent, as far as its acknowledgments tell.
    ahead, talk.position["client"] = talk.position["client"], lost
    talk.ack("server")
    talk.position["client"] = ahead
    frame = talk.fin("client")
    talk.position["client"] = lost
    talk.tape.add(talk.keys["server"], talk.position["server"], lost, FIN | ACK, b"", 0)
    talk.position["client"] = ahead + 1
    talk.position["server"] += 1
    talk.ack("client")
    talk.ack("server")

    events = talk.events()

    (told,) = only(events, ConnectionEnding)
    goodbye = next(one for one in only(events, PacketEvent) if isinstance(one.packet, Disconnect))
    assert (told.frame, told.connection.closed_by) == (frame, "client")
    assert events.index(goodbye) < events.index(told)
    assert names(events)[-2:] == ["ConnectionEnding", "ConnectionClosed"]
