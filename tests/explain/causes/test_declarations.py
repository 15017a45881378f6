"""What contradicts a cause."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from mqttscope.explain.advice import ADVICE
from mqttscope.explain.causes.declarations import DECLARATIONS
from tests.dissect.conversations import Conversation, numbered
from tests.each import each
from tests.explain.running import explained, of_segments
from tests.lint.lint_help import steps_of


def shown(text: str, connection: int = 0) -> list[Cause]:
    return [candidate.cause for candidate in explained(*steps_of(text))[connection].candidates]


def test_every_cause_is_declared_and_has_advice() -> None:
    assert set(DECLARATIONS) == set(ADVICE) == set(Cause)


@each(
    "cause, fits, contradicted",
    [
        (
            Cause.KEEP_ALIVE,
            "opened keep_alive=10; +15 < fin",
            "opened keep_alive=10; +8 > pingreq; < pingresp; +9 < fin",
        ),
        (Cause.KEEP_ALIVE, "opened keep_alive=10; +15 < fin", "opened keep_alive=10; +15 > fin"),
        (Cause.TAKEN_OVER, "opened 3.1.1; @1 opened 3.1.1; < fin", "opened 3.1.1; @1 opened 3.1.1; +6 < fin"),
        (
            Cause.TAKEN_OVER,
            "opened 3.1.1; @1 opened 3.1.1; < fin",
            "opened 3.1.1; @1 opened 3.1.1; > pingreq; < pingresp; < fin",
        ),
        (
            Cause.NOT_AUTHORIZED,
            "opened 3.1.1; > publish a qos=1 id=1; < fin",
            "opened 3.1.1; > publish a qos=1 id=1; < puback 1; > publish a qos=1 id=2; < fin",
        ),
        (Cause.NO_PING_RESPONSE, "opened; > pingreq; +9 > fin", "opened; > pingreq; < pingresp; +9 > fin"),
        (Cause.NO_PING_RESPONSE, "opened; > pingreq; +9 > fin", "opened; > pingreq; +9 < fin"),
        (Cause.NO_CONNACK, "> connect; +2 < fin", "> connect; < connack; +2 < fin"),
        (
            Cause.SERVER_RESTART,
            "for 0..3: @{n} opened 3.1.1 client=c{n}\n  +1 @0 < fin\n  for 1..3: +0.31 @{n} < fin",
            "for 0..3: +0.3 @{n} opened 3.1.1 client=c{n}\n  +0.1 @0 < fin\n  for 1..3: +0.31 @{n} < fin",
        ),
        (Cause.NO_PING_RESPONSE, "opened keep_alive=1; > pingreq; +0.985 > fin", "opened; > pingreq; +1 > fin"),
        (Cause.BAD_CREDENTIALS, "> connect; < connack code=0x86; < fin",
         "> connect; < connack code=0x86; > pingreq; < pingresp; +9 < fin"),
    ],
)  # fmt: skip
def test_a_fact_that_contradicts(cause: Cause, fits: str, contradicted: str) -> None:
    assert cause in shown(fits)
    assert cause not in shown(contradicted)


def test_a_refusal_after_which_the_server_served_the_client_is_not_the_cause_of_a_later_end() -> None:
    text = "> connect keep_alive=10; < connack code=0x86; > pingreq; < pingresp; +15 < fin"

    assert shown(text) == [Cause.KEEP_ALIVE]


def test_a_packet_that_names_the_cause_outweighs_arithmetic() -> None:
    assert shown("opened keep_alive=60; +1 < disconnect code=0x8d; < fin") == [Cause.KEEP_ALIVE]


@each(
    "others, cause, certainty",
    [
        ("", Cause.UNSUPPORTED_VERSION, Certainty.CERTAIN),
        ("@1 opened 3.1.1 client=c2", Cause.UNSUPPORTED_VERSION, Certainty.CERTAIN),
        ("@1 opened client=c2", Cause.CONNECT_REFUSED, Certainty.CERTAIN),
    ],
)
def test_a_version_that_others_speak_with_the_broker(others: str, cause: Cause, certainty: Certainty) -> None:
    first = explained(*steps_of("> connect; < raw 20 02 00 01; < fin", others))[0].first

    assert (first.cause, first.certainty) == (cause, certainty)
    assert ("speaks no 5.0" in repr(first)) is (cause is Cause.UNSUPPORTED_VERSION)


@each("keep_alive, cause", [(1_200, Cause.SERVER_CLOSED), (60, Cause.SERVER_RESTART)])
def test_a_connection_that_is_silent_for_its_keep_alive_may_show_that_the_server_ran_on(
    keep_alive: int, cause: Cause
) -> None:
    opens = f"for 0..3: @{{n}} opened 3.1.1 client=c{{n}} keep_alive={keep_alive}"
    explanations = explained(
        *steps_of(opens, "for 0..2: @{n} < fin", "+250 @4 opened 3.1.1 client=x", "+900 @3 > pingreq; @3 < pingresp")
    )

    assert {end.cause for end in explanations[:3]} == {cause}


@each(
    "clock, cause",
    [
        # As before: the stack did not start again; from its beginning; none.
        (100_000, Cause.STILL_OPEN),
        (-20_000, Cause.DEVICE_RESTART),
        (None, Cause.DEVICE_RESTART),
    ],
)
def test_a_device_whose_tcp_clock_runs_on_has_not_restarted(clock: int | None, cause: Cause) -> None:
    first = Conversation(clocks=(100_000 if clock else None, None)).quiet(3).wait(30)
    second = Conversation(first.tape, numbers=(500_001, 700_001), clocks=(clock, None)).open().whole()
    explanations = of_segments(numbered(second.tape.segments))

    assert [explanation.cause for explanation in explanations][:1] == [cause]
    assert len(explanations) == 2
