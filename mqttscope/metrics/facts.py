"""Counts about live traffic, updated by events, findings, explanations and the passing of time.

`LiveFacts` gets the time from its caller and does no I/O.  Every table has a limit: the least busy rows are dropped
first, and counted.  `LiveHistory` has the counts per interval since the start: when it is full, pairs of intervals are
joined, so that it always covers the whole run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import nsmallest

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, MalformedEvent, PacketEvent
from mqttscope.explain import Cause, Explanation
from mqttscope.lint.finding import Finding, Severity
from mqttscope.mqtt.constants import PacketType, ProtocolVersion, allowed_reason_codes, reason_name
from mqttscope.mqtt.packets import Connack, Connect, Puback, Pubrec
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.secrets.findings import HidingOptions, conceal, masked
from mqttscope.session.connection import C2S, DISCONNECTED, REFUSED, Connection
from mqttscope.session.inflight import SENT
from mqttscope.stats.rows import Histogram, bucket_of

MAX_CLIENTS = 1_000
MAX_TOPICS = 2_000
MAX_KNOWN_CLIENTS = 100_000
"""Maximum number of Client Identifiers that are remembered to recognise a reconnect; then the oldest is forgotten."""
MAX_NAME = 256
"""Maximum characters kept of a name; a topic may have 64 KiB."""
MAX_RULES = 500
"""Maximum number of rules with counts of their own; findings of further rules count as `OTHER`."""
MAX_TROUBLES = 100
"""Maximum number of clients in trouble, each with a cause; the one that ended longest ago is dropped first."""
MAX_INTERVALS = 240
"""Maximum number of intervals of the history."""
MAX_EARLY_ENDS = 5_000
"""Maximum number of connections with a cause that later evidence may change."""
SECOND_NS = 1_000_000_000
STEADY = 0.4
"""Weight of the last second in a rate."""
OTHER = "other"
"""Label of everything beyond a limit."""
PACKET_LABELS = ("malformed", *(kind.name.casefold() for kind in PacketType))
"""Labels of packets by their type; 0 stands for packets that could not be decoded."""
LATENCY_BOUNDS_NS = tuple(
    round(milliseconds * 1_000_000)
    for milliseconds in (0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
)
"""Upper bounds of the counted latencies, as usual for Prometheus; the last bucket is unbounded."""


@dataclass(slots=True)
class RateRow:
    """Counts and rates of a client, of a topic, or of all packets."""

    packets: int = 0
    octets: int = 0
    packet_rate: float = 0.0
    octet_rate: float = 0.0
    connects: int = 0
    """Number of CONNECT packets of a client."""
    _packets_before: int = 0
    _octets_before: int = 0

    def add(self, octets: int) -> None:
        self.packets += 1
        self.octets += octets

    def settle(self, seconds: float) -> None:
        """Update the rates after this many seconds."""
        self.packet_rate += STEADY * ((self.packets - self._packets_before) / seconds - self.packet_rate)
        self.octet_rate += STEADY * ((self.octets - self._octets_before) / seconds - self.octet_rate)
        self._packets_before, self._octets_before = self.packets, self.octets


ORDERS: dict[str, Callable[[RateRow], float]] = {
    "packets/s": lambda row: round(row.packet_rate, 1),
    "bytes/s": lambda row: round(row.octet_rate),
    "packets": lambda row: row.packets,
    "connects": lambda row: row.connects,
    "name": lambda _: 0,
}
"""Sort keys of the tables, highest first."""


def busiest(table: dict[str, RateRow], count: int, order: str = "packets/s") -> list[tuple[str, RateRow]]:
    """The first rows of a table; equal rows by packets, then by name."""
    of_row = ORDERS[order]
    if order == "name":
        return nsmallest(count, table.items())
    return nsmallest(count, table.items(), key=lambda row: (-of_row(row[1]), -row[1].packets, row[0]))


@dataclass(slots=True)
class Interval:
    """Counts of one interval of the history."""

    packets: int = 0
    connects: int = 0
    refused: int = 0
    ends: int = 0
    """Connections that ended without DISCONNECT and had not been refused."""
    findings: int = 0
    """Errors and warnings."""
    dropped: int = 0
    open: int = 0
    """Open connections at its end."""
    latency: Histogram = field(default_factory=Histogram)
    """Nanoseconds from PUBLISH to PUBACK or PUBREC."""
    _p99_ns: tuple[int, int] = (0, 0)
    """Number of latencies, and their 99th percentile then."""

    @property
    def latency_p99_ns(self) -> int:
        """The 99th percentile of the latencies; 0 without any."""
        count = self.latency.count
        if self._p99_ns[0] != count:
            # Only the last of 240 intervals changes.
            self._p99_ns = count, self.latency.percentile(99)
        return self._p99_ns[1]

    def join(self, later: Interval) -> Interval:
        """Add the next interval; returns this one."""
        for name in ("packets", "connects", "refused", "ends", "findings", "dropped"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.open = later.open
        self.latency.merge(later.latency)
        return self


class LiveHistory:
    """Intervals of equal length since the start."""

    def __init__(self) -> None:
        self.interval_ns = SECOND_NS
        self.start_ns: int | None = None
        self.last = Interval()
        self.intervals = [self.last]

    def advance(self, now_ns: int) -> None:
        """Begin the interval of this time; a time before the last interval changes nothing."""
        if self.start_ns is None:
            self.start_ns = now_ns
        while (number := (now_ns - self.start_ns) // self.interval_ns) >= MAX_INTERVALS:
            pairs, self.interval_ns = self.intervals, 2 * self.interval_ns
            self.intervals = [
                pairs[at].join(pairs[at + 1]) if at + 1 < len(pairs) else pairs[at] for at in range(0, len(pairs), 2)
            ]
        while len(self.intervals) <= number:
            self.intervals.append(Interval(open=self.intervals[-1].open))
        self.last = self.intervals[-1]


@dataclass(slots=True)
class Trouble:
    """A client and a cause of its ended connections."""

    client: str
    cause: Cause
    certainty: str
    text: str
    advice: str
    last_ns: int
    count: int = 0
    undecided: int = 0
    """How many of these ends later evidence may still explain otherwise."""


@dataclass(slots=True)
class RuleFindings:
    """Findings of a rule with one severity, and the latest of them without secrets."""

    rule: str
    slug: str
    severity: Severity
    count: int = 0
    client: str = ""
    message: str = ""
    last_ns: int = 0


@dataclass(slots=True)
class LiveFacts:
    """Counts since the start."""

    started_ns: int = 0
    now_ns: int = 0
    frames: int = 0
    """Number of captured frames; set by the caller."""
    dropped: int = 0
    """Number of frames known to be dropped while capturing."""
    lost_bytes: int = 0
    packets: list[int] = field(default_factory=lambda: [0] * (2 * len(PACKET_LABELS)))
    """Packets of the client and of the server in turn, in the order of `PACKET_LABELS`."""
    total: RateRow = field(default_factory=RateRow)
    clients: dict[str, RateRow] = field(default_factory=dict)
    """Rows by Client Identifier, or by endpoint if no identifier is known."""
    topics: dict[str, RateRow] = field(default_factory=dict)
    qos: Counter[int] = field(default_factory=Counter)
    """PUBLISH packets by QoS."""
    open: int = 0
    opened: int = 0
    connecting: RateRow = field(default_factory=RateRow)
    """CONNECT packets."""
    reconnects: RateRow = field(default_factory=RateRow)
    """CONNECT packets of clients that had connected before."""
    refused: RateRow = field(default_factory=RateRow)
    """CONNACK packets with a failure code."""
    refusals: Counter[str] = field(default_factory=Counter)
    """CONNACK packets with a failure code, by its name in snake_case."""
    closed: RateRow = field(default_factory=RateRow)
    """Ended connections."""
    broken: RateRow = field(default_factory=RateRow)
    """Connections that ended without DISCONNECT and had not been refused."""
    latency: Histogram = field(default_factory=Histogram)
    """Nanoseconds from PUBLISH to PUBACK or PUBREC."""
    latency_counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_NS) + 1))
    """Latencies up to each of `LATENCY_BOUNDS_NS` and above the bound before it."""
    ends: Counter[Cause] = field(default_factory=Counter)
    """Explained ends by cause."""
    undecided: int = 0
    """Ended connections with a cause that waits for further evidence; set by the caller."""
    unexplained: int = 0
    """Ended connections without a cause, because the explainer rested."""
    troubles: dict[tuple[str, Cause], Trouble] = field(default_factory=dict)
    """Clients in trouble, the latest end last."""
    findings: dict[tuple[str, Severity], RuleFindings] = field(default_factory=dict)
    """Rules with findings, the latest finding last."""
    errors: list[str] = field(default_factory=list)
    """The last error of the capture."""
    forgotten: int = 0
    """Clients, topics and troubles dropped to make room."""
    history: LiveHistory = field(default_factory=LiveHistory)
    _known: dict[str, None] = field(default_factory=dict)
    """Client Identifiers that connected, the latest last."""
    _early: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """Keys in `troubles` of ends that are undecided, by connection."""
    _settled_ns: int = 0

    def feed(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent):
            self.packets[event.direction is not C2S] += 1
            self._count(event.connection, len(event.malformed.raw))
        elif isinstance(event, ConnectionOpened):
            self.open += 1
            self.opened += 1
            self.history.last.open = self.open
        elif isinstance(event, ConnectionClosed):
            self._closed(event)
        elif isinstance(event, GapEvent):
            self.lost_bytes += event.length
        elif isinstance(event, CaptureDrops):
            self.dropped += event.dropped
            self.history.last.dropped += event.dropped
        elif isinstance(event, CaptureError):
            self.errors[:] = [event.message]

    def finding(self, finding: Finding, hiding: HidingOptions) -> None:
        """Count a finding."""
        key = finding.rule, finding.severity
        row = self.findings.pop(key, None)
        if row is None:
            is_other = len(self.findings) >= MAX_RULES
            row = RuleFindings(OTHER if is_other else finding.rule, "" if is_other else finding.slug, finding.severity)
            key = row.rule, row.severity
            row = self.findings.pop(key, row)
        self.findings[key] = row
        row.count += 1
        self.history.last.findings += finding.severity is not Severity.INFO
        if not row.last_ns or self.now_ns - row.last_ns >= SECOND_NS:
            # Hiding secrets takes up to 0.1 ms: a flood of findings shows one text per second.
            shown = conceal(finding, hiding)
            row.client, row.message = short_name(shown.client_identifier or shown.client), short_name(shown.message)
            row.last_ns = self.now_ns or finding.timestamp_ns

    def end(self, explanation: Explanation, *, is_decided: bool = True) -> None:
        """Count an end; without ``is_decided``, later evidence may change its cause, and it is called again."""
        cause, number = explanation.cause, explanation.connection
        before = self._early.pop(number, None)
        if before is not None and (trouble := self.troubles.get(before)) is not None:
            trouble.undecided -= 1
            trouble.count -= 1
            if not trouble.count:
                del self.troubles[before]
        if is_decided and cause is not Cause.STILL_OPEN:
            self.ends[cause] += 1
        if explanation.is_quiet:
            return
        key = short_name(explanation.client_identifier or explanation.client), cause
        trouble = self.troubles.pop(key, None)
        first = explanation.first
        advice = first.advice[0] if first.advice else ""
        if trouble is None:
            if len(self.troubles) >= MAX_TROUBLES:
                del self.troubles[next(iter(self.troubles))]
                self.forgotten += 1
            trouble = Trouble(*key, "", "", "", 0)
        self.troubles[key] = trouble
        if explanation.ended_ns >= trouble.last_ns:
            trouble.certainty, trouble.text, trouble.advice = str(first.certainty), first.headline, advice
            trouble.last_ns = explanation.ended_ns
        trouble.count += 1
        if not is_decided and len(self._early) < MAX_EARLY_ENDS:
            trouble.undecided += 1
            self._early[number] = key

    def give_up(self, undecided: int) -> None:
        """Do not count the causes of undecided ends; the page keeps showing them."""
        self.unexplained += undecided
        self.undecided = 0
        self._early.clear()
        for trouble in self.troubles.values():
            trouble.undecided = 0

    def pass_time(self, now_ns: int, *, rates: bool = True) -> None:
        """Advance to this time; ``rates`` are updated once a second."""
        self.started_ns = self.started_ns or now_ns
        self._settled_ns = self._settled_ns or now_ns
        self.now_ns = now_ns
        self.history.advance(now_ns)
        seconds = (now_ns - self._settled_ns) / SECOND_NS
        if seconds < 1 or not rates:
            return
        self._settled_ns = now_ns
        for row in self._rows():
            row.settle(seconds)

    @property
    def malformed(self) -> int:
        return sum(self.packets[:2])

    def _rows(self) -> Iterable[RateRow]:
        yield from (getattr(self, name) for name in _SINGLE_ROWS)
        yield from self.clients.values()
        yield from self.topics.values()

    def _count(self, connection: Connection, octets: int) -> RateRow:
        """Count a packet; returns the row of its client."""
        self.history.last.packets += 1
        name = short_name(connection.client_identifier or connection.client)
        row = self.clients.get(name) or self._row(self.clients, name, MAX_CLIENTS)
        for counted in (self.total, row):
            counted.packets += 1
            counted.octets += octets
        return row

    def _packet(self, event: PacketEvent) -> None:
        packet, kind = event.packet, event.packet.packet_type
        octets = len(packet.raw)
        # Indexes instead of keys: an Enum computes its hash in Python, for a tenth of the time of a packet here.
        self.packets[2 * kind + (event.direction is not C2S)] += 1
        row = self._count(event.connection, octets)
        if kind == PacketType.PUBLISH:
            self.qos[packet.qos] += 1  # type: ignore[attr-defined]
            if event.topic:
                name = short_name(event.topic)
                (self.topics.get(name) or self._row(self.topics, name, MAX_TOPICS)).add(octets)
        elif isinstance(packet, Puback | Pubrec):
            self._acknowledgment(event, packet)
        elif isinstance(packet, Connect):
            row.connects += 1
            self.connecting.add(octets)
            self.history.last.connects += 1
            if self._is_back(packet.client_identifier):
                self.reconnects.add(octets)
        elif isinstance(packet, Connack) and packet.reason_code:
            self.refused.add(octets)
            self.history.last.refused += 1
            self.refusals[_reason(packet.reason_code, event.connection.version)] += 1

    def _acknowledgment(self, event: PacketEvent, packet: Puback | Pubrec) -> None:
        exchange = event.connection.answered_by(packet, event.direction)
        if exchange is not None and exchange.phase is SENT and event.timestamp_ns >= exchange.timestamp_ns:
            latency_ns = event.timestamp_ns - exchange.timestamp_ns
            bucket = bucket_of(latency_ns)
            self.latency.count_in(bucket, latency_ns)
            self.history.last.latency.count_in(bucket, latency_ns)
            self.latency_counts[bisect_left(LATENCY_BOUNDS_NS, latency_ns)] += 1

    def _is_back(self, client_identifier: str) -> bool:
        """Whether a client connected before; an empty Client Identifier identifies nobody."""
        if not client_identifier:
            return False
        is_known = client_identifier in self._known
        if is_known:
            del self._known[client_identifier]
        elif len(self._known) >= MAX_KNOWN_CLIENTS:
            del self._known[next(iter(self._known))]
            self.forgotten += 1
        self._known[client_identifier] = None
        return is_known

    def _closed(self, event: ConnectionClosed) -> None:
        self.open -= 1
        self.history.last.open = self.open
        self.closed.add(0)
        connection = event.connection
        # Encrypted TLS shows no DISCONNECT, and the end of the capture is not the end of the connection.
        ended = connection.closed_how in ("fin", "reset") and connection.client_side.packets > 0
        if ended and connection.phase not in (DISCONNECTED, REFUSED):
            self.broken.add(0)
            self.history.last.ends += 1

    def _row(self, table: dict[str, RateRow], name: str, limit: int) -> RateRow:
        row = table.get(name)
        if row is None:
            if len(table) >= limit:
                least = nsmallest(limit // 8, table.items(), key=lambda row: (row[1].packet_rate, row[1].packets))
                for forgotten, _ in least:
                    del table[forgotten]
                self.forgotten += len(least)
            row = table[name] = RateRow()
        return row


_SINGLE_ROWS = ("total", "connecting", "reconnects", "refused", "closed", "broken")


def _reason(code: int, version: ProtocolVersion) -> str:
    """The name of a Reason Code of CONNACK, equal for equal reasons of all versions: ``not_authorized``."""
    name = reason_name(PacketType.CONNACK, code, version)
    return name.casefold().removeprefix("connection refused, ").replace(" ", "_")


REASONS = tuple(
    dict.fromkeys(
        _reason(code, version)
        for version in ProtocolVersion
        for code in sorted(allowed_reason_codes(PacketType.CONNACK, version))
        if code
    )
)
"""The names of all failures of CONNACK; the decoder refuses other codes."""


def short_name(name: str) -> str:
    """A name of at most `MAX_NAME` characters; a longer one as its beginning without secrets, and an ellipsis."""
    # Cutting first could leave a part of a secret that no longer looks like one.
    return name if len(name) <= MAX_NAME else f"{masked(name[: 4 * MAX_NAME])[:MAX_NAME]}…"
