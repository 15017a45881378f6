"""Mutations: their names, requirements, broken statements, and the reaction demanded of the receiver.

Names are stable.  Before the colon is the path of the field (``publish.topic_name``), the packet (``publish``) or
``flow``; after it, the change.  Fields are spelled as in JSON keys, filters and the linter.

Every random choice of a mutation comes from `Chance`, so that a case found last month has the same bytes today.  The
state of `random` belongs to the process, and its way from bits to numbers has changed between versions of Python.
`Chance` uses SHA-256 in counter mode instead: block ``n`` is the digest of the key and ``n``.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Connack, Connect, Disconnect
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, FlowStep, RecordedFlow

T = TypeVar("T")

V3_1, V3_1_1, V5 = ProtocolVersion
ALL_VERSIONS = (V3_1, V3_1_1, V5)
LATER = (V3_1_1, V5)
BEFORE_5 = (V3_1, V3_1_1)
ONLY_5 = (V5,)
DOMAIN = "mqttscope mutate 1"
"""First part of every key; a higher number makes all keys give other choices."""


class Chance:
    """Random choices determined by a key alone."""

    __slots__ = ("_block", "_key", "_left")

    def __init__(self, *key: str | int) -> None:
        # Each text is preceded by its length: ("ab", "c") and ("a", "bc") are different keys.
        parts = [DOMAIN, *(str(part) for part in key)]
        text = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
        self._key = hashlib.sha256(text).digest()
        self._block = 0
        self._left = b""

    def octets(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        parts = [self._left]
        have = len(self._left)
        while have < count:
            parts.append(hashlib.sha256(self._key + self._block.to_bytes(8, "big")).digest())
            self._block += 1
            have += 32
        whole = b"".join(parts)
        self._left = whole[count:]
        return whole[:count]

    def below(self, end: int) -> int:
        """A number from 0 to ``end - 1``, all equally likely."""
        if end < 1:
            raise ValueError(f"no number from 0 to {end - 1} exists")
        size = max(1, ((end - 1).bit_length() + 7) // 8)
        # Numbers from the last full multiple of ``end`` on would make small results more likely.
        limit = (1 << 8 * size) // end * end
        while True:
            number = int.from_bytes(self.octets(size), "big")
            if number < limit:
                return number % end

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in another order (Fisher-Yates)."""
        result = list(values)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result


class MutationKind(StrEnum):
    """Part of the traffic that a mutation changes."""

    WIRE = "wire"
    """The bytes of one field, by its data type."""
    PACKET = "packet"
    """The meaning of one packet."""
    FLOW = "flow"
    """The order, number and timing of packets."""
    RANDOM = "random"
    """Random bytes, chosen without regard to their meaning."""


class FlowVerdict(StrEnum):
    """Whether the specification allows the mutated flow."""

    VIOLATION = "violation"
    """The mutation breaks a statement."""
    DISCOURAGED = "discouraged"
    """The mutation breaks a "should" statement; a receiver may accept it or refuse it."""
    LEGAL = "legal"
    """The specification allows the mutation."""
    OPEN = "open"
    """Whether the mutation breaks a statement depends on what follows, or the version has no statement about it."""


class Demand(StrEnum):
    """Reaction demanded of the receiver."""

    CLOSE = "close"
    """Close the connection; in 5.0 the receiver may first send a reason code (5.0 4.13, 3.1.1 4.8)."""
    REFUSE = "refuse"
    """Close the connection, or continue and refuse the request with a reason code."""
    ACCEPT = "accept"
    """Continue normally."""
    ANY = "any"
    """Any reaction, as long as the receiver keeps running."""


@dataclass(slots=True, frozen=True)
class Reaction:
    """Reaction that the specification demands of the receiver."""

    demand: Demand
    reason_codes: tuple[int, ...] = ()
    """Reason codes of 5.0 that fit, the best one first; empty if no code or any code fits."""
    within_keep_alive: bool = False
    """Whether the close is due 1.5 times the Keep Alive after the last packet (5.0 3.1.2.10)."""


ANY = Reaction(Demand.ANY)
ACCEPT = Reaction(Demand.ACCEPT)
MALFORMED = Reaction(Demand.CLOSE, (0x81,))
PROTOCOL_ERROR = Reaction(Demand.CLOSE, (0x82, 0x81))


class NotApplicableError(MqttscopeError):
    """The mutation cannot be applied to the flow; the message gives the reason."""


def refuse(condition: object, why: str) -> None:
    """Raise `NotApplicableError` with the reason if the condition is true."""
    if condition:
        raise NotApplicableError(why)


@dataclass(slots=True)
class PacketTarget:
    """One packet of a flow, to be mutated."""

    packet: Any
    """A copy that the mutation may change."""
    raw: bytes
    """The recorded bytes of the packet."""
    version: ProtocolVersion
    sender: str
    flow: RecordedFlow
    index: int
    """Index of the packet in the flow."""
    chance: Chance

    def encoded(self) -> bytes:
        return encode(self.packet, self.version)

    @property
    def connect(self) -> Connect | None:
        connect: Connect | None = self.flow.first(Connect, from_client=True)
        return connect

    @property
    def connack(self) -> Connack | None:
        connack: Connack | None = self.flow.first(Connack, from_client=False)
        return connack

    def limit(self, name: str, default: int) -> int:
        """A limit that the receiver announced in CONNACK or CONNECT, by property name (5.0 3.2.2.3)."""
        packet = self.connack if self.sender == CLIENT else self.connect
        value = None if packet is None or packet.properties is None else getattr(packet.properties, name)
        return default if value is None else int(value)


@dataclass(slots=True)
class FlowTarget:
    """A flow to be mutated, as seen by the sender."""

    flow: RecordedFlow
    sender: str
    chance: Chance
    steps: list[FlowStep]
    """Recorded steps of the sender."""

    @property
    def version(self) -> ProtocolVersion:
        return self.flow.version

    def limit(self, name: str, default: int) -> int:
        return PacketTarget(None, b"", self.version, self.sender, self.flow, 0, self.chance).limit(name, default)


PacketChange = Callable[[PacketTarget], bytes | None]
"""Returns the bytes of the mutated packet, or ``None`` after changing attributes of ``target.packet``."""
FlowChange = Callable[[FlowTarget], list[FlowStep]]


@dataclass(slots=True, frozen=True)
class Mutation:
    """One named change to a packet or flow."""

    name: str
    kind: MutationKind
    description: str
    """One sentence."""
    change_packet: PacketChange | None = None
    """Makes the bytes that replace a packet."""
    change_flow: FlowChange | None = None
    """Makes the steps that replace the recorded ones."""
    packet_type: PacketType | None = None
    """Type of the packets that can be mutated; ``None`` for any."""
    field: str = ""
    """Path of the field in the packet, as the linter spells it, without indexes."""
    versions: tuple[ProtocolVersion, ...] = ALL_VERSIONS
    senders: tuple[str, ...] = (CLIENT,)
    """Sides that can send it: mutations by the client test brokers, mutations by the server test devices."""
    statements: tuple[str, ...] = ()
    """Statements that the mutation breaks, each with its version: ``5.0 MQTT-3.3.1-4``."""
    sender_statements: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Further broken statements that bind only one side, by side."""
    discouraged: bool = False
    """Whether the broken statements are "should" statements."""
    legal_in: tuple[ProtocolVersion, ...] = ()
    """Versions that allow the mutation."""
    reaction: Reaction = ANY
    """Reaction that the statements demand of the receiver in 5.0."""
    calls_for: tuple[str, ...] = ()
    """Statements that bind the receiver if no statement binds the sender, or that are stricter than the general one."""
    later: bool = False
    """Whether the violation is visible only in later packets or after some time."""

    def broken(self, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
        """The statements that the mutation breaks in a version."""
        mark = version.text + " "
        both = (*self.statements, *self.sender_statements.get(sender, ()))
        return tuple(statement for statement in both if statement.startswith(mark))

    def verdict(self, version: ProtocolVersion, sender: str = CLIENT) -> FlowVerdict:
        """Whether a version of the specification allows the mutation."""
        if version in self.legal_in:
            return FlowVerdict.LEGAL
        if not self.broken(version, sender):
            return FlowVerdict.OPEN
        return FlowVerdict.DISCOURAGED if self.discouraged else FlowVerdict.VIOLATION

    def reaction_in(self, version: ProtocolVersion, sender: str = CLIENT) -> Reaction:
        """Reaction that a version demands of the receiver."""
        verdict = self.verdict(version, sender)
        if verdict is FlowVerdict.LEGAL:
            return ACCEPT if self.reaction.demand is not Demand.ANY else ANY
        called = any(statement.startswith(version.text + " ") for statement in self.calls_for)
        if verdict is not FlowVerdict.VIOLATION and not (verdict is FlowVerdict.OPEN and called):
            return ANY
        if version == V5:
            return self.reaction
        # 3.1.1 4.8 demands a close for every violation; 3.1 has "should" at best.
        demand = self.reaction.demand if version == V3_1_1 else Demand.ANY
        return Reaction(demand, within_keep_alive=self.reaction.within_keep_alive)

    def demanded_by(self, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
        """The statements that demand the reaction; a receiver that reacts otherwise breaks one of them."""
        own = tuple(statement for statement in self.calls_for if statement.startswith(version.text + " "))
        closes = self.reaction_in(version, sender).demand in (Demand.CLOSE, Demand.REFUSE)
        general = _CLOSES.get((version, sender))
        return (*own, *((general,) if closes and general is not None and not own else ()))


_CLOSES = {
    (V3_1_1, CLIENT): "3.1.1 MQTT-4.8.0-1",
    (V3_1_1, SERVER): "3.1.1 MQTT-4.8.0-1",
    (V5, CLIENT): "5.0 MQTT-4.13.1-1",
    (V5, SERVER): "5.0 V5-ERROR-client-closes",
}
"""The general statement that demands a close after an error, by version and sender of the error."""


def target_at(flow: RecordedFlow, index: int, chance: Chance) -> PacketTarget:
    """The packet at an index of the flow, copied for a mutation to change."""
    entry = flow.entries[index]
    packet = copy.deepcopy(entry.packet)
    return PacketTarget(packet, entry.raw, flow.version, entry.sender, flow, index, chance)


_CLIENT_ONLY = {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ}
_SERVER_ONLY = {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}


def senders_of(packet_type: PacketType) -> tuple[str, ...]:
    """Sides that send a packet type (5.0 2.1.2); servers send DISCONNECT in 5.0 only."""
    if packet_type in _CLIENT_ONLY:
        return (CLIENT,)
    return (SERVER,) if packet_type in _SERVER_ONLY else (CLIENT, SERVER)


def row(
    name: str,
    sentence: str,
    change: Callable[[Any], Any],
    statements: str = "",
    reaction: Reaction = ANY,
    versions: tuple[ProtocolVersion, ...] = ALL_VERSIONS,
    senders: tuple[str, ...] = (),
    *,
    kind: MutationKind = MutationKind.PACKET,
    field: str | None = None,
    legal: tuple[ProtocolVersion, ...] = (),
    calls_for: str = "",
    discouraged: bool = False,
    later: bool = False,
) -> Mutation:
    """A mutation, declared as one row of a table.

    The name gives the packet type (``publish``; ``flow`` and ``random`` are not packet types) and the field, unless
    ``field`` names another one.  ``senders`` defaults to the senders of the packet type, and to the client for a flow.
    ``statements`` is a list with commas: ``"5.0 MQTT-3.3.4-7, server 3.1.1 MQTT-2.3.1-4"``; a side before the version
    means that the statement binds that side only.  Statements and ``legal`` are limited to ``versions``.
    """
    target_name, _, path = name.partition(":")[0].partition(".")
    is_flow = target_name == MutationKind.FLOW
    packet_type = None
    if is_flow or target_name == MutationKind.RANDOM:
        kind = MutationKind(target_name)
    else:
        packet_type = PacketType[target_name.upper()]
    return Mutation(
        name,
        kind,
        sentence,
        change_packet=None if is_flow else change,
        change_flow=change if is_flow else None,
        packet_type=packet_type,
        field=path if field is None else field,
        versions=versions,
        senders=senders or ((CLIENT,) if packet_type is None else senders_of(packet_type)),
        statements=cited(statements, versions),
        sender_statements={side: cited(statements, versions, side) for side in SIDES if f"{side} " in statements},
        discouraged=discouraged,
        legal_in=tuple(version for version in legal if version in versions),
        reaction=reaction,
        calls_for=cited(calls_for, versions),
        later=later,
    )


@cache
def cited(statements: str, versions: tuple[ProtocolVersion, ...], side: str = "") -> tuple[str, ...]:
    """The statements of these versions in a list with commas: without a side, or with the given side."""
    prefix = f"{side} " if side else ""
    listed = (text.removeprefix(prefix) for text in statements.split(", ") if text.startswith(prefix))
    return tuple(text for text in listed if any(text.startswith(f"{version.text} ") for version in versions))


def attributes(**values: Any) -> PacketChange:
    """A change that sets attributes of the packet to these values."""

    def change(target: PacketTarget) -> None:
        for name, value in values.items():
            setattr(target.packet, name, value)

    return change


def exists_in(packet: ControlPacket | type[ControlPacket], version: ProtocolVersion, sender: str) -> bool:
    """Whether the sender may send this packet type in a version."""
    kind = packet.packet_type
    if kind == PacketType.AUTH and version != V5:
        return False
    return not (kind == Disconnect.packet_type and sender == SERVER and version != V5)
