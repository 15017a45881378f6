"""Causes that time shows."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from tests.dissect.conversations import Conversation, numbered
from tests.dissect.talk import PINGREQ, connect
from tests.each import each
from tests.explain.running import ending, explained, of_segments
from tests.lint.lint_help import steps_of

PINGS = "opened 3.1.1 keep_alive=10; > pingreq; < pingresp"


@each(
    "text, found",
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
def test_an_end_long_after_the_last_packet(text: str, found: str) -> None:
    one = ending(text)

    assert f"{one.cause} {one.first.certainty}" == found


def test_what_came_before_its_limit_is_named_as_a_hypothesis() -> None:
    (other,) = ending("opened 3.1.1 keep_alive=10; +12 < fin").candidates[1:]

    assert (other.cause, other.certainty) == (Cause.KEEP_ALIVE, Certainty.HYPOTHESIS)
    assert [told.text for told in other.doubts] == [
        "the broker closed before one and a half times the Keep Alive had passed"
    ]


def test_bytes_that_are_missing_make_it_a_hypothesis() -> None:
    one = ending("opened 3.1.1 keep_alive=10; +9 lost > pingreq; < pingresp; +14 < fin")

    kept = [each.certainty for each in one.candidates if each.cause is Cause.KEEP_ALIVE]
    assert kept == [Certainty.HYPOTHESIS]
    doubts = [told.text for each in one.candidates if each.cause is Cause.KEEP_ALIVE for told in each.doubts]
    assert any("missing in the capture" in text for text in doubts)


def test_the_rule_of_the_linter_stands_with_it() -> None:
    one = ending("opened 3.1.1 keep_alive=10; +16 < fin")

    assert [each.rule for each in one.first.broken] in ([], ["KAL201"])
    assert one.first.advice


def test_a_client_that_waits_for_a_ping_response() -> None:
    one = ending("opened; > pingreq; +10 > fin")

    assert one.cause is Cause.NO_PING_RESPONSE
    assert "no answer for 10.0" in one.first.headline


@each("arrives, advice", [(True, "Look why the broker did not answer"), (False, "Find out which side lost the other")])
def test_a_ping_that_arrived_asks_another_question_than_one_that_did_not(arrives: bool, advice: str) -> None:
    talk = Conversation().open().whole().ack("client")
    (sent,) = talk.say("client", PINGREQ)
    if arrives:
        talk.ack("server")
    else:
        talk.wait(1).repeat(sent)
    talk.wait(5).fin("client")
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
    found = explained(*steps_of(*lines))
    assert not is_idle or Cause.SERVER_RESTART not in [end.cause for end in found]

    assert (Cause.IDLE_TIMEOUT in [each_one.cause for end in found for each_one in end.candidates]) is is_idle


@each("opens, kept", [
    ("opened 3.1.1 keep_alive=60", "shorter than the Keep Alive of 60 s allows"),
    ("opened 3.1.1 keep_alive=0", "and there is no Keep Alive"),
    ("> pingreq; < pingresp", "and its Keep Alive is unknown"),
])  # fmt: skip
def test_an_idle_time_out_beside_the_keep_alive(opens: str, kept: str) -> None:
    one = ending(f"for 0..2: @{{n}} {opens.replace('; ', '; @{n} ')}; +7 @{{n}} < fin")

    assert (one.cause, kept in one.first.headline) == (Cause.IDLE_TIMEOUT, True)


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
    one = ending("opened 3.1.1 keep_alive=10", f"+1 > raw 30ff7f0003612f62; {pieces}; +0.5 < fin")

    (found,) = (each for each in one.candidates if each.cause is Cause.KEEP_ALIVE)
    assert (found.certainty, "no complete packet" in found.headline) == (Certainty.HYPOTHESIS, True)
    assert "no PINGREQ can be sent inside a packet" in found.advice[0]


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
    found = explained(*steps_of(*opens, "+19.2 @0 < fin; +0.4 @1 < fin; +0.4 @2 < fin"))

    assert Cause.SERVER_RESTART not in [each_one.cause for end in found for each_one in end.candidates]


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
def test_an_end_after_the_silence_of_a_client_without_a_keep_alive(
    between: str, after: str, certainty: Certainty | None
) -> None:
    lines = [f"@{n} opened 3.1.1 client=c{n} keep_alive=0; " + between.format(n=n, m=59 - 10 * n) for n in range(3)]
    found = explained(*steps_of(*lines, *filter(None, [after])))
    idle = [end.first for end in found[:3] if "after the client's last packet, whatever" in end.first.headline]

    assert [one.certainty for one in idle] == ([] if certainty is None else [certainty] * 3)


@each("others, causes", [(2, {"idle_timeout"}), (1, {"server_closed"})])
def test_later_ends_support_an_earlier_one(others: int, causes: set[str]) -> None:
    lines = [f"+200 @{n} opened 3.1.1 client=c{n} keep_alive=600; +150 @{n} < fin" for n in range(1 + others)]

    assert {end.cause for end in explained(*steps_of(*lines))} == causes
