"""Results of a broker test for CI systems: JUnit XML and SARIF 2.1.0.

JUnit has a suite per broker and a test case per case; a case that could not be played is skipped.  SARIF has a run per
broker, a rule per verdict and a result per deviation.  The location of a result is the recorded capture; case, seed
and hash in its properties identify the case.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import BrokerVerdict
from mqttscope.mqtt.view import utf8
from mqttscope.report.base import Sink
from mqttscope.report.broker_test.outcome import RANK, BrokerRun, case_json, summary_json
from mqttscope.report.broker_test.text import numbered
from mqttscope.report.findings.json import line
from mqttscope.report.findings.junit import attribute, content
from mqttscope.report.findings.sarif import SCHEMA, TOOL, physical, plain

WORDS = {
    BrokerVerdict.CRASHED: "The broker crashes.",
    BrokerVerdict.HUNG: "The broker accepts connections but serves no client.",
    BrokerVerdict.COLLATERAL: "Another client is disturbed.",
    BrokerVerdict.LEAKED: "The broker's memory grows each time.",
    BrokerVerdict.REFUSED_LEGAL: "The broker refuses what it has to accept.",
    BrokerVerdict.TOLERATED: "The specification demands that the broker closes, and it does not.",
    BrokerVerdict.NO_ANSWER: "The broker neither sends the required answer nor closes.",
    BrokerVerdict.WRONG_REASON: "The broker closes with a reason other than the specification requires.",
}
LEVELS = {BrokerVerdict.TOLERATED: "warning", BrokerVerdict.NO_ANSWER: "warning", BrokerVerdict.WRONG_REASON: "note"}
"""Levels of SARIF; all other verdicts are errors."""


def write_junit(sink: Sink, runs: Iterable[BrokerRun]) -> None:
    """Write the document."""
    suites = list(runs)
    tests = sum(len(run.results) for run in suites)
    failures = sum(len(run.deviations) for run in suites)
    sink.write(b'<?xml version="1.0" encoding="UTF-8"?>\n')
    sink.write(f'<testsuites name="mqttscope mutate" tests="{tests}" failures="{failures}" errors="0">\n'.encode())
    for run in suites:
        sink.write(_suite(run).encode())
    sink.write(b"</testsuites>\n")


def _suite(run: BrokerRun) -> str:
    counts = f'tests="{len(run.results)}" failures="{len(run.deviations)}" errors="0"'
    head = f'  <testsuite name={attribute(run.broker)} {counts} time="{run.seconds:.3f}">\n'
    return head + "".join(_case(result, run) for result in run.results) + "  </testsuite>\n"


def _case(result: CaseResult, run: BrokerRun) -> str:
    assert result.ruling is not None
    name = f"{result.case.mutation.name} ({', '.join([*numbered(result), result.case.version.text])})"
    head = f'    <testcase classname={attribute(run.broker)} name={attribute(name)} time="{result.seconds:.3f}"'
    if not result.deviates:
        return f"{head}/>\n"
    ruling = result.ruling
    texts = [result.case.mutation.description, f"{ruling.verdict}: {ruling.why}"]
    texts += [f"the flow breaks {text}" for text in result.case.statements]
    texts += [f"the broker breaks {text}" for text in ruling.statements]
    reduced = run.reduced.get(result.number)
    if reduced is not None:
        texts.append(reduced.shell if run.show_secrets else reduced.without_secrets(result)[1])
    body = content("\n".join(filter(None, texts)))
    return (
        f"{head}>\n      <failure message={attribute(f'{ruling.verdict}: {ruling.why}')} "
        f"type={attribute(str(ruling.verdict))}>{body}</failure>\n    </testcase>\n"
    )


def sarif_log(runs: Iterable[BrokerRun]) -> bytes:
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(run) for run in runs]}
    return line(log) + b"\n"


def _run(run: BrokerRun) -> dict[str, Any]:
    rules = [verdict for verdict in RANK if verdict in WORDS]
    driver = {
        **TOOL,
        "rules": [
            {
                "id": str(verdict),
                "shortDescription": {"text": WORDS[verdict]},
                "defaultConfiguration": {"level": LEVELS.get(verdict, "error")},
            }
            for verdict in rules
        ],
    }
    return {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not run.stopped}],
        "results": [_result(result, run, rules) for result in run.deviations],
        "properties": summary_json(run),
    }


def _result(result: CaseResult, run: BrokerRun, rules: list[BrokerVerdict]) -> dict[str, Any]:
    assert result.ruling is not None
    verdict = result.ruling.verdict
    statements = ", ".join(result.ruling.statements)
    broken = f" The broker breaks {statements}." if statements else ""
    text = f"{result.case.mutation.name}: {result.ruling.why}.{broken}"
    key = f"{utf8(run.broker)} {result.case.mutation.name} {result.case.version.text} {verdict}"
    properties = case_json(result, run)
    return {
        "ruleId": str(verdict),
        "ruleIndex": rules.index(verdict),
        "level": LEVELS.get(verdict, "error"),
        "message": {"text": plain(utf8(text))},
        "locations": [{"physicalLocation": physical(run.capture.split(", ")[0], 1)}],
        "partialFingerprints": {"mqttscopeMutation/v1": sha256(key.encode()).hexdigest()[:32]},
        "properties": properties,
    }
