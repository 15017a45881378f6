"""What mutations of flows have in common: where to put steps in, packets to send, identifiers that are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT, Action, Step
from mqttscope.mutate.mutation import FlowTarget, NotApplicableError, refuse
from mqttscope.mutate.samples import TOPIC

V5 = ProtocolVersion.V5
SECOND = 1_000_000_000
MOST_PACKETS = 1_000
"""Packets that a mutation sends at most to reach a limit of the other side."""


def send(packet: ControlPacket | bytes, version: ProtocolVersion) -> Step:
    data = packet if isinstance(packet, bytes) else encode(packet, version)
    return Step(Action.SEND, data, mutated=True)


def wait(packet_type: PacketType, packet_identifier: int | None = None) -> Step:
    return Step(Action.AWAIT, awaits=packet_type, packet_identifier=packet_identifier, mutated=True)


def pause(nanoseconds: int) -> Step:
    return Step(Action.PAUSE, nanoseconds=nanoseconds, mutated=True)


def opening(target: FlowTarget) -> int:
    """Index of the first step on the open connection: after the CONNACK that accepts it (5.0 3.2)."""
    for index, entry in enumerate(target.flow.entries):
        if isinstance(entry.packet, Connack) and not entry.from_client and entry.packet.reason_code == 0:
            return index + 1
    raise NotApplicableError("the recording has no connection that was accepted")


def ending(target: FlowTarget) -> int:
    """Index of the step in which a side says DISCONNECT, or after the last one."""
    start = opening(target)
    for index in range(start, len(target.steps)):
        if target.flow.entries[index].packet_type == PacketType.DISCONNECT:
            return index
    return len(target.steps)


def put(target: FlowTarget, added: Sequence[Step], at: int | None = None, *, rest: bool = True) -> list[Step]:
    """The steps with others put in: at an index, or anywhere between CONNACK and DISCONNECT.

    ``rest`` is whether the recorded steps continue after them.
    """
    if at is None:
        first, last = opening(target), ending(target)
        at = first + target.chance.below(last - first + 1)
    return [*target.steps[:at], *added, *(target.steps[at:] if rest else ())]


def free_identifiers(target: FlowTarget, count: int) -> list[int]:
    """Packet Identifiers that the side uses nowhere in the flow, the highest first."""
    used = {
        getattr(entry.packet, "packet_identifier", None)
        for entry in target.flow.entries
        if entry.packet_type is not None
    }
    found: list[int] = []
    identifier = 65_535
    while len(found) < count and identifier:
        if identifier not in used:
            found.append(identifier)
        identifier -= 1
    refuse(len(found) < count, "there are not enough free Packet Identifiers")
    return found


def publish(target: FlowTarget, qos: int = 0, identifier: int | None = None, text: str = "") -> Publish:
    """A PUBLISH with nothing special in it."""
    limit = target.limit("maximum_qos", 2)
    refuse(qos > limit and target.sender == CLIENT, f"the server takes no QoS {qos}")
    block = Properties() if target.version == V5 else None
    return Publish(
        qos=qos,
        topic_name=TOPIC + text,
        packet_identifier=identifier if qos else None,
        properties=block,
        payload=b"mutate",
    )


def connect_of(target: FlowTarget) -> Connect:
    """The CONNECT of the flow."""
    found = target.flow.first(Connect, from_client=True)
    refuse(found is None, "the recording has no CONNECT")
    made: Connect = found
    return made


def keep_alive(target: FlowTarget) -> int:
    """Seconds of Keep Alive in force: the server's, else the client's (5.0 3.2.2.3.14)."""
    connect = connect_of(target)
    return target.limit("server_keep_alive", connect.keep_alive)


def sends(target: FlowTarget, *, start: int = 0) -> list[int]:
    """Indexes of the steps that send, from an index on."""
    return [
        index for index, one in enumerate(target.steps) if index >= start and one.action is Action.SEND and one.data
    ]


def marked(step: Step) -> Step:
    return replace(step, mutated=True)


def twice(target: FlowTarget, index: int) -> list[Step]:
    return [*target.steps[: index + 1], marked(target.steps[index]), *target.steps[index + 1 :]]


def instead(target: FlowTarget, index: int, packet: ControlPacket) -> list[Step]:
    step = replace(send(packet, target.version), entry=index)
    return [*target.steps[:index], step, *target.steps[index + 1 :]]
