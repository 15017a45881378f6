"""Helpers for mutations of flows: where to insert steps, packets to send, free Packet Identifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate.flow import CLIENT, Action, FlowStep
from mqttscope.mutate.mutation import FlowTarget, NotApplicableError, refuse
from mqttscope.mutate.samples import TOPIC

V5 = ProtocolVersion.V5
SECOND = 1_000_000_000
Steps = list[FlowStep]
MOST_PACKETS = 1_000
"""Maximum number of packets that a mutation sends to reach a limit of the receiver."""


def send(packet: ControlPacket | bytes, version: ProtocolVersion) -> FlowStep:
    data = packet if isinstance(packet, bytes) else encode(packet, version)
    return FlowStep(Action.SEND, data, mutated=True)


def wait(packet_type: PacketType, packet_identifier: int | None = None) -> FlowStep:
    return FlowStep(Action.AWAIT, awaits=packet_type, packet_identifier=packet_identifier, mutated=True)


def pause(nanoseconds: int) -> FlowStep:
    return FlowStep(Action.PAUSE, nanoseconds=nanoseconds, mutated=True)


def opening_index(target: FlowTarget) -> int:
    """Index of the first step after the CONNACK that accepts the connection (5.0 3.2)."""
    for index, entry in enumerate(target.flow.entries):
        if isinstance(entry.packet, Connack) and not entry.from_client and entry.packet.reason_code == 0:
            return index + 1
    raise NotApplicableError("the recording has no CONNACK that accepts the connection")


def ending_index(target: FlowTarget) -> int:
    """Index of the step that is a DISCONNECT, or the number of steps."""
    start = opening_index(target)
    for index in range(start, len(target.steps)):
        if target.flow.entries[index].packet_type == PacketType.DISCONNECT:
            return index
    return len(target.steps)


def insert(target: FlowTarget, added: Sequence[FlowStep], at: int | None = None, *, rest: bool = True) -> Steps:
    """The steps with others inserted: at an index, or at a random place between CONNACK and DISCONNECT.

    ``rest`` is whether the recorded steps continue after the inserted ones.
    """
    if at is None:
        first, last = opening_index(target), ending_index(target)
        at = first + target.chance.below(last - first + 1)
    return [*target.steps[:at], *added, *(target.steps[at:] if rest else ())]


def free_identifiers(target: FlowTarget, count: int) -> list[int]:
    """Packet Identifiers that no packet of the flow uses, the highest first."""
    used = {
        getattr(entry.packet, "packet_identifier", None)
        for entry in target.flow.entries
        if entry.packet_type is not None
    }
    identifiers: list[int] = []
    identifier = 65_535
    while len(identifiers) < count and identifier:
        if identifier not in used:
            identifiers.append(identifier)
        identifier -= 1
    refuse(len(identifiers) < count, "there are not enough free Packet Identifiers")
    return identifiers


def publish(target: FlowTarget, qos: int = 0, identifier: int | None = None, text: str = "") -> Publish:
    """An ordinary PUBLISH."""
    limit = target.limit("maximum_qos", 2)
    refuse(qos > limit and target.sender == CLIENT, f"the server does not accept QoS {qos}")
    block = Properties() if target.version == V5 else None
    return Publish(
        qos=qos,
        topic_name=TOPIC + text,
        packet_identifier=identifier if qos else None,
        properties=block,
        payload=b"mutate",
    )


def recorded_connect(target: FlowTarget) -> Connect:
    """The CONNECT of the flow."""
    packet = target.flow.first(Connect, from_client=True)
    refuse(packet is None, "the recording has no CONNECT")
    connect: Connect = packet
    return connect


def keep_alive(target: FlowTarget) -> int:
    """Effective Keep Alive in seconds: the server's, else the client's (5.0 3.2.2.3.14)."""
    connect = recorded_connect(target)
    return target.limit("server_keep_alive", connect.keep_alive)


def sending_steps(target: FlowTarget, *, start: int = 0) -> list[int]:
    """Indexes of the steps that send bytes, from ``start`` on."""
    return [
        index for index, step in enumerate(target.steps) if index >= start and step.action is Action.SEND and step.data
    ]


def mark_mutated(step: FlowStep) -> FlowStep:
    return replace(step, mutated=True)


def repeat_step(target: FlowTarget, index: int) -> list[FlowStep]:
    return [*target.steps[: index + 1], mark_mutated(target.steps[index]), *target.steps[index + 1 :]]


def replace_step(target: FlowTarget, index: int, packet: ControlPacket) -> list[FlowStep]:
    step = replace(send(packet, target.version), entry=index)
    return [*target.steps[:index], step, *target.steps[index + 1 :]]
