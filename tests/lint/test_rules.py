"""Every rule against its own examples: they are its tests, and this file holds no rule's name."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.examples import Conversation, chunkings, expected, segments
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import Rule
from tests.conftest import EXHAUSTIVE
from tests.lint.lint_help import lint

RULES = all_rules()


# Not folded into one: `-k PUB209` runs the examples of a rule.
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def order(findings: Iterable[Finding]) -> list[tuple[int | None, str]]:
    """Packet and field of all that findings stand for, in a fixed order."""
    fields = ((one.packet, field) for one in findings for field in _fields(one))
    return sorted(fields, key=lambda row: (row[0] is None, row[0] or 0, row[1]))


def _fields(one: Finding) -> list[str]:
    assert one.count == max(1, len(one.places)), "no example has more places than are kept"
    return [place.field for place in one.places] or [one.field]


@each_rule
def test_a_bad_example_gives_exactly_the_marked_findings(rule: type[Rule]) -> None:
    assert rule.bad
    for example in rule.bad:
        wanted = sorted(expected(example), key=lambda row: (row[0] is None, row[0] or 0, row[1]))
        assert wanted, f"{example.title}: a bad example has a mark"
        for captured in chunkings(example):
            found = lint([rule(example.settings)], captured)

            assert order(found) == wanted, (example.title, [one.message for one in found])


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
        everything = [own if one is rule else usual_rule(one) for one in RULES.values()]
        for captured in chunkings(example):
            found = lint(everything, captured)
            wrong = [one.rule for one in found if one.severity is Severity.ERROR or one.rule == rule.code]

            assert wrong == [], example.title


@each_rule
def test_a_finding_points_into_its_packet_and_names_statements(rule: type[Rule]) -> None:
    for one in (found for example in rule.bad for found in lint([rule(example.settings)], segments(example))):
        assert len(one.fingerprint) == 32
        if one.packet is not None:
            assert one.offset is not None
            assert one.length is not None
            assert 0 <= one.offset <= one.offset + one.length <= len(one.raw)
        version = next(version for version in rule.versions if version.text == one.version)
        if rule.statements.get(version):
            assert one.statements, "none of the statements applies to this finding"


SOME = [one for rule in RULES.values() for one in (*rule.good, *rule.bad)][:: 1 if EXHAUSTIVE else 5]


@pytest.mark.long
@pytest.mark.parametrize("example", SOME)
def test_findings_are_the_same_when_rules_run_alone(example: Conversation) -> None:
    """Each rule that finds something by itself, and the others without these."""

    def found(rules: Iterable[type[Rule]]) -> set[str]:
        return {one.fingerprint for one in lint(map(usual_rule, rules), segments(example))}

    together = lint(map(usual_rule, RULES.values()), segments(example))
    loud = {one.rule for one in together}
    quiet = found(rule for rule in RULES.values() if rule.code not in loud and rule.code != "ERR202")

    assert quiet == set()
    for code in loud - {"ERR202"}:  # it looks at what the others found
        assert found([RULES[code]]) == {one.fingerprint for one in together if one.rule == code}
