"""Markdown for a ticket."""

from __future__ import annotations

import re

from mqttscope.explain.model import Totals
from mqttscope.lint.examples import client, closes, opened
from mqttscope.mqtt.packets import Publish
from mqttscope.report.base import View
from mqttscope.report.explanations.base import make_reporter
from tests.explain.running import explained
from tests.report.explanations.samples import Pages, nodes, report, traces


def test_a_section_has_its_parts() -> None:
    text = report("markdown", "half-open")

    assert text.startswith("* **What broke**: 1 connection: 1 × path lost (half-open)\n* **Clients**: 1: valve-3\n")
    assert "\n\n### &#35;0 valve-3: path lost (half-open) (likely)\n" in text
    assert "**Also possible: path lost (half-open)** (" in report("markdown", "link-lost-keep-alive")
    assert "| time | frame | from | event |" in text
    assert "**What to change**" in text


def test_nothing_captured_has_a_meaning() -> None:
    hostile = "[x](http://evil)<script>@ada #12|`"
    (explanation,) = explained(
        *opened(client_identifier=hostile), client(Publish(topic_name=hostile)), closes("client")
    )
    pages = Pages()
    reporter = make_reporter("markdown", pages, View(width=0))
    reporter.feed(explanation)
    reporter.close(Totals(1, causes={"client_closed": 1}))

    assert not re.search(r"<script>|\]\(http|@ada|`", pages.text)
    rows = [line for line in pages.text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5}


def test_messages_are_a_table() -> None:
    text = traces("markdown", "undelivered", "plant/7/alarm")

    assert "| client | fate | frame | reason |" in text
    assert "| upper | no subscription |" in text


def test_answers_about_edge_nodes() -> None:
    text = nodes("markdown")

    for part in (
        "### edge node g/e: rebirth requested (likely)\n\nA host requested a rebirth",
        "The metric '&#60;b&#62;' is in data",
    ):
        assert part in text
