"""What decides whether a message was lost: whether its broker had it, and whether its reader could take it."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.dissect import dissect_segments
from mqttscope.explain.fates import Fate
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.examples import conversation, segments
from mqttscope.mqtt.packets import Publish
from mqttscope.net.segment import ACK, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, Talk, connect
from tests.each import each
from tests.explain.test_messages import LATER, READER, TOPIC, WRITER, trace
from tests.lint.lint_help import steps_of


def test_a_message_is_lost_only_if_the_broker_received_it() -> None:
    def fates(answer: str) -> list[Fate]:
        sent = f"@1 opened client=writer; @1 > publish {TOPIC} hot; {answer}"
        return [one.fate for one in trace(READER, sent, LATER).messages[0].deliveries]

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
        return [one.fate for one in watch.trace().messages[0].deliveries if one.client == "reader"]

    taken = list(segments(conversation("", *steps)))
    assert fates(taken) == [Fate.NOT_SENT]
    closed = [replace(one, window=0) if one.flags == ACK and not one.payload else one for one in taken]
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
    (delivery,) = watch.trace().messages[0].deliveries
    return delivery.fate


def test_what_tcp_acknowledges_is_not_all_that_a_broker_has() -> None:
    """Only an answer says when it had a message that was sent again, and whether it still read."""
    assert fate_of_message() is Fate.NOT_SENT
    assert fate_of_message(again=True) is Fate.CONNECTION_ENDED
    assert fate_of_message(closed=True) is Fate.NOT_RECEIVED


WATCHER = "@1 opened client=watch; @1 > subscribe 1 st:1; @1 < suback 1 1"
ENDS, COPY = "> reset", "@1 < publish st off qos=1 id=1; @1 > puback 1"
DEVICE = "opened client=dev will=st will_payload=off will_qos=1 will_retain"
DIED = f"{DEVICE}; {WATCHER}; {ENDS}; {COPY}"
ASKS = "@2 opened client=late; @2 > subscribe 1 st:1; @2 < suback 1 1"
WAITS = "+2 @2 > pingreq; @2 < pingresp"


def remarks(text: str) -> list[str]:
    return [told for told in trace(text, topic="st").told if "Will Retain" in told]


@each("text", [f"{DIED}; {ASKS}; {WAITS}", f"{DIED}; {ASKS.replace('st:1', '+:1')}; {WAITS}"])
def test_a_will_that_is_not_retained(text: str) -> None:
    (said,) = remarks(text)

    assert said.startswith("dev had announced the will to st with Will Retain 1, and watch got it in frame 14; late")


@each(
    "text",
    [
        f"{DIED}; {ASKS}; @2 < publish st off retain; {WAITS}",
        # It comes without RETAIN, which a rule of the linter is about.
        f"{DIED}; {ASKS}; @2 < publish st off; {WAITS}",
        f"{DIED.replace(' will_retain', '')}; {ASKS}; {WAITS}",
        f"{DIED.replace('will_payload=off ', '').replace('st off', 'st')}; {ASKS}; {WAITS}",
        # It was dropped, and what came is of somebody else.
        f"{DIED.replace(ENDS, '> disconnect')}; {ASKS}; {WAITS}",
        f"{DIED.replace('will_retain', 'will_retain will.will_delay_interval=5')}; {ASKS}; {WAITS}",
        # Something else was retained since, or may have been.
        f"{DIED}; @3 opened client=dev; @3 > publish st on retain; {ASKS}; {WAITS}",
        f"{DIED}; @3 opened client=x will=st will_payload=gone; {ASKS}; {WAITS}",
        f"{DIED}; @1 < publish st on; {ASKS}; {WAITS}",
        # It has expired, is not asked for, refused, or may still come.
        f"{DIED.replace('will_retain', 'will_retain will.message_expiry_interval=1')}; {ASKS}; {WAITS}",
        f"{DIED}; {ASKS.replace('st:1', 'st:1,retain_handling=2')}; {WAITS}",
        f"{DIED}; {ASKS.replace('st:1', '$share/g/st:1')}; {WAITS}",
        f"{DIED}; {ASKS.replace('suback 1 1', 'suback 1 0x87')}; {WAITS}",
        f"{DIED}; {ASKS}; @2 > fin; {WAITS.replace('@2', '@1')}",
        f"{DIED}; {ASKS}; lost @2 < publish st off retain; {WAITS}",
        f"{DIED}; {ASKS}",
    ],
)
def test_a_will_that_need_not_be_retained(text: str) -> None:
    assert remarks(text) == []
