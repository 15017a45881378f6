"""One line per finding."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.lint.finding import Confidence
from tests.report.findings.samples import ACCEPTED, HOSTILE, MADE, written

FLOW = "10.0.0.4:51234 → 10.0.0.2:1883"


def test_the_line_says_where_which_rule_what_and_which_statement() -> None:
    assert written("concise", [MADE]).splitlines() == [
        f"capture.pcap: frame 118, {FLOW} (dev1): CON212 Password without User Name [3.1.1 MQTT-3.1.2-22]",
        "no findings by 3 rules",
    ]


def test_what_is_not_certain_says_so() -> None:
    likely = replace(MADE, confidence=Confidence.LIKELY, statements=())

    assert written("concise", [likely]).splitlines()[0].endswith(" CON212 Password without User Name (likely)")


def test_each_finding_is_one_line_where_the_width_has_no_limit() -> None:
    assert len(written("concise", [HOSTILE, MADE, (MADE, ACCEPTED)]).splitlines()) == 3
