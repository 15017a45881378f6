"""Messages to topics that begin with $, and filters that begin with a wildcard."""

from __future__ import annotations

from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

LOAD = "$SYS/broker/load"
READER = "opened client=reader; > subscribe 1 $SYS/#:0; < suback 1 0"
ALL = "@1 opened client=all; @1 > subscribe 1 #:0; @1 < suback 1 0"
CAME = f"< publish {LOAD} 7"


def remarks(*lines: str, topic: str = LOAD) -> str:
    return "\n".join(traced(topic, *steps_of(*lines)).remarks)


@each("retain", ["", " retain"])
def test_a_message_of_the_broker_itself(retain: str) -> None:
    text = remarks(READER, ALL, CAME + retain)

    assert "One delivery is of a message to $SYS/, which no captured client published: most probably of the" in text
    assert "retained, or by a client" not in text
    assert "all (# in frame 13) does not get these messages: a Topic Filter that begins with a wildcard does" in text
    assert text.endswith("MQTT-4.7.2-1). Subscribe to $SYS/#, as reader did (frame 6).")


@each(
    "old, new",
    [
        (" #:0", " #:0 $SYS/#:0"),  # its other subscription matches
        (" #:0", " +/store:0"),  # it would not match without the $ either
        ("@1 < suback 1 0", "@1 < suback 1 0x80"),  # the broker refused it
        ("@1 < suback 1 0", f"@1 < suback 1 0; @1 < publish {LOAD} 7"),  # this broker sends it all the same
    ],
)
def test_what_a_wildcard_does_not_hide(old: str, new: str) -> None:
    assert "begins with a wildcard" not in remarks(READER, ALL.replace(old, new), CAME)


def test_a_topic_that_nobody_got() -> None:
    text = remarks(ALL, topic=LOAD)

    assert "The capture contains no message to $SYS/broker/load." in text
    assert text.endswith("(5.0 and 3.1.1, MQTT-4.7.2-1). Subscribe to $SYS/broker/load.")


def test_a_client_publishes_to_a_topic_with_a_dollar() -> None:
    (message,) = traced("$aws/x", *steps_of(ALL, "@2 opened client=writer; @2 > publish $aws/x 1")).messages
    (delivery,) = message.deliveries

    assert str(delivery.fate) == "no_subscription"
    assert "does not match a topic that begins with $" in delivery.outcome


def test_a_message_without_retain_is_not_a_retained_one() -> None:
    lines = ("opened client=reader; > subscribe 1 a:0; < suback 1 0", "< publish a 7")

    assert "published: by a client that was not captured, or by the broker; the" in remarks(*lines, topic="a")
    assert "published: retained, or by" in remarks(lines[0], f"{lines[1]} retain", topic="a")
