"""History of a connection: the packets and answers that judging the next packet needs.

`Connection` is the state that the protocol itself defines.  A `History` adds the state that only judging needs: the
CONNECT and CONNACK themselves, recent acknowledgments, owed answers in order, subscriptions, and the acknowledgment
numbers of each side.  A `PeerHistory` is one of its two sides.

A history exists only if a caller requests it (``Connection.history``).  Like the connection, it is updated with each
packet after that packet was judged.  All tables are bounded.
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
from mqttscope.session.inflight import Exchange, ExchangePhase, TablesOnDemand
from mqttscope.session.subscriptions import Subscriptions

if TYPE_CHECKING:
    from mqttscope.session.inflight import ConnectionSide

MAX_ENDED: Final = 64
"""Maximum number of ended exchanges remembered per side."""
MAX_AHEAD: Final = 1_024
"""Maximum number of answers per side that the capture shows before the packets they answer."""
LEAST_IDENTIFIERS: Final = 64
"""Initial size, in bytes, of the table with a bit for each packet identifier; 8,192 bytes have all of them."""
MAX_RECENT: Final = 32
"""Minimum number of recent messages remembered per side, by topic and content."""
_SUBSCRIBE: Final = PacketType.SUBSCRIBE
_UNSUBACK: Final = PacketType.UNSUBACK
_PUBLISH: Final = 3
"""Types as plain numbers, which are faster to compare."""
_FIRST_REQUEST: Final = 8
_LAST_REQUEST: Final = 11
"""SUBSCRIBE to UNSUBACK."""


@dataclass(slots=True)
class SentPacket:
    """A packet that is needed later."""

    packet: int
    frame: int
    timestamp_ns: int
    position: int
    """Stream position of its sender after the segment with its last byte; see `PeerHistory.position`."""
    reason_code: int = 0


@dataclass(slots=True)
class EndedExchange:
    """A PUBLISH exchange that was answered in full.

    A thousand connections have many thousands of them, so the fields of the `Exchange` and of its last answer are
    stored directly; both objects are created on access.  Stored state contains the objects (`lake.state`).
    """

    packet_identifier: int
    packet: int
    """Number of the PUBLISH; frame and time are also from the PUBLISH."""
    frame: int
    timestamp_ns: int
    qos: int
    topic: str | None
    phase: ExchangePhase
    released_by: int
    """Number of the PUBREL; -1 without one."""
    retransmissions: int
    checksum: int
    """CRC-32 of the payload of the PUBLISH."""
    by: int
    """Packet type of the answer that ended it."""
    reason_code: int
    answer_packet: int
    answer_frame: int
    answer_ns: int
    answer_position: int
    answers: int = 1
    """Number of packets of that type that answered it."""

    @property
    def exchange(self) -> Exchange:
        """The exchange at its end."""
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
    def exchange(self, exchange: Exchange) -> None:
        self.packet_identifier, self.packet, self.frame = exchange.packet_identifier, exchange.packet, exchange.frame
        self.timestamp_ns, self.qos, self.topic = exchange.timestamp_ns, exchange.qos, exchange.topic
        self.phase, self.retransmissions = exchange.phase, exchange.retransmissions
        self.released_by = -1 if exchange.released_by is None else exchange.released_by

    @property
    def answer(self) -> SentPacket:
        """The answer that ended it."""
        return SentPacket(self.answer_packet, self.answer_frame, self.answer_ns, self.answer_position, self.reason_code)

    @answer.setter
    def answer(self, sent: SentPacket) -> None:
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
    """Whether the capture has only part of it, so that its content is unknown."""


@dataclass(slots=True)
class PeerHistory(TablesOnDemand):
    """History of one side of a connection: its packets, and the answers that it owes."""

    position: int = 0
    """TCP stream position after this side's last segment delivered in order."""
    acknowledged: int = -1
    """Position in the other side's stream that this segment acknowledged; -1 if the capture does not prove it."""
    segment_ns: int = 0
    """Capture time of that segment."""
    begun: tuple[int, int] | None = None
    """Start of an incomplete packet in an earlier segment: acknowledged position and time of that segment."""
    segment_length: int = 0
    """Bytes of that segment."""
    length_before: int = 0
    """Bytes of the previous segment."""
    single_bytes: int = 0
    """Number of segments with one byte."""
    shown: int = 0
    """Position in the other side's stream that the capture had shown when that segment arrived."""
    counts: list[int] = field(default_factory=lambda: [0] * 16)
    """Number of packets by type."""
    malformed: int = 0
    """Number of packets with a broken layout, whether or not they could be read to the end."""
    malformed_ns: int = 0
    """Time of the last such packet."""
    last_packet: int = -1
    """Number of its last packet, malformed ones included."""
    identifiers: bytearray = field(init=False)
    """Bit table of the packet identifiers of all its PUBLISH packets, as long as the highest one needs."""
    checksums: dict[int, int] = field(init=False)
    """CRC-32 of the payloads of its PUBLISH packets that were not answered in full, by packet identifier."""
    positions: dict[int, int] = field(init=False)
    """Stream position after each of those PUBLISH packets."""
    expiries: dict[int, int] = field(init=False)
    """Message Expiry Intervals of those PUBLISH packets, in seconds, by packet identifier."""
    ended: dict[int, EndedExchange] = field(init=False)
    """Its exchanges that were answered in full, by packet identifier: the last one each."""
    has_refusals: bool = False
    """Whether the other side refused any of these exchanges."""
    owes_puback: dict[int, int] = field(init=False)
    """Received QoS 1 messages that it has not acknowledged, with the number of the PUBLISH, in order of arrival."""
    owes_pubrec: dict[int, int] = field(init=False)
    """Received QoS 2 messages without its PUBREC, with the number of the PUBLISH, in order of arrival."""
    owes_pubrel: dict[int, int] = field(init=False)
    """Received PUBREC packets that it has not answered, in order of arrival."""
    owes_pubcomp: dict[int, int] = field(init=False)
    """Received PUBREL packets that it has not answered, in order of arrival."""
    pubrels_again: dict[int, int] = field(init=False)
    """Number of repeated PUBREL packets, minus those answered since, by packet identifier."""
    surplus: int = 0
    """Answers that increased its send quota although nothing on this connection was open (5.0 4.9), such as the PUBCOMP
    for an earlier connection's PUBREL.  Never more than its messages in flight."""
    ahead: dict[int, int] = field(init=False)
    """Its answers to packets that the capture shows only later: packet number by 16 * identifier + type."""
    settled: dict[int, int] = field(init=False)
    """Its packets that were answered `ahead`: packet number by packet identifier."""
    shared: dict[int, int] = field(init=False)
    """Packet identifiers that it reused while another exchange had them, with the number of the later packet.  Answers
    to them are ambiguous.  The table is not limited: there are at most 65,535, and each has a larger exchange."""
    odd_aliases: int = 0
    """Number of its PUBLISH packets with a Topic Alias that is 0, above the maximum or without a mapping."""
    pings: int = 0
    """Number of its unanswered PINGREQ packets."""
    highest_qos: int = 0
    """Highest QoS of its messages."""
    disconnect: SentPacket | None = None
    """Its DISCONNECT."""
    auth: SentPacket | None = None
    """Its last AUTH."""
    recent: list[Message] = field(init=False)
    """Its recent messages, oldest first."""
    misread: int = -1
    """End of the part of its stream with packets at wrong places; -1 without such packets."""
    miscounted: int | None = None
    """Number of its last packet that was longer or shorter than its fields."""
    confirmed: int = -1
    """Other side's acknowledgment of its stream when a rule was last woken, by any segment."""
    blocked_ns: int = 0
    """When its receive window was last closed, so that the other side had to wait; 0 before."""
    unread: bool = False
    """Whether its stream then had missing or held-back bytes, which may hide a FIN."""
    closing_ns: int = 0
    """Time of its first WebSocket Close frame; 0 before that."""
    closing_frame: int = 0
    """Capture frame with that Close frame."""
    closing_code: int | None = None
    """Status code of that Close frame, if it has one (RFC 6455 section 7.4)."""
    closing_reason: str = ""
    web_pings: int = 0
    """WebSocket Ping frames it sent since the last Pong of the other side."""
    web_ping_ns: int = 0
    """Time of the first of these Ping frames."""
    web_ping_frame: int = 0
    framed: int = 0
    """Number of its packets at the end of its last WebSocket frame."""
    frames: int = 0
    """Number of its WebSocket frames with exactly one packet."""
    odd_frame: str = ""
    """How its last frame deviated, for messages; empty if it held one packet."""
    first_odd_ns: int = 0
    """Time of the first deviating frame; 0 before."""

    def has_sent(self, packet_identifier: int) -> bool:
        """Whether it sent a PUBLISH with this packet identifier on this connection."""
        place = packet_identifier >> 3
        return place < len(self.identifiers) and bool(self.identifiers[place] & 1 << (packet_identifier & 7))

    def in_step(self) -> bool:
        """Whether the capture provably showed all that this side had received; if not, answers may precede requests."""
        return 0 <= self.acknowledged <= self.shown + 1  # a FIN counts as one byte

    def frame(self, count: int, *, within: bool) -> None:
        """Handle the end of a WebSocket frame, possibly inside a packet; ``count``: its packets until then."""
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
        """Whether a PUBLISH repeats the last message that its packet identifier had in an exchange."""
        if topic is not None and before.topic is not None and topic != before.topic:
            return False
        checksum = self.checksums.get(before.packet_identifier)
        if checksum is None:
            ended = self.ended.get(before.packet_identifier)
            checksum = None if ended is None else ended.checksum
        return checksum == crc32(packet.payload)


C2S: Final = Direction.CLIENT_TO_SERVER
CLOCK_BACK_NS: Final = 1_000_000_000
"""Step back of the clock above which it was set; smaller ones occur between the queues of a capturing host."""
NEVER_NS: Final = 2**63 - 1
"""A time that is never reached."""
_MISCOUNTS: Final = (
    MalformedReason.FIELD_OVERRUN,
    MalformedReason.TRAILING_BYTES,
    MalformedReason.REMAINING_LENGTH_WRONG,
    MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL,
)


@dataclass(slots=True)
class Violation:
    """A packet that breaks a rule, for judging the other side's reaction."""

    rule: str
    sender: Direction
    packet: int
    frame: int
    timestamp_ns: int
    kind: str
    """Name of the packet type; empty if unknown."""
    position: int
    """Stream position of its sender after the segment with its last byte."""
    reason_code: int
    """Reason Code that the specification assigns; 0 without one."""
    certain: bool
    """Whether the bytes prove it."""


@dataclass(slots=True)
class History(TablesOnDemand):
    """Both sides of one connection."""

    client: PeerHistory = field(default_factory=PeerHistory)
    server: PeerHistory = field(default_factory=PeerHistory)
    connect: Connect | None = None
    """The first CONNECT, even with a fault in a value."""
    connect_sent: SentPacket | None = None
    connect_malformed: Malformed | None = None
    """The first CONNECT, if its layout was broken."""
    connack: Connack | None = None
    """The first CONNACK."""
    connack_sent: SentPacket | None = None
    connack_malformed: Malformed | None = None
    """The first CONNACK of the server, if its layout was broken."""
    early: int = 0
    """Number of packets that the client sent before a CONNACK, without CONNECT and AUTH."""
    settled: bool = False
    """Whether CONNECT and an accepting CONNACK were seen, and no DISCONNECT."""
    disordered: bool = False
    """Whether a side had received bytes that the capture had not shown yet: the order of the directions is unknown."""
    clock_back: bool = False
    """Whether the times of the capture go back during the connection, by an unknown amount: intervals between segments
    are meaningless."""
    clock_set: bool = False
    """Whether the clock was set during the connection and times were corrected: durations are only likely."""
    latest_ns: int = -1 << 63
    """Latest time of a data segment."""
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    carries: bool = False
    """Whether unanswered messages of an earlier connection of the session matter to this one."""
    foreign: str = ""
    """The protocol used instead of MQTT, once the first bytes have shown it."""
    greeting: bytes = b""
    """The first bytes of a server with such a protocol, until the client has sent something."""
    memories: dict[str, Any] = field(init=False)
    """State of rules with connection scope, by code."""
    asked: dict[str, int] = field(init=False)
    """Rules with an alarm, by code: asked at that time, even if nothing is captured then."""
    asked_next: dict[str, int] = field(init=False)
    """Rules to be asked at the connection's next event from that time on.  The passing of time is not such an event: it
    is reported only while another rule waits for it, and findings must not depend on other rules."""
    due_ns: int = NEVER_NS
    """The earliest of all these times."""
    reported: list[Violation] = field(init=False)
    """Recent violations."""
    looked_at: Any = field(default=None, compare=False, repr=False)
    """Rule contexts of the two directions while the connection is open; not stored."""

    def ask(self, code: str, when_ns: int, alarm: Callable[[int], None] | None = None) -> None:
        """Schedule a rule for that time unless it is scheduled earlier.

        ``alarm``: reports the time when it comes; without it the rule is asked at the next event from then on.
        """
        times = self.asked_next if alarm is None else self.asked
        known_ns = times.get(code)
        if known_ns is not None and known_ns <= when_ns:
            return  # already scheduled, with its alarm set
        times[code] = when_ns
        if when_ns < self.due_ns:
            self.due_ns = when_ns
        if alarm is not None:
            alarm(when_ns)

    def is_asked(self, code: str) -> bool:
        """Whether a rule is scheduled."""
        return code in self.asked or code in self.asked_next

    def due(self, now_ns: int, *, passing: bool = False) -> list[str]:
        """Codes of the rules with an expired time; the rules are no longer scheduled.

        ``passing``: the only event is that time passed.
        """
        codes = [code for code, when_ns in self.asked.items() if when_ns <= now_ns]
        if not passing:
            codes += [code for code, when_ns in self.asked_next.items() if when_ns <= now_ns and code not in codes]
        for code in codes:
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
        codes.sort()
        return codes

    def next_due_ns(self, now_ns: int) -> int:
        """The next time that a rule is scheduled for."""
        return min((when_ns for when_ns in self.asked.values() if when_ns > now_ns), default=NEVER_NS)

    @property
    def behind_a_hole(self) -> bool:
        """Whether the server acknowledged client bytes that are missing from the capture; a FIN counts as one."""
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
        """Handle a segment, before its packets are judged.

        ``delivered``: progress of the other side's stream; its last ``unread`` bytes were not read as packets yet.
        ``held``: bytes of a packet that earlier segments of this side began.
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
        # A FIN counts as one byte in acknowledgment numbers, but not in the stream.
        if acknowledged > delivered + 1:
            self.disordered = True

    def window_closed(self, direction: Direction, timestamp_ns: int) -> None:
        """Handle a segment with a receive window of 0: its sender accepts no more data until it opens it."""
        self.party(direction).blocked_ns = timestamp_ns
        if direction is C2S:
            self.subscriptions.hold_up(timestamp_ns)

    def note_late(self, direction: Direction) -> None:
        """Handle delayed data: the next packets were in earlier segments, with unproven acknowledgments."""
        party = self.party(direction)
        party.acknowledged, party.begun = -1, None

    def gap(self, direction: Direction) -> None:
        """Handle lost bytes: answers that their sender owed may have been among them."""
        party = self.party(direction)
        for owed in (party.owes_puback, party.owes_pubrec, party.owes_pubrel, party.owes_pubcomp):
            owed.clear()
        party.pings = 0
        self.party(direction.opposite).pings = 0

    def malformed(self, packet: Malformed, direction: Direction, number: int, frame: int, timestamp_ns: int) -> None:
        """Handle a packet with a broken layout, if it cannot be applied as a packet."""
        if any(fault.reason in _MISCOUNTS for fault in packet.faults):
            self.party(direction).miscounted = number
        kind = packet.packet_type
        if kind == PacketType.CONNECT and direction is C2S:
            if self.connect_malformed is None and (self.connect is None or self.connect is packet.packet):
                self.connect_malformed = packet
                self.connect_sent = SentPacket(number, frame, timestamp_ns, self.client.position)
        elif kind == PacketType.CONNACK and direction is not C2S:
            if self.connack_malformed is None and (self.connack is None or self.connack is packet.packet):
                self.connack_malformed = packet
        elif not packet.complete and packet.packet_type is not None and _SUBSCRIBE <= packet.packet_type <= _UNSUBACK:
            self.subscriptions.note_unreadable(request=direction is C2S)
        party = self.party(direction)
        party.begun = None
        party.malformed += 1
        party.malformed_ns, party.last_packet = timestamp_ns, number

    def apply(
        self,
        packet: ControlPacket,
        version: ProtocolVersion,
        own: ConnectionSide,
        peer: ConnectionSide,
        from_client: bool,
        number: int,
        frame: int,
        timestamp_ns: int,
        topic: str | None,
    ) -> None:
        """Update with one packet; the connection, with the ``own`` side of the sender, is in the state before it."""
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
                sent = SentPacket(number, frame, timestamp_ns, sender.position, packet.reason_code or 0)
                self._acknowledge(packet.packet_identifier, kind, peer, sender, receiver, sent)
        elif _FIRST_REQUEST <= which <= _LAST_REQUEST:
            self._share(packet, own, sender, number)
            place = SentPacket(number, frame, timestamp_ns, sender.position, 0)
            shared = version is ProtocolVersion.V5
            self._subscription(packet, place, from_client=from_client, shared=shared)
        else:
            code = getattr(packet, "reason_code", None) or 0
            self._other(packet, sender, SentPacket(number, frame, timestamp_ns, sender.position, code))

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
            if receiver is self.client:
                if packet.retain and not packet.dup:
                    self.subscriptions.retained_sent(topic, timestamp_ns)
                elif self.subscriptions.held_ns is not None:
                    self.subscriptions.held_ns = None  # a live message: the series is over
        qos: int = packet.qos
        identifier = packet.packet_identifier
        if qos > sender.highest_qos:
            sender.highest_qos = qos
        if not qos or identifier is None:
            return
        known, place = sender.identifiers, identifier >> 3
        if place >= len(known):
            # A power of two: most clients count from 1, and few count far.
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

    def _share(self, packet: Any, side: ConnectionSide, party: PeerHistory, number: int) -> None:
        """Record a packet identifier that is reused during another exchange, unless the packet is a repetition."""
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
        """Whether a packet had its answer before the capture showed the packet."""
        if receiver.ahead.pop(identifier * 16 + kind, None) is None:
            return False
        sender.settled[identifier] = number
        return True

    @staticmethod
    def _note_ahead(party: PeerHistory, kind: int, identifier: int, number: int) -> bool:
        """Remember an answer to a packet that the capture may show later."""
        if party.in_step():
            return False
        party.ahead[identifier * 16 + kind] = number
        if len(party.ahead) > MAX_AHEAD:
            del party.ahead[next(iter(party.ahead))]
        return True

    def _release(self, identifier: int, party: PeerHistory, other: PeerHistory, number: int) -> None:
        if party.owes_pubrel.pop(identifier, None) is None:
            self._note_ahead(party, PacketType.PUBREL, identifier, number)
        if other.ahead and self._was_ahead(party, other, PacketType.PUBCOMP, identifier, number):
            party.surplus += 1
            return
        if identifier in other.owes_pubcomp:
            other.pubrels_again[identifier] = other.pubrels_again.get(identifier, 0) + 1
        other.owes_pubcomp[identifier] = number

    def _acknowledge(
        self,
        identifier: int,
        kind: PacketType,
        answered: ConnectionSide,
        party: PeerHistory,
        other: PeerHistory,
        sent: SentPacket,
    ) -> None:
        """Handle PUBACK, PUBREC and PUBCOMP."""
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
                del ended[identifier]  # so that the new one is the last in order
            released_by = running.released_by
            ended[identifier] = EndedExchange(
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
            if sent.reason_code >= 0x80:
                other.has_refusals = True
            other.positions.pop(identifier, None)
            if len(ended) > MAX_ENDED:
                del ended[next(iter(ended))]
        elif not self._note_ahead(party, kind, identifier, number):
            before = other.ended.get(identifier)
            if before is not None and before.by == kind:
                before.answers += 1
            other.surplus = min(other.surplus + 1, answered.in_flight)

    def _subscription(self, packet: ControlPacket, sent: SentPacket, *, from_client: bool, shared: bool) -> None:
        """Handle SUBSCRIBE to UNSUBACK, each from the side that may send it."""
        table = self.subscriptions
        if from_client:
            if isinstance(packet, Subscribe):
                table.subscribe(packet, sent.packet, sent.frame, sent.timestamp_ns, sent.position, shared=shared)
            elif isinstance(packet, Unsubscribe):
                table.unsubscribe(packet, sent.packet, sent.frame, sent.timestamp_ns, sent.position)
        elif isinstance(packet, Suback):
            table.handle_suback(packet, sent.packet, sent.timestamp_ns)
        elif isinstance(packet, Unsuback):
            table.handle_unsuback(packet, sent.packet, sent.timestamp_ns)

    def _other(self, packet: ControlPacket, sender: PeerHistory, sent: SentPacket) -> None:
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
