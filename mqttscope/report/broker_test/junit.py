"""JUnit XML: a suite per broker, a case per case; what could not be played is skipped."""

from __future__ import annotations

from collections.abc import Iterable

from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.report.base import Sink
from mqttscope.report.broker_test.outcome import Tried
from mqttscope.report.broker_test.text import numbered
from mqttscope.report.findings.junit import attribute, content


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
