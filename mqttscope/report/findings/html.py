"""Findings as a page for a browser: what was found by client and rule and along the time, and each with its bytes.

A row of the page is a finding as in ``jsonl``, and beside it what that does not have: the packet in one line and its
bytes with carets under the field, as `report.findings.full` shows them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from mqttscope.lint.catalogue import all_rules, all_statements
from mqttscope.lint.finding import Severity
from mqttscope.mqtt.constants import REASON_CODES
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.explain import CONFIDENCES
from mqttscope.report.findings.base import NOUNS, ORDER, Summary, sentences
from mqttscope.report.findings.full import PacketView
from mqttscope.report.findings.json import FINDING
from mqttscope.report.findings.shown import FindingFormat, RuleCount, ShownFinding
from mqttscope.report.html.along import Along
from mqttscope.report.html.charts import Crossing, crossing_grid
from mqttscope.report.html.page import PageWriter
from mqttscope.report.html.pieces import SEVERITIES, Cell, amounts, doubt, legend, note, part, safe, short, table
from mqttscope.report.jsonl import dumps
from mqttscope.report.numbers import number, plural
from mqttscope.secrets.addresses import public_name

WIDTH = 110
"""Columns of the line of a packet."""
MAX_ROWS = 50_000
"""Findings that the page lists; further ones are counted."""
MAX_CLIENTS = 10_000
"""Clients whose findings are counted apart."""
GRID = (30, 24)
"""Clients and rules of the grid."""
NAMELESS = "(no Client Identifier)"
_OTHERS = "(other clients)"


class Html(FindingFormat):
    """Writes a row for each finding that counts, then the summary."""

    def __init__(self, sink: Sink, view: View) -> None:
        # What a page looks like does not depend on the terminal that it is written from.
        self.view = replace(view, width=WIDTH, colour=False, unicode=True, time="iso")
        self.packets = PacketView(self.view)
        super().__init__(sink, replace(self.view, width=0))
        self.page = PageWriter(sink, "findings", "evidence")
        self.rules: dict[str, RuleCount] = {}
        self.along = Along(*SEVERITIES)
        self.left_out = 0
        self._crossings: dict[tuple[str, str], Crossing] = {}
        self._clients: set[str] = set()
        self._reasons: set[int] = set()
        self._clock = Clock()

    def write(self, shown: ShownFinding) -> None:
        """Write one finding."""
        self.page.begin(f"findings in {utf8(public_name(shown.capture))}")
        finding = shown.finding
        self._count(shown)
        if self.page.rows >= MAX_ROWS:
            self.left_out += 1
            return
        if finding.reason_code is not None:
            self._reasons.add(finding.reason_code)
        event = shown.event
        evidence = {
            "time": self._clock.iso(finding.timestamp_ns),
            "repeats": shown.repeats(self.painter),
            "lines": [] if event is None else [one.removeprefix("  ") for one in self.packets.lines(event)],
            "dump": [] if event is None else [one.removeprefix("  ") for one in self.packets.dump(shown)],
        }
        self.page.row(dumps(FINDING.view(finding)), dumps(evidence))

    def _count(self, shown: ShownFinding) -> None:
        finding = shown.finding
        row = self.rules.get(shown.rule)
        if row is None:
            row = self.rules[shown.rule] = RuleCount(shown.rule, shown.slug, shown.severity)
        row.add(shown, MAX_CLIENTS)
        row.statements.update(dict.fromkeys(finding.statements))
        self.along.add(finding.timestamp_ns, ORDER.index(shown.severity))
        client = finding.client_identifier or NAMELESS
        if client not in self._clients:
            if len(self._clients) >= MAX_CLIENTS:
                client = _OTHERS
            self._clients.add(client)
        crossing = self._crossings.setdefault(
            (client, shown.rule), Crossing(client, shown.rule, 0, str(shown.severity))
        )
        crossing.findings += shown.occurrences
        if shown.severity.rank > Severity(crossing.severity).rank:
            crossing.severity = str(shown.severity)

    def close(self, summary: Summary) -> None:
        """Write what the run as a whole has to say."""
        captures = ", ".join(map(utf8, summary.captures))
        self.page.begin(f"findings in {captures}")
        order = sorted(self.rules.values(), key=lambda row: (-row.severity.rank, -row.occurrences, row.rule))
        self.page.close(self._parts(summary, captures, order), title="Each finding", words=self._words(order))

    def _parts(self, summary: Summary, captures: str, order: list[RuleCount]) -> list[str]:
        told = sentences(summary)
        verdict = "good" if not summary.counts.total() and not summary.failed else "doubt"
        out = [
            f'<header><h1>Findings</h1><p class="where">{short(captures)}</p></header>',
            amounts(self._amounts(summary)),
            *(f'<p class="{verdict if at == 0 else "note"}">{safe(one)}.</p>' for at, (one, _) in enumerate(told)),
        ]
        if self.left_out:
            out.append(doubt(f"The page lists the first {MAX_ROWS:,} findings, and counts {self.left_out:,} more."))
        rows = [
            Cell("rule", lambda row: row.rule, "text"),
            Cell("", lambda row: row.slug, "text"),
            Cell("severity", lambda row: str(row.severity), "text"),
            Cell("findings", lambda row: number(row.findings)),
            Cell("occurrences", lambda row: number(row.occurrences)),
            Cell("clients", lambda row: row.clients_text),
            Cell("statements", lambda row: ", ".join(row.statements), "text"),
        ]
        if order:
            out += part("Rules that were broken", table(order, rows))
        grid, more = self._grid(order)
        out += part("Findings by client and rule", grid, before=legend(SEVERITIES), after=note(more))
        plot = self.along.chart("findings over time")
        return [*out, *part("Findings along the time", plot, before=legend(SEVERITIES), after=note(self.along.told()))]

    def _amounts(self, summary: Summary) -> list[str]:
        told = [plural(summary.counts[severity], noun) for severity, noun in NOUNS.items() if summary.counts[severity]]
        if summary.packets is not None:
            told.append(plural(summary.packets, "packet"))
        return [*told, plural(len(summary.rules), "rule")]

    def _grid(self, order: list[RuleCount]) -> tuple[str, str]:
        """The grid of the clients with most findings and the worst rules, and what is not in it."""
        most_clients, most_rules = GRID
        rules = {row.rule for row in order[:most_rules]}
        counts: Counter[str] = Counter()
        for one in self._crossings.values():
            if one.rule in rules:
                counts[one.client] += one.findings
        clients = [client for client, _ in counts.most_common(most_clients)]
        found = [one for client in clients for one in self._crossings.values() if one.client == client]
        left = [
            plural(len(counts) - len(clients), "client") if len(counts) > len(clients) else "",
            plural(len(order) - len(rules), "rule") if len(order) > len(rules) else "",
        ]
        more = " and ".join(filter(None, left))
        shown = crossing_grid([one for one in found if one.rule in rules])
        return (shown if len(found) > 1 else ""), f"Not in the grid: {more}." if more else ""

    def _words(self, order: list[RuleCount]) -> dict[str, Any]:
        """What the script says of rules, statements, reason codes and confidences."""
        rules, statements = all_rules(), all_statements()
        keys = dict.fromkeys(key for row in order for key in row.statements)
        known = {key: statements[key] for key in keys if key in statements}
        return {
            "rules": {row.rule: {"advice": rules[row.rule].paragraphs()[-1]} for row in order if row.rule in rules},
            "statements": {key: {"section": one.section, "summary": one.summary} for key, one in known.items()},
            "reasons": {str(code): REASON_CODES.get(code, "") for code in sorted(self._reasons)},
            "confidences": CONFIDENCES,
        }
