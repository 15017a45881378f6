"""What became of a message for one client."""

from __future__ import annotations

from mqttscope.explain.deliveries import likeness
from mqttscope.explain.fates import Fate
from tests.each import each
from tests.explain.running import traced
from tests.lint.lint_help import steps_of

TOPIC = "plant/7/alarm"
READER = f"opened client=reader; > subscribe 1 {TOPIC}:1; < suback 1 1"
WRITER = "@1 opened client=writer"
LATER = "+2 @1 > pingreq; @1 < pingresp"


@each("plain", ["house/light", TOPIC, "plant/+/alarm", "p" * 300])
def test_what_matches_or_is_something_else_is_not_like_a_topic(plain: str) -> None:
    assert likeness(TOPIC, plain) is None


def sent(number: int, arrives: bool) -> str:
    """A message with a payload of its own."""
    delivered = f"; < publish {TOPIC} m{number} qos=1 id={number}; > puback {number}" if arrives else ""
    return f"@1 > publish {TOPIC} m{number} qos=1 id={number}; @1 < puback {number}{delivered}"


@each(
    "arrive, said",
    [
        ((True, False, True), "before and after, so that no access rule is the reason"),
        ((True, False, False), "and the broker did not send it"),
        ((False, False, True), "and the broker did not send it"),
    ],
)
def test_what_was_delivered_before_and_after_excludes_access_rules(arrive: tuple[bool, ...], said: str) -> None:
    messages = [sent(number, arrives) for number, arrives in enumerate(arrive, 1)]
    found = traced(TOPIC, *steps_of(READER, WRITER, *messages, LATER)).messages
    (missed,) = (one for message in found[-1:] for one in message.deliveries if one.fate is Fate.NOT_SENT)

    assert said in missed.said
    assert any("access rules" in told for told in missed.advice) is ("no access rule" not in said)
