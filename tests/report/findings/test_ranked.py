"""Findings by severity: errors first, then warnings, then a line for each rule with notes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqttscope.lint.finding import Finding, Severity
from mqttscope.report.base import View
from mqttscope.report.findings import ranked
from mqttscope.report.findings.ranked import Ranked
from mqttscope.report.findings.registry import make_reporter
from tests.report.findings.samples import HOSTILE, IN_BASELINE, MADE, clean, many, summary
from tests.report.make import Lines
from tests.report.test_harmless import check

NOTE = replace(MADE, severity=Severity.INFO, rule="OPS212", slug="ping-without-idle", message="pings early")
OTHER = replace(NOTE, rule="ACK206", slug="resend", message="sends again", frame=5)
WARNING = replace(MADE, severity=Severity.WARNING, message="a warning")
HINT = "notes are one line for each rule; --verbose shows each with its packet"


def shown(*findings: Finding, verbose: bool = False, **view: Any) -> list[str]:
    sink = Lines()
    reporter = Ranked(sink, View(**{"width": 0, **view}), verbose=verbose)
    for one in findings:
        reporter.feed(one)
    reporter.close(clean())
    return sink.data.decode().splitlines()


def test_the_worst_comes_first_whatever_the_order_of_the_capture() -> None:
    lines = shown(NOTE, WARNING, replace(NOTE, message="again"), OTHER, MADE, NOTE)

    assert [line.split("]")[0] for line in lines if line[:1] in "ewi" and "[" in line.split(":")[0]] == [
        "error[CON212",
        "warning[CON212",
        "info[ACK206",
        "info[OPS212",
    ]
    place = "capture.pcap: frame {}, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)"
    assert lines[-6:] == [
        "",
        f"info[ACK206]: sends again  (resend)  {place.format(5)}",
        f"info[OPS212]: pings early, and 2 more notes  (ping-without-idle)  {place.format(118)}",
        HINT,
        "",
        "no findings by 3 rules",
    ]


def test_errors_are_written_as_they_are_found() -> None:
    sink = Lines()
    reporter = Ranked(sink, View(width=0))
    reporter.feed(WARNING)
    reporter.feed(MADE)

    assert b"error[CON212]" in sink.data
    assert b"warning[CON212]" not in sink.data


def test_verbose_shows_every_note_with_its_packet() -> None:
    lines = shown(NOTE, MADE, OTHER, NOTE, verbose=True)

    assert [line.split("]")[0] for line in lines if line.startswith("info[")] == [
        "info[OPS212",
        "info[ACK206",
        "info[OPS212",
    ]
    assert HINT not in lines
    assert len([line for line in lines if "CONNECT    3.1.1" in line]) == 4


@pytest.mark.parametrize(("count", "size"), [(2, 1 << 30), (10_000, 2 * len(MADE.raw))])
def test_what_there_is_no_room_for_is_folded_and_said(count: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranked, "MAX_HELD", count)
    monkeypatch.setattr(ranked, "MAX_HELD_BYTES", size)
    lines = shown(*[WARNING] * 5, *[MADE] * 3)

    assert len([line for line in lines if line.startswith("error[")]) == 3, "errors never wait"
    assert len([line for line in lines if line.startswith("warning[")]) == 3
    assert any("warning[CON212]: a warning, and 2 more warnings" in line for line in lines)
    assert any(line.startswith("limit: ") and "--format concise or jsonl has all" in line for line in lines)


def test_suppressed_findings_are_not_shown() -> None:
    sink = Lines()
    reporter = Ranked(sink, View(width=0))
    for one in (MADE, WARNING, NOTE):
        reporter.feed(one, IN_BASELINE)
    reporter.close(clean())

    assert sink.data.decode() == "no findings by 3 rules\n"


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [0, 40, 80])
def test_lines_fit_and_are_harmless(width: int, verbose: bool) -> None:
    sink = Lines()
    reporter = Ranked(sink, View(width=width), verbose=verbose)
    for one in [*many(), replace(HOSTILE, severity=Severity.INFO), replace(HOSTILE, severity=Severity.WARNING)]:
        reporter.feed(one)
    reporter.close(summary())

    check(sink.data.decode().split("\n"), width)


def test_the_registry_ranks_where_it_is_asked_to() -> None:
    assert isinstance(make_reporter("full", Lines(), View(width=0), ranked=True), Ranked)
    assert not isinstance(make_reporter("full", Lines(), View(width=0)), Ranked)
    assert not isinstance(make_reporter("concise", Lines(), View(width=0), ranked=True), Ranked)
