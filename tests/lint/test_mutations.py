"""For each rule of packet scope that reports errors, some automatic mutation of a good packet triggers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, Step, segments, step_bytes
from mqttscope.lint.finding import Scope, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import ProtocolVersion
from tests.lint.mutants import mutants

RULES = [
    rule
    for rule in all_rules().values()
    if rule.scope is Scope.PACKET and rule.severity is Severity.ERROR and not rule.code.startswith("PRF")
]

UNREACHED: dict[str, str] = {}
"""Rules that no mutation of their good examples triggers, with the reason."""


def mutated(talk: Conversation) -> Iterator[tuple[str, Conversation]]:
    """The conversation with one packet mutated, in every way."""
    version: ProtocolVersion = talk.version
    for number, step in enumerate(talk.steps):
        parts, version = step_bytes(step, version)
        for index, raw in enumerate(parts):
            if step.silent or packet_end(raw, 0, len(raw))[1] != len(raw):
                continue
            for name, mutant in mutants(raw, version):
                changed: Step = dataclasses.replace(
                    step, packets=(*parts[:index], mutant, *parts[index + 1 :]), marks=()
                )
                steps = (*talk.steps[:number], changed, *talk.steps[number + 1 :])
                yield f"step {number}, {name}", dataclasses.replace(talk, steps=steps, version=version)


def trigger(rule: type[Rule]) -> str | None:
    """The name of a mutation that makes the rule report an error."""
    for talk in rule.good:
        for name, changed in mutated(talk):
            linter = Linter([rule(talk.settings)], strict=True)
            for event in dissect_segments(segments(changed)):
                if any(one.severity is Severity.ERROR for one in linter.feed(event)):
                    return name
    return None


def test_there_are_such_rules() -> None:
    assert len(RULES) >= 40


@pytest.mark.parametrize("rule", RULES, ids=[rule.code for rule in RULES])
def test_a_mutation_of_a_good_packet_triggers_the_rule(rule: type[Rule]) -> None:
    if rule.code in UNREACHED:
        pytest.skip(UNREACHED[rule.code])

    assert trigger(rule) is not None


def test_the_rules_that_none_triggers_really_are_untriggered() -> None:
    assert [rule.code for rule in RULES if rule.code in UNREACHED and trigger(rule) is not None] == []
