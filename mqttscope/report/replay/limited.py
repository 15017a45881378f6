"""A report of findings that ends after so many, with a word about the rest."""

from __future__ import annotations

from typing import Protocol

from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink
from mqttscope.report.findings.base import Summary
from mqttscope.report.page import plural
from mqttscope.report.style import encoded


class Findings(Protocol):
    """A report of findings."""

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""

    def close(self, summary: Summary) -> None:
        """Write the end."""


class Limited:
    """Passes the first ``most`` findings that count on, and counts the others."""

    def __init__(self, report: Findings, sink: Sink, most: int) -> None:
        self.report, self.sink, self.most = report, sink, most
        self.seen = 0

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write one finding, unless there were too many."""
        self.seen += suppressed is None
        if suppressed is not None or self.seen <= self.most:
            self.report.feed(finding, suppressed)

    def close(self, summary: Summary) -> None:
        """Say how many were left out, and write the end."""
        if self.seen > self.most:
            self.sink.write(encoded([left_out(self.seen - self.most, "finding"), ""]))
        self.report.close(summary)


def left_out(count: int, what: str) -> str:
    """The sentence about what a limit left out."""
    return f"and {plural(count, f'more {what}')}, left out by --limit; --format jsonl has all of them"
