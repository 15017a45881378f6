"""The live connection as its server sees it: state, and what belongs together.

The state is that of `session.Connection`, as in a capture; what the server keeps beyond the connection is a `Session`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V5, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.player import reactions
from mqttscope.replay.player.actions import Kind, Note
from mqttscope.replay.script import C2S, S2C, Ending, Entry, Script
from mqttscope.replay.stand_in.actions import Send
from mqttscope.replay.stand_in.connection_matching import Session, Unfinished
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Packets of one connection that are kept to be compared; further ones are not."""
MAX_SESSION_BYTES = 16 * 1024 * 1024
"""Of messages of a device whose handshake is not complete."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Of requests that wait for an answer; the oldest are forgotten first."""
ENTRY_COST = 600
"""What each packet counts beside its bytes."""
MAX_PINGS = 1_000
"""PINGREQ that wait for an answer; the oldest are forgotten first."""
MAX_NOTES = 1_000
"""Different notes that are kept of one connection."""


@dataclass(slots=True)
class Live:
    """One connection.  Times are those that the caller gives, in nanoseconds."""

    live: Script
    """What happens; filled as it goes."""
    keep: bool = True
    """Keep the packets."""
    next_place: Callable[[], int] = field(default_factory=lambda: count().__next__)
    """Gives the places of live packets."""
    session: Session = field(default_factory=Session)
    notes: dict[Note, int] = field(default_factory=dict)
    """What was done otherwise than recorded, and how often."""
    connect: packets.Connect | None = None
    """What the device introduced itself with."""
    accepted: bool = False
    """A CONNACK has been sent that accepts it."""
    number: int = 0
    """Packets of both sides."""
    heard_ns: int = 0
    """When the device last said something."""
    kept_bytes: int = 0
    """Of the packets that are kept."""
    _waiting: dict[int, Entry] = field(default_factory=dict)
    """Live packets that wait for an answer, by their number."""
    _waiting_bytes: int = 0
    _pings: deque[Entry] = field(default_factory=lambda: deque(maxlen=MAX_PINGS))
    _connect: Entry | None = None

    @property
    def connection(self) -> Connection:
        """The state."""
        return self.live.connection

    @property
    def version(self) -> ProtocolVersion:
        """The version that the device speaks."""
        return self.live.connection.version

    def note(self, kind: Kind, text: str) -> None:
        """Count something that was done otherwise than recorded."""
        note = Note(kind, text)
        if note in self.notes or len(self.notes) < MAX_NOTES:
            self.notes[note] = self.notes.get(note, 0) + 1

    @property
    def keep_alive_ns(self) -> int:
        """How long the device may be silent; 0 for ever (5.0 MQTT-3.1.2-22)."""
        keep_alive = (self.connection.keep_alive or 0) if self.accepted else 0
        return keep_alive * 1_500_000_000

    @property
    def room(self) -> bool:
        """Whether a further QoS 1 or 2 message may be under way (5.0 3.3.4)."""
        connection = self.connection
        sending, taken = connection.server_side, len(connection.server_side.exchanges)
        return sending.in_flight < connection.client_side.receive_maximum and taken < MAX_PACKET_IDENTIFIERS

    def free_identifier(self, wanted: int | None) -> int:
        """The recorded packet identifier, or the lowest that is free on this connection and in the session."""
        taken, owed = self.connection.server_side.exchanges, self.session.unfinished
        if wanted and wanted not in taken and wanted not in owed:
            return wanted
        return next(one for one in range(1, MAX_PACKET_IDENTIFIERS + 1) if one not in taken and one not in owed)

    def take(self, packet: ControlPacket | Malformed, now_ns: int) -> Entry:
        """Note a packet of the device; its ``answers`` and ``resends`` are found, its ``source`` is not."""
        self.heard_ns = now_ns
        connection = self.connection
        topic = connection.resolve_topic(packet, C2S) if isinstance(packet, packets.Publish) else None
        entry = Entry(True, packet, topic, now_ns, 0, raw=packet.raw)
        if isinstance(packet, Malformed):
            self._record(entry)
            return entry
        exchange = connection.answered_by(packet, C2S)
        if exchange is not None:
            entry.answers = self._waiting.get(exchange.packet)
            if reactions.ends(packet):
                self._answered(exchange.packet)
        if isinstance(packet, packets.Publish) and packet.qos and packet.packet_identifier is not None:
            self._arrived(entry, packet)
        self._record(entry)
        if isinstance(packet, packets.Connect):
            self._connect = self._connect or entry
        else:
            connection.apply(packet, C2S, self.number - 1, 0, now_ns)
        if reactions.begins(packet):
            self._await(entry)
        elif isinstance(packet, packets.Pingreq):
            self._pings.append(entry)
        return entry

    def introduce(self, packet: packets.Connect, now_ns: int) -> None:
        """Take what the first CONNECT says into the state; a second one would change it."""
        self.connect = packet
        self.connection.identify(packet)
        self.connection.apply(packet, C2S, self.number - 1, 0, now_ns)

    def sent(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Note that a packet is sent."""
        entry = Entry(False, packet, topic, now_ns, 0, source=source, raw=raw)
        connection = self.connection
        if not isinstance(packet, Malformed):
            exchange = connection.answered_by(packet, S2C)
            if exchange is not None:
                entry.answers = self._waiting.get(exchange.packet)
                if reactions.ends(packet):
                    self._answered(exchange.packet)
            elif isinstance(packet, packets.Pingresp):
                entry.answers = self._pings.popleft() if self._pings else None
            elif isinstance(packet, packets.Connack):
                entry.answers = self._connect
                self.accepted = not packet.reason_code
        self._record(entry)
        if not isinstance(packet, Malformed):
            connection.identify(packet)
            connection.apply(packet, S2C, self.number - 1, 0, now_ns)
            if reactions.begins(packet):
                self._await(entry)
            self._keep_in_session(entry, packet)
        return Send(raw, entry)

    def ended(self, ending: Ending) -> None:
        """The connection is gone, and the session with it where it does not last (5.0 3.1.2.11.2)."""
        self.live.ending = ending
        connection = self.connection
        lasting = connection.session_expiry_interval if self.version >= V5 else connection.clean_start is False
        if self.accepted and not lasting:
            self.session.clear()

    def _arrived(self, entry: Entry, packet: packets.Publish) -> None:
        """A message with a packet identifier: one that was there already, or a new one."""
        assert packet.packet_identifier is not None
        before = self.session.arrived.get(packet.packet_identifier)
        again = before is not None and isinstance(before.packet, packets.Publish) and before.packet.qos == packet.qos
        if packet.dup and again:
            assert before is not None
            entry.resends = before.resends or before
            entry.source = before.source
        elif not (again and packet.qos == 2):
            # QoS 2 without DUP before PUBREL is the same message all the same (5.0 MQTT-4.3.3-10).
            self.session.arrive(packet.packet_identifier, entry)
        else:
            assert before is not None
            entry.source = before.source

    def _keep_in_session(self, entry: Entry, packet: ControlPacket) -> None:
        """What of the answers and deliveries outlives the connection."""
        session = self.session
        if isinstance(packet, packets.Publish):
            if packet.qos and packet.packet_identifier is not None:
                session.unfinished[packet.packet_identifier] = Unfinished(entry)
        elif isinstance(packet, packets.Puback | packets.Pubcomp) or (
            isinstance(packet, packets.Pubrec) and reactions.ends(packet)
        ):
            session.complete(packet.packet_identifier)

    def _await(self, entry: Entry) -> None:
        self._waiting[self.number - 1] = entry
        self._waiting_bytes += ENTRY_COST + len(entry.raw)
        while self._waiting_bytes > MAX_WAITING_BYTES and len(self._waiting) > 1:
            self._answered(next(iter(self._waiting)))

    def _answered(self, number: int) -> None:
        gone = self._waiting.pop(number, None)
        if gone is not None:
            self._waiting_bytes -= ENTRY_COST + len(gone.raw)

    def _record(self, entry: Entry) -> None:
        self.number += 1
        entry.place = self.next_place()
        if not self.keep:
            return
        self.kept_bytes += ENTRY_COST + len(entry.raw)
        if self.kept_bytes > MAX_KEPT_BYTES:
            self.note(Kind.SKIPPED, f"packet that is not compared: more than {MAX_KEPT_BYTES:,} bytes were kept before")
            return
        self.live.entries.append(entry)
