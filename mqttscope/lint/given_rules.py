"""The rules that a program passes in: some by name, others as classes or instances."""

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
    own_rules: Iterable[type[Rule] | Rule] = (),
    timing: Timing = Timing.NORMAL,
) -> list[Rule]:
    """The instances of the rules to run, in the order of their codes.

    The names are for ``--select``, ``--extend-select`` and ``--ignore``, and may name rules of ``own_rules``.  These
    run too unless they are ignored, with their own settings; other rules use the waiting times of ``timing``.
    `UnknownRuleError` for a name without a rule, `ArgumentError` as in `given_rules`.
    """
    instances = {rule.code: rule for rule in given_rules(own_rules)}
    chosen = select(selected, extended, ignored, beside={code: type(rule) for code, rule in instances.items()})
    return [instances.get(code) or rule(None, timing) for code, rule in chosen.items()]


def given_rules(rules: Iterable[type[Rule] | Rule]) -> list[Rule]:
    """Rules that a program passes in: its own ones, and catalogue rules with other settings.

    `ArgumentError` names what the engine needs and a rule lacks, or a setting that the rule does not have.
    """
    if isinstance(rules, str | bytes | Rule) or not isinstance(rules, Iterable):
        raise ArgumentError(f"rules takes a list of classes or instances of rules, not {reprlib.repr(rules)}")
    by_code: dict[str, Rule] = {}
    for passed in rules:
        rule = passed if isinstance(passed, type) else type(passed)
        if not issubclass(rule, Rule):
            raise ArgumentError(f"{passed!r} is not a rule: pass its class, or an instance of it")
        code = getattr(rule, "code", None)
        faults = [] if isinstance(code, str) and code else ["it has no code, such as OWN101"]
        if not isinstance(getattr(rule, "severity", None), Severity):
            faults.append("it has no severity: a member of mqttscope.lint.finding.Severity")
        if code in by_code or all_rules().get(str(code), rule) is not rule:
            faults.append(f"{code} is the code of another rule")
        faults += faults_of_declarations(rule) or (_faults_of_settings(passed) if isinstance(passed, Rule) else ())
        if faults:
            raise ArgumentError(f"{rule.__name__}: {'; '.join(faults)}")
        by_code[rule.code] = passed if isinstance(passed, Rule) else rule()
    return list(by_code.values())


def _faults_of_settings(rule: Rule) -> Iterator[str]:
    """Mistakes in the settings of an instance."""
    known, settings = type(rule).settings, getattr(rule, "set", None)
    if not isinstance(settings, dict):
        yield "it has no settings: its __init__ has to call Rule.__init__"
        return
    for name, value in settings.items():
        if name not in known:
            yield f"{name!r} is not one of its settings; it has {', '.join(known) or 'none'}"
        elif value is not known[name] and (fault := fault_of_setting(type(rule), name, value)) is not None:
            yield f"the setting {name} {fault}"


def refuse_none(rules: Sequence[Rule], **names: Sequence[str]) -> None:
    """`ArgumentError` if no rule is left, with the arguments that name rules."""
    if not rules:
        causes = " and ".join(f"{argument}={list(codes)}" for argument, codes in names.items() if codes)
        raise ArgumentError(f"{causes}: no rule is left to check with")


def selected_names(select: Iterable[str], argument: str = "select") -> tuple[str, ...]:
    """As `names_of`; `ArgumentError` for an empty list, which would select the default rules."""
    names = names_of(select, argument)
    if not names and not isinstance(select, tuple):
        raise ArgumentError(f"{argument}=[]: no rule is left to check with; omit {argument} for the default rules")
    return names


def names_of(names: Iterable[str], argument: str = "") -> tuple[str, ...]:
    """Names of rules; a single text is one name.

    ``argument``: name of the argument in the error message.  `ArgumentError` for anything but a list of texts.
    """
    if isinstance(names, str):
        return (names,)
    named = tuple(names) if isinstance(names, Iterable) else None
    if named is None or not all(isinstance(name, str) for name in named):
        takes = f"{argument} takes" if argument else "select, extend_select and ignore take"
        shown = reprlib.repr(names if named is None else list(named))
        raise ArgumentError(f'{takes} a list of codes, prefixes or names of rules, as ["PUB101"], not {shown}')
    return named
