"""Good flows of every version, and what a capture of a mutated one would hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from mqttscope.broker_test.export import answer
from mqttscope.dissect import dissect_segments
from mqttscope.events import MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Conversation, segments
from mqttscope.lint.examples import Step as Said
from mqttscope.lint.finding import Finding
from mqttscope.lint.rule import Rule
from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Direction,
    Disconnect,
    Malformed,
    MalformedReason,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    decode,
    encode,
)
from mqttscope.mutate import Chance, apply, mutation
from mqttscope.mutate.flow import CLIENT, SERVER, Action, Entry, MutatedFlow, RecordedFlow

V3_1, V3_1_1, V5 = ProtocolVersion
DIRECTIONS = {CLIENT: Direction.CLIENT_TO_SERVER, SERVER: Direction.SERVER_TO_CLIENT}


def of_bytes(packets: Iterable[tuple[str, bytes]], version: ProtocolVersion) -> RecordedFlow:
    """A flow of ``(side, bytes of one packet)``."""
    return RecordedFlow([Entry(side == CLIENT, decode(raw, version), raw) for side, raw in packets], version)


def made(version: ProtocolVersion, *packets: tuple[str, ControlPacket]) -> RecordedFlow:
    """A flow of packets."""
    return of_bytes([(side, encode(packet, version)) for side, packet in packets], version)


def good(version: ProtocolVersion) -> RecordedFlow:
    """A connection with every packet type that both sides send in any version, and nothing wrong."""
    five = version == V5
    block = Properties() if five else None
    name = "MQIsdp" if version == V3_1 else "MQTT"
    connect = Connect(
        protocol_name=name,
        protocol_level=version.value,
        keep_alive=60,
        client_identifier="device1",
        properties=Properties(topic_alias_maximum=5, receive_maximum=20) if five else None,
    )
    limits = Properties(topic_alias_maximum=5, receive_maximum=20) if five else None
    return made(
        version,
        (CLIENT, connect),
        (SERVER, Connack(session_present=False, properties=limits)),
        (
            CLIENT,
            Subscribe(
                packet_identifier=1,
                properties=block,
                subscriptions=[Subscription("in/#", 2), Subscription("other/+", 1)],
            ),
        ),
        (SERVER, Suback(packet_identifier=1, properties=block, reason_codes=[2, 1])),
        (CLIENT, Publish(topic_name="out/zero", payload=b"0", properties=block)),
        (CLIENT, Publish(topic_name="out/one", qos=1, packet_identifier=2, payload=b"1", properties=block)),
        (SERVER, Puback(packet_identifier=2)),
        (CLIENT, Publish(topic_name="out/two", qos=2, packet_identifier=3, payload=b"2", properties=block)),
        (SERVER, Pubrec(packet_identifier=3)),
        (CLIENT, Pubrel(packet_identifier=3)),
        (SERVER, Pubcomp(packet_identifier=3)),
        (SERVER, Publish(topic_name="in/one", qos=1, packet_identifier=1, payload=b"a", properties=block)),
        (SERVER, Publish(topic_name="in/one/more", qos=1, packet_identifier=2, payload=b"b", properties=block)),
        (CLIENT, Puback(packet_identifier=1)),
        (CLIENT, Puback(packet_identifier=2)),
        (SERVER, Publish(topic_name="in/two", qos=2, packet_identifier=3, payload=b"c", properties=block)),
        (CLIENT, Pubrec(packet_identifier=3)),
        (SERVER, Pubrel(packet_identifier=3)),
        (CLIENT, Pubcomp(packet_identifier=3)),
        (CLIENT, Pingreq()),
        (SERVER, Pingresp()),
        (CLIENT, Unsubscribe(packet_identifier=4, properties=block, topic_filters=["in/#", "other/+"])),
        (SERVER, Unsuback(packet_identifier=4, properties=block, reason_codes=[0, 0] if five else None)),
        (CLIENT, Disconnect()),
    )


def limited() -> RecordedFlow:
    """A connection of 5.0 to a server that has little to offer."""
    told = Properties(
        maximum_qos=0,
        retain_available=0,
        maximum_packet_size=1_000,
        wildcard_subscription_available=0,
        subscription_identifier_available=0,
        shared_subscription_available=0,
    )
    none = Properties()
    return made(
        V5,
        (CLIENT, Connect(protocol_level=5, keep_alive=60, client_identifier="device1", properties=none)),
        (SERVER, Connack(session_present=False, properties=told)),
        (CLIENT, Subscribe(packet_identifier=1, properties=none, subscriptions=[Subscription("in/one", 0)])),
        (SERVER, Suback(packet_identifier=1, properties=none, reason_codes=[0])),
        (CLIENT, Publish(topic_name="out/zero", payload=b"0", properties=none)),
        (CLIENT, Disconnect()),
    )


def authenticated() -> RecordedFlow:
    """A connection of 5.0 with Enhanced Authentication, and a server that ends it."""
    method = Properties(authentication_method="PLAIN")
    return made(
        V5,
        (CLIENT, Connect(protocol_level=5, keep_alive=60, client_identifier="device1", properties=method)),
        (SERVER, Auth(reason_code=0x18, properties=method)),
        (CLIENT, Auth(reason_code=0x18, properties=method)),
        (SERVER, Connack(session_present=False, properties=method)),
        (CLIENT, Publish(topic_name="out/zero", payload=b"0", properties=Properties())),
        (SERVER, Disconnect(reason_code=0x8B, properties=Properties())),
    )


def conversation(case: MutatedFlow) -> Conversation:
    """The steps of a case with the answers of the recording, or where they are new of a conforming peer."""
    other = SERVER if case.sender == CLIENT else CLIENT
    said: list[Said] = []
    after = 0.01
    for step in case.steps:
        if step.action is Action.PAUSE:
            after += step.nanoseconds / 1e9
            continue
        if step.action is Action.SEND and step.data:
            said.append(Said(case.sender, (step.data,), after))
        elif step.action is Action.AWAIT:
            data = step.data or answer(step, case.version)
            if data:
                said.append(Said(other, (data,), after))
        elif step.action in (Action.CLOSE, Action.HALF_CLOSE, Action.RESET):
            said.append(Said(case.sender, (), after, close="reset" if step.action is Action.RESET else "fin"))
        after = 0.01
    return Conversation(case.mutation, tuple(said), case.version)


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
    found = decode(raw, version)
    return found.reason if isinstance(found, Malformed) else None
