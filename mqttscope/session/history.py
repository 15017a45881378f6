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
from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.session.inflight import Exchange
from mqttscope.session.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mqttscope.session.connection import Connection

C2S = Direction.CLIENT_TO_SERVER
_MISCOUNTS = (
    MalformedReason.FIELD_OVERRUN,
    MalformedReason.TRAILING_BYTES,
    MalformedReason.REMAINING_LENGTH_WRONG,
    MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
)
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
    answers: int = 1
    """How many packets of that type answered it."""


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
    segment_length: int = 0
    """Bytes of that segment."""
    length_before: int = 0
    """Bytes of the one before."""
    single_bytes: int = 0
    """Segments of one byte."""
    shown: int = 0
    """How far the capture had shown the other side's stream when that segment came."""
    counts: list[int] = field(default_factory=lambda: [0] * 16)
    """Packets by type."""
    malformed: int = 0
    """Packets that broke the layout, those read to their end included."""
    malformed_ns: int = 0
    """Time of the last one of them."""
    last_packet: int = -1
    """Number of its last packet, malformed ones included."""
    identifiers: bytearray = field(default_factory=bytearray)
    """Packet identifiers of the PUBLISH packets it ever sent, one bit each; empty before the first one."""
    checksums: dict[int, int] = field(default_factory=dict)
    """CRC-32 of the payloads of PUBLISH packets that it sent, by packet identifier: the last one each."""
    positions: dict[int, int] = field(default_factory=dict)
    """Stream position behind those PUBLISH packets."""
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
    pubrels_again: dict[int, int] = field(default_factory=dict)
    """How many PUBREL packets came while one with the same identifier had no answer yet, less those answered since."""
    surplus: int = 0
    """Answers to nothing on this connection that gave it send quota all the same (5.0 4.9): after a reconnect the
    PUBCOMP of an earlier connection's PUBREL does.  Never more than it has in flight."""
    ahead: dict[int, int] = field(default_factory=dict)
    """Answers it sent to what the capture shows only later: number of the packet by 16 * identifier + type."""
    settled: dict[int, int] = field(default_factory=dict)
    """Packets it sent that were answered `ahead`: number of the packet by its packet identifier."""
    odd_aliases: int = 0
    """Its PUBLISH packets with a Topic Alias that is 0, above the other side's maximum or without a mapping."""
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
    miscounted: int | None = None
    """Number of its last packet that was longer or shorter than its fields."""

    def has_sent(self, packet_identifier: int) -> bool:
        """Whether it sent a PUBLISH with this packet identifier on this connection."""
        return bool(self.identifiers) and bool(self.identifiers[packet_identifier >> 3] & 1 << (packet_identifier & 7))

    def in_step(self) -> bool:
        """Whether the capture has shown, proven, all that this side knew; else answers may precede questions."""
        return 0 <= self.acknowledged <= self.shown + 1  # a FIN counts one

    def repeats(self, packet: packets.Publish, topic: str | None, before: Exchange) -> bool:
        """Whether a PUBLISH brings the message again that its packet identifier had in an exchange, its last one."""
        if topic is not None and before.topic is not None and topic != before.topic:
            return False
        return self.checksums.get(before.packet_identifier) == zlib.crc32(packet.payload)


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
    connack_malformed: Malformed | None = None
    """The first CONNACK of the server, when it broke the layout."""
    early: int = 0
    """Packets that the client sent before a CONNACK came, CONNECT and AUTH not counted."""
    disordered: bool = False
    """A side had received what the capture had not shown yet: the order between the directions proves nothing."""
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    foreign: str = ""
    """The protocol that is spoken instead of MQTT, once the first bytes have shown it."""
    memories: dict[str, Any] = field(default_factory=dict)
    """What rules of connection scope keep beside this, by code."""
    reported: list[tuple[str, Direction, int, int]] = field(default_factory=list)
    """Violations found lately: rule, direction, packet number, reason code that the specification names (0: none)."""

    def party(self, direction: Direction) -> Party:
        """The side that sends in this direction."""
        return self.client if direction is C2S else self.server

    def segment(self, from_client: bool, position: int, acknowledged: int, delivered: int) -> None:
        """Take note of a segment, before its packets are judged; ``delivered`` is what the other side has shown."""
        party = self.client if from_client else self.server
        length = position - party.position
        party.length_before, party.segment_length = party.segment_length, length
        if length == 1:
            party.single_bytes += 1
        party.position, party.acknowledged, party.shown = position, acknowledged, delivered
        # A FIN counts one in acknowledgment numbers and nothing in the stream.
        if acknowledged > delivered + 1:
            self.disordered = True

    def gap(self, direction: Direction) -> None:
        """Bytes of this direction are lost: what its sender owed may have been among them."""
        party = self.party(direction)
        for owed in (party.owes_puback, party.owes_pubrec, party.owes_pubrel, party.owes_pubcomp):
            owed.clear()
        party.pings = 0
        self.party(direction.opposite).pings = 0

    def malformed(self, found: Malformed, direction: Direction, number: int, frame: int, timestamp_ns: int) -> None:
        """Take a packet that breaks the layout and leaves no packet to take."""
        if any(fault.reason in _MISCOUNTS for fault in found.faults):
            self.party(direction).miscounted = number
        kind = found.packet_type
        if kind == PacketType.CONNECT and direction is C2S:
            if self.connect_malformed is None and (self.connect is None or self.connect is found.packet):
                self.connect_malformed = found
                self.connect_sent = Sent(number, frame, timestamp_ns, self.client.position)
        elif kind == PacketType.CONNACK and direction is not C2S:
            if self.connack_malformed is None and (self.connack is None or self.connack is found.packet):
                self.connack_malformed = found
        elif not found.complete and found.packet_type is not None and 8 <= found.packet_type <= 11:
            self.subscriptions.unreadable(request=direction is C2S)
        party = self.party(direction)
        party.malformed += 1
        party.malformed_ns, party.last_packet = timestamp_ns, number

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
        sender.last_packet = number
        if kind == 3:
            if packet.properties is not None:  # type: ignore[attr-defined]
                alias = packet.properties.first(0x23)  # type: ignore[attr-defined]
                if alias is not None:
                    limit = connection.receiver(direction).topic_alias_maximum
                    sender.odd_aliases += not 0 < alias <= limit or not topic
            self._publish(packet, sender, receiver, number, timestamp_ns, topic)  # type: ignore[arg-type]
        elif 4 <= kind <= 7:
            self._acknowledge(packet, kind, connection, direction, number, frame, timestamp_ns)
        elif 8 <= kind <= 11:
            place = Sent(number, frame, timestamp_ns, sender.position)
            self._subscription(packet, place, from_client, shared=connection.version is ProtocolVersion.V5)
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
            if packet.retain and receiver is self.client and not packet.dup:
                self.subscriptions.retained_sent(topic, timestamp_ns)
        qos, identifier = packet.qos, packet.packet_identifier
        if qos > sender.highest_qos:
            sender.highest_qos = qos
        if not qos or identifier is None:
            return
        if not sender.identifiers:
            sender.identifiers = bytearray(8192)
        sender.identifiers[identifier >> 3] |= 1 << (identifier & 7)
        sender.checksums[identifier] = checksum
        sender.positions[identifier] = sender.position
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        if receiver.ahead and self._was_ahead(sender, receiver, kind, identifier, number):
            sender.surplus += qos == 1
        else:
            (receiver.owes_puback if qos == 1 else receiver.owes_pubrec).setdefault(identifier, number)

    @staticmethod
    def _was_ahead(sender: Party, receiver: Party, kind: int, identifier: int, number: int) -> bool:
        """Whether a packet has had its answer before the capture showed it."""
        if receiver.ahead.pop(identifier * 16 + kind, None) is None:
            return False
        sender.settled[identifier] = number
        return True

    def _note_ahead(self, party: Party, other: Party, kind: int, identifier: int, number: int) -> bool:
        """Remember an answer to what was not shown, where that is because of the capture."""
        if party.in_step():
            return False
        party.ahead[identifier * 16 + kind] = number
        if len(party.ahead) > MAX_ENDED:
            del party.ahead[next(iter(party.ahead))]
        return True

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
            if party.owes_pubrel.pop(identifier, None) is None:
                self._note_ahead(party, other, kind, identifier, number)
            if other.ahead and self._was_ahead(party, other, PacketType.PUBCOMP, identifier, number):
                party.surplus += 1
                return
            if identifier in other.owes_pubcomp:
                other.pubrels_again[identifier] = other.pubrels_again.get(identifier, 0) + 1
            other.owes_pubcomp[identifier] = number
            return
        ends = kind != PacketType.PUBREC or code >= 0x80
        if kind == PacketType.PUBACK:
            party.owes_puback.pop(identifier, None)
        elif kind == PacketType.PUBREC:
            party.owes_pubrec.pop(identifier, None)
            if not ends and other.ahead.pop(identifier * 16 + PacketType.PUBREL, -1) < 0:
                other.owes_pubrel.setdefault(identifier, number)
            if not ends and connection.receiver(direction).running(identifier, "publish") is None:
                self._note_ahead(party, other, kind, identifier, number)
        elif party.owes_pubcomp.pop(identifier, None) is None:
            again = party.pubrels_again.pop(identifier, 0)
            if again > 1:
                party.pubrels_again[identifier] = again - 1
            elif not again:
                self._note_ahead(party, other, kind, identifier, number)
        if ends:
            side = connection.receiver(direction)
            running = side.running(identifier, "publish")
            if running is None and self._note_ahead(party, other, kind, identifier, number):
                return
            if running is None:
                before = other.ended.get(identifier)
                if before is not None and before.by == kind:
                    before.answers += 1
                other.surplus = min(other.surplus + 1, side.in_flight)
            else:
                other.surplus = min(other.surplus, side.in_flight - 1)
                answer = Sent(number, frame, timestamp_ns, party.position, code)
                other.ended.pop(identifier, None)
                other.ended[identifier] = Ended(running, other.checksums.get(identifier, 0), kind, code, answer)
                if len(other.ended) > MAX_ENDED:
                    del other.ended[next(iter(other.ended))]

    def _subscription(self, packet: ControlPacket, sent: Sent, from_client: bool, *, shared: bool) -> None:
        """SUBSCRIBE to UNSUBACK, each from the side that may send it."""
        table = self.subscriptions
        if from_client:
            if isinstance(packet, packets.Subscribe):
                table.subscribe(packet, sent.packet, sent.frame, sent.timestamp_ns, sent.position, shared=shared)
            elif isinstance(packet, packets.Unsubscribe):
                table.unsubscribe(packet, sent.packet, sent.frame, sent.timestamp_ns, sent.position)
        elif isinstance(packet, packets.Suback):
            table.granted(packet, sent.packet, sent.timestamp_ns)
        elif isinstance(packet, packets.Unsuback):
            table.unsubscribed(packet, sent.packet, sent.timestamp_ns)

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
        elif isinstance(packet, packets.Pingreq):
            sender.pings += 1
        elif isinstance(packet, packets.Pingresp):
            receiver.pings = max(0, receiver.pings - 1)
        elif isinstance(packet, packets.Disconnect):
            sender.disconnect = sender.disconnect or sent
        elif isinstance(packet, packets.Auth):
            sender.auth = sent
