"""Reports findings as JSON, schema 1: one document that is written while findings come, or JSON Lines.

`Document` writes ``{"schema": 1, "findings": [...], "summary": {...}}``, `JsonLines` one finding per line.
`finding_view` and `summary_view` are the JSON forms of a finding and of a run; the keys are those of
`lint.finding.Finding`.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any

from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Suppression
from mqttscope.mqtt.view import text, utf8
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import ORDER, Summary
from mqttscope.report.findings.shown import ShownFinding
from mqttscope.report.jsonl import SCHEMA, dumps, harmless
from mqttscope.session.capture_time import captured

KEYS = tuple(one.name for one in dataclasses.fields(Finding))
KEYS = KEYS[: KEYS.index("fingerprint") + 1]
"""The keys that every finding has, in their order, after ``schema``."""
_values = attrgetter(*KEYS)
_CAPTURED = ("capture", "client_identifier")


def finding_view(finding: Finding) -> dict[str, Any]:
    """A finding by key.

    ``topic`` and ``related`` are there only where there is one, ``clients`` only above 1, ``count`` and ``places`` only
    where it stands for several places of its packet.
    Captured names that are not UTF-8 have the form of `mqtt.view.text`; in the message their bytes are escapes.
    """
    shown: dict[str, Any] = {"schema": SCHEMA, **dict(zip(KEYS, _values(finding), strict=True))}
    for name in _CAPTURED:
        shown[name] = None if shown[name] is None else text(shown[name])
    shown["timestamp_ns"] = captured(finding.timestamp_ns)
    shown["message"], shown["field"] = utf8(finding.message), utf8(finding.field)
    if finding.topic is not None:
        shown["topic"] = text(finding.topic)
    if finding.clients > 1:
        shown["clients"] = finding.clients
    if finding.count > 1:
        shown["count"] = finding.count
        shown["places"] = [
            {"field": utf8(one.field), "offset": one.offset, "length": one.length} for one in finding.places
        ]
    if finding.related:
        shown["related"] = [
            {
                "message": utf8(one.message),
                "packet": one.packet,
                "frame": one.frame,
                "timestamp_ns": captured(one.timestamp_ns),
            }
            for one in finding.related
        ]
    return shown


def summary_view(summary: Summary) -> dict[str, Any]:
    """A run by key."""
    return {
        "findings": {str(severity): summary.counts[severity] for severity in ORDER},
        "counting": None if summary.failing is None else {str(one): summary.failing[one] for one in ORDER},
        "hidden": summary.hidden.total(),
        "packets": summary.packets,
        "nothing": summary.nothing or None,
        "suppressed": dict(sorted(summary.suppressed.items())),
        "withheld": dict(sorted(summary.withheld.items())),
        "captures": [text(one) for one in summary.captures],
        "rules": [rule.code for rule in summary.rules],
        "profile": summary.profile,
        "truncated": summary.truncated,
        "quality": summary.quality.as_json(),
        "required_quality": summary.required_quality,
        "shortfalls": [
            {"capture": text(shortfall.capture), "causes": list(shortfall.causes)} for shortfall in summary.shortfalls
        ],
        "fixed": [{name: text(value) for name, value in one.as_json().items()} for one in summary.fixed],
        "internal_errors": [
            {"rule": one.rule, "capture": text(one.capture), "frame": one.frame, "error": utf8(one.error)}
            for one in summary.internal_errors
        ],
    }


def line(shown: Any) -> bytes:
    """A JSON value on one line, without the line end and without anything that a terminal obeys."""
    made = dumps(shown)
    return made if made.isascii() and b"\x7f" not in made else harmless(made + b"\n")[:-1]


class Document:
    """Writes the findings that count, one on a line, then the summary."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view
        self._between = b'{"schema": 1, "findings": [\n'

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""
        if suppressed is None:
            self.sink.write(self._between + line(finding_view(shown.finding)))
            self._between = b",\n"

    def close(self, summary: Summary) -> None:
        """Write the end of the document."""
        opening = self._between if self._between != b",\n" else b"\n"
        self.sink.write(opening + b'], "summary": ' + line(summary_view(summary)) + b"}\n")


class JsonLines:
    """Writes findings as JSON Lines: one that counts per line, as soon as it is found, and nothing else."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""
        if suppressed is None:
            self.sink.write(line(finding_view(shown.finding)) + b"\n")

    def close(self, summary: Summary) -> None:
        """Nothing is held back."""
