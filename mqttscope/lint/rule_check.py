"""Checks that a rule has the required form, and that its examples give the findings that they mark.

The tests of this project run these checks on the built-in rules; users can run them on their own rules.
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import statement
from mqttscope.lint.dispatch import CONDITIONS
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleConversation, Examples, chunkings, expected
from mqttscope.lint.finding import Confidence, Finding, Scope, Severity
from mqttscope.lint.model import Model
from mqttscope.lint.rule import Needs, Rule, Standard, failure_text
from mqttscope.lint.signs import SIGNS
from mqttscope.mqtt import ControlPacket, Direction, MalformedReason, ProtocolVersion, packets
from mqttscope.net.segment import Segment

CHECKS = (
    "check", "check_malformed", "check_damaged", "check_foreign", "check_unparsed", "check_opened", "check_gap",
    "check_due", "check_close",
)  # fmt: skip
MarkedField = tuple[int | None, str]
"""Number of a packet (``None`` for the connection) and field."""


def _is_any_of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def _class(base: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, type) and issubclass(value, base)


def _tuple(each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(each, value))


def _list(each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(each, value))


def _dict(key: Callable[[Any], bool], each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(key, value)) and all(map(each, value.values()))


def _either(*tests: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: any(test(value) for test in tests)


_TEXT, _NOTHING, _YES_OR_NO, _PACKET = _is_any_of(str), _is_any_of(type(None)), _is_any_of(bool), _class(ControlPacket)
_VERSION = _is_any_of(ProtocolVersion)
_SPECIFICATION = _is_any_of(ProtocolVersion, Standard)
_SIGN = SIGNS.__contains__
_ABOUT = ([type, str], [type, str, str])
DECLARED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "slug": (_TEXT, "a str"),
    "severities": (_tuple(_is_any_of(Severity)), "a tuple of Severity"),
    "once": (_either(_NOTHING, _is_any_of(Severity)), "a Severity or None"),
    "versions": (_tuple(_VERSION), "a tuple of versions, such as (V3_1_1, V5)"),
    "statements": (
        _dict(_SPECIFICATION, _dict(_TEXT, _TEXT)),
        'a dict by version (V3_1, V3_1_1, V5) of dicts, such as {V5: {"MQTT-3.3.1-4": "client publish"}}',
    ),
    "also": (
        _dict(_SPECIFICATION, _tuple(_TEXT)),
        'a dict by version (V3_1, V3_1_1, V5) of tuples, such as {V5: ("MQTT-3.3.1-4",)}',
    ),
    "reason_code": (_either(_NOTHING, _is_any_of(int)), "an int or None"),
    "since": (_TEXT, "a str"),
    "scope": (_is_any_of(Scope), "a Scope"),
    "looks_at": (
        _either(_PACKET, _tuple(_PACKET)), "a class of mqttscope.mqtt.packets, such as Publish, or a tuple of them"
    ),
    "sender": (_either(_NOTHING, _is_any_of(Direction)), "a Direction or None"),
    "when": (_either(_NOTHING, _TEXT, _dict(_PACKET, _TEXT)), "a str, a dict of str by packet class, or None"),
    "signs": (
        _either(_tuple(_SIGN), _dict(_PACKET, _tuple(_SIGN))),
        "a tuple of names of mqttscope.lint.signs.SIGNS, or a dict of them by packet class",
    ),
    "settled": (_YES_OR_NO, "True or False"),
    "waits": (_YES_OR_NO, "True or False"),
    "always": (_tuple(_PACKET), "a tuple of packet classes"),
    "malformed": (_tuple(_is_any_of(MalformedReason)), "a tuple of MalformedReason"),
    "needs": (_is_any_of(Needs), "a member of Needs, or several joined by |"),
    "version_matters": (_YES_OR_NO, "True or False"),
    "settings": (
        _dict(_TEXT, _either(_is_any_of(int, float, str), _list(_TEXT))),
        'a dict of numbers, texts or lists of texts by name, such as {"most": 3}',
    ),
    "reads_findings": (_YES_OR_NO, "True or False"),
    "models": (_tuple(_class(Model)), "a tuple of classes of mqttscope.lint.model.Model"),
    "about": (
        _either(_NOTHING, lambda value: _is_any_of(tuple)(value) and [*map(type, value)] in _ABOUT),
        "a tuple of one of the models and the names of one or two tables of it, or None",
    ),
    "Memory": (
        _either(_NOTHING, lambda value: _is_any_of(type)(value) and dataclasses.is_dataclass(value)),
        "a dataclass or None",
    ),
}  # fmt: skip
"""Types of the attributes of a rule, as tests and in words."""
_PACKETS = [cls for cls in vars(packets).values() if _PACKET(cls) and cls is not ControlPacket]


def faults_of_declarations(rule: type[Rule]) -> list[str]:
    """Attributes of a rule with a wrong type for the engine."""
    faults = [
        f"{name} has to be {expected}, and is {reprlib.repr(getattr(rule, name, None))}"
        for name, (test, expected) in DECLARED.items()
        if not test(getattr(rule, name, None))
    ]
    return faults or [*_faults_between(rule)]


def _faults_between(rule: type[Rule]) -> Iterator[str]:
    """Contradictions between attributes with the right types."""
    for kind in _PACKETS:
        name = rule.when.get(kind) if isinstance(rule.when, dict) else rule.when
        seen = rule.looks_at if issubclass(kind, rule.looks_at) and not issubclass(kind, rule.always) else None
        if seen and name and name not in CONDITIONS and not hasattr(kind, name.partition(".")[0]):
            yield f"when has to name an attribute of the packets that it looks at, and {kind.__name__} has no {name!r}"
            break
    if rule.about is not None and rule.about[0] not in rule.models:
        yield f"about has to begin with one of its models, and {rule.about[0].__name__} is not one"
    if rule.once is not None and not rule.implements("sum_up"):
        yield "it has no method sum_up, which gives the message of findings with the severity in once"
    if rule.Memory is not None:
        fields = dataclasses.fields(rule.Memory)
        bare = [row.name for row in fields if row.init and row.default is row.default_factory is dataclasses.MISSING]
        if bare:
            yield f"Memory is made without values, and its field {bare[0]} has no default"


def faults_of_form(rule: type[Rule]) -> list[str]:
    """Required parts that a rule lacks."""
    faults = faults_of_declarations(rule)
    if faults:
        return faults
    paragraphs = rule.paragraphs()
    if len(paragraphs) < 2 or not paragraphs[-1].startswith("Instead, "):
        faults.append(
            'its docstring is not one sentence, why that matters, and a last paragraph that begins with "Instead, "'
        )
    if not isinstance(getattr(rule, "severity", None), Severity):
        faults.append("it has no severity: a member of mqttscope.lint.finding.Severity")
    if not isinstance(rule.confidence, Confidence):
        faults.append("its confidence is not a member of mqttscope.lint.finding.Confidence")
    if not rule.malformed and not any(rule.implements(name) for name in CHECKS):
        faults.append(f"it has no check: one of {', '.join(CHECKS)}")
    elif rule.implements("check") and not rule.looks_at:
        faults.append("it does not declare which packets it looks at (looks_at)")
    for kind, content in (("good", "conversations without a finding"), ("bad", "conversations with a marked one")):
        examples = inspect.getattr_static(rule, kind, None)
        if isinstance(examples, Examples):
            continue  # read when they are tested or shown: linting reads no examples
        if not isinstance(examples, list) or not examples or not all(map(_is_any_of(ExampleConversation), examples)):
            faults.append(f"it has no {kind} examples: a list of {content}")
    for version, identifiers in rule.statements.items():
        faults += (
            f"unknown statement {version.text} {name}" for name in identifiers if statement(version, name) is None
        )
    return faults


def faults_of_examples(rule: type[Rule], others: Iterable[type[Rule]]) -> Iterator[str]:
    """Failures of a rule's examples when they are linted, in one piece and in several.

    A bad example must give exactly the marked findings; a good one no finding of the rule, no error of ``others``.
    """
    for example in rule.bad:
        wanted = _ordered(expected(example))
        if not wanted:
            yield f"bad example {example.title!r} has no mark"
        else:
            yield from _first(rule, f"bad example {example.title!r}", _bad(rule, example, wanted))
    everything = [*(other for other in others if other.code != rule.code), rule]
    for example in rule.good:
        if expected(example):
            yield f"good example {example.title!r} has a mark"
        else:
            yield from _first(rule, f"good example {example.title!r}", _good(rule, example, everything))


def _first(rule: type[Rule], where: str, faults: Iterator[str]) -> Iterator[str]:
    """The first fault of an example: a fault in one piece usually repeats in several pieces."""
    try:
        fault = next(faults, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        fault = failure_text(rule, error)
    if fault is not None:
        yield f"{where}: {fault}"


def _bad(rule: type[Rule], example: ExampleConversation, wanted: list[MarkedField]) -> Iterator[str]:
    for number, captured in enumerate(chunkings(example)):
        marks = _ordered(place for finding in _lint([rule(example.settings)], captured) for place in _places(finding))
        pieces = " when it is cut into pieces" if number else ""
        missing, extra = _without(wanted, marks), _without(marks, wanted)
        if missing:
            yield f"marked and not found{pieces}: {_listed(missing)}"
        if extra:
            yield f"found and not marked{pieces}: {_listed(extra)}"


def _good(rule: type[Rule], example: ExampleConversation, everything: list[type[Rule]]) -> Iterator[str]:
    for number, captured in enumerate(chunkings(example)):
        pieces = " when it is cut into pieces" if number else ""
        rules = [cls(example.settings if cls is rule else None) for cls in everything]
        for finding in _lint(rules, captured):
            if finding.rule == rule.code or finding.severity is Severity.ERROR:
                yield f"{finding.rule} finds{pieces}: {finding.message}"


def _lint(rules: list[Rule], captured: list[Segment]) -> list[Finding]:
    linter = Linter(rules, strict=True)
    return [finding for event in dissect_segments(captured) for finding in linter.feed(event)]


def _places(finding: Finding) -> list[MarkedField]:
    return [(finding.packet, place.field) for place in finding.places] or [(finding.packet, finding.field)]


def _ordered(places: Iterable[MarkedField]) -> list[MarkedField]:
    return sorted(places, key=lambda row: (row[0] is None, row[0] or 0, row[1]))


def _without(places: list[MarkedField], others: list[MarkedField]) -> list[MarkedField]:
    left = list(others)
    return [place for place in places if place not in left or left.remove(place)]  # type: ignore[func-returns-value]


def _listed(places: list[MarkedField]) -> str:
    return ", ".join(
        f"{field or 'the whole'} of {'the connection' if packet is None else f'packet {packet}'}"
        for packet, field in places
    )
