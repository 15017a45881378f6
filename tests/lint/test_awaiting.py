"""Rules that wait: when they ask, what they judge once, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

from mqttscope.dissect import dissect_segments
from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.context import RuleContext
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import START_NS, Step, client, closes, conversation, on, opened, segments, server
from mqttscope.lint.finding import Finding, Report, Severity
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rule import V5
from mqttscope.mqtt.packets import Pingreq, Puback
from tests.lint.lint_help import message, publishes, subscriber


class Waits(AwaitingRule):
    """Tells what did not come."""

    code = "TST480"
    severity = Severity.ERROR
    wanted: ClassVar[bool] = True

    def concerns(self, model: Messages) -> bool:
        return self.wanted

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        doubt = self.doubt(one, model, at)
        return self.report("", f"{one.sent.number} {doubt}", overdue=True)


def run(*steps: Step, rule: Any = Waits) -> list[Finding]:
    linter = Linter([rule({"timeout": 10})], strict=True)
    return [one for event in dissect_segments(segments(conversation("x", *steps))) for one in linter.feed(event)]


BOTH = (*subscriber(), *opened())
FIRST = (*publishes(message(b"first")), *on(1, server(message(b"first")), client(Puback(1))))
LATER = (client(Pingreq(), after=60),)


def test_each_is_judged_once_and_in_time_though_nothing_else_comes() -> None:
    found = run(*BOTH, *publishes(message()), *publishes(message(b"other"), after=5), *LATER)

    assert [one.message.split()[0] for one in found] == ["1", "2"]
    assert [round((one.timestamp_ns - START_NS) / 1e9) for one in found] == [12, 17]
    assert {one.connection for one in found} == {0}, "that of the subscriber"


def test_it_is_sure_where_the_route_is_known_and_the_client_reads() -> None:
    silent = run(*BOTH, *FIRST, *publishes(message()), *LATER)
    reads = run(*BOTH, *FIRST, *publishes(message()), *on(1, client(Pingreq(), after=5)), *LATER)
    unknown = run(*subscriber(connect=None), *opened(), *publishes(message()), *LATER)

    assert [one.message for one in reads] == ["2 {}"]
    assert ["heuristic" in one.message for one in (*silent, *unknown)] == [True, True]


def test_nobody_is_asked_about_what_does_not_concern_the_rule() -> None:
    other = type("Other", (Waits,), {"code": "TST481", "wanted": False})

    assert run(*BOTH, *publishes(message()), *LATER, rule=other) == []


def test_a_connection_that_has_ended_is_not_judged() -> None:
    assert run(*BOTH, *publishes(message()), *on(1, closes("client")), *LATER) == []


def test_a_full_window_excuses_it() -> None:
    unanswered = [
        step
        for number in range(10)
        for step in (
            *publishes(message(b"%d" % number)),
            *on(1, server(message(b"%d" % number, packet_identifier=number + 1))),
        )
    ]

    assert run(*BOTH, *unanswered, *publishes(message()), *LATER) == []
    answered = on(1, *(client(Puback(number + 1)) for number in range(10)))
    found = run(*BOTH, *unanswered, *publishes(message()), *answered, *LATER)
    assert ["heuristic" in one.message for one in found] == [True], "the server may have had to drop it"


def test_what_a_client_lacks_counts_over_all_topics() -> None:
    """So the messages of a server cannot be judged topic by topic, each by itself."""

    def lacking(*topics: str) -> int:
        said = [step for _ in range(40) for topic in topics for step in _published(topic, next(numbers))]
        return len(run(*subscriber(V5, *topics), *opened(), client(Pingreq(), after=2), *said, *LATER))

    numbers = count()
    assert [lacking("a"), lacking("b"), lacking("a", "b")] == [40, 40, 0]


def _published(topic: str, number: int) -> tuple[Step, ...]:
    return publishes(replace(message(b"%d" % number), topic_name=topic), after=0.01)
