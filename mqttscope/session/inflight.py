"""One side of a connection: its limits, its topic aliases and the exchanges it has begun.

Packet identifiers, topic aliases and Receive Maximum windows belong to a direction (5.0 2.2.1, 3.3.2.3.4, 3.3.4): the
client's and the server's never share a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mqttscope.mqtt.constants import PacketType
from mqttscope.secrets.packets import SUSPECT

MAX_PACKET_IDENTIFIERS: Final = 65_535
"""Packet identifiers of one direction, and so the Receive Maximum of a side that announces none (5.0 3.1.2.11.3)."""
MAX_ALIAS_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the topics that the aliases of one direction may hold; beyond them an alias stays unknown."""


class ExchangePhase(StrEnum):
    """How far an exchange has come.

    A QoS 1 PUBLISH, a SUBSCRIBE or an UNSUBSCRIBE is over with its first answer.  QoS 2 takes four packets (5.0 4.3.3):
    the PUBLISH is ``sent``, PUBREC says that it was ``received``, PUBREL that its identifier is ``released``, and
    PUBCOMP ends the exchange, as does a PUBREC with an error.  Packets that come again, or out of order, count as they
    come.
    """

    SENT = "sent"
    RECEIVED = "received"
    """PUBREC came (QoS 2)."""
    RELEASED = "released"
    """PUBREL was sent."""


SENT, RECEIVED, RELEASED = ExchangePhase

EXCHANGE_TRANSITIONS: Final = {
    (SENT, PacketType.PUBREC): RECEIVED,
    (RECEIVED, PacketType.PUBREC): RECEIVED,
    (RELEASED, PacketType.PUBREC): RECEIVED,
    (SENT, PacketType.PUBREL): RELEASED,
    (RECEIVED, PacketType.PUBREL): RELEASED,
    (RELEASED, PacketType.PUBREL): RELEASED,
}
"""The next phase of a QoS 2 exchange for every phase and packet that does not end it."""


@dataclass(slots=True)
class Exchange:
    """A packet that waits for its answer."""

    packet_identifier: int
    packet: int
    """Number of the packet that began it."""
    frame: int
    timestamp_ns: int
    kind: str
    """``publish``, ``subscribe`` or ``unsubscribe``."""
    qos: int = 0
    topic: str | None = None
    """Topic Name of a PUBLISH, alias resolved."""
    phase: ExchangePhase = SENT
    released_by: int | None = None
    """Number of the PUBREL."""
    filters: int = 0
    """How many topic filters a SUBSCRIBE or UNSUBSCRIBE asks for."""
    retransmissions: int = 0
    """How often the packet came again with DUP on this connection."""

    def move(self, packet_type: PacketType) -> None:
        self.phase = EXCHANGE_TRANSITIONS[self.phase, packet_type]


@dataclass(slots=True)
class Side:
    """What one end of a connection announced, and what it sent."""

    receive_maximum: int = MAX_PACKET_IDENTIFIERS
    """How many QoS 1 and 2 messages it takes at a time (5.0 3.1.2.11.3, 3.2.2.3.3)."""
    maximum_packet_size: int | None = None
    """Longest packet it takes in bytes, ``None`` for the protocol's own limit."""
    topic_alias_maximum: int = 0
    """Highest Topic Alias it takes."""
    limits_known: bool = False
    """Whether the packet that announces the limits was seen."""
    aliases: dict[int, str] = field(default_factory=dict)
    """Topic Aliases that this side has set, as they stand now."""
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    """What this side sent and has not been answered in full, by packet identifier."""
    receiving: dict[int, int] = field(default_factory=dict)
    """Identifiers of QoS 2 messages it received and has not completed, with the number of their PUBLISH."""
    in_flight: int = 0
    """QoS 1 and 2 messages it sent that count against the other side's Receive Maximum."""
    in_flight_peak: int = 0
    ping_packet: int | None = None
    """Number of a PINGREQ that has no answer yet."""
    ping_timestamp_ns: int = 0
    packets: int = 0
    bytes: int = 0
    alias_hits: int = 0
    """PUBLISH packets whose topic came from an alias alone."""
    alias_sets: int = 0
    """PUBLISH packets that set or re-mapped an alias."""
    last_timestamp_ns: int | None = None
    """When it last sent a packet."""
    alias_bytes: int = 0
    """Bytes of the topics in ``aliases``, at most `MAX_ALIAS_BYTES`."""
    aliases_dropped: int = 0
    """How often an alias could not be kept because of that limit: its topic is unknown until it is set again."""
    stream_offset: int = 0
    """Place of what comes next in the stream of this side: all before it was told in events, or is told to be lost."""
    gapped: bool = False
    """Whether bytes of this direction were lost: unfinished exchanges prove nothing any more."""
    doubt: int = field(default=SUSPECT, repr=False, compare=False)
    """How little the next bytes of this side are trusted not to be of a secret (`redact.packets`)."""

    def set_alias(self, alias: int, topic: str) -> None:
        """Set or re-map an alias, within the limit of bytes."""
        self.alias_sets += 1
        aliases = self.aliases
        before = aliases.get(alias)
        if before == topic:
            return
        if before is not None:
            self.alias_bytes -= _size(before)
        size = _size(topic)
        if self.alias_bytes + size > MAX_ALIAS_BYTES:
            # The topic before does not stand for it any more either.
            aliases.pop(alias, None)
            self.aliases_dropped += 1
            return
        self.alias_bytes += size
        aliases[alias] = topic

    def begin(self, exchange: Exchange) -> None:
        """Put an exchange into the table; one of the same identifier that it replaces is given up."""
        before = self.exchanges.get(exchange.packet_identifier)
        if before is not None and before.kind == "publish":
            self.in_flight -= 1
        self.exchanges[exchange.packet_identifier] = exchange
        if exchange.kind == "publish":
            self.in_flight += 1
            if self.in_flight > self.in_flight_peak:
                self.in_flight_peak = self.in_flight

    def running(self, packet_identifier: int, kind: str) -> Exchange | None:
        """The exchange of this kind that has the identifier now."""
        found = self.exchanges.get(packet_identifier)
        return found if found is not None and found.kind == kind else None

    def finish(self, packet_identifier: int, kind: str) -> Exchange | None:
        """Take an answered exchange of this kind out of the table."""
        found = self.running(packet_identifier, kind)
        if found is None:
            return None
        del self.exchanges[packet_identifier]
        if kind == "publish":
            self.in_flight -= 1
        return found


def _size(topic: str) -> int:
    return len(topic) if topic.isascii() else len(topic.encode("utf-8", "surrogateescape"))
