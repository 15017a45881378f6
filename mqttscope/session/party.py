"""One side of a connection as a judge has to remember it: what it sent, what it owes, how far it had come."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.session.inflight import Exchange

MAX_ENDED = 64
"""Ended exchanges that are remembered of each side."""
MAX_AHEAD = 1_024
"""Answers of each side that are remembered because the capture shows them before what they answer."""
MAX_SHARED = 256
"""Packet identifiers of each side that are remembered because two exchanges had them at a time."""
MAX_RECENT = 32
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
    """Packet identifiers of the PUBLISH packets it ever sent, one bit each; empty before the first one."""
    checksums: dict[int, int] = field(default_factory=dict)
    """CRC-32 of the payloads of PUBLISH packets that it sent and that were not answered in full, by packet
    identifier."""
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
    shared: dict[int, int] = field(default_factory=dict)
    """Packet identifiers it took while another exchange had them, with the number of the packet that did: what answers
    which of the two nobody can tell."""
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
        checksum = self.checksums.get(before.packet_identifier)
        if checksum is None:
            ended = self.ended.get(before.packet_identifier)
            checksum = None if ended is None else ended.checksum
        return checksum == zlib.crc32(packet.payload)
