"""Findings as a page: the rows are those of JSON Lines, with bytes and statements, and nothing in them runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.lint.finding import Severity
from mqttscope.report.findings import html
from tests.report.browser import elements
from tests.report.findings.samples import ACCEPTED, HOSTILE, IN_BASELINE, MADE, SECRET, clean, many, summary, written
from tests.report.html.reader import blocks, read


def page(*findings: object, **more: object) -> bytes:
    return written("html", findings, **more).encode()  # type: ignore[arg-type]


def test_rows_are_those_of_json_lines() -> None:
    found = many()
    lines = [json.loads(line) for line in written("jsonl", found).splitlines()]

    assert blocks(page(*found, every=True), "findings") == lines
    assert len(lines) > 5


def test_findings_of_one_cause_are_one_row() -> None:
    later = replace(MADE, frame=300, timestamp_ns=MADE.timestamp_ns + 10**9)
    made = page(MADE, later)

    assert [row["frame"] for row in blocks(made, "findings")] == [118]
    (evidence,) = blocks(made, "evidence")
    assert evidence["repeats"].startswith("2 times from ")
    assert len(blocks(page(MADE, later, every=True), "findings")) == 2


def test_bytes_and_words_stand_beside_the_rows() -> None:
    made = page(MADE)
    (evidence,), (words,) = blocks(made, "evidence"), blocks(made, "words")

    assert evidence["time"] == "2026-01-02T03:04:05.123456789Z" or evidence["time"].endswith("Z")
    assert "CONNECT" in evidence["lines"][0]
    assert evidence["dump"][0].startswith("0000  10 20 00 04 4d 51")
    assert any("^^" in line and "password" in line for line in evidence["dump"])
    assert set(words) == {"rules", "statements", "reasons", "confidences"}
    assert words["statements"]["3.1.1 MQTT-3.1.2-22"]["section"]
    assert words["rules"]["CON212"]["advice"]


def test_secrets_are_hidden() -> None:
    assert SECRET not in page(MADE)
    assert b"hunter2" not in page(MADE)


def test_what_is_suppressed_is_counted_alone() -> None:
    made = page((MADE, IN_BASELINE), (MADE, ACCEPTED), end=summary())

    assert blocks(made, "findings") == []
    assert "5 suppressed (4 by the baseline, 1 by the configuration)" in " ".join(read(made).said)


def test_everything_a_run_has_to_say_is_read_without_the_script() -> None:
    said = " ".join(read(page(*many(), end=summary())).said)

    for part in (
        "capture.pcap", "2 errors", "Rules that were broken", "CON212", "second-connect", "3.1.1 MQTT-3.1.2-22",
        "Findings by client and rule", "quality of the capture", "could not be read to its end", "needs JavaScript",
    ):  # fmt: skip
        assert part in said, part
    nothing = read(page(end=clean()))
    assert "no findings by 3 rules" in " ".join(nothing.said)
    assert "script" not in nothing.tags


def test_what_is_not_in_the_grid_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "GRID", (2, 1))
    others = [replace(MADE, client_identifier=f"dev{at}", rule=f"PUB10{at % 3 + 1}") for at in range(6)]

    assert "Not in the grid: 2 rules." in " ".join(read(page(*others, every=True)).said)


NARROW = "document.documentElement.dataset.sticksOut=String(document.documentElement.scrollWidth>innerWidth)"


@pytest.mark.long
def test_a_browser_shows_findings_and_runs_nothing_of_them(tmp_path: Path) -> None:
    mild = replace(MADE, severity=Severity.INFO, rule="ENC101", message="mild <b>", client_identifier="other")
    made = page(mild, replace(MADE, statements=("3.1.1 MQTT-3.1.2-22",)), HOSTILE)
    shown = elements(made, tmp_path)

    cards = shown.split("<article")[1:]
    assert len(cards) == 3
    assert "card error" in cards[0], "the worst comes first"
    assert "card info" in cards[2]
    assert "mild &lt;b&gt;" in cards[2]
    assert "3.1.1 MQTT-3.1.2-22" in cards[0]
    assert "\u202e" not in shown.split("<article", 1)[1]
    assert "<b onclick" not in shown
    assert "1 of 3" not in shown
    asks = f"{NARROW};filter.value='enc101 -error';filter.dispatchEvent(new Event('input'))"
    filtered = elements(made, tmp_path, act=asks, width=500)
    assert 'data-sticks-out="false"' in filtered
    assert filtered.count("<article") == 1
    assert "1 of 3 findings match" in filtered
