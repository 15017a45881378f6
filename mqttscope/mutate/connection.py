"""Mutations of a connection: its beginning and end, the direction of packets, and their timing and segmentation.

TCP delivers a stream of bytes, so a receiver must accept packets in any segmentation (3.1.1 4.2).
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
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, Action, FlowStep
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
    ending_index,
    free_identifiers,
    insert,
    keep_alive,
    mark_mutated,
    opening_index,
    pause,
    publish,
    recorded_connect,
    repeat_step,
    send,
    sending_steps,
    wait,
)

DRIP_NS = 100_000_000
"""Pause between the bytes of a slow sender, in nanoseconds."""


def _put(packet: ControlPacket | bytes, target: FlowTarget) -> list[FlowStep]:
    return insert(target, [send(packet, target.version)])


def _before_connack(packet: ControlPacket, target: FlowTarget) -> list[FlowStep]:
    return insert(target, [send(packet, target.version)], opening_index(target) - 1)


def _sample(kind: PacketType, target: FlowTarget) -> list[FlowStep]:
    return _put(sample(kind, target.version, 60_000), target)


def _first(kind: PacketType, target: FlowTarget) -> list[FlowStep]:
    return [send(sample(kind, target.version), target.version), *target.steps]


def _no_connect(target: FlowTarget) -> list[FlowStep]:
    at = target.flow.places(CLIENT, PacketType.CONNECT)
    rest = [index for index in target.flow.places(CLIENT) if at and index > at[0]]
    refuse(not rest, "the client sent only CONNECT")
    # The server sends no answers without a CONNECT, so no step waits.
    return [FlowStep(Action.SEND, target.steps[index].data, index, mutated=True) for index in rest]


def _nothing(target: FlowTarget) -> list[FlowStep]:
    return [pause(120 * SECOND)]


def _half_a_connect(target: FlowTarget) -> list[FlowStep]:
    raw = recorded_connect(target).raw
    return [send(raw[: len(raw) // 2], target.version), pause(120 * SECOND)]


def _only_connect(target: FlowTarget) -> list[FlowStep]:
    return [*target.steps[: opening_index(target)], pause(60 * SECOND)]


def _authenticates(target: FlowTarget) -> bool:
    connect = recorded_connect(target)
    return connect.properties is not None and connect.properties.authentication_method is not None


def _during_authentication(target: FlowTarget) -> list[FlowStep]:
    refuse(not _authenticates(target), "the client names no Authentication Method")
    at = target.flow.places(CLIENT, PacketType.CONNECT)[0] + 1
    return insert(target, [send(Pingreq(), V5)], at)


def _auth(target: FlowTarget) -> list[FlowStep]:
    refuse(_authenticates(target), "the client names an Authentication Method")
    code = 0x19 if target.sender == CLIENT else 0x18
    return _put(Auth(reason_code=code, properties=Properties(authentication_method="PLAIN")), target)


def _after_disconnect(target: FlowTarget) -> list[FlowStep]:
    refuse(not exists_in(Disconnect, target.version, target.sender), "before 5.0 only clients send DISCONNECT")
    last = Pingreq() if target.sender == CLIENT else Pingresp()
    # Two steps, because the DISCONNECT alone may already end the connection.
    return [*target.steps[: ending_index(target)], send(Disconnect(), target.version), send(last, target.version)]


def _ends(action: Action, target: FlowTarget) -> list[FlowStep]:
    at = opening_index(target) + target.chance.below(ending_index(target) - opening_index(target) + 1)
    return [*target.steps[:at], FlowStep(action, mutated=True)]


def _closes_inside(target: FlowTarget) -> list[FlowStep]:
    at = ending_index(target)
    raw = encode(sample(PacketType.PUBLISH, target.version), target.version)
    cut = 3 + target.chance.below(len(raw) - 3)
    return [*target.steps[:at], send(raw[:cut], target.version), FlowStep(Action.CLOSE, mutated=True)]


def _second_connack(target: FlowTarget) -> list[FlowStep]:
    at = opening_index(target)
    return insert(target, [send(target.flow.first(Connack, from_client=False).raw, target.version)], at)


_FIRST = "3.1 V31-CONNECT-first, 3.1.1 MQTT-3.1.0-1, 5.0 MQTT-3.1.0-1"
OPENING = (
    *(row(f"flow:first-packet-{kind.name.lower()}",
          f"The first packet of the client is {kind.name}, before its CONNECT.", partial(_first, kind), _FIRST,
          PROTOCOL_ERROR, ONLY_5 if kind == PacketType.AUTH else ALL_VERSIONS)
      for kind in PacketType if CLIENT in senders_of(kind) and kind != PacketType.CONNECT),
    row("flow:connect-dropped", "The client sends all packets except CONNECT.", _no_connect, _FIRST, PROTOCOL_ERROR),
    row("flow:second-connect", "The client sends its CONNECT again on the open connection.",
        lambda target: _put(recorded_connect(target).raw, target),
        "3.1 V31-CONNECT-second, 3.1.1 MQTT-3.1.0-2, 5.0 MQTT-3.1.0-2", PROTOCOL_ERROR,
        calls_for="3.1.1 MQTT-3.1.0-2, 5.0 MQTT-3.1.0-2"),
    row("flow:nothing-sent",
        "The client opens the connection and sends nothing for two minutes; a server should close it.", _nothing),
    row("flow:half-a-connect", "The client sends half of CONNECT, then nothing for two minutes.", _half_a_connect),
    row("flow:nothing-after-connect", "The client sends nothing after its CONNECT for a minute.", _only_connect),
    # Misplaced packets of Enhanced Authentication (5.0 4.12).
    row("flow:packet-during-authentication",
        "The client sends PINGREQ during its authentication, before CONNACK.", _during_authentication,
        "5.0 MQTT-3.1.2-30", PROTOCOL_ERROR, ONLY_5),
    row("flow:auth-unsolicited", "AUTH is sent although CONNECT has no Authentication Method.", _auth,
        "client 5.0 MQTT-4.12.0-7, server 5.0 MQTT-4.12.0-6", PROTOCOL_ERROR, ONLY_5, SIDES),
    row("flow:packet-after-disconnect", "A packet follows DISCONNECT.", _after_disconnect,
        "5.0 MQTT-3.14.4-1, client 3.1.1 MQTT-3.14.4-2", Reaction(Demand.CLOSE), senders=SIDES, later=True),
    *(row(f"flow:{slug}", f"One side {words}.", partial(_ends, action), senders=SIDES)
      for slug, action, words in (
          ("closed-without-disconnect", Action.CLOSE, "closes the connection without DISCONNECT"),
          ("reset", Action.RESET, "resets the connection"),
          ("half-closed", Action.HALF_CLOSE, "closes its sending direction (FIN) and continues reading"),
      )),
    row("flow:closed-inside-packet", "One side closes the connection in the middle of a PUBLISH.", _closes_inside,
        "3.1.1 V311-LENGTH-overrun, 5.0 V5-LENGTH-overrun", ANY, senders=SIDES, later=True),
    # Packets that a server must not send before or after its CONNACK (5.0 3.2).
    row("flow:packet-before-connack", "The server sends PINGRESP before its CONNACK.",
        partial(_before_connack, Pingresp()), "3.1 V31-CONNACK-first, 3.1.1 MQTT-3.2.0-1, 5.0 MQTT-3.2.0-1",
        PROTOCOL_ERROR, senders=(SERVER,)),
    row("flow:second-connack", "The server sends its CONNACK twice.", _second_connack, "5.0 MQTT-3.2.0-2",
        PROTOCOL_ERROR, senders=(SERVER,)),
    row("flow:disconnect-before-connack", "The server sends DISCONNECT before its CONNACK.",
        partial(_before_connack, Disconnect(reason_code=0x8B, properties=Properties())), "5.0 MQTT-3.14.0-1",
        PROTOCOL_ERROR, ONLY_5, (SERVER,)),
    # Packets that only the other side may send, and reserved packet types (5.0 2.1.2).
    *(row(f"flow:wrong-direction-{kind.name.lower()}",
          f"The {side} sends {kind.name}, which only the other side may send.", partial(_sample, kind),
          "3.1.1 V311-TYPE-direction, 5.0 V5-TYPE-direction", PROTOCOL_ERROR, senders=(side,))
      for kind in PacketType for side in SIDES if side not in senders_of(kind)),
    row("flow:wrong-direction-disconnect", "The server sends DISCONNECT, which only the client may send.",
        partial(_sample, PacketType.DISCONNECT), "3.1 V31-DISCONNECT-client-only, 3.1.1 V311-TYPE-direction",
        PROTOCOL_ERROR, BEFORE_5, (SERVER,)),
    *(row(f"flow:reserved-type-{number}", f"A packet has the reserved type {number}.",
          partial(_put, bytes((number << 4, 0))),
          "3.1 V31-HEADER-type-reserved, 3.1.1 V311-TYPE-reserved, 5.0 V5-TYPE-reserved", MALFORMED, versions, SIDES)
      for number, versions in ((0, ALL_VERSIONS), (15, BEFORE_5))),
)  # fmt: skip
"""Mutations of the first and last packets of a connection, and packets in the wrong direction."""


def _open_packet(target: FlowTarget) -> int:
    """Index of a random packet of the sender between CONNACK and DISCONNECT."""
    last = ending_index(target)
    choices = [index for index in sending_steps(target, start=opening_index(target)) if index < last]
    refuse(not choices, "the side sends nothing on the open connection")
    return target.chance.pick(choices)


def _drop(target: FlowTarget) -> list[FlowStep]:
    index = _open_packet(target)
    steps = list(target.steps)
    # An empty step keeps the position, so that a player can stop there.
    steps[index] = replace(mark_mutated(steps[index]), data=b"")
    return steps


def _reorder(target: FlowTarget) -> list[FlowStep]:
    index = _open_packet(target)
    later = [other for other in sending_steps(target, start=index + 1) if other < ending_index(target)]
    refuse(not later, "no later packet could be swapped with this one")
    steps = list(target.steps)
    steps[index], steps[later[0]] = mark_mutated(steps[later[0]]), mark_mutated(steps[index])
    return steps


def _inject_pingreq(target: FlowTarget) -> list[FlowStep]:
    return insert(target, [send(Pingreq(), target.version), wait(PacketType.PINGRESP)])


def _qos_0_twice(target: FlowTarget) -> list[FlowStep]:
    for index, entry in enumerate(target.flow.entries):
        if entry.from_client and isinstance(entry.packet, Publish) and entry.packet.qos == 0:
            return repeat_step(target, index)
    raise NotApplicableError("the client sends no PUBLISH with QoS 0")


def _split(step: FlowStep, cuts: list[int]) -> Iterator[FlowStep]:
    places = [0, *cuts, len(step.data)]
    return (replace(mark_mutated(step), data=step.data[start:end]) for start, end in pairwise(places) if end > start)


def _cut(cuts: Callable[[FlowTarget, int], list[int]], target: FlowTarget) -> list[FlowStep]:
    """Cut each packet into several steps; the player passes each step to TCP separately."""
    steps: list[FlowStep] = []
    for step in target.steps:
        size = len(step.data)
        steps += _split(step, cuts(target, size)) if step.action is Action.SEND and size > 1 else [step]
    return steps


def _coalesce(target: FlowTarget) -> list[FlowStep]:
    steps: list[FlowStep] = []
    for step in target.steps:
        if steps and step.action is Action.SEND and steps[-1].action is Action.SEND:
            steps[-1] = replace(mark_mutated(steps[-1]), data=steps[-1].data + step.data)
        else:
            steps.append(step)
    refuse(len(steps) == len(target.steps), "the sender sends no two packets in a row")
    return steps


def _coalesce_connect(target: FlowTarget) -> list[FlowStep]:
    refuse(_authenticates(target), "the client must wait for the authentication")
    at = target.flow.places(CLIENT, PacketType.CONNECT)[0]
    opening_index(target)
    steps = list(target.steps)
    added = send(sample(PacketType.PUBLISH, target.version), target.version)
    steps[at] = replace(mark_mutated(steps[at]), data=steps[at].data + added.data)
    return steps


def _drip(target: FlowTarget) -> list[FlowStep]:
    index = _open_packet(target)
    limit = keep_alive(target) * SECOND // 2
    data = target.steps[index].data
    gap = min(DRIP_NS, limit // len(data)) if limit else DRIP_NS
    dripped = (step for byte in _split(target.steps[index], list(range(1, len(data)))) for step in (byte, pause(gap)))
    return [*target.steps[:index], *dripped, *target.steps[index + 1 :]]


def _delay(target: FlowTarget) -> list[FlowStep]:
    limit = keep_alive(target) * SECOND // 2 or 5 * SECOND
    return insert(target, [pause(min(limit, 5 * SECOND)), send(Pingreq(), target.version)])


def _keep_alive(target: FlowTarget) -> int:
    seconds = keep_alive(target)
    refuse(not seconds, "the client has no Keep Alive")
    return seconds


def _keep_alive_met(target: FlowTarget) -> list[FlowStep]:
    ping = [send(Pingreq(), target.version), wait(PacketType.PINGRESP)]
    added = [*ping, pause(_keep_alive(target) * SECOND * 95 // 100), *ping]
    return insert(target, added, ending_index(target))


def _keep_alive_overrun(target: FlowTarget) -> list[FlowStep]:
    added = [pause(_keep_alive(target) * SECOND * 2), send(Pingreq(), target.version)]
    return insert(target, added, ending_index(target), rest=False)


def _stop_reading(target: FlowTarget) -> list[FlowStep]:
    pings = (send(Pingreq(), target.version) for _ in range(1000))
    return insert(target, [FlowStep(Action.STOP_READING, mutated=True), *pings, pause(30 * SECOND)], rest=False)


def _every_type(target: FlowTarget) -> list[FlowStep]:
    version = target.version
    acknowledged, exactly_once, subscribed, unsubscribed = free_identifiers(target, 4)
    groups = [
        [send(publish(target), version)],
        [send(publish(target, 1, acknowledged), version), wait(PacketType.PUBACK, acknowledged)],
        [
            send(publish(target, 2, exactly_once), version),
            wait(PacketType.PUBREC, exactly_once),
            send(Pubrel(packet_identifier=exactly_once), version),
            wait(PacketType.PUBCOMP, exactly_once),
        ],
        [send(sample(PacketType.SUBSCRIBE, version, subscribed), version), wait(PacketType.SUBACK, subscribed)],
        [send(sample(PacketType.UNSUBSCRIBE, version, unsubscribed), version), wait(PacketType.UNSUBACK, unsubscribed)],
        [send(Pingreq(), version), wait(PacketType.PINGRESP)],
    ]
    return insert(target, [step for group in target.chance.shuffled(groups) for step in group], ending_index(target))


def _legal(slug: str, sentence: str, change: FlowChange, reaction: Reaction = ACCEPT, **more: Any) -> Mutation:
    return row(f"flow:{slug}", sentence, change, "", reaction, legal=ALL_VERSIONS, **more)


TRANSPORT = (
    row("flow:drop", "One packet is omitted.", _drop, senders=SIDES),
    row("flow:duplicate", "One packet is sent twice.", lambda target: repeat_step(target, _open_packet(target)),
        senders=SIDES),
    row("flow:reorder", "Two packets of one side are swapped.", _reorder, senders=SIDES),
    _legal("inject-pingreq", "A PINGREQ is inserted at a random point of the open connection.", _inject_pingreq),
    _legal("publish-qos-0-twice", "A PUBLISH with QoS 0 is sent twice, as two messages.", _qos_0_twice),
    _legal("split-at-every-byte", "Every byte is sent in its own TCP segment.",
           partial(_cut, lambda target, size: list(range(1, size))), senders=SIDES),
    _legal("split-once", "Every packet is sent in two TCP segments, split at a random byte.",
           partial(_cut, lambda target, size: [1 + target.chance.below(size - 1)]), senders=SIDES),
    _legal("coalesce", "Consecutive packets are sent in one TCP segment.", _coalesce, senders=SIDES),
    _legal("coalesce-connect", "A PUBLISH is sent in one TCP segment with CONNECT.", _coalesce_connect),
    _legal("slow-drip", "The bytes of one packet are sent a tenth of a second apart.", _drip, ANY),
    _legal("delay", "The client sends nothing for half of its Keep Alive (at most 5 seconds).", _delay),
    _legal("keep-alive-just-met", "The client is silent for almost its Keep Alive.", _keep_alive_met),
    row("flow:keep-alive-overrun", "The client is silent for twice its Keep Alive.", _keep_alive_overrun,
        "3.1 V31-KEEPALIVE-client, 3.1.1 MQTT-3.1.2-23, 5.0 MQTT-3.1.2-20",
        Reaction(Demand.CLOSE, (0x8D,), within_keep_alive=True), later=True,
        calls_for="3.1 V31-KEEPALIVE-server, 3.1.1 MQTT-3.1.2-24, 5.0 MQTT-3.1.2-22"),
    _legal("stop-reading", "The client sends 1,000 PINGREQs and reads no answer.", _stop_reading, ANY),
    _legal("every-packet-type", "The client sends every packet type in random order.", _every_type),
)  # fmt: skip
"""Mutations of the order, number, segmentation and timing of packets."""
