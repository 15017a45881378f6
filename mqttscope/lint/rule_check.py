"""Checks that a rule has the form that all rules have, and that its examples give the findings that they mark.

The tests of this project run these checks on its own rules; here rules from elsewhere can be checked the same way.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import statement
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, chunkings, expected
from mqttscope.lint.finding import Confidence, Finding, Severity
from mqttscope.lint.rule import Rule
from mqttscope.net.segment import Segment

CHECKS = (
    "check", "check_malformed", "check_damaged", "check_foreign", "check_unparsed", "check_opened", "check_gap",
    "check_due", "check_close",
)  # fmt: skip
Place = tuple[int | None, str]
"""Number of a packet (``None`` for the connection) and field."""


def faults_of_form(rule: type[Rule]) -> list[str]:
    """What a rule lacks that every rule has."""
    found = []
    paragraphs = rule.paragraphs()
    if len(paragraphs) < 2 or not paragraphs[-1].startswith("Instead, "):
        found.append(
            'its docstring is not one sentence, why that matters, and a last paragraph that begins with "Instead, "'
        )
    if not isinstance(getattr(rule, "severity", None), Severity):
        found.append("it has no severity: a member of mqttscope.lint.finding.Severity")
    if not isinstance(rule.confidence, Confidence):
        found.append("its confidence is no member of mqttscope.lint.finding.Confidence")
    if not rule.malformed and not any(rule.implements(name) for name in CHECKS):
        found.append(f"it has no check: one of {', '.join(CHECKS)}")
    elif rule.implements("check") and not rule.looks_at:
        found.append("it does not say which packets it looks at (looks_at)")
    for kind, what in (("good", "conversations without a finding"), ("bad", "conversations with a marked one")):
        examples = getattr(rule, kind, None)
        if not isinstance(examples, list) or not examples or not all(isinstance(one, Conversation) for one in examples):
            found.append(f"it has no {kind} examples: a list of {what}")
    for version, identifiers in rule.statements.items():
        found += (
            f"there is no statement {version.text} {one}" for one in identifiers if statement(version, one) is None
        )
    return found


def faults_of_examples(rule: type[Rule], others: Iterable[type[Rule]]) -> Iterator[str]:
    """What goes wrong when the examples of a rule are linted, in one piece and in several.

    A bad example gives exactly the marked findings; a good one no finding of the rule, and no error of the ``others``.
    """
    for example in rule.bad:
        wanted = _ordered(expected(example))
        if not wanted:
            yield f"bad example {example.title!r} has no mark"
        else:
            yield from _first(f"bad example {example.title!r}", _bad(rule, example, wanted))
    everything = [*(one for one in others if one.code != rule.code), rule]
    for example in rule.good:
        if expected(example):
            yield f"good example {example.title!r} has a mark"
        else:
            yield from _first(f"good example {example.title!r}", _good(rule, example, everything))


def _first(where: str, faults: Iterator[str]) -> Iterator[str]:
    """The first fault of an example: what is wrong in one piece is wrong in several too."""
    try:
        told = next(faults, None)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    if told is not None:
        yield f"{where}: {told}"


def _bad(rule: type[Rule], example: Conversation, wanted: list[Place]) -> Iterator[str]:
    for number, captured in enumerate(chunkings(example)):
        found = _ordered(place for one in _lint([rule(example.settings)], captured) for place in _places(one))
        pieces = " when it is cut into pieces" if number else ""
        missing, extra = _without(wanted, found), _without(found, wanted)
        if missing:
            yield f"marked and not found{pieces}: {_told(missing)}"
        if extra:
            yield f"found and not marked{pieces}: {_told(extra)}"


def _good(rule: type[Rule], example: Conversation, everything: list[type[Rule]]) -> Iterator[str]:
    for number, captured in enumerate(chunkings(example)):
        pieces = " when it is cut into pieces" if number else ""
        rules = [one(example.settings if one is rule else None) for one in everything]
        for one in _lint(rules, captured):
            if one.rule == rule.code or one.severity is Severity.ERROR:
                yield f"{one.rule} finds{pieces}: {one.message}"


def _lint(rules: list[Rule], captured: list[Segment]) -> list[Finding]:
    linter = Linter(rules, strict=True)
    return [finding for event in dissect_segments(captured) for finding in linter.feed(event)]


def _places(one: Finding) -> list[Place]:
    return [(one.packet, place.field) for place in one.places] or [(one.packet, one.field)]


def _ordered(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda row: (row[0] is None, row[0] or 0, row[1]))


def _without(places: list[Place], others: list[Place]) -> list[Place]:
    left = list(others)
    return [one for one in places if one not in left or left.remove(one)]  # type: ignore[func-returns-value]


def _told(places: list[Place]) -> str:
    return ", ".join(
        f"{field or 'the whole'} of {'the connection' if packet is None else f'packet {packet}'}"
        for packet, field in places
    )
