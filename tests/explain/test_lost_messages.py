"""One sentence about the messages that the linter reports as lost."""

from __future__ import annotations

from mqttscope.explain import Explainer
from mqttscope.explain.lost_messages import LostMessages
from tests.each import each
from tests.explain.running import explained
from tests.lint.lint_help import linted, steps_of

READER = "opened client=r; > subscribe 1 #:1; < suback 1 1; @1 opened client=w"
FIRST = "+2 @1 > publish {0} first qos=1 id=1; @1 < puback 1; < publish {0} first qos=1 id=1; > puback 1"
LOST = "+2 @1 > publish {0} x qos=1 id=2; @1 < puback 2"
LATER = "+20 > pingreq; < pingresp; +20 > pingreq; < pingresp; @1 > pingreq; @1 < pingresp"


@each("topics, came, expected", [
    ("a", "", "likely: 1 message did not reach a client (DLV410): a. Add --message TOPIC."),
    ("ab", "", "likely: 2 messages did not reach a client (DLV410): a and b. Add --message TOPIC."),
    ("a", "< publish a x qos=1 id=2; > puback 2", ""),
])  # fmt: skip
def test_lost_messages_are_one_sentence(topics: str, came: str, expected: str) -> None:
    running = Explainer()
    lines = [part.format(topic) for topic in topics for part in (FIRST, LOST)]
    explained(*steps_of(READER, *lines, *filter(None, [came]), LATER), explainer=running)

    assert [line for line in running.totals.remarks if "did not reach a client" in line] == [expected] * bool(expected)


def test_other_rules_are_not_counted() -> None:
    lost = LostMessages()
    for finding in linted(*steps_of("opened; > publish a/+ x; > disconnect; > fin")):
        lost.note(finding)

    assert lost.sentence() == ""
