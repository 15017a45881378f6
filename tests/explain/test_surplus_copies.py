"""Copies of a message beyond the subscriptions of a client."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.explain.fates import Trace
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lint.examples import conversation, segments
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

TWO = "opened client=reader; > subscribe 1 a/+:1; < suback 1 1; > subscribe 2 a/b:1; < suback 2 1"
WITNESS = "@2 opened client=other; @2 > subscribe 1 a/b:1; @2 < suback 1 1"
SENT = "@1 opened client=writer; @1 > publish a/b x qos=1 id=5; @1 < puback 5"
COPIES = [f"< publish a/b x qos=1 id={number}; > puback {number}" for number in range(1, 5)]
WITNESSED = "@2 < publish a/b x qos=1 id=1; @2 > puback 1"
LASTS = "+2 @2 > pingreq; @2 < pingresp"
STORY = (TWO, WITNESS, SENT, *COPIES, WITNESSED, LASTS)
UNKNOWN = "that no captured client published"


def said(trace: Trace) -> str:
    """The outcomes for the reader."""
    return " | ".join(
        delivery.outcome for message in trace.messages for delivery in message.deliveries if delivery.client == "reader"
    )


@each(
    "lines, subscriptions, times",
    [
        (STORY, "2 subscriptions match (a/+ and a/b), so that at most 2 copies are due (5.0 3.3.4); likely", 4),
        ((TWO, WITNESS, SENT, *COPIES[:3], WITNESSED, LASTS), "2 subscriptions match (a/+ and a/b), so that", 3),
        (
            (TWO.partition("; > subscribe 2")[0], WITNESS, SENT, *COPIES[:2], WITNESSED, LASTS),
            "1 subscription matches (a/+), so that at most 1 copy is due",
            2,
        ),
    ],
)
def test_copies_that_the_broker_sends_beyond_the_subscriptions(
    lines: tuple[str, ...], subscriptions: str, times: int
) -> None:
    trace = traced("a/b", *steps_of(*lines))

    assert f", {times} times (frames " in said(trace)
    assert subscriptions in said(trace)
    assert said(trace).endswith(
        "the broker sent the others itself, since other, with one matching subscription, got one copy"
    )
    assert any(
        "came more often than subscriptions match, likely by the broker; the first" in line for line in trace.remarks
    )
    assert not any(UNKNOWN in line for line in trace.remarks)


def test_one_sentence_for_each_client() -> None:
    watch = MessageWatch("#")
    for event in dissect_segments(segments(conversation("", *steps_of(*STORY)))):
        watch.feed(event)
    report = MessageReport(watch)
    (line,) = report.doubled()

    assert line.startswith("reader got 1 message more often than its subscriptions match; the first: a/b, frame ")
    assert list(report.doubled(lambda name: name == "other")) == []


def changed(old: str, new: str) -> tuple[str, ...]:
    """The story with another text."""
    assert any(old in line for line in STORY)
    return tuple(line.replace(old, new) for line in STORY)


@each(
    "lines",
    [
        (TWO, SENT, *COPIES, "+2 > pingreq"),  # no witness
        changed(WITNESSED, f"{WITNESSED}; @2 < publish a/b x qos=1 id=2; @2 > puback 2"),  # it got two
        changed("+2 @2 > pingreq; @2 < pingresp", "@2 > pingreq"),  # another copy may come to it later
        changed("@2 > subscribe 1 a/b:1; @2 < suback 1 1", "@2 > subscribe 1 a/b:0; @2 < suback 1 0"),  # may be dropped
        changed("@2 > subscribe 1 a/b:1", "@2 > subscribe 1 a/b:1,no_local"),
        changed("@2 < suback 1 1", "@2 < suback 1 1; @2 > subscribe 2 a/#:1; @2 < suback 2 1"),  # one copy for both
        changed("+2 @2 > pingreq", "lost @2 < publish a/b x qos=1 id=2; @2 < pingresp; +2 @2 > pingreq"),
        changed(COPIES[2], f"+1.1 {COPIES[2]}"),  # nothing shows that they belong together
        changed("opened client=reader", "opened client=reader resume < present"),  # messages from before
        changed("< suback 2 1", "< suback 2 1; > subscribe 3 $queue/a/b:1; < suback 3 1"),
        changed("< suback 2 1", "< suback 2 1; > unsubscribe 4 a/b; < unsuback 4 0"),
        (TWO, WITNESS, SENT, *("< publish a/b x; > ack",) * 4, WITNESSED, LASTS),  # of a message with QoS 0
        changed("@1 opened client=writer", "@1 opened client=writer; @3 opened will=a/b will_payload=x"),
    ],
)  # fmt: skip
def test_further_copies_may_be_of_another_message(lines: tuple[str, ...]) -> None:
    trace = traced("a/b", *steps_of(*lines))

    assert "the broker sent the others itself" not in said(trace)
    assert any(UNKNOWN in line for line in trace.remarks)


@each(
    "lines",
    [
        changed("@1 < puback 5", "@1 < puback 5; @1 > publish a/b x qos=1 id=6; @1 < puback 6"),
        changed("@1 < puback 5", "@1 < puback 5; @4 opened client=two; @4 > publish a/b x qos=1 id=6; @4 < puback 6"),
        (TWO, WITNESS, SENT, *COPIES[:2], WITNESSED, LASTS),
        (TWO, WITNESS, SENT, *COPIES[:1], COPIES[0].replace("qos=1", "qos=1 dup"), WITNESSED, LASTS),
    ],
)
def test_copies_that_messages_and_subscriptions_explain(lines: tuple[str, ...]) -> None:
    trace = traced("a/b", *steps_of(*lines))

    assert "the broker sent the others itself" not in said(trace)
    assert not any(UNKNOWN in line for line in trace.remarks)
