"""A run for the machinery of others: JUnit XML and SARIF 2.1.0.

JUnit has a suite per broker and a case per case; what could not be played is skipped.  SARIF has a run per broker, a
rule per verdict and a result per deviation; the location of a result is the capture that the case was made of, and
case, seed and hash in its properties make it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import Verdict
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Sink
from mqttscope.report.broker_test.outcome import RANK, Tried, case_json, summary_json
from mqttscope.report.broker_test.text import numbered
from mqttscope.report.findings.json import line
from mqttscope.report.findings.junit import attribute, content
from mqttscope.report.findings.sarif import SCHEMA, TOOL, physical, plain

WORDS = {
    Verdict.CRASHED: "The broker crashes.",
    Verdict.HUNG: "The broker takes connections and serves nobody.",
    Verdict.COLLATERAL: "Another client suffers.",
    Verdict.LEAKED: "The broker's memory grows each time.",
    Verdict.REFUSED_LEGAL: "The broker refuses what has to be accepted.",
    Verdict.TOLERATED: "The specification demands a close, and none comes.",
    Verdict.NO_ANSWER: "The broker neither answers what it has to answer nor closes.",
    Verdict.WRONG_REASON: "The broker closes with another reason than the specification names.",
}
LEVELS = {Verdict.TOLERATED: "warning", Verdict.NO_ANSWER: "warning", Verdict.WRONG_REASON: "note"}
"""All others are errors."""


def write_junit(sink: Sink, runs: Iterable[Tried]) -> None:
    """Write the document."""
    suites = list(runs)
    tests = sum(len(one.results) for one in suites)
    failures = sum(len(one.deviations) for one in suites)
    sink.write(b'<?xml version="1.0" encoding="UTF-8"?>\n')
    sink.write(f'<testsuites name="mqttscope mutate" tests="{tests}" failures="{failures}" errors="0">\n'.encode())
    for one in suites:
        sink.write(_suite(one).encode())
    sink.write(b"</testsuites>\n")


def _suite(tried: Tried) -> str:
    counts = f'tests="{len(tried.results)}" failures="{len(tried.deviations)}" errors="0"'
    head = f'  <testsuite name={attribute(tried.broker)} {counts} time="{tried.seconds:.3f}">\n'
    return head + "".join(_case(one, tried) for one in tried.results) + "  </testsuite>\n"


def _case(one: CaseResult, tried: Tried) -> str:
    assert one.ruling is not None
    name = f"{one.case.mutation.name} ({', '.join([*numbered(one), one.case.version.text])})"
    head = f'    <testcase classname={attribute(tried.broker)} name={attribute(name)} time="{one.seconds:.3f}"'
    if not one.deviates:
        return f"{head}/>\n"
    ruling = one.ruling
    told = [one.case.mutation.description, f"{ruling.verdict}: {ruling.why}"]
    told += [f"the flow breaks {text}" for text in one.case.statements]
    told += [f"the broker breaks {text}" for text in ruling.statements]
    reduced = tried.reduced.get(one.number)
    if reduced is not None:
        told.append(reduced.shell if tried.show_secrets else reduced.without_secrets(one)[1])
    body = content("\n".join(filter(None, told)))
    return (
        f"{head}>\n      <failure message={attribute(f'{ruling.verdict}: {ruling.why}')} "
        f"type={attribute(str(ruling.verdict))}>{body}</failure>\n    </testcase>\n"
    )


def sarif_log(runs: Iterable[Tried]) -> bytes:
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(one) for one in runs]}
    return line(log) + b"\n"


def _run(tried: Tried) -> dict[str, Any]:
    rules = [one for one in RANK if one in WORDS]
    driver = {
        **TOOL,
        "rules": [
            {
                "id": str(one),
                "shortDescription": {"text": WORDS[one]},
                "defaultConfiguration": {"level": LEVELS.get(one, "error")},
            }
            for one in rules
        ],
    }
    return {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not tried.stopped}],
        "results": [_result(one, tried, rules) for one in tried.deviations],
        "properties": summary_json(tried),
    }


def _result(one: CaseResult, tried: Tried, rules: list[Verdict]) -> dict[str, Any]:
    assert one.ruling is not None
    verdict = one.ruling.verdict
    statements = ", ".join(one.ruling.statements)
    told = f"{one.case.mutation.name}: {one.ruling.why}.{f' The broker breaks {statements}.' if statements else ''}"
    key = f"{utf8(tried.broker)} {one.case.mutation.name} {one.case.version.text} {verdict}"
    properties = case_json(one, tried)
    return {
        "ruleId": str(verdict),
        "ruleIndex": rules.index(verdict),
        "level": LEVELS.get(verdict, "error"),
        "message": {"text": plain(utf8(told))},
        "locations": [{"physicalLocation": physical(tried.capture.split(", ")[0], 1)}],
        "partialFingerprints": {"mqttscopeMutation/v1": sha256(key.encode()).hexdigest()[:32]},
        "properties": properties,
    }
