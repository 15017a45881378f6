"""Findings as comments on frames."""

from __future__ import annotations

from dataclasses import replace

from mqttscope.lint.finding import Confidence
from tests.report.comments import Comments
from tests.report.findings.samples import ACCEPTED, AT_THE_END, HOSTILE, MADE, written

MESSAGE = "CON212 error: Password without User Name [3.1.1 MQTT-3.1.2-22] (client dev1)"


def test_a_comment_has_rule_severity_sentence_statements_and_client() -> None:
    comments = Comments()
    written("pcapng", [MADE, replace(MADE, frame=7, confidence=Confidence.LIKELY, statements=())], sink=comments)

    assert comments.rows == [
        ("capture.pcap", 118, MESSAGE),
        ("capture.pcap", 7, "CON212 error, likely: Password without User Name (client dev1)"),
    ]
    assert comments.about.startswith("mqttscope lint, ")
    assert "by 3 rules" in comments.about


def test_each_finding_of_a_cause_is_a_comment_and_suppressed_ones_are_none() -> None:
    comments = Comments()
    written("pcapng", [MADE, replace(MADE, frame=119), (replace(MADE, frame=120), ACCEPTED), AT_THE_END], sink=comments)

    assert [frame for _, frame, _ in comments.rows] == [118, 119, 118]


def test_captured_text_cannot_make_lines_or_colours() -> None:
    comments = Comments()
    written("pcapng", [HOSTILE], sink=comments)

    ((capture, _, text),) = comments.rows
    assert capture == HOSTILE.capture
    assert not set(text) & set("\x1b\x07\r\n\x00\x85\u202e\u2028")
