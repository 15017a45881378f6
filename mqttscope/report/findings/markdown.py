"""Markdown for job summaries and comments on changes: a table of rules, then the first findings of each.

Nothing captured is interpreted: marks, HTML, mentions and references to issues are escaped.  The text stays below
`MAX_BYTES`, since a comment on GitHub holds 65,536 characters; the rest is counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mqttscope.lint.catalogue import all_rules, all_statements
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.explain import markdown
from mqttscope.report.findings.base import RunSummary, cited, flow, message, sentences
from mqttscope.report.findings.shown import FileFormat, RuleCount, ShownFinding
from mqttscope.report.numbers import plural

MAX_SHOWN = 10
"""Maximum number of findings shown per rule; further ones are counted."""
MAX_STATEMENTS = 5
"""Maximum number of statements shown per rule; further ones are counted."""
MAX_BYTES = 60_000
SIGNS = {Severity.ERROR: "🔴 error", Severity.WARNING: "🟡 warning", Severity.INFO: "🔵 info"}

_MARKS = re.compile(r"[\\`*_\[\]<>#!|~&@$]|^[-+]|:(?=//|[\w+-]+:)|(?<=www)\.")
"""Characters with a meaning in Markdown, in HTML or on sites that show it: ``@name``, ``#12``, ``:smile:``, links."""


@dataclass(slots=True)
class _RuleRow(RuleCount):
    shown: list[str] = field(default_factory=list)


class FindingMarkdown(FileFormat):
    """Collects findings and writes the page at the end; notes are one line for each rule unless ``verbose``."""

    def __init__(self, sink: Sink, view: View, *, verbose: bool = False) -> None:
        super().__init__(sink, view)
        self.verbose = verbose
        self.rules: dict[str, _RuleRow] = {}

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Keep a finding."""
        row = self.rules.get(shown.rule)
        if row is None:
            row = self.rules[shown.rule] = _RuleRow(shown.rule, shown.slug, shown.severity)
        if suppressed is not None:
            row.suppressed += shown.occurrences
            return
        row.add(shown)
        if len(row.shown) < MAX_SHOWN:
            row.shown.append(self._item(shown))
            row.statements.update(dict.fromkeys(shown.finding.statements))

    def _item(self, shown: ShownFinding) -> str:
        finding, repeats = shown.finding, shown.repeats(self.painter)
        sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence})"
        statements = f" \\[{safe(cited(finding))}\\]" if finding.statements else ""
        capture = safe(self.painter.safe(finding.capture))
        where = f"{capture}, frame {finding.frame}, {safe(flow(finding, self.painter))}"
        more = f"<br>{safe(repeats)}" if repeats else ""
        return f"* {safe(message(finding, self.painter))}{sure}{statements}<br>{where}{more}\n"

    def close(self, summary: RunSummary) -> None:
        """Write the page."""
        order = sorted(self.rules, key=lambda code: (-self.rules[code].severity.rank, -self.rules[code].findings, code))
        heading = summary.counted
        if summary.nothing and not summary.packets and not summary.counts.total():
            heading = "nothing to judge"
        elif summary.shortfalls:
            heading = f"{heading}, captures not {summary.required_quality}"
        out = [f"### mqttscope: {heading}\n\n"]
        if order:
            out.append("| rule | severity | findings | occurrences | clients | suppressed |\n")
            out.append("|---|---|---:|---:|---:|---:|\n")
        for code in order:
            row = self.rules[code]
            numbers = f"{row.findings:,} | {row.occurrences:,} | {row.clients_text} | {row.suppressed or ''}"
            out.append(f"| {code} {row.slug} | {SIGNS[row.severity]} | {numbers} |\n")
        texts = [f"* {safe(self.painter.safe(sentence))}\n" for sentence, _ in sentences(summary)]
        out += ["\n" if order else "", *texts, "\n"]
        room = MAX_BYTES - sum(len(part.encode()) for part in out)
        left = 0
        for code in order:
            row = self.rules[code]
            if not row.findings:
                continue
            noted = row.severity is Severity.INFO and not self.verbose
            part = self._note(code, row) if noted else self._details(code, row)
            room -= len(part.encode())
            if room < 0:
                left += 1
            else:
                out.append(part)
        if left:
            out.append(f"Details of {plural(left, 'rule')} {'is' if left == 1 else 'are'} left out.\n")
        self.sink.write("".join(out).rstrip("\n").encode() + b"\n")

    def _note(self, code: str, row: _RuleRow) -> str:
        first = row.shown[0].rstrip("\n").removeprefix("* ").replace("<br>", ", ")
        more = f" (and {row.findings - 1:,} more)" if row.findings > 1 else ""
        return f"* **{code}** {row.slug}: {first}{more}\n"

    def _details(self, code: str, row: _RuleRow) -> str:
        rule = all_rules().get(code)
        what = markdown(rule.paragraphs(marked=True)[0]) if rule is not None else row.slug
        parts = [f"<details><summary><b>{code}</b> {row.slug} ({row.findings:,})</summary>\n\n{what}\n\n", *row.shown]
        if row.findings > len(row.shown):
            parts.append(f"* {row.findings - len(row.shown):,} more\n")
        parts.append("\n")
        statements = [(key, all_statements()[key]) for key in row.statements if key in all_statements()]
        for key, known in statements[:MAX_STATEMENTS]:
            parts.append(f"> **{key}** (section {known.section}): {markdown(known.summary)}\n\n")
        if len(statements) > MAX_STATEMENTS:
            parts.append(f"> and {plural(len(statements) - MAX_STATEMENTS, 'more statement')}\n\n")
        if rule is not None:
            parts.append(f"{markdown(rule.paragraphs(marked=True)[-1])}\n\n")
        return "".join([*parts, "</details>\n\n"])


def safe(text: str) -> str:
    """Text without meaning in Markdown: every mark is a character reference."""
    return _MARKS.sub(lambda match: f"&#{ord(match[0])};", text)
