"""Rows of statistics: one per capture, connection, client and topic.

A row keeps its counts in one flat list of integers, so that adding rows is adding lists.  The constants are indexes of
the list; with counts per direction, the number for the server follows the number for the client.

Latencies go into a `Histogram` with buckets that grow by a constant factor, to bound its memory.  Bucket ``i``
contains values above ``FACTOR ** (i - 1)`` up to ``FACTOR ** i`` nanoseconds and represents the value with an equal
ratio to both bounds.  For any distribution, a percentile is at most ``(FACTOR - 1) / (FACTOR + 1)`` off,
which is less than 1 %, plus rounding to whole nanoseconds, with at most `MAX_BUCKETS` buckets.
(The scheme is DDSketch's, Masson, Rim and Lee, 2019.)

A row takes some kilobytes while it counts.  The counts of a closed connection are packed into some hundred bytes
(`EndedRows`) and unpacked for the report, row by row.
"""

from __future__ import annotations

import pickle
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import ceil, log
from operator import attrgetter
from typing import Any, Final, TypeVar

from mqttscope.mqtt.constants import PacketType, ProtocolVersion, reason_name
from mqttscope.net.segment import UNREAD
from mqttscope.session.connection import Connection

FACTOR: Final = 1.02
MAX_VALUE_NS: Final = 1 << 63
"""Maximum value; longer ones, impossible in a capture, are counted as this value."""
_LOG_FACTOR: Final = log(FACTOR)
MAX_BUCKETS: Final = ceil(log(MAX_VALUE_NS) / _LOG_FACTOR) + 2
"""Maximum number of buckets, including one for the value 0."""

_ZERO: Final = -1
_KEYS: Final[list[Any]] = list(range(_ZERO, MAX_BUCKETS))
"""Bucket numbers as shared objects: the histograms of thousands of connections use the same ones."""
_Key = TypeVar("_Key")


def bucket_of(value: int) -> int:
    """The bucket of a `Histogram` for a value in nanoseconds."""
    return _ZERO if value <= 0 else ceil(log(float(min(value, MAX_VALUE_NS))) / _LOG_FACTOR)


@dataclass(slots=True)
class Histogram:
    """Counts of values in nanoseconds; plain data."""

    count: int = 0
    minimum: int = 0
    """Exact, like ``maximum`` and ``total``."""
    maximum: int = 0
    total: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, value: int) -> None:
        """Count a value in nanoseconds.  Negative values, after a clock was set back, count as 0."""
        self.count_in(bucket_of(value), value)

    def count_in(self, bucket: int, value: int) -> None:
        """Count a value in a known bucket (`bucket_of`)."""
        if value > MAX_VALUE_NS:
            value = MAX_VALUE_NS
        elif value < 0:
            value = 0
        key = _KEYS[bucket - _ZERO]
        self.buckets[key] = self.buckets.get(key, 0) + 1
        if value > self.maximum:
            self.maximum = value
        if value < self.minimum or not self.count:
            self.minimum = value
        self.count += 1
        self.total += value

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram."""
        if not other.count:
            return
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.minimum = min(self.minimum, other.minimum) if self.count else other.minimum
        self.maximum = max(self.maximum, other.maximum)
        self.count += other.count
        self.total += other.total

    def below(self, value: int) -> int:
        """Number of values below ``value``, as exact as a percentile."""
        if value > self.maximum:
            return self.count
        return sum(
            count
            for bucket, count in self.buckets.items()
            if (0 if bucket == _ZERO else 2 * FACTOR**bucket / (FACTOR + 1)) < value
        )

    def percentile(self, percent: float) -> int:
        """The smallest value that at least ``percent`` of all values do not exceed, at most 1 % off; 0 without values.

        The lowest and the highest value are exact.
        """
        rank = max(1, ceil(self.count * percent / 100))
        if rank >= self.count:
            return self.maximum
        if rank == 1:
            return self.minimum
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                break
        if bucket == _ZERO:
            return 0
        value = round(2 * FACTOR**bucket / (FACTOR + 1))
        return max(self.minimum, min(self.maximum, value))


PACKETS: Final = 0
"""32 numbers: ``16 * from_server + packet_type``."""
BYTES: Final = 32
"""32 numbers: bytes of these packets, in the same order."""
QOS: Final = 64
"""8 numbers: ``4 * from_server + qos`` of PUBLISH packets."""
PAYLOAD: Final = 72
RETAIN: Final = 74
DUP: Final = 76
MALFORMED: Final = 78
MALFORMED_BYTES: Final = 80
UNPARSED: Final = 82
UNPARSED_BYTES: Final = 84
GAPS: Final = 86
GAP_BYTES: Final = 88
ALIAS_SETS: Final = 90
ALIAS_HITS: Final = 92
SAVED: Final = 94
"""Bytes of Topic Names saved by aliases."""
TCP: Final = 96
"""22 numbers: ``TCP_COUNTERS`` of the client, then of the server."""
TCP_COUNTERS: Final = (
    "data_segments",
    "empty_segments",
    "retransmitted_segments",
    "retransmitted_bytes",
    "duplicate_segments",
    "copied_segments",
    "out_of_order_segments",
    "damaged_segments",
    "overlaps",
    "zero_windows",
    "keep_alive_probes",
)
"""Keys of the ``tcp`` details of a closed connection."""
COUNTS: Final = TCP + 2 * len(TCP_COUNTERS)

HANDSHAKES: Final = (
    "connect_connack",
    "publish_puback",
    "publish_pubrec",
    "pubrel_pubcomp",
    "publish_pubcomp",
    "subscribe_suback",
    "unsubscribe_unsuback",
    "pingreq_pingresp",
)
"""Measured handshakes.  Tables are keyed by ``2 * index + from_server``, the direction of the request."""
CONNECT_CONNACK, PUBLISH_PUBACK, PUBLISH_PUBREC, PUBREL_PUBCOMP, PUBLISH_PUBCOMP, SUBSCRIBE_SUBACK = range(6)
UNSUBSCRIBE_UNSUBACK, PINGREQ_PINGRESP = 6, 7

MAX_ERRORS: Final = 100
"""Maximum number of errors kept per capture."""
MAX_ADDRESSES: Final = 8
"""Maximum number of addresses kept per client."""


@dataclass(slots=True)
class RateWindow:
    """Packets and bytes of the current second, and the peaks of any second (UTC)."""

    second: int = -2
    packets: int = 0
    bytes: int = 0
    peak_packets: int = 0
    peak_bytes: int = 0

    def add(self, second: int, size: int) -> None:
        """Count a packet.  A late packet of the previous second counts for the current second."""
        if second != self.second and second != self.second - 1:
            self.second, self.packets, self.bytes = second, 0, 0
        self.packets += 1
        self.bytes += size
        if self.packets > self.peak_packets:
            self.peak_packets = self.packets
        if self.bytes > self.peak_bytes:
            self.peak_bytes = self.bytes

    def merge(self, other: RateWindow) -> None:
        self.peak_packets = max(self.peak_packets, other.peak_packets)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)


@dataclass(slots=True)
class TrafficCounts:
    """Counts that all rows with packets have."""

    counts: list[int] = field(default_factory=lambda: [0] * COUNTS)
    window: RateWindow = field(default_factory=RateWindow)
    latencies: dict[int, Histogram] = field(default_factory=dict)
    unanswered: dict[int, int] = field(default_factory=dict)
    """Requests without an answer when their connection, or the capture, ended."""

    def latency(self, key: int, bucket: int, nanoseconds: int) -> None:
        """Count an answer in its bucket (`bucket_of`)."""
        histogram = self.latencies.get(key)
        if histogram is None:
            histogram = self.latencies[key] = Histogram()
        histogram.count_in(bucket, nanoseconds)

    def merge(self, other: TrafficCounts) -> None:
        """Add the counts of another row."""
        counts = self.counts
        for place, count in enumerate(other.counts):
            if count:
                counts[place] = counts[place] + count
        self.window.merge(other.window)
        for key, histogram in other.latencies.items():
            self.latencies.setdefault(key, Histogram()).merge(histogram)
        for key, count in other.unanswered.items():
            self.unanswered[key] = self.unanswered.get(key, 0) + count

    @property
    def packets(self) -> int:
        return sum(self.counts[PACKETS:BYTES])

    @property
    def bytes(self) -> int:
        return sum(self.counts[BYTES:QOS])

    @property
    def slowest(self) -> int:
        """The highest 90th percentile of all handshakes in nanoseconds; -1 without a completed handshake."""
        return max((histogram.percentile(90) for histogram in self.latencies.values()), default=-1)


def pack(traffic: TrafficCounts) -> bytes:
    """The counts of a row in a few bytes, for `unpack`."""
    window = traffic.window
    return pickle.dumps(
        (
            {place: count for place, count in enumerate(traffic.counts) if count},
            (window.second, window.packets, window.bytes, window.peak_packets, window.peak_bytes),
            {
                key: (histogram.count, histogram.minimum, histogram.maximum, histogram.total, histogram.buckets)
                for key, histogram in traffic.latencies.items()
            },
            traffic.unanswered,
        ),
        pickle.HIGHEST_PROTOCOL,
    )


def unpack(packed: bytes) -> TrafficCounts:
    """The counts packed by `pack`."""
    packed_counts, window, latencies, unanswered = pickle.loads(packed)
    traffic = TrafficCounts(window=RateWindow(*window), unanswered=unanswered)
    counts = traffic.counts
    for place, count in packed_counts.items():
        counts[place] = count
    traffic.latencies = {key: Histogram(*values) for key, values in latencies.items()}
    return traffic


@dataclass(slots=True)
class ConnectionOutcomes:
    """How connections began and ended."""

    connections: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """Connections by ``ConnectionRow.outcome``."""
    versions: Counter[str] = field(default_factory=Counter)
    """Connections by the version in the CONNECT, or ``unknown``."""
    transports: Counter[str] = field(default_factory=Counter)
    refusals: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Refused connections by version and reason code of the CONNACK."""
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Connections by how the transport ended, and by the side that ended it (``client``, ``server``, ``unknown``)."""
    disconnects: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """DISCONNECT packets by sender and reason code, ``None`` before 5.0."""
    endings: Counter[str] = field(default_factory=Counter)
    """Connections by ``ConnectionRow.ending``."""
    silent: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Connections without a DISCONNECT: ending, how the transport ended, and the side that ended it."""

    def merge(self, other: ConnectionOutcomes) -> None:
        """Add the outcomes of other connections."""
        self.connections += other.connections
        _add(self.outcomes, other.outcomes)
        _add(self.versions, other.versions)
        _add(self.transports, other.transports)
        _add(self.refusals, other.refusals)
        _add(self.closed, other.closed)
        _add(self.disconnects, other.disconnects)
        _add(self.endings, other.endings)
        _add(self.silent, other.silent)


def _add(sums: dict[_Key, int], counts: dict[_Key, int]) -> None:
    """`Counter.update`, ten times as fast for tables with at most one entry."""
    for key, count in counts.items():
        sums[key] = sums.get(key, 0) + count


@dataclass(slots=True)
class CaptureRow:
    """One capture, or all captures together."""

    capture: str
    traffic: TrafficCounts = field(default_factory=TrafficCounts)
    outcomes: ConnectionOutcomes = field(default_factory=ConnectionOutcomes)
    """Outcomes of the connections that began in it."""
    frames: int = 0
    frame_bytes: int = 0
    """Bytes of the frames on the wire."""
    captured_bytes: int = 0
    """Captured bytes of the frames, after the snap length."""
    first_ns: int | None = None
    """Lowest timestamp of its frames."""
    last_ns: int | None = None
    discarded_segments: int = 0
    """Segments with data that belong to no connection."""
    discarded_bytes: int = 0
    dropped: int = 0
    """Frames that the capturing program reported as lost."""
    clock_steps: int = 0
    """Number of times that the clock was set."""
    stepped_ns: int = 0
    """Sum of the clock steps, positive if the clock went forward."""
    opening_ns: int = 0
    """Time of its first frame, in the order of the capture."""
    final_ns: int = 0
    """Time of its last frame, in the order of the capture."""
    errors: list[tuple[str, int | None, int]] = field(default_factory=list)
    """Message, offset and frames read before, at most `MAX_ERRORS` of them."""
    error_count: int = 0
    duration_ns: int = 0
    """Set when the statistics are finished."""


@dataclass(slots=True)
class TopicCounts:
    """One topic; ``None`` for PUBLISH packets with an alias that was set before the capture began."""

    topic: str | None
    length: int
    """Bytes of the Topic Name."""
    messages: list[int] = field(default_factory=lambda: [0, 0])
    """PUBLISH packets by direction."""
    bytes: list[int] = field(default_factory=lambda: [0, 0])
    payload: list[int] = field(default_factory=lambda: [0, 0])
    qos: list[int] = field(default_factory=lambda: [0] * 8)
    """``4 * from_server + qos``."""
    retain: list[int] = field(default_factory=lambda: [0, 0])
    dup: list[int] = field(default_factory=lambda: [0, 0])
    clients: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    """Numbers of the clients that published to it and received from it, up to a limit."""
    complete: list[bool] = field(default_factory=lambda: [True, True])
    """Whether ``clients`` is complete."""
    window: RateWindow = field(default_factory=RateWindow)
    first_ns: int = 0
    last_ns: int = 0


@dataclass(slots=True)
class ClientRow:
    """One Client Identifier, or all connections from one address without one."""

    number: int
    client_identifier: str | None
    parts: list[bytes] = field(default_factory=list)
    """Counts of its connections with a row, each packed (`pack`)."""
    beyond: TrafficCounts | None = None
    """Counts of its connections without a row."""
    merged: TrafficCounts | None = field(default=None, compare=False, repr=False)
    """Sum of ``parts`` and ``beyond``, once it was requested."""
    packets: int = 0
    """Packets of both directions."""
    malformed: int = 0
    """Malformed packets sent or received by its connections."""
    addresses: dict[str, None] = field(default_factory=dict)
    """Addresses in order of appearance, at most `MAX_ADDRESSES`."""
    more_addresses: bool = False
    connections: int = 0
    accepted: int = 0
    refused: int = 0
    unanswered: int = 0
    """Connections with a CONNECT but no CONNACK."""
    disconnected: int = 0
    """Connections that ended with a DISCONNECT; see ``ConnectionRow.ending``."""
    broken: int = 0
    """Connections that ended otherwise."""
    taken_over: int = 0
    """Connections that the server ended with DISCONNECT 0x8E, Session taken over."""
    longest_silence_ns: int = 0
    keep_alive_share: float | None = None
    """Longest silence of a connection relative to its Keep Alive; ``None`` without Keep Alive."""
    first_ns: int | None = None
    last_ns: int | None = None
    topics_published: int = 0
    """Number of topics with a row that it published to."""
    topics_received: int = 0
    topics_complete: bool = True
    """Whether both numbers are exact: no limit on topics or their clients was reached."""
    named: tuple[list[TopicCounts], list[TopicCounts]] = field(default_factory=lambda: ([], []))
    """The topics with most messages, published and received."""

    def count(self, traffic: TrafficCounts, packed: bytes | None) -> None:
        """Add the counts of a connection; ``packed``: the same counts, if they are kept for its row."""
        self.packets += traffic.packets
        self.malformed += sum(traffic.counts[MALFORMED:MALFORMED_BYTES])
        self.merged = None
        if packed is not None:
            self.parts.append(packed)
            return
        if self.beyond is None:
            self.beyond = TrafficCounts()
        self.beyond.merge(traffic)

    def total_traffic(self) -> TrafficCounts:
        """The sum of its connections' counts, not kept."""
        total = TrafficCounts()
        for packed in self.parts:
            total.merge(unpack(packed))
        if self.beyond is not None:
            total.merge(self.beyond)
        return total

    @property
    def traffic(self) -> TrafficCounts:
        """The sum of its connections' counts, kept for rows that are shown."""
        if self.merged is None:
            self.merged = self.total_traffic()
        return self.merged

    @property
    def reconnects(self) -> int:
        """Connections after the first."""
        return max(0, self.connections - 1)

    @property
    def trouble(self) -> tuple[float, ...]:
        """Problems in order of severity.

        Ends without DISCONNECT, refusals and unanswered CONNECT packets; malformed packets; silence beyond Keep Alive.
        """
        share = self.keep_alive_share or 0.0
        return (
            self.broken + self.refused + self.unanswered,
            self.malformed,
            share if share > 1.0 else 0.0,
        )


@dataclass(slots=True)
class ConnectionRow:
    """One connection; the fields below ``traffic`` are filled in when it has ended."""

    number: int
    live: Connection | None = None
    """The connection itself, while it runs."""
    traffic: TrafficCounts = field(default_factory=TrafficCounts)
    client_row: ClientRow | None = None
    revision: int = -1
    """The connection's revision when ``client_row`` was looked up."""
    releases: dict[int, int] = field(default_factory=dict)
    """Times of PUBREL packets without PUBCOMP, by ``2 * packet_identifier + from_server``."""
    connack_reason_code: int | None = None
    longest_silence_ns: int = 0
    """The longest time between CONNECT and the end without a packet from the client."""
    last_ns: int = 0

    client: str = ""
    server: str = ""
    capture: str = ""
    frame: int = 0
    opened_ns: int = 0
    ended_ns: int = 0
    transport: str = ""
    version: str = ""
    version_known: bool = False
    client_identifier: str | None = None
    ending: str = ""
    """``disconnected``: a DISCONNECT without an error ended it; ``broken``: the transport ended without DISCONNECT, or
    after one with a reason code of 0x80 and above; ``refused``: by CONNACK; ``open``: the capture has no end;
    ``unknown``: it ended, and the capture lacks bytes or they could not be read."""
    outcome: str = ""
    """``accepted``; ``refused``; ``unanswered``: CONNECT without CONNACK; ``joined``: packets, but the capture has no
    CONNECT; ``unread``: no packet could be read, as inside TLS."""
    keep_alive: int | None = None
    closed_how: str | None = None
    closed_by: str | None = None
    disconnect_by: str | None = None
    disconnect_reason: int | None = None
    """``None`` before 5.0, where DISCONNECT has no reason code."""
    also_closed: str | None = None
    """How the other side ended later."""
    also_closed_ns: int | None = None
    one_sided: str | None = None
    """The direction of all its segments, if the capture contains only one direction."""
    discarded_segments: int = 0
    """Segments with data that were discarded before its end."""
    discarded_bytes: int = 0
    in_flight_peak: tuple[int, int] = (0, 0)
    """Maximum number of unfinished QoS 1 and 2 messages at a time, sent by client and server."""
    receive_maximum: tuple[int | None, int | None] = (None, None)
    """Receive Maximum for packets of the client and of the server; ``None`` if it is not known."""
    server_name: str | None = None

    @property
    def keep_alive_share(self) -> float | None:
        """The longest silence relative to Keep Alive; ``None`` without Keep Alive."""
        return self.longest_silence_ns / (self.keep_alive * 1e9) if self.keep_alive else None

    @property
    def trouble(self) -> tuple[float, ...]:
        """Problems in order of severity, as in `ClientRow.trouble`."""
        share = self.keep_alive_share or 0.0
        bad = self.ending == "broken" or self.outcome in ("refused", "unanswered")
        return int(bad), sum(self.traffic.counts[MALFORMED:MALFORMED_BYTES]), share if share > 1.0 else 0.0


_ENDED_FIELDS: Final = tuple(field_.name for field_ in fields(ConnectionRow))[6:]
"""Fields of an ended connection that are kept in addition to its number and traffic: all below ``traffic``."""
_ended_values: Final = attrgetter(*_ENDED_FIELDS)


class EndedRows:
    """Rows of ended connections in some hundred bytes each; reading a row returns a copy."""

    def __init__(self) -> None:
        self.packets = array("q")
        """Number of packets of each connection, the default sort key of tables."""
        self._numbers = array("q")
        self._rows: list[bytes] = []
        self._traffic: list[bytes] = []

    def append(self, row: ConnectionRow) -> bytes:
        """Add a row without its connection and client; returns its traffic, packed."""
        self.packets.append(row.traffic.packets)
        self._numbers.append(row.number)
        self._rows.append(pickle.dumps(_ended_values(row), pickle.HIGHEST_PROTOCOL))
        packed = pack(row.traffic)
        self._traffic.append(packed)
        return packed

    def sort(self) -> None:
        """Sort the rows by connection number."""
        numbers = self._numbers
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        self._numbers = array("q", [numbers[place] for place in order])
        self.packets = array("q", [self.packets[place] for place in order])
        self._rows = [self._rows[place] for place in order]
        self._traffic = [self._traffic[place] for place in order]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> ConnectionRow:
        values: tuple[Any, ...] = pickle.loads(self._rows[place])
        return ConnectionRow(self._numbers[place], None, unpack(self._traffic[place]), None, -1, {}, *values)

    def __iter__(self) -> Iterator[ConnectionRow]:
        for place in range(len(self._rows)):
            yield self[place]


TABLES = ("capture", "connection", "client", "topic")
SORTS = (
    "packets", "bytes", "rate", "latency", "trouble", "reconnects", "refused", "disconnects", "silence", "name",
)  # fmt: skip
DEFAULT_SORTS = {"client": "trouble"}
"""Sort orders of tables that are not sorted by packets by default."""

R = TypeVar("R", ConnectionRow, ClientRow, TopicCounts)


def order(rows: Iterable[R] | EndedRows, sort: str, top: int | None) -> Iterator[Any]:
    """The first ``top`` rows by a measure, highest first, then by packets; equal rows in order of appearance.

    Names are sorted in ascending order.  Rows without the measure are sorted by packets: topics have no latency and no
    ends, connections no reconnects.
    """
    known = rows if isinstance(rows, EndedRows) else list(rows)
    keys: list[Any]
    if sort == "name":
        keys = [_name(row) for row in known]
    elif sort == "packets" and isinstance(known, EndedRows):
        keys = list(known.packets)
    else:
        measure = _MEASURES[sort]
        keys = [(measure(row), _packets(row)) for row in known]
    # Packed rows are read one at a time, so that only shown rows are in memory.
    for place in sorted(range(len(keys)), key=keys.__getitem__, reverse=sort != "name")[:top]:
        yield known[place]


def rate(count: int, duration_ns: int) -> float | None:
    """Rate per second; ``None`` without a duration."""
    return round(count * 1e9 / duration_ns, 3) if duration_ns > 0 else None


def span(row: ClientRow) -> int:
    """Time from the start of a client's first connection to the end of its last, in nanoseconds."""
    return (row.last_ns or 0) - (row.first_ns or 0)


def _counted(row: Any) -> TrafficCounts:
    """The traffic of a row that may not be shown."""
    return row.total_traffic() if isinstance(row, ClientRow) else row.traffic


def _packets(row: Any) -> int:
    if isinstance(row, TopicCounts):
        return sum(row.messages)
    return row.packets if isinstance(row, ClientRow) else row.traffic.packets


def _bytes(row: Any) -> int:
    return sum(row.bytes) if isinstance(row, TopicCounts) else _counted(row).bytes


def _rate_of(row: Any) -> float | None:
    if isinstance(row, TopicCounts):
        return float(_packets(row))  # all topics are measured over the same time
    duration = span(row) if isinstance(row, ClientRow) else row.ended_ns - row.opened_ns
    return rate(_packets(row), duration)


_MEASURES: dict[str, Callable[[Any], Any]] = {
    "packets": _packets,
    "bytes": _bytes,
    "rate": lambda row: _rate_of(row) or 0.0,
    "latency": lambda row: 0 if isinstance(row, TopicCounts) else _counted(row).slowest,
    "trouble": lambda row: () if isinstance(row, TopicCounts) else row.trouble,
    "reconnects": lambda row: row.reconnects if isinstance(row, ClientRow) else 0,
    "refused": lambda row: _ended(row, "refused"),
    "disconnects": lambda row: _ended(row, "broken"),
    "silence": lambda row: -1.0 if isinstance(row, TopicCounts) else _share(row),
}


def _name(row: Any) -> str:
    if isinstance(row, TopicCounts):
        return row.topic or ""
    return row.client_identifier or (next(iter(row.addresses), "") if isinstance(row, ClientRow) else row.client)


def _ended(row: Any, how: str) -> int:
    if isinstance(row, ClientRow):
        return row.refused if how == "refused" else row.broken
    return int(isinstance(row, ConnectionRow) and row.ending == how)


def _share(row: Any) -> float:
    share: float | None = row.keep_alive_share
    return -1.0 if share is None else share


def unread_groups(skipped: Mapping[str, int]) -> dict[str, int]:
    """Number of skipped frames by group of reasons: ``not_ip``, ``not_tcp``, ``malformed``, ``truncated``, ...."""
    groups: dict[str, int] = {}
    for name, count in skipped.items():
        group = UNREAD[name].group if name in UNREAD else name
        groups[group] = groups.get(group, 0) + count
    return groups


def disconnect_reason(code: int | None) -> str | None:
    """Name of the reason code of a DISCONNECT; ``None`` before 5.0."""
    return None if code is None else reason_name(PacketType.DISCONNECT, code, ProtocolVersion.V5)
