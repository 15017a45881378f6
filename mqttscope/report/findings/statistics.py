"""Findings counted by rule, most first: for a first look at a large capture."""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.documents import SCHEMA
from mqttscope.report.findings.base import Summary, lines
from mqttscope.report.findings.json import COUNTED_RULE, SUMMARY, line
from mqttscope.report.findings.shown import Entrance, FindingFormat, RuleCount, ShownFinding
from mqttscope.report.numbers import number
from mqttscope.report.page import Column, Page
from mqttscope.report.style import encoded


@dataclass(slots=True)
class _Row(RuleCount):
    withheld: int = 0


class Statistics(FindingFormat):
    """Counts findings and shows a table at the end."""

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

    def close(self, summary: Summary) -> None:
        """Write the table and the end."""
        rows = self.ordered(summary)
        if rows:
            page = Page(self.view)
            name = Column("rule", [f"{row.rule} {row.slug}" for row in rows], whole=True)
            page.table(
                name,
                [
                    Column("findings", [f"{row.findings:,}" for row in rows]),
                    Column("severity", [str(row.severity) for row in rows], rank=1, right=False),
                    Column("clients", [row.clients_text for row in rows], rank=2),
                    Column("suppressed", [number(row.suppressed) for row in rows], rank=3),
                    Column("withheld", [number(row.withheld) for row in rows], rank=4),
                ],
            )
            self.sink.write(page.encoded())
        self.sink.write(encoded(lines(summary, self.painter)))

    def ordered(self, summary: Summary) -> list[_Row]:
        """The rows, most findings first; rules whose findings were withheld have one as well."""
        for rule in summary.rules:
            if rule.code in summary.withheld:
                self.rows.setdefault(rule.code, _Row(rule.code, rule.slug, rule.severity))
        for row in self.rows.values():
            row.withheld = summary.withheld[row.rule]
        return sorted(self.rows.values(), key=lambda row: (-row.findings, row.rule))


class JsonStatistics(Statistics):
    """The same as one JSON document, or with ``lines`` a rule on each line and no summary."""

    def __init__(self, sink: Sink, view: View, *, lines: bool = False) -> None:
        super().__init__(sink, view)
        self.lines = lines

    def close(self, summary: Summary) -> None:
        """Write the counts."""
        shown = map(COUNTED_RULE.view, self.ordered(summary))
        if self.lines:
            self.sink.write(b"".join(line({"schema": SCHEMA, **row}) + b"\n" for row in shown))
        else:
            self.sink.write(line({"schema": SCHEMA, "rules": [*shown], "summary": SUMMARY.view(summary)}) + b"\n")


def make_statistics(name: str, sink: Sink, view: View) -> Entrance:
    if name in ("json", "jsonl"):
        return Entrance(JsonStatistics(sink, view, lines=name == "jsonl"), view)
    return Entrance(Statistics(sink, view), view)
