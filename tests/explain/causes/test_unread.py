"""Connections that a server ends before it can have read anything."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.mqtt import Pingreq, Pingresp
from tests.dissect.talk import CONNACK, Talk, Tape, connect
from tests.each import each
from tests.explain.running import of_segments


def served(tape: Tape, number: int) -> Talk:
    """A client that the server accepts."""
    talk = Talk(tape, client_port=40_000 + number, client=f"192.0.2.{100 + number}").handshake()
    talk.client(connect(client_identifier=f"c{number}"))
    talk.server(CONNACK)
    talk.ack("client")
    return talk


def alive(talk: Talk) -> None:
    talk.client(Pingreq())
    talk.server(Pingresp())


def knocks(tape: Tape, port: int, change: str = "", host: int = 9) -> None:
    """A client that the server turns away, unless there is a change."""
    talk = Talk(tape, client_port=port, client=f"192.0.2.{host}").handshake()
    if change == "late":
        tape.wait(1.5)
    if change in ("read", "reset at arrival", "reset later"):
        talk.client(connect(client_identifier="late"))
        tape.wait(0.5 if change == "reset later" else 0)
        if change == "read":
            talk.fin("server")
        else:
            talk.reset("server")
        return
    talk.fin("server")
    if change != "nothing sent":
        talk.position["server"] -= 1
        talk.client(connect(client_identifier="late"))
        talk.position["server"] += 1
    talk.ack("client")


def turned_away(change: str = "", count: int = 3, *, others: bool = True) -> list[Explanation]:
    """Explanations of clients that a server turns away while it serves another one."""
    tape = Tape()
    other = served(tape, 0) if others else None
    for number in range(count):
        tape.wait(5)
        knocks(tape, 50_000 + number, change)
        if other is not None:
            alive(other)
    return [end for end in of_segments(tape.segments) if ":50" in end.client]


@each(
    "change, cause",
    [
        ("", Cause.TURNED_AWAY),
        ("nothing sent", Cause.TURNED_AWAY),
        ("read", Cause.NO_CONNACK),
        ("late", Cause.SERVER_CLOSED),
        ("reset at arrival", Cause.TURNED_AWAY),
        ("reset later", Cause.NO_CONNACK),
    ],
)
def test_ends_before_the_server_has_received_a_byte(change: str, cause: Cause) -> None:
    ends = turned_away(change)

    assert {end.cause for end in ends} == {cause}
    if cause is Cause.TURNED_AWAY:
        assert {end.first.certainty for end in ends} == {Certainty.LIKELY}
        assert "so on 3 connections while it served others" in ends[0].first.headline
        assert not any("5.0" in advice for advice in ends[0].first.advice)


def test_one_such_end_is_a_hypothesis() -> None:
    (end,) = turned_away(count=1)

    assert (end.cause, end.first.certainty) == (Cause.TURNED_AWAY, Certainty.HYPOTHESIS)
    assert "without looking at the CONNECT" in end.first.headline


def test_without_other_clients_a_proxy_without_its_broker_fits_too() -> None:
    end = turned_away(others=False)[0]

    assert (end.cause, end.first.certainty) == (Cause.TURNED_AWAY, Certainty.LIKELY)
    assert "a proxy without its broker" in end.first.headline
    assert turned_away("nothing sent", others=False)[0].cause is not Cause.TURNED_AWAY


def seats(*, is_over: bool = False) -> Explanation:
    """A server with two clients turns others away, and accepts one of them after a client has left."""
    tape = Tape()
    first, second = served(tape, 0), served(tape, 1)
    for number in range(2):
        tape.wait(5)
        knocks(tape, 50_000 + number, host=102)
    tape.wait(5)
    if not is_over:
        first.fin("client")
        first.fin("server")
    tape.wait(5)
    alive(second)
    served(tape, 2)
    tape.wait(5)
    knocks(tape, 50_002)
    alive(second)
    return next(end for end in of_segments(tape.segments) if ":50000" in end.client)


def test_a_client_that_gets_in_after_another_has_left_shows_a_limit() -> None:
    end = seats()

    assert [candidate.cause for candidate in end.candidates] == [Cause.TURNED_AWAY, Cause.QUOTA_EXCEEDED]
    assert end.candidates[1].certainty is Certainty.HYPOTHESIS
    assert "192.0.2.102 had been turned away, and got in" in end.candidates[1].headline


def test_a_server_that_accepts_more_clients_than_when_it_turned_some_away_has_no_limit() -> None:
    assert [candidate.cause for candidate in seats(is_over=True).candidates] == [Cause.TURNED_AWAY]
