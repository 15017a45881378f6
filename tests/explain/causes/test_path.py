"""Causes of a path that loses large segments."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.mqtt.packets import Pingreq, Publish
from mqttscope.net.segment import ACK, SYN
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.each import each
from tests.explain.running import of_segments

BULKY = Publish(topic_name="a", payload=bytes(1300))


def plain(mss: int = 0, *, selective: bool = False) -> Conversation:
    """A connection whose stacks have no time stamps; the server announces an MSS."""
    talk = Conversation(clocks=(None, None)).open()
    for segment in talk.tape.segments:
        if segment.flags & SYN:
            segment.options = b"\x04\x02" * selective
            segment.options += b"\x02\x04" + mss.to_bytes(2, "big") if mss else b""
    return talk.whole().ack(SERVER)


def bulky_is_lost(talk: Conversation, change: str = "", *, answers: bool = True, length: int = 1306) -> Explanation:
    """A large segment is repeated until the broker closes; it answers the small one after it with what it had before.

    ``change``: what makes that answer prove nothing.
    """
    before = talk.stacks[CLIENT].next
    (sent,) = talk.wait(1).say(CLIENT, Publish(topic_name="a", payload=bytes(length - 6)))
    if change != "nothing later":
        talk.say(CLIENT, Pingreq())
    if change == "repeated":
        talk.repeat(sent)
    if answers:
        number = talk.stacks[SERVER].next - 1 if change == "probe" else None
        talk.put(SERVER, ACK, sequence=number, acknowledges=before)
        talk.tape.segments[-1].window -= change == "window update"
    for pause in (0.3, 0.6, 1.2):
        talk.wait(pause).repeat(sent)
    talk.wait(5).fin(SERVER, acknowledges=before)
    talk.ack(CLIENT)
    return of_segments(numbered(talk.tape.segments))[0]


@each("change", ["", "nothing later", "repeated", "probe", "window update", "selective"])
def test_a_duplicate_acknowledgment_proves_that_a_later_segment_arrived(change: str) -> None:
    """Other acknowledgments with the same number do not, nor does it if selective ones would show the missing bytes."""
    first = bulky_is_lost(plain(selective=change == "selective"), change).first

    assert ("loses large segments: the client sent one of 1,306 bytes" in first.headline) is (change == "")
    if not change:
        assert (first.cause, first.certainty) == (Cause.HALF_OPEN, Certainty.LIKELY)
        assert "do not fragment" in first.advice[0]


@each("mss, length, is_named", [(1000, 1306, True), (1306, 1306, False), (0, 1306, False)])
@each("answers", [True, False])
def test_a_lost_segment_above_the_announced_limit(mss: int, length: int, is_named: bool, answers: bool) -> None:
    first = bulky_is_lost(plain(mss), answers=answers, length=length).first
    reasons = " ".join(reason.text for reason in first.reasons)

    assert ("announced that it takes at most 1,000 bytes in a segment (MSS)" in reasons) is is_named
    assert ("segments of at most 1,000 bytes" in first.advice[0]) is is_named
    assert first.headline.startswith("The client sends larger segments than the broker takes") is (
        is_named and not answers
    )


def test_a_large_segment_that_arrived_at_last_breaks_nothing() -> None:
    talk = plain(1000)
    before = talk.stacks[CLIENT].next
    (sent,) = talk.wait(1).say(CLIENT, BULKY)
    talk.say(CLIENT, Pingreq())
    talk.ack(SERVER, acknowledges=before)
    talk.wait(1).repeat(sent)
    talk.ack(SERVER).wait(20).fin(SERVER)

    assert of_segments(numbered(talk.tape.segments))[0].cause is Cause.SERVER_CLOSED
