"""Reports findings as JSON, schema 1: one document that is written while findings come, or JSON Lines.

`FindingDocument` writes ``{"schema": 1, "findings": [...], "summary": {...}}``, `FindingJsonLines` a finding per line.
`FINDING` and `SUMMARY` are the JSON forms of a finding and of a run; the keys are attributes of `lint.finding.Finding`.
"""

from __future__ import annotations

from typing import Any

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import BaselineEntry
from mqttscope.lint.quality import Quality, QualityLevel
from mqttscope.lint.rule import Timing
from mqttscope.report import documents as doc
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import ORDER, RunSummary
from mqttscope.report.findings.shown import FileFormat, ShownFinding
from mqttscope.report.jsonl import dumps, harmless

JUDGED = {"severity": doc.word(Severity), "confidence": doc.word(Confidence)}
SETTINGS = doc.mapping(doc.any_of(doc.NUMBER, doc.BOOL, doc.TEXT, doc.each(doc.TEXT)))
_SPAN = {"offset": doc.maybe(doc.COUNT), "length": doc.maybe(doc.COUNT)}


def _several(name: str) -> doc.ValueType:
    return doc.COUNT.at(lambda finding: getattr(finding, name) if getattr(finding, name) > 1 else None)


FINDING = doc.record(
    {
        "schema": doc.VERSION_1, "rule": doc.TEXT, "slug": doc.TEXT, **JUDGED, "message": doc.ESCAPED,
        "statements": doc.each(doc.TEXT), "version": doc.PROTOCOL, "capture": doc.NAME, "frame": doc.COUNT,
        "timestamp_ns": doc.TIME, "connection": doc.COUNT, "client": doc.TEXT, "server": doc.TEXT,
        "client_identifier": doc.maybe(doc.NAME), "direction": doc.maybe(doc.DIRECTION),
        "packet": doc.maybe(doc.COUNT), "packet_type": doc.maybe(doc.TEXT),
        "field": doc.ESCAPED, **_SPAN, "reason_code": doc.maybe(doc.COUNT), "fingerprint": doc.TEXT,
    },
    {
        "topic": doc.NAME, "clients": _several("clients"), "count": _several("count"),
        "places": doc.each(doc.record({"field": doc.ESCAPED, **_SPAN})).at(
            lambda finding: finding.places if finding.count > 1 else None
        ),
        "related": doc.each(
            doc.record({"message": doc.ESCAPED, "packet": doc.COUNT, "frame": doc.COUNT, "timestamp_ns": doc.TIME})
        ).at(lambda finding: finding.related or None),
    },
)  # fmt: skip
FAILURE = doc.record({"rule": doc.TEXT, "capture": doc.NAME, "frame": doc.COUNT, "error": doc.ESCAPED})
_BY_SEVERITY = doc.counts(*ORDER)
_QUALITY = doc.ValueType(doc.record(dict.fromkeys(Quality().as_json(), doc.COUNT)), Quality.as_json)
SUMMARY = doc.record({
    "findings": _BY_SEVERITY.at("counts"), "counting": doc.maybe(_BY_SEVERITY).at("failing"),
    "hidden": doc.COUNT.at(lambda summary: summary.hidden.total()), "packets": doc.maybe(doc.COUNT),
    "nothing": doc.unless_empty(doc.TEXT), "suppressed": doc.by_name(doc.COUNT), "withheld": doc.by_name(doc.COUNT),
    "pending": doc.by_name(doc.COUNT), "captures": doc.each(doc.NAME), "rules": doc.each(doc.TEXT.at("code")),
    "profile": doc.maybe(doc.TEXT), "timing": doc.word(Timing), "truncated": doc.BOOL, "quality": _QUALITY,
    "required_quality": doc.maybe(doc.word(QualityLevel)),
    "shortfalls": doc.each(doc.record({"capture": doc.NAME, "causes": doc.each(doc.TEXT)})),
    "fixed": doc.each(doc.mapping(doc.NAME).at(BaselineEntry.as_json)), "internal_errors": doc.each(FAILURE),
})  # fmt: skip
COUNTED_RULE = doc.record({
    "rule": doc.TEXT, "slug": doc.TEXT, "severity": doc.word(Severity), "findings": doc.COUNT,
    "clients": doc.COUNT.at("number_of_clients"), "suppressed": doc.COUNT, "withheld": doc.COUNT,
})  # fmt: skip
LINE = doc.any_of(FINDING, doc.record({"schema": doc.VERSION_1, **COUNTED_RULE["properties"]}))
"""A line of ``lint --format jsonl``; with ``--statistics`` one counts the findings of a rule."""
DOCUMENT = {
    **doc.record(
        {"schema": doc.VERSION_1, "summary": SUMMARY},
        {"findings": doc.each(FINDING), "rules": doc.each(COUNTED_RULE)},
    ),
    "oneOf": [{"required": ["findings"]}, {"required": ["rules"]}],
}
"""The document of ``lint --format json``, also with ``--statistics``."""


def line(shown: Any) -> bytes:
    """A JSON value on one line, without line end and without terminal control characters."""
    encoded = dumps(shown)
    return encoded if encoded.isascii() and b"\x7f" not in encoded else harmless(encoded + b"\n")[:-1]


class FindingDocument(FileFormat):
    """Writes the findings that are not suppressed, one per line, then the summary."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self._between = b'{"schema": 1, "findings": [\n'

    def write(self, shown: ShownFinding) -> None:
        self.sink.write(self._between + line(FINDING.view(shown.finding)))
        self._between = b",\n"

    def close(self, summary: RunSummary) -> None:
        opening = self._between if self._between != b",\n" else b"\n"
        self.sink.write(opening + b'], "summary": ' + line(SUMMARY.view(summary)) + b"}\n")


class FindingJsonLines(FileFormat):
    """Writes each finding that is not suppressed as a JSON line at once, and nothing else."""

    def write(self, shown: ShownFinding) -> None:
        self.sink.write(line(FINDING.view(shown.finding)) + b"\n")
