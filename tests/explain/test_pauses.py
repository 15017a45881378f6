"""Pauses of senders inside a packet, and small segments that wait for an acknowledgment."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.dissect import dissect_segments
from mqttscope.explain.fates import Trace
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.mqtt import encode
from mqttscope.mqtt.packets import Pingreq, Publish
from tests.dissect.talk import CONNACK, SECOND, V3_1_1, Talk, Tape, connect
from tests.each import each

LONG = encode(Publish(qos=0, topic_name="t", payload=bytes(3_000)), V3_1_1)
PING = encode(Pingreq(), V3_1_1)


def traced(talk: Talk) -> Trace:
    watch = MessageWatch("t")
    for event in dissect_segments(watch.pauses.segments(talk.tape.segments)):
        watch.feed(event)
    return MessageReport(watch).trace()


def opened(tape: Tape | None = None, client_port: int = 50_000, name: str = "pub") -> Talk:
    """A client that has connected."""
    talk = Talk(tape, client_port=client_port).handshake()
    talk.client(connect(client_identifier=name))
    talk.server(CONNACK)
    return talk


def paused(*, pause: float = 4.0, is_acknowledged: bool = True, is_open: bool = True, last: bytes = PING) -> list[str]:
    """Evidence about a message; its publisher pauses before its last bytes."""
    talk = opened()
    talk.client(LONG[:1_400])
    talk.client(LONG[1_400:2_800])
    if is_acknowledged:
        talk.ack("server")
    if not is_open:
        segments = talk.tape.segments
        segments[-1] = replace(segments[-1], window=0)
    talk.tape.wait(pause)
    if not is_acknowledged:
        talk.ack("server")
    talk.client(LONG[2_800:] + last)
    talk.ack("server")
    (message,) = traced(talk).messages
    return [evidence.text for evidence in message.evidence if "had sent the bytes before" in evidence.text]


def test_a_publisher_that_holds_back_its_last_bytes() -> None:
    (flushed,), (sent,) = paused(), paused(last=b"")

    assert flushed.startswith("pub had sent the bytes before the last 206 4.002 s earlier (frame 7), and TCP had ack")
    assert flushed.endswith("it sent these together with its PINGREQ: it most probably does not flush its output")
    assert sent.endswith("it sent these late, or a segment was lost before it came to the place of the capture")


def test_what_a_publisher_did_not_hold_back() -> None:
    assert not paused(pause=0.9)
    assert not paused(is_acknowledged=False), "it waited for an acknowledgment"
    assert not paused(is_open=False), "it waited for a window"


def test_a_pause_before_a_message_is_not_in_it() -> None:
    talk = opened()
    talk.client(PING)
    talk.ack("server")
    talk.tape.wait(4)
    talk.client(LONG)
    talk.ack("server")

    assert not any("had sent the bytes" in evidence.text for evidence in traced(talk).messages[0].evidence)


def held(*, acknowledged: float = 0.04, published: float = 0.04, times: int = 11) -> list[str]:
    """The words about messages that leave the broker right after an acknowledgment that was late."""
    tape = Tape()
    reader, writer = opened(tape, name="reader"), opened(tape, 50_001)
    rows: list[int] = []
    for number in range(times):
        reader.server(Publish(qos=0, topic_name="other", payload=bytes(9)))
        first_ns = tape.now_ns
        message = Publish(qos=0, topic_name="t", payload=b"%d" % number)
        for delay, is_publish in sorted(((acknowledged - published, True), (acknowledged, False))):
            tape.now_ns = first_ns + round(delay * SECOND) + (1_000_000 if is_publish else 0) - 1_000_000
            rows.append(writer.client(message) if is_publish else reader.ack("client"))
        reader.server(message)
        reader.ack("client")
        tape.wait(1)
    return [row.outcome for fate in traced(reader).messages for row in fate.deliveries if "Nagle" in row.outcome]


def test_a_small_segment_that_the_broker_holds_back() -> None:
    shown_text = held()

    assert shown_text, "ten of eleven are shown as late"
    assert shown_text[0].endswith(
        ": the broker held it back until TCP had acknowledged the small segment before, which took 40.0 ms (Nagle's"
        " algorithm meets a delayed acknowledgment)"
    )


@each("case", [{"published": 0.01}, {"acknowledged": 0.02}, {"acknowledged": 0.3}, {"times": 9}])
def test_small_segments_that_nobody_held_back(case: dict[str, float]) -> None:
    assert not held(**case)  # type: ignore[arg-type]
