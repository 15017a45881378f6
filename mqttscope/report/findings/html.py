"""Findings as a page for a browser: counts by client and rule, a timeline, and each finding with its bytes.

A row of the page contains the finding as in ``jsonl``, the packet in one line, and its bytes with carets under the
field, as `report.findings.full` shows them.  Errors come first.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from mqttscope.lint.catalogue import all_rules, all_statements
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.mqtt.constants import REASON_CODES
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Sink, View
from mqttscope.report.explain import CONFIDENCES
from mqttscope.report.findings.base import ORDER, RunSummary, message, place, sentences
from mqttscope.report.findings.full import PacketView
from mqttscope.report.findings.json import FINDING
from mqttscope.report.findings.shown import FindingFormat, RuleCount, ShownFinding
from mqttscope.report.html.along import TimelineCounts
from mqttscope.report.html.charts import GridCell, crossing_grid
from mqttscope.report.html.page import PageWriter, card
from mqttscope.report.html.pieces import (
    SEVERITIES,
    amounts,
    between,
    exact_moment,
    header,
    legend,
    paragraph,
    part,
    safe,
    table,
)
from mqttscope.report.jsonl import dumps
from mqttscope.report.numbers import plural
from mqttscope.report.sections import Cell

WIDTH = 110
"""Columns of the packet line."""
MAX_ROWS = 50_000
"""Maximum number of findings listed on the page; further ones are counted."""
MAX_CLIENTS = 10_000
"""Maximum number of clients that are counted separately."""
GRID = (30, 24)
"""Maximum number of clients and rules in the grid."""
NAMELESS = "(no Client Identifier)"
_OTHERS = "(other clients)"
_CARETS = re.compile(r" *\^\^")
_COLUMNS = [
    Cell("rule", "rule", "text"),
    Cell("", "slug", "text"),
    Cell("severity", "severity", "text"),
    Cell("findings", "findings"),
    Cell("occurrences", "occurrences"),
    Cell("clients", lambda row: row.clients_text),
    Cell("statements", lambda row: ", ".join(row.statements), "text"),
]
"""Columns of the table of rules."""


class FindingHtml(FindingFormat):
    """Writes a row for each finding that is not suppressed, then the summary."""

    def __init__(self, sink: Sink, view: View) -> None:
        # The page must not depend on the terminal.
        self.view = replace(view, width=WIDTH, colour=False, unicode=True, time="iso")
        self.packets = PacketView(self.view)
        super().__init__(sink, replace(self.view, width=0))
        self.page = PageWriter(sink, "findings", 20)
        self.rules: dict[str, RuleCount] = {}
        self.along = TimelineCounts(*SEVERITIES)
        self.left_out = 0
        self._times: list[int] = []
        """Times of the first and of the last finding."""
        self._crossings: dict[tuple[str, str], GridCell] = {}
        self._clients: set[str] = set()

    def write(self, shown: ShownFinding) -> None:
        """Write the row of a finding."""
        finding = shown.finding
        self._count(shown)
        if self.page.rows >= MAX_ROWS:
            self.left_out += 1
            return
        head = (
            f'<h3><span class="badge">{finding.severity}</span><span class="code">{finding.rule}</span> '
            f'{safe(message(finding, self.painter))} <span class="slug">({finding.slug})</span></h3>'
            f'<p class="where"><span class="time">{exact_moment(finding.timestamp_ns)}</span> '
            f"{safe(place(finding, self.painter))}, #{finding.connection}</p>"
            f"{paragraph(shown.repeats(self.painter))}<ul>{''.join(self._reasons(finding))}</ul>"
        )
        lines = [] if shown.event is None else [*self.packets.lines(shown.event), *self.packets.dump(shown)]
        marked = (safe(line.removeprefix("  ")) for line in lines)
        dump = "\n".join(f'<span class="carets">{line}</span>' if _CARETS.match(line) else line for line in marked)
        rule = all_rules().get(finding.rule)
        advice = paragraph(rule.paragraphs()[-1], "advice") if rule is not None else ""
        markup = card(str(finding.severity), head, (f"<pre>{dump}</pre>" if dump else "") + advice)
        rank = ORDER.index(finding.severity)
        self.page.row(markup, dumps(FINDING.view(finding)), connection=finding.connection, rank=rank)

    def _reasons(self, finding: Finding) -> list[str]:
        """Related packets, broken statements, reason code and confidence as items."""
        known = all_statements()
        out = [f"see {safe(related.message)}: frame {related.frame}" for related in finding.related]
        for key in finding.statements:
            more = f" (section {known[key].section}): {safe(known[key].summary)}" if key in known else ""
            out.append(f"breaks <b>{safe(key)}</b>{more}")
        code = finding.reason_code
        if code is not None and finding.version == "5.0":
            out.append(f"reason code 0x{code:02X} {REASON_CODES.get(code, '')}")
        if finding.confidence is not Confidence.CERTAIN:
            out.append(safe(CONFIDENCES[finding.confidence]))
        return [f"<li>{item}</li>" for item in out]

    def _count(self, shown: ShownFinding) -> None:
        finding = shown.finding
        row = self.rules.get(shown.rule)
        if row is None:
            row = self.rules[shown.rule] = RuleCount(shown.rule, shown.slug, shown.severity)
        row.add(shown, MAX_CLIENTS)
        row.statements.update(dict.fromkeys(finding.statements))
        self.along.add(finding.timestamp_ns, ORDER.index(shown.severity))
        times = (*self._times, finding.timestamp_ns, shown.last_ns)
        self._times = [min(times), max(times)]
        client = finding.client_identifier or NAMELESS
        if client not in self._clients:
            if len(self._clients) >= MAX_CLIENTS:
                client = _OTHERS
            self._clients.add(client)
        crossing = self._crossings.setdefault(
            (client, shown.rule), GridCell(client, shown.rule, 0, str(shown.severity))
        )
        crossing.findings += shown.occurrences
        if shown.severity.rank > Severity(crossing.severity).rank:
            crossing.severity = str(shown.severity)

    def close(self, summary: RunSummary) -> None:
        """Write the page: the summary of the run, charts and tables, then the rows."""
        captures = ", ".join(map(utf8, summary.captures))
        order = sorted(self.rules.values(), key=lambda row: (-row.severity.rank, -row.occurrences, row.rule))
        texts = sentences(summary)
        verdict = "good" if not summary.counts.total() and not summary.failed else "doubt"
        packets = [] if summary.packets is None else [plural(summary.packets, "packet")]
        out = [
            header("Findings", captures, between(*self._times) if self._times else ""),
            *(paragraph(f"{text}.", "note" if at else verdict) for at, (text, _) in enumerate(texts)),
            amounts([*packets, plural(len(summary.rules), "rule")]),
        ]
        if self.left_out:
            text = f"The page lists the first {MAX_ROWS:,} findings; {self.left_out:,} more are only counted."
            out.append(paragraph(text, "doubt"))
        out += part("Broken rules", table(order, _COLUMNS) if order else "")
        grid, more = self._grid(order)
        out += part("Findings by client and rule", grid, before=legend(SEVERITIES), after=paragraph(more))
        plot, scale = self.along.chart("findings over time"), self.along.scale_text()
        out += part("Findings over time", plot, before=legend(SEVERITIES), after=paragraph(scale))
        self.page.close(f"findings in {captures}", out, "Each finding")

    def _grid(self, order: list[RuleCount]) -> tuple[str, str]:
        """Grid of the clients with most findings and the worst rules, and a note about what it leaves out."""
        most_clients, most_rules = GRID
        rules = {row.rule for row in order[:most_rules]}
        counts: Counter[str] = Counter()
        for crossing in self._crossings.values():
            if crossing.rule in rules:
                counts[crossing.client] += crossing.findings
        clients = [client for client, _ in counts.most_common(most_clients)]
        cells = [crossing for client in clients for crossing in self._crossings.values() if crossing.client == client]
        left = [
            plural(len(counts) - len(clients), "client") if len(counts) > len(clients) else "",
            plural(len(order) - len(rules), "rule") if len(order) > len(rules) else "",
        ]
        more = " and ".join(filter(None, left))
        shown = crossing_grid([crossing for crossing in cells if crossing.rule in rules])
        return (shown if len(cells) > 1 else ""), f"Not in the grid: {more}." if more else ""
