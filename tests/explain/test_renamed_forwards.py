"""Messages that a bridge may have published with another topic."""

from __future__ import annotations

from tests.each import each
from tests.explain.test_forwards import BRIDGE, OPENS, PLACES, on, told

FORWARDS = "@1 > publish {} hello; @2 > publish {} hello"
TEXT = "perhaps it forwards messages, and {}. Compare the topics and prefixes in the configuration of the bridge"


@each(
    "places, client, topic, lines, how",
    [
        (PLACES, BRIDGE, "a/t", FORWARDS.format("a/t", "site/a/t"), "adds site/"),
        (PLACES, BRIDGE, "site/a/t", FORWARDS.format("site/a/t", "a/t"), "removes site/"),
        # To the same broker.
        (PLACES | {2: (22, 2)}, BRIDGE, "a/t", FORWARDS.format("a/t", "site/a/t"), "adds site/"),
        # Another topic, another payload, a short one, later, and the topic that it had.
        (PLACES, BRIDGE, "a/t", FORWARDS.format("a/t", "b/t"), ""),
        (PLACES, BRIDGE, "a/t", FORWARDS.format("a/t", "site/a/t").replace("hello", "other", 1), ""),
        (PLACES, BRIDGE, "a/t", FORWARDS.format("a/t", "site/a/t").replace("hello", "on"), ""),
        (PLACES, BRIDGE, "a/t", FORWARDS.format("a/t", "site/a/t").replace("; @2", "; +1.1 @2"), ""),
        (PLACES, BRIDGE, "a/t", f"{FORWARDS.format('a/t', 'site/a/t')}; @2 > publish a/t hello", ""),
        # All clients are of one broker, without a bridge; and the one that wants the message gets it.
        (PLACES | {2: (22, 2)}, "opened client=c", "a/t", FORWARDS.format("a/t", "site/a/t"), ""),
        (PLACES, BRIDGE, "a/t", f"{FORWARDS.format('a/t', 'site/a/t')}; @0 < publish a/t hello", ""),
    ],
)  # fmt: skip
def test_a_topic_that_a_bridge_may_have_changed(
    places: dict[int, tuple[int, int]], client: str, topic: str, lines: str, how: str
) -> None:
    text = told(places, OPENS, on(2, client), lines, "+2 @0 > pingreq", topic=topic)

    assert (TEXT.format(how) in text) is bool(how)
    assert ("perhaps it forwards" in text) is bool(how)
