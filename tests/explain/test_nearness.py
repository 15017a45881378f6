"""Topics and filters that come near each other."""

from __future__ import annotations

from mqttscope.explain.nearness import DOLLAR, likeness, nearest
from tests.each import each

TOPIC = "plant/7/alarm"


@each(
    "topics, names",
    [
        (["plant/70/alarm", "plant/ 7/alarm"], ['"plant/ 7/alarm" (only blanks differ)']),
        (["plant/70/alarm", "Plant/7/alarm"], ["Plant/7/alarm (upper and lower case differ)"]),
        (["plant/70/alarm", "plant/7/alarms", "house"], ["plant/70/alarm", "plant/7/alarms"]),
        (["pl ant/7/alarm "], ['"pl ant/7/alarm " (only blanks differ)']),
        ([TOPIC], []),
    ],
)
def test_the_nearest_topics(topics: list[str], names: list[str]) -> None:
    assert nearest(topics, TOPIC) == names


@each("plain", ["house/light", TOPIC, "plant/+/alarm", "p" * 300])
def test_what_matches_or_is_something_else_is_not_like_a_topic(plain: str) -> None:
    assert likeness(TOPIC, plain) is None


@each(
    "topic, plain, is_hidden",
    [
        ("$SYS/load", "#", True),
        ("$SYS/load", "+/load", True),
        ("$SYS/load", "+/#", True),
        ("$SYS/load", "+/store", False),  # it would not match without the $ either
        ("$SYS/load", "$SYS/#", False),
        ("a/$SYS", "#", False),
    ],
)
def test_a_filter_that_begins_with_a_wildcard_does_not_match_a_topic_that_begins_with_a_dollar(
    topic: str, plain: str, is_hidden: bool
) -> None:
    assert (likeness(topic, plain) == (1.0, DOLLAR)) is is_hidden
