"""The live connection of a replay: its state, which packet answers which, and the packets that are kept.

The played client owns one, and so does the played server.  The state is a `session.Connection`, as for a capture.
State that outlives the connection is stored elsewhere, for each side separately.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import TypeVar

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.properties import TOPIC_ALIAS
from mqttscope.replay.script import C2S, S2C, Script, ScriptEntry
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

P = TypeVar("P", bound=ControlPacket)

MAX_NOTES = 1_000
"""Maximum number of different notes of one connection; further ones are counted together."""
MAX_WAITING = 2 * MAX_PACKET_IDENTIFIERS
"""Maximum number of open exchanges on one connection: each side has its own packet identifiers."""
MAX_BEYOND_BYTES = 32 * 1024 * 1024
"""Maximum size of the packets kept of one live connection beyond the recorded ones."""
MAX_BEYOND_BYTES_OF_ALL = 256 * 1024 * 1024
"""Maximum size of the packets kept of all live connections together beyond the recorded ones."""
PACKET_BYTES = 600
"""Size counted for each packet in addition to its bytes."""

_BEGIN = (packets.Subscribe, packets.Unsubscribe)
_END = (packets.Puback, packets.Pubcomp, packets.Suback, packets.Unsuback)
_ASKED_BY = {PacketType.PUBREL: "pubrec", PacketType.PUBCOMP: "pubrel"}
"""The packet that an acknowledgement follows, if that is not the PUBLISH itself."""


class NoteKind(StrEnum):
    """Why a replay differs from the recorded bytes."""

    ADAPTED = "adapted"
    """A packet was changed to fit the live server."""
    SKIPPED = "skipped"
    """A recorded packet was not sent."""
    ADDED = "added"
    """A packet was sent that the recording does not have."""
    SESSION = "session"
    """The live session differs from the recorded one."""
    ENDED = "ended"
    """The connection ended in another way."""


@dataclass(slots=True, frozen=True)
class ReplayNote:
    """One kind of difference from the recorded bytes; reports count equal ones."""

    kind: NoteKind
    text: str
    """A sentence fragment: ``QoS lowered to the server's Maximum QoS``."""


@dataclass(slots=True)
class Send:
    """Instruction to send a packet."""

    data: bytes
    entry: ScriptEntry
    """The packet as sent; its ``source`` is the recorded one."""


@dataclass(slots=True)
class Close:
    """Instruction to end the connection: ``fin`` in good order, ``reset`` at once."""

    how: str
    why: str = ""
    """Reason for people, if the recording does not end the connection here."""


@dataclass(slots=True)
class UnfinishedMessage:
    """A message sent by the played side that the other side has not acknowledged completely."""

    entry: ScriptEntry
    """The PUBLISH as sent."""
    released: bool = False
    """Whether its PUBREC came, so that the PUBREL has to be resent."""


@dataclass(slots=True)
class PacketBudget:
    """Number of bytes of packets that may still be kept."""

    left: int = field(default_factory=lambda: MAX_BEYOND_BYTES_OF_ALL)
    """Bytes left for all connections that share this budget."""
    per_connection: int = field(default_factory=lambda: MAX_BEYOND_BYTES)
    """Maximum for each of these connections."""

    def reserve(self, used: int, raw: bytes) -> int:
        """Reserve room for a packet of a connection that has used that much; returns its size, or 0 without room."""
        cost = len(raw) + PACKET_BYTES
        if cost > self.left or used + cost > self.per_connection:
            return 0
        self.left -= cost
        return cost


def packet_name(packet: ControlPacket | Malformed) -> str:
    """Name of the packet type: ``PUBACK``."""
    return "malformed packet" if isinstance(packet, Malformed) else packet.packet_type.name


def ends_exchange(packet: ControlPacket | Malformed) -> bool:
    return isinstance(packet, _END) or (isinstance(packet, packets.Pubrec) and (packet.reason_code or 0) >= 0x80)


def readdressed(packet: P, identifier: int) -> P:
    """The packet with another packet identifier; the packet itself if it has that identifier already."""
    if packet.packet_identifier == identifier:  # type: ignore[attr-defined]
        return packet
    copied = copy.copy(packet)
    copied.packet_identifier = identifier  # type: ignore[attr-defined]
    copied.raw = b""
    return copied


def sent_again(packet: packets.Publish, topic: str | None) -> packets.Publish:
    """The PUBLISH as resent on another connection: with DUP, and with its ``topic`` if that is known.

    Topic Aliases end with the connection (5.0 3.3.2.3.4).
    """
    copied = copy.copy(packet)
    copied.dup, copied.raw = True, b""
    if topic is not None:
        copied.topic_name = topic
        if copied.properties is not None:
            copied.properties = copied.properties.without(TOPIC_ALIAS)
    return copied


def recorded_delay_ns(acknowledgement: ScriptEntry, answers: Iterable[ScriptEntry]) -> int:
    """Nanoseconds that the sender of a recorded acknowledgement took to send it.

    ``answers``: all recorded acknowledgements of the message.
    """
    assert isinstance(acknowledgement.packet, ControlPacket)
    request: ScriptEntry | None = acknowledgement.answers
    before = _ASKED_BY.get(acknowledgement.packet.packet_type)
    if before is not None:
        request = next((answer for answer in answers if answer.type == before), request)
    return 0 if request is None else max(0, acknowledgement.timestamp_ns - request.timestamp_ns)


@dataclass(slots=True)
class LiveConnection:
    """One connection of a replay, as the played side sees it.  The caller supplies all times, in nanoseconds."""

    script: Script
    """The live packets, added as they are sent and received."""
    plays_client: bool
    """Whether the played side is the client: its packets go to the server."""
    keep: bool = True
    """Whether to keep the packets, to compare them."""
    budget: PacketBudget = field(default_factory=PacketBudget)
    """Budget for the packets that `limit` is called for."""
    next_place: Callable[[], int] = field(default_factory=lambda: count().__next__)
    """Returns the place of the next live packet."""
    max_waiting_bytes: int | None = None
    """Maximum size of packets that wait for an answer; the oldest are forgotten first."""
    max_pings: int | None = None
    """Maximum number of PINGREQs that wait for an answer; the oldest are forgotten first."""
    connect: ScriptEntry | None = None
    """The first CONNECT."""
    notes: dict[ReplayNote, int] = field(default_factory=dict)
    """Number of each kind of difference from the recording."""
    number: int = 0
    """Number of packets of both sides."""
    not_kept: int = 0
    """Number of packets dropped for lack of room."""
    _kept_bytes: int = 0
    """Bytes of the budget that are used."""
    _waiting: dict[int, ScriptEntry] = field(default_factory=dict)
    """Packets that wait for an answer, by their number."""
    _waiting_bytes: int = 0
    _pings: deque[ScriptEntry] = field(init=False)

    def __post_init__(self) -> None:
        self._pings = deque(maxlen=self.max_pings)

    @property
    def connection(self) -> Connection:
        return self.script.connection

    @property
    def version(self) -> ProtocolVersion:
        return self.script.connection.version

    def note(self, kind: NoteKind, text: str) -> None:
        """Count a difference; beyond `MAX_NOTES`, new ones of a kind are counted together."""
        note = ReplayNote(kind, text)
        if note not in self.notes and len(self.notes) >= MAX_NOTES:
            note = ReplayNote(kind, "other differences, which are only counted")
        self.notes[note] = self.notes.get(note, 0) + 1

    def received(self, packet: ControlPacket | Malformed, now_ns: int, *, apply: bool = True) -> ScriptEntry:
        """Process a packet of the other side; returns it with its topic and the packet that it answers.

        ``apply=False`` leaves the state of the connection unchanged.
        """
        direction = S2C if self.plays_client else C2S
        topic = self.connection.resolve_topic(packet, direction) if isinstance(packet, packets.Publish) else None
        entry = ScriptEntry(not self.plays_client, packet, topic, now_ns, 0, raw=packet.raw)
        self._process(entry, apply=apply)
        return entry

    def sent(
        self,
        packet: ControlPacket | Malformed,
        raw: bytes,
        source: ScriptEntry | None,
        now_ns: int,
        topic: str | None = None,
    ) -> Send:
        """Process a packet of the played side, which is sent with these bytes in place of a recorded one."""
        entry = ScriptEntry(self.plays_client, packet, topic, now_ns, 0, source=source, raw=raw)
        self._process(entry, apply=True)
        return Send(raw, entry)

    def limit(self, entry: ScriptEntry) -> bool:
        """Keep the latest packet only if there is room for it; returns false if it is dropped."""
        entries = self.script.entries
        if not entries or entries[-1] is not entry:
            return True
        cost = self.budget.reserve(self._kept_bytes, entry.raw)
        self._kept_bytes += cost
        if not cost:
            entries.pop()
            self.not_kept += 1
        return cost > 0

    def _process(self, entry: ScriptEntry, *, apply: bool) -> None:
        """Find the packet that an entry answers, keep the entry, and update the state."""
        self.number += 1
        entry.place = self.next_place()
        if self.keep:
            self.script.entries.append(entry)
        packet, connection = entry.packet, self.connection
        if isinstance(packet, Malformed):
            return
        direction = C2S if entry.from_client else S2C
        exchange = connection.answered_by(packet, direction)
        if exchange is not None:
            entry.answers = self._waiting.get(exchange.packet)
            if ends_exchange(packet):
                self._forget(exchange.packet)
        elif entry.from_client:
            if isinstance(packet, packets.Connect):
                self.connect = self.connect or entry
            elif isinstance(packet, packets.Pingreq):
                self._pings.append(entry)
        elif isinstance(packet, packets.Connack):
            entry.answers = self.connect
        elif isinstance(packet, packets.Pingresp):
            entry.answers = self._pings.popleft() if self._pings else None
        if apply:
            if isinstance(packet, packets.Connect) or not entry.from_client:
                connection.identify(packet)
            connection.apply(packet, direction, self.number - 1, 0, entry.timestamp_ns)
        if isinstance(packet, _BEGIN) or (isinstance(packet, packets.Publish) and packet.qos > 0):
            self._await(entry)

    def _await(self, entry: ScriptEntry) -> None:
        waiting, limit = self._waiting, self.max_waiting_bytes
        waiting[self.number - 1] = entry
        self._waiting_bytes += PACKET_BYTES + len(entry.raw)
        while len(waiting) > 1 and (len(waiting) > MAX_WAITING or (limit is not None and self._waiting_bytes > limit)):
            self._forget(next(iter(waiting)))

    def _forget(self, number: int) -> None:
        forgotten = self._waiting.pop(number, None)
        if forgotten is not None:
            self._waiting_bytes -= PACKET_BYTES + len(forgotten.raw)
