"""Causes that time shows."""

from __future__ import annotations

from collections.abc import Callable

from mqttscope.explain import Cause, Certainty, Explainer
from mqttscope.mqtt.packets import Pingresp, Publish
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import PINGREQ, connect
from tests.each import each
from tests.explain.running import ending, explained, of_segments
from tests.lint.lint_help import steps_of

PINGS = "opened 3.1.1 keep_alive=10; > pingreq; < pingresp"


@each(
    "text, expected",
    [
        (f"{PINGS}; +15 < fin", "keep_alive likely"),
        (f"{PINGS}; +20 < fin", "keep_alive likely"),
        (f"{PINGS}; +12 < fin", "server_closed hypothesis"),
        (f"{PINGS}; +60 < fin", "keep_alive hypothesis"),
        (f"{PINGS}; +5 < fin", "server_closed hypothesis"),
        # Without a Keep Alive it cannot run out, and not for a client that closes.
        (f"{PINGS.replace('=10', '=0')}; +60 < fin", "server_closed hypothesis"),
        (f"{PINGS}; +60 > fin", "client_closed likely"),
        ("opened; > pingreq; +0.5 > fin", "client_closed likely"),
        ("opened; > pingreq; > disconnect; +9 > fin", "normal certain"),
    ],
)
def test_an_end_long_after_the_last_packet(text: str, expected: str) -> None:
    explanation = ending(text)

    assert f"{explanation.cause} {explanation.first.certainty}" == expected


def test_what_came_before_its_limit_is_named_as_a_hypothesis() -> None:
    (other,) = ending("opened 3.1.1 keep_alive=10; +12 < fin").candidates[1:]

    assert (other.cause, other.certainty) == (Cause.KEEP_ALIVE, Certainty.HYPOTHESIS)
    assert [doubt.text for doubt in other.doubts] == [
        "the broker closed before one and a half times the Keep Alive had passed"
    ]


def test_bytes_that_are_missing_make_it_a_hypothesis() -> None:
    explanation = ending("opened 3.1.1 keep_alive=10; +9 lost > pingreq; < pingresp; +14 < fin")

    certainties = [each.certainty for each in explanation.candidates if each.cause is Cause.KEEP_ALIVE]
    assert certainties == [Certainty.HYPOTHESIS]
    doubts = [doubt.text for each in explanation.candidates if each.cause is Cause.KEEP_ALIVE for doubt in each.doubts]
    assert any("missing in the capture" in text for text in doubts)


def test_the_rule_of_the_linter_stands_with_it() -> None:
    explanation = ending("opened 3.1.1 keep_alive=10; +16 < fin")

    assert [each.rule for each in explanation.first.broken] in ([], ["KAL201"])
    assert explanation.first.advice


def test_a_client_that_waits_for_a_ping_response() -> None:
    explanation = ending("opened; > pingreq; +10 > fin")

    assert explanation.cause is Cause.NO_PING_RESPONSE
    assert "no answer for 10.0" in explanation.first.headline


@each(
    "arrives, waits, advice",
    [
        (True, 10, "Look why the broker did not answer"),
        (True, 9, "Let the client wait for a PINGRESP longer"),
        (False, 5, "Find out which side lost the other"),
    ],
)
def test_a_ping_that_arrived_asks_another_question_than_one_that_did_not(
    arrives: bool, waits: float, advice: str
) -> None:
    talk = Conversation().open().whole().ack("client")
    (sent,) = talk.say("client", PINGREQ)
    if arrives:
        talk.ack("server")
    else:
        talk.wait(1).repeat(sent)
    talk.wait(waits).fin("client")
    first = next(each_one for each_one in of_segments(numbered(talk.tape.segments))[0].candidates
                 if each_one.cause is Cause.NO_PING_RESPONSE)  # fmt: skip

    assert first.advice[0].startswith(advice)


@each("arrives, says", [(True, "Look whether the broker itself runs"), (False, "")])
def test_a_connect_that_arrived_and_had_no_answer(arrives: bool, says: str) -> None:
    talk = Conversation().open()
    talk.say("client", connect())
    if arrives:
        talk.ack("server")
    talk.wait(10).fin("client")
    first = of_segments(numbered(talk.tape.segments))[0].first

    assert first.cause is (Cause.NO_CONNACK if arrives else Cause.HALF_OPEN)
    assert first.advice[0].startswith(says)
    assert any("TCP acknowledged the CONNECT" in each_one.text for each_one in first.reasons) is arrives


@each(
    "lines, is_idle",
    [
        (["for 0..3: @{n} opened 3.1.1 client=c{n}; +30 @{n} < fin"], True),
        (
            ["for 0..3: +0.2 @{n} opened 3.1.1 client=c{n}; @{n} > pingreq", "+30 @0 < fin", "for 1..3: @{n} < fin"],
            False,
        ),
        (["opened 3.1.1", "for 1..3: @{n} opened 3.1.1 client=c{n}; +30 @{n} < fin"], False),
        (["for 0..3: +0.3 @{n} opened 3.1.1 client=c{n}", "+0.4 @0 < fin", "for 1..3: +0.31 @{n} < fin"], True),
        (
            [
                "for 0..3: +0.3 @{n} opened 3.1.1 client=c{n}",
                "+0.4 @0 < fin; @0 > pingreq",
                "for 1..3: +0.3 @{n} < fin; @{n} > pingreq",
            ],
            True,
        ),
    ],
)
def test_the_same_silence_before_several_ends(lines: list[str], is_idle: bool) -> None:
    """Not where they end together, nor where another connection stays open for longer.

    Ends that are less than a second apart are not one stop if the silences are more alike; what a client sends after
    the FIN of the server ends no silence.
    """
    explanations = explained(*steps_of(*lines))
    assert not is_idle or Cause.SERVER_RESTART not in [end.cause for end in explanations]

    assert (Cause.IDLE_TIMEOUT in [each_one.cause for end in explanations for each_one in end.candidates]) is is_idle


@each("silence, part", [(45, "three quarters"), (44.2, "three quarters"), (44, ""), (30, "half"), (30.7, ""), (7, "")])
def test_an_idle_time_out_that_is_a_part_of_the_keep_alive(silence: float, part: str) -> None:
    """Some brokers wait for less than the Keep Alive: another Keep Alive shows it."""
    first = ending(f"for 0..2: @{{n}} opened 3.1.1 keep_alive=60; +{silence} @{{n}} < fin").first

    assert (first.cause, first.certainty) == (Cause.IDLE_TIMEOUT, Certainty.LIKELY)
    assert (f", or the broker itself, since that is {part} of the Keep Alive." in first.headline) is bool(part)
    assert first.advice[0].startswith("Try another Keep Alive") is bool(part)


@each("opens, expected", [
    ("opened 3.1.1 keep_alive=60", "shorter than the Keep Alive of 60 s allows"),
    ("opened 3.1.1 keep_alive=0", "and there is no Keep Alive"),
    ("> pingreq; < pingresp", "and its Keep Alive is unknown"),
])  # fmt: skip
def test_an_idle_time_out_beside_the_keep_alive(opens: str, expected: str) -> None:
    explanation = ending(f"for 0..2: @{{n}} {opens.replace('; ', '; @{n} ')}; +7 @{{n}} < fin")

    assert (explanation.cause, expected in explanation.first.headline) == (Cause.IDLE_TIMEOUT, True)


@each("apart, late, is_stop", [(0.04, 0, True), (0.3, 0, False), (0.3, 0.05, False), (0.3, 0.2, True)])
def test_two_ends_after_the_same_silence(apart: float, late: float, is_stop: bool) -> None:
    """What ends silent connections may be late; ends at one time may be a stop."""
    lines = f"for 0..1: +{apart} @{{n}} opened 3.1.1 client=c{{n}}", f"+{1 - apart} @0 < fin; +{apart + late} @1 < fin"
    causes = {end.cause for end in explained(*steps_of(*lines))}

    assert causes == {Cause.SERVER_RESTART if is_stop else Cause.SERVER_CLOSED}


@each("apart, is_stop", [(0.001, True), (0.21, False)])
def test_ends_of_two_pairs_that_were_silent_alike(apart: float, is_stop: bool) -> None:
    """The clock of a capture may have been set without a proof of that, and one silence looks like two."""
    opens = "for 0..1: +0.2 @{n} opened 3.1.1 client=c{n}", "+30 @2 opened client=c2; +0.2 @3 opened client=c3"
    ends = f"+0.5 @0 < fin; +{apart} @1 < fin; +{apart} @2 < fin; +{apart} @3 < fin"
    causes = {end.cause for end in explained(*steps_of(*opens, ends))}

    assert causes == {Cause.SERVER_RESTART if is_stop else Cause.SERVER_CLOSED}


@each("waits, is_idle", [((60, 60, 59.8), False), ((50, 50, 50), True)])
def test_an_end_that_is_due_from_the_connect_is_no_idle_time_out(waits: tuple[float, ...], is_idle: bool) -> None:
    """A server closes 1.5 times the Keep Alive after the CONNECT although pings came, and bore longer silences."""
    pings = "; ".join(f"+{seconds} @{{n}} > pingreq; @{{n}} < pingresp" for seconds in waits[:-1])
    lines = f"for 0..2: @{{n}} opened 3.1.1 keep_alive=120; {pings}; +{waits[-1]} @{{n}} < fin"
    causes = {end.cause for end in explained(*steps_of(lines))}

    assert (Cause.IDLE_TIMEOUT in causes) is is_idle


def test_bytes_of_a_packet_that_never_was_complete_are_not_silence() -> None:
    pieces = "; ".join(f"+{seconds} > raw {'62' * 50}" for seconds in (4, 4, 4, 3))
    explanation = ending("opened 3.1.1 keep_alive=10", f"+1 > raw 30ff7f0003612f62; {pieces}; +0.5 < fin")

    (candidate,) = (each for each in explanation.candidates if each.cause is Cause.KEEP_ALIVE)
    assert (candidate.certainty, "no complete packet" in candidate.headline) == (Certainty.HYPOTHESIS, True)
    assert "no PINGREQ can be sent inside a packet" in candidate.advice[0]


@each("piece, is_named", [(f"raw 30ff7f0003612f62; +4 > ack; +4 > raw {'62' * 50}; < ack", True), ("ack", False)])
def test_a_time_out_inside_a_large_packet(piece: str, is_named: bool) -> None:
    """The broker counts complete packets; those that arrive in parts are named, and a silent client is not excused."""
    first = ending("opened keep_alive=10", f"+7 > {piece}; +7.5 < disconnect code=0x8d; < fin").first

    assert (first.cause, first.certainty) == (Cause.KEEP_ALIVE, Certainty.CERTAIN)
    assert ("was sending a PUBLISH of 16,386 bytes" in first.headline) is is_named
    assert ("no PINGREQ can be sent" in first.advice[0]) is is_named


@each(
    "line, cause, certainty",
    [
        # Clients with different Keep Alives, or messages of the broker in between: no fixed time ends them.
        ("@{n} opened 3.1.1 client=c{n} keep_alive={n}5; +{n}5.01 @{n} < fin", "keep_alive", Certainty.LIKELY),
        (
            "@{n} opened 3.1.1 client=c{n} keep_alive=15; +5 @{n} < publish a; +10.01 @{n} < fin",
            "keep_alive", Certainty.LIKELY,
        ),
        ("@{n} opened 3.1.1 client=c{n} keep_alive=15; +15.01 @{n} < fin", "keep_alive", Certainty.HYPOTHESIS),
        # The broker bore a longer silence of another client, or of this one.
        (
            "@{n} opened 3.1.1 client=c{n} keep_alive={n}5; +{n}6 @{n} > pingreq; +{n}5.01 @{n} < fin",
            "server_closed", Certainty.HYPOTHESIS,
        ),
        ("@{n} opened 3.1.1 client=c{n} keep_alive={n}5; +{n}8 @{n} < fin", "server_closed", Certainty.HYPOTHESIS),
    ],
)  # fmt: skip
def test_a_broker_that_counts_the_keep_alive_once(line: str, cause: str, certainty: Certainty) -> None:
    first = explained(*steps_of(f"for 1..3: {line}"))[-1].first

    assert (first.cause, first.certainty) == (cause, certainty)
    assert ("the Keep Alive once" in first.headline) is (cause == "keep_alive")


def test_ends_that_each_follow_a_keep_alive_are_no_restart() -> None:
    """The last of them come within a second."""
    opens = [f"{'+0.4 ' if n else ''}@{n} opened 3.1.1 client=c{n} keep_alive=20" for n in range(3)]
    explanations = explained(*steps_of(*opens, "+19.2 @0 < fin; +0.4 @1 < fin; +0.4 @2 < fin"))

    assert Cause.SERVER_RESTART not in [each_one.cause for end in explanations for each_one in end.candidates]


@each(
    "line, is_named",
    [
        ("+10 @{n} > publish a; +9.99 @{n} > publish a; +10 @{n} < fin", True),
        ("+10 @{n} > publish a; +9.99 @{n} > pingreq; +10 @{n} < fin", False),
        ("+10 @{n} > publish a; +9.99 @{n} > publish a; +14 @{n} < fin", False),
        ("+10 @{n} > publish a; +9.99 @{n} > publish a; +10 @{n} < fin; +1 @9 > publish a", True),
        ("+10 @{n} > publish a; +9.99 @{n} > publish a; +10 @{n} < fin; +40 @9 > publish a", False),
    ],
)
def test_a_broker_that_counts_no_publish(line: str, is_named: bool) -> None:
    """Unless another client could publish for longer without anything else."""
    each_one = f"for 1..3: @{{n}} opened 3.1.1 client=c{{n}} keep_alive=20; {line}"
    first = explained(*steps_of("@9 opened client=x keep_alive=100", each_one))[1].first

    assert (first.cause, first.certainty) == (Cause.SERVER_CLOSED, Certainty.HYPOTHESIS)
    assert ("may not count PUBLISH" in first.headline) is is_named


@each("between, after, certainty", [
    ("+{n}1 @{n} < publish a; +{m} @{n} < fin", "", Certainty.LIKELY),
    # Bytes of the server may have put the end off; a client of it was silent for longer and stayed, or closed itself.
    ("+10 @{n} < publish a; +50 @{n} < fin", "", None),
    ("+{n}1 @{n} < publish a; +{m} @{n} < fin", "@9 opened client=x keep_alive=0; +70 @9 > publish a", None),
    ("+{n}1 @{n} < publish a; +{m} @{n} > fin", "", None),
])  # fmt: skip
@each("keep_alive", [0, 61, 60])
def test_an_end_after_the_silence_of_a_client_whose_keep_alive_had_not_passed(
    between: str, after: str, certainty: Certainty | None, keep_alive: int
) -> None:
    certainty = certainty if keep_alive != 60 else None  # a PINGREQ was due
    lines = [
        f"@{n} opened 3.1.1 client=c{n} keep_alive={keep_alive}; " + between.format(n=n, m=59 - 10 * n)
        for n in range(3)
    ]
    explanations = explained(*steps_of(*lines, *filter(None, [after])))
    idle = [end.first for end in explanations[:3] if "after the client's last packet, whatever" in end.first.headline]

    assert [candidate.certainty for candidate in idle] == ([] if certainty is None else [certainty] * 3)


@each("others, causes", [(2, {"idle_timeout"}), (1, {"server_closed"})])
def test_later_ends_support_an_earlier_one(others: int, causes: set[str]) -> None:
    lines = [f"+200 @{n} opened 3.1.1 client=c{n} keep_alive=600; +150 @{n} < fin" for n in range(1 + others)]

    assert {end.cause for end in explained(*steps_of(*lines))} == causes


@each("keep_alive, waits, end, headline", [
    (0, 0.099, "> fin", "The client closed the connection 99.0 ms after its PINGREQ, without"),
    (0, 0, "> reset", "The client reset the connection 0.0 ms after its PINGREQ, without"),
    (0, 0.11, "> fin", "The client closed the connection without"),
    (60, 0.09, "> fin", "The client closed the connection without"),
    (0, 0.09, "< fin", "The broker closed the connection, and"),
])  # fmt: skip
def test_a_client_without_a_keep_alive_that_closes_on_its_own_ping(
    keep_alive: int, waits: float, end: str, headline: str
) -> None:
    first = ending(f"opened 3.1.1 keep_alive={keep_alive}; +1 > pingreq; +{waits} {end}").first

    assert first.headline.startswith(headline)


@each("seconds, end, causes", [
    ((20, 20, 20), "> reset", [Cause.IDLE_TIMEOUT] * 3),
    ((20, 20), "> reset", [Cause.CLIENT_RESET] * 2),
    ((20, 20, 21), "> reset", [Cause.CLIENT_RESET] * 3),
    ((20, 20, 20), "> fin", [Cause.CLIENT_CLOSED] * 3),
    ((4, 4, 4), "> reset", [Cause.CLIENT_RESET] * 3),
    # A connection stayed open after a longer silence.
    ((20, 20, 20, 0), "> reset", [Cause.CLIENT_RESET] * 3),
])  # fmt: skip
def test_resets_from_the_side_of_the_client_after_the_same_silence(
    seconds: tuple[int, ...], end: str, causes: list[Cause]
) -> None:
    lines = [f"+1 @{n} opened client=c{n} keep_alive=600; +{s} @{n} {end}" for n, s in enumerate(seconds) if s]
    if not seconds[-1]:
        lines.append("@9 opened client=x keep_alive=600; +25 @9 > pingreq; @9 > disconnect; @9 > fin")

    assert [
        explanation.cause for explanation in explained(*steps_of(*lines)) if explanation.cause is not Cause.NORMAL
    ] == causes


def held_back(
    times: int = 10, acknowledged: int = 40_000, held: int = 1_100, size: int = 1, *, answered: bool = False
) -> list[str]:
    """Remarks about a client that sends a message ``held`` µs after each acknowledgment, which comes that late."""
    talk, running = Conversation().open().whole(), Explainer()
    for number in range(times + 1):
        talk.wait((held - 1_000) / 1e6 if number else 1).say(CLIENT, Publish(topic_name="a", payload=bytes(size)))
        talk.wait((acknowledged - 1_000) / 1e6)  # each segment takes a millisecond
        if answered:
            talk.say(SERVER, Pingresp())
        else:
            talk.ack(SERVER)
    of_segments(numbered(talk.tape.segments), running)
    return running.totals.remarks


@each("acknowledged", [30_000, 40_000, 200_000, 250_000])
@each("held", [1_000, 2_000])
def test_a_side_that_holds_back_small_segments_is_a_remark(acknowledged: int, held: int) -> None:
    (remark,) = held_back(acknowledged=acknowledged, held=held)

    assert "held back a small segment 10 times" in remark


@each(
    "remarks",
    [
        lambda: held_back(9),
        lambda: held_back(acknowledged=29_000),
        lambda: held_back(acknowledged=251_000),
        lambda: held_back(held=2_100),
        lambda: held_back(size=600),
        lambda: held_back(answered=True),  # a program that waits for its answer
    ],
)
def test_a_side_that_waits_for_something_else_is_none(remarks: Callable[[], list[str]]) -> None:
    assert remarks() == []


@each(
    "steps, words",
    [
        ("> subscribe 1 t:1; < ack; +10", "after its SUBSCRIBE, which the broker had not answered with SUBACK."),
        ("> publish t x qos=1 id=1; < ack; +2", "after its PUBLISH, which the broker had not answered with PUBACK or"),
        ("> subscribe 1 t:1; < ack; +1.9", ""),
        ("> subscribe 1 t:1; < suback 1 0; +10", ""),
        ("> subscribe 1 t:1; < publish u x; +10", ""),  # it works
        ("> publish t x qos=1 id=1; < ack; > publish t y; < ack; +10", ""),
    ],
)
def test_a_client_that_gives_up_on_a_request(steps: str, words: str) -> None:
    for step, cause in (("fin", Cause.CLIENT_CLOSED), ("reset", Cause.CLIENT_RESET)):
        end = ending(f"opened 3.1.1; {steps} > {step}")

        assert end.cause is cause
        assert words in end.first.headline
        assert ("had not answered" in end.first.headline) is bool(words)


ZERO = "for 1..{0}: @{{n}} opened 3.1.1 client=z{{n}} keep_alive=0; @{{n}} < fin; +3 @9 > pingreq; @9 < pingresp"
STAYS = "@9 opened 3.1.1 client=c keep_alive=60"


@each(
    "lines, is_named",
    [
        ([STAYS, ZERO.format(3)], True),
        ([STAYS, ZERO.format(2)], False),
        ([STAYS.replace("=60", "=0"), ZERO.format(3)], False),
        ([STAYS, ZERO.format(3).replace("=0; @", "=0; +1.1 @")], False),
        ([STAYS, "@8 opened 3.1.1 client=y keep_alive=0", ZERO.format(3)], False),
    ],
)
def test_a_broker_that_takes_a_keep_alive_of_0_for_a_time_limit(lines: list[str], is_named: bool) -> None:
    """Three times; not if a connection without a Keep Alive stays, or if none with one shows the difference."""
    end = next(end for end in explained(*steps_of(*lines)) if end.client_identifier == "z1")

    assert ("connections with a Keep Alive stayed (#0)" in end.first.headline) is is_named
    assert end.first.certainty is Certainty.HYPOTHESIS
