"""One JSON document: ``{"schema": 1, "findings": [...], "summary": {...}}``, written while findings come."""

from __future__ import annotations

from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import Summary
from mqttscope.report.findings.conceal import conceal
from mqttscope.report.findings.plain import finding_view, line, summary_view


class Document:
    """Writes the findings that count, one on a line, then the summary."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view
        self._between = b'{"schema": 1, "findings": [\n'

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""
        if suppressed is None:
            self.sink.write(self._between + line(finding_view(conceal(finding, self.view))))
            self._between = b",\n"

    def close(self, summary: Summary) -> None:
        """Write the end of the document."""
        opening = self._between if self._between != b",\n" else b"\n"
        self.sink.write(opening + b'], "summary": ' + line(summary_view(summary)) + b"}\n")
