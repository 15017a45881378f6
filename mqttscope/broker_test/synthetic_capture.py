"""Mutated flows as frames, without any broker: what a capture of them would hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

from mqttscope.broker_test.conversation import Conversation, frames
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Pingresp, Puback, Pubcomp, Pubrec, Suback, Unsuback
from mqttscope.mqtt.properties import Properties
from mqttscope.mutate import Action, Case, MutatedFlow, Step
from mqttscope.mutate.flow import CLIENT
from mqttscope.transport.wire import Endpoint, Made

BETWEEN_NS = 10_000_000
"""Time from one step to the next, unless the case has a pause."""
SERVER = Endpoint(IPv4Address("192.0.2.1"), 1883)
"""An address that belongs to nobody (RFC 5737)."""
_FIRST_PORT, _PORTS = 49_152, 16_384
"""Ports of clients; each connection has its own, and where there are no more another address."""


def client_of(index: int) -> Endpoint:
    """The client's endpoint of the connection of this index."""
    host, port = divmod(index, _PORTS)
    return Endpoint(IPv4Address(f"198.51.100.{1 + host % 254}"), _FIRST_PORT + port)


def conversation_of(flow: MutatedFlow, start_ns: int) -> Conversation:
    """The steps of a flow with the answers of the recording, or where they are new of a conforming peer."""
    made = Conversation(flow.version, start_ns)
    from_client = flow.sender == CLIENT
    now = start_ns
    for step in flow.steps:
        now += step.nanoseconds if step.action is Action.PAUSE else BETWEEN_NS
        if step.action is Action.SEND and step.data:
            made.add(from_client, step.data, now, mutated=step.mutated)
        elif step.action is Action.AWAIT:
            data = step.data or _answer(step, flow.version)
            if data:
                made.add(not from_client, data, now)
        elif step.action in (Action.CLOSE, Action.HALF_CLOSE):
            made.add(from_client, b"", now, mutated=True, ends="fin")
        elif step.action is Action.RESET:
            made.add(from_client, b"", now, mutated=True, ends="reset")
    return made


def _answer(step: Step, version: ProtocolVersion) -> bytes:
    """What a conforming peer says to something new that waits for this; empty where that is nothing."""
    block = Properties() if version == ProtocolVersion.V5 else None
    number = step.packet_identifier or 0
    kinds: dict[PacketType, ControlPacket] = {
        PacketType.PINGRESP: Pingresp(),
        PacketType.PUBACK: Puback(packet_identifier=number),
        PacketType.PUBREC: Pubrec(packet_identifier=number),
        PacketType.PUBCOMP: Pubcomp(packet_identifier=number),
        PacketType.SUBACK: Suback(packet_identifier=number, properties=block, reason_codes=[0]),
        PacketType.UNSUBACK: Unsuback(
            packet_identifier=number, properties=block, reason_codes=[0] if block is not None else None
        ),
    }
    made = kinds.get(step.awaits) if step.awaits is not None else None
    return b"" if made is None else encode(made, version)


def case_frames(case: Case, index: int, start_ns: int, next_number: Callable[[], int]) -> Iterator[Made]:
    """A case as a whole TCP connection, the ``index``-th of its file; ``start_ns`` is when it is opened."""
    conversation = conversation_of(case.flow, start_ns)
    yield from frames(conversation, client=client_of(index), server=SERVER, next_number=next_number)
