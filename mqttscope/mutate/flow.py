"""Recorded connections, and the steps of mutated ones.

A `RecordedFlow` is the list of the packets of both sides, in the order of the recording.  A `MutatedFlow` is the list
of steps of one side: bytes to send, answers to wait for, pauses, the end.  A player takes these steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed

CLIENT = "client"
SERVER = "server"
SIDES = (CLIENT, SERVER)


@dataclass(slots=True)
class RecordedPacket:
    """One packet of a recorded flow."""

    from_client: bool
    packet: ControlPacket | Malformed
    raw: bytes
    timestamp_ns: int = 0

    @property
    def sender(self) -> str:
        return CLIENT if self.from_client else SERVER

    @property
    def packet_type(self) -> PacketType | None:
        """Type of the packet; ``None`` if it is malformed."""
        return None if isinstance(self.packet, Malformed) else self.packet.packet_type


@dataclass(slots=True)
class RecordedFlow:
    """One recorded connection."""

    entries: list[RecordedPacket]
    version: ProtocolVersion
    capture_hash: str = ""
    """Hash of the capture; part of the identity of a case."""
    connection: int = 0
    """Number of the connection in the capture."""

    def first(self, kind: type[ControlPacket], *, from_client: bool) -> Any:
        """The first well-formed packet of a class from one side, or ``None``."""
        for packet in self.entries:
            if packet.from_client is from_client and isinstance(packet.packet, kind):
                return packet.packet
        return None

    def places(self, sender: str, packet_type: PacketType | None = None) -> list[int]:
        """Indexes of the well-formed packets of one side, of all types or one type."""
        return [
            index
            for index, packet in enumerate(self.entries)
            if packet.sender == sender
            and packet.packet_type is not None
            and (packet_type is None or packet.packet_type == packet_type)
        ]


class Action(StrEnum):
    """Action of a player in one step."""

    SEND = "send"
    AWAIT = "await"
    """Wait for the packet that the other side sends at this point."""
    PAUSE = "pause"
    """Send nothing for some time; continue to read, except after `STOP_READING`."""
    STOP_READING = "stop_reading"
    HALF_CLOSE = "half_close"
    """Close the sending direction (FIN) and continue reading."""
    CLOSE = "close"
    """Close the connection normally."""
    RESET = "reset"


@dataclass(slots=True, frozen=True)
class FlowStep:
    """One step of the mutating side."""

    action: Action
    data: bytes = b""
    """``send``: the bytes to send.  ``await``: the recorded answer, or empty."""
    entry: int | None = None
    """Index of the recorded packet that this step repeats or replaces."""
    nanoseconds: int = 0
    """Length of a pause."""
    awaits: PacketType | None = None
    """Packet type to wait for; ``None`` if no packet is required."""
    packet_identifier: int | None = None
    """Packet Identifier of the awaited packet."""
    mutated: bool = False
    """Whether the mutation added or changed the step."""


@dataclass(slots=True, frozen=True)
class Change:
    """One difference from the bytes of the recorded packet."""

    entry: int | None
    """Index of the recorded packet; ``None`` for an added packet."""
    field: str
    """Path of the field that the mutation changes."""
    offset: int
    """Byte offset in the packet."""
    removed: bytes
    inserted: bytes


@dataclass(slots=True)
class MutatedFlow:
    """Steps of one side in a case."""

    mutation: str
    """Name of the mutation."""
    sender: str
    """Side that takes the steps: ``client`` or ``server``."""
    version: ProtocolVersion
    steps: list[FlowStep] = field(default_factory=list)
    changes: tuple[Change, ...] = ()

    @property
    def at(self) -> int:
        """Index of the first mutated step; all earlier steps are as recorded."""
        return next((index for index, step in enumerate(self.steps) if step.mutated), len(self.steps))

    @property
    def sent(self) -> bytes:
        return b"".join(step.data for step in self.steps if step.action is Action.SEND)


def recorded_steps(flow: RecordedFlow, sender: str) -> list[FlowStep]:
    """The steps of one side without a mutation."""
    steps = []
    for index, packet in enumerate(flow.entries):
        if packet.sender == sender:
            steps.append(FlowStep(Action.SEND, packet.raw, index))
        else:
            number = getattr(packet.packet, "packet_identifier", None)
            steps.append(FlowStep(Action.AWAIT, packet.raw, index, awaits=packet.packet_type, packet_identifier=number))
    return steps


def differences(entry: int | None, path: str, before: bytes, after: bytes, body: int) -> tuple[Change, ...]:
    """Differences between two forms of a packet; ``body`` is the length of the fixed header in ``before``."""
    start = _common_length(before, after)
    if before == after:
        return ()
    end = _common_length(before[start:][::-1], after[start:][::-1])
    whole = Change(entry, path, start, before[start : len(before) - end], after[start : len(after) - end])
    if start >= body or len(before) < body or len(whole.removed) <= body - start:
        return (whole,)
    # Header and body are compared separately: else one change would span from the Remaining Length to the field.
    head, rest = _header_length(after), before[body:]
    instead = after[head:]
    start = _common_length(rest, instead)
    end = _common_length(rest[start:][::-1], instead[start:][::-1])
    inner = Change(entry, path, body + start, rest[start : len(rest) - end], instead[start : len(instead) - end])
    outer = differences(entry, "remaining_length", before[:body], after[:head], body)
    return (*outer, inner) if inner.removed or inner.inserted else outer


def _common_length(left: bytes, right: bytes) -> int:
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    low = 0
    while limit - low > 1:
        middle = (low + limit) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            limit = middle
    return low


def _header_length(raw: bytes) -> int:
    at = 1
    while at < len(raw) and raw[at] & 0x80 and at < 5:
        at += 1
    return min(at + 1, len(raw))
