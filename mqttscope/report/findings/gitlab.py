"""Code Quality of GitLab: a list of issues, shown in merge requests; error is ``major``, warning ``minor``.

The line of an issue is the number of the frame.  GitLab wants fingerprints that differ within a report: findings with
the same one are numbered in their order, which stays the same when the same traffic is captured again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import Summary, cited, flow, message
from mqttscope.report.findings.json import line
from mqttscope.report.findings.shown import ShownFinding
from mqttscope.report.style import Painter

SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


class GitLab:
    """Writes the findings that count as one JSON list."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view
        self.painter = Painter(View(width=0))
        self._seen: Counter[str] = Counter()
        self._between = b"[\n"

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""
        if suppressed is None:
            self.sink.write(self._between + line(self.issue(shown.finding)))
            self._between = b",\n"

    def issue(self, finding: Finding) -> dict[str, Any]:
        """The issue of a finding."""
        known = finding.fingerprint
        self._seen[known] += 1
        unique = hashlib.sha256(f"{known}:{self._seen[known]}".encode()).hexdigest()[:32]
        statements = f" [{cited(finding)}]" if finding.statements else ""
        told = f"{finding.rule} {message(finding, self.painter)}{statements}, {flow(finding, self.painter)}"
        return {
            "description": told,
            "check_name": f"{finding.rule} {finding.slug}",
            "fingerprint": unique,
            "severity": SEVERITIES[finding.severity],
            "location": {
                "path": utf8(finding.capture).removeprefix("./"),
                "lines": {"begin": max(1, finding.frame)},
            },
        }

    def close(self, summary: Summary) -> None:
        """Write the end of the list."""
        self.sink.write(b"[]\n" if self._between == b"[\n" else b"\n]\n")
