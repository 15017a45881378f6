"""What the snap length cut away proves nothing: no rule may take it for absent.

Every good example is captured again with frames cut short, all of them at one length or one of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.context import WIDE
from mqttscope.lint.examples import ExampleConversation, client, conversation, opened, segments
from mqttscope.lint.finding import Finding, Severity
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.net.segment import Segment
from tests.lint.lint_help import lint

RULES = all_rules()
QUICK, EXHAUSTIVE = 149, 13
"""One cut of so many is tried; prime, so that it falls on other places in each example."""


def cut(segment: Segment, length: int) -> Segment:
    """A segment of which the capture has the first bytes only."""
    raw = segment.payload[:length]
    return replace(segment, payload=raw, missing=len(segment.payload) - len(raw))


def captures(example: ExampleConversation) -> Iterator[Callable[[], list[Segment]]]:
    """The example with every frame cut at each length, and with each frame cut alone; made when they are called."""
    whole = segments(example)
    for length in range(max((len(segment.payload) for segment in whole), default=0)):
        yield partial(_all_cut, whole, length)
    for index, segment in enumerate(whole):
        for length in range(len(segment.payload)):
            yield partial(_one_cut, whole, index, length)


def _all_cut(whole: list[Segment], length: int) -> list[Segment]:
    return [cut(segment, length) for segment in whole]


def _one_cut(whole: list[Segment], index: int, length: int) -> list[Segment]:
    return [*whole[:index], cut(whole[index], length), *whole[index + 1 :]]


def is_upgrade(example: ExampleConversation) -> bool:
    """Whether the example begins with an HTTP upgrade, without which what follows is not known to be WebSocket."""
    return any(step.silent for step in example.steps)


def errors(captured: list[Segment], rule: type[Rule], example: ExampleConversation) -> list[Finding]:
    """What is found at severity error."""
    own = rule(example.settings) if example.settings else usual_rule(rule)
    findings = lint([own if rule_class is rule else usual_rule(rule_class) for rule_class in RULES.values()], captured)
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def connects(captured: list[Segment]) -> int:
    """How many connections are known from their CONNECT."""
    packets = (event.packet for event in dissect_segments(captured) if isinstance(event, PacketEvent))
    return sum(isinstance(control_packet, Connect) and not control_packet.missing for control_packet in packets)


EXAMPLES = [
    (rule, conversation) for rule in RULES.values() for conversation in rule.good if not is_upgrade(conversation)
]


def try_cuts(every: int) -> None:
    number = 0
    for rule, example in EXAMPLES:
        known = connects(segments(example)) if rule.scope in WIDE else 0
        for make in captures(example):
            number += 1
            if number % every == 0:
                captured = make()
                if rule.scope in WIDE and connects(captured) < known:
                    # Who is not known might as well not be captured: what rests on others is likely at most.
                    continue
                pairs = [(error.rule, error.message) for error in errors(captured, rule, example)]
                lengths = [(len(segment.payload), segment.missing) for segment in captured]
                assert pairs == [], (rule.code, example.title, lengths)


@pytest.mark.long
def test_a_cut_packet_makes_no_error() -> None:
    try_cuts(QUICK)


@pytest.mark.exhaustive
def test_no_cut_makes_an_error() -> None:
    try_cuts(EXHAUSTIVE)


@pytest.mark.parametrize("length", [2, 4, 5, 8])
def test_a_topic_alias_that_was_cut_is_not_missing(length: int) -> None:
    talk = conversation(
        "aliases",
        *opened(connack=Properties(topic_alias_maximum=5)),
        client(Publish(topic_name="a/b", properties=Properties(topic_alias=1))),
        client(Publish(properties=Properties(topic_alias=1), payload=b"x" * 200)),
    )
    captured = segments(talk)
    index = next(place for place, segment in enumerate(captured) if len(segment.payload) > 200)
    captured[index] = cut(captured[index], length)

    assert errors(captured, RULES["PUB104"], talk) == []


def test_a_cut_disconnect_may_be_why_the_server_closed_inside_a_packet() -> None:
    good = RULES["ENC107"].good
    talk = next(example for example in good if "after the client's DISCONNECT" in example.title)
    captured = segments(talk)
    index = next(place for place, segment in enumerate(captured) if segment.payload[:1] == b"\xe0")
    captured[index] = cut(captured[index], 0)

    assert errors(captured, RULES["ENC107"], talk) == []
