"""One side of a connection: its limits, its topic aliases and the exchanges that it began.

Packet identifiers, topic aliases and Receive Maximum windows belong to a direction (5.0 2.2.1, 3.3.2.3.4, 3.3.4): the
client's and the server's never share a table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from mqttscope.mqtt.constants import PacketType
from mqttscope.secrets.packets import SUSPECT

MAX_PACKET_IDENTIFIERS: Final = 65_535
"""Number of packet identifiers per direction, and so the default Receive Maximum (5.0 3.1.2.11.3)."""
MAX_ALIAS_BYTES: Final = 16 * 1024 * 1024
"""Maximum total bytes of the aliased topics of one direction; beyond it an alias stays unknown."""


class TablesOnDemand:
    """State with tables that are created on first access: most connections never use most of them.

    Declare such a table as ``field(init=False)``.  An empty dict takes 64 bytes, and a connection has 34: with 100,000
    open connections they took 220 MB.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Called only if the slot is empty.
            kind = _TABLES.get(type(self).__annotations__.get(name, "").partition("[")[0])
            if kind is None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            table = kind()
            setattr(self, name, table)
            return table

    def empty(self, *names: str) -> None:
        """Replace tables by empty ones."""
        for name in names:
            with suppress(AttributeError):
                object.__delattr__(self, name)

    def has_any(self, *names: str) -> bool:
        """Whether any of these tables has an entry."""
        for name in names:
            with suppress(AttributeError):
                if object.__getattribute__(self, name):
                    return True
        return False


_TABLES: Final = {"dict": dict, "list": list, "bytearray": bytearray}


class ExchangePhase(StrEnum):
    """Progress of an exchange.

    The first answer ends a QoS 1 PUBLISH, a SUBSCRIBE or an UNSUBSCRIBE.  QoS 2 takes four packets (5.0 4.3.3): the
    PUBLISH is ``sent``, PUBREC confirms that it was ``received``, PUBREL makes its identifier ``released``, and PUBCOMP
    ends the exchange, as does a PUBREC with an error.  Repeated packets, and packets out of order, are applied as they
    arrive.
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
    """Number of topic filters in a SUBSCRIBE or UNSUBSCRIBE."""
    retransmissions: int = 0
    """Number of repetitions with DUP on this connection."""

    def move(self, packet_type: PacketType) -> None:
        self.phase = EXCHANGE_TRANSITIONS[self.phase, packet_type]


@dataclass(slots=True)
class ConnectionSide(TablesOnDemand):
    """The announced limits of one end of a connection, and the packets that it sent."""

    receive_maximum: int = MAX_PACKET_IDENTIFIERS
    """Maximum number of QoS 1 and 2 messages that it accepts at a time (5.0 3.1.2.11.3, 3.2.2.3.3)."""
    maximum_packet_size: int | None = None
    """Maximum size of a packet that it accepts, in bytes; ``None`` for the protocol's own limit."""
    topic_alias_maximum: int = 0
    """Highest Topic Alias that it accepts."""
    limits_known: bool = False
    """Whether the packet with the limits was seen."""
    aliases: dict[int, str] = field(default_factory=dict)
    """Current Topic Aliases of this side."""
    exchanges: dict[int, Exchange] = field(init=False)
    """Unfinished exchanges of this side, by packet identifier."""
    receiving: dict[int, int] = field(init=False)
    """Identifiers of unfinished QoS 2 messages that it received, with the number of their PUBLISH."""
    in_flight: int = 0
    """Number of its QoS 1 and 2 messages that count against the other side's Receive Maximum."""
    in_flight_peak: int = 0
    ping_packet: int | None = None
    """Number of an unanswered PINGREQ."""
    ping_timestamp_ns: int = 0
    packets: int = 0
    bytes: int = 0
    alias_hits: int = 0
    """PUBLISH packets with a topic from an alias alone."""
    alias_sets: int = 0
    """PUBLISH packets that set or change an alias."""
    last_timestamp_ns: int | None = None
    """Time of its last packet."""
    alias_bytes: int = 0
    """Total bytes of the topics in ``aliases``, at most `MAX_ALIAS_BYTES`."""
    aliases_dropped: int = 0
    """Number of aliases dropped because of that limit: their topic is unknown until they are set again."""
    stream_offset: int = 0
    """Stream position of the next byte: everything before it was reported in events, or as lost."""
    gapped: bool = False
    """Whether bytes of this direction were lost: then unfinished exchanges prove nothing."""
    doubt: int = field(default=SUSPECT, repr=False, compare=False)
    """Suspicion that the next bytes of this side belong to a secret, as a level (`secrets.packets`)."""

    def set_alias(self, alias: int, topic: str) -> None:
        """Set or change an alias, within the limit of bytes."""
        self.alias_sets += 1
        aliases = self.aliases
        before = aliases.get(alias)
        if before == topic:
            return
        if before is not None:
            self.alias_bytes -= _size(before)
        size = _size(topic)
        if self.alias_bytes + size > MAX_ALIAS_BYTES:
            # The former topic is no longer valid either.
            aliases.pop(alias, None)
            self.aliases_dropped += 1
            return
        self.alias_bytes += size
        aliases[alias] = topic

    def begin(self, exchange: Exchange) -> None:
        """Add an exchange; it replaces an abandoned one with the same identifier."""
        before = self.exchanges.get(exchange.packet_identifier)
        if before is not None and before.kind == "publish":
            self.in_flight -= 1
        self.exchanges[exchange.packet_identifier] = exchange
        if exchange.kind == "publish":
            self.in_flight += 1
            if self.in_flight > self.in_flight_peak:
                self.in_flight_peak = self.in_flight

    def running(self, packet_identifier: int, kind: str) -> Exchange | None:
        """The exchange of this kind that now has the identifier."""
        exchange = self.exchanges.get(packet_identifier)
        return exchange if exchange is not None and exchange.kind == kind else None

    def finish(self, packet_identifier: int, kind: str) -> Exchange | None:
        """Remove an answered exchange of this kind."""
        exchange = self.running(packet_identifier, kind)
        if exchange is None:
            return None
        del self.exchanges[packet_identifier]
        if kind == "publish":
            self.in_flight -= 1
        return exchange


def _size(topic: str) -> int:
    return len(topic) if topic.isascii() else len(topic.encode("utf-8", "surrogateescape"))
