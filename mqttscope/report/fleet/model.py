"""Values of a fleet report, independent of the engine that computes them.

Times are nanoseconds since 1970, durations nanoseconds.  Names are captured text: hostile until they are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")
PROPERTIES = ("firmware", "fw", "firmware_version", "fw_version", "sw_version", "version")
"""User Properties of CONNECT that may contain the firmware version of a device."""


@dataclass(slots=True)
class RankedRows(Generic[R]):
    """The first rows of an order, and the total number of rows."""

    rows: list[R] = field(default_factory=list)
    total: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(slots=True)
class ReportQuery:
    """Restrictions and options of the report."""

    since_ns: int | None = None
    until_ns: int | None = None
    """Exclusive end of the time range."""
    client: list[str] = field(default_factory=list)
    """Patterns of Client Identifiers."""
    topic: list[str] = field(default_factory=list)
    """Topic Filters."""
    server: list[str] = field(default_factory=list)
    """Patterns of endpoints."""
    rule: list[str] = field(default_factory=list)
    """Prefixes of rule codes, or slugs."""
    top: int = 10
    """Maximum number of rows of each list."""
    group_by: list[str] = field(default_factory=list)
    """User Properties of CONNECT; the first one present is used."""


@dataclass(slots=True)
class Overview:
    """Total numbers of the report."""

    captures: int = 0
    servers: int = 0
    clients: int = 0
    connections: int = 0
    packets: int = 0
    messages_published: int = 0
    messages_delivered: int = 0
    topics: int = 0
    findings: int = 0
    errors: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(slots=True)
class RuleRow:
    """Findings of one rule, about all clients or about one group of clients."""

    group: str | None
    """Client Identifier, shape of Client Identifiers, or value of a User Property; null if absent."""
    rule: str
    slug: str
    severity: str
    findings: int
    connections: int
    clients: int
    """Number of clients with a finding of the rule."""
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class RuleClientCount:
    """Findings of one rule about one client."""

    client: str | None
    rule: str
    findings: int
    severity: str
    """Worst severity of these findings."""


@dataclass(slots=True)
class GroupRow:
    """A group of clients."""

    group: str | None
    clients: int
    connections: int
    findings: int
    errors: int
    warnings: int


@dataclass(slots=True)
class DayRow:
    """One day in UTC, or a shorter part of the time."""

    day: str
    """``2026-01-31``."""
    connections: int = 0
    packets: int = 0
    messages: int = 0
    """Messages published by clients."""
    errors: int = 0
    warnings: int = 0
    infos: int = 0


@dataclass(slots=True)
class EndingRow:
    """Number of connections with one kind of end."""

    how: str
    """disconnect, fin (without DISCONNECT), reset, idle, port_reused, evicted, or open."""
    by: str | None
    """client or server; null if the capture does not show it."""
    connections: int


@dataclass(slots=True)
class ClientEndings:
    """Ends of the connections of one client."""

    server: str
    client: str
    """Client Identifier."""
    connections: int
    reconnects: int
    """Connections after the first."""
    disconnects: int
    """Connections that ended with a DISCONNECT."""
    by_client: int
    """Connections without DISCONNECT that the client closed with FIN."""
    by_server: int
    """Connections without DISCONNECT that the server closed with FIN."""
    resets: int
    timeouts: int
    """Connections ended by silence for three hours, or by reuse of their ports."""


@dataclass(slots=True)
class ConnectionSpan:
    """One connection on a timeline."""

    from_ns: int
    until_ns: int | None
    """Null if the connection was still open at the end of the captures."""
    how: str
    """Kind of end, as in `EndingRow`."""


@dataclass(slots=True)
class ClientTimeline:
    """The latest connections of one client."""

    server: str
    client: str
    """Client Identifier."""
    connections: int
    spans: list[ConnectionSpan] = field(default_factory=list)
    """Connections, oldest first."""


@dataclass(slots=True)
class EndingReport:
    """Ends of connections."""

    ways: list[EndingRow] = field(default_factory=list)
    clients: RankedRows[ClientEndings] = field(default_factory=RankedRows)
    """Clients with reconnects or with connections that ended without DISCONNECT, in descending order of these."""
    lanes: RankedRows[ClientTimeline] = field(default_factory=RankedRows)
    """Timelines of clients, most connections first."""


@dataclass(slots=True)
class Percentiles:
    """Percentiles in nanoseconds, unless the field name has another unit; null if nothing was measured."""

    count: int = 0
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    maximum: int | None = None


@dataclass(slots=True)
class AcknowledgeRow:
    """Latency from a PUBLISH to the end of its exchange: PUBACK, PUBCOMP, or a PUBREC that refuses it."""

    sender: str
    """client or server."""
    qos: int
    latency: Percentiles
    unanswered: int
    refused: int
    retransmitted: int
    """Messages sent again with DUP."""


@dataclass(slots=True)
class DeliveryRow:
    """Latency from publisher to subscriber, by topic or by subscriber."""

    name: str | None
    latency: Percentiles


@dataclass(slots=True)
class LatencyBucket:
    """Messages with a latency below a bound, and not below the bound of the previous bucket."""

    below_ns: int | None
    """Upper bound; null in the last bucket."""
    acknowledged: int
    """Messages by the time from PUBLISH to the end of the exchange."""
    delivered: int
    """Deliveries by the time from publisher to subscriber."""


@dataclass(slots=True)
class Latency:
    """Message latencies."""

    acknowledged: list[AcknowledgeRow] = field(default_factory=list)
    end_to_end: Percentiles = field(default_factory=Percentiles)
    unknown: int = 0
    """Deliveries without a captured publication."""
    repeated: int = 0
    """Measured deliveries of content that was published more than once."""
    topics: RankedRows[DeliveryRow] = field(default_factory=RankedRows)
    """Topics, slowest first by the 90th percentile."""
    subscribers: RankedRows[DeliveryRow] = field(default_factory=RankedRows)
    buckets: list[LatencyBucket] = field(default_factory=list)
    """Buckets from the first to the last one with a message."""


@dataclass(slots=True)
class ClientNames:
    """Number of clients, with the first few names."""

    count: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FleetTopicRow:
    """Publishers, subscribers and receivers of a topic on a server."""

    server: str
    topic: str
    published: int
    delivered: int
    payload_bytes: int
    """Payload bytes of published messages."""
    publishers: ClientNames
    subscribers: ClientNames
    """Clients with a matching subscription."""
    receivers: ClientNames
    """Clients that received messages."""


@dataclass(slots=True)
class FilterRow:
    """A Topic Filter of a server."""

    server: str
    topic_filter: str
    subscribers: ClientNames
    topics: int
    """Number of message topics that the filter matches."""


@dataclass(slots=True)
class TopicReport:
    """Topics and Topic Filters."""

    topics: RankedRows[FleetTopicRow] = field(default_factory=RankedRows)
    filters: RankedRows[FilterRow] = field(default_factory=RankedRows)
    unheard: int = 0
    """Published topics without a captured subscription that matches."""
    idle: int = 0
    """Filters that match no message."""
    unexplained: int = 0
    """Topics that were delivered without a captured subscription."""


@dataclass(slots=True)
class RetainedRow:
    """Retained messages of one topic."""

    server: str
    topic: str
    set: int
    cleared: int
    delivered: int
    state: str
    """held, cleared, expired, refused, or unknown: delivered, but not set in the captures."""
    since_ns: int | None


@dataclass(slots=True)
class RetainedReport:
    """Retained messages."""

    set: int = 0
    cleared: int = 0
    refused: int = 0
    delivered: int = 0
    """Messages that servers sent with RETAIN."""
    held: int = 0
    """Topics with a retained message at the end of the captures."""
    expired: int = 0
    unknown: int = 0
    """Topics with a delivered message that was set before the captures began, or by a will."""
    topics: RankedRows[RetainedRow] = field(default_factory=RankedRows)


@dataclass(slots=True)
class Expiry:
    """Message Expiry Interval of MQTT 5.0."""

    published: int = 0
    """Published messages with an expiry interval."""
    delivered: int = 0
    """Deliveries with an expiry interval."""
    remaining_s: Percentiles = field(default_factory=Percentiles)
    """Remaining seconds at delivery, as sent by the server."""
    right: int = 0
    """Deliveries with a correctly reduced interval, after waiting in the server."""
    not_reduced: int = 0
    missing: int = 0
    expired: int = 0
    """Deliveries after the interval had expired."""
    unknown: int = 0
    """Deliveries that did not wait for certain, or that the capture cannot decide."""


@dataclass(slots=True)
class StormRow:
    """A burst of CONNECT packets: consecutive minutes with far more than usual."""

    server: str
    client: str | None
    """Client Identifier, else its address; null for all clients of the server."""
    from_ns: int
    until_ns: int
    connects: int
    peak: int
    """CONNECT packets of its busiest minute."""
    usual: float
    """Median per minute of this client or server, over minutes with CONNECT packets."""
    clients: int


@dataclass(slots=True)
class Reconnects:
    """Frequency of CONNECT packets."""

    connects: int = 0
    refused: int = 0
    """CONNACK packets with a failure reason code."""
    storms: RankedRows[StormRow] = field(default_factory=RankedRows)
    """Bursts of servers and of clients."""
    minutes: list[tuple[int, int]] = field(default_factory=list)
    """Start time and number of CONNECT packets of each part of the time range."""
    minutes_each: int = 1
    """Length of each part in minutes."""


@dataclass(slots=True)
class CaptureTrust:
    """Missing data of one capture."""

    capture: str
    gaps: int
    gap_bytes: int
    unparsed: int
    unparsed_bytes: int
    dropped: int
    errors: list[str]


@dataclass(slots=True)
class TrustReport:
    """Missing data that makes the report less reliable."""

    connections: int = 0
    joined: int = 0
    """Connections without a captured CONNECT."""
    with_gaps: int = 0
    open: int = 0
    """Connections still open at the end of the captures."""
    unnamed: int = 0
    """Connections without a Client Identifier."""
    gaps: int = 0
    gap_bytes: int = 0
    unparsed: int = 0
    unparsed_bytes: int = 0
    malformed: int = 0
    """Packets that violate the layout."""
    dropped: int = 0
    """Frames that the capturing program reported as dropped."""
    errors: int = 0
    """Capture errors, such as captures that could not be read to their end."""
    unknown_topics: int = 0
    """Messages of unknown topic: their alias was set before the captures."""
    captures: RankedRows[CaptureTrust] = field(default_factory=RankedRows)


@dataclass(slots=True)
class NewsPeriod:
    """Errors and losses within a time."""

    packets: int = 0
    errors: int = 0
    clients: int = 0
    """Clients with an error."""
    first_ns: int | None = None
    """Time of the first error."""
    lost: int = 0
    """Messages that a subscriber certainly lost."""
    subscribers: int = 0
    """Subscribers that lost messages."""


@dataclass(slots=True)
class LostRow:
    """Messages that one subscriber lost."""

    server: str
    subscriber: str
    messages: int
    topics: int
    first_ns: int
    last_ns: int
    reason: str


@dataclass(slots=True)
class SilentRow:
    """A device that has sent nothing for much longer than it usually does."""

    server: str
    client_identifier: str
    silent_ns: int
    """Time from its last packet to the end of the captures."""
    usual_period_ns: int
    """Median time between its publications."""
    last_seen_ns: int
    connected: bool


@dataclass(slots=True)
class NewsReport:
    """Numbers of the first screen."""

    now: NewsPeriod = field(default_factory=NewsPeriod)
    before: NewsPeriod | None = None
    """The time of equal length before ``--since``."""
    lost: RankedRows[LostRow] = field(default_factory=RankedRows)
    silent: RankedRows[SilentRow] = field(default_factory=RankedRows)


@dataclass(slots=True)
class FleetReport:
    """The health of a fleet."""

    lake: str
    asked: ReportQuery = field(default_factory=ReportQuery)
    overview: Overview = field(default_factory=Overview)
    rules: RankedRows[RuleRow] = field(default_factory=RankedRows)
    by_client: RankedRows[RuleRow] = field(default_factory=RankedRows)
    by_shape: RankedRows[RuleRow] = field(default_factory=RankedRows)
    """Findings by the shape of Client Identifiers."""
    by_property: RankedRows[RuleRow] = field(default_factory=RankedRows)
    """Findings by the User Property that contains the firmware version."""
    shapes: RankedRows[GroupRow] = field(default_factory=RankedRows)
    properties: RankedRows[GroupRow] = field(default_factory=RankedRows)
    days: list[DayRow] = field(default_factory=list)
    latency: Latency = field(default_factory=Latency)
    talk: TopicReport = field(default_factory=TopicReport)
    retained: RetainedReport = field(default_factory=RetainedReport)
    expiry: Expiry = field(default_factory=Expiry)
    reconnects: Reconnects = field(default_factory=Reconnects)
    trust: TrustReport = field(default_factory=TrustReport)
    endings: EndingReport = field(default_factory=EndingReport)
    crossings: list[RuleClientCount] = field(default_factory=list)
    """Number of findings by client and rule, for the clients and rules with most findings."""
    parts: list[DayRow] = field(default_factory=list)
    """`days` in shorter parts, if the whole time is at most two days; ``day`` is then ``2026-01-31 12:00:00``."""
    part_seconds: int = 0
    """Length of a part in seconds; 0 without parts."""
    news: NewsReport = field(default_factory=NewsReport)
