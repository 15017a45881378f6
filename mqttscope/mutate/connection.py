"""Mutations of a connection: how it begins and ends, which packets are for which side, how they travel.

TCP promises the bytes and nothing about their pieces, so a receiver must not care how they are cut (3.1.1 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Pingreq, Pingresp, Publish, Pubrel
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, Action, Step
from mqttscope.mutate.mutation import (
    ACCEPT,
    ALL_VERSIONS,
    ANY,
    BEFORE_5,
    MALFORMED,
    ONLY_5,
    PROTOCOL_ERROR,
    V5,
    Demand,
    FlowChange,
    FlowTarget,
    Mutation,
    NotApplicableError,
    Reaction,
    exists_in,
    refuse,
    row,
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
    twice,
    wait,
)

DRIP_NS = 100_000_000
"""Pause between two bytes of a slow sender."""


def _put(packet: ControlPacket | bytes, target: FlowTarget) -> list[Step]:
    return put(target, [send(packet, target.version)])


def _before_connack(packet: ControlPacket, target: FlowTarget) -> list[Step]:
    return put(target, [send(packet, target.version)], opening(target) - 1)


def _sample(kind: PacketType, target: FlowTarget) -> list[Step]:
    return _put(sample(kind, target.version, 60_000), target)


def _first(kind: PacketType, target: FlowTarget) -> list[Step]:
    return [send(sample(kind, target.version), target.version), *target.steps]


def _no_connect(target: FlowTarget) -> list[Step]:
    at = target.flow.places(CLIENT, PacketType.CONNECT)
    rest = [index for index in target.flow.places(CLIENT) if at and index > at[0]]
    refuse(not rest, "the client sent nothing but CONNECT")
    # Nobody answers before CONNECT, so there is nothing to wait for.
    return [Step(Action.SEND, target.steps[index].data, index, mutated=True) for index in rest]


def _nothing(target: FlowTarget) -> list[Step]:
    return [pause(120 * SECOND)]


def _half_a_connect(target: FlowTarget) -> list[Step]:
    raw = connect_of(target).raw
    return [send(raw[: len(raw) // 2], target.version), pause(120 * SECOND)]


def _only_connect(target: FlowTarget) -> list[Step]:
    return [*target.steps[: opening(target)], pause(60 * SECOND)]


def _authenticates(target: FlowTarget) -> bool:
    connect = connect_of(target)
    return connect.properties is not None and connect.properties.authentication_method is not None


def _during_authentication(target: FlowTarget) -> list[Step]:
    refuse(not _authenticates(target), "the client names no Authentication Method")
    at = target.flow.places(CLIENT, PacketType.CONNECT)[0] + 1
    return put(target, [send(Pingreq(), V5)], at)


def _auth(target: FlowTarget) -> list[Step]:
    refuse(_authenticates(target), "the client names an Authentication Method")
    code = 0x19 if target.sender == CLIENT else 0x18
    return _put(Auth(reason_code=code, properties=Properties(authentication_method="PLAIN")), target)


def _after_disconnect(target: FlowTarget) -> list[Step]:
    refuse(not exists_in(Disconnect, target.version, target.sender), "before 5.0 only clients send DISCONNECT")
    last = Pingreq() if target.sender == CLIENT else Pingresp()
    # As two steps, so that the first may be what ends the connection.
    return [*target.steps[: ending(target)], send(Disconnect(), target.version), send(last, target.version)]


def _ends(action: Action, target: FlowTarget) -> list[Step]:
    at = opening(target) + target.chance.below(ending(target) - opening(target) + 1)
    return [*target.steps[:at], Step(action, mutated=True)]


def _closes_inside(target: FlowTarget) -> list[Step]:
    at = ending(target)
    raw = encode(sample(PacketType.PUBLISH, target.version), target.version)
    cut = 3 + target.chance.below(len(raw) - 3)
    return [*target.steps[:at], send(raw[:cut], target.version), Step(Action.CLOSE, mutated=True)]


def _second_connack(target: FlowTarget) -> list[Step]:
    at = opening(target)
    return put(target, [send(target.flow.first(Connack, from_client=False).raw, target.version)], at)


_FIRST = "3.1 V31-CONNECT-first, 3.1.1 MQTT-3.1.0-1, 5.0 MQTT-3.1.0-1"
OPENING = (
    *(row(f"flow:first-packet-{kind.name.lower()}",
          f"The first packet of the client is {kind.name}, before its CONNECT.", partial(_first, kind), _FIRST,
          PROTOCOL_ERROR, ONLY_5 if kind == PacketType.AUTH else ALL_VERSIONS)
      for kind in PacketType if CLIENT in senders_of(kind) and kind != PacketType.CONNECT),
    row("flow:connect-dropped", "The client sends everything but its CONNECT.", _no_connect, _FIRST, PROTOCOL_ERROR),
    row("flow:second-connect", "The client sends its CONNECT again on the open connection.",
        lambda target: _put(connect_of(target).raw, target),
        "3.1 V31-CONNECT-second, 3.1.1 MQTT-3.1.0-2, 5.0 MQTT-3.1.0-2", PROTOCOL_ERROR,
        calls_for="3.1.1 MQTT-3.1.0-2, 5.0 MQTT-3.1.0-2"),
    row("flow:nothing-sent",
        "The client opens the connection and sends nothing for two minutes; a server should close it.", _nothing),
    row("flow:half-a-connect", "The client sends half of its CONNECT and nothing more for two minutes.",
        _half_a_connect),
    row("flow:nothing-after-connect", "The client sends nothing after its CONNECT for a minute.", _only_connect),
    # Packets of Enhanced Authentication where they do not belong (5.0 4.12).
    row("flow:packet-during-authentication",
        "The client sends PINGREQ before the CONNACK of an authentication that continues.", _during_authentication,
        "5.0 MQTT-3.1.2-30", PROTOCOL_ERROR, ONLY_5),
    row("flow:auth-unsolicited", "AUTH is sent although CONNECT has no Authentication Method.", _auth,
        "client 5.0 MQTT-4.12.0-7, server 5.0 MQTT-4.12.0-6", PROTOCOL_ERROR, ONLY_5, SIDES),
    row("flow:packet-after-disconnect", "A packet follows DISCONNECT.", _after_disconnect,
        "5.0 MQTT-3.14.4-1, client 3.1.1 MQTT-3.14.4-2", Reaction(Demand.CLOSE), senders=SIDES, later=True),
    *(row(f"flow:{slug}", f"One side {words}.", partial(_ends, action), senders=SIDES)
      for slug, action, words in (
          ("closed-without-disconnect", Action.CLOSE, "ends the connection without DISCONNECT"),
          ("reset", Action.RESET, "resets the connection"),
          ("half-closed", Action.HALF_CLOSE, "ends its direction of the connection and continues reading"),
      )),
    row("flow:closed-inside-packet", "The connection ends in good order inside a PUBLISH.", _closes_inside,
        "3.1.1 V311-LENGTH-overrun, 5.0 V5-LENGTH-overrun", ANY, senders=SIDES, later=True),
    # What a server must not send before and with its CONNACK (5.0 3.2).
    row("flow:packet-before-connack", "The server sends PINGRESP before its CONNACK.",
        partial(_before_connack, Pingresp()), "3.1 V31-CONNACK-first, 3.1.1 MQTT-3.2.0-1, 5.0 MQTT-3.2.0-1",
        PROTOCOL_ERROR, senders=(SERVER,)),
    row("flow:second-connack", "The server sends its CONNACK twice.", _second_connack, "5.0 MQTT-3.2.0-2",
        PROTOCOL_ERROR, senders=(SERVER,)),
    row("flow:disconnect-before-connack", "The server sends DISCONNECT before its CONNACK.",
        partial(_before_connack, Disconnect(reason_code=0x8B, properties=Properties())), "5.0 MQTT-3.14.0-1",
        PROTOCOL_ERROR, ONLY_5, (SERVER,)),
    # Packets that only the other side sends, and types that nobody sends (5.0 2.1.2).
    *(row(f"flow:wrong-direction-{kind.name.lower()}",
          f"The {side} sends {kind.name}, which is for the other side to send.", partial(_sample, kind),
          "3.1.1 V311-TYPE-direction, 5.0 V5-TYPE-direction", PROTOCOL_ERROR, senders=(side,))
      for kind in PacketType for side in SIDES if side not in senders_of(kind)),
    row("flow:wrong-direction-disconnect", "The server sends DISCONNECT, which is for the other side to send.",
        partial(_sample, PacketType.DISCONNECT), "3.1 V31-DISCONNECT-client-only, 3.1.1 V311-TYPE-direction",
        PROTOCOL_ERROR, BEFORE_5, (SERVER,)),
    *(row(f"flow:reserved-type-{number}", f"A packet has the reserved type {number}.",
          partial(_put, bytes((number << 4, 0))),
          "3.1 V31-HEADER-type-reserved, 3.1.1 V311-TYPE-reserved, 5.0 V5-TYPE-reserved", MALFORMED, versions, SIDES)
      for number, versions in ((0, ALL_VERSIONS), (15, BEFORE_5))),
)  # fmt: skip
"""The first packets of a connection, and the last."""


def _open_packet(target: FlowTarget) -> int:
    """A packet of the side on the open connection, not its DISCONNECT."""
    last = ending(target)
    choices = [index for index in sends(target, start=opening(target)) if index < last]
    refuse(not choices, "the side sends nothing on the open connection")
    return target.chance.pick(choices)


def _drop(target: FlowTarget) -> list[Step]:
    index = _open_packet(target)
    steps = list(target.steps)
    # An empty step keeps the place, so that a player can go there.
    steps[index] = replace(marked(steps[index]), data=b"")
    return steps


def _reorder(target: FlowTarget) -> list[Step]:
    index = _open_packet(target)
    later = [other for other in sends(target, start=index + 1) if other < ending(target)]
    refuse(not later, "no packet follows that it could change places with")
    steps = list(target.steps)
    steps[index], steps[later[0]] = marked(steps[later[0]]), marked(steps[index])
    return steps


def _inject_pingreq(target: FlowTarget) -> list[Step]:
    return put(target, [send(Pingreq(), target.version), wait(PacketType.PINGRESP)])


def _qos_0_twice(target: FlowTarget) -> list[Step]:
    for index, entry in enumerate(target.flow.entries):
        if entry.from_client and isinstance(entry.packet, Publish) and entry.packet.qos == 0:
            return twice(target, index)
    raise NotApplicableError("the client sends no PUBLISH with QoS 0")


def _split(step: Step, cuts: list[int]) -> Iterator[Step]:
    places = [0, *cuts, len(step.data)]
    return (replace(marked(step), data=step.data[start:end]) for start, end in pairwise(places) if end > start)


def _cut(cuts: Callable[[FlowTarget, int], list[int]], target: FlowTarget) -> list[Step]:
    """Send the bytes of each packet in segments of their own: the player hands each step to TCP by itself."""
    steps: list[Step] = []
    for step in target.steps:
        size = len(step.data)
        steps += _split(step, cuts(target, size)) if step.action is Action.SEND and size > 1 else [step]
    return steps


def _coalesce(target: FlowTarget) -> list[Step]:
    steps: list[Step] = []
    for step in target.steps:
        if steps and step.action is Action.SEND and steps[-1].action is Action.SEND:
            steps[-1] = replace(marked(steps[-1]), data=steps[-1].data + step.data)
        else:
            steps.append(step)
    refuse(len(steps) == len(target.steps), "no two packets follow each other")
    return steps


def _coalesce_connect(target: FlowTarget) -> list[Step]:
    refuse(_authenticates(target), "the client has to wait for the authentication")
    at = target.flow.places(CLIENT, PacketType.CONNECT)[0]
    opening(target)
    steps = list(target.steps)
    added = send(sample(PacketType.PUBLISH, target.version), target.version)
    steps[at] = replace(marked(steps[at]), data=steps[at].data + added.data)
    return steps


def _drip(target: FlowTarget) -> list[Step]:
    index = _open_packet(target)
    limit = keep_alive(target) * SECOND // 2
    data = target.steps[index].data
    gap = min(DRIP_NS, limit // len(data)) if limit else DRIP_NS
    dripped = (step for byte in _split(target.steps[index], list(range(1, len(data)))) for step in (byte, pause(gap)))
    return [*target.steps[:index], *dripped, *target.steps[index + 1 :]]


def _delay(target: FlowTarget) -> list[Step]:
    limit = keep_alive(target) * SECOND // 2 or 5 * SECOND
    return put(target, [pause(min(limit, 5 * SECOND)), send(Pingreq(), target.version)])


def _keep_alive(target: FlowTarget) -> int:
    seconds = keep_alive(target)
    refuse(not seconds, "the client has no Keep Alive")
    return seconds


def _keep_alive_met(target: FlowTarget) -> list[Step]:
    ping = [send(Pingreq(), target.version), wait(PacketType.PINGRESP)]
    added = [*ping, pause(_keep_alive(target) * SECOND * 95 // 100), *ping]
    return put(target, added, ending(target))


def _keep_alive_overrun(target: FlowTarget) -> list[Step]:
    added = [pause(_keep_alive(target) * SECOND * 2), send(Pingreq(), target.version)]
    return put(target, added, ending(target), rest=False)


def _stop_reading(target: FlowTarget) -> list[Step]:
    pings = (send(Pingreq(), target.version) for _ in range(1000))
    return put(target, [Step(Action.STOP_READING, mutated=True), *pings, pause(30 * SECOND)], rest=False)


def _every_type(target: FlowTarget) -> list[Step]:
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


def _legal(slug: str, sentence: str, change: FlowChange, reaction: Reaction = ACCEPT, **more: Any) -> Mutation:
    return row(f"flow:{slug}", sentence, change, "", reaction, legal=ALL_VERSIONS, **more)


TRANSPORT = (
    row("flow:drop", "One packet is left out.", _drop, senders=SIDES),
    row("flow:duplicate", "One packet is sent twice.", lambda target: twice(target, _open_packet(target)),
        senders=SIDES),
    row("flow:reorder", "Two packets of one side change places.", _reorder, senders=SIDES),
    _legal("inject-pingreq", "PINGREQ is sent somewhere on the open connection.", _inject_pingreq),
    _legal("publish-qos-0-twice", "A PUBLISH with QoS 0 is sent twice: two messages.", _qos_0_twice),
    _legal("split-at-every-byte", "Every byte travels in a segment of its own.",
           partial(_cut, lambda target, size: list(range(1, size))), senders=SIDES),
    _legal("split-once", "Every packet travels in two segments, cut anywhere.",
           partial(_cut, lambda target, size: [1 + target.chance.below(size - 1)]), senders=SIDES),
    _legal("coalesce", "Packets that follow each other travel in one segment.", _coalesce, senders=SIDES),
    _legal("coalesce-connect", "A PUBLISH travels in the segment of the CONNECT.", _coalesce_connect),
    _legal("slow-drip", "The bytes of one packet come a tenth of a second apart.", _drip, ANY),
    _legal("delay", "The client does nothing for half of its Keep Alive (5 seconds at most).", _delay),
    _legal("keep-alive-just-met", "The client is silent for almost its Keep Alive.", _keep_alive_met),
    row("flow:keep-alive-overrun", "The client is silent for twice its Keep Alive.", _keep_alive_overrun,
        "3.1 V31-KEEPALIVE-client, 3.1.1 MQTT-3.1.2-23, 5.0 MQTT-3.1.2-20",
        Reaction(Demand.CLOSE, (0x8D,), within_keep_alive=True), later=True,
        calls_for="3.1 V31-KEEPALIVE-server, 3.1.1 MQTT-3.1.2-24, 5.0 MQTT-3.1.2-22"),
    _legal("stop-reading", "The client sends 1,000 PINGREQs and reads no answer.", _stop_reading, ANY),
    _legal("every-packet-type", "Every packet type of a client comes, in some order.", _every_type),
)  # fmt: skip
"""Order, number, pieces and time of packets."""
