"""Remembers what was sent on a connection, as far as judging the next packet needs it.

`Connection` is the state that the protocol itself keeps.  A `History` adds what only judging needs: the CONNECT and
CONNACK themselves, what was acknowledged lately and how, which answers are owed by whom and in which order,
subscriptions, and how far each side had acknowledged the other's bytes.  A `PeerHistory` is one of its two sides.

A history is kept only where a caller asks for it (``Connection.history``), and like the connection it is updated with
each packet after that packet was judged.  All tables are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from mqttscope.mqtt.constants import Direction, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS
from mqttscope.session.inflight import Exchange, ExchangePhase
from mqttscope.session.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mqttscope.session.inflight import Side

MAX_ENDED: Final = 64
"""Ended exchanges that are remembered of each side."""
MAX_AHEAD: Final = 1_024
"""Answers of each side that are remembered because the capture shows them before what they answer."""
LEAST_IDENTIFIERS: Final = 64
"""Bytes with a bit for each packet identifier, at first; 8,192 have one for all of them."""
MAX_RECENT: Final = 32
"""Messages of each side that are remembered by topic and content."""
_SUBSCRIBE: Final = PacketType.SUBSCRIBE
_UNSUBACK: Final = PacketType.UNSUBACK
_PUBLISH: Final = 3
"""Types as plain numbers, which are compared more quickly."""
_FIRST_REQUEST: Final = 8
_LAST_REQUEST: Final = 11
"""SUBSCRIBE to UNSUBACK."""


@dataclass(slots=True)
class Sent:
    """A packet that matters later."""

    packet: int
    frame: int
    timestamp_ns: int
    position: int
    """Stream position of its sender after the segment that completed it; see `PeerHistory.position`."""
    reason_code: int = 0


@dataclass(slots=True)
class Ended:
    """An exchange of a PUBLISH that was answered in full.

    Of a thousand connections there are many thousands: so what an `Exchange` and its last answer hold stands here, and
    both are made again when somebody asks for them.  Written down are those two (`lake.state`).
    """

    packet_identifier: int
    packet: int
    """Number of the PUBLISH; frame and time are likewise its own."""
    frame: int
    timestamp_ns: int
    qos: int
    topic: str | None
    phase: ExchangePhase
    released_by: int
    """Number of the PUBREL; -1 without one."""
    retransmissions: int
    checksum: int
    """CRC-32 of the payload of its PUBLISH."""
    by: int
    """Packet type of the answer that ended it."""
    reason_code: int
    answer_packet: int
    answer_frame: int
    answer_ns: int
    answer_position: int
    answers: int = 1
    """How many packets of that type answered it."""

    @property
    def exchange(self) -> Exchange:
        """The exchange as it was when it ended."""
        return Exchange(
            self.packet_identifier,
            self.packet,
            self.frame,
            self.timestamp_ns,
            "publish",
            self.qos,
            self.topic,
            self.phase,
            None if self.released_by < 0 else self.released_by,
            0,
            self.retransmissions,
        )

    @exchange.setter
    def exchange(self, one: Exchange) -> None:
        self.packet_identifier, self.packet, self.frame = one.packet_identifier, one.packet, one.frame
        self.timestamp_ns, self.qos, self.topic, self.phase = one.timestamp_ns, one.qos, one.topic, one.phase
        self.released_by = -1 if one.released_by is None else one.released_by
        self.retransmissions = one.retransmissions

    @property
    def answer(self) -> Sent:
        """The answer that ended it."""
        return Sent(self.answer_packet, self.answer_frame, self.answer_ns, self.answer_position, self.reason_code)

    @answer.setter
    def answer(self, sent: Sent) -> None:
        self.answer_packet, self.answer_frame = sent.packet, sent.frame
        self.answer_ns, self.answer_position = sent.timestamp_ns, sent.position


@dataclass(slots=True)
class Message:
    """An Application Message that a side sent."""

    topic: str
    checksum: int
    """CRC-32 of the payload."""
    length: int
    packet: int
    timestamp_ns: int
    cut: bool = False
    """Whether the capture does not have all of it, so that its content is not known."""


@dataclass(slots=True)
class PeerHistory:
    """One side of a connection: what it sent, and what it owes."""

    position: int = 0
    """TCP stream position after the last segment of this side that was delivered in order."""
    acknowledged: int = -1
    """How far that segment acknowledged the other side's stream; -1 where the capture does not prove it."""
    segment_ns: int = 0
    """Capture time of that segment."""
    begun: tuple[int, int] | None = None
    """Where the packet to come began in an earlier segment: what that one acknowledged, and its time."""
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
    """Packet identifiers of the PUBLISH packets it ever sent, one bit each, as far as the highest one needs."""
    checksums: dict[int, int] = field(default_factory=dict)
    """CRC-32 of the payloads of PUBLISH packets that it sent and that were not answered in full, by packet
    identifier."""
    positions: dict[int, int] = field(default_factory=dict)
    """Stream position after those PUBLISH packets."""
    expiries: dict[int, int] = field(default_factory=dict)
    """Message Expiry Intervals in seconds of those that had one, by packet identifier."""
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
    shared: dict[int, int] = field(default_factory=dict)
    """Packet identifiers it took while another exchange had them, with the number of the packet that did: what answers
    which of the two nobody can tell.  All are kept: there are 65,535, and each has an exchange, which takes more."""
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
    confirmed: int = -1
    """How far the other side had acknowledged its stream, by segments without data too, when a rule was last woken."""
    unread: bool = False
    """Whether the capture lacked something of its stream then, or had it after a hole: it may have been a FIN."""
    closing_ns: int = 0
    """When it sent the Close frame of its WebSocket; 0 while there is none."""
    framed: int = 0
    """Packets it had sent when the last frame of its WebSocket ended."""
    frames: int = 0
    """Frames of its WebSocket that held one packet each."""
    odd_frame: str = ""
    """What its last frame did instead, for messages; empty where it held one packet."""
    first_odd_ns: int = 0
    """When the first such frame was complete; 0 while there is none."""

    def has_sent(self, packet_identifier: int) -> bool:
        """Whether it sent a PUBLISH with this packet identifier on this connection."""
        place = packet_identifier >> 3
        return place < len(self.identifiers) and bool(self.identifiers[place] & 1 << (packet_identifier & 7))

    def in_step(self) -> bool:
        """Whether the capture has shown, proven, all that this side knew; else answers may precede questions."""
        return 0 <= self.acknowledged <= self.shown + 1  # a FIN counts one

    def frame(self, count: int, *, within: bool) -> None:
        """A frame of its WebSocket has ended, perhaps within a packet; ``count``: the packets it has sent so far."""
        number, self.framed = count - self.framed, count
        if within:
            self.odd_frame = "ended inside a packet"
        elif self.odd_frame == "ended inside a packet":
            self.odd_frame = "began inside a packet"
        elif number > 1:
            self.odd_frame = f"held {number} packets"
        else:
            self.odd_frame = ""
            self.frames += number
        if self.odd_frame and not self.first_odd_ns:
            self.first_odd_ns = self.segment_ns

    def repeats(self, packet: Publish, topic: str | None, before: Exchange) -> bool:
        """Whether a PUBLISH brings the message again that its packet identifier had in an exchange, its last one."""
        if topic is not None and before.topic is not None and topic != before.topic:
            return False
        checksum = self.checksums.get(before.packet_identifier)
        if checksum is None:
            ended = self.ended.get(before.packet_identifier)
            checksum = None if ended is None else ended.checksum
        return checksum == crc32(packet.payload)


C2S: Final = Direction.CLIENT_TO_SERVER
CLOCK_BACK_NS: Final = 1_000_000_000
"""A clock that goes back by more than this was set; less happens between the queues of a capturing host."""
NEVER_NS: Final = 2**63 - 1
"""A time that does not come."""
_MISCOUNTS: Final = (
    MalformedReason.FIELD_OVERRUN,
    MalformedReason.TRAILING_BYTES,
    MalformedReason.REMAINING_LENGTH_WRONG,
    MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
)


@dataclass(slots=True)
class Violation:
    """A packet that breaks a rule, as far as what the other side does about it is judged."""

    rule: str
    sender: Direction
    packet: int
    frame: int
    timestamp_ns: int
    kind: str
    """Name of the packet type; empty where it is not known."""
    position: int
    """Stream position of its sender after the segment that completed it."""
    reason_code: int
    """What the specification names for it; 0 where it names none."""
    certain: bool
    """Whether the bytes prove it."""


@dataclass(slots=True)
class History:
    """Both sides of one connection."""

    client: PeerHistory = field(default_factory=PeerHistory)
    server: PeerHistory = field(default_factory=PeerHistory)
    connect: Connect | None = None
    """The first CONNECT, also one with a fault in a value."""
    connect_sent: Sent | None = None
    connect_malformed: Malformed | None = None
    """The first CONNECT, when it broke the layout."""
    connack: Connack | None = None
    """The first CONNACK."""
    connack_sent: Sent | None = None
    connack_malformed: Malformed | None = None
    """The first CONNACK of the server, when it broke the layout."""
    early: int = 0
    """Packets that the client sent before a CONNACK came, CONNECT and AUTH not counted."""
    settled: bool = False
    """CONNECT and a granting CONNACK were seen, and nobody has sent DISCONNECT."""
    disordered: bool = False
    """A side had received what the capture had not shown yet: the order between the directions proves nothing."""
    clock_back: bool = False
    """The times of the capture go back in the middle of the connection, and nobody knows how far: the time between two
    segments says nothing."""
    clock_set: bool = False
    """The capture's clock was set in the middle of the connection, and times were corrected: durations are likely."""
    latest_ns: int = -1 << 63
    """The latest time of a segment with data."""
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    carries: bool = False
    """Whether messages of the client's session that had no answer on an earlier connection matter to this one."""
    foreign: str = ""
    """The protocol that is spoken instead of MQTT, once the first bytes have shown it."""
    greeting: bytes = b""
    """The first bytes of a server that speaks such a protocol, until the client has sent something."""
    memories: dict[str, Any] = field(default_factory=dict)
    """What rules of connection scope keep beside this, by code."""
    asked: dict[str, int] = field(default_factory=dict)
    """Rules that want to be asked again, by code: when this time comes, whatever else is captured then."""
    asked_next: dict[str, int] = field(default_factory=dict)
    """Rules that want to be asked at the next event of the connection from this time on.  That time passes is no such
    event: it is reported when some rule waits for it, and what one rule finds must not depend on which others run."""
    due_ns: int = NEVER_NS
    """The earliest of all these times."""
    reported: list[Violation] = field(default_factory=list)
    """Violations found lately."""
    looked_at: Any = field(default=None, compare=False, repr=False)
    """What whoever judges looks at of this connection, for both directions, while it is open; not written down."""

    def ask(self, code: str, when_ns: int, alarm: Callable[[int], None] | None = None) -> None:
        """Ask a rule again from that time on, or before where it said so already.

        ``alarm``: who says when the time has come; without it the rule is asked at the next event from then on.
        """
        times = self.asked_next if alarm is None else self.asked
        known_ns = times.get(code)
        if known_ns is not None and known_ns <= when_ns:
            return  # that time is noted, and its alarm is set
        times[code] = when_ns
        if when_ns < self.due_ns:
            self.due_ns = when_ns
        if alarm is not None:
            alarm(when_ns)

    def is_asked(self, code: str) -> bool:
        """Whether a rule is going to be asked again."""
        return code in self.asked or code in self.asked_next

    def due(self, now_ns: int, *, passing: bool = False) -> list[str]:
        """Rules whose time has come, by code; they are not asked again unless they say so.

        ``passing``: nothing has come but the time.
        """
        found = [code for code, when_ns in self.asked.items() if when_ns <= now_ns]
        if not passing:
            found += [code for code, when_ns in self.asked_next.items() if when_ns <= now_ns and code not in found]
        for code in found:
            self.asked.pop(code, None)
            self.asked_next.pop(code, None)
        due_ns = NEVER_NS
        for when_ns in self.asked.values():
            if when_ns < due_ns:
                due_ns = when_ns
        for when_ns in self.asked_next.values():
            if when_ns < due_ns:
                due_ns = when_ns
        self.due_ns = due_ns
        found.sort()
        return found

    def next_due_ns(self, now_ns: int) -> int:
        """The earliest time to come at which a rule wants to be asked."""
        return min((when_ns for when_ns in self.asked.values() if when_ns > now_ns), default=NEVER_NS)

    @property
    def behind_a_hole(self) -> bool:
        """Whether the server has acknowledged bytes of the client that the capture has not shown; a FIN counts one."""
        return self.server.acknowledged > self.client.position + 1

    def party(self, direction: Direction) -> PeerHistory:
        """The side that sends in this direction."""
        return self.client if direction is C2S else self.server

    def segment(
        self,
        from_client: bool,
        position: int,
        acknowledged: int,
        delivered: int,
        timestamp_ns: int,
        held: int,
        unread: int = 0,
    ) -> None:
        """Take note of a segment, before its packets are judged.

        ``delivered`` is how far the other side's stream has come, of which the last ``unread`` bytes were not read as
        packets yet; ``held`` are the bytes of a packet that earlier segments of this side began.
        """
        party = self.client if from_client else self.server
        if not held:
            party.begun = None
        elif party.begun is None:
            party.begun = (party.acknowledged, party.segment_ns)
        party.segment_ns = timestamp_ns
        if timestamp_ns > self.latest_ns:
            self.latest_ns = timestamp_ns
        elif self.latest_ns - timestamp_ns > CLOCK_BACK_NS:
            self.clock_back = True
        length = position - party.position
        party.length_before, party.segment_length = party.segment_length, length
        if length == 1:
            party.single_bytes += 1
        party.position, party.acknowledged, party.shown = position, acknowledged, delivered - unread
        # A FIN counts one in acknowledgment numbers and nothing in the stream.
        if acknowledged > delivered + 1:
            self.disordered = True

    def late(self, direction: Direction) -> None:
        """What comes next of this direction was in earlier segments than the last one: nothing says what it knew."""
        party = self.party(direction)
        party.acknowledged, party.begun = -1, None

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
        elif not found.complete and found.packet_type is not None and _SUBSCRIBE <= found.packet_type <= _UNSUBACK:
            self.subscriptions.unreadable(request=direction is C2S)
        party = self.party(direction)
        party.begun = None
        party.malformed += 1
        party.malformed_ns, party.last_packet = timestamp_ns, number

    def apply(
        self,
        packet: ControlPacket,
        version: ProtocolVersion,
        own: Side,
        peer: Side,
        from_client: bool,
        number: int,
        frame: int,
        timestamp_ns: int,
        topic: str | None,
    ) -> None:
        """Move on by one packet; the connection, with the ``own`` side of its sender, is in the state before it."""
        if from_client:
            sender, receiver = self.client, self.server
            if self.connack is None and not isinstance(packet, (Connect, Auth)):
                self.early += 1
        else:
            sender, receiver = self.server, self.client
        sender.last_packet = number
        if sender.begun is not None:
            sender.begun = None
        if type(packet) is Publish:
            sender.counts[_PUBLISH] += 1
            block = packet.properties
            if block is not None and block.items:
                alias = block.first(TOPIC_ALIAS)
                if alias is not None:
                    sender.odd_aliases += not 0 < alias <= peer.topic_alias_maximum or not topic
            if packet.qos:
                self._share(packet, own, sender, number)
            self._publish(packet, sender, receiver, number, timestamp_ns, topic)
            return
        kind = packet.packet_type
        which: int = kind
        sender.counts[which] += 1
        if type(packet) is Pingreq or type(packet) is Pingresp:
            if type(packet) is Pingreq:
                sender.pings += 1
            elif receiver.pings:
                receiver.pings -= 1
            if not self.settled:
                self._settle()
        elif isinstance(packet, Acknowledgement):
            if type(packet) is Pubrel:
                self._release(packet.packet_identifier, sender, receiver, number)
            else:
                sent = Sent(number, frame, timestamp_ns, sender.position, packet.reason_code or 0)
                self._acknowledge(packet.packet_identifier, kind, peer, sender, receiver, sent)
        elif _FIRST_REQUEST <= which <= _LAST_REQUEST:
            self._share(packet, own, sender, number)
            place = Sent(number, frame, timestamp_ns, sender.position, 0)
            shared = version is ProtocolVersion.V5
            self._subscription(packet, place, from_client=from_client, shared=shared)
        else:
            code = getattr(packet, "reason_code", None) or 0
            self._other(packet, sender, Sent(number, frame, timestamp_ns, sender.position, code))

    def _publish(
        self,
        packet: Publish,
        sender: PeerHistory,
        receiver: PeerHistory,
        number: int,
        timestamp_ns: int,
        topic: str | None,
    ) -> None:
        payload: bytes = packet.payload
        checksum = crc32(payload)
        if topic is not None:
            recent = sender.recent
            recent.append(Message(topic, checksum, len(payload), number, timestamp_ns, packet.missing != 0))
            if len(recent) >= 2 * MAX_RECENT:
                del recent[:MAX_RECENT]
            if packet.retain and receiver is self.client and not packet.dup:
                self.subscriptions.retained_sent(topic, timestamp_ns)
        qos: int = packet.qos
        identifier = packet.packet_identifier
        if qos > sender.highest_qos:
            sender.highest_qos = qos
        if not qos or identifier is None:
            return
        known, place = sender.identifiers, identifier >> 3
        if place >= len(known):
            # A power of two: most clients count from 1, and one of a thousand connections gets far.
            size = LEAST_IDENTIFIERS
            while size <= place:
                size *= 2
            known.extend(bytes(size - len(known)))
        known[place] |= 1 << (identifier & 7)
        sender.checksums[identifier] = checksum
        sender.positions[identifier] = sender.position
        block = packet.properties
        expiry = None if block is None or not block.items else block.first(MESSAGE_EXPIRY_INTERVAL)
        if expiry is not None:
            sender.expiries[identifier] = expiry
        elif sender.expiries:
            sender.expiries.pop(identifier, None)
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        if receiver.ahead and self._was_ahead(sender, receiver, kind, identifier, number):
            sender.surplus += qos == 1
        else:
            (receiver.owes_puback if qos == 1 else receiver.owes_pubrec).setdefault(identifier, number)

    def _share(self, packet: Any, side: Side, party: PeerHistory, number: int) -> None:
        """Note a packet identifier that is taken while something else has it, repeats of the same left out."""
        running = side.exchanges.get(packet.packet_identifier)
        if running is None or not isinstance(packet, (Publish, Subscribe, Unsubscribe)):
            return
        if isinstance(packet, Publish):
            if packet.dup and running.kind == "publish" and running.qos == packet.qos:
                return
        else:
            if isinstance(packet, Subscribe):
                kind, filters = "subscribe", [row.topic_filter for row in packet.known("subscriptions") or ()]
            else:
                kind, filters = "unsubscribe", packet.known("topic_filters") or []
            request = self.subscriptions.request_for(running.packet_identifier, kind)
            if running.kind == kind and (request is None or list(request.topic_filters) == filters):
                return
        party.shared.pop(running.packet_identifier, None)
        party.shared[running.packet_identifier] = number

    @staticmethod
    def _was_ahead(sender: PeerHistory, receiver: PeerHistory, kind: int, identifier: int, number: int) -> bool:
        """Whether a packet has had its answer before the capture showed it."""
        if receiver.ahead.pop(identifier * 16 + kind, None) is None:
            return False
        sender.settled[identifier] = number
        return True

    @staticmethod
    def _note_ahead(party: PeerHistory, kind: int, identifier: int, number: int) -> bool:
        """Remember an answer to what was not shown, where that is because of the capture."""
        if party.in_step():
            return False
        party.ahead[identifier * 16 + kind] = number
        if len(party.ahead) > MAX_AHEAD:
            del party.ahead[next(iter(party.ahead))]
        return True

    def _release(self, identifier: int, party: PeerHistory, other: PeerHistory, number: int) -> None:
        """PUBREL."""
        if party.owes_pubrel.pop(identifier, None) is None:
            self._note_ahead(party, PacketType.PUBREL, identifier, number)
        if other.ahead and self._was_ahead(party, other, PacketType.PUBCOMP, identifier, number):
            party.surplus += 1
            return
        if identifier in other.owes_pubcomp:
            other.pubrels_again[identifier] = other.pubrels_again.get(identifier, 0) + 1
        other.owes_pubcomp[identifier] = number

    def _acknowledge(
        self, identifier: int, kind: PacketType, answered: Side, party: PeerHistory, other: PeerHistory, sent: Sent
    ) -> None:
        """PUBACK, PUBREC and PUBCOMP."""
        ends, number = True, sent.packet
        running = answered.running(identifier, "publish")
        if kind is PacketType.PUBACK:
            party.owes_puback.pop(identifier, None)
        elif kind is PacketType.PUBREC:
            ends = sent.reason_code >= 0x80
            party.owes_pubrec.pop(identifier, None)
            if not ends:
                if other.ahead.pop(identifier * 16 + PacketType.PUBREL, -1) < 0:
                    other.owes_pubrel.setdefault(identifier, number)
                if running is None:
                    self._note_ahead(party, kind, identifier, number)
        elif party.owes_pubcomp.pop(identifier, None) is None:
            again = party.pubrels_again.pop(identifier, 0)
            if again > 1:
                party.pubrels_again[identifier] = again - 1
            elif not again:
                self._note_ahead(party, kind, identifier, number)
        if not ends:
            return
        if running is not None:
            if other.surplus >= answered.in_flight:
                other.surplus = answered.in_flight - 1
            ended = other.ended
            if identifier in ended:
                del ended[identifier]  # so that the new one is the last one of all
            released_by = running.released_by
            ended[identifier] = Ended(
                identifier,
                running.packet,
                running.frame,
                running.timestamp_ns,
                running.qos,
                running.topic,
                running.phase,
                -1 if released_by is None else released_by,
                running.retransmissions,
                other.checksums.pop(identifier, 0),
                kind,
                sent.reason_code,
                number,
                sent.frame,
                sent.timestamp_ns,
                sent.position,
            )
            other.positions.pop(identifier, None)
            if len(ended) > MAX_ENDED:
                del ended[next(iter(ended))]
        elif not self._note_ahead(party, kind, identifier, number):
            before = other.ended.get(identifier)
            if before is not None and before.by == kind:
                before.answers += 1
            other.surplus = min(other.surplus + 1, answered.in_flight)

    def _subscription(self, packet: ControlPacket, sent: Sent, *, from_client: bool, shared: bool) -> None:
        """SUBSCRIBE to UNSUBACK, each from the side that may send it."""
        table = self.subscriptions
        if from_client:
            if isinstance(packet, Subscribe):
                table.subscribe(packet, sent.packet, sent.frame, sent.timestamp_ns, sent.position, shared=shared)
            elif isinstance(packet, Unsubscribe):
                table.unsubscribe(packet, sent.packet, sent.frame, sent.timestamp_ns, sent.position)
        elif isinstance(packet, Suback):
            table.granted(packet, sent.packet, sent.timestamp_ns)
        elif isinstance(packet, Unsuback):
            table.unsubscribed(packet, sent.packet, sent.timestamp_ns)

    def _other(self, packet: ControlPacket, sender: PeerHistory, sent: Sent) -> None:
        """Packets that are few."""
        if isinstance(packet, Connect):
            if self.connect is None:
                self.connect = packet
                self.connect_sent = self.connect_sent or sent
        elif isinstance(packet, Connack):
            if self.connack is None:
                self.connack, self.connack_sent = packet, sent
        elif isinstance(packet, Disconnect):
            sender.disconnect = sender.disconnect or sent
        elif isinstance(packet, Auth):
            sender.auth = sent
        self._settle()

    def _settle(self) -> None:
        granted = self.connack is not None and not self.connack.reason_code
        left = self.client.disconnect or self.server.disconnect
        self.settled = granted and self.connect_sent is not None and left is None
