"""Retained messages that a broker has, and did not send for a SUBSCRIBE."""

from __future__ import annotations

from fnmatch import fnmatchcase

from mqttscope.dissect import dissect_segments
from mqttscope.explain.fates import Delivery
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.examples import conversation, segments
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

WRITER = "@1 opened 3.1.1 client=writer; @1 > publish a/t hot qos=1 retain id=5; @1 < puback 5"
READER = "+1 opened 3.1.1 client=reader; > subscribe 1 a/#:1; < suback 1 1"
EXACT = "+1 @2 opened 3.1.1 client=exact; @2 > subscribe 1 a/t:1; @2 < suback 1 1"
GETS = "@2 < publish a/t hot qos=1 retain id=1; @2 > puback 1"
ALL = "@3 opened client=all; @3 > subscribe 1 #:0; @3 < suback 1 0"
LATER = "+1.1 > pingreq; < pingresp"
KEPT = "*; the broker kept it: exact got it with RETAIN 1 after it had subscribed (frame *)"
NOT_SENT = f"subscribed to a/# * later, and the broker did not send it this retained message (3.3.1.3){KEPT}"
PLAIN = "subscribed to a/# * later"
NEVER_SENT = f"{PLAIN}, and the broker did not send it this retained message (3.3.1.3) in the * until the capture ends"


@each(
    "lines, fate, expected, advice",
    [
        ((WRITER, READER, EXACT, GETS, LATER), "not_sent", NOT_SENT, "wildcards"),
        ((WRITER, EXACT, GETS, READER, LATER), "not_sent", NOT_SENT, "wildcards"),
        # The broker does send retained messages for wildcards: access rules are left.
        (
            (WRITER, ALL, "@3 < publish a/t hot retain", READER, LATER),
            "not_sent",
            NOT_SENT.replace("exact", "all"),
            "access rules",
        ),
        # Without a proof, or with one that may be of another message.
        ((WRITER, READER, LATER), "not_sent", NEVER_SENT, "keeps retained"),
        ((WRITER, READER, EXACT, GETS.replace(" retain", ""), LATER), "not_sent", NEVER_SENT, "keeps retained"),
        ((WRITER.replace("3.1.1", "5.0").replace("writer", "writer < retain_available=0"), READER, LATER),
         "subscribed_later", PLAIN, "keeps retained"),
        ((WRITER, "@1 < fin", READER, LATER), "subscribed_later", PLAIN, "keeps retained"),
        ((WRITER, "@4 opened client=w will=a/t will_retain", READER, LATER), "subscribed_later", PLAIN, "keeps"),
        (
            (WRITER, EXACT, GETS, "@2 < publish a/t unknown qos=1 id=2; @2 > puback 2", READER, LATER),
            "subscribed_later",
            PLAIN,
            "whether the broker keeps",
        ),
        (
            (WRITER, READER, "@1 > publish a/t hot qos=1 retain id=6; @1 < puback 6", EXACT, GETS, LATER),
            "subscribed_later",
            PLAIN,
            "whether the broker keeps",
        ),
        # It need not have come.
        ((WRITER, EXACT, GETS, READER), "subscribed_later", "*; the capture ends * and the broker kept it: *", ""),
        (
            (WRITER, EXACT, GETS, READER, "> disconnect; > fin; +2 @2 > pingreq"),
            "subscribed_later",
            "*; its connection ends * after that, and the broker kept it: *",
            "",
        ),
        (
            (WRITER, EXACT, GETS, READER.replace("3.1.1", "5.0").replace("#:1", "#:1,retain_handling=2"), LATER),
            "not_concerned",
            PLAIN + " with Retain Handling 2: it asked for no retained messages (5.0 3.8.3.1)",
            "Retain Handling 0",
        ),
        # Another message had replaced it.
        (
            (WRITER, "@1 > publish a/t cold qos=1 retain id=6; @1 < puback 6", READER, LATER),
            "not_concerned",
            PLAIN + "; by then frame * had replaced this retained message",
            "",
        ),
    ],
)  # fmt: skip
def test_a_filter_for_which_no_retained_message_came(
    lines: tuple[str, ...], fate: str, expected: str, advice: str
) -> None:
    message = traced("#", *steps_of(*lines)).messages[0]
    (row,) = (each for each in message.deliveries if each.client == "reader")

    assert (str(row.fate), fnmatchcase(row.outcome, expected)) == (fate, True), row.outcome
    assert advice in " ".join(row.advice[:1])
    assert bool(row.advice) is bool(advice)


def stocked(total: int, *, retain: str = "retain") -> tuple[str, ...]:
    publishes = f"@1 > publish s/{{n}} x qos=1 {retain} id={{n}}; @1 < puback {{n}}"
    return "@1 opened 3.1.1 client=writer", f"for 1..{total}: {publishes}"


def answers(came: int) -> tuple[str, ...]:
    opens = "+1 opened 3.1.1 client=reader; > subscribe 1 s/#:1; < suback 1 1"
    return opens, f"for 1..{came}: < publish s/{{n}} x qos=1 retain id={{n}}; > puback {{n}}"


def left_out(*lines: str) -> list[str]:
    return [line for line in traced("#", *steps_of(*lines)).remarks if "retained messages that the broker had" in line]


def test_a_part_of_the_retained_messages_is_one_sentence() -> None:
    trace = traced("#", *steps_of(*stocked(30), *answers(12), LATER))

    assert [message.topic for message in trace.messages] == ["s/13"]
    assert "12 of 30 retained messages for that, without this one" in trace.messages[0].deliveries[0].outcome
    (line,) = (line for line in trace.remarks if "retained messages that the broker had" in line)
    assert line.startswith("reader subscribed to s/# (frame ")
    assert "got 12 of 30 retained messages that the broker had acknowledged; the other 18 did not come in the" in line
    assert "max_queued_messages" in line
    assert any(line.startswith("17 more of the retained messages") for line in trace.remarks)


@each(
    "lines",
    [
        (*stocked(13), *answers(12), LATER),  # one alone: it may have been replaced
        (*stocked(30), *answers(9), LATER),
        (*stocked(30), *answers(30), LATER),
        (*stocked(30), *answers(12)),  # more may come
        (*stocked(30), *answers(12), "< publish s/13 y qos=1 id=40", LATER),  # it leaves a message unacknowledged
        (*stocked(30, retain=""), *answers(12), LATER),
    ],
)
def test_no_part_is_missing_as_far_as_the_capture_shows(lines: tuple[str, ...]) -> None:
    assert left_out(*lines) == []


def test_two_messages_are_missing_beside_ten() -> None:
    assert len(left_out(*stocked(12), *answers(10), LATER)) == 1


def test_a_loss_counts_all_of_them_once() -> None:
    watch = MessageWatch("#")
    for event in dissect_segments(segments(conversation("", *steps_of(*stocked(30), *answers(12), LATER)))):
        watch.feed(event)
    (loss,) = MessageReport(watch).losses()

    assert loss.text == "got 12 of 30 retained messages for s/#, and not s/13"


EMPTY = "+1 @1 > publish a/t; @1 > pingreq; @1 < pingresp"
REMOVES = "+1 @1 > publish a/t qos=1 retain id=7; @1 < puback 7"


@each(
    "lines, known",
    [
        ((WRITER, EMPTY), "the broker had one, of frame "),
        ((WRITER, EMPTY, EXACT, GETS), "exact got the retained message of the topic afterwards (frame "),
        ((EXACT, GETS, WRITER.partition(";")[0], EMPTY), "the broker had one: exact got it in frame "),
        ((WRITER, EMPTY, EMPTY), "the broker had one, of frame "),
        # It is removed, or there is none; the deliveries with RETAIN 1 are of another message.
        ((WRITER, REMOVES, EMPTY), ""),
        ((WRITER.partition(";")[0], EMPTY), ""),
        ((WRITER.partition(";")[0], EMPTY, "@1 > publish a/t hot qos=1 retain id=5; @1 < puback 5", EXACT, GETS), ""),
        ((WRITER, REMOVES), ""),
    ],
)
def test_an_empty_message_that_removes_no_retained_message(lines: tuple[str, ...], known: str) -> None:
    rows = [line for line in traced("a/t", *steps_of(*lines)).remarks if "with RETAIN 0" in line]

    assert len(rows) == bool(known)
    assert all(known in row and row.endswith("publish the empty message with RETAIN 1.") for row in rows)


KEEPS = "opened client=writer; > publish t x qos=1 id=1 retain; < puback 1"
BEFORE = "@1 opened client=tab-1; @1 > subscribe 1 t:0; @1 < suback 1 0; @1 < publish t x retain"
STOPS = "+5 < fin; +0.001 @1 < fin"
RETURNS = "+5 @2 opened client=tab-1; @2 > subscribe 1 t:0; @2 < suback 1 0"
COMES = "+1 @3 opened client=tab-2; @3 > subscribe 1 t:0; @3 < suback 1 0"
LASTS = "+2 @3 > pingreq; @3 < pingresp"
LINES = (KEEPS, BEFORE, STOPS, RETURNS, COMES, LASTS)


def fates(*lines: str) -> list[Delivery]:
    (message,) = traced("t", *steps_of(*lines)).messages
    return [delivery for delivery in message.deliveries if delivery.is_trouble]


def test_a_broker_that_loses_a_retained_message_when_it_stops() -> None:
    first, second = fates(*LINES)

    assert first.outcome.startswith("subscribed to t again on #2, ")
    for delivery in (first, second):
        assert str(delivery.fate) == "not_sent"
        assert "tab-1 got it with RETAIN 1 after it had subscribed (frame " in delivery.outcome
        assert "then the broker stopped or restarted: it ended 2 connections together (frame " in delivery.outcome
        assert delivery.outcome.endswith("and most probably lost its retained messages by that")
        assert "mosquitto: persistence true" in delivery.advice[0]


def test_nothing_shows_that_the_broker_kept_it_before() -> None:
    (delivery,) = fates(KEEPS, "@1 opened client=tab-1", STOPS, COMES, LASTS)

    assert str(delivery.fate) == "subscribed_later"
    assert delivery.outcome.endswith(": it may have lost its retained messages then")


@each(
    "old, new",
    [
        ("+0.001 @1 < fin", "+0.001 @1 > fin"),  # it ended one connection, and refused none
        ("+0.001 @1 < fin", "+2.1 @1 < fin"),
        ("< fin; +0.001 @1 < fin", "@1 < fin"),  # the connection of the publisher went on
        ("< suback 1 0; +", "< suback 1 0; @2 < publish t x retain; +"),
    ],
)
def test_what_is_no_loss_at_a_stop(old: str, new: str) -> None:
    lines = [line.replace(old, new) for line in LINES]
    if lines == list(LINES):
        lines[3] += "; @2 < publish t x retain"  # the broker still has it after the stop

    assert not any("by that" in delivery.outcome for delivery in fates(*lines))


ENDS = "+5 @1 > unsubscribe 2 t; @1 < unsuback 2 0"
ASKS_AGAIN = "+1 @1 > subscribe 3 t:0; @1 < suback 3 0"
GOES_ON = "+2 @1 > pingreq; @1 < pingresp"
COPY = "@1 < publish t x retain"
PROOF = f"{COMES}; @3 < publish t x retain"


@each(
    "lines, words",
    [
        ((ENDS, ASKS_AGAIN, GOES_ON), "the broker kept it: tab-1 got it with RETAIN 1"),
        ((ASKS_AGAIN, GOES_ON), "the broker kept it: tab-1 got it with RETAIN 1"),  # the subscription exists
        ((ASKS_AGAIN, GOES_ON, PROOF, LASTS), "the broker kept it: tab-2 got it with RETAIN 1"),
        ((PROOF, ASKS_AGAIN, GOES_ON), "the broker kept it: tab-2 got it with RETAIN 1"),
        # It came, for this subscription or for another one of the SUBSCRIBE.
        ((ENDS, ASKS_AGAIN, COPY, GOES_ON), ""),
        ((ASKS_AGAIN, COPY, GOES_ON, PROOF), ""),
        ((ASKS_AGAIN.replace("t:0", "t:0 +:0").replace("3 0", "3 0 0"), COPY, GOES_ON, PROOF), ""),
        # It was not asked for, was removed or replaced, or may come later.
        ((ASKS_AGAIN.replace("t:0", "t:0,retain_handling=1"), GOES_ON, PROOF), ""),
        ((ENDS, ASKS_AGAIN.replace("t:0", "t:0,retain_handling=2"), GOES_ON, PROOF), ""),
        (("> publish t qos=1 id=2 retain; < puback 2; @1 < publish t", ASKS_AGAIN, GOES_ON), ""),
        (("> publish t y qos=1 id=2 retain; < puback 2; @1 < publish t y", ASKS_AGAIN, "@1 < publish t y retain"), ""),
        ((ASKS_AGAIN,), ""),
        # The SUBSCRIBE was refused, or its answer is not in the capture.
        ((ASKS_AGAIN.replace("3 0", "3 0x80"), GOES_ON), ""),
        ((ASKS_AGAIN.partition(";")[0], GOES_ON), ""),
    ],
)
def test_a_second_subscribe_on_one_connection(lines: tuple[str, ...], words: str) -> None:
    again = [
        delivery
        for message in traced("t", *steps_of(KEEPS, BEFORE, *lines)).messages
        for delivery in message.deliveries
        if delivery.client == "tab-1" and delivery.is_trouble
    ]

    assert len(again) == bool(words), again
    for delivery in again:
        assert delivery.outcome.startswith("subscribed to t again, ")
        assert "did not send it this retained message (3.3.1.3)" in delivery.outcome
        assert words in delivery.outcome
