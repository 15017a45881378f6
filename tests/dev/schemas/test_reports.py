"""What is written about captures fits the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cli.running import CAPTURES, capture, invoke
from tests.dev.schemas import fits, unnoticed
from tests.report.findings.samples import MADE, summary, written

FEW = CAPTURES[::24]


def of_captures(captures: Iterable[Path]) -> None:
    """What is written about captures fits."""
    for path in captures:
        assert fits("event-line", invoke("inspect", path, "--format", "jsonl").lines)
        number = fits("finding-line", invoke("lint", path, "--format", "jsonl").lines)
        document = json.loads(invoke("lint", path, "--format", "json").out)
        assert fits("findings", [document]) == 1
        assert len(document["findings"]) == number
        fits("statistics", [json.loads(invoke("stats", path, "--format", "json").out)])
        fits("explanations", [json.loads(invoke("explain", path, "--format", "json").out)])


def test_reports_about_captures_fit() -> None:
    of_captures(FEW)


@pytest.mark.long
def test_reports_about_all_captures_fit() -> None:
    of_captures(path for path in CAPTURES if path not in FEW)


def test_a_key_with_another_name_is_noticed() -> None:
    result, reported_result = (
        json.loads(invoke(*words, "--format", "json").out)
        for words in (("lint", capture("planted-violations")), ("explain", capture("failing-device")))
    )
    codes = {f"summary.pending.{code}" for code in result["summary"]["pending"]}
    assert unnoticed("findings", result) == {"findings[].topic"} | codes
    assert unnoticed("explanations", reported_result) == set()


def test_findings_without_a_number_of_packets_fit() -> None:
    document = json.loads(written("json", [MADE], summary()))

    assert document["summary"]["packets"] is None
    assert fits("findings", [document]) == 1


def test_counted_rules_fit() -> None:
    words = ("lint", capture("planted-violations"), "--statistics", "--format")

    assert fits("finding-line", invoke(*words, "jsonl").lines) > 5
    assert fits("findings", [json.loads(invoke(*words, "json").out)]) == 1


def test_comparisons_fit() -> None:
    pairs = [("v5-qos", "v311-qos"), ("planted-violations", "alias-both-directions")]
    for pair in pairs:
        words = ("compare", capture(pair[0]), capture(pair[1]), "--format")
        assert fits("comparison-line", invoke(*words, "jsonl").lines) > 3
        document = json.loads(invoke(*words, "json").out)
        assert fits("comparison", [document]) == 1
        assert document["differences"]


def test_the_report_of_redact_fits(tmp_path: Path) -> None:
    words = ("redact", capture("v5-qos"), "-o", tmp_path / "out.pcapng", "--keep", "topics")
    document = json.loads(invoke(*words, "--format", "json").out)

    assert fits("redaction", [document]) == 1
    assert document["replaced"]
