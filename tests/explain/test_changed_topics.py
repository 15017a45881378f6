"""Messages that a broker sends with another topic than its publisher used."""

from __future__ import annotations

from mqttscope.explain.changed_topics import change
from mqttscope.explain.fates import Trace
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

READER = "opened client=all; > subscribe 1 o/#:0; < suback 1 0"
SECOND = "@1 opened client=two; @1 > subscribe 1 o/+:0; @1 < suback 1 0; @2 opened client=phone"
SENT = "@2 > publish o/a.b x{n} qos=1 id={n}; @2 < puback {n}; < publish o/a/b x{n}"
LATER = "+2 > pingreq; < pingresp"


def messages(text: str = SENT, count: int = 2) -> list[str]:
    return [text.format(n=number) for number in range(1, count + 1)]


def trace(*lines: str, topic: str = "o/a.b") -> Trace:
    return traced(topic, *steps_of(READER, SECOND, *lines, LATER))


def test_a_broker_that_changes_separators() -> None:
    shown = trace(*messages())
    first, second = shown.messages[0].deliveries
    text = "\n".join(shown.remarks)

    assert [str(row.fate) for row in (first, second)] == ["topic_changed", "topic_changed"]
    assert "received its payload 20.0 ms later as o/a/b instead (frame " in first.outcome
    assert "its subscription to o/+ does not match o/a/b; the broker sent this payload under" in second.outcome
    assert not any("access rules" in advice for row in (first, second) for advice in row.advice)
    assert "it sent the payloads of 2 of 2 messages to o/a.b within 20.0 ms as o/a/b; the first: frame " in text


def test_a_client_of_another_listener_gets_the_topic_as_it_is() -> None:
    shown = trace(*messages(), "@2 > publish o/a.b y; @1 < publish o/a.b y")

    assert str(shown.messages[0].deliveries[0].fate) == "topic_changed"


def test_the_changed_topic_is_asked_for() -> None:
    text = "\n".join(trace(*messages(), topic="o/a/b").remarks)

    assert text.startswith("2 deliveries have the payload of a message to o/a.b; the first: frame ")
    assert "that no captured client published" not in text


def test_a_broker_that_adds_a_prefix() -> None:
    shown = traced("t", *steps_of(
        "opened client=r; > subscribe 1 #:0; < suback 1 0; @1 opened client=w",
        *(f"@1 > publish t x{n}; < publish site/t x{n}" for n in (1, 2)),
        LATER,
    ))  # fmt: skip

    assert any("changes topics (it adds site/): it sent" in line for line in shown.remarks)


@each(
    "lines",
    [
        messages(count=1),  # by chance
        messages(f"{SENT}; < publish o/a.b x{{n}}"),  # the topic is not changed for others
        [*messages(), "@2 > publish o/a.b y; < publish o/a.b y"],  # the next message of the topic is not changed
        [*messages(), "@2 > publish o/a/b y"],  # a client publishes to it
        messages(SENT.replace("; <", "; +0.101 <")),
        messages(SENT.replace("< publish o/a/b x{n}", "< publish o/a/b x{n} retain")),
        messages(SENT.replace("< publish o/a/b x{n}", "< publish o/a/c x{n}")),
        messages(SENT.replace("< publish o/a/b x{n}", "< publish o/a/b y{n}")),
    ],
)
def test_deliveries_that_are_no_changed_messages(lines: list[str]) -> None:
    shown = trace(*lines)

    assert not any("changes topics" in line for line in shown.remarks)
    assert not any(str(row.fate) == "topic_changed" for fate in shown.messages for row in fate.deliveries)


@each(
    "published, delivered, how",
    [
        ("a.b/c", "a/b.c", "it uses . and / for each other"),
        ("a/b", "x/y/a/b", "it adds x/y/"),
        ("x/a/b", "a/b", "it removes x/"),
        ("a/b", "xa/b", ""),
        ("a/b", "a/b", ""),
    ],
)
def test_the_difference_of_two_topics(published: str, delivered: str, how: str) -> None:
    assert change(published, delivered) == how
