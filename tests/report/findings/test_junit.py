"""JUnit XML: well-formed whatever was captured, with numbers that agree."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.report.findings.junit import MAX_TOLD
from tests.report.findings.samples import HOSTILE, HOSTILE_TEXT, IN_BASELINE, MADE, clean, many, summary, written

ALLOWED = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "testcase": {"classname", "name"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}
"""Elements and attributes: a part of the schema that Jenkins has for JUnit."""
INSIDE = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def parsed(findings: Iterable[Any], end: Any = None) -> ET.Element:
    """The document, its structure and numbers looked at."""
    root = ET.fromstring(written("junit", findings, end).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ALLOWED[element.tag]
        assert {child.tag for child in element} <= INSIDE.get(element.tag, set())
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.get(name, "")) == sum(case.find(tag) is not None for case in cases)
        assert int(element.get("tests", "")) == len(cases)
    return root


def case(root: ET.Element, suite: str, name: str) -> ET.Element:
    found = [one for one in root.iter("testcase") if (one.get("classname"), one.get("name")) == (suite, name)]
    assert len(found) == 1
    return found[0]


def test_a_suite_per_capture_and_a_case_per_rule() -> None:
    root = parsed([MADE, replace(MADE, capture="b.pcap", rule="ENC101")])

    assert [one.get("name") for one in root] == ["capture.pcap", "b.pcap", "mqttscope"]
    assert [one.get("name") for one in root[1]] == [
        "CON212 second-connect",
        "ENC101 utf8-ill-formed",
        "PUB209 qos-exceeds-maximum",
    ]
    assert [len(one) for one in root[0]] == [1, 0, 0]
    assert [len(one) for one in root[1]] == [0, 1, 0]


def test_a_failure_holds_all_findings_of_its_rule() -> None:
    failure = case(parsed([MADE, MADE]), "capture.pcap", "CON212 second-connect").find("failure")

    assert failure is not None
    assert failure.get("type") == "error"
    assert (failure.get("message") or "").startswith("2 findings; frame 118, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1): ")
    assert (failure.text or "").count("Password without User Name [3.1.1 MQTT-3.1.2-22]") == 2


def test_what_does_not_fail_the_run_does_not_fail_the_case() -> None:
    mild = replace(MADE, severity=Severity.WARNING)
    (out,) = case(parsed([mild]), "capture.pcap", "CON212 second-connect")
    assert out.tag == "system-out"

    end = clean()
    end.fail_on = Severity.WARNING
    (failed,) = case(parsed([mild], end), "capture.pcap", "CON212 second-connect")
    assert failed.get("type") == "warning"

    both = case(
        parsed([replace(mild, confidence=Confidence.LIKELY), mild], end), "capture.pcap", "CON212 second-connect"
    )
    assert [one.tag for one in both] == ["failure", "system-out"]


def test_captures_without_findings_pass() -> None:
    root = parsed([])

    assert [one.get("name") for one in root] == ["capture.pcap", "mqttscope"]
    assert root.get("failures") == "0"
    assert root[0].get("tests") == "3"


def test_folders_and_patterns_are_no_captures_of_their_own() -> None:
    end = clean()
    end.captures = ["day", "x/*.pcap", "none.pcap"]
    root = parsed([replace(MADE, capture="day/a.pcap"), replace(MADE, capture="x/b.pcap")], end)

    assert [one.get("name") for one in root] == ["day/a.pcap", "x/b.pcap", "none.pcap", "mqttscope"]


def test_suppressed_findings_pass() -> None:
    assert parsed([(MADE, IN_BASELINE)]).get("failures") == "0"


def test_what_went_wrong_with_the_run() -> None:
    root = parsed([MADE], summary())

    assert case(root, "mqttscope", "captures were read to their end")[0].tag == "error"
    assert "ENC101: capture.pcap, frame 9" in (
        case(root, "mqttscope", "rules ran to their end")[0].get("message") or ""
    )
    assert case(root, "mqttscope", "CON212 had all that it needs")[0].tag == "skipped"
    assert (root.get("errors"), root.get("skipped")) == ("2", "2")


def test_many_findings_are_counted() -> None:
    failure = case(parsed([MADE] * (MAX_TOLD + 7)), "capture.pcap", "CON212 second-connect").find("failure")

    assert failure is not None
    assert (failure.text or "").endswith("\n7 more")
    assert (failure.get("message") or "").startswith("107 findings; ")


def test_hostile_text_is_well_formed_and_shown_as_escapes() -> None:
    text = written("junit", [*many(), HOSTILE], summary())

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", text)
    name = f"dir/{HOSTILE_TEXT}.pcap"
    root = parsed([replace(HOSTILE, confidence=Confidence.CERTAIN)])
    shown = root[0].get("name") or ""
    assert shown.startswith("dir/\\x1b[31mred\\x1b]0;title\\x07 \\u202egnp\\r\\n::error::owned")
    assert "]]> &amp; <b onclick='x'> \"quoted\"" in shown
    assert shown != name
