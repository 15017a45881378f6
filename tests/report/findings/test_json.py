"""One JSON document."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from mqttscope.lint.finding import Severity
from mqttscope.report.findings.json import FINDING, SUMMARY, line
from tests.report.findings.samples import HOSTILE, IN_BASELINE, MADE, clean, many, summary, written
from tests.report.test_harmless import check

INTERFACE = [
    *("schema", "rule", "slug", "severity", "confidence", "message", "statements", "version", "capture", "frame"),
    *("timestamp_ns", "connection", "client", "server", "client_identifier", "direction", "packet", "packet_type"),
    *("field", "offset", "length", "reason_code", "fingerprint"),
]


def test_the_keys_are_those_of_the_interface_in_their_order() -> None:
    assert list(FINDING.view(MADE)) == INTERFACE
    assert list(FINDING["required"]) == INTERFACE


def test_topic_related_and_clients_are_there_only_where_there_are_some() -> None:
    many_clients = FINDING.view(replace(MADE, clients=33))

    assert list(FINDING.view(HOSTILE)) == [*INTERFACE, "topic", "related"]
    assert list(FINDING.view(HOSTILE)["related"][0]) == ["message", "packet", "frame", "timestamp_ns"]
    assert (list(many_clients), many_clients["clients"]) == ([*INTERFACE, "clients"], 33)


def test_values_are_plain() -> None:
    shown = json.loads(line(FINDING.view(MADE)))

    assert shown["severity"] == "error"
    assert shown["statements"] == ["3.1.1 MQTT-3.1.2-22"]
    assert shown["reason_code"] is None
    assert "raw" not in shown


def test_any_finding_is_one_harmless_line() -> None:
    for finding in many():
        text = line(FINDING.view(finding)).decode()
        check([text], 0)
        assert json.loads(text)["rule"] == finding.rule


def test_the_summary() -> None:
    shown = json.loads(line(SUMMARY.view(summary())))

    assert shown["findings"] == {"error": 2, "warning": 1, "info": 3}
    assert shown["suppressed"] == {"baseline": 4, "configuration": 1}
    assert shown["withheld"] == {"CON212": 5, "PUB209": 2}
    assert shown["rules"] == ["CON212", "ENC101", "PUB209"]
    assert shown["truncated"] is True
    assert shown["quality"]["joined"] == 1
    assert shown["fixed"][0]["rule"] == "CON212"
    assert shown["internal_errors"][0]["error"] == "ValueError: \x1b[31m\\xff"
    assert json.loads(line(SUMMARY.view(clean())))["findings"] == {"error": 0, "warning": 0, "info": 0}


def test_the_summary_says_what_counts_and_that_there_is_nothing() -> None:
    assert {name: SUMMARY.view(clean())[name] for name in ("counting", "hidden", "packets", "nothing")} == {
        "counting": None, "hidden": 0, "packets": None, "nothing": None,
    }  # fmt: skip
    shown = SUMMARY.view(summary(failing=Counter({Severity.ERROR: 1}), packets=0, nothing="nothing to judge"))
    assert (shown["counting"], shown["packets"], shown["nothing"]) == (
        {"error": 1, "warning": 0, "info": 0}, 0, "nothing to judge",
    )  # fmt: skip


def test_the_document_has_findings_and_summary() -> None:
    shown = json.loads(written("json", [*many(), (MADE, IN_BASELINE)], summary()))

    assert list(shown) == ["schema", "findings", "summary"]
    assert shown["schema"] == 1
    assert [row["rule"] for row in shown["findings"]] == [finding.rule for finding in many()]
    assert shown["summary"]["profile"] == "Example broker"


def test_no_findings_are_an_empty_list_or_no_line() -> None:
    shown = json.loads(written("json", []))

    assert shown["findings"] == []
    assert shown["summary"]["truncated"] is False
    assert written("jsonl", []) == written("jsonl", [(MADE, IN_BASELINE)]) == ""


def test_json_lines_are_one_finding_each_and_the_output_is_harmless() -> None:
    lines = written("jsonl", many(), summary()).splitlines()

    assert [json.loads(text) for text in lines] == [json.loads(line(FINDING.view(finding))) for finding in many()]
    check(written("json", many(), summary()).split("\n"), 0)
