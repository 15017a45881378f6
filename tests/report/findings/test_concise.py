"""One line per finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.lint.finding import Confidence
from tests.report.findings.samples import ACCEPTED, HOSTILE, IN_BASELINE, MADE, many, summary, written
from tests.report.test_harmless import ANSI, check

FLOW = "10.0.0.4:51234 → 10.0.0.2:1883"


def test_the_line_says_where_which_rule_what_and_which_statement() -> None:
    assert written("concise", [MADE]).splitlines() == [
        f"capture.pcap: frame 118, {FLOW} (dev1): CON212 Password without User Name [3.1.1 MQTT-3.1.2-22]",
        "no findings by 3 rules",
    ]


def test_what_is_not_certain_says_so() -> None:
    likely = replace(MADE, confidence=Confidence.LIKELY, statements=())

    assert written("concise", [likely]).splitlines()[0].endswith(" CON212 Password without User Name (likely)")


def test_suppressed_findings_are_not_shown() -> None:
    assert len(written("concise", [(MADE, IN_BASELINE), (MADE, ACCEPTED), MADE]).splitlines()) == 2


def test_each_finding_is_one_line_where_the_width_has_no_limit() -> None:
    assert len(written("concise", [HOSTILE, MADE]).splitlines()) == 3


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize("width", [0, 40, 80, 200])
def test_lines_fit_and_are_harmless(width: int, unicode: bool, colour: bool) -> None:
    text = written("concise", many(), summary(), width=width, unicode=unicode, colour=colour)

    check(text.split("\n"), width, unicode=unicode)


def test_colour_changes_nothing_but_colour() -> None:
    plain = written("concise", many(), summary(), width=80)
    colour = written("concise", many(), summary(), width=80, colour=True)

    assert plain != colour
    assert ANSI.sub("", colour) == plain
