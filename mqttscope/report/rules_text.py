"""Shows rules: a table of all rules, one rule with its examples, and the rules of each statement.

`RulesText` writes text; `RULES` and `COVERAGE` declare the JSON documents, schema 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event
from mqttscope.lint.catalogue import BOUND, STATES, VERSIONS, Coverage, specification_name, totals
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleConversation, segments
from mqttscope.lint.finding import Confidence, Finding, Scope, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import REASON_CODES
from mqttscope.report import documents as doc
from mqttscope.report.base import LineCollector, View
from mqttscope.report.escape import cells, elide
from mqttscope.report.explain import CONFIDENCES, SCOPES, activation_note, area, at_most, cited, is_on, needs, versions
from mqttscope.report.findings.base import STYLES
from mqttscope.report.findings.json import JUDGED, SETTINGS
from mqttscope.report.numbers import plural
from mqttscope.report.style import Line, Painter, Wrapped
from mqttscope.report.text import TextLines

PAYLOAD_LIMIT = 64
MAX_WORD = 400
"""Maximum number of columns of a word in an example, such as a topic; the middle of a longer word is left out."""
_INDENT = 14
_RESET = "\x1b[0m"
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r" · [^·]{1,24}(?= ·|$)|(?: +\[|(?<=,) )[^,\[\]]{1,60}[,\]]| *[^ ]+")
"""A word, or a group of words kept together: a short phrase between dots, a property with its value."""
_ANY_WORD = re.compile(r"[^ \x1b]+")
_PIECE = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)


_IDENTIFIED = {name: doc.TEXT.at(f"statement.{name}") for name in ("identifier", "section")}
_STATEMENT = {"version": doc.word("3.1", *VERSIONS[::-1]).at("statement.version"), **_IDENTIFIED}
_SUMMARY = {"summary": doc.TEXT.at("statement.summary")}
_CITED = doc.record({**_STATEMENT, **_SUMMARY, "where": doc.TEXT, "partly": doc.BOOL})


def _examples(kind: str) -> doc.ValueType:
    """The examples of a rule: ``bad`` or ``good``."""
    example = doc.record({
        "title": doc.TEXT.at(lambda row: row[1].title),
        "lines": doc.each(doc.TEXT).at(lambda row: render(row[0], row[1], View(width=0))),
    })  # fmt: skip
    return doc.each(example).at(lambda rule: [(rule, example) for example in getattr(rule, kind)])


_RULE = {
    "code": doc.TEXT, "slug": doc.TEXT, "severity": doc.word(Severity),
    "severities": doc.some(doc.word(Severity)).at(lambda rule: rule.severities or (rule.severity,)),
    "confidence": doc.word(Confidence), "scope": doc.word(Scope), "versions": doc.each(doc.PROTOCOL.at("text")),
    "default": doc.BOOL.at(is_on),
    "summary": doc.TEXT.at(lambda rule: rule.paragraphs()[0]),
    "why": doc.each(doc.TEXT).at(lambda rule: rule.paragraphs()[1:-1]),
    "instead": doc.TEXT.at(lambda rule: "".join(rule.paragraphs()[1:][-1:])), "statements": doc.each(_CITED).at(cited),
    "reason_code": doc.maybe(doc.COUNT), "needs": doc.each(doc.TEXT).at(needs), "settings": SETTINGS, "since": doc.TEXT,
}  # fmt: skip
BRIEF = doc.record(_RULE)
_EXAMPLES = doc.record({"bad": _examples("bad"), "good": _examples("good")})
WHOLE = doc.record(_RULE, {"examples": _EXAMPLES.at(doc.itself)})
RULES = doc.record({
    "schema": doc.VERSION_1, "rules": doc.each(doc.reordered(WHOLE, "code", "slug", *JUDGED)),
})  # fmt: skip
_COVERED = doc.reordered(
    doc.record({
        **_STATEMENT, "packet": doc.TEXT.at("statement.packet"),
        "who": doc.word(*BOUND).at("statement.who"), **_SUMMARY,
        "state": doc.word(*STATES), "rules": doc.each(doc.TEXT), "partly": doc.each(doc.TEXT), "why": doc.TEXT,
    }),
    *_STATEMENT, *_SUMMARY,
)  # fmt: skip
_TOTALS = doc.record({
    **{state: doc.COUNT.at(itemgetter(state)) for state in STATES}, "statements": doc.COUNT.at(Counter.total),
})  # fmt: skip
_BY_VERSION = doc.ValueType(doc.record({}, dict.fromkeys(VERSIONS, _TOTALS)), doc.mapping(_TOTALS).view)
COVERAGE = doc.record({
    "schema": doc.VERSION_1, "coverage": doc.each(_COVERED).at(doc.itself), "totals": _BY_VERSION.at(totals),
})  # fmt: skip


def rules_view(rules: Iterable[type[Rule]], *, examples: bool) -> dict[str, Any]:
    """Rules by key; their examples are run and included only on request."""
    return {"schema": doc.SCHEMA, "rules": [(WHOLE if examples else BRIEF).view(rule) for rule in rules]}


WIDE = 150
"""Minimum columns for confidence and versions in the table."""
MAX_LINES = 40
_STATES = {"checked": "topic", "partly": "note", "planned": "dim", "invisible": "dim", "open": "error"}


class RulesText:
    """Renders rules as lines."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.painter = Painter(view)

    def table(self, rules: list[type[Rule]]) -> list[str]:
        """One line per rule, by area."""
        wide = self.view.width <= 0 or self.view.width >= WIDE
        slugs = max((len(rule.slug) for rule in rules), default=0)
        levels = max((len(at_most(rule)) for rule in rules), default=0)
        out: list[str] = []
        before = ""
        for rule in rules:
            if area(rule) != before:
                before = area(rule)
                line = self.painter.line()
                line.add(f"{self.painter.rule} {before}{activation_note(rule)}", "rule")
                out.append(str(line))
            line = self.painter.line()
            line.add(f"{rule.code} ", "type")
            line.add(f"{rule.slug:<{slugs}} ")
            line.add(f"{at_most(rule):<{max(levels, 7)}} ", STYLES[rule.worst()])
            if wide:
                line.add(f"{rule.confidence:<9} ", "dim")
                line.add(f"{versions(rule):<15} ", "dim")
            line.add(self.painter.safe(rule.paragraphs()[0]))
            out.append(str(line).rstrip(" "))
        return out

    def explain(self, rule: type[Rule]) -> list[str]:
        """All properties of a rule."""
        line = self.painter.line()
        line.add(rule.code, "type")
        line.add(f" {rule.slug}")
        line.add(f"  {at_most(rule)}", STYLES[rule.worst()])
        out = [str(line)]
        out += self._phrases(
            [
                CONFIDENCES[rule.confidence],
                f"MQTT {versions(rule)}",
                f"looks at {SCOPES[rule.scope]}",
                *self._more(rule),
            ],
            "dim",
        )
        for paragraph in rule.paragraphs():
            out += ["", *self._paragraph(paragraph)]
        statements = list(cited(rule))
        if statements:
            out += ["", self._heading("statements")]
        for citation in statements:
            notes = [f"section {citation.statement.section}", *([citation.where] if citation.where else ())]
            notes += ["in part"] if citation.partly else []
            text = f"{citation.statement.key} ({', '.join(notes)}): {citation.statement.summary}"
            out += self._paragraph(text, indent=2)
        if rule.settings:
            out += ["", self._heading(f"settings, in [rules.{rule.code}]")]
            out += [f"  {name} = {value!r}" for name, value in rule.settings.items()]
        for title, examples in (("found", rule.bad), ("fine", rule.good)):
            for example in examples:
                out += ["", self._heading(f"{title}: {example.title}")]
                out += render(rule, example, self.view)
        return out

    def _more(self, rule: type[Rule]) -> list[str]:
        properties = []
        if rule.reason_code is not None:
            properties.append(f"reason code 0x{rule.reason_code:02X} {REASON_CODES.get(rule.reason_code, '')}".rstrip())
        if needs(rule):
            properties.append(f"needs {', '.join(needs(rule))}")
        if activation_note(rule):
            properties.append(activation_note(rule).strip(" ()"))
        return [*properties, f"since {rule.since}"]

    def coverage(self, rows: list[Coverage]) -> list[str]:
        """One line per statement, with its rules or the reason why no rule checks it; totals at the end."""
        out: list[str] = []
        before = ""
        names = max((len(row.statement.identifier) for row in rows), default=0)
        for row in rows:
            if row.statement.version != before:
                before = row.statement.version
                out += [*([""] if out else ()), self._heading(specification_name(before))]
            line = self.painter.line()
            line.add(f"{row.statement.identifier:<{names}} ")
            line.add(f"{row.state:<9} ", _STATES[row.state])
            self._rules(line, row)
            line.add(self.painter.safe(row.statement.summary), "dim")
            out.append(str(line).rstrip(" "))
        out.append("")
        for version, counts in totals(rows).items():
            states = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
            out += self._paragraph(f"{specification_name(version)}: {plural(counts.total(), 'statement')}: {states}")
        return out

    def _rules(self, line: Line, row: Coverage) -> None:
        named = ", ".join([*row.rules, *(f"{code} in part" for code in row.partly)])
        line.add(f"{named or self.painter.safe(row.why)}{self.painter.dot}", "type" if named else "note")

    def _heading(self, title: str) -> str:
        line = self.painter.line()
        line.add(f"{self.painter.rule} {self.painter.safe(title)}", "rule")
        return str(line)

    def _phrases(self, parts: Iterable[str], style: str) -> list[str]:
        """Phrases on as few lines as possible."""
        lines: list[str] = []
        for part in map(self.painter.safe, parts):
            if lines and cells(lines[-1]) + len(self.painter.dot) + cells(part) < self.painter.width:
                lines[-1] += self.painter.dot + part
            else:
                lines.append(part)
        painted = []
        for text in lines:
            line = self.painter.line()
            line.add(text, style)
            painted.append(str(line))
        return painted

    def _paragraph(self, sentence: str, *, indent: int = 0) -> list[str]:
        line = self.painter.line()
        line.put(" " * indent, indent)
        text = Wrapped(line, indent=indent * 2, most=MAX_LINES)
        text.add(self.painter.safe(sentence))
        return text.texts()


def render(rule: type[Rule], example: ExampleConversation, view: View) -> list[str]:
    """The lines of an example as `inspect` shows them, with each finding under the packet to blame."""
    sink = LineCollector()
    shown = replace(view, time="relative", payload_limit=PAYLOAD_LIMIT)
    # Lines are wrapped and not cut: the finding may be about properties at their end.
    text = TextLines(sink, replace(shown, width=0))
    painter = Painter(shown)
    linter = Linter([rule(example.settings)])
    out: list[str] = []
    for event in dissect_segments(segments(example)):
        findings = linter.feed(event)
        if findings or not _is_frame_work(event):
            text.feed(event)
            for line in sink.lines:
                out += wrap_painted(line, painter)
            sink.lines.clear()
        for finding in findings:
            out += _under(finding, painter)
    return out or [" " * _INDENT + "(no packets)"]


def wrap_painted(line: str, painter: Painter) -> list[str]:
    """A painted line as lines of the painter's width, broken at spaces; styles continue on the next line."""
    line = _ANY_WORD.sub(lambda word: elide(word[0], MAX_WORD, painter.ellipsis), line)
    if cells(_SEQUENCE.sub("", line)) <= painter.width:
        return [line]
    indent = min(_INDENT + 2, painter.width // 4)
    lines: list[str] = []
    current, used, style = "", 0, ""
    for word in _WORD.findall(line):
        columns = cells(_SEQUENCE.sub("", word))
        if used + columns > painter.width and used > indent:
            lines.append(current.rstrip(" ") + (_RESET if style else ""))
            current, used, word = " " * indent + style, indent, word.lstrip(" ")
        for piece in _PIECE.findall(word):
            if _SEQUENCE.fullmatch(piece):
                style = "" if piece == _RESET else piece
            elif used + cells(piece) > painter.width:
                lines.append(current + (_RESET if style else ""))
                current, used = " " * indent + style, indent
            current += piece
            used += 0 if _SEQUENCE.fullmatch(piece) else cells(piece)
    return [*lines, current]


def _is_frame_work(event: Event) -> bool:
    """Whether an event only marks the beginning or end of the example."""
    if isinstance(event, ConnectionClosed):
        return event.connection.closed_how == "capture_end"
    return isinstance(event, ConnectionOpened)


def _under(finding: Finding, painter: Painter) -> list[str]:
    line = painter.line()
    line.put(" " * _INDENT, _INDENT)
    text = Wrapped(line, indent=_INDENT + 2)
    sure = "" if finding.confidence == "certain" else f", {finding.confidence}"
    where = f" ({painter.safe(finding.field)})" if finding.field else ""
    text.add(f"^ {finding.rule} {finding.severity}{sure}: {painter.safe(finding.message)}", STYLES[finding.severity])
    text.add(where, "dim")
    return text.texts()
