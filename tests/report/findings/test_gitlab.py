"""Code Quality of GitLab."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema

from mqttscope.lint.finding import Severity
from tests.report.findings.samples import HOSTILE, IN_BASELINE, MADE, many, summary, written
from tests.report.test_harmless import check

SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^[^./]"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
        "additionalProperties": False,
    },
}
"""What GitLab documents of the format."""


def issues(*findings: Any) -> list[dict[str, Any]]:
    shown = json.loads(written("gitlab", findings, summary()))
    jsonschema.validate(shown, SCHEMA)
    assert isinstance(shown, list)
    return shown


def test_an_issue() -> None:
    (shown,) = issues(replace(MADE, capture="./capture.pcap"))

    assert shown["check_name"] == "CON212 second-connect"
    assert shown["severity"] == "major"
    assert shown["location"] == {"path": "capture.pcap", "lines": {"begin": 118}}
    assert shown["description"] == (
        "CON212 Password without User Name [3.1.1 MQTT-3.1.2-22], 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)"
    )


def test_severities() -> None:
    found = [issues(replace(MADE, severity=one))[0]["severity"] for one in Severity]

    assert found == ["major", "minor", "info"]


def test_fingerprints_differ_and_come_again() -> None:
    first = [one["fingerprint"] for one in issues(MADE, MADE, HOSTILE)]

    assert len(set(first)) == 3
    assert [one["fingerprint"] for one in issues(MADE, MADE, HOSTILE)] == first


def test_no_findings_are_an_empty_list() -> None:
    assert issues() == issues((MADE, IN_BASELINE)) == []


def test_hostile_text_is_safe() -> None:
    assert all(one["description"].isprintable() for one in issues(*many()))
    check(written("gitlab", many()).split("\n"), 0)
