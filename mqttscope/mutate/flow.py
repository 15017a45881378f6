"""What is mutated, and what comes out: a recorded connection, and the steps of a changed one.

A `Flow` is one connection as a list of packets of both sides in the order of the recording.  A `MutatedFlow` is what
one side of it does instead: bytes to send, answers to wait for, pauses, the end.  Nothing here does it; a player does.
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
class Entry:
    """One packet of a flow."""

    from_client: bool
    packet: ControlPacket | Malformed
    raw: bytes
    timestamp_ns: int = 0

    @property
    def sender(self) -> str:
        return CLIENT if self.from_client else SERVER

    @property
    def packet_type(self) -> PacketType | None:
        """Type of a well-formed packet; ``None`` for a malformed one."""
        return None if isinstance(self.packet, Malformed) else self.packet.packet_type


@dataclass(slots=True)
class RecordedFlow:
    """One connection."""

    entries: list[Entry]
    version: ProtocolVersion
    capture_hash: str = ""
    """Hash of the capture that it comes from, which is part of what makes a case known again."""
    connection: int = 0
    """Number of the connection in the capture."""

    def first(self, kind: type[ControlPacket], *, from_client: bool) -> Any:
        """The first well-formed packet of a class from one side, ``None`` where there is none."""
        for one in self.entries:
            if one.from_client is from_client and isinstance(one.packet, kind):
                return one.packet
        return None

    def places(self, sender: str, packet_type: PacketType | None = None) -> list[int]:
        """Indexes of the well-formed packets of one side, of all types or of one."""
        return [
            index
            for index, one in enumerate(self.entries)
            if one.sender == sender
            and one.packet_type is not None
            and (packet_type is None or one.packet_type == packet_type)
        ]


class Action(StrEnum):
    """What a player does in a step."""

    SEND = "send"
    AWAIT = "await"
    """Wait for what the other side sends here."""
    PAUSE = "pause"
    """Do nothing for some time, reading included only where `STOP_READING` came before."""
    STOP_READING = "stop_reading"
    HALF_CLOSE = "half_close"
    """End the sending direction (FIN) and continue reading."""
    CLOSE = "close"
    """End the connection in good order."""
    RESET = "reset"


@dataclass(slots=True, frozen=True)
class Step:
    """One thing that the mutating side does."""

    action: Action
    data: bytes = b""
    """``send``: the bytes.  ``await``: what came here in the recording, empty for what was not recorded."""
    entry: int | None = None
    """Index of the recorded packet that it stands for."""
    nanoseconds: int = 0
    """Length of a pause."""
    awaits: PacketType | None = None
    """Packet type to wait for; ``None`` where nothing has to come."""
    packet_identifier: int | None = None
    """The identifier that the awaited packet has to have."""
    mutated: bool = False
    """Whether the step is one of the mutation's."""


@dataclass(slots=True, frozen=True)
class Change:
    """One place where bytes differ from the recorded packet."""

    entry: int | None
    """Index of the recorded packet, ``None`` for bytes that are new."""
    field: str
    """Path of what the mutation means to change."""
    offset: int
    """Offset in the packet, in bytes."""
    removed: bytes
    inserted: bytes


@dataclass(slots=True)
class MutatedFlow:
    """What one side does in a case."""

    mutation: str
    """Name of the mutation."""
    sender: str
    """The side that does it: ``client`` or ``server``."""
    version: ProtocolVersion
    steps: list[Step] = field(default_factory=list)
    changes: tuple[Change, ...] = ()

    @property
    def at(self) -> int:
        """Index of the first step of the mutation: everything before it is as recorded."""
        return next((index for index, one in enumerate(self.steps) if one.mutated), len(self.steps))

    @property
    def sent(self) -> bytes:
        return b"".join(one.data for one in self.steps if one.action is Action.SEND)


def recorded_steps(flow: RecordedFlow, sender: str) -> list[Step]:
    """The flow without a mutation, from one side's view."""
    steps = []
    for index, one in enumerate(flow.entries):
        if one.sender == sender:
            steps.append(Step(Action.SEND, one.raw, index))
        else:
            identifier = getattr(one.packet, "packet_identifier", None)
            steps.append(Step(Action.AWAIT, one.raw, index, awaits=one.packet_type, packet_identifier=identifier))
    return steps


def differences(entry: int | None, path: str, before: bytes, after: bytes, body: int) -> tuple[Change, ...]:
    """Where two forms of one packet differ: in the fixed header (its first ``body`` bytes before), and after it."""
    start = _common(before, after)
    if before == after:
        return ()
    end = _common(before[start:][::-1], after[start:][::-1])
    whole = Change(entry, path, start, before[start : len(before) - end], after[start : len(after) - end])
    if start >= body or len(before) < body or len(whole.removed) <= body - start:
        return (whole,)
    # A changed Remaining Length would make one change of everything up to the field.
    head, rest = _header(after), before[body:]
    instead = after[head:]
    start = _common(rest, instead)
    end = _common(rest[start:][::-1], instead[start:][::-1])
    inner = Change(entry, path, body + start, rest[start : len(rest) - end], instead[start : len(instead) - end])
    outer = differences(entry, "remaining_length", before[:body], after[:head], body)
    return (*outer, inner) if inner.removed or inner.inserted else outer


def _common(left: bytes, right: bytes) -> int:
    """Length of the common beginning."""
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


def _header(raw: bytes) -> int:
    """Length of a fixed header, as far as its bytes continue."""
    at = 1
    while at < len(raw) and raw[at] & 0x80 and at < 5:
        at += 1
    return min(at + 1, len(raw))
