"""JSON Lines: findings and nothing else."""

from __future__ import annotations

import json

from mqttscope.report.findings.json import finding_view, line
from tests.report.findings.samples import IN_BASELINE, MADE, many, summary, written


def test_one_finding_per_line() -> None:
    lines = written("jsonl", many(), summary()).splitlines()

    assert [json.loads(one) for one in lines] == [json.loads(line(finding_view(finding))) for finding in many()]


def test_no_findings_are_no_lines() -> None:
    assert written("jsonl", []) == ""
    assert written("jsonl", [(MADE, IN_BASELINE)]) == ""
