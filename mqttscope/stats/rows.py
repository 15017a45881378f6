"""The rows that statistics are gathered in: one per capture, connection, client and topic.

A row counts in one flat list of integers, so that adding up rows is adding lists.  The constants say which number
stands where; where both directions are counted, the number of the server's packets follows that of the client's.

Latencies go into a `Histogram` whose buckets grow by a constant factor, so that its memory is bounded.  Bucket ``i``
holds values above ``FACTOR ** (i - 1)`` up to ``FACTOR ** i`` nanoseconds and stands for the value that is equally far,
in proportion, from both ends.  Whatever the distribution, a percentile is at most ``(FACTOR - 1) / (FACTOR + 1)`` off,
which is less than 1 %, besides the rounding to whole nanoseconds, and there are no more than `MAX_BUCKETS` buckets.
(The scheme is DDSketch's, Masson, Rim and Lee, 2019.)

A row takes some kilobytes while it counts.  What a connection counted that has ended is packed into some hundred bytes
(`EndedRows`) and read again for the report, row by row.
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
"""Longer ones, which no capture can hold, are counted as this long."""
_LOG_FACTOR: Final = log(FACTOR)
MAX_BUCKETS: Final = ceil(log(MAX_VALUE_NS) / _LOG_FACTOR) + 2
"""One of them for the value 0."""

_ZERO: Final = -1
_KEYS: Final[list[Any]] = list(range(_ZERO, MAX_BUCKETS))
"""The buckets as objects: the histograms of thousands of connections have the same ones."""
_Key = TypeVar("_Key")


def bucket_of(value: int) -> int:
    """The bucket of a `Histogram` that a value in nanoseconds belongs to."""
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
        """Count a value in nanoseconds.  Negative ones, from a capture whose clock was set back, count as 0."""
        self.count_in(bucket_of(value), value)

    def count_in(self, bucket: int, value: int) -> None:
        """The same of a value whose bucket is known (`bucket_of`)."""
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
        """Add the values that another histogram counted."""
        if not other.count:
            return
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.minimum = min(self.minimum, other.minimum) if self.count else other.minimum
        self.maximum = max(self.maximum, other.maximum)
        self.count += other.count
        self.total += other.total

    def below(self, value: int) -> int:
        """How many values are below one, as exact as a percentile."""
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
"""Likewise, bytes of these packets."""
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
"""Bytes of Topic Names that aliases stood for."""
TCP: Final = 96
"""22 numbers: ``TCP_COUNTERS`` of the client, then those of the server."""
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
"""What latencies are measured of.  Tables are keyed by ``2 * index + from_server``, the direction of the request."""
CONNECT_CONNACK, PUBLISH_PUBACK, PUBLISH_PUBREC, PUBREL_PUBCOMP, PUBLISH_PUBCOMP, SUBSCRIBE_SUBACK = range(6)
UNSUBSCRIBE_UNSUBACK, PINGREQ_PINGRESP = 6, 7

MAX_ERRORS: Final = 100
"""Errors of one capture that are kept."""
MAX_ADDRESSES: Final = 8
"""Addresses of one client that are kept."""


@dataclass(slots=True)
class Window:
    """Packets and bytes of the running second, and the most that one second had.  Seconds are those of UTC."""

    second: int = -2
    packets: int = 0
    bytes: int = 0
    peak_packets: int = 0
    peak_bytes: int = 0

    def add(self, second: int, size: int) -> None:
        """Count a packet.  One that comes out of order belongs to the second before and is counted in the running."""
        if second != self.second and second != self.second - 1:
            self.second, self.packets, self.bytes = second, 0, 0
        self.packets += 1
        self.bytes += size
        if self.packets > self.peak_packets:
            self.peak_packets = self.packets
        if self.bytes > self.peak_bytes:
            self.peak_bytes = self.bytes

    def merge(self, other: Window) -> None:
        self.peak_packets = max(self.peak_packets, other.peak_packets)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)


@dataclass(slots=True)
class Traffic:
    """What all rows with packets have."""

    counts: list[int] = field(default_factory=lambda: [0] * COUNTS)
    window: Window = field(default_factory=Window)
    latencies: dict[int, Histogram] = field(default_factory=dict)
    unanswered: dict[int, int] = field(default_factory=dict)
    """Requests that had no answer when their connection, or the capture, ended."""

    def latency(self, key: int, bucket: int, nanoseconds: int) -> None:
        """Count an answer, in its bucket (`bucket_of`)."""
        histogram = self.latencies.get(key)
        if histogram is None:
            histogram = self.latencies[key] = Histogram()
        histogram.count_in(bucket, nanoseconds)

    def merge(self, other: Traffic) -> None:
        """Add what another row counted."""
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
        """The highest 90th percentile among the handshakes in nanoseconds; -1 where none was completed."""
        return max((histogram.percentile(90) for histogram in self.latencies.values()), default=-1)


def pack(traffic: Traffic) -> bytes:
    """What a row counted, in few bytes that `unpack` reads."""
    window = traffic.window
    return pickle.dumps(
        (
            {place: count for place, count in enumerate(traffic.counts) if count},
            (window.second, window.packets, window.bytes, window.peak_packets, window.peak_bytes),
            {
                key: (one.count, one.minimum, one.maximum, one.total, one.buckets)
                for key, one in traffic.latencies.items()
            },
            traffic.unanswered,
        ),
        pickle.HIGHEST_PROTOCOL,
    )


def unpack(packed: bytes) -> Traffic:
    """What `pack` has packed."""
    found, window, latencies, unanswered = pickle.loads(packed)
    traffic = Traffic(window=Window(*window), unanswered=unanswered)
    counts = traffic.counts
    for place, count in found.items():
        counts[place] = count
    traffic.latencies = {key: Histogram(*values) for key, values in latencies.items()}
    return traffic


@dataclass(slots=True)
class Outcomes:
    """How connections began and ended."""

    connections: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """See ``ConnectionRow.outcome``."""
    versions: Counter[str] = field(default_factory=Counter)
    """Versions that a CONNECT said, or ``unknown``."""
    transports: Counter[str] = field(default_factory=Counter)
    refusals: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By version and reason code of the CONNACK."""
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By how the transport ended, and by whom (``client``, ``server``, ``unknown``)."""
    disconnects: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """By sender of the DISCONNECT and its reason code, ``None`` before 5.0."""
    endings: Counter[str] = field(default_factory=Counter)
    """See ``ConnectionRow.ending``."""
    silent: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Connections without a DISCONNECT: ending, how the transport ended, and by whom."""

    def merge(self, other: Outcomes) -> None:
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
    """What `Counter.update` does, for tables with one entry or none: that takes ten times as long."""
    for key, count in counts.items():
        sums[key] = sums.get(key, 0) + count


@dataclass(slots=True)
class CaptureRow:
    """One capture, or all of them."""

    capture: str
    traffic: Traffic = field(default_factory=Traffic)
    outcomes: Outcomes = field(default_factory=Outcomes)
    """Of the connections that began in it."""
    frames: int = 0
    frame_bytes: int = 0
    """Bytes of the frames on the wire."""
    captured_bytes: int = 0
    """Those of them that the snap length left."""
    first_ns: int | None = None
    """Lowest timestamp of its frames."""
    last_ns: int | None = None
    discarded_segments: int = 0
    """Segments with data that no connection took."""
    discarded_bytes: int = 0
    dropped: int = 0
    """Frames that the capturing program said it lost."""
    clock_steps: int = 0
    """How often its clock was set."""
    stepped_ns: int = 0
    """How far forward in all."""
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
class TopicRow:
    """One topic; ``None`` stands for PUBLISH packets whose alias was set before the capture began."""

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
    """Whether ``clients`` are all."""
    window: Window = field(default_factory=Window)
    first_ns: int = 0
    last_ns: int = 0


@dataclass(slots=True)
class ClientRow:
    """One Client Identifier; without one, all connections from one address."""

    number: int
    client_identifier: str | None
    parts: list[bytes] = field(default_factory=list)
    """What its connections counted that have a row, each packed (`pack`)."""
    beyond: Traffic | None = None
    """The same of those that have none."""
    merged: Traffic | None = field(default=None, compare=False, repr=False)
    """All of that, once it was asked for."""
    packets: int = 0
    """Packets of both directions."""
    malformed: int = 0
    """Malformed packets among what its connections sent and received."""
    addresses: dict[str, None] = field(default_factory=dict)
    """At most `MAX_ADDRESSES`, in order of appearance."""
    more_addresses: bool = False
    connections: int = 0
    accepted: int = 0
    refused: int = 0
    unanswered: int = 0
    """Connections whose CONNECT had no CONNACK."""
    disconnected: int = 0
    """Connections that ended with a DISCONNECT; see ``ConnectionRow.ending``."""
    broken: int = 0
    """Connections that ended otherwise."""
    taken_over: int = 0
    """Connections that the server ended with DISCONNECT 0x8E, Session taken over."""
    longest_silence_ns: int = 0
    keep_alive_share: float | None = None
    """The longest silence of its connections as a part of their Keep Alive; ``None`` where none has one."""
    first_ns: int | None = None
    last_ns: int | None = None
    topics_published: int = 0
    """Topics that it published to, among those that have a row."""
    topics_received: int = 0
    topics_complete: bool = True
    """Whether both counts are all there is: no limit of the topics or of their clients was hit."""
    named: tuple[list[TopicRow], list[TopicRow]] = field(default_factory=lambda: ([], []))
    """The topics with the most messages, published and received."""

    def count(self, traffic: Traffic, packed: bytes | None) -> None:
        """Add what a connection counted; ``packed``: the same, where that is kept for its row."""
        self.packets += traffic.packets
        self.malformed += sum(traffic.counts[MALFORMED:MALFORMED_BYTES])
        self.merged = None
        if packed is not None:
            self.parts.append(packed)
            return
        if self.beyond is None:
            self.beyond = Traffic()
        self.beyond.merge(traffic)

    def added_up(self) -> Traffic:
        """What its connections counted, added up and not kept."""
        found = Traffic()
        for packed in self.parts:
            found.merge(unpack(packed))
        if self.beyond is not None:
            found.merge(self.beyond)
        return found

    @property
    def traffic(self) -> Traffic:
        """The same, kept from now on: for those that are shown."""
        if self.merged is None:
            self.merged = self.added_up()
        return self.merged

    @property
    def reconnects(self) -> int:
        """Connections after the first."""
        return max(0, self.connections - 1)

    @property
    def trouble(self) -> tuple[float, ...]:
        """How much went wrong, the worst first.

        Ends without DISCONNECT, refusals and CONNECTs without an answer; malformed packets; silence beyond Keep Alive.
        """
        share = self.keep_alive_share or 0.0
        return (
            self.broken + self.refused + self.unanswered,
            self.malformed,
            share if share > 1.0 else 0.0,
        )


@dataclass(slots=True)
class ConnectionRow:
    """One connection; below ``traffic`` is what the connection's own state says when it has ended."""

    number: int
    live: Connection | None = None
    """The connection itself, while it runs."""
    traffic: Traffic = field(default_factory=Traffic)
    client_row: ClientRow | None = None
    revision: int = -1
    """The connection's when ``client_row`` was looked up."""
    releases: dict[int, int] = field(default_factory=dict)
    """When PUBREL was sent: by ``2 * packet_identifier + from_server``, until PUBCOMP comes."""
    connack_reason_code: int | None = None
    longest_silence_ns: int = 0
    """The longest time between CONNECT and the end in which the client sent no packet."""
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
    """``disconnected``: a DISCONNECT ended it, none with an error; ``broken``: the transport ended without DISCONNECT,
    or after one with a reason code of 0x80 and above; ``refused``: by CONNACK; ``open``: the capture has no end;
    ``unknown``: it ended, and the capture lacks bytes or they could not be read."""
    outcome: str = ""
    """``accepted``; ``refused``; ``unanswered``: CONNECT without CONNACK; ``joined``: packets, but the capture has no
    CONNECT; ``unread``: no packet could be read, as inside TLS."""
    keep_alive: int | None = None
    closed_how: str | None = None
    closed_by: str | None = None
    disconnect_by: str | None = None
    disconnect_reason: int | None = None
    """``None`` before 5.0, where DISCONNECT has no reason."""
    also_closed: str | None = None
    """How the other side ended after that."""
    also_closed_ns: int | None = None
    one_sided: str | None = None
    """The direction of all its segments, where the capture has only one."""
    discarded_segments: int = 0
    """Segments with data that the connection did not take, up to its end."""
    discarded_bytes: int = 0
    in_flight_peak: tuple[int, int] = (0, 0)
    """Most QoS 1 and 2 messages that were unfinished at a time, sent by client and server."""
    receive_maximum: tuple[int | None, int | None] = (None, None)
    """What the other side allowed the client and the server to send; ``None`` where it is not known."""
    server_name: str | None = None

    @property
    def keep_alive_share(self) -> float | None:
        """The longest silence as a part of Keep Alive; ``None`` where there is none."""
        return self.longest_silence_ns / (self.keep_alive * 1e9) if self.keep_alive else None

    @property
    def trouble(self) -> tuple[float, ...]:
        """How much went wrong, as `ClientRow.trouble`."""
        share = self.keep_alive_share or 0.0
        bad = self.ending == "broken" or self.outcome in ("refused", "unanswered")
        return int(bad), sum(self.traffic.counts[MALFORMED:MALFORMED_BYTES]), share if share > 1.0 else 0.0


_KEPT: Final = tuple(one.name for one in fields(ConnectionRow))[6:]
"""What is kept of the row of a connection beside its number and its traffic: all that is said below ``traffic``."""
_kept: Final = attrgetter(*_KEPT)


class EndedRows:
    """The rows of connections that have ended, in some hundred bytes each: whoever asks for one gets a copy."""

    def __init__(self) -> None:
        self.packets = array("q")
        """How many packets each of them has: tables are sorted by that, as long as nothing else is asked for."""
        self._numbers = array("q")
        self._rows: list[bytes] = []
        self._traffic: list[bytes] = []

    def append(self, row: ConnectionRow) -> bytes:
        """Take a row, without the connection and the client that it refers to; returns its traffic, packed."""
        self.packets.append(row.traffic.packets)
        self._numbers.append(row.number)
        self._rows.append(pickle.dumps(_kept(row), pickle.HIGHEST_PROTOCOL))
        packed = pack(row.traffic)
        self._traffic.append(packed)
        return packed

    def sort(self) -> None:
        """Put them in the order of their numbers."""
        numbers = self._numbers
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        self._numbers = array("q", [numbers[place] for place in order])
        self.packets = array("q", [self.packets[place] for place in order])
        self._rows = [self._rows[place] for place in order]
        self._traffic = [self._traffic[place] for place in order]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> ConnectionRow:
        kept: tuple[Any, ...] = pickle.loads(self._rows[place])
        return ConnectionRow(self._numbers[place], None, unpack(self._traffic[place]), None, -1, {}, *kept)

    def __iter__(self) -> Iterator[ConnectionRow]:
        for place in range(len(self._rows)):
            yield self[place]


TABLES = ("capture", "connection", "client", "topic")
SORTS = (
    "packets", "bytes", "rate", "latency", "trouble", "reconnects", "refused", "disconnects", "silence", "name",
)  # fmt: skip
DEFAULT_SORTS = {"client": "trouble"}
"""What a table is sorted by unless it is said; the others by packets."""

R = TypeVar("R", ConnectionRow, ClientRow, TopicRow)


def order(rows: Iterable[R] | EndedRows, sort: str, top: int | None) -> Iterator[Any]:
    """The first ``top`` rows by a measure, highest first, then by packets; equal ones in order of appearance.

    Names are sorted upwards.  What rows do not have leaves them sorted by packets: topics have no latency and no ends,
    connections no reconnects.
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
    # Rows that are packed are read one at a time, so that no more of them are there than are shown.
    for place in sorted(range(len(keys)), key=keys.__getitem__, reverse=sort != "name")[:top]:
        yield known[place]


def rate(count: int, duration_ns: int) -> float | None:
    """So many a second; ``None`` where no time passed."""
    return round(count * 1e9 / duration_ns, 3) if duration_ns > 0 else None


def span(row: ClientRow) -> int:
    """From the beginning of a client's first connection to the end of its last, in nanoseconds."""
    return (row.last_ns or 0) - (row.first_ns or 0)


def _counted(row: Any) -> Traffic:
    """What is measured of a row that may not be shown."""
    return row.added_up() if isinstance(row, ClientRow) else row.traffic


def _packets(row: Any) -> int:
    if isinstance(row, TopicRow):
        return sum(row.messages)
    return row.packets if isinstance(row, ClientRow) else row.traffic.packets


def _bytes(row: Any) -> int:
    return sum(row.bytes) if isinstance(row, TopicRow) else _counted(row).bytes


def _rate_of(row: Any) -> float | None:
    if isinstance(row, TopicRow):
        return float(_packets(row))  # all topics are measured over the same time
    duration = span(row) if isinstance(row, ClientRow) else row.ended_ns - row.opened_ns
    return rate(_packets(row), duration)


_MEASURES: dict[str, Callable[[Any], Any]] = {
    "packets": _packets,
    "bytes": _bytes,
    "rate": lambda row: _rate_of(row) or 0.0,
    "latency": lambda row: 0 if isinstance(row, TopicRow) else _counted(row).slowest,
    "trouble": lambda row: () if isinstance(row, TopicRow) else row.trouble,
    "reconnects": lambda row: row.reconnects if isinstance(row, ClientRow) else 0,
    "refused": lambda row: _ended(row, "refused"),
    "disconnects": lambda row: _ended(row, "broken"),
    "silence": lambda row: -1.0 if isinstance(row, TopicRow) else _share(row),
}


def _name(row: Any) -> str:
    if isinstance(row, TopicRow):
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
    """Frames counted by reason, coarsely: ``not_ip``, ``not_tcp``, ``malformed``, ``truncated``, ...."""
    groups: dict[str, int] = {}
    for name, count in skipped.items():
        group = UNREAD[name].group if name in UNREAD else name
        groups[group] = groups.get(group, 0) + count
    return groups


def disconnect_reason(code: int | None) -> str | None:
    """Name of the reason code of a DISCONNECT; ``None`` before 5.0."""
    return None if code is None else reason_name(PacketType.DISCONNECT, code, ProtocolVersion.V5)
