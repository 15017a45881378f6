"""Cases: one mutation applied to one flow, reproducible byte for byte.

The hash of the capture, the connection, the seed and the case number identify a case.  Numbers do not depend on the
selected mutations: a case keeps its number under every pattern.

`exceeded_limit` names the announced limit that a packet exceeds: such a mutation is not legal (5.0
3.1.2.11, 3.2.2.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mqttscope.mqtt.codec import decode, encode, packet_end
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connack, Disconnect, Publish, Subscribe
from mqttscope.mutate.catalogue import matches, select
from mqttscope.mutate.catalogue import mutation as mutation_by_name
from mqttscope.mutate.flow import (
    CLIENT,
    SERVER,
    Action,
    Change,
    FlowStep,
    MutatedFlow,
    RecordedFlow,
    RecordedPacket,
    differences,
    recorded_steps,
)
from mqttscope.mutate.mutation import (
    Chance,
    FlowTarget,
    FlowVerdict,
    Mutation,
    NotApplicableError,
    PacketTarget,
    Reaction,
    exists_in,
    refuse,
    target_at,
)
from mqttscope.mutate.samples import sample
from mqttscope.mutate.steps import ending_index, free_identifiers, opening_index


def exceeded_limit(data: bytes, target: PacketTarget) -> str:
    """The announced limit that the packet exceeds, in words, or empty."""
    if target.version != ProtocolVersion.V5:
        return ""
    size = target.limit("maximum_packet_size", 0)
    if size and len(data) > size:
        return f"Maximum Packet Size {size}"
    packet = decode(data, target.version)
    if target.sender == SERVER and not isinstance(packet, Publish | Connack | Disconnect | Malformed):
        block = getattr(packet, "properties", None)
        diagnostic = block and (block.user_property or block.reason_string is not None)
        if diagnostic and not target.limit("request_problem_information", 1):
            return "Request Problem Information 0"
    if isinstance(packet, Publish):
        return _publish(packet, target)
    return _subscribe(packet, target) if isinstance(packet, Subscribe) else ""


def _publish(packet: Publish, target: PacketTarget) -> str:
    alias = packet.properties.topic_alias if packet.properties else None
    if alias is not None and alias > target.limit("topic_alias_maximum", 0):
        return "a lower Topic Alias Maximum"
    if target.sender == CLIENT and packet.qos > target.limit("maximum_qos", 2):
        return "a lower Maximum QoS"
    if target.sender == CLIENT and packet.retain and not target.limit("retain_available", 1):
        return "Retain Available 0"
    return ""


def _subscribe(packet: Subscribe, target: PacketTarget) -> str:
    filters = [row.topic_filter for row in packet.subscriptions]
    if not target.limit("wildcard_subscription_available", 1) and any("+" in text or "#" in text for text in filters):
        return "Wildcard Subscription Available 0"
    if not target.limit("shared_subscription_available", 1) and any(text.startswith("$share/") for text in filters):
        return "Shared Subscription Available 0"
    identified = bool(packet.properties and packet.properties.subscription_identifier)
    if identified and not target.limit("subscription_identifier_available", 1):
        return "Subscription Identifier Available 0"
    return ""


_PUT_IN = (
    PacketType.PUBLISH,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.PINGREQ,
    PacketType.DISCONNECT,
)
"""Packet types that a client may send on any open connection: if the flow lacks one, it is inserted and mutated."""


@dataclass(slots=True)
class MutationCase:
    """One mutation, applied to one flow."""

    number: int
    seed: int
    capture_hash: str
    connection: int
    mutation: Mutation
    flow: MutatedFlow

    @property
    def version(self) -> ProtocolVersion:
        return self.flow.version

    @property
    def statements(self) -> tuple[str, ...]:
        return self.mutation.broken(self.version, self.flow.sender)

    @property
    def verdict(self) -> FlowVerdict:
        return self.mutation.verdict(self.version, self.flow.sender)

    @property
    def reaction(self) -> Reaction:
        return self.mutation.reaction_in(self.version, self.flow.sender)


def apply(mutation: Mutation, flow: RecordedFlow, chance: Chance, *, sender: str | None = None) -> MutatedFlow:
    """Apply a mutation to a flow; raises `NotApplicableError` if the flow has nothing to mutate.

    ``sender`` is the side that sends the mutated flow; by default the first one of the mutation.
    """
    side = mutation.senders[0] if sender is None else sender
    if side not in mutation.senders or flow.version not in mutation.versions:
        raise NotApplicableError(f"{mutation.name} cannot be sent by a {side} of MQTT {flow.version.text}")
    if mutation.change_flow is not None:
        view = FlowTarget(flow, side, chance, recorded_steps(flow, side))
        steps = mutation.change_flow(view)
        changes = tuple(Change(step.entry, mutation.field, 0, b"", step.data) for step in steps if _new(step))
        return MutatedFlow(mutation.name, side, flow.version, steps, changes)
    return _apply_to_packet(mutation, flow, chance, side)


def _new(step: FlowStep) -> bool:
    return step.mutated and step.entry is None and step.action is Action.SEND


def _apply_to_packet(mutation: Mutation, flow: RecordedFlow, chance: Chance, side: str) -> MutatedFlow:
    assert mutation.change_packet is not None
    reason = NotApplicableError(f"the {side} sends no packet that {mutation.name} can change")
    for index in chance.shuffled(flow.places(side, mutation.packet_type)):
        try:
            data = _changed(mutation, target_at(flow, index, chance))
        except NotApplicableError as error:
            reason = error
            continue
        steps = recorded_steps(flow, side)
        steps[index] = replace(steps[index], data=data, mutated=True)
        before = flow.entries[index].raw
        body = packet_end(before, 0, len(before))[0]
        changes = differences(index, mutation.field, before, data, body)
        return MutatedFlow(mutation.name, side, flow.version, steps, changes)
    if flow.places(side, mutation.packet_type) or side != CLIENT or mutation.packet_type not in _PUT_IN:
        raise reason
    return _insert_packet(mutation, flow, chance, side)


def _insert_packet(mutation: Mutation, flow: RecordedFlow, chance: Chance, side: str) -> MutatedFlow:
    """Insert a packet that the flow lacks on the open connection, and mutate it."""
    assert mutation.packet_type is not None
    steps = recorded_steps(flow, side)
    view = FlowTarget(flow, side, chance, steps)
    first, last = opening_index(view), ending_index(view)
    at = last if mutation.packet_type == PacketType.DISCONNECT else first + chance.below(last - first + 1)
    packet = sample(mutation.packet_type, flow.version, free_identifiers(view, 1)[0])
    raw = encode(packet, flow.version)
    added = RecordedPacket(True, packet, raw)
    longer = replace(flow, entries=[*flow.entries[:at], added, *flow.entries[at:]])
    data = _changed(mutation, target_at(longer, at, chance))
    steps.insert(at, FlowStep(Action.SEND, data, mutated=True))
    if mutation.packet_type == PacketType.DISCONNECT:
        del steps[at + 1 :]
    return MutatedFlow(mutation.name, side, flow.version, steps, (Change(None, mutation.field, 0, b"", data),))


def _changed(mutation: Mutation, target: PacketTarget) -> bytes:
    refuse(not exists_in(target.packet, target.version, target.sender), "the sender may not send it in this version")
    assert mutation.change_packet is not None
    data = mutation.change_packet(target)
    if data is None:
        data = target.encoded()
    refuse(data == target.raw, "the mutation does not change the packet")
    if mutation.verdict(target.version, target.sender) is FlowVerdict.LEGAL:
        beyond = exceeded_limit(data, target)
        refuse(beyond, f"the receiver announced {beyond}")
    return data


def order(flow: RecordedFlow, seed: int, sender: str, turn: int) -> list[Mutation]:
    """All mutations in the order of one turn, by case number."""
    chance = Chance(flow.capture_hash, flow.connection, seed, "turn", turn)
    return chance.shuffled(select(version=flow.version, sender=sender))


def case(flow: RecordedFlow, seed: int, number: int, *, sender: str = CLIENT) -> MutationCase:
    """The case with a number; raises `NotApplicableError` if its mutation cannot be applied to the flow."""
    count = len(select(version=flow.version, sender=sender))
    mutation = order(flow, seed, sender, number // count)[number % count]
    return _case(mutation, flow, seed, number, sender)


def _case(mutation: Mutation, flow: RecordedFlow, seed: int, number: int, sender: str) -> MutationCase:
    chance = Chance(flow.capture_hash, flow.connection, seed, number)
    mutated = apply(mutation, flow, chance, sender=sender)
    return MutationCase(number, seed, flow.capture_hash, flow.connection, mutation, mutated)


def cases(
    flow: RecordedFlow,
    seed: int,
    pattern: str = "*",
    *,
    sender: str = CLIENT,
    start: int = 0,
    turns: int = 1,
    limit: int | None = None,
) -> Iterator[MutationCase]:
    """Cases from the number ``start`` on: every applicable mutation of the pattern, once per turn.

    ``limit`` is the maximum number of cases.
    """
    count = len(select(version=flow.version, sender=sender))
    yielded = 0
    for turn in range(start // count, start // count + turns) if count else ():
        for place, mutation in enumerate(order(flow, seed, sender, turn)):
            number = turn * count + place
            if number < start or not matches(mutation.name, pattern):
                continue
            if limit is not None and yielded >= limit:
                return
            try:
                case = _case(mutation, flow, seed, number, sender)
            except NotApplicableError:
                continue
            yielded += 1
            yield case


def case_from_json(flow: RecordedFlow, document: dict[str, Any]) -> MutationCase:
    """Rebuild a case from its JSON form and its flow, by mutation, seed and number.

    The mutation is looked up by name: in a later catalogue, the number may select another mutation.
    """
    if document["capture_hash"] != flow.capture_hash or document["connection"] != flow.connection:
        raise ValueError("the case belongs to another flow")
    mutation = mutation_by_name(document["mutation"])
    return _case(mutation, flow, document["seed"], document["case"], document["sender"])


def reapply(original: MutationCase, flow: RecordedFlow) -> MutationCase:
    """The case for a changed flow, with the same mutation and random choices; raises `NotApplicableError`."""
    return _case(original.mutation, flow, original.seed, original.number, original.flow.sender)


def flow_from_json(document: dict[str, Any]) -> MutatedFlow:
    """The mutated flow from the JSON form of a case, for playing without the capture."""
    steps = [
        FlowStep(
            Action(row["action"]),
            bytes.fromhex(row.get("data", "")),
            row["entry"],
            row.get("nanoseconds", 0),
            PacketType[row["awaits"].upper()] if row.get("awaits") else None,
            row.get("packet_identifier"),
            row["mutated"],
        )
        for row in document["steps"]
    ]
    changes = tuple(
        Change(row["entry"], row["field"], row["offset"], bytes.fromhex(row["removed"]), bytes.fromhex(row["inserted"]))
        for row in document["changes"]
    )
    version = ProtocolVersion.from_text(document["version"])
    return MutatedFlow(document["mutation"], document["sender"], version, steps, changes)
