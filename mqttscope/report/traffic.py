"""The numbers of a dashboard: what was seen so far, and the rates of the last seconds.

Plain counting, with the time that it is told; no terminal.  Every table has a named limit; who sent least lately is
forgotten first, and counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from heapq import nsmallest

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, MalformedEvent, PacketEvent
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.session.connection import Connection

MAX_CLIENTS = 1_000
MAX_TOPICS = 2_000
MAX_NAME = 256
"""Characters of a name that are kept: topics may be 64 KiB long."""
MAX_FINDINGS = 20
"""Latest findings that are kept."""
SECOND_NS = 1_000_000_000
MAX_LATENCIES = 200
"""Latest answers to PUBLISH whose latency is kept."""
STEADY = 0.4
"""How much the last second weighs in a rate."""


@dataclass(slots=True)
class Row:
    """A client or a topic, or everything."""

    packets: int = 0
    octets: int = 0
    packet_rate: float = 0.0
    """Packets per second, lately."""
    octet_rate: float = 0.0
    connects: int = 0
    """CONNECT packets of a client."""
    _packets_before: int = 0
    _octets_before: int = 0

    def add(self, octets: int) -> None:
        """Count a packet."""
        self.packets += 1
        self.octets += octets

    def settle(self, seconds: float) -> None:
        """So many seconds are over since the last time."""
        self.packet_rate += STEADY * ((self.packets - self._packets_before) / seconds - self.packet_rate)
        self.octet_rate += STEADY * ((self.octets - self._octets_before) / seconds - self.octet_rate)
        self._packets_before, self._octets_before = self.packets, self.octets


@dataclass(slots=True)
class Traffic:
    """Feed it events, and let time pass."""

    started_ns: int = 0
    total: Row = field(default_factory=Row)
    clients: dict[str, Row] = field(default_factory=dict)
    """By Client Identifier, or by endpoint where none is known."""
    topics: dict[str, Row] = field(default_factory=dict)
    qos: Counter[int] = field(default_factory=Counter)
    """PUBLISH packets by QoS."""
    open: int = 0
    """Connections open now."""
    opened: int = 0
    connecting: Row = field(default_factory=Row)
    """CONNECT packets."""
    reconnects: Row = field(default_factory=Row)
    """Those of clients that had connected before."""
    refused: Row = field(default_factory=Row)
    """CONNACK packets that accept nobody."""
    closed: Row = field(default_factory=Row)
    """Connections that ended, in whatever way."""
    broken: Row = field(default_factory=Row)
    """Those of them that ended without DISCONNECT and had not been refused."""
    latencies: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_LATENCIES))
    """Nanoseconds from PUBLISH to PUBACK or PUBREC, of the latest."""
    malformed: int = 0
    lost_bytes: int = 0
    dropped: int = 0
    """Frames that were dropped while capturing, as far as it is known."""
    errors: list[str] = field(default_factory=list)
    severities: Counter[Severity] = field(default_factory=Counter)
    findings: deque[Finding] = field(default_factory=lambda: deque(maxlen=MAX_FINDINGS))
    forgotten: int = 0
    """Clients and topics that were forgotten to make room."""
    now_ns: int = 0
    _settled_ns: int = 0

    def feed(self, event: Event) -> None:
        """Count one event."""
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent):
            self.malformed += 1
            octets = len(event.malformed.raw)
            self.total.add(octets)
            self._row(self.clients, _name(event.connection), MAX_CLIENTS).add(octets)
        elif isinstance(event, ConnectionOpened):
            self.open += 1
            self.opened += 1
        elif isinstance(event, ConnectionClosed):
            self._closed(event)
        elif isinstance(event, GapEvent):
            self.lost_bytes += event.length
        elif isinstance(event, CaptureDrops):
            self.dropped += event.dropped
        elif isinstance(event, CaptureError):
            self.errors[:] = [event.message]

    def finding(self, finding: Finding) -> None:
        """Take a finding that counts."""
        self.severities[finding.severity] += 1
        self.findings.append(finding)

    def pass_time(self, now_ns: int) -> None:
        """It is this time now; rates follow once a second."""
        self.started_ns = self.started_ns or now_ns
        self._settled_ns = self._settled_ns or now_ns
        self.now_ns = now_ns
        seconds = (now_ns - self._settled_ns) / SECOND_NS
        if seconds < 1:
            return
        self._settled_ns = now_ns
        for row in self._rows():
            row.settle(seconds)

    def snapshot(self) -> Traffic:
        """The numbers as they are now, which stay when more is counted."""
        made = copy(self)
        for name in (*_SINGLE_ROWS, "qos", "latencies", "errors", "severities", "findings"):
            setattr(made, name, copy(getattr(self, name)))
        made.clients, made.topics = (
            {name: copy(row) for name, row in one.items()} for one in (self.clients, self.topics)
        )
        return made

    def _rows(self) -> Iterable[Row]:
        yield from (getattr(self, name) for name in _SINGLE_ROWS)
        yield from self.clients.values()
        yield from self.topics.values()

    def _packet(self, event: PacketEvent) -> None:
        packet = event.packet
        octets = len(packet.raw)
        self.total.add(octets)
        row = self._row(self.clients, _name(event.connection), MAX_CLIENTS)
        row.add(octets)
        if isinstance(packet, Connect):
            if row.connects:
                self.reconnects.add(octets)
            row.connects += 1
            self.connecting.add(octets)
        elif isinstance(packet, Connack):
            if packet.reason_code:
                self.refused.add(octets)
        elif isinstance(packet, Puback | Pubrec):
            asked = event.connection.answered_by(packet, event.direction)
            if asked is not None and asked.phase == "sent" and event.timestamp_ns >= asked.timestamp_ns:
                self.latencies.append(event.timestamp_ns - asked.timestamp_ns)
        if isinstance(packet, Publish):
            self.qos[packet.qos] += 1
            if event.topic:
                self._row(self.topics, event.topic[:MAX_NAME], MAX_TOPICS).add(octets)

    def _closed(self, event: ConnectionClosed) -> None:
        self.open -= 1
        self.closed.add(0)
        connection = event.connection
        # TLS says nothing of DISCONNECT, and the end of a capture is no end of a connection.
        ended = connection.closed_how in ("fin", "reset") and connection.client_side.packets > 0
        if ended and connection.phase not in ("disconnected", "refused"):
            self.broken.add(0)

    @property
    def latency_ns(self) -> int | None:
        """The median of the latest latencies."""
        return sorted(self.latencies)[len(self.latencies) // 2] if self.latencies else None

    def _row(self, table: dict[str, Row], name: str, limit: int) -> Row:
        row = table.get(name)
        if row is None:
            if len(table) >= limit:
                least = nsmallest(limit // 8, table.items(), key=lambda one: (one[1].packet_rate, one[1].packets))
                for forgotten, _ in least:
                    del table[forgotten]
                self.forgotten += len(least)
            row = table[name] = Row()
        return row


_SINGLE_ROWS = ("total", "connecting", "reconnects", "refused", "closed", "broken")

ORDERS: dict[str, Callable[[Row], float]] = {
    "packets/s": lambda row: round(row.packet_rate, 1),
    "bytes/s": lambda row: round(row.octet_rate),
    "packets": lambda row: row.packets,
    "connects": lambda row: row.connects,
    "name": lambda _: 0,
}
"""What tables can be sorted by, the highest first."""


def busiest(table: dict[str, Row], count: int, order: str = "packets/s") -> list[tuple[str, Row]]:
    """The first rows of a table; equal ones by packets, then by name."""
    of_row = ORDERS[order]
    if order == "name":
        return sorted(table.items())[:count]
    return sorted(table.items(), key=lambda one: (-of_row(one[1]), -one[1].packets, one[0]))[:count]


def _name(connection: Connection) -> str:
    return (connection.client_identifier or connection.client)[:MAX_NAME]
