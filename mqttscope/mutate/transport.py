"""Mutations of how packets travel: order, number, time and pieces.

TCP promises the bytes and nothing about their pieces, so a receiver must not care how they are cut (3.1.1 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Pingreq, Publish, Pubrel
from mqttscope.mutate.flow import CLIENT, SERVER, Action, Step
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    Demand,
    FlowChange,
    FlowTarget,
    Mutation,
    MutationKind,
    NotApplicableError,
    Reaction,
)
from mqttscope.mutate.samples import sample
from mqttscope.mutate.steps import (
    SECOND,
    connect_of,
    ending,
    free_identifiers,
    keep_alive,
    marked,
    opening,
    pause,
    publish,
    put,
    send,
    sends,
    wait,
)

V3_1, V3_1_1, V5 = ProtocolVersion
_BOTH = (CLIENT, SERVER)
DRIP_NS = 100_000_000
"""Pause between two bytes of a slow sender."""


def _flow(slug: str, description: str, change: FlowChange, **more: object) -> Mutation:
    return Mutation(f"flow:{slug}", MutationKind.FLOW, description, change_flow=change, **more)  # type: ignore[arg-type]


def _legal(slug: str, description: str, change: FlowChange, **more: object) -> Mutation:
    more.setdefault("reaction", ACCEPT)
    return _flow(slug, description, change, legal_in=ALL_VERSIONS, **more)


def transport_mutations() -> Iterator[Mutation]:
    """Order and number, pieces, time."""
    yield from _order()
    yield from _pieces()
    yield from _time()
    yield from _traffic()


def _one_of(target: FlowTarget) -> int:
    """A packet of the side on the open connection, not its DISCONNECT."""
    last = ending(target)
    choices = [index for index in sends(target, start=opening(target)) if index < last]
    if not choices:
        raise NotApplicableError("the side sends nothing on the open connection")
    return target.chance.pick(choices)


def _order() -> Iterator[Mutation]:
    def drop(target: FlowTarget) -> list[Step]:
        index = _one_of(target)
        kept = list(target.steps)
        # An empty step keeps the place, so that a player can go there.
        kept[index] = replace(marked(kept[index]), data=b"")
        return kept

    yield _flow("drop", "One packet is left out.", drop, senders=_BOTH)

    def duplicate(target: FlowTarget) -> list[Step]:
        index = _one_of(target)
        return [*target.steps[: index + 1], marked(target.steps[index]), *target.steps[index + 1 :]]

    yield _flow("duplicate", "One packet is sent twice.", duplicate, senders=_BOTH)

    def reorder(target: FlowTarget) -> list[Step]:
        index = _one_of(target)
        later = [one for one in sends(target, start=index + 1) if one < ending(target)]
        if not later:
            raise NotApplicableError("no packet follows that it could change places with")
        kept = list(target.steps)
        kept[index], kept[later[0]] = marked(kept[later[0]]), marked(kept[index])
        return kept

    yield _flow("reorder", "Two packets of one side change places.", reorder, senders=_BOTH)

    def inject(target: FlowTarget) -> list[Step]:
        return put(target, [send(Pingreq(), target.version), wait(PacketType.PINGRESP)])

    yield _legal("inject-pingreq", "PINGREQ is sent somewhere on the open connection.", inject)

    def same_again(target: FlowTarget) -> list[Step]:
        for index, entry in enumerate(target.flow.entries):
            packet = entry.packet
            if entry.from_client and isinstance(packet, Publish) and packet.qos == 0:
                return [*target.steps[: index + 1], marked(target.steps[index]), *target.steps[index + 1 :]]
        raise NotApplicableError("the client sends no PUBLISH with QoS 0")

    yield _legal("publish-qos-0-twice", "A PUBLISH with QoS 0 is sent twice: two messages.", same_again)


def _split(step: Step, cuts: list[int]) -> list[Step]:
    places = [0, *cuts, len(step.data)]
    return [replace(marked(step), data=step.data[start:end]) for start, end in pairwise(places) if end > start]


def _pieces() -> Iterator[Mutation]:
    """One sent step is one segment: the player hands the bytes of each to TCP on their own."""

    def every_byte(target: FlowTarget) -> list[Step]:
        made: list[Step] = []
        for one in target.steps:
            if one.action is Action.SEND and len(one.data) > 1:
                made += _split(one, list(range(1, len(one.data))))
            else:
                made.append(one)
        return made

    yield _legal("split-at-every-byte", "Every byte travels in a segment of its own.", every_byte, senders=_BOTH)

    def somewhere(target: FlowTarget) -> list[Step]:
        made: list[Step] = []
        for one in target.steps:
            if one.action is Action.SEND and len(one.data) > 1:
                made += _split(one, [1 + target.chance.below(len(one.data) - 1)])
            else:
                made.append(one)
        return made

    yield _legal("split-once", "Every packet travels in two segments, cut anywhere.", somewhere, senders=_BOTH)

    def coalesce(target: FlowTarget) -> list[Step]:
        made: list[Step] = []
        for one in target.steps:
            if made and one.action is Action.SEND and made[-1].action is Action.SEND:
                made[-1] = replace(marked(made[-1]), data=made[-1].data + one.data)
            else:
                made.append(one)
        if len(made) == len(target.steps):
            raise NotApplicableError("no two packets follow each other")
        return made

    yield _legal("coalesce", "Packets that follow each other travel in one segment.", coalesce, senders=_BOTH)

    def with_connect(target: FlowTarget) -> list[Step]:
        connect = connect_of(target)
        if connect.properties is not None and connect.properties.authentication_method is not None:
            raise NotApplicableError("the client has to wait for the authentication")
        at = target.flow.places(CLIENT, PacketType.CONNECT)[0]
        opening(target)
        both = target.steps[at].data + send(sample(PacketType.PUBLISH, target.version), target.version).data
        kept = list(target.steps)
        kept[at] = replace(marked(kept[at]), data=both)
        return kept

    yield _legal("coalesce-connect", "A PUBLISH travels in the segment of the CONNECT.", with_connect)


def _time() -> Iterator[Mutation]:
    def drip(target: FlowTarget) -> list[Step]:
        index = _one_of(target)
        made: list[Step] = []
        limit = keep_alive(target) * SECOND // 2
        data = target.steps[index].data
        gap = min(DRIP_NS, limit // len(data)) if limit else DRIP_NS
        for one in _split(target.steps[index], list(range(1, len(data)))):
            made += [one, pause(gap)]
        return [*target.steps[:index], *made, *target.steps[index + 1 :]]

    yield _legal("slow-drip", "The bytes of one packet come a tenth of a second apart.", drip, reaction=ANY)

    def delay(target: FlowTarget) -> list[Step]:
        limit = keep_alive(target) * SECOND // 2 or 5 * SECOND
        return put(target, [pause(min(limit, 5 * SECOND)), send(Pingreq(), target.version)])

    yield _legal("delay", "The client does nothing for half of its Keep Alive (5 seconds at most).", delay)

    def just_met(target: FlowTarget) -> list[Step]:
        seconds = keep_alive(target)
        if not seconds:
            raise NotApplicableError("the client has no Keep Alive")
        added = [
            send(Pingreq(), target.version),
            wait(PacketType.PINGRESP),
            pause(seconds * SECOND * 95 // 100),
            send(Pingreq(), target.version),
            wait(PacketType.PINGRESP),
        ]
        return put(target, added, ending(target))

    yield _legal("keep-alive-just-met", "The client is silent for almost its Keep Alive.", just_met)

    def overrun(target: FlowTarget) -> list[Step]:
        seconds = keep_alive(target)
        if not seconds:
            raise NotApplicableError("the client has no Keep Alive")
        return put(target, [pause(seconds * SECOND * 2), send(Pingreq(), target.version)], ending(target), rest=False)

    yield _flow(
        "keep-alive-overrun",
        "The client is silent for twice its Keep Alive.",
        overrun,
        statements=("3.1 V31-KEEPALIVE-client", "3.1.1 MQTT-3.1.2-23", "5.0 MQTT-3.1.2-20"),
        reaction=Reaction(Demand.CLOSE, (0x8D,), within_keep_alive=True),
        calls_for=("3.1 V31-KEEPALIVE-server", "3.1.1 MQTT-3.1.2-24", "5.0 MQTT-3.1.2-22"),
        later=True,
    )

    def deaf(target: FlowTarget) -> list[Step]:
        added = [
            Step(Action.STOP_READING, mutated=True),
            *(send(Pingreq(), target.version) for _ in range(1000)),
            pause(30 * SECOND),
        ]
        return put(target, added, rest=False)

    yield _legal("stop-reading", "The client sends 1,000 PINGREQs and reads no answer.", deaf, reaction=ANY)


def _traffic() -> Iterator[Mutation]:
    def every_type(target: FlowTarget) -> list[Step]:
        version = target.version
        one, two, three, four = free_identifiers(target, 4)
        groups = [
            [send(publish(target), version)],
            [send(publish(target, 1, one), version), wait(PacketType.PUBACK, one)],
            [
                send(publish(target, 2, two), version),
                wait(PacketType.PUBREC, two),
                send(Pubrel(packet_identifier=two), version),
                wait(PacketType.PUBCOMP, two),
            ],
            [send(sample(PacketType.SUBSCRIBE, version, three), version), wait(PacketType.SUBACK, three)],
            [send(sample(PacketType.UNSUBSCRIBE, version, four), version), wait(PacketType.UNSUBACK, four)],
            [send(Pingreq(), version), wait(PacketType.PINGRESP)],
        ]
        return put(target, [step for group in target.chance.shuffled(groups) for step in group], ending(target))

    yield _legal("every-packet-type", "Every packet type of a client comes, in some order.", every_type)
