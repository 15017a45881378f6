"""What was said on a connection so far, as far as a judge of the next packet has to remember it.

`Connection` is the state that the protocol itself keeps; a `History` adds what only judging needs: the CONNECT and
CONNACK themselves, what was acknowledged lately and how, who owes whom an answer and in which order, subscriptions,
and how far each side had acknowledged the other's bytes.  It is followed where somebody asks for it
(``Connection.history``), and like the connection it is moved on by each packet after that packet was judged.  All
tables are bounded.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import Direction, PacketType
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.session.inflight import Exchange
from mqttscope.session.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mqttscope.session.connection import Connection

C2S = Direction.CLIENT_TO_SERVER
MAX_ENDED = 1_024
"""Ended exchanges that are remembered of each side."""
MAX_RECENT = 256
"""Messages of each side that are remembered by topic and content."""


@dataclass(slots=True)
class Sent:
    """A packet that matters later."""

    packet: int
    frame: int
    timestamp_ns: int
    position: int
    """Stream position of its sender behind the segment that completed it; see `Party.position`."""
    reason_code: int = 0


@dataclass(slots=True)
class Ended:
    """An exchange that was answered in full."""

    exchange: Exchange
    checksum: int
    """CRC-32 of the payload of its PUBLISH."""
    by: int
    """Packet type of the answer that ended it."""
    reason_code: int
    answer: Sent


@dataclass(slots=True)
class Message:
    """An Application Message that a side sent."""

    topic: str
    checksum: int
    """CRC-32 of the payload."""
    length: int
    packet: int
    timestamp_ns: int


@dataclass(slots=True)
class Party:
    """One side of a connection: what it sent, and what it owes."""

    position: int = 0
    """TCP stream position behind the last segment of this side that was delivered in order."""
    acknowledged: int = -1
    """How far that segment acknowledged the other side's stream; -1 where the capture does not prove it."""
    counts: list[int] = field(default_factory=lambda: [0] * 16)
    """Packets by type."""
    identifiers: bytearray = field(default_factory=bytearray)
    """Packet identifiers of the PUBLISH packets it ever sent, one bit each; empty before the first one."""
    checksums: dict[int, int] = field(default_factory=dict)
    """CRC-32 of the payloads of PUBLISH packets that it sent, by packet identifier: the last one each."""
    ended: dict[int, Ended] = field(default_factory=dict)
    """Exchanges that it began and that were answered in full, by packet identifier: the last one each."""
    owes_puback: dict[int, int] = field(default_factory=dict)
    """QoS 1 messages it received and has not acknowledged, with the number of the PUBLISH, in order of arrival."""
    owes_pubrec: dict[int, int] = field(default_factory=dict)
    """The same for QoS 2 and PUBREC."""
    owes_pubrel: dict[int, int] = field(default_factory=dict)
    """PUBREC packets it received and has not answered, in order of arrival."""
    owes_pubcomp: dict[int, int] = field(default_factory=dict)
    """PUBREL packets it received and has not answered, in order of arrival."""
    pings: int = 0
    """PINGREQ packets it sent that have no answer."""
    highest_qos: int = 0
    """Highest QoS it has published with."""
    disconnect: Sent | None = None
    """Its DISCONNECT."""
    auth: Sent | None = None
    """Its last AUTH."""
    recent: list[Message] = field(default_factory=list)
    """Messages it sent lately, oldest first."""

    def has_sent(self, packet_identifier: int) -> bool:
        """Whether it sent a PUBLISH with this packet identifier on this connection."""
        return bool(self.identifiers) and bool(self.identifiers[packet_identifier >> 3] & 1 << (packet_identifier & 7))


@dataclass(slots=True)
class History:
    """Both sides of one connection."""

    client: Party = field(default_factory=Party)
    server: Party = field(default_factory=Party)
    connect: packets.Connect | None = None
    """The first CONNECT, also one with a fault in a value."""
    connect_sent: Sent | None = None
    connect_malformed: Malformed | None = None
    """The first CONNECT, when it broke the layout."""
    connack: packets.Connack | None = None
    """The first CONNACK."""
    connack_sent: Sent | None = None
    early: int = 0
    """Packets that the client sent before a CONNACK came, CONNECT and AUTH not counted."""
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    memories: dict[str, Any] = field(default_factory=dict)
    """What rules of connection scope keep beside this, by code."""
    reported: list[tuple[str, Direction, int, int]] = field(default_factory=list)
    """Violations found lately: rule, direction, packet number, reason code that the specification names (0: none)."""

    def party(self, direction: Direction) -> Party:
        """The side that sends in this direction."""
        return self.client if direction is C2S else self.server

    def segment(self, from_client: bool, position: int, acknowledged: int) -> None:
        """Take note of a segment, before its packets are judged."""
        party = self.client if from_client else self.server
        party.position, party.acknowledged = position, acknowledged

    def gap(self, direction: Direction) -> None:
        """Bytes of this direction are lost: what its sender owed may have been among them."""
        party = self.party(direction)
        for owed in (party.owes_puback, party.owes_pubrec, party.owes_pubrel, party.owes_pubcomp):
            owed.clear()
        party.pings = 0
        self.party(direction.opposite).pings = 0

    def malformed(self, found: Malformed, direction: Direction, number: int, frame: int, timestamp_ns: int) -> None:
        """Take a packet that breaks the layout and leaves no packet to take."""
        if found.packet_type == PacketType.CONNECT and direction is C2S and self.connect_malformed is None:
            self.connect_malformed = found
            self.connect_sent = Sent(number, frame, timestamp_ns, self.client.position)

    def apply(
        self,
        packet: ControlPacket,
        connection: Connection,
        direction: Direction,
        number: int,
        frame: int,
        timestamp_ns: int,
        topic: str | None,
    ) -> None:
        """Move on by one packet; the connection is still in the state before it."""
        from_client = direction is C2S
        sender, receiver = (self.client, self.server) if from_client else (self.server, self.client)
        kind = packet.packet_type
        sender.counts[kind] += 1
        if kind == 3:
            self._publish(packet, sender, receiver, number, timestamp_ns, topic)  # type: ignore[arg-type]
        elif 4 <= kind <= 7:
            self._acknowledge(packet, kind, connection, direction, number, frame, timestamp_ns)
        else:
            self._other(packet, sender, receiver, number, frame, timestamp_ns)
        if from_client and self.connack is None and kind not in (PacketType.CONNECT, PacketType.AUTH):
            self.early += 1

    def _publish(
        self,
        packet: packets.Publish,
        sender: Party,
        receiver: Party,
        number: int,
        timestamp_ns: int,
        topic: str | None,
    ) -> None:
        checksum = zlib.crc32(packet.payload)
        if topic is not None:
            recent = sender.recent
            recent.append(Message(topic, checksum, len(packet.payload), number, timestamp_ns))
            if len(recent) >= 2 * MAX_RECENT:
                del recent[:MAX_RECENT]
        qos, identifier = packet.qos, packet.packet_identifier
        if qos > sender.highest_qos:
            sender.highest_qos = qos
        if not qos or identifier is None:
            return
        if not sender.identifiers:
            sender.identifiers = bytearray(8192)
        sender.identifiers[identifier >> 3] |= 1 << (identifier & 7)
        sender.checksums[identifier] = checksum
        (receiver.owes_puback if qos == 1 else receiver.owes_pubrec).setdefault(identifier, number)

    def _acknowledge(
        self,
        packet: ControlPacket,
        kind: int,
        connection: Connection,
        direction: Direction,
        number: int,
        frame: int,
        timestamp_ns: int,
    ) -> None:
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        code: int = packet.reason_code or 0  # type: ignore[attr-defined]
        party, other = self.party(direction), self.party(direction.opposite)
        if kind == PacketType.PUBREL:
            party.owes_pubrel.pop(identifier, None)
            other.owes_pubcomp[identifier] = number
            return
        ends = kind != PacketType.PUBREC or code >= 0x80
        if kind == PacketType.PUBACK:
            party.owes_puback.pop(identifier, None)
        elif kind == PacketType.PUBREC:
            party.owes_pubrec.pop(identifier, None)
            if not ends:
                other.owes_pubrel.pop(identifier, None)
                other.owes_pubrel[identifier] = number
        else:
            party.owes_pubcomp.pop(identifier, None)
        if ends:
            running = connection.receiver(direction).running(identifier, "publish")
            if running is not None:
                answer = Sent(number, frame, timestamp_ns, party.position, code)
                other.ended.pop(identifier, None)
                other.ended[identifier] = Ended(running, other.checksums.get(identifier, 0), kind, code, answer)
                if len(other.ended) > MAX_ENDED:
                    del other.ended[next(iter(other.ended))]

    def _other(
        self, packet: ControlPacket, sender: Party, receiver: Party, number: int, frame: int, timestamp_ns: int
    ) -> None:
        """Packets that are few."""
        code = getattr(packet, "reason_code", None) or 0
        sent = Sent(number, frame, timestamp_ns, sender.position, code)
        if isinstance(packet, packets.Connect):
            if self.connect is None:
                self.connect = packet
                self.connect_sent = self.connect_sent or sent
        elif isinstance(packet, packets.Connack):
            if self.connack is None:
                self.connack, self.connack_sent = packet, sent
        elif isinstance(packet, packets.Subscribe):
            self.subscriptions.subscribe(packet, number, frame, timestamp_ns)
        elif isinstance(packet, packets.Unsubscribe):
            self.subscriptions.unsubscribe(packet, number, frame, timestamp_ns)
        elif isinstance(packet, packets.Suback):
            self.subscriptions.granted(packet, timestamp_ns)
        elif isinstance(packet, packets.Unsuback):
            self.subscriptions.unsubscribed(packet, timestamp_ns)
        elif isinstance(packet, packets.Pingreq):
            sender.pings += 1
        elif isinstance(packet, packets.Pingresp):
            receiver.pings = max(0, receiver.pings - 1)
        elif isinstance(packet, packets.Disconnect):
            sender.disconnect = sender.disconnect or sent
        elif isinstance(packet, packets.Auth):
            sender.auth = sent
