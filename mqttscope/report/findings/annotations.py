"""Findings as annotations of a change: workflow commands of GitHub Actions, and Code Quality of GitLab.

GitHub turns ``error``, ``warning`` and ``notice`` (error, warning and info) into annotations without an upload.  An
error that does not fail the run becomes a ``warning``, since the job stays green.  GitHub shows ten annotations of
each kind per step; the log contains all.

GitLab lists issues in merge requests; an error is ``major``, a warning ``minor``.  Fingerprints have to differ within
a report: equal ones are numbered in order, and the order stays the same when the same traffic is captured again.


The line of an annotation or issue is the frame number.
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
from mqttscope.report.findings.base import RunSummary, cited, everything, flow, message, sentences
from mqttscope.report.findings.json import line
from mqttscope.report.findings.shown import FileFormat, ShownFinding

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


class GitHub(FileFormat):
    """Writes a command for every finding that is not suppressed."""

    def __init__(self, sink: Sink, view: View, *, counts: Callable[[Finding], bool] = everything) -> None:
        """``counts``: whether a finding makes the job fail."""
        super().__init__(sink, view)
        self.counts = counts

    def write(self, shown: ShownFinding) -> None:
        """Write the command of a finding."""
        finding, repeats = shown.finding, shown.repeats(self.painter)
        counts = self.counts(finding)
        sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence})"
        statements = f" [{cited(finding)}]" if finding.statements else ""
        text = (
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
            command, text = "warning", f"{text}\nThis error does not fail the run (--fail-on, --fail-confidence)."
        self._write(command, named, text)

    def again(self, shown: ShownFinding) -> None:
        """Write how often a finding occurred again after it was written."""
        finding = shown.finding
        named = {
            "file": escape(finding.capture.removeprefix("./")),
            "line": str(max(1, finding.frame)),
            "title": f"{finding.rule} {finding.slug}, again",
        }
        self._write("notice", named, f"{message(finding, self.painter)}\n{shown.repeats(self.painter)}")

    def close(self, summary: RunSummary) -> None:
        """Write the summary of the run as one notice, or as an error if the run failed.

        It is a warning if the capture lacks something inside: a direction, bytes, frames, answers.
        """
        text = "\n".join(escape(sentence) for sentence, _ in sentences(summary))
        command = "error" if summary.failed else "notice" if summary.quality.is_usable else "warning"
        self._write(command, {"title": "mqttscope"}, text)

    def _write(self, command: str, named: dict[str, str], text: str) -> None:
        values = ",".join(f"{name}={property_value(value)}" for name, value in named.items())
        self.sink.write(f"::{command} {values}::{data(text)}\n".encode("utf-8", "replace"))


def data(text: str) -> str:
    """The escaped message of a command; GitHub restores the line ends."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_value(text: str) -> str:
    return data(text).replace(":", "%3A").replace(",", "%2C")


class GitLab(FileFormat):
    """Writes the findings as one JSON list, without suppressed ones."""

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
        fingerprint = shown.cause or finding.fingerprint
        self._seen[fingerprint] += 1
        unique = hashlib.sha256(f"{fingerprint}:{self._seen[fingerprint]}".encode()).hexdigest()[:32]
        statements = f" [{cited(finding)}]" if finding.statements else ""
        text = f"{finding.rule} {message(finding, self.painter)}{statements}, {flow(finding, self.painter)}"
        if repeats:
            text += f" ({repeats})"
        return {
            "description": text,
            "check_name": f"{finding.rule} {finding.slug}",
            "fingerprint": unique,
            "severity": SEVERITIES[finding.severity],
            "location": {
                "path": utf8(finding.capture).removeprefix("./"),
                "lines": {"begin": max(1, finding.frame)},
            },
        }

    def close(self, summary: RunSummary) -> None:
        self.sink.write(b"[]\n" if self._between == b"[\n" else b"\n]\n")
