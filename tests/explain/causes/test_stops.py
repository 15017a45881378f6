"""Attempts to connect to a server that is stopped, and connections without a CONNECT."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.net.segment import SYN
from mqttscope.report.explanations.restarts import EndSummary, RestartEvents
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, Talk, Tape, connect
from tests.each import each
from tests.explain.running import of_segments


def talks(tape: Tape, count: int, first_port: int = 50_000, client: str = "192.0.2.4") -> list[Conversation]:
    """Conversations from ports of one host."""
    conversations = [Conversation(tape, client=client) for _ in range(count)]
    for number, talk in enumerate(conversations):
        talk.keys = Talk(client=client, client_port=first_port + number).keys
    return conversations


def begin(talk: Conversation, name: str) -> None:
    talk.open().begin(connect(client_identifier=name))
    talk.say(SERVER, CONNACK)
    talk.live().ack(CLIENT)


def outage(change: str = "") -> list[Explanation]:
    """A server ends two connections, leaves a SYN without an answer, and is back 30 s later."""
    tape = Tape()
    served = talks(tape, 3)
    for number, talk in enumerate(served):
        begin(talk, f"dev-{number}")
    tape.wait(1)
    if change != "runs on":
        served.pop(0).fin(CLIENT)
    for talk in served[-2:]:
        talk.fin(CLIENT if change == "clients leave" else SERVER)
    tape.wait(5)
    (attempt,) = talks(tape, 1, 50_100, "192.0.2.9" if change == "stranger" else "192.0.2.4")
    sent = attempt.syn()
    attempt.wait(1).put(CLIENT, SYN, sequence=sent.sequence)
    if change == "runs on":
        served[0].wait(1).ping().ack(CLIENT)
    if change != "no return":
        tape.wait(24)
        (back,) = talks(tape, 1, 50_200)
        begin(back, "dev-1")
    return of_segments(numbered(tape.segments))


@each("change", ["", "runs on", "clients leave", "stranger", "no return"])
def test_an_attempt_to_connect_while_the_server_is_stopped(change: str) -> None:
    ends = outage(change)
    (attempt,) = (end for end in ends if end.client.endswith(":50100"))

    assert attempt.cause is Cause.UNREACHABLE
    assert attempt.of_stop is (change == "")
    assert ("the broker had ended its connections" in attempt.first.headline) is attempt.of_stop
    assert attempt.first.advice[0].startswith("Look in the log of the broker" if attempt.of_stop else "Check the")


def test_a_stop_is_one_event_with_its_attempts_and_the_first_cause() -> None:
    events, overview = RestartEvents(), EndSummary()
    for end in sorted(outage(), key=lambda each_end: each_end.ended_ns):
        overview.add(end)
        events.absorb(end)
    (event,) = events.complete_events()
    lines = dict(overview.lines(str))

    assert (event.count, event.refusals, event.unanswered) == (2, 1, 1)
    assert (
        event.afterwards[0].text == "1 attempt to connect failed, 1 of them without an answer, the first at this time"
    )
    assert "The broker stopped or restarted" in lines["Why"]


@each(
    "by, after, cause",
    [(SERVER, 30, Cause.NO_CONNECT), (SERVER, 1, Cause.NO_MQTT), (CLIENT, 30, Cause.NO_MQTT)],
)
def test_a_connection_without_a_connect(by: str, after: float, cause: Cause) -> None:
    """The server has to give up: a client that closes, or a server that does at once, is an ordinary end."""
    talk = Conversation().open().wait(after)
    talk.fin(by)
    talk.ack(CLIENT if by == SERVER else SERVER)
    (end,) = of_segments(numbered(talk.tape.segments))

    assert end.cause is cause
    if cause is Cause.NO_CONNECT:
        assert end.first.certainty is Certainty.LIKELY
        assert "sent nothing, and the server gave up after 30.0" in end.first.headline
        assert not end.is_quiet
