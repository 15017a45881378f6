"""The rules that a program asks for: some by name, others as classes or instances."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence

from mqttscope.errors import ArgumentError
from mqttscope.lint.catalogue import all_rules, select
from mqttscope.lint.config import fault_of_setting
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Rule, Timing
from mqttscope.lint.rule_check import faults_of_declarations


def chosen_rules(
    selected: Sequence[str],
    extended: Sequence[str],
    ignored: Sequence[str],
    given: Iterable[type[Rule] | Rule] = (),
    timing: Timing = Timing.NORMAL,
) -> list[Rule]:
    """The rules that run, ready made, in the order of their codes.

    The names are those of ``--select``, ``--extend-select`` and ``--ignore``, and may be those of ``given``: these run
    as well unless they are ignored, each with the settings that it has; others wait as ``timing`` says.
    `UnknownRuleError` for a name that stands for no rule, `ArgumentError` as `given_rules`.
    """
    made = {rule.code: rule for rule in given_rules(given)}
    chosen = select(selected, extended, ignored, beside={code: type(rule) for code, rule in made.items()})
    return [made.get(code) or rule(None, timing) for code, rule in chosen.items()]


def given_rules(given: Iterable[type[Rule] | Rule]) -> list[Rule]:
    """Rules that a program has: its own, and those of the catalogue with other settings.

    `ArgumentError` says what one lacks that the engine relies on, and which setting it does not have.
    """
    if isinstance(given, str | bytes | Rule) or not isinstance(given, Iterable):
        raise ArgumentError(f"rules takes a list of classes or instances of rules, not {reprlib.repr(given)}")
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
        faults += faults_of_declarations(rule) or (_faults_of_settings(one) if isinstance(one, Rule) else ())
        if faults:
            raise ArgumentError(f"{rule.__name__}: {'; '.join(faults)}")
        found[rule.code] = one if isinstance(one, Rule) else rule()
    return list(found.values())


def _faults_of_settings(rule: Rule) -> Iterator[str]:
    """What is wrong with the settings that an instance was made with."""
    known, given = type(rule).settings, getattr(rule, "set", None)
    if not isinstance(given, dict):
        yield "it has no settings: its __init__ has to call that of Rule"
        return
    for name, value in given.items():
        if name not in known:
            yield f"{name!r} is no setting of it; it has {', '.join(known) or 'none'}"
        elif value is not known[name] and (fault := fault_of_setting(type(rule), name, value)) is not None:
            yield f"the setting {name} {fault}"


def refuse_none(rules: Sequence[Rule], **names: Sequence[str]) -> None:
    """`ArgumentError` when no rule is left, with the arguments that name rules."""
    if not rules:
        causes = " and ".join(f"{argument}={list(codes)}" for argument, codes in names.items() if codes)
        raise ArgumentError(f"{causes}: no rule is left to check with")


def selected_names(select: Iterable[str], argument: str = "select") -> tuple[str, ...]:
    """As `names_of`; `ArgumentError` for an empty list, which would select the usual rules."""
    names = names_of(select, argument)
    if not names and not isinstance(select, tuple):
        raise ArgumentError(f"{argument}=[]: no rule is left to check with; leave {argument} out for the usual rules")
    return names


def names_of(given: Iterable[str], argument: str = "") -> tuple[str, ...]:
    """Names of rules; a text alone is one.

    ``argument``: the argument of the caller that they are given as.  `ArgumentError` for what is no list of texts.
    """
    if isinstance(given, str):
        return (given,)
    named = tuple(given) if isinstance(given, Iterable) else None
    if named is None or not all(isinstance(one, str) for one in named):
        takes = f"{argument} takes" if argument else "select, extend_select and ignore take"
        shown = reprlib.repr(given if named is None else list(named))
        raise ArgumentError(f'{takes} a list of codes, prefixes or names of rules, as ["PUB101"], not {shown}')
    return named
