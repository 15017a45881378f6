"""Findings beside the lines of a change: workflow commands of GitHub Actions, and Code Quality of GitLab.

GitHub makes annotations of ``error``, ``warning`` and ``notice``, which stand for error, warning and info, without any
upload; an error that does not count, so that the job stays green, is a ``warning``.  GitHub shows ten annotations of
each kind per step; all of them are in the log.

GitLab shows a list of issues in merge requests; error is ``major``, warning ``minor``.  It wants fingerprints that
differ within a report: findings with the same one are numbered in their order, which stays the same when the same
traffic is captured again.

The line of an annotation, as of an issue, is the number of the frame.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import escape
from mqttscope.report.findings.base import Summary, cited, everything, flow, message, sentences
from mqttscope.report.findings.json import line
from mqttscope.report.findings.shown import FileFormat, ShownFinding

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


class GitHub(FileFormat):
    """Writes a command for every finding that counts."""

    def __init__(self, sink: Sink, view: View, *, counts: Callable[[Finding], bool] = everything) -> None:
        """``counts``: whether a finding makes the job fail."""
        super().__init__(sink, view)
        self.counts = counts

    def write(self, shown: ShownFinding) -> None:
        """Write one finding."""
        finding, repeats = shown.finding, shown.repeats(self.painter)
        counts = self.counts(finding)
        sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence})"
        statements = f" [{cited(finding)}]" if finding.statements else ""
        told = (
            f"{message(finding, self.painter)}{sure}{statements}\nframe {finding.frame}, {flow(finding, self.painter)}"
            + (f"\n{repeats}" if repeats else "")
        )
        named = {
            "file": escape(finding.capture.removeprefix("./")),
            "line": str(max(1, finding.frame)),
            "title": f"{finding.rule} {finding.slug}",
        }
        command = COMMANDS[finding.severity]
        if command == "error" and not counts:
            command, told = "warning", f"{told}\nThis error does not count (--fail-on, --fail-confidence)."
        self._write(command, named, told)

    def again(self, shown: ShownFinding) -> None:
        """Write what became of a finding that was written when it came first."""
        finding = shown.finding
        named = {
            "file": escape(finding.capture.removeprefix("./")),
            "line": str(max(1, finding.frame)),
            "title": f"{finding.rule} {finding.slug}, again",
        }
        self._write("notice", named, f"{message(finding, self.painter)}\n{shown.repeats(self.painter)}")

    def close(self, summary: Summary) -> None:
        """Write what the run as a whole has to say, as one notice; an error when the run failed.

        It is a warning when something is missing inside a capture: a direction, bytes, frames, answers.
        """
        told = "\n".join(escape(one) for one, _ in sentences(summary))
        command = "error" if summary.failed else "notice" if summary.quality.is_usable else "warning"
        self._write(command, {"title": "mqttscope"}, told)

    def _write(self, command: str, named: dict[str, str], told: str) -> None:
        values = ",".join(f"{name}={property_value(value)}" for name, value in named.items())
        self.sink.write(f"::{command} {values}::{data(told)}\n".encode("utf-8", "replace"))


def data(told: str) -> str:
    """The message of a command; line ends are made of it again."""
    return told.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_value(told: str) -> str:
    return data(told).replace(":", "%3A").replace(",", "%2C")


class GitLab(FileFormat):
    """Writes the findings that count as one JSON list."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self._seen: Counter[str] = Counter()
        self._between = b"[\n"

    def write(self, shown: ShownFinding) -> None:
        self.sink.write(self._between + line(self.issue(shown)))
        self._between = b",\n"

    def issue(self, shown: ShownFinding) -> dict[str, Any]:
        """The issue of a finding."""
        finding, repeats = shown.finding, shown.repeats(self.painter)
        known = shown.cause or finding.fingerprint
        self._seen[known] += 1
        unique = hashlib.sha256(f"{known}:{self._seen[known]}".encode()).hexdigest()[:32]
        statements = f" [{cited(finding)}]" if finding.statements else ""
        told = f"{finding.rule} {message(finding, self.painter)}{statements}, {flow(finding, self.painter)}"
        if repeats:
            told += f" ({repeats})"
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
        self.sink.write(b"[]\n" if self._between == b"[\n" else b"\n]\n")
