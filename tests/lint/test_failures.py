"""Failures of rules, taken out of linters and put together."""

from __future__ import annotations

import json
from dataclasses import asdict

from mqttscope.dissect import dissect_segments
from mqttscope.lint.engine import MAX_INTERNAL_ERRORS, InternalError, Linter
from mqttscope.lint.examples import client, conversation, opened, segments
from mqttscope.lint.failures import RuleFailures
from mqttscope.mqtt.packets import Publish
from tests.lake.failing import FAILING


def errors(count: int, rule: str = "TST101", capture: str = "a.pcap", first: int = 1) -> list[InternalError]:
    return [InternalError(rule, capture, first + number, "ValueError: odd", "") for number in range(count)]


def linted() -> Linter:
    linter = Linter(FAILING)
    talk = conversation("a talk", *opened(), client(*[Publish(topic_name="a")] * 3))
    for event in dissect_segments(segments(talk)):
        linter.feed(event)
    return linter


def test_the_failures_of_a_linter_are_plain_data() -> None:
    linter, rule_failures = linted(), RuleFailures()
    assert not rule_failures
    rule_failures.take(linter)

    assert rule_failures
    assert rule_failures.counts == linter.failures == {"TST291": 3, "TST292": 1, "TST491": 3}
    assert [(internal_error.rule, internal_error.frame) for internal_error in rule_failures.errors] == [
        (internal_error.rule, internal_error.frame) for internal_error in linter.internal_errors
    ]
    assert rule_failures.errors[0].error.startswith("ZeroDivisionError: of the connection\\xff (")
    assert {internal_error.trace for internal_error in rule_failures.errors} == {""}
    assert RuleFailures.loaded(json.loads(json.dumps(asdict(rule_failures)).encode())) == rule_failures
    assert rule_failures.sentences(FAILING) == linter.failure_sentences()
    assert RuleFailures().sentences(FAILING) == []


def test_what_others_report_is_left_out() -> None:
    rule_failures = RuleFailures()
    rule_failures.take(linted(), but={"TST291", "TST292"})

    assert rule_failures.counts == {"TST491": 3}
    assert {error.rule for error in rule_failures.errors} == {"TST491"}


def test_names_of_captures_are_text() -> None:
    linter, rule_failures = Linter(FAILING), RuleFailures()
    linter.internal_errors = [InternalError("TST291", "a\udcff.pcap", 1, "odd", "")]
    rule_failures.take(linter)

    assert rule_failures.errors[0].capture == "a\\xff.pcap"


def test_the_first_failures_are_kept_and_one_of_each_rule() -> None:
    rule_failures = RuleFailures()
    for _ in range(3):
        rule_failures.add(RuleFailures(errors(MAX_INTERNAL_ERRORS - 1), {"TST101": 500}))
    rule_failures.add(RuleFailures(errors(2, "TST102"), {"TST102": 2}))

    assert len(rule_failures.errors) == MAX_INTERNAL_ERRORS + 1
    assert rule_failures.errors[-1].rule == "TST102"
    assert rule_failures.counts == {"TST101": 1_500, "TST102": 2}


def test_tasks_are_put_in_the_order_of_reading() -> None:
    rule_failures = RuleFailures(
        [*errors(1, capture="b\\xff.pcap"), *errors(1, capture="a.pcap", first=9)], {"TST101": 2}
    )
    other = RuleFailures(
        [*errors(1, capture="a.pcap", first=4), *errors(1, "TST100", "c.pcap")], {"TST101": 1, "TST100": 1}
    )

    new_rule_failures = RuleFailures.together([rule_failures, other], ["b\udcff.pcap", "a.pcap"])

    places = [(error.capture, error.frame, error.rule) for error in new_rule_failures.errors]
    assert places == [
        ("b\udcff.pcap", 1, "TST101"), ("a.pcap", 4, "TST101"), ("a.pcap", 9, "TST101"), ("c.pcap", 1, "TST100"),
    ]  # fmt: skip
    assert new_rule_failures.counts == {"TST101": 3, "TST100": 1}
    assert RuleFailures.together([]) == RuleFailures()
