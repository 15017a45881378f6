"""One line per finding, for logs and editors: location, rule, message, statements.

    capture.pcap: frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1): CON105 Password without User Name [3.1.1 ...]

A finding that the bytes do not prove has its confidence after the message: ``(likely)``.  Nothing is cut off; in a
narrow terminal the line continues indented.
"""

from __future__ import annotations

from mqttscope.lint.finding import Confidence
from mqttscope.report.findings.base import MAX_LINES, STYLES, RunSummary, cited, lines, message, place
from mqttscope.report.findings.shown import FindingFormat, ShownFinding
from mqttscope.report.style import Wrapped, encoded


class ConciseFindings(FindingFormat):
    """Writes a line for every finding that is not suppressed."""

    def write(self, shown: ShownFinding) -> None:
        self.sink.write(encoded(self.lines(shown)))

    def again(self, shown: ShownFinding) -> None:
        """Write how often a finding occurred again after it was written."""
        self.sink.write(encoded(self.lines(shown, again=True)))

    def lines(self, shown: ShownFinding, *, again: bool = False) -> list[str]:
        """The line of a finding."""
        finding = shown.finding
        text = Wrapped(self.painter.line(), most=MAX_LINES)
        text.add(f"{place(finding, self.painter)}: ", "dim")
        text.add(finding.rule, STYLES[finding.severity])
        text.add(f"{' again:' if again else ''} {message(finding, self.painter)}")
        if finding.confidence is not Confidence.CERTAIN:
            text.add(f" ({finding.confidence})", "note")
        if finding.statements:
            text.add(f" [{cited(finding)}]", "dim")
        repeats = shown.repeats(self.painter)
        if repeats:
            text.add(f" ({repeats})", "note")
        return text.texts()

    def close(self, summary: RunSummary) -> None:
        self.sink.write(encoded(lines(summary, self.painter)))
