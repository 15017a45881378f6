"""Ends of the older connections of a server together."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.mqtt import Pingreq, Pingresp
from mqttscope.report.explanations.restarts import RestartEvents
from tests.dissect.talk import CONNACK, Talk, Tape, connect
from tests.each import each
from tests.explain.running import of_segments


def client(tape: Tape, number: int, name: str = "") -> Talk:
    talk = Talk(tape, client_port=50_000 + number, client=f"192.0.2.{10 + number}").handshake()
    talk.client(connect(client_identifier=name or f"c{number}"))
    talk.server(CONNACK)
    talk.ack("client")
    return talk


def reload(old: int, young: int, change: str = "") -> list[Explanation]:
    """The server ends its older connections, and serves the younger ones."""
    tape = Tape()
    first = client(tape, 70) if change.startswith("older") else None
    olds = [client(tape, number) for number in range(old)]
    tape.wait(100)
    youngs = [client(tape, 20 + number) for number in range(young)]
    tape.wait(100)
    for talk in olds:
        talk.client(Pingreq())
        talk.server(Pingresp())
    tape.wait(5)
    for talk in olds:
        talk.close("server")
    if change != "no return":
        for number in range(old):
            client(tape, 40 + number, f"c{number}")
    tape.wait(10)
    for talk in youngs if change != "silent" else []:
        talk.client(Pingreq())
        talk.server(Pingresp())
    if first is not None and change == "older ends later":
        first.close("server")
    return [end for end in of_segments(tape.segments) if 50_000 <= int(end.client.rpartition(":")[2]) < 50_020]


@each("old, young, certainty", [(6, 2, Certainty.LIKELY), (4, 2, Certainty.HYPOTHESIS)])
def test_the_oldest_connections_end_and_younger_ones_continue(old: int, young: int, certainty: Certainty) -> None:
    ends = reload(old, young)

    assert [(end.cause, end.first.certainty) for end in ends] == [(Cause.PART_REPLACED, certainty)] * old
    assert f"ended its {old} oldest connections" in ends[0].first.headline
    assert "2 younger ones continued" in ends[0].first.headline


def test_all_ends_are_one_event() -> None:
    events = RestartEvents()
    known = [events.absorb(end) for end in reload(6, 2)]

    assert known[0] is not None
    assert all(event is known[0] for event in known)
    assert (known[0].count, known[0].back) == (6, 6)


def test_without_a_return_it_is_a_hypothesis() -> None:
    assert {end.first.certainty for end in reload(6, 2, "no return")} == {Certainty.HYPOTHESIS}


@each("change", ["older", "older ends later", "silent"])
def test_a_fact_that_contradicts_it(change: str) -> None:
    assert all(end.cause is not Cause.PART_REPLACED for end in reload(6, 2, change))


def test_a_choice_by_age_may_be_an_accident() -> None:
    assert all(end.cause is Cause.SERVER_CLOSED for end in reload(3, 1))
