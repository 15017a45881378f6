"""Dispatch and signs: rules that are asked only where something may come of it find what they find when always asked.

What is compared are examples of all rules, all committed captures, and captures that were tampered with: bits turned,
segments lost, repeated, exchanged and late, clocks set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments
from mqttscope.dissect.dissector import segments
from mqttscope.lint import dispatch
from mqttscope.lint.catalogue import all_rules, instances
from mqttscope.lint.dispatch import PacketPlan, Question
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import client, conversation, opened, server
from mqttscope.lint.examples import segments as spoken
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import Findings, Rule
from mqttscope.lint.signs import ALL, BITS, SIGNS
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Pingreq, Puback, Publish
from mqttscope.net.segment import Segment
from tests.conftest import EXHAUSTIVE, ROOT
from tests.each import each, sampled

CAPTURES = sorted(ROOT.glob("captures/*/capture.pcapng"))
TAMPERED = 40 if EXHAUSTIVE else 1
"""Mutants of each capture."""
RULES = instances(all_rules().values())
SECOND_NS = 1_000_000_000


def found(source: Iterable[Any], *, thorough: bool) -> list[tuple[Any, ...]]:
    """What all rules find, whichever is asked."""
    linter = Linter(RULES, thorough=thorough)
    rows = [
        (
            finding.rule,
            finding.frame,
            finding.packet,
            finding.severity,
            finding.confidence,
            finding.field,
            finding.message,
            finding.count,
        )
        for event in dissect_segments(source)
        for finding in linter.feed(event)
    ]
    assert [(internal_error.rule, internal_error.error) for internal_error in linter.internal_errors] == []
    return [*rows, linter.withheld]  # type: ignore[list-item]


def same(source: list[Any]) -> None:
    """Both find the same, and the same is withheld."""
    assert found(source, thorough=False) == found(source, thorough=True)


@sampled("rule", all_rules().values(), ids=lambda rule: rule.code, every=4)
def test_the_examples_of_rules(rule: type[Rule]) -> None:
    for talk in (*rule.good, *rule.bad)[:: 1 if EXHAUSTIVE else 4]:
        same(list(spoken(talk)))


def read(path: Path) -> list[Any]:
    return list(segments(open_capture([path])))


@sampled("path", CAPTURES, ids=lambda path: path.parent.name, every=4)
def test_committed_captures(path: Path) -> None:
    same(read(path))


def tampered(source: list[Any], random: Random) -> list[Any]:
    """The segments of a capture with a few things changed."""
    result = list(source)
    places = [at for at, each in enumerate(result) if isinstance(each, Segment) and each.payload]
    for _ in range(random.randint(1, 5)):
        at = random.choice(places) if places else 0
        single_each = result[at] if places else None
        if not isinstance(single_each, Segment) or not single_each.payload:
            continue
        kind = random.randrange(7)
        if kind < 3:
            changed = bytearray(single_each.payload)
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
            result[at] = replace(single_each, payload=bytes(changed))
        elif kind == 3:
            result[at] = replace(single_each, payload=b"", flags=0)
        elif kind == 4:
            later = random.randrange(at, len(result))
            result[at], result[later] = result[later], result[at]
        elif kind == 5:
            result[at:at] = [single_each]
            places = [place + (place >= at) for place in places]
        else:
            by_ns = random.choice((-5, 40, 700)) * SECOND_NS
            result[at:] = [
                replace(late, timestamp_ns=late.timestamp_ns + by_ns) if isinstance(late, Segment) else late
                for late in result[at:]
            ]
    return result


@each("path", CAPTURES[:: 1 if EXHAUSTIVE else 2], ids=lambda path: path.parent.name)
def test_captures_that_were_tampered_with(path: Path) -> None:
    source = read(path)
    for seed in range(TAMPERED):
        same(tampered(source, Random(f"{path.parent.name} {seed}")))


def test_names_of_signs_and_conditions_have_bits_of_their_own() -> None:
    bits = [*SIGNS.values(), *(bit for name, bit in BITS.items() if name not in SIGNS)]

    assert len(set(bits)) == len(bits)
    assert all(bit & ALL and bit.bit_count() == 1 for bit in bits)


class Probe(Rule):
    """Reports every packet that it is asked about."""

    code = "TST190"
    severity = Severity.INFO
    looks_at: ClassVar[Any] = ControlPacket

    def check(self, packet: ControlPacket, at: Any) -> Findings:
        return self.report("", packet.packet_type.name)


def made(code: str, **attributes: Any) -> Rule:
    """A `Probe` with other attributes."""
    rule: Rule = type("Made", (Probe,), {"code": code, **attributes})()
    return rule


def asked(rule: Rule, *, thorough: bool = False) -> list[str]:
    talk = conversation(
        "x",
        *opened(keep_alive=10),
        client(Publish(topic_name="a"), Publish(topic_name="a", qos=1, packet_identifier=1)),
        server(Puback(1), Puback(2)),
        client(Pingreq(), after=40),
    )
    linter = Linter([rule], strict=True, thorough=thorough)
    return [finding.message for event in dissect_segments(spoken(talk)) for finding in linter.feed(event)]


def test_a_rule_is_asked_about_packets_with_one_of_its_signs() -> None:
    answers = (Puback, Pingreq)
    silent = made("TST191", signs=("silent",))
    either = made("TST192", signs=("silent", "odd_answer"), looks_at=answers)
    table = made("TST193", signs={Puback: ("odd_answer",)}, looks_at=answers)
    both = made("TST194", looks_at=Publish, when="qos", signs=("taken",))

    assert asked(silent) == ["PINGREQ"]
    assert asked(either) == ["PUBACK", "PINGREQ"]
    assert asked(table) == ["PUBACK", "PINGREQ"]
    assert asked(both) == []
    assert asked(both, thorough=True) == ["PUBLISH"]
    assert len(asked(Probe())) == 7


class Waits(Probe):
    """Waits at each packet for a time that comes before the last one, and reports that."""

    code = "TST195"

    def check(self, packet: ControlPacket, at: Any) -> Findings:
        at.ask(self, at.timestamp_ns + 10 * SECOND_NS)
        return self.report("", packet.packet_type.name)


def test_a_rule_that_waits_is_not_asked_meanwhile_where_it_says_so() -> None:
    class Waiting(Waits):
        code = "TST196"
        waits = True

        def check_due(self, connection: Any, at: Any) -> Findings:
            return self.report("", "due", overdue=True)

    every = ["CONNECT", "CONNACK", "PUBLISH", "PUBLISH", "PUBACK", "PUBACK", "due", "PINGREQ"]
    waits = Waiting()

    assert asked(waits) == ["CONNECT", "due", "PINGREQ"]
    assert asked(waits, thorough=True) == every


def test_what_is_asked_for_combinations_of_signs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_KINDS", 4)
    probe = Probe()
    plan = PacketPlan([Question(probe, probe.check, None, 0, 1)], [], [])

    assert [len(plan.plan_for(signs).questions) for signs in range(20)] == [0, 1] * 10
    assert len(plan.plan_for(ALL).questions) == 1
