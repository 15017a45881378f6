"""Ends of clients that do not read what they are sent."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.mqtt.packets import Connack, Connect, Disconnect, Publish
from mqttscope.net.segment import SYN
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, V5, connect, wire
from tests.each import each
from tests.explain.running import of_segments

MESSAGE = Publish(topic_name="a", payload=bytes(1000))


def window(talk: Conversation, size: int) -> None:
    """An acknowledgment of the client with this receive window."""
    talk.ack(CLIENT)
    talk.tape.segments[-1].window = size


def unread(*, shut: float, opened: float = 0, keep_alive: int = 10, is_gone: bool = False) -> Explanation:
    """The client's receive window is closed for a time, then open for another one, and the broker closes."""
    talk = Conversation(clocks=(None, None)).open()
    talk.begin(replace(connect(), keep_alive=keep_alive))
    talk.say(SERVER, CONNACK)
    talk.play("> subscribe 1 #; < suback 1 0")
    talk.say(SERVER, MESSAGE)
    window(talk, 0)
    if is_gone:
        talk.wait(shut).fin(SERVER)
        return of_segments(numbered(talk.tape.segments))[0]
    talk.wait(shut * 0.75)
    window(talk, 0)
    talk.wait(shut * 0.25)
    if opened:
        window(talk, 8000)
        talk.wait(opened)
    talk.fin(SERVER)
    talk.ack(CLIENT)
    return of_segments(numbered(talk.tape.segments))[0]


@each(
    "shut, opened, is_gone, is_unread",
    [(15, 0, False, True), (10, 5, False, True), (5, 10, False, False), (15, 0, True, False)],
)
def test_a_keep_alive_that_ran_out_while_the_client_did_not_read(
    shut: float, opened: float, is_gone: bool, is_unread: bool
) -> None:
    """A window that was open for most of the time, or a client that is gone, explain the silence in another way."""
    first = unread(shut=shut, opened=opened, is_gone=is_gone).first

    assert first.cause is Cause.KEEP_ALIVE
    assert first.headline.startswith("The client did not read what the broker sent (receive window 0 for ") is is_unread
    assert first.advice[0].startswith("Subscribe to less") is is_unread
    assert first.certainty is Certainty.LIKELY


@each("opened, is_unread", [(0, True), (1, False)])
def test_another_end_while_the_client_does_not_read(opened: float, is_unread: bool) -> None:
    first = unread(shut=30, opened=opened, keep_alive=0).first

    assert (first.cause, first.certainty) == (Cause.SERVER_CLOSED, Certainty.HYPOTHESIS)
    assert ("did not read" in first.headline) is is_unread


@each("code, is_stated", [(0x8D, True), (0x97, False)])
def test_a_disconnect_while_the_client_does_not_read(code: int, is_stated: bool) -> None:
    """The client takes the DISCONNECT when it reads again at last."""
    talk = Conversation(clocks=(None, None)).open()
    talk.say(CLIENT, wire(Connect(protocol_level=5, client_identifier="c", keep_alive=10), version=V5))
    talk.say(SERVER, wire(Connack(), version=V5))
    window(talk, 0)
    talk.wait(10)
    window(talk, 0)
    talk.wait(5).say(SERVER, wire(Disconnect(reason_code=code), version=V5))
    talk.fin(SERVER)
    talk.ack(CLIENT)
    first = of_segments(numbered(talk.tape.segments))[0].first

    assert any("did not read" in reason.text for reason in first.reasons)
    assert ("so it sent no PINGREQ" in first.headline) is is_stated
    assert first.certainty is Certainty.CERTAIN


@each(
    "first, scale, later, is_shut",
    [(65_000, 0, 500, True), (65_000, 7, 3, True), (65_000, 7, 300, False), (500, 0, 500, False)],
)
def test_a_window_too_small_for_a_segment(first: int, scale: int, later: int, is_shut: bool) -> None:
    """A device with a small buffer has a small window from its SYN on."""
    talk = Conversation(clocks=(None, None)).open()
    for segment in talk.tape.segments:
        segment.options = bytes((3, 3, scale)) if segment.flags & SYN else b""
    talk.tape.segments[0].window = first
    talk.begin(replace(connect(), keep_alive=10))
    talk.say(SERVER, CONNACK)
    window(talk, later)
    talk.wait(10)
    window(talk, later)
    talk.wait(5).fin(SERVER)
    headline = of_segments(numbered(talk.tape.segments))[0].first.headline

    assert ("did not read what the broker sent (receive window below 536 bytes for" in headline) is is_shut


@each("size, is_shut", [(100, True), (8000, False)])
def test_a_window_that_opens_by_less_than_a_segment_stays_closed(size: int, is_shut: bool) -> None:
    talk = Conversation(clocks=(None, None)).open()
    talk.begin(replace(connect(), keep_alive=10))
    talk.say(SERVER, CONNACK)
    window(talk, 0)
    talk.wait(4)
    window(talk, size)
    talk.wait(11).fin(SERVER)
    talk.ack(CLIENT)

    assert ("did not read" in of_segments(numbered(talk.tape.segments))[0].first.headline) is is_shut
