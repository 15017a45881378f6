"""SARIF 2.1.0, for code scanning and SARIF viewers; written while findings come.

Mapping to SARIF for properties without a direct counterpart:

==================  ===============================================================================================
capture             the artifact of a location, its path as a relative URI
frame               ``region.startLine``: GitHub needs a line; frame numbers as in Wireshark, tshark and
                    ``inspect``
byte range          ``physicalLocation.address``, relative to the packet; ``region.byteOffset`` does not fit, since the
                    bytes of one packet may be spread over the file.  Also ``offset`` and ``length`` in properties
connection, packet  logical locations of the kinds ``connection`` and ``packet``
severity            ``level``: error is ``error``, warning is ``warning``, info is ``note``
confidence          ``precision`` of the rule, ``confidence`` in properties of the result
fingerprint         ``partialFingerprints``: under our name, and under the name that GitHub reads
==================  ===============================================================================================

All rules are in the driver, in the order of their codes, so that results can refer to them before the run is over.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any
from urllib.parse import quote

from mqttscope import __version__
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.lint.rule import Rule
from mqttscope.report.base import Clock, Sink, View
from mqttscope.report.escape import escape
from mqttscope.report.explain import area, help_markdown, help_text, is_on, versions
from mqttscope.report.findings.base import RunSummary, cited, message
from mqttscope.report.findings.json import FINDING, SUMMARY, line
from mqttscope.report.findings.shown import FileFormat, ShownFinding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
TOOL = {
    "name": "mqttscope",
    "version": __version__,
    # Semantic Versioning has a hyphen where Python has a dot before dev.
    "semanticVersion": __version__.replace(".dev", "-dev."),
}
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
PRECISIONS = {Confidence.CERTAIN: "very-high", Confidence.LIKELY: "high", Confidence.HEURISTIC: "medium"}
PROBLEMS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}
"""Severities of a rule in the words of GitHub."""
FINGERPRINT = "mqttscopeFingerprint/v1"
CAUSE_FINGERPRINT = "mqttscopeCause/v1"
"""Fingerprint of a cause; it is independent of the order of its findings."""
GITHUB_FINGERPRINT = "primaryLocationLineHash"
_OWN = ("rule", "schema", "message", "capture", "fingerprint", "related")
"""Keys of the JSON form that SARIF has its own places for."""


class Sarif(FileFormat):
    """Writes one log with one run; suppressed findings are included and marked."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.rules = all_rules()
        self.index = {code: index for index, code in enumerate(self.rules)}
        self._clock = Clock()
        self._seen: Counter[str] = Counter()
        self._between = head()

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        self.sink.write(self._between + line(self.result(shown, suppressed)))
        self._between = b",\n"

    def result(self, source: ShownFinding, suppressed: Suppression | None) -> dict[str, Any]:
        """The result of a finding."""
        finding, repeats = source.finding, source.repeats(self.painter)
        known = source.cause or finding.fingerprint
        self._seen[known] += 1
        statements = f" Breaks {cited(finding)}." if finding.statements else ""
        more = f" Found {repeats}." if repeats else ""
        text = message(finding, self.painter)
        shown: dict[str, Any] = {"ruleId": finding.rule}
        if finding.rule in self.index:
            shown["ruleIndex"] = self.index[finding.rule]
        shown |= {
            "level": LEVELS[finding.severity],
            "message": {"text": plain(f"{text}{'' if text.endswith('.') else '.'}{statements}{more}")},
            "locations": [self._location(finding)],
            "partialFingerprints": {
                CAUSE_FINGERPRINT if source.cause else FINGERPRINT: known,
                GITHUB_FINGERPRINT: f"{known}:{self._seen[known]}",
            },
        }
        if source.cause:
            shown["occurrenceCount"] = source.occurrences
        if finding.related:
            shown["relatedLocations"] = [
                {
                    "id": number,
                    "message": {"text": plain(escape(remark.message))},
                    "physicalLocation": physical(finding.capture, remark.frame),
                    "logicalLocations": self._logical(finding, remark.packet),
                    "properties": {"timestamp": self._clock.iso(remark.timestamp_ns), "packet": remark.packet},
                }
                for number, remark in enumerate(finding.related, 1)
            ]
        if suppressed is not None:
            shown["suppressions"] = [
                {
                    "kind": "external",
                    "status": "accepted",
                    "justification": escape(suppressed.reason),
                    "properties": {"kind": suppressed.kind, "expires": suppressed.expires},
                }
            ]
        own = {name: value for name, value in FINDING.view(finding).items() if name not in _OWN}
        if source.cause:
            # Fingerprint of the first finding: the baseline contains only that one.
            own |= {"fingerprint": finding.fingerprint, "lastTimestamp": self._clock.iso(source.last_ns)}
        shown["properties"] = {**own, "timestamp": self._clock.iso(finding.timestamp_ns)}
        return shown

    def _location(self, finding: Finding) -> dict[str, Any]:
        place = physical(finding.capture, finding.frame)
        if finding.offset is not None and finding.length is not None:
            place["address"] = {
                "relativeAddress": finding.offset,
                "length": finding.length,
                "kind": "packet",
                "name": escape(finding.field) or (finding.packet_type or "packet"),
                "fullyQualifiedName": f"packet {finding.packet}, bytes {finding.offset} to "
                f"{finding.offset + finding.length}",
            }
        return {"physicalLocation": place, "logicalLocations": self._logical(finding, finding.packet)}

    def _logical(self, finding: Finding, packet: int | None) -> list[dict[str, Any]]:
        name = f"connection {finding.connection}"
        flow = f"{finding.client} -> {finding.server}"
        places = [{"name": flow, "fullyQualifiedName": name, "kind": "connection"}]
        if packet is not None:
            places.append({"name": str(packet), "fullyQualifiedName": f"{name}, packet {packet}", "kind": "packet"})
        return places

    def close(self, summary: RunSummary) -> None:
        opening = self._between if self._between != b",\n" else b"\n"
        rest = {"invocations": [self._invocation(summary)], "properties": SUMMARY.view(summary)}
        self.sink.write(opening + b"],\n" + line(rest)[1:] + b"]}\n")

    def _invocation(self, summary: RunSummary) -> dict[str, Any]:
        notes: list[dict[str, Any]] = []
        for error in summary.internal_errors:
            rule: dict[str, Any] = {"id": error.rule}
            if error.rule in self.index:
                rule["index"] = self.index[error.rule]
            notes.append(
                {
                    "level": "error",
                    "message": {"text": plain(escape(f"{error.rule} failed: {error.error}"))},
                    "associatedRule": rule,
                    "locations": [{"physicalLocation": physical(error.capture, error.frame)}],
                }
            )
        if summary.nothing:
            notes.append({"level": "error", "message": {"text": plain(escape(summary.nothing))}})
        if summary.required_quality is not None:
            notes += [
                {
                    "level": "error",
                    "message": {"text": plain(escape(shortfall.sentence(summary.required_quality)))},
                    "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(shortfall.capture)}}}],
                }
                for shortfall in summary.shortfalls
            ]
        for capture in summary.quality.errors:
            text = f"{escape(capture)} could not be read to its end: findings may be missing"
            notes.append({"level": "error", "message": {"text": plain(text)}})
        quality = summary.quality.sentences(summary.required_quality)
        notes += [{"level": "note", "message": {"text": plain(lack)}} for lack in quality]
        ran = {rule.code for rule in summary.rules}
        overrides = [
            {"descriptor": {"id": code, "index": self.index[code]}, "configuration": {"enabled": code in ran}}
            for code, rule in self.rules.items()
            if (code in ran) != is_on(rule)
        ]
        shown: dict[str, Any] = {"executionSuccessful": not summary.failed}
        if notes:
            shown["toolExecutionNotifications"] = notes
        if overrides:
            shown["ruleConfigurationOverrides"] = overrides
        return shown


def quoted(text: str) -> bytes:
    return b'"' + text.encode() + b'"'


def plain(text: str) -> str:
    """Text of a message without links and placeholders (3.11.5, 3.11.6)."""
    if "](" in text:
        text = text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    return text.replace("{", "{{").replace("}", "}}") if "{" in text or "}" in text else text


def physical(capture: str, frame: int) -> dict[str, Any]:
    return {"artifactLocation": {"uri": uri(capture)}, "region": {"startLine": max(1, frame)}}


def uri(capture: str) -> str:
    """The path of a capture as a URI reference: relative ones stay relative."""
    if capture in ("-", ""):
        return "stdin"
    path = quote(capture.encode("utf-8", "surrogateescape"), safe="/")
    return f"file://{path}" if path.startswith("/") else path.removeprefix("./")


@cache
def head() -> bytes:
    """Beginning of the log, up to the results; equal in all logs, and long."""
    driver = {**TOOL, "rules": [descriptor(rule) for rule in all_rules().values()]}
    return (
        b'{"$schema":' + quoted(SCHEMA) + b',"version":"2.1.0","runs":[{"tool":{"driver":' + line(driver) + b"},\n"
        b'"results":[\n'
    )


def descriptor(rule: type[Rule]) -> dict[str, Any]:
    """A rule in the driver."""
    what, *why = rule.paragraphs()
    return {
        "id": rule.code,
        "name": rule.slug,
        "shortDescription": {"text": plain(what)},
        "fullDescription": {"text": plain(" ".join(why) or what)},
        "help": {"text": plain(help_text(rule)), "markdown": help_markdown(rule)},
        "defaultConfiguration": {"enabled": is_on(rule), "level": LEVELS[rule.severity]},
        "properties": {
            "tags": ["mqtt", area(rule).replace(" ", "-")],
            "precision": PRECISIONS[rule.confidence],
            "problem.severity": PROBLEMS[rule.severity],
            "confidence": str(rule.confidence),
            "scope": str(rule.scope),
            "versions": versions(rule).split(", "),
        },
    }
