"""Good flows of every version, and what a capture of a mutated one would hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

import pytest

from mqttscope.broker_test.export import answer
from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import ExampleConversation, segments
from mqttscope.lint.examples import ExampleStep as Said
from mqttscope.lint.finding import Finding
from mqttscope.lint.rule import Rule
from mqttscope.mqtt import ControlPacket, Direction, Malformed, MalformedReason, ProtocolVersion, decode, encode
from mqttscope.mutate import Chance, NotApplicableError, apply, mutation
from mqttscope.mutate.flow import CLIENT, SERVER, Action, MutatedFlow, RecordedFlow, RecordedPacket
from tests.replay.talk import packet

V3_1, V3_1_1, V5 = ProtocolVersion
DIRECTIONS = {CLIENT: Direction.CLIENT_TO_SERVER, SERVER: Direction.SERVER_TO_CLIENT}


def of_bytes(packets: Iterable[tuple[str, bytes]], version: ProtocolVersion) -> RecordedFlow:
    """A flow of ``(side, bytes of one packet)``."""
    return RecordedFlow([RecordedPacket(side == CLIENT, decode(raw, version), raw) for side, raw in packets], version)


def made(version: ProtocolVersion, *packets: tuple[str, ControlPacket]) -> RecordedFlow:
    """A flow of packets."""
    return of_bytes([(side, encode(packet, version)) for side, packet in packets], version)


def spoken(version: ProtocolVersion, text: str) -> RecordedFlow:
    """A flow in words: each line is who sends (``>`` the client), and a packet."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return made(
        version,
        *((CLIENT if row[0] == ">" else SERVER, packet("device1", row[1], row[2:], version)) for row in rows),
    )


GOOD = """
    > connect keep_alive=60 LIMITS
    < connack LIMITS
    > subscribe 1 in/#:2 other/+:1
    < suback 1 2 1
    > publish out/zero 0
    > publish out/one 1 qos=1 id=2
    < puback 2
    > publish out/two 2 qos=2 id=3
    < pubrec 3
    > pubrel 3
    < pubcomp 3
    < publish in/one a qos=1 id=1
    < publish in/one/more b qos=1 id=2
    > puback 1
    > puback 2
    < publish in/two c qos=2 id=3
    > pubrec 3
    < pubrel 3
    > pubcomp 3
    > pingreq
    < pingresp
    > unsubscribe 4 in/# other/+
    < unsuback 4 CODES
    > disconnect
"""


def good(version: ProtocolVersion) -> RecordedFlow:
    """A connection with every packet type that both sides send in any version, and nothing wrong."""
    limits, codes = ("topic_alias_maximum=5 receive_maximum=20", "0 0") if version == V5 else ("", "")
    return spoken(version, GOOD.replace("LIMITS", limits).replace("CODES", codes))


def limited() -> RecordedFlow:
    """A connection of 5.0 to a server that has little to offer."""
    limits = "maximum_qos=0 retain_available=0 maximum_packet_size=1000 wildcard_subscription_available=0"
    more = "subscription_identifier_available=0 shared_subscription_available=0"
    return spoken(
        V5,
        f"""
            > connect keep_alive=60
            < connack {limits} {more}
            > subscribe 1 in/one:0
            < suback 1 0
            > publish out/zero 0
            > disconnect
        """,
    )


def authenticated() -> RecordedFlow:
    """A connection of 5.0 with Enhanced Authentication, and a server that ends it."""
    text = """
        > connect keep_alive=60 METHOD
        < auth code=0x18 METHOD
        > auth code=0x18 METHOD
        < connack METHOD
        > publish out/zero 0
        < disconnect code=0x8b properties
    """
    return spoken(V5, text.replace("METHOD", "authentication_method=PLAIN"))


def conversation(case: MutatedFlow) -> ExampleConversation:
    """The steps of a case with the answers of the recording, or where they are new of a conforming peer."""
    other = SERVER if case.sender == CLIENT else CLIENT
    result: list[Said] = []
    after = 0.01
    for step in case.steps:
        if step.action is Action.PAUSE:
            after += step.nanoseconds / 1e9
            continue
        if step.action is Action.SEND and step.data:
            result.append(Said(case.sender, (step.data,), after))
        elif step.action is Action.AWAIT:
            data = step.data or answer(step, case.version)
            if data:
                result.append(Said(other, (data,), after))
        elif step.action in (Action.CLOSE, Action.HALF_CLOSE, Action.RESET):
            result.append(Said(case.sender, (), after, close="reset" if step.action is Action.RESET else "fin"))
        after = 0.01
    return ExampleConversation(case.mutation, tuple(result), case.version)


@dataclass(slots=True)
class Judged:
    """What the linter says about a case."""

    at_mutation: list[Finding] = field(default_factory=list)
    """Findings of packets that have bytes of the mutated steps."""
    behind: list[Finding] = field(default_factory=list)
    """Findings of later packets, and of the end."""
    before: list[Finding] = field(default_factory=list)

    @property
    def all(self) -> list[Finding]:
        """All of them."""
        return [*self.before, *self.at_mutation, *self.behind]


def _ranges(case: MutatedFlow) -> Iterator[tuple[int, int]]:
    """Where in the sender's stream the bytes of mutated steps are."""
    position = 0
    for step in case.steps:
        if step.action is Action.SEND:
            if step.mutated and step.data:
                yield position, position + len(step.data)
            position += len(step.data)


@cache
def judging() -> tuple[Rule, ...]:
    """All rules but those of practice."""
    return tuple(usual_rule(rule) for rule in all_rules().values() if not rule.is_practice())


def judge(case: MutatedFlow) -> Judged:
    """Lint a case; findings that blame the other side are left out."""
    ranges = list(_ranges(case))
    first = min((start for start, _ in ranges), default=0)
    judged = Judged()
    linter = Linter(judging(), strict=True)
    direction = DIRECTIONS[case.sender]
    position = 0
    for event in dissect_segments(segments(conversation(case))):
        start = end = -1
        if isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent) and event.direction is direction:
            if isinstance(event, PacketEvent):
                size = len(event.packet.raw)
            elif isinstance(event, MalformedEvent):
                size = len(event.malformed.raw)
            else:
                size = event.unparsed.length
            start, end = position, position + size
            position = end
        for finding in linter.feed(event):
            if finding.direction != direction:
                continue
            if start < 0:
                judged.behind.append(finding)
            elif any(start < last and begin < end for begin, last in ranges):
                judged.at_mutation.append(finding)
            else:
                (judged.behind if start >= first else judged.before).append(finding)
    return judged


def mutated(
    name: str, version: ProtocolVersion = V5, *, sender: str | None = None, flow: RecordedFlow | None = None
) -> MutatedFlow:
    """A mutation of the good flow, or of another one."""
    return apply(mutation(name), good(version) if flow is None else flow, Chance("test", name), sender=sender)


def packet_of(
    name: str, version: ProtocolVersion = V5, *, sender: str | None = None, flow: RecordedFlow | None = None
) -> bytes:
    """The bytes that a mutation puts in the place of a packet."""
    case = mutated(name, version, sender=sender, flow=flow)
    return case.steps[case.at].data


def reason(raw: bytes, version: ProtocolVersion = V5) -> MalformedReason | None:
    """Why a packet is malformed."""
    actual_packet = decode(raw, version)
    return actual_packet.reason if isinstance(actual_packet, Malformed) else None


def decoded(
    name: str, version: ProtocolVersion = V5, *, sender: str | None = None, flow: RecordedFlow | None = None
) -> Any:
    """What a receiver reads of the packet that a mutation makes."""
    return decode(packet_of(name, version, sender=sender, flow=flow), version)


def check_faults(faults: Mapping[str, MalformedReason], version: ProtocolVersion = V5) -> None:
    """What mutations make is malformed for these reasons, and for no other."""
    for name, wanted in faults.items():
        result = decoded(name, version)
        assert isinstance(result, Malformed), name
        assert {fault.reason for fault in result.faults} == {wanted}, name


def check_values(values: Mapping[str, object], version: ProtocolVersion = V5) -> None:
    """The field that a mutation is about has this value."""
    for name, wanted in values.items():
        assert attrgetter(mutation(name).field)(decoded(name, version)) == wanted, name


def check_not_applicable(
    name: str,
    version: ProtocolVersion = V5,
    *,
    sender: str | None = None,
    flow: RecordedFlow | None = None,
    match: str | None = None,
) -> None:
    """A flow has nothing for a mutation."""
    with pytest.raises(NotApplicableError, match=match):
        mutated(name, version, sender=sender, flow=flow)
