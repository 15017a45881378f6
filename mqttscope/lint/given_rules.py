"""The rules that a program asks for: some by name, others as classes or instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mqttscope.errors import ArgumentError
from mqttscope.lint.catalogue import all_rules, select
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Rule
from mqttscope.lint.rule_check import faults_of_declarations


def chosen_rules(
    selected: Sequence[str], extended: Sequence[str], ignored: Sequence[str], given: Iterable[type[Rule] | Rule] = ()
) -> list[Rule]:
    """The rules that run, ready made, in the order of their codes.

    The names are those of ``--select``, ``--extend-select`` and ``--ignore``, and may be those of ``given``: these run
    as well unless they are ignored, each with the settings that it has.  `UnknownRuleError` for a name that stands for
    no rule, `ArgumentError` as `given_rules`.
    """
    made = {rule.code: rule for rule in given_rules(given)}
    chosen = select(selected, extended, ignored, beside={code: type(rule) for code, rule in made.items()})
    return [made.get(code) or rule() for code, rule in chosen.items()]


def given_rules(given: Iterable[type[Rule] | Rule]) -> list[Rule]:
    """Rules that a program has: its own, and those of the catalogue with other settings.

    `ArgumentError` says what one lacks that the engine relies on.
    """
    found: dict[str, Rule] = {}
    for one in given:
        rule = one if isinstance(one, type) else type(one)
        if not issubclass(rule, Rule):
            raise ArgumentError(f"{one!r} is no rule: give its class, or an instance of that")
        code = getattr(rule, "code", None)
        faults = [] if isinstance(code, str) and code else ["it has no code, such as OWN101"]
        if not isinstance(getattr(rule, "severity", None), Severity):
            faults.append("it has no severity: a member of mqttscope.lint.finding.Severity")
        if code in found or all_rules().get(str(code), rule) is not rule:
            faults.append(f"{code} is the code of another rule")
        faults += faults_of_declarations(rule)
        if faults:
            raise ArgumentError(f"{rule.__name__}: {'; '.join(faults)}")
        found[rule.code] = one if isinstance(one, Rule) else rule()
    return list(found.values())


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """Names of rules; a text alone is one."""
    return (given,) if isinstance(given, str) else tuple(given)
