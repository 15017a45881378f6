"""No matter what was captured, no rule fails, findings point into their packets, and every format stays well formed.

The input is that of `segments`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from xml.etree import ElementTree

from mqttscope.dissect import dissect_segments
from mqttscope.dissect.options import Options
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import ProtocolVersion
from mqttscope.report.base import View
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.shown import FORMATS, make_reporter
from tests.fuzz import segments
from tests.fuzz.target import Input, unique
from tests.report.make import Lines

MAX_LENGTH = segments.MAX_LENGTH
RULES = list(all_rules().values())
_COMMAND = re.compile(r"::(?:error|warning|notice)[ :]")


def check(data: bytes) -> None:
    """The law for some segments and all rules."""
    source = Input(data)
    first = source.number()
    actual_segments = list(segments.given(source))
    options = Options({8080: "ws", 1884: "mqtt"}, ProtocolVersion.V5 if first & 1 else None)
    linter = Linter([usual_rule(rule) for rule in RULES], strict=True)
    findings = [finding for event in dissect_segments(actual_segments, options) for finding in linter.feed(event)]
    for other_finding in findings:
        _check_place(other_finding)
    summary = RunSummary(rules=linter.rules, quality=linter.quality, withheld=linter.withheld)
    for name in FORMATS:
        _check_format(name, findings[:20], summary)


def _check_place(finding: Finding) -> None:
    assert len(finding.fingerprint) == 32
    assert finding.message
    if finding.offset is not None:
        assert finding.length is not None
        assert 0 <= finding.offset <= finding.offset + finding.length <= len(finding.raw)


def _check_format(name: str, findings: list[Finding], summary: RunSummary) -> None:
    sink = Lines()
    reporter = make_reporter(name, sink, View(width=80))
    for finding in findings:
        reporter.feed(finding)
    reporter.close(summary)
    shown = sink.data.decode()
    if name in ("json", "sarif", "gitlab"):
        json.loads(shown)
    elif name == "junit":
        ElementTree.fromstring(shown.encode())
    lines = shown.split("\n")
    if name == "jsonl":
        assert len([json.loads(line) for line in lines if line]) == len(findings)
    elif name == "github":
        assert all(_COMMAND.match(line) for line in lines if line)
    for line in lines:
        harmful = [char for char in line if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") and char != "\t"]
        assert not harmful, f"{harmful} in {line!r} of {name}"


def seeds() -> Iterator[bytes]:
    """Some of those of `segments`."""
    return islice(unique(segments), 1, None, 3)
