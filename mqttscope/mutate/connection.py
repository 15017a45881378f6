"""Mutations of a connection: how it begins and ends, which packets are for which side, how they travel.

TCP promises the bytes and nothing about their pieces, so a receiver must not care how they are cut (3.1.1 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Pingreq, Pingresp, Publish, Pubrel
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT, SERVER, Action, Step
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    MALFORMED,
    PROTOCOL_ERROR,
    Demand,
    FlowChange,
    FlowTarget,
    Mutation,
    MutationKind,
    NotApplicableError,
    Reaction,
    exists_in,
    senders_of,
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
_CLOSE = Reaction(Demand.CLOSE)
_FIRST = ("3.1 V31-CONNECT-first", "3.1.1 MQTT-3.1.0-1", "5.0 MQTT-3.1.0-1")
_BOTH = (CLIENT, SERVER)
DRIP_NS = 100_000_000
"""Pause between two bytes of a slow sender."""


def _flow(slug: str, description: str, change: FlowChange, **more: object) -> Mutation:
    return Mutation(f"flow:{slug}", MutationKind.FLOW, description, change_flow=change, **more)  # type: ignore[arg-type]


def _legal(slug: str, description: str, change: FlowChange, **more: object) -> Mutation:
    more.setdefault("reaction", ACCEPT)
    return _flow(slug, description, change, legal_in=ALL_VERSIONS, **more)


def opening_mutations() -> Iterator[Mutation]:
    """The first packets of a connection, and the last."""
    for kind in PacketType:
        if CLIENT not in senders_of(kind) or kind == PacketType.CONNECT:
            continue

        def first(target: FlowTarget, kind: PacketType = kind) -> list[Step]:
            return [send(sample(kind, target.version), target.version), *target.steps]

        yield _flow(
            f"first-packet-{kind.name.lower()}",
            f"The first packet of the client is {kind.name}, before its CONNECT.",
            first,
            versions=(V5,) if kind == PacketType.AUTH else ALL_VERSIONS,
            statements=_FIRST if kind != PacketType.AUTH else _FIRST[2:],
            reaction=PROTOCOL_ERROR,
        )

    def no_connect(target: FlowTarget) -> list[Step]:
        at = target.flow.places(CLIENT, PacketType.CONNECT)
        rest = [index for index in target.flow.places(CLIENT) if at and index > at[0]]
        if not rest:
            raise NotApplicableError("the client sent nothing but CONNECT")
        # Nobody answers before CONNECT, so there is nothing to wait for.
        return [Step(Action.SEND, target.steps[index].data, index, mutated=True) for index in rest]

    yield _flow(
        "connect-dropped",
        "The client sends everything but its CONNECT.",
        no_connect,
        statements=_FIRST,
        reaction=PROTOCOL_ERROR,
    )

    def second(target: FlowTarget) -> list[Step]:
        return put(target, [send(connect_of(target).raw, target.version)])

    yield _flow(
        "second-connect",
        "The client sends its CONNECT again on the open connection.",
        second,
        statements=("3.1 V31-CONNECT-second", "3.1.1 MQTT-3.1.0-2", "5.0 MQTT-3.1.0-2"),
        calls_for=("3.1.1 MQTT-3.1.0-2", "5.0 MQTT-3.1.0-2"),
        reaction=PROTOCOL_ERROR,
    )

    def nothing(target: FlowTarget) -> list[Step]:
        return [pause(120 * SECOND)]

    yield _flow(
        "nothing-sent",
        "The client opens the connection and sends nothing for two minutes; a server should close it.",
        nothing,
    )

    def half(target: FlowTarget) -> list[Step]:
        raw = connect_of(target).raw
        return [send(raw[: len(raw) // 2], target.version), pause(120 * SECOND)]

    yield _flow("half-a-connect", "The client sends half of its CONNECT and nothing more for two minutes.", half)

    def only(target: FlowTarget) -> list[Step]:
        return [*target.steps[: opening(target)], pause(60 * SECOND)]

    yield _flow("nothing-after-connect", "The client sends nothing after its CONNECT for a minute.", only)
    yield from _authentication()
    yield from _endings()
    yield from _server()
    yield from _directions()


def _authentication() -> Iterator[Mutation]:
    """Packets of Enhanced Authentication where they do not belong (5.0 4.12)."""

    def during(target: FlowTarget) -> list[Step]:
        connect = connect_of(target)
        if connect.properties is None or connect.properties.authentication_method is None:
            raise NotApplicableError("the client names no Authentication Method")
        at = target.flow.places(CLIENT, PacketType.CONNECT)[0] + 1
        return put(target, [send(Pingreq(), V5)], at)

    yield _flow(
        "packet-during-authentication",
        "The client sends PINGREQ before the CONNACK of an authentication that continues.",
        during,
        versions=(V5,),
        statements=("5.0 MQTT-3.1.2-30",),
        reaction=PROTOCOL_ERROR,
    )

    def unsolicited(target: FlowTarget) -> list[Step]:
        connect = connect_of(target)
        if connect.properties is not None and connect.properties.authentication_method is not None:
            raise NotApplicableError("the client names an Authentication Method")
        code = 0x19 if target.sender == CLIENT else 0x18
        auth = Auth(reason_code=code, properties=Properties(authentication_method="PLAIN"))
        return put(target, [send(auth, V5)])

    yield _flow(
        "auth-unsolicited",
        "AUTH is sent although CONNECT has no Authentication Method.",
        unsolicited,
        versions=(V5,),
        senders=(CLIENT, SERVER),
        sender_statements={CLIENT: ("5.0 MQTT-4.12.0-7",), SERVER: ("5.0 MQTT-4.12.0-6",)},
        reaction=PROTOCOL_ERROR,
    )


def _endings() -> Iterator[Mutation]:
    def after(target: FlowTarget) -> list[Step]:
        if not exists_in(Disconnect, target.version, target.sender):
            raise NotApplicableError("before 5.0 only clients send DISCONNECT")
        at = ending(target)
        kept = target.steps[:at]
        last = Pingreq() if target.sender == CLIENT else Pingresp()
        # As two steps, so that the first may be what ends the connection.
        return [*kept, send(Disconnect(), target.version), send(last, target.version)]

    yield _flow(
        "packet-after-disconnect",
        "A packet follows DISCONNECT.",
        after,
        versions=ALL_VERSIONS,
        senders=(CLIENT, SERVER),
        statements=("5.0 MQTT-3.14.4-1",),
        sender_statements={CLIENT: ("3.1.1 MQTT-3.14.4-2",)},
        reaction=_CLOSE,
        later=True,
    )

    def ends(action: Action) -> FlowChange:
        def change(target: FlowTarget) -> list[Step]:
            at = opening(target) + target.chance.below(ending(target) - opening(target) + 1)
            return [*target.steps[:at], Step(action, mutated=True)]

        return change

    for slug, action, words in (
        ("closed-without-disconnect", Action.CLOSE, "ends the connection without DISCONNECT"),
        ("reset", Action.RESET, "resets the connection"),
        ("half-closed", Action.HALF_CLOSE, "ends its direction of the connection and continues reading"),
    ):
        yield _flow(slug, f"One side {words}.", ends(action), senders=(CLIENT, SERVER))

    def inside(target: FlowTarget) -> list[Step]:
        at = ending(target)
        raw = encode(sample(PacketType.PUBLISH, target.version), target.version)
        cut = 3 + target.chance.below(len(raw) - 3)
        return [*target.steps[:at], send(raw[:cut], target.version), Step(Action.CLOSE, mutated=True)]

    yield _flow(
        "closed-inside-packet",
        "The connection ends in good order inside a PUBLISH.",
        inside,
        senders=(CLIENT, SERVER),
        statements=("3.1.1 V311-LENGTH-overrun", "5.0 V5-LENGTH-overrun"),
        reaction=ANY,
        later=True,
    )


def _server() -> Iterator[Mutation]:
    """What a server must not say before and with its CONNACK (5.0 3.2)."""

    def before(target: FlowTarget) -> list[Step]:
        return put(target, [send(Pingresp(), target.version)], opening(target) - 1)

    yield _flow(
        "packet-before-connack",
        "The server sends PINGRESP before its CONNACK.",
        before,
        senders=(SERVER,),
        statements=("3.1 V31-CONNACK-first", "3.1.1 MQTT-3.2.0-1", "5.0 MQTT-3.2.0-1"),
        reaction=PROTOCOL_ERROR,
    )

    def twice(target: FlowTarget) -> list[Step]:
        at = opening(target)
        connack = target.flow.first(Connack, from_client=False)
        return put(target, [send(connack.raw, target.version)], at)

    yield _flow(
        "second-connack",
        "The server sends its CONNACK twice.",
        twice,
        senders=(SERVER,),
        statements=("5.0 MQTT-3.2.0-2",),
        reaction=PROTOCOL_ERROR,
    )

    def disconnect(target: FlowTarget) -> list[Step]:
        return put(target, [send(Disconnect(reason_code=0x8B, properties=Properties()), V5)], opening(target) - 1)

    yield _flow(
        "disconnect-before-connack",
        "The server sends DISCONNECT before its CONNACK.",
        disconnect,
        versions=(V5,),
        senders=(SERVER,),
        statements=("5.0 MQTT-3.14.0-1",),
        reaction=PROTOCOL_ERROR,
    )


def _directions() -> Iterator[Mutation]:
    """Packets that only the other side sends, and types that nobody sends (5.0 2.1.2)."""
    wrong: tuple[str, ...]
    versions: tuple[ProtocolVersion, ...]
    statements: tuple[str, ...]
    for kind in PacketType:
        if kind == PacketType.DISCONNECT:
            wrong, versions = (SERVER,), (V3_1, V3_1_1)
            statements = ("3.1 V31-DISCONNECT-client-only", "3.1.1 V311-TYPE-direction")
        else:
            wrong = tuple(one for one in (CLIENT, SERVER) if one not in senders_of(kind))
            versions = ALL_VERSIONS
            statements = ("3.1.1 V311-TYPE-direction", "5.0 V5-TYPE-direction")

        def inject(target: FlowTarget, kind: PacketType = kind) -> list[Step]:
            return put(target, [send(sample(kind, target.version, 60_000), target.version)])

        if wrong:
            yield _flow(
                f"wrong-direction-{kind.name.lower()}",
                f"The {wrong[0]} sends {kind.name}, which is for the other side to send.",
                inject,
                versions=versions,
                senders=wrong,
                statements=statements,
                reaction=PROTOCOL_ERROR,
            )
    reserved = (
        (0, ALL_VERSIONS, ("3.1 V31-HEADER-type-reserved", "3.1.1 V311-TYPE-reserved", "5.0 V5-TYPE-reserved")),
        (15, (V3_1, V3_1_1), ("3.1 V31-HEADER-type-reserved", "3.1.1 V311-TYPE-reserved")),
    )
    for number, versions, statements in reserved:

        def unknown(target: FlowTarget, number: int = number) -> list[Step]:
            return put(target, [send(bytes((number << 4, 0)), target.version)])

        yield _flow(
            f"reserved-type-{number}",
            f"A packet has the reserved type {number}.",
            unknown,
            versions=versions,
            senders=(CLIENT, SERVER),
            statements=statements,
            reaction=MALFORMED,
        )


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
