"""Rules that wait: when they ask, what they judge once, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import START_NS, ExampleStep, client, closes, on, opened, server
from mqttscope.lint.finding import Finding, Report, Severity
from mqttscope.lint.message_model import ExpectedMessage, Messages
from mqttscope.lint.rule import V5
from mqttscope.mqtt.packets import Pingreq, Puback
from tests.each import each
from tests.lint.lint_help import lint, message, publishes, steps_of, subscriber, talked


class Waits(AwaitingRule):
    """Tells what did not come."""

    code = "TST480"
    severity = Severity.ERROR
    wanted: ClassVar[bool] = True

    def concerns(self, model: Messages) -> bool:
        return self.wanted

    def judge(self, expected_message: ExpectedMessage, model: Messages, at: RuleContext) -> Report | None:
        doubt = self.doubt(expected_message, model, at)
        return self.report("", f"{expected_message.sent.number} {doubt}", overdue=True)


def run(*steps: ExampleStep, rule: Any = Waits) -> list[Finding]:
    return lint([rule({"timeout": 10})], talked(*steps))


BOTH = (*subscriber(), *opened())
FIRST = (*publishes(message(b"first")), *on(1, server(message(b"first")), client(Puback(1))))
LATER = (client(Pingreq(), after=60),)


def test_each_is_judged_once_and_in_time_though_nothing_else_comes() -> None:
    findings = run(*BOTH, *publishes(message()), *publishes(message(b"other"), after=5), *LATER)

    assert [finding.message.split()[0] for finding in findings] == ["1", "2"]
    assert [round((finding.timestamp_ns - START_NS) / 1e9) for finding in findings] == [12, 17]
    assert {finding.connection for finding in findings} == {0}, "that of the subscriber"


def test_it_is_sure_where_the_route_is_known_and_the_client_reads() -> None:
    silent = run(*BOTH, *FIRST, *publishes(message()), *LATER)
    reads = run(*BOTH, *FIRST, *publishes(message()), *on(1, client(Pingreq(), after=5)), *LATER)
    unknown = run(*subscriber(connect=None), *opened(), *publishes(message()), *LATER)

    assert [read.message for read in reads] == ["2 {}"]
    assert ["heuristic" in finding.message for finding in (*silent, *unknown)] == [True, True]


def test_nobody_is_asked_about_what_does_not_concern_the_rule() -> None:
    other = type("Other", (Waits,), {"code": "TST481", "wanted": False})

    assert run(*BOTH, *publishes(message()), *LATER, rule=other) == []


def test_a_connection_that_has_ended_is_not_judged() -> None:
    assert run(*BOTH, *publishes(message()), *on(1, closes("client")), *LATER) == []


def test_a_full_window_excuses_it() -> None:
    unanswered: list[ExampleStep] = []
    for number in range(10):
        packet = message(b"%d" % number)
        unanswered += [*publishes(packet), *on(1, server(replace(packet, packet_identifier=number + 1)))]

    assert run(*BOTH, *unanswered, *publishes(message()), *LATER) == []
    answered = on(1, *(client(Puback(number + 1)) for number in range(10)))
    findings = run(*BOTH, *unanswered, *publishes(message()), *answered, *LATER)
    assert ["heuristic" in finding.message for finding in findings] == [True], "the server may have had to drop it"


def test_what_a_client_lacks_counts_over_all_topics() -> None:
    """So the messages of a server cannot be judged topic by topic, each by itself."""

    def lacking(*topics: str) -> int:
        sent = [message(b"%d" % at, topic_name=topic) for at in range(40) for topic in topics]
        steps = [step for packet in sent for step in publishes(packet, after=0.01)]
        return len(run(*subscriber(V5, *topics), *opened(), client(Pingreq(), after=2), *steps, *LATER))

    assert [lacking("a"), lacking("b"), lacking("a", "b")] == [40, 40, 0]


def test_a_server_may_wait_for_an_acknowledgment_before_it_sends_the_next_message() -> None:
    reads = (*publishes(message(b"lost")), *on(1, client(Pingreq(), after=5)), *LATER)
    texts = [run(*BOTH, *before, *reads)[-1].message for before in (FIRST[:-1], FIRST)]

    assert ["heuristic" in text for text in texts] == [True, False]


@each("topic_filter, cites_wildcards", [("a", False), ("+", True), ("#", True)])
def test_a_lost_message_breaks_the_statement_about_wildcards_only_with_one(
    topic_filter: str, cites_wildcards: bool
) -> None:
    steps = steps_of(
        f"@1 opened 3.1.1 client=c2; @1 > subscribe 1 {topic_filter}:2; @1 < suback 1 2; opened 3.1.1",
        "+2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1",
        "+2 > publish a second qos=1 id=1; < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq",
    )
    (finding,) = lint([all_rules()["DLV410"]()], talked(*steps))

    assert any("3.8.3-2" in statement for statement in finding.statements) is cites_wildcards
