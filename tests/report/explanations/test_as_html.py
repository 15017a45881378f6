"""Explanations as a page: the rows are those of JSON, causes and lanes are seen without the script."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mqttscope.explain import Explainer
from mqttscope.explain.model import Totals
from mqttscope.report.base import View
from mqttscope.report.explanations.base import make_reporter
from tests.explain.running import capture, explain
from tests.report.browser import elements
from tests.report.explanations.samples import Pages, report, traces
from tests.report.fleet.samples import HOSTILE
from tests.report.html.reader import blocks, read


def said(page: str) -> str:
    return " ".join(read(page.encode()).said)


@pytest.mark.parametrize(("name", "every"), [("hasty-clients", False), ("broker-restarts", True), ("v5-qos", True)])
def test_rows_are_those_of_json(name: str, every: bool) -> None:
    page, document = report("html", name, every=every), json.loads(report("json", name, every=every))

    assert blocks(page.encode(), "explanations") == document["explanations"]
    assert document["explanations"]


def test_causes_and_lanes_are_read_without_the_script() -> None:
    page = report("html", "hasty-clients")
    told = said(page)

    for part in ("12 connections of 26 ended in trouble: 12 × not authorized.", "Causes", "along the time", "guesser"):
        assert part in told, part
    assert page.count('<rect class="broken"') == 12
    assert "No connection ended in trouble" in said(report("html", "v5-qos"))


def test_the_fate_of_messages() -> None:
    told = said(traces("html", "undelivered", "#"))
    text = traces("text", "undelivered", "#", View(width=0))

    assert "Messages" in told
    (line,) = [line for line in text.splitlines() if " frame " not in line and ": " in line][:1]
    assert line.partition(": ")[2][:40] in told
    assert "✗ " in told or "✓ " in told


@pytest.mark.long
def test_a_browser_shows_each_end_and_runs_nothing_of_it(tmp_path: Path) -> None:
    pages = Pages()
    made = make_reporter("html", pages, View())
    for one in explain(capture("hasty-clients"), Explainer()):
        first = replace(one.first, headline=HOSTILE, advice=(HOSTILE,))
        made.feed(replace(one, client_identifier=HOSTILE, candidates=(first,), notes=(HOSTILE,)))
    made.close(Totals(30, 0, 0, 0, {"not_authorized": 30}))
    shown = elements(pages.text.encode(), tmp_path)
    cards = shown[shown.index('<section id="list"') :].partition("<script>")[0]

    assert cards.count("<article") == 10
    assert "1 to 10 of 26" in cards
    assert "&lt;script&gt;alert(" in cards
    assert "<script>alert" not in cards
    assert "\u202e" not in cards
    assert "What to change" in cards
    assert "Last packets" in cards
