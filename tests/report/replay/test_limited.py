"""Reports that end after so many."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqttscope.lint.catalogue import instances, select
from mqttscope.lint.engine import Linter
from mqttscope.replay.verify.verify import verify
from mqttscope.report.base import View
from mqttscope.report.findings.base import Summary
from mqttscope.report.findings.concise import Concise
from mqttscope.report.replay.limited import Limited
from mqttscope.report.replay.text import ReplayText
from tests.cli.running import capture
from tests.replay.talk import asked, pairs
from tests.report.make import Lines

SENT = [f"dev > publish a {number} qos=1 id={number + 1}" for number in range(5)]
ANSWERED = [f"dev < puback {number + 1}" for number in range(5)]


@pytest.mark.parametrize(("most", "shown", "rest"), [(0, 0, 5), (2, 2, 3), (4, 4, 1), (5, 5, 0), (200, 5, 0)])
def test_differences(most: int, shown: int, rest: int) -> None:
    sink, found = Lines(), verify(pairs(asked(*SENT, *ANSWERED), asked(*SENT)))
    report = ReplayText(sink, View(), most=most)
    for one in found.differences:
        report.feed(one)
    report.close(found)

    assert sum(line.startswith("missing-answer: ") for line in sink.lines) == shown
    told = [line for line in sink.lines if "left out by --limit" in line]
    word = "difference" if rest == 1 else "differences"
    assert told == ([f"and {rest} more {word}, left out by --limit; --format jsonl has all of them"] if rest else [])


def test_findings() -> None:
    from mqttscope.capture import open_capture
    from mqttscope.dissect import dissect

    linter = Linter(instances(select().values()))
    findings = [
        one for event in dissect(open_capture([str(Path(capture("failing-device")))])) for one in linter.feed(event)
    ]
    assert len(findings) > 3
    sink = Lines()
    report = Limited(Concise(sink, View()), sink, 3)
    for finding in findings:
        report.feed(finding)
    report.close(Summary())

    at = next(at for at, line in enumerate(sink.lines) if "left out by --limit" in line)
    assert sink.lines[at].startswith(f"and {len(findings) - 3} more finding")
    assert sum(line.startswith("failing-device") or "capture.pcapng:" in line for line in sink.lines[:at]) == 3
