"""The live connection of a replay: its state, what answers what in it, and what is kept of it.

The client that is played owns one, and so does the server that is played.  The state is that of `session.Connection`,
as in a capture; what a side remembers beyond the connection is its own.
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
from mqttscope.replay.script import C2S, S2C, Entry, Script
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

P = TypeVar("P", bound=ControlPacket)

MAX_NOTES = 1_000
"""Maximum number of different notes of one connection; further ones are counted together."""
MAX_WAITING = 2 * MAX_PACKET_IDENTIFIERS
"""Exchanges that can be open on one connection: each side has its own packet identifiers."""
MAX_BEYOND_BYTES = 32 * 1024 * 1024
"""Kept of one live connection beyond what was recorded of it."""
MAX_BEYOND_BYTES_OF_ALL = 256 * 1024 * 1024
"""Kept of all live connections of a replay together."""
PACKET_BYTES = 600
"""What a packet takes in addition to its own bytes."""

_BEGIN = (packets.Subscribe, packets.Unsubscribe)
_END = (packets.Puback, packets.Pubcomp, packets.Suback, packets.Unsuback)
_ASKED_BY = {PacketType.PUBREL: "pubrec", PacketType.PUBCOMP: "pubrel"}
"""What an acknowledgement follows, where that is not the PUBLISH itself."""


class NoteKind(StrEnum):
    """Why a replay differs from the recorded bytes."""

    ADAPTED = "adapted"
    """A packet was changed to fit the live server."""
    SKIPPED = "skipped"
    """A recorded packet was not sent."""
    ADDED = "added"
    """A packet was sent that the recording does not have."""
    SESSION = "session"
    """The live session is another one than the recorded one."""
    ENDED = "ended"
    """The connection ended otherwise."""


@dataclass(slots=True, frozen=True)
class Note:
    """One kind of difference from the recorded bytes; reports count equal ones."""

    kind: NoteKind
    text: str
    """One sentence fragment: ``QoS lowered to the server's Maximum QoS``."""


@dataclass(slots=True)
class Send:
    """Send these bytes."""

    data: bytes
    entry: Entry
    """The packet as it is sent; its ``source`` is the recorded one."""


@dataclass(slots=True)
class Close:
    """End the connection: ``fin`` in order, ``reset`` at once."""

    how: str
    why: str = ""
    """For people, where the recording does not end it."""


@dataclass(slots=True)
class Unfinished:
    """A message that the side that is played has sent, and that the other has not acknowledged in full."""

    entry: Entry
    """The PUBLISH as it was sent."""
    released: bool = False
    """Whether its PUBREC came, so that PUBREL is what has to be sent again."""


@dataclass(slots=True)
class Room:
    """How many bytes of packets may still be kept."""

    left: int = field(default_factory=lambda: MAX_BEYOND_BYTES_OF_ALL)
    """Of all connections that share this."""
    of_one: int = field(default_factory=lambda: MAX_BEYOND_BYTES)
    """Of each of them."""

    def take(self, taken: int, raw: bytes) -> int:
        """Room for a packet of a connection that has taken so much; returns what it takes, 0 where there is none."""
        cost = len(raw) + PACKET_BYTES
        if cost > self.left or taken + cost > self.of_one:
            return 0
        self.left -= cost
        return cost


def packet_name(packet: ControlPacket | Malformed) -> str:
    """``PUBACK``."""
    return "malformed packet" if isinstance(packet, Malformed) else packet.packet_type.name


def ends_exchange(packet: ControlPacket | Malformed) -> bool:
    return isinstance(packet, _END) or (isinstance(packet, packets.Pubrec) and (packet.reason_code or 0) >= 0x80)


def readdressed(packet: P, identifier: int) -> P:
    """The packet with another packet identifier; itself where it has that already."""
    if packet.packet_identifier == identifier:  # type: ignore[attr-defined]
        return packet
    made = copy.copy(packet)
    made.packet_identifier = identifier  # type: ignore[attr-defined]
    made.raw = b""
    return made


def sent_again(packet: packets.Publish, topic: str | None) -> packets.Publish:
    """The PUBLISH as it is sent once more on another connection: with DUP, and with its ``topic`` where that is known.

    Topic Aliases end with the connection (5.0 3.3.2.3.4).
    """
    made = copy.copy(packet)
    made.dup, made.raw = True, b""
    if topic is not None:
        made.topic_name = topic
        if made.properties is not None:
            made.properties = made.properties.without(TOPIC_ALIAS)
    return made


def recorded_delay_ns(acknowledgement: Entry, answers: Iterable[Entry]) -> int:
    """How long its sender took for a recorded acknowledgement, in nanoseconds.

    ``answers``: all recorded acknowledgements of the same message.
    """
    assert isinstance(acknowledgement.packet, ControlPacket)
    asked: Entry | None = acknowledgement.answers
    before = _ASKED_BY.get(acknowledgement.packet.packet_type)
    if before is not None:
        asked = next((one for one in answers if one.type == before), asked)
    return 0 if asked is None else max(0, acknowledgement.timestamp_ns - asked.timestamp_ns)


@dataclass(slots=True)
class LiveConnection:
    """One connection of a replay, as the side that is played sees it.  Times are those that the caller gives, in ns."""

    script: Script
    """What happens; filled as it goes."""
    plays_client: bool
    """Whether the side that is played is the client: what it sends goes to the server."""
    keep: bool = True
    """Keep the packets, to compare them."""
    room: Room = field(default_factory=Room)
    """For packets that `limit` is called for."""
    next_place: Callable[[], int] = field(default_factory=lambda: count().__next__)
    """Gives the places of live packets."""
    max_waiting_bytes: int | None = None
    """Of packets that wait for an answer; the oldest are forgotten first."""
    max_pings: int | None = None
    """PINGREQs that wait for an answer; the oldest are forgotten first."""
    connect: Entry | None = None
    """The first CONNECT."""
    notes: dict[Note, int] = field(default_factory=dict)
    """What differs from the recording, and how often."""
    number: int = 0
    """Packets of both sides."""
    not_kept: int = 0
    """Packets for which there was no room."""
    _kept_bytes: int = 0
    """What was taken of the room."""
    _waiting: dict[int, Entry] = field(default_factory=dict)
    """Packets that wait for an answer, by their number."""
    _waiting_bytes: int = 0
    _pings: deque[Entry] = field(init=False)

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
        note = Note(kind, text)
        if note not in self.notes and len(self.notes) >= MAX_NOTES:
            note = Note(kind, "other differences, which are only counted")
        self.notes[note] = self.notes.get(note, 0) + 1

    def received(self, packet: ControlPacket | Malformed, now_ns: int, *, apply: bool = True) -> Entry:
        """Take a packet of the other side; returns it with its topic and what it answers.

        ``apply=False`` leaves the state as it is, for what the connection is not to go by.
        """
        direction = S2C if self.plays_client else C2S
        topic = self.connection.resolve_topic(packet, direction) if isinstance(packet, packets.Publish) else None
        entry = Entry(not self.plays_client, packet, topic, now_ns, 0, raw=packet.raw)
        self._take(entry, apply=apply)
        return entry

    def sent(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Take a packet of the side that is played, which is sent with these bytes in the place of a recorded one."""
        entry = Entry(self.plays_client, packet, topic, now_ns, 0, source=source, raw=raw)
        self._take(entry, apply=True)
        return Send(raw, entry)

    def limit(self, entry: Entry) -> bool:
        """Keep the latest packet only where there is room for it; returns false where it is dropped for want of it."""
        entries = self.script.entries
        if not entries or entries[-1] is not entry:
            return True
        cost = self.room.take(self._kept_bytes, entry.raw)
        self._kept_bytes += cost
        if not cost:
            entries.pop()
            self.not_kept += 1
        return cost > 0

    def _take(self, entry: Entry, *, apply: bool) -> None:
        """Find what a packet answers, keep it, and move the state on by it."""
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

    def _await(self, entry: Entry) -> None:
        """Remember a packet until its answer comes."""
        waiting, limit = self._waiting, self.max_waiting_bytes
        waiting[self.number - 1] = entry
        self._waiting_bytes += PACKET_BYTES + len(entry.raw)
        while len(waiting) > 1 and (len(waiting) > MAX_WAITING or (limit is not None and self._waiting_bytes > limit)):
            self._forget(next(iter(waiting)))

    def _forget(self, number: int) -> None:
        gone = self._waiting.pop(number, None)
        if gone is not None:
            self._waiting_bytes -= PACKET_BYTES + len(gone.raw)
