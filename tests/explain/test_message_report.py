"""The report about messages, beside their fates (test_messages.py)."""

from __future__ import annotations

from collections import Counter

from mqttscope.dissect import dissect_segments
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.examples import conversation, segments
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

READER = "opened client=reader; > subscribe 1 a/#:0; < suback 1 0"
CONFIG = "@1 > publish a/config x; < publish a/config x"
WRITER = "@1 opened client=writer"
BACK = "> disconnect; > fin; +1 @2 opened client=reader; @2 > subscribe 1 a/#:0; @2 < suback 1 0"
TEXT = "got nothing of 1 topic since: the last message was published before that, without RETAIN"


def lines_with(text: str, *lines: str) -> list[str]:
    return [line for line in traced("#", *steps_of(*lines)).remarks if text in line]


def test_a_client_that_subscribes_again_with_a_new_session() -> None:
    (line,) = lines_with(TEXT, READER, WRITER, CONFIG, BACK)

    assert line.startswith("reader subscribed again as #2 with a new session (frame ")
    assert "the first: a/config, frame " in line
    assert line.endswith("Publish with RETAIN what clients need when they start again.")


@each(
    "lines",
    [
        (CONFIG.replace("config x", "config x retain", 1), BACK),
        (CONFIG, BACK, "@1 > publish a/config y; @2 < publish a/config y"),  # the topic lives on
        (CONFIG, BACK.replace("client=reader", "client=reader resume < present")),
        (CONFIG, BACK.replace("; @2 > subscribe 1 a/#:0; @2 < suback 1 0", "")),  # it does not ask for it
        ("@1 > publish a/config x", BACK),  # it never had it
        ("> publish a/config x; < publish a/config x", BACK),  # it knows what it has published
        (BACK, "@1 > publish a/config x; @2 < publish a/config x"),
    ],
)
def test_no_message_is_missed_by_a_new_session(lines: tuple[str, ...]) -> None:
    assert lines_with("with a new session", READER, WRITER, *lines) == []


SUBSCRIBED = "opened client=r; > subscribe 1 t:1; < suback 1 1; @1 opened client=w"


def missed_in_two_ways() -> tuple[str, ...]:
    """A client leaves 20 messages unacknowledged, and is sent no more."""
    sent = "@1 > publish t m{n} qos=1 id={n}; @1 < puback {n}"
    waits = f"for 1..20: {sent}; < publish t m{{n}} qos=1 id={{n}}; > pingreq"
    return (
        SUBSCRIBED,
        "for 101..104: @1 > publish t a{n}; < publish t a{n}",
        waits,
        "+11 > pingreq",
        f"for 21..45: {sent}",
    )


def test_no_cause_is_hidden_behind_another() -> None:
    trace = traced("t", *steps_of(*missed_in_two_ways(), "+2 > pingreq"))
    fates = Counter(str(delivery.fate) for message in trace.messages for delivery in message.deliveries)

    assert fates == {"not_acknowledged": 5, "stalled": 5}
    assert "4 messages that arrived are not shown." in trace.remarks
    first, second = (line for line in trace.remarks if line.startswith("r: "))
    assert first.startswith("r: 20 messages with this cause (frames ")
    assert "), 15 not shown; the first: was sent it " in first
    assert second.startswith("r: 25 messages with this cause (frames ")
    assert "), 20 not shown; the first: has left 20 messages of the broker unacknowledged since frame " in second


def test_messages_that_nobody_missed_do_not_crowd_out_others() -> None:
    others = "for 1..40: @1 > publish t/{n} x"
    trace = traced("#", *steps_of(SUBSCRIBED, others, "for 1..9: @1 > publish t {n}", "+2 > pingreq"))

    assert sum(any(row.is_trouble for row in message.deliveries) for message in trace.messages) == 5
    assert "25 messages that no captured client got are not shown." in trace.remarks


def test_all_messages_are_shown_if_they_have_room() -> None:
    trace = traced(
        "t", *steps_of(SUBSCRIBED, "for 1..20: @1 > publish t m{n} qos=1 id={n}; @1 < puback {n}", "+2 > pingreq")
    )

    assert len(trace.messages) == 20
    assert len(trace.remarks) == 1


WILDCARD = "opened 3.1.1 client=reader; > subscribe 1 a/+:1; < suback 1 1; @1 opened client=writer"
VAIN = "> unsubscribe 2 a/b; < unsuback 2"
COMES = "@1 > publish a/b x; < publish a/b x"


def vain(*lines: str, topic: str = "a/b") -> list[str]:
    return [line for line in traced(topic, *steps_of(*lines)).remarks if "sent UNSUBSCRIBE for" in line]


def test_an_unsubscribe_inside_a_wildcard_changes_nothing() -> None:
    (line,) = vain(WILDCARD, VAIN, COMES)

    assert line.startswith("reader sent UNSUBSCRIBE for a/b (frame 13) without a subscription to it: that changed")
    assert "Its subscription to a/+ (frame 6) still matches: 1 message came afterwards, the first in frame 16." in line


@each(
    "lines",
    [
        (WILDCARD, COMES, VAIN),  # nothing came afterwards
        (WILDCARD, "> subscribe 3 a/b:1; < suback 3 1", VAIN, COMES),  # it had that subscription
        (WILDCARD.replace("3.1.1 ", ""), VAIN + " 0", COMES),  # the broker had it
        (WILDCARD.replace("3.1.1 client=reader", "client=reader resume < present"), VAIN, COMES),  # perhaps from before
        (WILDCARD, VAIN, "> subscribe 3 a/b:1; < suback 3 1; > unsubscribe 4 a/+; < unsuback 4", COMES),
    ],
)
def test_an_unsubscribe_that_is_not_known_to_be_vain(lines: tuple[str, ...]) -> None:
    assert not vain(*lines)


@each(
    "topic_filter, other, is_named",
    [("/a/b", "a/b", True), ("a/b", "/a/b", True), ("/a/+", "a/b", True), ("/a/b", "a/c", False)],
)
def test_the_same_topic_with_another_slash_is_named(topic_filter: str, other: str, is_named: bool) -> None:
    sent = topic_filter.replace("+", "x")
    shown_lines = traced(topic_filter, *steps_of(f"opened; > publish {sent} 1; > publish {other} 2")).remarks

    assert (f"The capture also has messages to {other}, which is another topic" in " ".join(shown_lines)) is is_named


def test_the_missed_messages_of_a_client_come_with_what_it_got_twice() -> None:
    watch = MessageWatch("#")
    two = "opened client=reader; > subscribe 1 a/+:0; < suback 1 0; > subscribe 2 a/b:0; < suback 2 0"
    lines = two, "@1 opened client=writer; @1 > publish a/b x; < publish a/b x; < publish a/b x"
    for event in dissect_segments(segments(conversation("", *steps_of(*lines)))):
        watch.feed(event)
    report = MessageReport(watch)

    assert report.trace(lambda name: name == "writer", missed=True).remarks == []
    (line,) = report.trace(lambda name: name == "reader", missed=True).remarks
    assert line.startswith("reader got 1 message more than once, once for each matching subscription (a/+ and a/b);")


def test_unsubscribe_packets_that_are_not_followed_are_counted() -> None:
    shown_lines = traced(
        "a/b", *steps_of(WILDCARD, "for 1..21: > unsubscribe {n} x/{n}; < unsuback {n}", COMES)
    ).remarks

    assert shown_lines[-1].endswith(
        "UNSUBSCRIBE packets without a subscription are followed of each client; further ones: 1."
    )
