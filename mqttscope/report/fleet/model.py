"""What a fleet report holds: plain values, whatever engine has gathered them.

Times are nanoseconds since 1970, lengths of time nanoseconds.  Names are captured text: hostile until they are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")
PROPERTIES = ("firmware", "fw", "firmware_version", "fw_version", "sw_version", "version")
"""User Properties of CONNECT that may name the firmware of a device."""


@dataclass(slots=True)
class Ranked(Generic[R]):
    """The first rows of an order, and how many there are."""

    rows: list[R] = field(default_factory=list)
    total: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(slots=True)
class Asked:
    """What the report was asked for."""

    since_ns: int | None = None
    until_ns: int | None = None
    """The end is not part of it."""
    client: list[str] = field(default_factory=list)
    """Patterns of Client Identifiers."""
    topic: list[str] = field(default_factory=list)
    """Topic Filters."""
    server: list[str] = field(default_factory=list)
    """Patterns of endpoints."""
    rule: list[str] = field(default_factory=list)
    """Beginnings of rule codes, or slugs."""
    top: int = 10
    """Rows of each list."""
    group_by: list[str] = field(default_factory=list)
    """User Properties of CONNECT, the first that is there counts."""


@dataclass(slots=True)
class Overview:
    """How much there is."""

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
    """Findings of one rule: of all, or of one group of clients."""

    group: str | None
    """Client Identifier, shape of Client Identifiers, or value of a User Property; null where there is none."""
    rule: str
    slug: str
    severity: str
    findings: int
    connections: int
    clients: int
    """Clients it was found with."""
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class Crossing:
    """Findings of one rule with one client."""

    client: str | None
    rule: str
    findings: int
    severity: str
    """The worst of them."""


@dataclass(slots=True)
class GroupRow:
    """Clients that belong together."""

    group: str | None
    clients: int
    connections: int
    findings: int
    errors: int
    warnings: int


@dataclass(slots=True)
class DayRow:
    """One day of UTC."""

    day: str
    """``2026-01-31``."""
    connections: int = 0
    packets: int = 0
    messages: int = 0
    """Messages that clients published."""
    errors: int = 0
    warnings: int = 0
    infos: int = 0


@dataclass(slots=True)
class EndingRow:
    """Connections that ended in one way."""

    how: str
    """disconnect, fin (without DISCONNECT), reset, idle, port_reused, evicted, or open."""
    by: str | None
    """client or server; null where the capture does not show it."""
    connections: int


@dataclass(slots=True)
class ClientEndings:
    """How the connections of one client ended."""

    server: str
    client: str
    """Client Identifier."""
    connections: int
    reconnects: int
    """Connections after the first one."""
    disconnects: int
    """Connections that ended with a DISCONNECT."""
    by_client: int
    """Without one, by FIN of the client."""
    by_server: int
    """Without one, by FIN of the server."""
    resets: int
    timeouts: int
    """Connections of which nothing was seen for three hours, or whose ports were used again."""


@dataclass(slots=True)
class Span:
    """One connection on a time line."""

    from_ns: int
    until_ns: int | None
    """Null where the connection had not ended when the captures did."""
    how: str
    """As in `EndingRow`."""


@dataclass(slots=True)
class Lane:
    """The latest connections of one client."""

    server: str
    client: str
    """Client Identifier."""
    connections: int
    spans: list[Span] = field(default_factory=list)
    """Oldest first."""


@dataclass(slots=True)
class Endings:
    """How connections ended."""

    ways: list[EndingRow] = field(default_factory=list)
    clients: Ranked[ClientEndings] = field(default_factory=Ranked)
    """Clients with reconnects, or with connections that ended without DISCONNECT: most of these first."""
    lanes: Ranked[Lane] = field(default_factory=Ranked)
    """Clients with most connections first."""


@dataclass(slots=True)
class Percentiles:
    """Lengths of time in nanoseconds, or whatever the name of the field says; null where nothing was measured."""

    count: int = 0
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    maximum: int | None = None


@dataclass(slots=True)
class AcknowledgeRow:
    """From a PUBLISH to the answer that ends its exchange: PUBACK, PUBCOMP, or a PUBREC that refuses."""

    sender: str
    """client or server."""
    qos: int
    latency: Percentiles
    unanswered: int
    refused: int
    retransmitted: int
    """Messages that came again with DUP."""


@dataclass(slots=True)
class DeliveryRow:
    """From the PUBLISH of the publisher to the deliveries by the server, by topic or by subscriber."""

    name: str | None
    latency: Percentiles


@dataclass(slots=True)
class LatencyBucket:
    """Messages that took less than a length of time, and not less than that of the bucket before."""

    below_ns: int | None
    """Null in the last bucket."""
    acknowledged: int
    """From PUBLISH to the answer that ends its exchange."""
    delivered: int
    """From publisher to subscriber."""


@dataclass(slots=True)
class Latency:
    """How long messages take."""

    acknowledged: list[AcknowledgeRow] = field(default_factory=list)
    end_to_end: Percentiles = field(default_factory=Percentiles)
    unknown: int = 0
    """Deliveries whose publication was not captured."""
    repeated: int = 0
    """Deliveries that were measured, but whose content had been published more than once."""
    topics: Ranked[DeliveryRow] = field(default_factory=Ranked)
    """Slowest first, by the 90th percentile."""
    subscribers: Ranked[DeliveryRow] = field(default_factory=Ranked)
    buckets: list[LatencyBucket] = field(default_factory=list)
    """From the first bucket that holds a message to the last one."""


@dataclass(slots=True)
class Names:
    """Clients, the first few of them by name."""

    count: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TopicRow:
    """Who talks on a topic of a server."""

    server: str
    topic: str
    published: int
    delivered: int
    payload_bytes: int
    """Of what was published."""
    publishers: Names
    subscribers: Names
    """Clients with a subscription whose Topic Filter matches."""
    receivers: Names
    """Clients that got messages."""


@dataclass(slots=True)
class FilterRow:
    """A Topic Filter of a server."""

    server: str
    topic_filter: str
    subscribers: Names
    topics: int
    """Topics of messages that it matches."""


@dataclass(slots=True)
class Talk:
    """Topics and filters."""

    topics: Ranked[TopicRow] = field(default_factory=Ranked)
    filters: Ranked[FilterRow] = field(default_factory=Ranked)
    unheard: int = 0
    """Topics that clients publish to and no subscription that was captured matches."""
    idle: int = 0
    """Filters that match no topic of a message."""
    unexplained: int = 0
    """Topics with receivers and without a subscription that was captured."""


@dataclass(slots=True)
class RetainedRow:
    """Retained messages of one topic."""

    server: str
    topic: str
    set: int
    cleared: int
    delivered: int
    state: str
    """held, cleared, expired, refused, or unknown: delivered, but never set while captured."""
    since_ns: int | None


@dataclass(slots=True)
class Retained:
    """Retained messages."""

    set: int = 0
    cleared: int = 0
    refused: int = 0
    delivered: int = 0
    """Messages that servers sent with RETAIN."""
    held: int = 0
    """Topics whose message is held to the end of the captures."""
    expired: int = 0
    unknown: int = 0
    """Topics with deliveries of what was set before the captures began, or by a will."""
    topics: Ranked[RetainedRow] = field(default_factory=Ranked)


@dataclass(slots=True)
class Expiry:
    """The Message Expiry Interval of 5.0."""

    published: int = 0
    """Messages that clients published with one."""
    delivered: int = 0
    """Deliveries with one."""
    remaining_s: Percentiles = field(default_factory=Percentiles)
    """Seconds that were left at delivery, as the server said."""
    right: int = 0
    """Deliveries that had waited in the server, with an interval that was reduced."""
    not_reduced: int = 0
    missing: int = 0
    expired: int = 0
    """Delivered after the interval."""
    unknown: int = 0
    """Deliveries that had not waited for certain, or of which the capture cannot tell."""


@dataclass(slots=True)
class StormRow:
    """A burst of CONNECT packets: neighbouring minutes with far more than usual."""

    server: str
    client: str | None
    """Client Identifier, or the address where it has none; null for all clients of the server."""
    from_ns: int
    until_ns: int
    connects: int
    peak: int
    """CONNECT packets of its busiest minute."""
    usual: float
    """Median of the minutes that have any, of this client or this server."""
    clients: int


@dataclass(slots=True)
class Reconnects:
    """How often clients connect."""

    connects: int = 0
    refused: int = 0
    """CONNACK packets with a reason code that is a failure."""
    storms: Ranked[StormRow] = field(default_factory=Ranked)
    """Of servers, and of clients."""
    minutes: list[tuple[int, int]] = field(default_factory=list)
    """Time and CONNECT packets of parts of the time between the first and the last one."""
    minutes_each: int = 1
    """Minutes that each part has."""


@dataclass(slots=True)
class CaptureTrust:
    """What one capture lacks."""

    capture: str
    gaps: int
    gap_bytes: int
    unparsed: int
    unparsed_bytes: int
    dropped: int
    errors: list[str]


@dataclass(slots=True)
class Trust:
    """How far the answers may be trusted."""

    connections: int = 0
    joined: int = 0
    """Connections whose CONNECT was not captured."""
    with_gaps: int = 0
    open: int = 0
    """Connections that had not ended when the captures did."""
    unnamed: int = 0
    """Connections without a Client Identifier."""
    gaps: int = 0
    gap_bytes: int = 0
    unparsed: int = 0
    unparsed_bytes: int = 0
    malformed: int = 0
    """Packets that break the layout."""
    dropped: int = 0
    """Frames that the captures say to have dropped."""
    errors: int = 0
    """Captures that could not be read to their end, and the like."""
    unknown_topics: int = 0
    """Messages whose topic is not known: an alias that was set before the captures."""
    captures: Ranked[CaptureTrust] = field(default_factory=Ranked)


@dataclass(slots=True)
class FleetReport:
    """The health of a fleet."""

    lake: str
    asked: Asked = field(default_factory=Asked)
    overview: Overview = field(default_factory=Overview)
    rules: Ranked[RuleRow] = field(default_factory=Ranked)
    by_client: Ranked[RuleRow] = field(default_factory=Ranked)
    by_shape: Ranked[RuleRow] = field(default_factory=Ranked)
    """By the shape of Client Identifiers."""
    by_property: Ranked[RuleRow] = field(default_factory=Ranked)
    """By the User Property, which names the firmware."""
    shapes: Ranked[GroupRow] = field(default_factory=Ranked)
    properties: Ranked[GroupRow] = field(default_factory=Ranked)
    days: list[DayRow] = field(default_factory=list)
    latency: Latency = field(default_factory=Latency)
    talk: Talk = field(default_factory=Talk)
    retained: Retained = field(default_factory=Retained)
    expiry: Expiry = field(default_factory=Expiry)
    reconnects: Reconnects = field(default_factory=Reconnects)
    trust: Trust = field(default_factory=Trust)
    endings: Endings = field(default_factory=Endings)
    crossings: list[Crossing] = field(default_factory=list)
    """Findings of the clients and rules that have most of them, by client and rule."""
    parts: list[DayRow] = field(default_factory=list)
    """What `days` say, for shorter parts of the time, where all of it is at most two days: ``2026-01-31 12:00:00``."""
    part_seconds: int = 0
    """How long each of these is; 0 where there are none."""
