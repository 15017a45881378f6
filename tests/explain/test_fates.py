"""What decides whether a message was lost: whether its broker had it, and whether its reader could take it."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.dissect import dissect_segments
from mqttscope.explain.fates import Fate
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.examples import conversation, segments
from mqttscope.mqtt.packets import Publish
from mqttscope.net.segment import ACK, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, Talk, connect
from tests.explain.test_messages import LATER, READER, TOPIC, WRITER, trace
from tests.lint.lint_help import steps_of


def test_a_message_is_lost_only_if_the_broker_received_it() -> None:
    def fates(answer: str) -> list[Fate]:
        sent = f"@1 opened client=writer; @1 > publish {TOPIC} hot; {answer}"
        return [delivery.fate for delivery in trace(READER, sent, LATER).messages[0].deliveries]

    assert fates("") == [Fate.NOT_RECEIVED]
    assert fates("@1 < ack") == [Fate.NOT_SENT]
    assert fates("@1 < pingresp") == [Fate.NOT_SENT]


def test_a_client_that_does_not_read_is_not_sent_more() -> None:
    """Neither zero windows nor bytes without an acknowledgment let a broker send."""
    steps = steps_of(READER, "> ack", WRITER, "+1.5 > pingreq")

    def fates(segments_of: list[Segment]) -> list[Fate]:
        watch = MessageWatch(TOPIC)
        for event in dissect_segments(segments_of):
            watch.feed(event)
        return [
            delivery.fate
            for delivery in MessageReport(watch).trace().messages[0].deliveries
            if delivery.client == "reader"
        ]

    used_segments = list(segments(conversation("", *steps)))
    assert fates(used_segments) == [Fate.NOT_SENT]
    closed = [
        replace(segment, window=0) if segment.flags == ACK and not segment.payload else segment
        for segment in used_segments
    ]
    assert fates(closed) == [Fate.STALLED]
    unread = steps_of(READER, "> ack; < publish other old", WRITER)
    assert fates(list(segments(conversation("", *unread, *steps_of("+1.5 @1 > pingreq"))))) == [Fate.STALLED]
    later = [*steps, *steps_of("< publish other old")]
    assert fates(list(segments(conversation("", *later)))) == [Fate.NOT_SENT], "the broker could send"


def fate_of_message(*, again: bool = False, closed: bool = False) -> Fate:
    """A message that its reader, which leaves 1.5 s later, never gets; ``again``: its bytes were sent again.

    ``closed``: the broker had closed the connection of the writer, and its host still acknowledged what came.
    """
    reader = Conversation().open()
    reader.begin(connect(client_identifier="reader"))
    reader.say(SERVER, CONNACK)
    reader.live().ack(CLIENT)
    writer = Conversation(reader.tape)
    writer.keys = Talk(client_port=50_001).keys
    writer.open().begin(connect(client_identifier="writer"))
    writer.say(SERVER, CONNACK)
    if closed:
        writer.fin(SERVER)
    (sent,) = writer.say(CLIENT, Publish(topic_name="cmd/1", payload=b"on"))
    if again:
        writer.wait(0.5).repeat(sent)
    writer.ack(SERVER).wait(1.5)
    reader.finish()
    watch = MessageWatch("cmd/1")
    for event in dissect_segments(numbered(reader.tape.segments)):
        watch.feed(event)
    (delivery,) = MessageReport(watch).trace().messages[0].deliveries
    return delivery.fate


def test_what_tcp_acknowledges_is_not_all_that_a_broker_has() -> None:
    """Only an answer says when it had a message that was sent again, and whether it still read."""
    assert fate_of_message() is Fate.NOT_SENT
    assert fate_of_message(again=True) is Fate.CONNECTION_ENDED
    assert fate_of_message(closed=True) is Fate.NOT_RECEIVED
