"""JUnit XML, for the test reports of CI servers: a suite per capture, a case per rule that ran.

A case fails when a finding of its rule makes the run fail (``--fail-on``, ``--fail-confidence``), so that a dashboard
is red when the exit code is 1; other findings are the output of a case that passes.  There is one ``failure`` element
with all findings, since some servers read no more than the first.  A suite ``mqttscope`` holds what went wrong with
the run itself: a capture cut short or not of the required quality, a rule that failed; rules whose findings were
withheld are skipped there.  So are all cases of a capture without a single MQTT packet: nothing was judged, so that
nothing passes.

Elements and attributes are those that both Jenkins and Surefire know: ``testsuites``, for one, has no ``skipped``.

Characters that XML 1.0 cannot hold, control characters and lone surrogates are written as escapes.
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
from mqttscope.report.findings.base import Summary, cited, covers, flow, message
from mqttscope.report.findings.shown import FileFormat, ShownFinding
from mqttscope.report.numbers import plural

MAX_TOLD = 100
"""Maximum number of findings of a case that are listed, for each severity and confidence; further ones are counted."""
RUN = "mqttscope"
TIME = ' time="0"'
"""Some servers want a time of everything; rules run all at once, so that none has one of its own."""

_Kind = tuple[Severity, Confidence]


@dataclass(slots=True)
class _Case:
    """Findings of one rule in one capture."""

    told: dict[_Kind, list[str]] = field(default_factory=lambda: defaultdict(list))
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
    """Gathers findings and writes the document at the end."""

    def __init__(self, sink: Sink, view: View) -> None:
        super().__init__(sink, view)
        self.found: dict[str, dict[str, _Case]] = {}

    def feed(self, shown: ShownFinding, suppressed: Suppression | None = None) -> None:
        """Keep the words of one finding."""
        cases = self.found.setdefault(shown.capture, {})
        if suppressed is not None:
            return
        case = cases.setdefault(shown.rule, _Case())
        kind = shown.severity, shown.confidence
        case.counts[kind] += 1
        case.occurrences[kind] += shown.occurrences
        if case.counts[kind] <= MAX_TOLD:
            finding = shown.finding
            statements = f" [{cited(finding)}]" if finding.statements else ""
            repeats = shown.repeats(self.painter)
            where = f"frame {finding.frame}, {flow(finding, self.painter)}"
            case.told[kind].append(
                f"{where}: {finding.severity} ({finding.confidence}): {message(finding, self.painter)}{statements}"
                + (f" ({repeats})" if repeats else "")
            )

    def close(self, summary: Summary) -> None:
        """Write the document."""
        rules = {rule.code: rule.slug for rule in summary.rules}
        for capture in summary.captures:
            if not any(covers(capture, known) for known in self.found):
                self.found[capture] = {}
        suites = [self._suite(capture, cases, rules, summary) for capture, cases in self.found.items()]
        suites.append(_run(summary))
        totals = _attributes(
            tests=sum(len(one.cases) for one in suites),
            failures=sum(one.failures for one in suites),
            errors=sum(one.errors for one in suites),
        )
        self.sink.write(f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="mqttscope"{totals}>\n'.encode())
        for one in suites:
            counts = _attributes(tests=len(one.cases), failures=one.failures, errors=one.errors, skipped=one.skipped)
            head = f"  <testsuite name={attribute(one.name)}{counts}{TIME}>\n"
            self.sink.write((head + "".join(one.cases) + "  </testsuite>\n").encode())
        self.sink.write(b"</testsuites>\n")

    def _suite(self, capture: str, cases: dict[str, _Case], rules: dict[str, str], summary: Summary) -> _Suite:
        suite = _Suite(capture)
        idle = summary.spoken is not None and not any(covers(capture, one) for one in summary.spoken)
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


def _body(case: _Case, failing: set[_Kind]) -> str:
    """The failure of a case, and as output what does not make the run fail."""
    body = ""
    for failed in (True, False):
        kinds = [kind for kind in case.counts if (kind in failing) is failed]
        if not kinds:
            continue
        told = [one for kind in kinds for one in case.told[kind]]
        left = sum(case.counts[kind] for kind in kinds) - len(told)
        text = "\n".join([*told, f"{left:,} more"] if left else told)
        if not failed:
            body += f"      <system-out>{content(text)}</system-out>\n"
            continue
        number, occurrences = (sum(of[kind] for kind in kinds) for of in (case.counts, case.occurrences))
        count = plural(number, "finding") + (f" ({occurrences:,} occurrences)" if occurrences != number else "")
        first = told[0] if told else ""
        worst = max((kind[0] for kind in kinds), key=lambda one: one.rank)
        body += (
            f"      <failure message={attribute(f'{count}; {first}')} type={attribute(worst)}>"
            f"{content(text)}</failure>\n"
        )
    return body


def _run(summary: Summary) -> _Suite:
    """What became of the run itself."""
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
        told = "\n".join(
            f"{one.rule}: {one.capture}, frame {one.frame}: {one.error}" for one in summary.internal_errors
        )
        body = _element("error", told, "internal")
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
        told = f"{plural(summary.hidden_failing, 'finding')} that make the run fail are below --min-severity"
        suite.cases.append(_case(RUN, "what fails is shown", _failure(told)))
    for code, number in sorted(summary.withheld.items()):
        suite.skipped += 1
        told = f"{plural(number, 'possible finding')} not shown: the captures lack what they need"
        suite.cases.append(_case(RUN, f"{code} had all that it needs", _element("skipped", told, "")))
    return suite


def _case(owner: str, name: str, body: str) -> str:
    head = f"    <testcase classname={attribute(owner)} name={attribute(name)}{TIME}"
    return f"{head}>\n{body}    </testcase>\n" if body else f"{head}/>\n"


def _element(tag: str, told: str, kind: str) -> str:
    of_type = f" type={attribute(kind)}" if kind else ""
    return f"      <{tag} message={attribute(told)}{of_type}/>\n"


def _failure(told: str) -> str:
    return f"      <failure message={attribute(told)} type={attribute('hidden')}>{content(told)}</failure>\n"


def _attributes(**numbers: int) -> str:
    return "".join(f' {name}="{number}"' for name, number in numbers.items())


def attribute(told: str) -> str:
    return quoteattr(_legal(told))


def content(told: str) -> str:
    return escape_xml("\n".join(map(_legal, told.split("\n"))))


def _legal(told: str) -> str:
    """Text that XML can hold: U+FFFE and U+FFFF are not printable either."""
    return escape(told)
