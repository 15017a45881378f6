"""Failures of rules, taken out of linters and put together."""

from __future__ import annotations

import json
from dataclasses import asdict

from mqttscope.dissect import dissect_segments
from mqttscope.lint.engine import MAX_INTERNAL_ERRORS, InternalError, Linter
from mqttscope.lint.examples import client, conversation, opened, segments
from mqttscope.lint.failures import Failures
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
    linter, found = linted(), Failures()
    assert not found
    found.take(linter)

    assert found
    assert found.counts == linter.failures == {"TST291": 3, "TST292": 1, "TST491": 3}
    assert [(one.rule, one.frame) for one in found.errors] == [(one.rule, one.frame) for one in linter.internal_errors]
    assert found.errors[0].error.startswith("ZeroDivisionError: of the connection\\xff (")
    assert {one.trace for one in found.errors} == {""}
    assert Failures.loaded(json.loads(json.dumps(asdict(found)).encode())) == found
    assert found.told(FAILING) == linter.failures_told()
    assert Failures().told(FAILING) == []


def test_what_others_report_is_left_out() -> None:
    found = Failures()
    found.take(linted(), but={"TST291", "TST292"})

    assert found.counts == {"TST491": 3}
    assert {one.rule for one in found.errors} == {"TST491"}


def test_names_of_captures_are_text() -> None:
    linter, found = Linter(FAILING), Failures()
    linter.internal_errors = [InternalError("TST291", "a\udcff.pcap", 1, "odd", "")]
    found.take(linter)

    assert found.errors[0].capture == "a\\xff.pcap"


def test_the_first_failures_are_kept_and_one_of_each_rule() -> None:
    found = Failures()
    for _ in range(3):
        found.add(Failures(errors(MAX_INTERNAL_ERRORS - 1), {"TST101": 500}))
    found.add(Failures(errors(2, "TST102"), {"TST102": 2}))

    assert len(found.errors) == MAX_INTERNAL_ERRORS + 1
    assert found.errors[-1].rule == "TST102"
    assert found.counts == {"TST101": 1_500, "TST102": 2}


def test_tasks_are_put_in_the_order_of_reading() -> None:
    one = Failures([*errors(1, capture="b\\xff.pcap"), *errors(1, capture="a.pcap", first=9)], {"TST101": 2})
    other = Failures(
        [*errors(1, capture="a.pcap", first=4), *errors(1, "TST100", "c.pcap")], {"TST101": 1, "TST100": 1}
    )

    made = Failures.together([one, other], ["b\udcff.pcap", "a.pcap"])

    places = [(one.capture, one.frame, one.rule) for one in made.errors]
    assert places == [
        ("b\udcff.pcap", 1, "TST101"), ("a.pcap", 4, "TST101"), ("a.pcap", 9, "TST101"), ("c.pcap", 1, "TST100"),
    ]  # fmt: skip
    assert made.counts == {"TST101": 3, "TST100": 1}
    assert Failures.together([]) == Failures()
