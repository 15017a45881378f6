"""One JSON document."""

from __future__ import annotations

import json

from tests.report.findings.samples import IN_BASELINE, MADE, many, summary, written
from tests.report.test_harmless import check


def test_the_document_has_findings_and_summary() -> None:
    shown = json.loads(written("json", [*many(), (MADE, IN_BASELINE)], summary()))

    assert list(shown) == ["schema", "findings", "summary"]
    assert shown["schema"] == 1
    assert [one["rule"] for one in shown["findings"]] == [one.rule for one in many()]
    assert shown["summary"]["profile"] == "Example broker"


def test_a_document_without_findings() -> None:
    shown = json.loads(written("json", []))

    assert shown["findings"] == []
    assert shown["summary"]["truncated"] is False


def test_the_output_is_harmless() -> None:
    check(written("json", many(), summary()).split("\n"), 0)
