"""Retained messages that came from another broker, and have another topic than live ones."""

from __future__ import annotations

from mqttscope.explain.retained_copies import prefix
from tests.each import each
from tests.explain.running import across
from tests.explain.test_forwards import PLACES

PLACES_OF_ALL = PLACES | {2: (2, 3), 4: (24, 2), 5: (25, 2), 6: (26, 3)}
OPENS = (
    "opened client=hmi; > subscribe 1 #:0; < suback 1 0",
    "@2 opened client=bridge; @2 > subscribe 1 #:0; @2 < suback 1 0; @3 opened client=sensor",
)
LIVE = "@3 > publish s/t x1 retain; @2 < publish s/t x1; < publish site/s/t x1"
LATER = "+1 @4 opened client=late; @4 > subscribe 1 site/#:0; @4 < suback 1 0"
COPY = "+1 @5 opened client=log; @5 > subscribe 1 #:0; @5 < suback 1 0; @5 < publish s/t x1 retain"
WAITS = "+2 @4 > pingreq; @4 < pingresp"


def remarks(*lines: str, topic: str = "s/t") -> str:
    return "\n".join(across(topic, PLACES_OF_ALL, *OPENS, *lines, WAITS).remarks)


@each("topic", ["s/t", "site/s/t"])
def test_a_prefix_that_only_live_messages_have(topic: str) -> None:
    text = remarks(LIVE, LATER, COPY, topic=topic)

    assert "One delivery with RETAIN 1 to s/t (the first to log, frame " in text
    assert "has topic and payload of the message that sensor published to 10.0.0.3:1883 (frame " in text
    assert "; 10.0.0.2 sends such messages live as site/s/t (frame " in text
    assert "with another topic (without site/), so that later subscribers to site/s/t get no retained message:" in text
    assert "late (site/# in frame " in text
    assert "that no captured client published" not in text


def test_the_last_message_came_to_no_captured_client() -> None:
    """Earlier messages show the prefix, and the retained copy has the last payload."""
    copy = COPY.replace("x1", "x2")

    assert "sends such messages live as site/s/t" in remarks(LIVE, "@3 > publish s/t x2 retain", LATER, copy)


@each(
    "lines",
    [
        (LIVE, LATER, f"@1 opened client=here; @1 > publish s/t x1 retain; {COPY}"),  # a client of this broker did it
        (f"{LIVE}; < publish s/t x1", LATER, COPY),  # live messages come with this topic, too
        (LIVE.replace("site/s/t", "site/s/u"), LATER, COPY),
        (LIVE, LATER, COPY.replace("x1", "x9")),
    ],
)
def test_copies_that_do_not_show_a_prefix(lines: tuple[str, ...]) -> None:
    assert "sends such messages live as" not in remarks(*lines)


@each(
    "old, new",
    [
        ("@4 < suback 1 0", "@4 < suback 1 0; @4 < publish site/s/t x1 retain"),  # it got one
        ("site/#:0", "#:0"),  # the topic of the copy matches
        ("@4 < suback 1 0", "@4 < suback 1 0x80"),
    ],
)
def test_clients_that_do_not_miss_a_retained_message(old: str, new: str) -> None:
    assert "late (" not in remarks(LIVE, LATER.replace(old, new), COPY)


def test_a_copy_without_a_live_message() -> None:
    text = remarks("@3 > publish s/t x1 retain", COPY)

    assert "most probably a bridge brought it, and this broker keeps it." in text
    assert "The capture contains no message" not in text


@each(
    "retained, live, words",
    [("a", "x/a", "without x/"), ("x/a", "a", "with x/ before it"), ("a", "xa", ""), ("a", "a", "")],
)
def test_the_difference_of_the_topics(retained: str, live: str, words: str) -> None:
    assert prefix(retained, live) == words
