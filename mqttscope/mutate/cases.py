"""Makes cases of mutations: one mutation applied to one flow, with the same bytes whenever it is made again.

A case is identified by the hash of the capture, the connection in it, the seed and its number.  Numbers do not depend
on which mutations are selected: the cases of a pattern keep the numbers that they have among all cases.

`exceeded` names the limit of the other side that a packet goes beyond: a mutation that does so is not legal (5.0
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
from mqttscope.mutate.catalogue import matches, mutation, select
from mqttscope.mutate.flow import (
    CLIENT,
    SERVER,
    Action,
    Change,
    Entry,
    MutatedFlow,
    RecordedFlow,
    Step,
    differences,
    recorded_steps,
)
from mqttscope.mutate.mutation import (
    Chance,
    FlowTarget,
    Mutation,
    NotApplicableError,
    Reaction,
    Target,
    Verdict,
    exists_in,
    refuse,
    target,
)
from mqttscope.mutate.samples import sample
from mqttscope.mutate.steps import ending, free_identifiers, opening


def exceeded(made: bytes, where: Target) -> str:
    """The announcement that a packet goes against, in words; empty where it keeps to all of them."""
    if where.version != ProtocolVersion.V5:
        return ""
    size = where.limit("maximum_packet_size", 0)
    if size and len(made) > size:
        return f"Maximum Packet Size {size}"
    packet = decode(made, where.version)
    if where.sender == SERVER and not isinstance(packet, Publish | Connack | Disconnect | Malformed):
        block = getattr(packet, "properties", None)
        diagnostic = block and (block.user_property or block.reason_string is not None)
        if diagnostic and not where.limit("request_problem_information", 1):
            return "Request Problem Information 0"
    if isinstance(packet, Publish):
        return _publish(packet, where)
    return _subscribe(packet, where) if isinstance(packet, Subscribe) else ""


def _publish(packet: Publish, where: Target) -> str:
    alias = packet.properties.topic_alias if packet.properties else None
    if alias is not None and alias > where.limit("topic_alias_maximum", 0):
        return "a lower Topic Alias Maximum"
    if where.sender == CLIENT and packet.qos > where.limit("maximum_qos", 2):
        return "a lower Maximum QoS"
    if where.sender == CLIENT and packet.retain and not where.limit("retain_available", 1):
        return "Retain Available 0"
    return ""


def _subscribe(packet: Subscribe, where: Target) -> str:
    filters = [row.topic_filter for row in packet.subscriptions]
    if not where.limit("wildcard_subscription_available", 1) and any("+" in one or "#" in one for one in filters):
        return "Wildcard Subscription Available 0"
    if not where.limit("shared_subscription_available", 1) and any(one.startswith("$share/") for one in filters):
        return "Shared Subscription Available 0"
    identified = bool(packet.properties and packet.properties.subscription_identifier)
    if identified and not where.limit("subscription_identifier_available", 1):
        return "Subscription Identifier Available 0"
    return ""


_PUT_IN = (
    PacketType.PUBLISH,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.PINGREQ,
    PacketType.DISCONNECT,
)
"""Packets that a client may send on any open connection: where a flow has none, one is put in to be mutated."""


@dataclass(slots=True)
class Case:
    """One mutation, applied."""

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
    def verdict(self) -> Verdict:
        return self.mutation.verdict(self.version, self.flow.sender)

    @property
    def reaction(self) -> Reaction:
        return self.mutation.reaction_in(self.version, self.flow.sender)


def apply(one: Mutation, flow: RecordedFlow, chance: Chance, *, sender: str | None = None) -> MutatedFlow:
    """Apply a mutation to a flow; `NotApplicableError` where the flow has nothing for it.

    ``sender`` is the side that is played; the mutation's first one unless given.
    """
    side = one.senders[0] if sender is None else sender
    if side not in one.senders or flow.version not in one.versions:
        raise NotApplicableError(f"{one.name} is not for a {side} of MQTT {flow.version.text}")
    if one.change_flow is not None:
        view = FlowTarget(flow, side, chance, recorded_steps(flow, side))
        steps = one.change_flow(view)
        changes = tuple(Change(step.entry, one.field, 0, b"", step.data) for step in steps if _new(step))
        return MutatedFlow(one.name, side, flow.version, steps, changes)
    return _apply_to_packet(one, flow, chance, side)


def _new(step: Step) -> bool:
    return step.mutated and step.entry is None and step.action is Action.SEND


def _apply_to_packet(one: Mutation, flow: RecordedFlow, chance: Chance, side: str) -> MutatedFlow:
    assert one.change_packet is not None
    reason = NotApplicableError(f"the {side} sends no packet that {one.name} is for")
    for index in chance.shuffled(flow.places(side, one.packet_type)):
        try:
            made = _changed(one, target(flow, index, chance))
        except NotApplicableError as error:
            reason = error
            continue
        steps = recorded_steps(flow, side)
        steps[index] = replace(steps[index], data=made, mutated=True)
        before = flow.entries[index].raw
        body = packet_end(before, 0, len(before))[0]
        return MutatedFlow(one.name, side, flow.version, steps, differences(index, one.field, before, made, body))
    if flow.places(side, one.packet_type) or side != CLIENT or one.packet_type not in _PUT_IN:
        raise reason
    return _put_in(one, flow, chance, side)


def _put_in(one: Mutation, flow: RecordedFlow, chance: Chance, side: str) -> MutatedFlow:
    """Mutate a packet that the flow does not have, put in on the open connection."""
    assert one.packet_type is not None
    steps = recorded_steps(flow, side)
    view = FlowTarget(flow, side, chance, steps)
    first, last = opening(view), ending(view)
    at = last if one.packet_type == PacketType.DISCONNECT else first + chance.below(last - first + 1)
    packet = sample(one.packet_type, flow.version, free_identifiers(view, 1)[0])
    raw = encode(packet, flow.version)
    added = Entry(True, packet, raw)
    longer = replace(flow, entries=[*flow.entries[:at], added, *flow.entries[at:]])
    made = _changed(one, target(longer, at, chance))
    steps.insert(at, Step(Action.SEND, made, mutated=True))
    if one.packet_type == PacketType.DISCONNECT:
        del steps[at + 1 :]
    return MutatedFlow(one.name, side, flow.version, steps, (Change(None, one.field, 0, b"", made),))


def _changed(one: Mutation, where: Target) -> bytes:
    """The mutated bytes of one packet."""
    refuse(not exists_in(where.packet, where.version, where.sender), "the version has no such packet")
    assert one.change_packet is not None
    made = one.change_packet(where)
    if made is None:
        made = where.encoded()
    refuse(made == where.raw, "the packet is like that already")
    if one.verdict(where.version, where.sender) is Verdict.LEGAL:
        beyond = exceeded(made, where)
        refuse(beyond, f"the receiver announced {beyond}")
    return made


def order(flow: RecordedFlow, seed: int, sender: str, turn: int) -> list[Mutation]:
    """The mutations of one turn through the catalogue, in the order of their numbers."""
    chance = Chance(flow.capture_hash, flow.connection, seed, "turn", turn)
    return chance.shuffled(select(version=flow.version, sender=sender))


def case(flow: RecordedFlow, seed: int, number: int, *, sender: str = CLIENT) -> Case:
    """The case of a number; `NotApplicableError` where its mutation has nothing to do in this flow."""
    count = len(select(version=flow.version, sender=sender))
    one = order(flow, seed, sender, number // count)[number % count]
    return _case(one, flow, seed, number, sender)


def _case(one: Mutation, flow: RecordedFlow, seed: int, number: int, sender: str) -> Case:
    chance = Chance(flow.capture_hash, flow.connection, seed, number)
    made = apply(one, flow, chance, sender=sender)
    return Case(number, seed, flow.capture_hash, flow.connection, one, made)


def cases(
    flow: RecordedFlow,
    seed: int,
    pattern: str = "*",
    *,
    sender: str = CLIENT,
    start: int = 0,
    turns: int = 1,
    limit: int | None = None,
) -> Iterator[Case]:
    """Cases from a number on: every mutation of the pattern that is applicable, once in each turn.

    ``limit`` ends it after so many cases.
    """
    count = len(select(version=flow.version, sender=sender))
    made = 0
    for turn in range(start // count, start // count + turns) if count else ():
        for place, one in enumerate(order(flow, seed, sender, turn)):
            number = turn * count + place
            if number < start or not matches(one.name, pattern):
                continue
            if limit is not None and made >= limit:
                return
            try:
                found = _case(one, flow, seed, number, sender)
            except NotApplicableError:
                continue
            made += 1
            yield found


def again(flow: RecordedFlow, document: dict[str, Any]) -> Case:
    """Make the case of a JSON form again from its flow: by its mutation, seed and number.

    The name is taken from the document and not from the number, since a later catalogue counts otherwise.
    """
    if document["capture_hash"] != flow.capture_hash or document["connection"] != flow.connection:
        raise ValueError("the case is of another flow")
    one = mutation(document["mutation"])
    return _case(one, flow, document["seed"], document["case"], document["sender"])


def remade(made: Case, flow: RecordedFlow) -> Case:
    """The same mutation with the same choices, applied to another form of its flow; `NotApplicableError` as `apply`."""
    return _case(made.mutation, flow, made.seed, made.number, made.flow.sender)


def steps_of(document: dict[str, Any]) -> MutatedFlow:
    """The mutated flow of a JSON form, to be played without the capture."""
    steps = [
        Step(
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
