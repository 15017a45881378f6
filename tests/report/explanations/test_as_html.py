"""Explanations as a page: the rows are those of JSON, causes and lanes are seen without the script."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqttscope.explain import Explainer
from mqttscope.explain.model import Totals
from mqttscope.report.base import View
from mqttscope.report.explanations.base import make_reporter
from tests.explain.running import capture, explain
from tests.report.browser import elements
from tests.report.explanations.samples import Pages, nodes, report, traces
from tests.report.fleet.samples import HOSTILE
from tests.report.html.reader import documents, read, rows


def _place(row: Any) -> int:
    return int(row["connection"])


def said(page: str) -> str:
    return " ".join(read(page.encode()).texts)


@pytest.mark.parametrize(("name", "every"), [("hasty-clients", False), ("broker-restarts", True), ("v5-qos", True)])
def test_rows_are_those_of_json(name: str, every: bool) -> None:
    page, document = report("html", name, every=every), json.loads(report("json", name, every=every))

    assert sorted(documents(page.encode()), key=_place) == sorted(document["explanations"], key=_place)
    assert document["explanations"]


def test_causes_and_lanes_are_read_without_the_script() -> None:
    page = report("html", "hasty-clients")
    text = said(page)

    for part in (
        "12 connections of 26 ended in trouble: 12 × not authorized.",
        "Causes",
        "Timeline of these connections",
        "guesser",
    ):
        assert part in text, part
    # A bar for the cause, and a stretch for each connection.
    assert page.count('<rect class="part4"') == 13
    assert '<rect class="part4" x="0.0%" width="100.0%"' in page
    assert "No connection ended in trouble" in said(report("html", "v5-qos"))


def test_a_stop_of_the_broker_is_one_entry_at_the_top() -> None:
    page = report("html", "broker-restarts")
    first, *others = rows(page.encode())

    assert "broker stopped or restarted" in first
    assert " connections to " in first
    assert "<code>" not in first
    assert any("<details data-c=" in row and "broker stopped or restarted" in row for row in others)
    text = said(page)
    assert "What broke" in text
    assert text.index("What broke") < text.index("Causes") < text.index("Each end")


def test_certainty_has_no_colour_of_severity() -> None:
    (first, *_) = rows(report("html", "hasty-clients").encode())

    assert first.startswith('<article data-c="')
    assert 'class="card "' in first
    assert '<span class="badge">certain</span>' in first


def test_the_fate_of_messages() -> None:
    reported_text = said(traces("html", "undelivered", "#"))
    text = traces("text", "undelivered", "#", View(width=0))

    assert "Messages" in reported_text
    (line,) = [line for line in text.splitlines() if " frame " not in line and ": " in line][:1]
    assert line.partition(": ")[2][:40] in reported_text
    assert "✗ " in reported_text or "✓ " in reported_text


@pytest.mark.long
def test_a_browser_shows_each_end_and_runs_nothing_of_it(tmp_path: Path) -> None:
    pages = Pages()
    reporter = make_reporter("html", pages, View())
    for explanation in explain(capture("hasty-clients"), Explainer()):
        first = replace(explanation.first, headline=HOSTILE, advice=(HOSTILE,))
        reporter.feed(replace(explanation, client_identifier=HOSTILE, candidates=(first,), notes=(HOSTILE,)))
    reporter.close(Totals(30, 0, 0, 0, {"not_authorized": 30}))
    shown = elements(pages.text.encode(), tmp_path)
    cards = shown[shown.index('<div class="rows"') :].partition("<script>")[0]

    assert cards.count("<article") == 2, "the first end of each cause; the others are lines"
    assert cards.count('<details data-c="') == 18
    assert "1 to 20 of 26" in shown
    assert "&lt;script&gt;alert(" in cards
    assert "<script>alert" not in cards
    assert "\u202e" not in cards
    assert "What to change" in cards
    assert "Last packets" in cards


def test_answers_about_edge_nodes() -> None:
    text = nodes("html")

    for part in ("<h2>Edge nodes of Sparkplug</h2>", "rebirth requested (likely)", "&lt;b&gt;"):
        assert part in text
    assert "<b>" not in text
    assert "Edge nodes of Sparkplug" not in report("html", "half-open")
