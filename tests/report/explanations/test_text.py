"""Explanations for a terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.report import deferred
from mqttscope.report.base import View
from mqttscope.report.escape import cells
from mqttscope.report.explanations.base import make_reporter
from tests.each import each
from tests.explain.running import capture, explain
from tests.report.explanations.samples import Pages, nodes, report, traces
from tests.report.test_harmless import ANSI

NAMES = ("half-open", "broker-restarts", "v5-server-disconnect", "refused-connects", "link-lost-keep-alive")


@each("width", [24, 40, 80, 120])
@each("name", NAMES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = report("text", name, View(width=width), every=True)

    assert max(cells(line) for line in text.splitlines()) <= width


def test_a_block_has_its_parts() -> None:
    text = report("text", "link-lost-keep-alive")

    for part in (
        "#0 valve-3: Keep Alive ran out (likely)\n", "the broker waits 1.5 × 10 s = 15 s", "  Also possible\n",
        "  Afterwards\n", "  Last packets\n", "  What to change\n  - ",
    ):  # fmt: skip
        assert part in text


def test_colour_changes_nothing_but_the_colour_and_without_unicode_only_ascii_is_written() -> None:
    plain, coloured = (report("text", "half-open", View(width=80, colour=colour)) for colour in (False, True))
    text = report("text", "half-open", View(width=80, unicode=False))

    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == plain
    assert "→" not in text
    assert "->" in text


def test_the_same_again_is_one_line_unless_all_is_asked_for() -> None:
    folded, every = (report("text", "refused-connect", every=every, asked="all" * every) for every in (False, True))

    assert folded.count("What to change") < every.count("What to change")
    assert "not authorized again" in folded
    assert "more with the same cause" in folded
    assert "again" not in every


def test_messages() -> None:
    text = traces("text", "undelivered", "plant/7/alarm", View(width=100))

    assert text.startswith("plant/7/alarm: delivered to 1 client, not to 3\n")
    assert "+ right: received it" in text
    assert "- upper: has no subscription that it matches" in text


def test_no_duration_is_told_where_the_clock_was_set_back() -> None:
    explanation = explain(capture("half-open"))[0]
    for form in ("text", "markdown"):
        pages = Pages()
        reporter = make_reporter(form, pages, View(width=0))
        reporter.feed(replace(explanation, clock_set=True, ended_ns=explanation.opened_ns - 5))
        reporter.close(None)
        assert "-0.0 ms" not in pages.text
        assert "open for" not in pages.text
        assert "after -" not in pages.text


def test_a_rule_without_a_statement_leaves_no_gap() -> None:
    text = report("text", "protocol-level-accepted", every=True)

    assert "broken by the client: [CON102 protocol-version-unknown]" in text
    assert "broken by the client: CON102, frame" in report("markdown", "protocol-level-accepted", every=True)


def test_the_return_of_a_client_stands_once() -> None:
    explanation = explain(capture("resumed-by-clients"))[0]

    assert explanation.afterwards[0].text.startswith("the client came back")
    assert not any("connected again" in reason.text for reason in explanation.first.reasons)


@pytest.mark.parametrize("limit", [10_000_000, 100])
def test_the_first_lines_come_before_all_that_was_kept(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "MAX_KEPT_BYTES", limit)
    lines = report("text", "half-open").splitlines()

    assert [line.split("  ")[0] for line in lines[:5]] == ["What broke", "Clients", "Since", "Why", "Look at"]
    assert lines[5] == ""
    assert lines[6].startswith("#0 valve-3: path lost (half-open)")
    assert lines[-1].startswith("Of the others")


def test_answers_about_edge_nodes() -> None:
    text = nodes("text")

    for part in (
        "edge node g/e: rebirth requested (likely)\n",
        "  A host requested a rebirth after sequence numbers that do not follow",
        "  - Look for messages that were lost",
    ):
        assert part in text
