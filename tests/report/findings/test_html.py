"""Findings as a page: the rows are those of JSON Lines, with bytes and statements, and nothing in them runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.lint.finding import Severity
from mqttscope.report.findings import html
from tests.report.browser import elements
from tests.report.findings.samples import ACCEPTED, HOSTILE, IN_BASELINE, MADE, SECRET, clean, many, summary, written
from tests.report.html.reader import documents, read, rows


def page(*findings: object, **more: object) -> bytes:
    return written("html", findings, **more).encode()  # type: ignore[arg-type]


RANKS = ("error", "warning", "info")


def test_rows_are_those_of_json_lines_errors_first() -> None:
    findings = many()
    lines = [json.loads(line) for line in written("jsonl", findings).splitlines()]

    assert documents(page(*findings, every=True)) == sorted(lines, key=lambda line: RANKS.index(line["severity"]))
    assert len(lines) > 5


def test_findings_of_one_cause_are_one_row() -> None:
    later = replace(MADE, frame=300, timestamp_ns=MADE.timestamp_ns + 10**9)
    raw = page(MADE, later)

    assert [row["frame"] for row in documents(raw)] == [118]
    assert '<p class="note">2 times from ' in rows(raw)[0]
    assert len(documents(page(MADE, later, every=True))) == 2


def test_a_row_has_bytes_statements_and_advice() -> None:
    (row,) = rows(page(MADE))

    assert re.search(r'<span class="time">[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{12}</span>', row)
    assert re.search("<pre>[^&]* CONNECT ", row)
    assert "&#10;0000  10 20 00 04 4d 51" in row
    assert re.search(r'<span class="carets"> *\^\^+ password</span>', row)
    assert "breaks <b>3.1.1 MQTT-3.1.2-22</b> (section " in row
    assert '<p class="advice">' in row


def test_secrets_are_hidden() -> None:
    assert SECRET not in page(MADE)
    assert b"hunter2" not in page(MADE)


def test_what_is_suppressed_is_counted_alone() -> None:
    raw = page((MADE, IN_BASELINE), (MADE, ACCEPTED), end=summary())

    assert documents(raw) == []
    assert "5 suppressed (4 by the baseline, 1 by the configuration)" in " ".join(read(raw).texts)


def test_everything_a_run_has_to_say_is_read_without_the_script() -> None:
    text = " ".join(read(page(*many(), end=summary())).texts)

    for part in (
        "capture.pcap", "6 errors (2 occurrences)", "Broken rules", "CON212", "second-connect", "3.1.1 MQTT-3.1.2-22",
        "Findings by client and rule", "quality of the capture", "could not be read to its end", "Each finding",
    ):  # fmt: skip
        assert part in text, part
    nothing = read(page(end=clean()))
    assert "no findings by 3 rules" in " ".join(nothing.texts)
    assert "section" not in nothing.tags


def test_what_is_not_in_the_grid_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "GRID", (2, 1))
    others = [replace(MADE, client_identifier=f"dev{at}", rule=f"PUB10{at % 3 + 1}") for at in range(6)]

    assert "Not in the grid: 2 rules." in " ".join(read(page(*others, every=True)).texts)


NARROW = "document.documentElement.dataset.sticksOut=String(document.documentElement.scrollWidth>innerWidth)"


@pytest.mark.long
def test_a_browser_shows_findings_and_runs_nothing_of_them(tmp_path: Path) -> None:
    mild = replace(MADE, severity=Severity.INFO, rule="ENC101", message="mild <b>", client_identifier="other")
    raw = page(mild, replace(MADE, statements=("3.1.1 MQTT-3.1.2-22",)), HOSTILE)
    shown = elements(raw, tmp_path)

    place = shown[shown.index('<div class="rows"') :]
    cards = place.split("<article")[1:]
    assert len(cards) == 3
    assert "card error" in cards[0], "the worst comes first"
    assert "card info" in cards[2]
    assert "mild &lt;b&gt;" in cards[2]
    assert "3.1.1 MQTT-3.1.2-22" in cards[0]
    assert "\u202e" not in place
    assert "<b onclick" not in shown
    assert "1 of 3" not in shown
    asks = f"{NARROW};filter.value='enc101 -error';filter.dispatchEvent(new Event('input'))"
    filtered = elements(raw, tmp_path, act=asks, width=500)
    assert 'data-sticks-out="false"' in filtered
    assert filtered[filtered.index('<div class="rows"') :].count("<article") == 1
    assert "1 of 3 findings match" in filtered
