"""Mutations and linter tell the same: what a mutation says it breaks is found, and what is legal is left in peace.

The two know the specification independently: mutations have their own tables of statements, rules have theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Scope, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mutate import Chance, FlowVerdict, Mutation, NotApplicableError, RecordedFlow, apply, catalogue, select
from mqttscope.mutate.catalogue import BEFORE_THE_LEVEL, cited_instead, matches
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, MutatedFlow, recorded_steps
from tests.mutate.pinned import flows_of
from tests.mutate.talk import authenticated, good, judge, limited

FLOWS = {version.text: good(version) for version in ProtocolVersion}
SPECIAL = {"limited": limited(), "authenticated": authenticated()}
"""Flows of 5.0 for what the plain one has not: only the mutations that it has nothing for."""

SAID_OTHERWISE = {
    ("3.1.1", "flow:identifier-in-use-qos-2", "3.1.1 MQTT-4.3.3-1"): "ACK202 has it in `also` and cites QoS 1 only",
    ("3.1", "publish:dup-on-first-transmission-qos-1", "3.1 V31-PUBLISH-dup-on-resend"): "PUB208 cites nothing in 3.1",
    ("3.1", "publish:dup-on-first-transmission-qos-2", "3.1 V31-PUBLISH-dup-on-resend"): "PUB208 cites nothing in 3.1",
    ("5.0", "auth.reason_code:of-server-00", "5.0 V5-AUTH-sender"): "AUT205 knows the step (MQTT-4.12.0-3)",
    ("5.0", "auth.reason_code:of-client-19", "5.0 V5-AUTH-sender"): "AUT205 knows the step (MQTT-4.12.0-2)",
}
"""Statements that no finding names, with what the linter says instead."""

SLOW = ("flow:every-identifier",)
"""Right, but too much for every run of the tests."""

CAPTURES = (
    "v31-qos",
    "v311-qos",
    "v311-will",
    "v5-qos",
    "v5-publish-properties",
    "v5-connect-properties",
    "v5-enhanced-auth",
    "v5-topic-alias-client",
)


def errors(case: MutatedFlow) -> list[str]:
    """What the linter reports as errors of the mutating side."""
    return [f"{finding.rule} {finding.message}" for finding in judge(case).all if finding.severity is Severity.ERROR]


def said_otherwise(version: str, name: str) -> set[str]:
    """Statements that a mutation breaks and no finding names."""
    return {text for reported_text, of, text in SAID_OTHERWISE if (reported_text, of) == (version, name)}


USUAL: dict[tuple[int, str], list[str]] = {}
"""Errors of flows as they were recorded."""


def usual(flow: RecordedFlow, side: str) -> list[str]:
    """What the linter reports as errors of a side that changes nothing."""
    key = id(flow), side
    if key not in USUAL:
        USUAL[key] = errors(MutatedFlow("", side, flow.version, recorded_steps(flow, side)))
    return USUAL[key]


def problem(mutation: Mutation, flow: RecordedFlow, side: str) -> str | None:
    """What is wrong with what the linter says about a mutation of a flow; ``None`` where all is well."""
    return problem_of(mutation, apply(mutation, flow, Chance("closed loop", mutation.name), sender=side), flow, side)


def problem_of(mutation: Mutation, case: MutatedFlow, flow: RecordedFlow, side: str) -> str | None:
    """The same where the mutation is made."""
    verdict = mutation.verdict(flow.version, side)
    if verdict is FlowVerdict.OPEN:
        return None
    if verdict is FlowVerdict.LEGAL:
        wrong = [text for text in errors(case) if text not in usual(flow, side)]
        return f"{mutation.name} ({side}) is legal, found: {wrong[:3]}" if wrong else None
    judged = judge(case)
    if judged.before and flow.capture_hash == "":
        return f"{mutation.name} ({side}): found before the mutation: {judged.before[0].message}"
    result = {
        text for each in (*judged.at_mutation, *(judged.behind if mutation.later else ())) for text in each.statements
    }
    wanted = set(mutation.broken(flow.version, side))
    instead = cited_instead(mutation, flow.version, side)
    if instead and result.issuperset(instead):
        return None
    excused = said_otherwise(flow.version.text, mutation.name)
    if excused & result and flow.capture_hash == "":
        return f"{mutation.name} ({side}) is in the table of what is said otherwise, and is said as it should be"
    wanted -= excused
    missing = wanted - result
    return f"{mutation.name} ({side}) breaks {sorted(missing)}, found {sorted(result)}" if missing else None


MADE: dict[tuple[int, str, str], MutatedFlow | None] = {}
"""What mutations make of the flows that many tests have; ``None`` where there is nothing for one."""
KEPT = {id(flow) for flow in (*FLOWS.values(), *SPECIAL.values())}


def made(mutation: Mutation, flow: RecordedFlow, side: str) -> MutatedFlow | None:
    """What a mutation makes of a flow, where that has something for it."""
    key = id(flow), side, mutation.name
    if key in MADE:
        return MADE[key]
    try:
        case = apply(mutation, flow, Chance("closed loop", mutation.name), sender=side)
    except NotApplicableError:
        case = None
    if id(flow) in KEPT:
        MADE[key] = case
    return case


def applicable(flow: RecordedFlow, side: str, pattern: str = "*") -> Iterator[tuple[Mutation, MutatedFlow]]:
    """Mutations that a flow has something for, and what they make of it."""
    for mutation in select(pattern, version=flow.version, sender=side):
        if mutation.name not in SLOW and (case := made(mutation, flow, side)) is not None:
            yield mutation, case


def problems(flow: RecordedFlow, side: str, pattern: str = "*") -> list[str]:
    """All that is wrong with a flow's mutations."""
    every = (problem_of(mutation, case, flow, side) for mutation, case in applicable(flow, side, pattern))
    return [text for text in every if text is not None]


FAMILIES = (
    "connect",
    "connack",
    "publish",
    "puback,pubrec",
    "pubrel,pubcomp",
    "subscribe,unsubscribe",
    "suback,unsuback",
    "pingreq,pingresp,disconnect,auth",
    "flow,random",
)


def test_every_mutation_is_in_a_family() -> None:
    assert [
        mutation.name for mutation in catalogue() if not any(matches(mutation.name, words) for words in FAMILIES)
    ] == []


@pytest.mark.long
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("version", FLOWS)
def test_the_linter_finds_what_is_broken_and_nothing_else(version: str, family: str, side: str) -> None:
    assert problems(FLOWS[version], side, family) == []


@pytest.mark.long
@pytest.mark.parametrize(("name", "side"), [("limited", CLIENT), ("authenticated", CLIENT), ("authenticated", SERVER)])
def test_the_linter_finds_what_only_special_flows_can_break(name: str, side: str) -> None:
    known = {mutation.name for mutation, _ in applicable(FLOWS["5.0"], side)}
    flow = SPECIAL[name]
    others = [(mutation, case) for mutation, case in applicable(flow, side) if mutation.name not in known]

    assert others
    assert [
        text for text in (problem_of(mutation, case, flow, side) for mutation, case in others) if text is not None
    ] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", FLOWS)
@pytest.mark.parametrize("name", SLOW)
def test_the_slow_ones_are_right_too(name: str, version: str) -> None:
    assert problem(next(iter(select(name))), FLOWS[version], CLIENT) is None


@pytest.mark.long
@pytest.mark.slow
def test_every_rule_about_single_packets_is_broken_by_some_mutation() -> None:
    """Mutations know the fields of MQTT alone, so rules about Sparkplug are left out."""
    wanted = {
        code: rule
        for code, rule in all_rules().items()
        if rule.scope is Scope.PACKET and rule.severity is Severity.ERROR and not code.startswith(("PRF", "SPB"))
    }
    # First those mutations that say to break what a rule is about, then all that are left.
    for telling in (True, False):
        for flow in (*FLOWS.values(), *SPECIAL.values()):
            for side in SIDES:
                for mutation, case in applicable(flow, side) if wanted else ():
                    if told(wanted.values(), flow, mutation.broken(flow.version, side)) is not telling:
                        continue
                    for finding in judge(case).all:
                        wanted.pop(finding.rule, None)
    assert wanted == {}


def told(rules: Iterable[type[Rule]], flow: RecordedFlow, broken: Iterable[str]) -> bool:
    """Whether a mutation of a flow says to break a statement of one of these rules."""
    version = flow.version
    statements = {f"{version.text} {text}" for rule in rules for text in rule.statements.get(version, {})}
    return not statements.isdisjoint(broken)


def recorded(name: str) -> RecordedFlow:
    """The longest connection of a committed capture."""
    return max(flows_of(name), key=lambda flow: len(flow.entries))


def wrong_with(name: str, part: int | None) -> list[str]:
    """What is wrong with the mutations of a recorded flow: with all of them, or with every tenth."""
    flow = recorded(name)
    texts = [
        problem_of(mutation, case, flow, side)
        for side in SIDES
        for place, (mutation, case) in enumerate(applicable(flow, side))
        if part in (None, place % 10)
    ]
    return [text for text in texts if text is not None]


@pytest.mark.long
@pytest.mark.parametrize("name", CAPTURES)
def test_it_is_so_with_recorded_flows(name: str) -> None:
    """A tenth of the catalogue for each side, another one for each capture."""
    assert wrong_with(name, CAPTURES.index(name)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CAPTURES)
def test_it_is_so_with_all_mutations_of_recorded_flows(name: str) -> None:
    assert wrong_with(name, None) == []


def test_the_tables_name_mutations_that_exist() -> None:
    names = [mutation.name for mutation in catalogue()]
    for pattern in (*BEFORE_THE_LEVEL.split(","), *SLOW, *(name for _, name, _ in SAID_OTHERWISE)):
        assert any(matches(name, pattern) for name in names), pattern


@pytest.mark.long
def test_every_mutation_has_a_flow_that_it_is_tried_on() -> None:
    tried = {
        mutation.name
        for flow in (*FLOWS.values(), *SPECIAL.values())
        for side in SIDES
        for mutation, _ in applicable(flow, side)
    }
    untried = {mutation.name for mutation in catalogue()} - tried - set(SLOW)
    # A packet of two bytes has no Remaining Length but 0.
    assert {name.partition(".")[0] for name in untried} <= {"pingreq", "pingresp"}
