"""Every rule against its own examples: they are its tests, and this file holds no rule's name."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.examples import ExampleConversation, chunkings, expected, segments
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import SPARKPLUG, Rule
from tests.conftest import EXHAUSTIVE
from tests.lint.lint_help import lint

RULES = all_rules()


# Not folded into one: `-k PUB209` runs the examples of a rule.
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def order(findings: Iterable[Finding]) -> list[tuple[int | None, str]]:
    """Packet and field of all that findings stand for, in a fixed order."""
    fields = ((finding.packet, field) for finding in findings for field in _fields(finding))
    return sorted(fields, key=lambda row: (row[0] is None, row[0] or 0, row[1]))


def _fields(finding: Finding) -> list[str]:
    assert finding.count == max(1, len(finding.places)), "no example has more places than are kept"
    return [place.field for place in finding.places] or [finding.field]


@each_rule
def test_a_bad_example_gives_exactly_the_marked_findings(rule: type[Rule]) -> None:
    assert rule.bad
    for example in rule.bad:
        wanted = sorted(expected(example), key=lambda row: (row[0] is None, row[0] or 0, row[1]))
        assert wanted, f"{example.title}: a bad example has a mark"
        for captured in chunkings(example):
            findings = lint([rule(example.settings)], captured)

            assert order(findings) == wanted, (example.title, [finding.message for finding in findings])


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=code, marks=[pytest.mark.long] * (at % 12 > 0))
        for at, (code, rule) in enumerate(RULES.items())
    ],
)
def test_nothing_is_an_error_in_a_good_example(rule: type[Rule]) -> None:
    assert rule.good
    for example in rule.good:
        assert not expected(example), f"{example.title}: a good example has no marks"
        own = rule(example.settings) if example.settings else usual_rule(rule)
        everything = [own if rule_class is rule else usual_rule(rule_class) for rule_class in RULES.values()]
        for captured in chunkings(example):
            findings = lint(everything, captured)
            wrong = [
                finding.rule for finding in findings if finding.severity is Severity.ERROR or finding.rule == rule.code
            ]

            assert wrong == [], example.title


@each_rule
def test_a_finding_points_into_its_packet_and_names_statements(rule: type[Rule]) -> None:
    for finding in (finding for example in rule.bad for finding in lint([rule(example.settings)], segments(example))):
        assert len(finding.fingerprint) == 32
        if finding.packet is not None:
            assert finding.offset is not None
            assert finding.length is not None
            assert 0 <= finding.offset <= finding.offset + finding.length <= len(finding.raw)
        version = next(version for version in rule.versions if version.text == finding.version)
        if rule.statements.get(version) or rule.statements.get(SPARKPLUG):
            assert finding.statements, "none of the statements applies to this finding"


SOME = [conversation for rule in RULES.values() for conversation in (*rule.good, *rule.bad)][:: 1 if EXHAUSTIVE else 5]


@pytest.mark.long
@pytest.mark.parametrize("example", SOME)
def test_findings_are_the_same_when_rules_run_alone(example: ExampleConversation) -> None:
    """Each rule that finds something by itself, and the others without these."""

    def result(rules: Iterable[type[Rule]]) -> set[str]:
        return {finding.fingerprint for finding in lint(map(usual_rule, rules), segments(example))}

    together = lint(map(usual_rule, RULES.values()), segments(example))
    loud = {finding.rule for finding in together}
    quiet = result(rule for rule in RULES.values() if rule.code not in loud and rule.code != "ERR202")

    assert quiet == set()
    for code in loud - {"ERR202"}:  # it looks at what the others found
        assert result([RULES[code]]) == {finding.fingerprint for finding in together if finding.rule == code}
