"""What a mutation is: a name, what it needs, what it breaks, what the specification demands of the receiver.

Names are stable.  Before the colon stands the path of the field (``publish.topic_name``), the packet (``publish``) or
``flow``; after it what is done.  The same spelling is used for JSON keys, filters and the linter's fields.

Where a mutation has a choice, `Chance` makes it, the same everywhere.  The state of `random` belongs to the process,
and how it makes numbers of bits has changed between versions of Python; a case that was found last month has to be the
same bytes today.  So choices come from SHA-256 in counter mode: block ``n`` is the digest of the key and ``n``.
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
from mqttscope.mutate.flow import CLIENT, SERVER, SIDES, RecordedFlow, Step

T = TypeVar("T")

V3_1, V3_1_1, V5 = ProtocolVersion
ALL_VERSIONS = (V3_1, V3_1_1, V5)
LATER = (V3_1_1, V5)
BEFORE_5 = (V3_1, V3_1_1)
ONLY_5 = (V5,)
DOMAIN = "mqttscope mutate 1"
"""Stands first in every key; the number changes when the same key has to give other choices."""


class Chance:
    """Choices that follow from a key and from nothing else."""

    __slots__ = ("_block", "_key", "_left")

    def __init__(self, *key: str | int) -> None:
        # Length before text, so that ("ab", "c") and ("a", "bc") are different keys.
        parts = [DOMAIN, *(str(one) for one in key)]
        text = b"".join(len(one.encode()).to_bytes(4, "big") + one.encode() for one in parts)
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
        """A number from 0 to ``end - 1``, each as likely as any other."""
        if end < 1:
            raise ValueError(f"there is no number from 0 to {end - 1}")
        size = max(1, ((end - 1).bit_length() + 7) // 8)
        # Numbers above the last full multiple would make the small remainders likelier.
        limit = (1 << 8 * size) // end * end
        while True:
            number = int.from_bytes(self.octets(size), "big")
            if number < limit:
                return number % end

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in another order (Fisher-Yates)."""
        made = list(values)
        for last in range(len(made) - 1, 0, -1):
            other = self.below(last + 1)
            made[last], made[other] = made[other], made[last]
        return made


class MutationKind(StrEnum):
    """What a mutation works on."""

    WIRE = "wire"
    """The bytes of one field, by its data type."""
    PACKET = "packet"
    """What one packet says."""
    FLOW = "flow"
    """The order, number and time of packets."""
    RANDOM = "random"
    """Bytes, without any knowledge of them."""


class Verdict(StrEnum):
    """What the specification says about the mutated flow."""

    VIOLATION = "violation"
    """It breaks a statement."""
    DISCOURAGED = "discouraged"
    """It breaks a statement that says "should"; a receiver may accept it or not."""
    LEGAL = "legal"
    """It is as the specification has it."""
    OPEN = "open"
    """What it breaks, if anything, depends on what follows, or the version has no statement about it."""


class Demand(StrEnum):
    """What the receiver has to do."""

    CLOSE = "close"
    """Close the connection, in 5.0 with a reason code before it if it likes (5.0 4.13, 3.1.1 4.8)."""
    REFUSE = "refuse"
    """Close the connection, or continue and refuse with a reason code in the answer."""
    ACCEPT = "accept"
    """Continue as if nothing were special."""
    ANY = "any"
    """Whatever it likes, but it stays alive."""


@dataclass(slots=True, frozen=True)
class Reaction:
    """What the specification demands of the receiver."""

    demand: Demand
    reason_codes: tuple[int, ...] = ()
    """Reason codes of 5.0 that fit, the best one first; empty where there is none or any will do."""
    within_keep_alive: bool = False
    """The close is due one and a half Keep Alive after the last packet (5.0 3.1.2.10)."""


ANY = Reaction(Demand.ANY)
ACCEPT = Reaction(Demand.ACCEPT)
MALFORMED = Reaction(Demand.CLOSE, (0x81,))
PROTOCOL_ERROR = Reaction(Demand.CLOSE, (0x82, 0x81))


class NotApplicableError(MqttscopeError):
    """The flow lacks what the mutation needs."""


def refuse(condition: object, why: str) -> None:
    """Raise `NotApplicableError` if a condition is true."""
    if condition:
        raise NotApplicableError(why)


@dataclass(slots=True)
class Target:
    """One packet to be mutated, in its flow."""

    packet: Any
    """A copy, to be changed at will."""
    raw: bytes
    """Its bytes."""
    version: ProtocolVersion
    sender: str
    flow: RecordedFlow
    index: int
    """Of the entry in the flow."""
    chance: Chance

    def encoded(self) -> bytes:
        return encode(self.packet, self.version)

    @property
    def connect(self) -> Connect | None:
        found: Connect | None = self.flow.first(Connect, from_client=True)
        return found

    @property
    def connack(self) -> Connack | None:
        found: Connack | None = self.flow.first(Connack, from_client=False)
        return found

    def limit(self, name: str, default: int) -> int:
        """A limit that the other side announced in CONNACK or CONNECT, by the name of its property (5.0 3.2.2.3)."""
        told = self.connack if self.sender == CLIENT else self.connect
        value = None if told is None or told.properties is None else getattr(told.properties, name)
        return default if value is None else int(value)


@dataclass(slots=True)
class FlowTarget:
    """A flow to be mutated, from the view of one side."""

    flow: RecordedFlow
    sender: str
    chance: Chance
    steps: list[Step]
    """What that side did."""

    @property
    def version(self) -> ProtocolVersion:
        return self.flow.version

    def limit(self, name: str, default: int) -> int:
        return Target(None, b"", self.version, self.sender, self.flow, 0, self.chance).limit(name, default)


PacketChange = Callable[[Target], bytes | None]
"""Returns the bytes of the mutated packet, or ``None`` after changing attributes of ``target.packet``."""
FlowChange = Callable[[FlowTarget], list[Step]]


@dataclass(slots=True, frozen=True)
class Mutation:
    """One named change."""

    name: str
    kind: MutationKind
    description: str
    """One sentence."""
    change_packet: PacketChange | None = None
    """Bytes to send in place of a packet."""
    change_flow: FlowChange | None = None
    """Steps to take in place of those recorded."""
    packet_type: PacketType | None = None
    """Type of the packet that it needs; ``None`` for any."""
    field: str = ""
    """Path in the packet, as the linter spells it without indexes."""
    versions: tuple[ProtocolVersion, ...] = ALL_VERSIONS
    senders: tuple[str, ...] = (CLIENT,)
    """Who can send it: mutations of the client test brokers, those of the server test devices."""
    statements: tuple[str, ...] = ()
    """What it breaks, each with its version: ``5.0 MQTT-3.3.1-4``."""
    sender_statements: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """More of them, for one side only."""
    discouraged: bool = False
    """Whether the statements say "should"."""
    legal_in: tuple[ProtocolVersion, ...] = ()
    """Versions in which it is as the specification has it."""
    reaction: Reaction = ANY
    """What the statements demand of the receiver, in 5.0."""
    calls_for: tuple[str, ...] = ()
    """Statements that bind the receiver where none binds the sender, or that say more than the general ones."""
    later: bool = False
    """Whether the violation shows only in the packets after the mutated one, or by time."""

    def broken(self, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
        """The statements that it breaks in a version."""
        mark = version.text + " "
        both = (*self.statements, *self.sender_statements.get(sender, ()))
        return tuple(one for one in both if one.startswith(mark))

    def verdict(self, version: ProtocolVersion, sender: str = CLIENT) -> Verdict:
        """What the specification says about it in a version."""
        if version in self.legal_in:
            return Verdict.LEGAL
        if not self.broken(version, sender):
            return Verdict.OPEN
        return Verdict.DISCOURAGED if self.discouraged else Verdict.VIOLATION

    def reaction_in(self, version: ProtocolVersion, sender: str = CLIENT) -> Reaction:
        """What the receiver has to do in a version."""
        verdict = self.verdict(version, sender)
        if verdict is Verdict.LEGAL:
            return ACCEPT if self.reaction.demand is not Demand.ANY else ANY
        called = any(one.startswith(version.text + " ") for one in self.calls_for)
        if verdict is not Verdict.VIOLATION and not (verdict is Verdict.OPEN and called):
            return ANY
        if version == V5:
            return self.reaction
        # 3.1.1 4.8 has a receiver close whatever it is; 3.1 says "should" at best.
        demand = self.reaction.demand if version == V3_1_1 else Demand.ANY
        return Reaction(demand, within_keep_alive=self.reaction.within_keep_alive)

    def demanded_by(self, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
        """The statements that demand the reaction: one of which a receiver breaks that does not show it."""
        own = tuple(one for one in self.calls_for if one.startswith(version.text + " "))
        closes = self.reaction_in(version, sender).demand in (Demand.CLOSE, Demand.REFUSE)
        general = _CLOSES.get((version, sender))
        return (*own, *((general,) if closes and general is not None and not own else ()))


_CLOSES = {
    (V3_1_1, CLIENT): "3.1.1 MQTT-4.8.0-1",
    (V3_1_1, SERVER): "3.1.1 MQTT-4.8.0-1",
    (V5, CLIENT): "5.0 MQTT-4.13.1-1",
    (V5, SERVER): "5.0 V5-ERROR-client-closes",
}
"""The general statement that has the receiver of an error close, by version and sender of the error."""


def target(flow: RecordedFlow, index: int, chance: Chance) -> Target:
    """The packet at an index of the flow, as a mutation gets it."""
    entry = flow.entries[index]
    made = copy.deepcopy(entry.packet)
    return Target(made, entry.raw, flow.version, entry.sender, flow, index, chance)


_CLIENT_ONLY = {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ}
_SERVER_ONLY = {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}


def senders_of(packet_type: PacketType) -> tuple[str, ...]:
    """Who sends a packet type (5.0 2.1.2); DISCONNECT of a server exists in 5.0 only."""
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
    """A mutation, as the tables of the areas declare it.

    The name gives the packet type (``publish``; ``flow`` and ``random`` are not packet types) and the field, unless
    ``field`` names another one.  Without ``senders`` those of the packet type send it, and the client of a flow.
    ``statements`` is a list with commas: ``"5.0 MQTT-3.3.4-7, server 3.1.1 MQTT-2.3.1-4"``, with the side if a
    statement binds one side only.  Statements and ``legal`` of other versions than ``versions`` are left out.
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
    """The statements of these versions in a list with commas, of both sides or of one."""
    prefix = f"{side} " if side else ""
    listed = (text.removeprefix(prefix) for text in statements.split(", ") if text.startswith(prefix))
    return tuple(text for text in listed if any(text.startswith(f"{version.text} ") for version in versions))


def attributes(**values: Any) -> PacketChange:
    """A change that sets attributes of the packet."""

    def change(target: Target) -> None:
        for name, value in values.items():
            setattr(target.packet, name, value)

    return change


def exists_in(packet: ControlPacket | type[ControlPacket], version: ProtocolVersion, sender: str) -> bool:
    """Whether a side sends this packet type in a version."""
    kind = packet.packet_type
    if kind == PacketType.AUTH and version != V5:
        return False
    return not (kind == Disconnect.packet_type and sender == SERVER and version != V5)
