"""Findings counted by rule."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from mqttscope.lint.finding import Severity
from mqttscope.report.base import View
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.statistics import make_statistics
from tests.report.findings.samples import IN_BASELINE, MADE, clean, many, summary
from tests.report.make import Lines
from tests.report.test_harmless import check


def shown(
    *findings: object, width: int = 100, kind: str = "full", end: RunSummary | None = None, **changes: object
) -> list[str]:
    sink = Lines()
    reporter = make_statistics(kind, sink, View(width=width))
    for finding in findings:
        reporter.feed(*(finding if isinstance(finding, tuple) else (finding, None)))
    reporter.close(end or clean(**changes))
    return sink.lines


OTHER = replace(MADE, rule="ENC101", slug="utf8-ill-formed", severity=Severity.WARNING)
FOUND = (MADE, OTHER, OTHER, (MADE, IN_BASELINE))


def test_rules_are_counted_most_first() -> None:
    lines = shown(*FOUND, withheld=Counter(PUB209=4))

    assert lines[0].split() == ["rule", "findings", "severity", "clients", "suppressed", "withheld"]
    assert [line.split() for line in lines[2:5]] == [
        ["ENC101", "utf8-ill-formed", "2", "warning", "1"],
        ["CON212", "second-connect", "1", "error", "1", "1"],
        ["PUB209", "qos-exceeds-maximum", "0", "error", "4"],
    ]
    assert lines[5] == "no findings by 3 rules"


def test_nothing_found_is_no_table() -> None:
    assert shown() == ["no findings by 3 rules"]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_lines_fit_and_are_harmless(width: int) -> None:
    check(shown(*many(), width=width, end=summary()), width)


def test_the_same_as_json() -> None:
    end = summary(withheld=Counter(PUB209=4))
    (document,), rows = ([json.loads(line) for line in shown(*FOUND, kind=name, end=end)] for name in ("json", "jsonl"))

    assert [(row["rule"], row["findings"], row["suppressed"], row["withheld"]) for row in document["rules"]] == [
        ("ENC101", 2, 0, 0), ("CON212", 1, 1, 0), ("PUB209", 0, 0, 4),
    ]  # fmt: skip
    assert document["summary"]["truncated"]
    assert rows == [{"schema": 1, **each} for each in document["rules"]]


def test_a_finding_about_many_clients_counts_them() -> None:
    lines = shown(replace(MADE, clients=33))

    assert next(line for line in lines if "CON212" in line).split()[-1] == "33"
