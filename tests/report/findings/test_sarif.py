"""SARIF against the schema of the standard, and what GitHub needs beyond it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from mqttscope import __version__
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.report.findings.sarif import plain, uri
from tests import tools
from tests.conftest import ROOT
from tests.report.findings import samples
from tests.report.test_harmless import check


@cache
def schema() -> Any:
    text = (ROOT / "tests" / "data" / "sarif-schema-2.1.0.json").read_text("utf-8")
    tools.package("jsonschema")
    import jsonschema

    return jsonschema.Draft4Validator(json.loads(text), format_checker=jsonschema.FormatChecker())


_valid_rules: set[str] = set()
"""Lists of rules that the schema took; they are most of each log."""


def run_of(*findings: Any, end: Any = None, every: bool = False) -> dict[str, Any]:
    """The one run of a log that the schema takes."""
    log = json.loads(samples.written("sarif", findings, end, every=every))
    (run,) = log["runs"]
    assert isinstance(run, dict)
    driver = run["tool"]["driver"]
    rules, text = driver["rules"], json.dumps(driver["rules"])
    if text in _valid_rules:
        driver["rules"] = rules[:1]
    assert [f"{list(error.path)}: {error.message}" for error in schema().iter_errors(log)] == []
    _valid_rules.add(text)
    driver["rules"] = rules
    return run


def result_of(finding: Finding) -> dict[str, Any]:
    (result,) = run_of(finding)["results"]
    assert isinstance(result, dict)
    return result


def test_the_schema_finds_faults() -> None:
    assert list(schema().iter_errors({"version": "2.1.0", "runs": [{"tool": {}}]}))


@pytest.mark.parametrize("end", [samples.clean(), samples.summary()], ids=["clean", "broken"])
def test_logs_are_valid(end: Any) -> None:
    assert len(run_of(*samples.many(), end=end, every=True)["results"]) == len(samples.many())
    assert 1 < len(run_of(*samples.many(), end=end)["results"]) < len(samples.many())
    assert run_of(end=end)["results"] == []


def test_all_rules_are_in_the_driver() -> None:
    run = run_of(samples.MADE)
    driver = run["tool"]["driver"]

    assert [rule["id"] for rule in driver["rules"]] == list(all_rules())
    assert driver["version"] == __version__
    # The grammar of Semantic Versioning 2.0, without build metadata.
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?", driver["semanticVersion"])
    rule = driver["rules"][run["results"][0]["ruleIndex"]]
    assert rule["id"] == run["results"][0]["ruleId"] == "CON212"
    assert rule["shortDescription"]["text"] == "A client sends CONNECT twice on one connection."
    assert "Instead, open a new TCP connection" in rule["help"]["markdown"]
    assert "**5.0 MQTT-3.1.0-2**" in rule["help"]["markdown"]
    assert rule["defaultConfiguration"] == {"enabled": True, "level": "error"}


def test_what_github_asks_of_rules() -> None:
    for rule in run_of()["tool"]["driver"]["rules"]:
        assert len(rule["shortDescription"]["text"]) <= 1024
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert rule["properties"]["precision"] in ("very-high", "high", "medium", "low")
        assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")
        assert len(rule["properties"]["tags"]) <= 20


def test_a_result_points_at_frame_packet_and_bytes() -> None:
    (location,) = result_of(samples.MADE)["locations"]

    assert location["physicalLocation"]["artifactLocation"] == {"uri": "capture.pcap"}
    assert location["physicalLocation"]["region"] == {"startLine": 118}
    assert location["physicalLocation"]["address"]["relativeAddress"] == 18
    assert location["physicalLocation"]["address"]["length"] == 16
    names = [row["fullyQualifiedName"] for row in location["logicalLocations"]]
    assert names == ["connection 3", "connection 3, packet 7"]
    # A finding about a connection has no bytes.
    (location,) = result_of(samples.AT_THE_END)["locations"]
    assert "address" not in location["physicalLocation"]
    assert len(location["logicalLocations"]) == 1
    # Related packets are related locations.
    (related,) = result_of(samples.HOSTILE)["relatedLocations"]
    assert related["physicalLocation"]["region"] == {"startLine": 2}
    assert related["properties"]["packet"] == 1


def test_levels() -> None:
    levels = {severity: result_of(replace(samples.MADE, severity=severity))["level"] for severity in Severity}

    assert levels == {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    assert result_of(replace(samples.MADE, confidence=Confidence.LIKELY))["properties"]["confidence"] == "likely"


def test_fingerprints_stay_and_equal_ones_are_numbered_for_github() -> None:
    prints = [row["partialFingerprints"] for row in run_of(samples.MADE, samples.MADE, every=True)["results"]]

    assert prints[0]["mqttscopeFingerprint/v1"] == prints[1]["mqttscopeFingerprint/v1"] == samples.MADE.fingerprint
    assert [each["primaryLocationLineHash"][-2:] for each in prints] == [":1", ":2"]


def test_findings_of_one_cause_are_one_result_that_is_known_again() -> None:
    later = samples.MADE.timestamp_ns + 1_500_000_000
    other = replace(samples.MADE, fingerprint="f" * 32, topic="b", frame=200, timestamp_ns=later)
    elsewhere = replace(other, capture="b.pcap")
    row, there = run_of(samples.MADE, other, elsewhere)["results"]
    again, _ = run_of(other, samples.MADE, elsewhere)["results"]

    assert (row["occurrenceCount"], there["occurrenceCount"]) == (2, 1), "a cause of two files is two results"
    assert row["partialFingerprints"] == again["partialFingerprints"] != there["partialFingerprints"]
    assert row["partialFingerprints"].keys() == {"mqttscopeCause/v1", "primaryLocationLineHash"}
    assert row["properties"]["fingerprint"] == samples.MADE.fingerprint, "as the baseline knows it"
    assert row["properties"]["lastTimestamp"] == "2026-01-02T03:04:06.500000000Z"
    assert row["message"]["text"].endswith(
        "Found 2 times from 2026-01-02T03:04:05.000Z to 2026-01-02T03:04:06.500Z, last in frame 200."
    )


def test_suppressed_results_are_kept_and_marked() -> None:
    row = (samples.MADE, samples.IN_BASELINE), (samples.MADE, samples.ACCEPTED), samples.MADE
    known, accepted, new = run_of(*row)["results"]

    assert known["suppressions"][0]["kind"] == "external"
    assert accepted["suppressions"][0]["justification"] == "firmware 2.1 sleeps too long\\x1b[31m"
    assert accepted["suppressions"][0]["properties"] == {"kind": "configuration", "expires": "2027-03-31"}
    assert "suppressions" not in new


def test_a_run_that_failed_says_so() -> None:
    (invocation,) = run_of(end=samples.summary())["invocations"]

    assert invocation["executionSuccessful"] is False
    notes = invocation["toolExecutionNotifications"]
    assert notes[0]["associatedRule"]["id"] == "ENC101"
    assert notes[0]["message"]["text"] == "ENC101 failed: ValueError: \\x1b[31m\\xff"
    assert notes[1]["message"]["text"].startswith("cut\\x1b.pcap could not be read to its end")
    assert [note["level"] for note in notes] == ["error", "error", "note", "note", "note"]
    assert run_of(end=samples.clean())["invocations"][0]["executionSuccessful"] is True


def test_nothing_to_judge_is_no_success() -> None:
    run = run_of(end=samples.idle())

    assert run["invocations"][0]["executionSuccessful"] is False
    assert run["invocations"][0]["toolExecutionNotifications"] == [
        {"level": "error", "message": {"text": samples.NOTHING}}
    ]
    assert run["properties"]["nothing"] == samples.NOTHING


def test_rules_that_did_not_run_are_told() -> None:
    (invocation,) = run_of(end=samples.clean())["invocations"]
    document = {
        row["descriptor"]["id"]: row["configuration"]["enabled"] for row in invocation["ruleConfigurationOverrides"]
    }

    assert "CON212" not in document
    assert not any(document.values())
    assert all(all_rules()[code].code[:3] not in ("TOP", "PAY", "SEC", "OPS", "PRF") for code in document)


def test_hostile_text_does_no_harm() -> None:
    text = samples.written("sarif", [samples.HOSTILE])
    result = result_of(samples.HOSTILE)

    check(text.split("\n"), 0)
    assert re.fullmatch(r"[\w.~/%-]+", result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
    message = result["message"]["text"]
    assert message.isprintable()
    assert not re.search(r"(?<!\\)\]\(", message)
    assert "{{0}}" in message


def test_messages_have_no_links_and_no_placeholders() -> None:
    assert plain("a [b](c) {0}") == "a \\[b\\](c) {{0}}"
    assert plain("topic[0] is fine") == "topic[0] is fine"


@pytest.mark.parametrize(
    ("capture", "wanted"),
    [
        ("a.pcap", "a.pcap"),
        ("./day 1/a.pcap", "day%201/a.pcap"),
        ("/var/a.pcap", "file:///var/a.pcap"),
        ("x:y.pcap", "x%3Ay.pcap"),
        ("\udcff.pcap", "%FF.pcap"),
        ("-", "stdin"),
    ],
)
def test_paths_are_uris(capture: str, wanted: str) -> None:
    assert uri(capture) == wanted
