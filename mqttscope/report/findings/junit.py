"""JUnit XML for the test reports of CI servers: a suite per capture, a case per rule that ran.

A case fails when a finding of its rule makes the run fail (``--fail-on``, ``--fail-confidence``), so that a dashboard
is red when the exit code is 1; other findings are the output of a passed case.  A single ``failure`` element contains
all findings, since some servers read only the first.  The suite ``mqttscope`` reports problems of the run itself: a
capture cut short or below the required quality, a rule that failed.  Rules with withheld findings are skipped there.
All cases of a capture without MQTT packets are skipped too: nothing was judged, so nothing passes.

Only elements and attributes that both Jenkins and Surefire accept are written; ``testsuites`` has no ``skipped``.

Characters that XML 1.0 does not allow, such as control characters and lone surrogates, are written as escapes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from xml.sax.saxutils import escape as escape_xml
from xml.sax.saxutils import quoteattr

from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import Suppression
from mqttscope.report.base import Sink, View
from mqttscope.report.escape import escape
from mqttscope.report.findings.base import RunSummary, cited, covers, flow, message
from mqttscope.report.findings.shown import FileFormat, ShownFinding
from mqttscope.report.numbers import plural

MAX_TOLD = 100
"""Maximum number of findings of a case that are listed, for each severity and confidence; further ones are counted."""
RUN = "mqttscope"
TIME = ' time="0"'
"""Some servers require a time everywhere; rules run together and have no time of their own."""

_Kind = tuple[Severity, Confidence]


@dataclass(slots=True)
class _RuleCase:
    """Findings of one rule in one capture."""

    texts: dict[_Kind, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[_Kind, int] = field(default_factory=lambda: defaultdict(int))
    occurrences: dict[_Kind, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class _Suite:
    name: str
    cases: list[str] = field(default_factory=list)
    failures: int = 0
    errors: int = 0
    skipped: int = 0


class JUnit(FileFormat):
    """Collects findings and writes the document at the end."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.cases_by_capture: dict[str, dict[str, _RuleCase]] = {}

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Keep the text of a finding."""
        cases = self.cases_by_capture.setdefault(shown.capture, {})
        if suppressed is not None:
            return
        case = cases.setdefault(shown.rule, _RuleCase())
        kind = shown.severity, shown.confidence
        case.counts[kind] += 1
        case.occurrences[kind] += shown.occurrences
        if case.counts[kind] <= MAX_TOLD:
            finding = shown.finding
            statements = f" [{cited(finding)}]" if finding.statements else ""
            repeats = shown.repeats(self.painter)
            where = f"frame {finding.frame}, {flow(finding, self.painter)}"
            case.texts[kind].append(
                f"{where}: {finding.severity} ({finding.confidence}): {message(finding, self.painter)}{statements}"
                + (f" ({repeats})" if repeats else "")
            )

    def close(self, summary: RunSummary) -> None:
        """Write the document."""
        rules = {rule.code: rule.slug for rule in summary.rules}
        for capture in summary.captures:
            if not any(covers(capture, known) for known in self.cases_by_capture):
                self.cases_by_capture[capture] = {}
        suites = [self._suite(capture, cases, rules, summary) for capture, cases in self.cases_by_capture.items()]
        suites.append(_run(summary))
        totals = _attributes(
            tests=sum(len(suite.cases) for suite in suites),
            failures=sum(suite.failures for suite in suites),
            errors=sum(suite.errors for suite in suites),
        )
        self.sink.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="mqttscope"{totals}>\n'.encode())
        for suite in suites:
            counts = _attributes(
                tests=len(suite.cases), failures=suite.failures, errors=suite.errors, skipped=suite.skipped
            )
            head = f"  <testsuite name={attribute(suite.name)}{counts}{TIME}>\n"
            self.sink.write((head + "".join(suite.cases) + "  </testsuite>\n").encode())
        self.sink.write(b"</testsuites>\n")

    def _suite(self, capture: str, cases: dict[str, _RuleCase], rules: dict[str, str], summary: RunSummary) -> _Suite:
        suite = _Suite(capture)
        idle = summary.spoken is not None and not any(covers(capture, spoken) for spoken in summary.spoken)
        for code in sorted({*rules, *cases}):
            case = cases.get(code)
            body, failing = "", set[_Kind]()
            if case is not None:
                failing = {kind for kind in case.counts if summary.breaks(*kind)}
                body = _body(case, failing)
                suite.failures += bool(failing)
            if idle and not failing:
                body = _element("skipped", "no MQTT packet to judge", "") + body
                suite.skipped += 1
            suite.cases.append(_case(capture, f"{code} {rules.get(code, '')}".rstrip(), body))
        return suite


def _body(case: _RuleCase, failing: set[_Kind]) -> str:
    """The failing findings of a case as a failure, the others as its output."""
    body = ""
    for failed in (True, False):
        kinds = [kind for kind in case.counts if (kind in failing) is failed]
        if not kinds:
            continue
        texts = [text for kind in kinds for text in case.texts[kind]]
        left = sum(case.counts[kind] for kind in kinds) - len(texts)
        text = "\n".join([*texts, f"{left:,} more"] if left else texts)
        if not failed:
            body += f"      <system-out>{content(text)}</system-out>\n"
            continue
        number, occurrences = (sum(of[kind] for kind in kinds) for of in (case.counts, case.occurrences))
        count = plural(number, "finding") + (f" ({occurrences:,} occurrences)" if occurrences != number else "")
        first = texts[0] if texts else ""
        worst = max((kind[0] for kind in kinds), key=lambda severity: severity.rank)
        body += (
            f"      <failure message={attribute(f'{count}; {first}')} type={attribute(worst)}>"
            f"{content(text)}</failure>\n"
        )
    return body


def _run(summary: RunSummary) -> _Suite:
    suite = _Suite(RUN)
    broken = ", ".join(summary.quality.errors) if summary.truncated else ""
    body = ""
    if summary.truncated:
        suite.errors += 1
        body = _element("error", f"a capture could not be read to its end: {broken}", "capture")
    suite.cases.append(_case(RUN, "captures were read to their end", body))
    body = ""
    if summary.internal_errors:
        suite.errors += 1
        text = "\n".join(
            f"{error.rule}: {error.capture}, frame {error.frame}: {error.error}" for error in summary.internal_errors
        )
        body = _element("error", text, "internal")
    suite.cases.append(_case(RUN, "rules ran to their end", body))
    if summary.packets is not None:
        body = ""
        if summary.nothing and summary.required:
            suite.errors += 1
            body = _element("error", summary.nothing, "packets")
        elif summary.nothing:
            suite.skipped += 1
            body = _element("skipped", summary.nothing, "")
        suite.cases.append(_case(RUN, "there was something to judge", body))
    if summary.required_quality is not None:
        body = ""
        if summary.shortfalls:
            suite.errors += 1
            causes = [shortfall.sentence(summary.required_quality) for shortfall in summary.shortfalls]
            body = _element("error", "\n".join(causes), "quality")
        suite.cases.append(_case(RUN, f"captures are {summary.required_quality}", body))
    if summary.hidden_failing:
        suite.failures += 1
        text = f"{plural(summary.hidden_failing, 'finding')} that fail the run are below --min-severity"
        suite.cases.append(_case(RUN, "no failing finding is hidden", _failure(text)))
    for code, number in sorted(summary.withheld.items()):
        suite.skipped += 1
        text = f"{plural(number, 'possible finding')} not shown: the captures lack what they need"
        suite.cases.append(_case(RUN, f"{code} had all that it needs", _element("skipped", text, "")))
    return suite


def _case(owner: str, name: str, body: str) -> str:
    head = f"    <testcase classname={attribute(owner)} name={attribute(name)}{TIME}"
    return f"{head}>\n{body}    </testcase>\n" if body else f"{head}/>\n"


def _element(tag: str, text: str, kind: str) -> str:
    of_type = f" type={attribute(kind)}" if kind else ""
    return f"      <{tag} message={attribute(text)}{of_type}/>\n"


def _failure(text: str) -> str:
    return f"      <failure message={attribute(text)} type={attribute('hidden')}>{content(text)}</failure>\n"


def _attributes(**numbers: int) -> str:
    return "".join(f' {name}="{number}"' for name, number in numbers.items())


def attribute(text: str) -> str:
    return quoteattr(_legal(text))


def content(text: str) -> str:
    return escape_xml("\n".join(map(_legal, text.split("\n"))))


def _legal(text: str) -> str:
    """Text with escapes for characters that XML does not allow; U+FFFE and U+FFFF are not printable either."""
    return escape(text)
