"""A broker that works for no client for a while."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.mqtt import Pingreq, Pingresp
from mqttscope.report.explanations.restarts import RestartEvents
from tests.dissect.talk import CONNACK, Talk, Tape, connect
from tests.each import each
from tests.explain.running import of_segments


def client(tape: Tape, number: int, host: int) -> Talk:
    talk = Talk(tape, client_port=50_000 + number, client=f"192.0.2.{host}").handshake()
    talk.client(connect(client_identifier=f"c{number}"))
    talk.server(CONNACK)
    talk.ack("client")
    return talk


def hang(change: str = "", count: int = 3) -> list[Explanation]:
    """Clients ping in vain, one gives up, and the server resets the others."""
    tape = Tape()
    talks = [client(tape, number, 9 if change == "one host" else 10 + number) for number in range(count)]
    quiet = client(tape, 7, 90)
    tape.wait(20)
    for talk in talks:
        talk.client(Pingreq())
        if change != "not acknowledged":
            talk.ack("server")
    tape.wait(4)
    if change == "speaks":
        quiet.client(Pingreq())
        quiet.server(Pingresp())
    if change == "loses":
        quiet.lose("server", 2)
        quiet.ack("client")
        quiet.server(Pingresp())
    tape.wait(0 if change == "short" else 11)
    late = Talk(tape, client_port=50_020, client="192.0.2.9" if change == "one host" else "192.0.2.50")
    if change == "refuses":
        late.refused()
    else:
        late.handshake()
        late.client(connect(client_identifier="late"))
        late.ack("server")
    talks[0].close("client")
    for talk in talks[1:]:
        talk.reset("server")
    if change in ("", "refuses later"):
        client(tape, 30, 12)
    if change == "refuses later":
        tape.wait(1)
        Talk(tape, client_port=50_031, client="192.0.2.51").refused()
    tape.wait(1)
    return [end for end in of_segments(tape.segments) if end.ended_how in ("fin", "reset") and end.client[-2:] != "31"]


def test_a_broker_that_hung_explains_all_ends() -> None:
    ends = hang()

    assert [(end.cause, end.first.certainty) for end in ends] == [(Cause.SERVER_HUNG, Certainty.LIKELY)] * 3
    assert "left requests on 4 connections of 4 hosts without an answer" in ends[0].first.headline
    assert "while its TCP acknowledged everything and accepted 2 connections" in ends[0].first.headline
    assert [candidate.cause for candidate in ends[1].candidates] == [Cause.SERVER_HUNG]
    assert not any("again" in advice for advice in ends[0].first.advice)


def test_all_ends_are_one_event() -> None:
    events = RestartEvents()
    known = [events.absorb(end) for end in hang()]

    assert known[0] is not None
    assert all(event is known[0] for event in known)
    assert (known[0].count, known[0].headline) == (3, known[0].first.first.headline)


@each("change", ["one host", "not acknowledged", "short", "speaks", "loses", "refuses"])
def test_a_fact_that_contradicts_a_hang(change: str) -> None:
    assert all(candidate.cause is not Cause.SERVER_HUNG for end in hang(change) for candidate in end.candidates)


def test_few_requests_without_an_answer_show_no_hang() -> None:
    assert all(end.cause is not Cause.SERVER_HUNG for end in hang(count=1))


def test_a_port_that_refuses_connections_afterwards_shows_a_stop_too() -> None:
    causes = [candidate.cause for candidate in hang("refuses later", count=4)[1].candidates]

    assert causes == [Cause.SERVER_HUNG, Cause.SERVER_RESTART]
