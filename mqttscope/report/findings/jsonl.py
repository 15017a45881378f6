"""JSON Lines: one finding that counts per line, as soon as it is found, and nothing else."""

from __future__ import annotations

from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import Summary
from mqttscope.report.findings.json import finding_view, line
from mqttscope.report.findings.shown import ShownFinding


class JsonLines:
    """Writes findings as lines."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""
        if suppressed is None:
            self.sink.write(line(finding_view(shown.finding)) + b"\n")

    def close(self, summary: Summary) -> None:
        """Nothing is held back."""
