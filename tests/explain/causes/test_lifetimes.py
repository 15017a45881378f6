"""Connections that a server ends at a fixed age."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.explain.causes.lifetimes import OF_TOKEN
from mqttscope.lint.examples import START_NS
from mqttscope.mqtt import Pingreq, Pingresp
from mqttscope.net.segment import ACK
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, SECOND, Talk, Tape, connect, publish
from tests.each import each
from tests.explain.causes.test_encrypted import LARGE, PING, shaken
from tests.explain.running import explained, of_segments
from tests.explain.test_tokens import jwt
from tests.lint.lint_help import steps_of


def lives(tape: Tape, number: int, age: float, quiet: float = 19, *, tls: bool = False) -> None:
    """A connection with a packet every 60 s, which the server ends so long after its beginning and its last packet."""
    tape.wait(1 + 7 * number)
    if tls:
        talk = shaken(8883, tape, 50_000 + number)
        talk.client(LARGE)
    else:
        talk = Talk(tape, client_port=50_000 + number).handshake()
        talk.client(connect())
        talk.server(CONNACK)
    left = age
    while left - 60 >= quiet:
        tape.wait(60)
        talk.client(PING if tls else Pingreq())
        talk.server(PING if tls else Pingresp())
        left -= 60
    tape.wait(left)
    talk.close("server")


def ends(*ages: float, quiet: float = 19, tls: bool = False) -> list[Explanation]:
    tape = Tape()
    for number, age in enumerate(ages):
        lives(tape, number, age, quiet, tls=tls)
    tape.wait(200)
    Talk(tape, client_port=40_000).handshake()
    return [end for end in of_segments(tape.segments) if ":50" in end.client]


@each("tls", [False, True])
def test_ends_at_one_age_while_data_comes(tls: bool) -> None:
    explanations = ends(200, 200.7, 199.8, tls=tls)

    assert [(end.cause, end.first.certainty) for end in explanations] == [(Cause.FIXED_AGE, Certainty.LIKELY)] * 3
    assert "Perhaps a token expires then" in explanations[0].first.headline
    assert Cause.IDLE_TIMEOUT not in {candidate.cause for candidate in explanations[0].candidates}


@each(
    "ages, quiet",
    [
        # Few of them; different ages; one that lasted longer; as long a silence before each end as between its packets.
        ((200, 200), 19),
        ((200, 203, 200), 19),
        ((200, 200, 200, 260), 19),
        ((240, 240, 240), 60),
        ((59, 59, 59), 19),
        ((180, 180, 180), 0),
    ],
)
def test_a_fact_that_contradicts_a_fixed_age(ages: tuple[int, ...], quiet: int) -> None:
    assert all(end.cause is not Cause.FIXED_AGE for end in ends(*ages, quiet=quiet))


def test_common_ends_of_several_clients_have_another_cause() -> None:
    tape = Tape()
    for number in range(3):
        tape.wait(1 + 7 * number)
        talks = [Talk(tape, client_port=50_000 + 10 * number + host, client=f"192.0.2.{20 + host}").handshake()
                 for host in range(2)]  # fmt: skip
        for host, talk in enumerate(talks):
            talk.client(connect(client_identifier=f"c{host}"))
            talk.server(CONNACK)
        for seconds in (60, 60, 60):
            tape.wait(seconds)
            for talk in talks:
                talk.client(Pingreq())
                talk.server(Pingresp())
        tape.wait(20)
        for talk in talks:
            talk.close("server")

    assert all(end.cause is not Cause.FIXED_AGE for end in of_segments(tape.segments))


def timed(
    *ages: float, steps: str = "> connect; < connack; > subscribe; < suback", last: str = "", tls: bool = False
) -> list[Explanation]:
    """Connections that their client closes at these ages; ``last``: steps right before each end."""
    tape = Tape()
    for number, age in enumerate(ages):
        tape.wait(1 + 3 * number)
        began_ns = tape.now_ns
        talk = shaken(8883, tape, 50_000 + number) if tls else Talk(tape, client_port=50_000 + number).handshake()
        if not tls:
            talk.tell(steps)
        tape.now_ns = began_ns + int(age * SECOND) - (5_000_000 if last else 1_000_000)
        if last:
            talk.tell(last)
        talk.close("client")
    return of_segments(tape.segments)


@each("ages", [(1, 1, 1), (30, 30.2, 29.9), (0.6, 0.602, 0.601)])
def test_a_client_that_closes_at_one_age(ages: tuple[float, ...]) -> None:
    explanations = timed(*ages)

    assert [(end.cause, end.first.certainty) for end in explanations] == [(Cause.FIXED_AGE, Certainty.LIKELY)] * 3
    assert "although no request of it waited for an answer" in explanations[0].first.headline


def test_a_client_that_does_not_wait_longer_for_an_answer() -> None:
    first = timed(5, 5, 5, steps="> connect; < connack; > subscribe")[0].first

    assert "did not wait longer for answers (a/#)" in first.headline


@each(
    "ages, options",
    [
        # Few of them; different ages; one that lasted longer; too young.
        ((1, 1), {}),
        ((1, 1.1, 1), {}),
        ((1, 1, 1, 3), {}),
        ((0.4, 0.4, 0.4), {}),
        # The end follows a packet, a DISCONNECT, no CONNACK, a PINGREQ without an answer, or what cannot be read.
        ((2, 2, 2), {"last": "> publish"}),
        ((2, 2, 2), {"last": "< publish a/b on"}),
        ((2, 2, 2), {"last": "> disconnect"}),
        ((2, 2, 2), {"steps": "> connect"}),
        ((5, 5, 5), {"steps": "> connect; < connack; > pingreq"}),
        ((2, 2, 2), {"tls": True}),
    ],
)
def test_a_fact_that_contradicts_a_timer_of_the_client(ages: tuple[float, ...], options: dict[str, str]) -> None:
    assert all(end.cause is not Cause.FIXED_AGE for end in timed(*ages, **options))  # type: ignore[arg-type]


@each("is_acknowledged", [True, False])
def test_a_path_that_may_be_lost_is_no_timer(is_acknowledged: bool) -> None:
    tape = Tape()
    for number in range(3):
        talk = Conversation(tape)
        talk.keys = Talk(client_port=50_000 + number).keys
        talk.open().whole()
        sent = talk.say(CLIENT, publish())
        if is_acknowledged:
            talk.ack(SERVER)
        talk.wait(9).fin(CLIENT)
        talk.put(SERVER, ACK, acknowledges=None if is_acknowledged else sent[0].sequence)

    assert (of_segments(numbered(tape.segments))[0].cause is Cause.FIXED_AGE) is is_acknowledged


def with_token(age: float, *after: str, valid_s: int = 3600, keep_alive: int = 0) -> Explanation:
    """A connection that the server ends at an age of seconds; its token is valid for the first hour."""
    token = jwt({"exp": START_NS // SECOND + valid_s}).decode()
    who = f'client=c user_name=u password="{token}" keep_alive={keep_alive}'
    lines = [f"opened 3.1.1 {who}", f"+{age - 9} > publish a on; +9 < fin", *(line.format(who=who) for line in after)]
    return explained(*steps_of(*lines))[0]


REFUSED = "+5 @1 > connect 3.1.1 {who}; @1 < connack code=5; @1 < fin"


@each(
    "age, after, certainty",
    [
        (3600, (), Certainty.LIKELY),
        (3596, (), Certainty.LIKELY),
        (3604, (), Certainty.LIKELY),
        (4200, (REFUSED,), Certainty.LIKELY),
        (4200, (), Certainty.HYPOTHESIS),
        (4498, (REFUSED,), Certainty.LIKELY),
        # Too late, too early, and a broker that accepts the token again.
        (4502, (REFUSED,), None),
        (3594, (REFUSED,), None),
        (3600, ("+5 @1 opened 3.1.1 {who}",), None),
    ],
)
def test_a_server_that_closes_when_a_token_has_expired(
    age: float, after: tuple[str, ...], certainty: Certainty | None
) -> None:
    end = with_token(age, *after)
    certainties = [cause.certainty for cause in end.candidates if cause.cause is Cause.BAD_CREDENTIALS]

    assert certainties == ([] if certainty is None else [certainty])
    if certainty is not None:
        assert "token of the client (JSON Web Token in its CONNECT) had expired" in end.first.headline
        assert end.first.advice == OF_TOKEN


def test_a_keep_alive_that_ran_out_explains_more_than_a_token() -> None:
    assert with_token(4200, valid_s=4000, keep_alive=6).cause is Cause.KEEP_ALIVE
