"""Suppressions: what they cover, until when, and which were of use."""

from __future__ import annotations

from datetime import date

import pytest

from mqttscope.lint.suppress import Pattern, Suppression, Suppressions
from tests.lint.lint_help import qos_findings

CODES = frozenset({"PUB209"})


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        (Pattern(CODES), True),
        (Pattern(frozenset({"PUB101"})), False),
        (Pattern(CODES, client="dev*"), True),
        (Pattern(CODES, client="dev"), False),
        (Pattern(CODES, topic="plant/#"), True),
        (Pattern(CODES, topic="plant/+"), False),
        (Pattern(CODES, client="dev1", topic="plant/+/temp"), True),
        (Pattern(CODES, client="dev2", topic="plant/+/temp"), False),
    ],
)
def test_rule_client_and_topic_have_to_fit(pattern: Pattern, covered: bool) -> None:
    assert pattern.covers(qos_findings("plant/1/temp")[0]) is covered


def test_the_last_day_still_counts() -> None:
    finding = qos_findings("a")[0]
    pattern = Pattern(CODES, reason="known", expires=date(2027, 3, 31))

    found = Suppressions([pattern], date(2027, 3, 31)).find(finding)
    assert found == Suppression("configuration", "known", "2027-03-31")

    late = Suppressions([pattern], date(2027, 4, 1))
    assert late.find(finding) is None
    assert late.expired() == [pattern]


def test_one_that_silenced_nothing_is_told() -> None:
    used, unused = Pattern(CODES), Pattern(CODES, client="nobody")
    suppressions = Suppressions([unused, used])
    suppressions.find(qos_findings("a")[0])

    assert suppressions.unused() == [unused]
