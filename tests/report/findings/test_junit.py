"""JUnit XML: well-formed whatever was captured, with numbers that agree."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.report.findings import junit
from tests.report.findings.samples import (
    HOSTILE,
    HOSTILE_TEXT,
    IN_BASELINE,
    MADE,
    NOTHING,
    clean,
    idle,
    many,
    summary,
    written,
)

COUNT, TEXT, SECONDS = r"0|[1-9]\d*", r"(?s:.*)", r"\d*(\.\d{1,3})?"
SCHEMA: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "testsuites": (
        {},
        {"name": TEXT, "tests": COUNT, "failures": COUNT, "errors": COUNT, "disabled": COUNT, "time": SECONDS},
        r"(testsuite )*",
    ),
    "testsuite": (
        {"name": TEXT, "tests": COUNT, "failures": COUNT, "errors": COUNT, "skipped": COUNT},
        {"time": SECONDS, "timestamp": TEXT, "hostname": TEXT, "package": TEXT, "id": TEXT, "group": TEXT},
        r"(properties )?(testcase )*(system-out )?(system-err )?",
    ),
    "testcase": (
        {"name": TEXT, "classname": TEXT, "time": SECONDS},
        {"group": TEXT},
        r"(skipped |error |failure )?(system-out )?(system-err )?",
    ),
    "failure": ({"type": TEXT}, {"message": TEXT}, ""),
    "error": ({"type": TEXT}, {"message": TEXT}, ""),
    "skipped": ({}, {"message": TEXT}, ""),
    "system-out": ({}, {}, ""),
}
"""What both Jenkins and Surefire take: attributes that must be there, those that may, and the children in order."""


def parsed(findings: Iterable[Any], end: Any = None, *, every: bool = True) -> ET.Element:
    """The document, its structure and numbers looked at."""
    root = ET.fromstring(written("junit", findings, end, every=every).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        valid(element)
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            if element is not root or name != "skipped":
                assert int(element.get(name, "")) == sum(case.find(tag) is not None for case in cases)
        assert int(element.get("tests", "")) == len(cases)
    assert len({node.get("name") for node in root}) == len(root)
    return root


def valid(element: ET.Element) -> None:
    """An element against the schema: attributes, children, and text only where there may be some."""
    required, optional, children = SCHEMA[element.tag]
    assert required.keys() <= element.attrib.keys() <= required.keys() | optional.keys()
    for name, value in element.attrib.items():
        assert re.fullmatch((required | optional)[name], value), (name, value)
    assert re.fullmatch(children, "".join(f"{child.tag} " for child in element))
    if children:
        assert not "".join([element.text or "", *(child.tail or "" for child in element)]).strip()


def test_every_document_is_valid() -> None:
    mild = replace(MADE, severity=Severity.WARNING)
    endings = [clean(), summary(), summary(captures=[]), summary(rules=[])]
    for end in endings:
        for findings in ([], [MADE], [mild], [MADE, replace(MADE, severity=Severity.INFO)], many()):
            parsed(findings, end)


def case(root: ET.Element, suite: str, name: str) -> ET.Element:
    (node,) = (node for node in root.iter("testcase") if (node.get("classname"), node.get("name")) == (suite, name))
    return node


def of_rule(root: ET.Element) -> ET.Element:
    """The case of CON212."""
    return case(root, "capture.pcap", "CON212 second-connect")


def failed(root: ET.Element) -> tuple[str | None, str, str]:
    """Type, message and text of the failure of CON212."""
    failure = of_rule(root).find("failure")
    assert failure is not None
    return failure.get("type"), failure.get("message") or "", failure.text or ""


def test_a_suite_per_capture_and_a_case_per_rule() -> None:
    root = parsed([MADE, replace(MADE, capture="b.pcap", rule="ENC101")])

    assert [node.get("name") for node in root] == ["capture.pcap", "b.pcap", "mqttscope"]
    assert [node.get("name") for node in root[1]] == [
        "CON212 second-connect",
        "ENC101 utf8-ill-formed",
        "PUB209 qos-exceeds-maximum",
    ]
    assert [len(node) for node in root[0]] == [1, 0, 0]
    assert [len(node) for node in root[1]] == [0, 1, 0]


def test_a_failure_holds_all_findings_of_its_rule_and_those_of_one_cause_are_one_line() -> None:
    kind, message, text = failed(parsed([MADE, MADE]))
    assert kind == "error"
    assert message.startswith("2 findings; frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1): ")
    assert text.count("Password without User Name [3.1.1 MQTT-3.1.2-22]") == 2

    _, message, text = failed(parsed([MADE, MADE, replace(MADE, client_identifier="dev2")], every=False))
    assert message.startswith("2 findings (3 occurrences); frame 118, ")
    assert [line.endswith(", last in frame 118)") for line in text.splitlines()] == [True, False]


def test_what_does_not_fail_the_run_does_not_fail_the_case() -> None:
    mild = replace(MADE, severity=Severity.WARNING)
    end = clean(fail_on=Severity.WARNING)
    likely = replace(mild, confidence=Confidence.LIKELY)

    assert [node.tag for node in of_rule(parsed([mild]))] == ["system-out"]
    assert [node.get("type") for node in of_rule(parsed([mild], end))] == ["warning"]
    assert [node.tag for node in of_rule(parsed([likely, mild], end))] == ["failure", "system-out"]


def test_captures_without_findings_pass() -> None:
    root = parsed([(MADE, IN_BASELINE)])

    assert [node.get("name") for node in root] == ["capture.pcap", "mqttscope"]
    assert [node.get("name") for node in parsed([])] == ["capture.pcap", "mqttscope"]
    assert root.get("failures") == parsed([]).get("failures") == "0"
    assert root[0].get("tests") == "3"


def test_folders_and_patterns_are_no_captures_of_their_own() -> None:
    findings = [replace(MADE, capture="day/a.pcap"), replace(MADE, capture="x/b.pcap")]
    root = parsed(findings, clean(captures=["day", "x/*.pcap", "none.pcap"]))

    assert [node.get("name") for node in root] == ["day/a.pcap", "x/b.pcap", "none.pcap", "mqttscope"]


def test_what_went_wrong_with_the_run() -> None:
    root = parsed([MADE], summary())

    assert case(root, "mqttscope", "captures were read to their end")[0].tag == "error"
    assert "ENC101: capture.pcap, frame 9" in (
        case(root, "mqttscope", "rules ran to their end")[0].get("message") or ""
    )
    assert case(root, "mqttscope", "CON212 had all that it needs")[0].tag == "skipped"
    assert (root.get("errors"), root[-1].get("skipped")) == ("2", "2")


def test_what_fails_is_shown_whatever_else_the_rule_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MAX_TOLD", 3)
    _, message, text = failed(parsed([*[replace(MADE, severity=Severity.INFO)] * 9, MADE]))

    assert message.startswith("1 finding; frame 118, ")
    assert text.count("frame 118") == 1


def test_hostile_text_is_well_formed_and_shown_as_escapes() -> None:
    text = written("junit", [*many(), HOSTILE], summary())

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", text)
    name = f"dir/{HOSTILE_TEXT}.pcap"
    root = parsed([replace(HOSTILE, confidence=Confidence.CERTAIN)])
    shown = root[0].get("name") or ""
    assert shown.startswith("dir/\\x1b[31mred\\x1b]0;title\\x07 \\u202egnp\\r\\n::error::owned")
    assert "]]> &amp; <b onclick='x'> \"quoted\"" in shown
    assert shown != name


def test_a_capture_without_packets_is_skipped_and_one_with_them_is_not() -> None:
    end = summary(captures=["idle.pcap", "capture.pcap"], packets=4, spoken={"capture.pcap"}, truncated=False)
    root = parsed([MADE], end)

    counts = {node.get("name"): [node.get(name) for name in ("tests", "skipped", "failures")] for node in root}
    assert (counts["idle.pcap"], counts["capture.pcap"]) == (["3", "3", "0"], ["3", "0", "1"])
    assert len(case(root, "mqttscope", "there was something to judge")) == 0


def test_a_run_with_nothing_to_judge_is_skipped_and_an_error_where_packets_are_required() -> None:
    for required, tag in ((False, "skipped"), (True, "error")):
        root = parsed([], idle(spoken=set(), required=required))
        (node,) = case(root, "mqttscope", "there was something to judge")
        assert (node.tag, node.get("message")) == (tag, NOTHING)
        assert required or all(node[0].tag == "skipped" for node in root[0])


def test_what_fails_and_is_not_shown_is_a_failure() -> None:
    (failure,) = case(parsed([], clean(hidden_failing=2)), "mqttscope", "no failing finding is hidden")

    assert failure.get("message") == "2 findings that fail the run are below --min-severity"
