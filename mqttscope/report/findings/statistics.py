"""Numbers of findings by rule, highest first: a first overview of a large capture."""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.documents import SCHEMA
from mqttscope.report.findings.base import RunSummary, lines
from mqttscope.report.findings.json import COUNTED_RULE, SUMMARY, line
from mqttscope.report.findings.shown import FindingEntrance, FindingFormat, RuleCount, ShownFinding
from mqttscope.report.numbers import number
from mqttscope.report.page import Page, PageColumn
from mqttscope.report.style import encoded


@dataclass(slots=True)
class _Row(RuleCount):
    withheld: int = 0


class FindingStatistics(FindingFormat):
    """Counts findings and writes a table at the end."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.view = view
        self.rows: dict[str, _Row] = {}

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Count one finding."""
        row = self.rows.get(shown.rule)
        if row is None:
            row = self.rows[shown.rule] = _Row(shown.rule, shown.slug, shown.severity)
        if suppressed is not None:
            row.suppressed += 1
        else:
            row.add(shown)

    def close(self, summary: RunSummary) -> None:
        """Write the table and the summary."""
        rows = self.ordered(summary)
        if rows:
            page = Page(self.view)
            name = PageColumn("rule", [f"{row.rule} {row.slug}" for row in rows], whole=True)
            page.table(
                name,
                [
                    PageColumn("findings", [f"{row.findings:,}" for row in rows]),
                    PageColumn("severity", [str(row.severity) for row in rows], rank=1, right=False),
                    PageColumn("clients", [row.clients_text for row in rows], rank=2),
                    PageColumn("suppressed", [number(row.suppressed) for row in rows], rank=3),
                    PageColumn("withheld", [number(row.withheld) for row in rows], rank=4),
                ],
            )
            self.sink.write(page.encoded())
        self.sink.write(encoded(lines(summary, self.painter)))

    def ordered(self, summary: RunSummary) -> list[_Row]:
        """Rows with most findings first; rules with withheld findings have a row too."""
        for rule in summary.rules:
            if rule.code in summary.withheld:
                self.rows.setdefault(rule.code, _Row(rule.code, rule.slug, rule.severity))
        for row in self.rows.values():
            row.withheld = summary.withheld[row.rule]
        return sorted(self.rows.values(), key=lambda row: (-row.findings, row.rule))


class JsonFindingStatistics(FindingStatistics):
    """Counts as one JSON document; with ``lines`` one line per rule and no summary."""

    def __init__(self, sink: Sink, view: View, *, lines: bool = False) -> None:
        super().__init__(sink, view)
        self.lines = lines

    def close(self, summary: RunSummary) -> None:
        """Write the counts."""
        shown = map(COUNTED_RULE.view, self.ordered(summary))
        if self.lines:
            self.sink.write(b"".join(line({"schema": SCHEMA, **row}) + b"\n" for row in shown))
        else:
            self.sink.write(line({"schema": SCHEMA, "rules": [*shown], "summary": SUMMARY.view(summary)}) + b"\n")


def make_statistics(name: str, sink: Sink, view: View) -> FindingEntrance:
    if name in ("json", "jsonl"):
        return FindingEntrance(JsonFindingStatistics(sink, view, lines=name == "jsonl"), view)
    return FindingEntrance(FindingStatistics(sink, view), view)
