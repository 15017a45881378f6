"""Workflow commands, each on a line of its own, whatever the capture holds, and Code Quality of GitLab."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import Policy
from mqttscope.report.findings.base import RunSummary
from tests import tools
from tests.each import each
from tests.report.findings.samples import (
    HOSTILE,
    IN_BASELINE,
    MADE,
    NOTHING,
    clean,
    idle,
    many,
    summary,
    unreadable,
    written,
)
from tests.report.test_harmless import check

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:]*)(?:,[a-z]+=[^,:]*)*)::(.*)")


def read(line: str) -> tuple[str, dict[str, str], str]:
    """A command as the runner reads it."""
    result = COMMAND.fullmatch(line)
    assert result is not None, line
    named = {}
    for word in result[2].split(","):
        name, _, value = word.partition("=")
        for code, char in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            value = value.replace(code, char)
        named[name] = value
    text = result[3].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return result[1], named, text


def test_a_finding_is_an_annotation() -> None:
    finding, end = written("github", [MADE]).splitlines()

    assert read(finding) == (
        "error",
        {"file": "capture.pcap", "line": "118", "title": "CON212 second-connect"},
        "Password without User Name [3.1.1 MQTT-3.1.2-22]\nframe 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)",
    )
    assert read(end) == ("notice", {"title": "mqttscope"}, "no findings by 3 rules")


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warning", "warning"), ("info", "notice")])
def test_commands_by_severity(severity: str, command: str) -> None:
    line = written("github", [replace(MADE, severity=Severity(severity))]).splitlines()[0]

    assert read(line)[0] == command


def test_names_are_escaped() -> None:
    odd = replace(MADE, capture="./a,b:c%2C.pcap")
    line = written("github", [odd]).splitlines()[0]

    assert "file=a%2Cb%3Ac%252C.pcap," in line
    assert read(line)[1]["file"] == "a,b:c%2C.pcap"


def test_every_line_is_a_command() -> None:
    lines = written("github", [*many(), HOSTILE], summary(), every=True).split("\n")[:-1]

    assert len(lines) == len(many()) + 2
    for line in lines:
        assert line.isprintable()
        read(line)


def test_a_run_that_failed_is_an_error() -> None:
    command, _, text = read(written("github", [], summary()).splitlines()[-1])

    assert command == "error"
    assert text.splitlines()[-1] == "a capture could not be read to its end: findings may be missing"


def test_an_error_that_does_not_count_is_a_warning() -> None:
    likely = replace(MADE, confidence=Confidence.LIKELY)
    end = clean(counts=Counter({Severity.ERROR: 2, Severity.INFO: 1}), failing=Counter({Severity.ERROR: 1}))
    text = written("github", [MADE, likely, replace(likely, severity=Severity.INFO)], end, counts=Policy().breaks)
    commands = [read(line) for line in text.splitlines()]

    assert [command[0] for command in commands] == ["error", "warning", "notice", "notice"]
    assert commands[1][2].endswith("\nThis error does not fail the run (--fail-on, --fail-confidence).")
    assert commands[3][2] == "2 errors (1 fails the run), 1 note by 3 rules"


@each("end, expected", [(idle(), NOTHING), (unreadable(), "nothing could be read: gone.pcap")])
def test_nothing_to_judge_is_an_error_and_all_that_is_said(end: RunSummary, expected: str) -> None:
    (line,) = written("github", [], end).splitlines()

    assert read(line) == ("error", {"title": "mqttscope"}, expected)


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
    tools.package("jsonschema")
    import jsonschema

    jsonschema.validate(shown, SCHEMA)
    assert isinstance(shown, list)
    return shown


def every(*findings: Any) -> list[dict[str, Any]]:
    """The issues where each finding is one."""
    document = json.loads(written("gitlab", findings, summary(), every=True))
    assert isinstance(document, list)
    return document


def test_an_issue() -> None:
    (shown,) = issues(replace(MADE, capture="./capture.pcap"))

    assert shown["check_name"] == "CON212 second-connect"
    assert shown["severity"] == "major"
    assert shown["location"] == {"path": "capture.pcap", "lines": {"begin": 118}}
    assert shown["description"] == (
        "CON212 Password without User Name [3.1.1 MQTT-3.1.2-22], 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)"
    )


def test_severities() -> None:
    result = [issues(replace(MADE, severity=severity))[0]["severity"] for severity in Severity]

    assert result == ["major", "minor", "info"]


def test_fingerprints_differ_and_come_again() -> None:
    elsewhere, other = replace(MADE, capture="b.pcap"), replace(MADE, fingerprint="f" * 32, topic="b")
    first = [issue["fingerprint"] for issue in issues(MADE, other, elsewhere, HOSTILE)]

    assert len(set(first)) == len(first) == 3
    assert [issue["fingerprint"] for issue in issues(other, MADE, elsewhere, HOSTILE)] == first
    assert issues(MADE, other)[0]["description"].endswith("last in frame 118)")
    assert len({document["fingerprint"] for document in every(MADE, MADE, HOSTILE)}) == 3


def test_no_findings_are_an_empty_list() -> None:
    assert issues() == issues((MADE, IN_BASELINE)) == []


def test_hostile_text_is_safe() -> None:
    assert all(issue["description"].isprintable() for issue in issues(*many()))
    check(written("gitlab", many()).split("\n"), 0)
