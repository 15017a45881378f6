"""Compares two captures by meaning: connections and packets that only one of them has, and fields that differ.

    comparison = CaptureComparison(ComparisonSettings())
    for side, event in events_of_both:
        for difference in comparison.feed(side, event): ...
    for difference in comparison.finish(): ...

Connections with the same Client Identifier are paired in their order.  Connections without one, or without their
CONNECT in the capture, are paired by their topics.  Packets are aligned by topic and payload, never by time.  Packet
Identifiers, DUP, Topic Aliases, times, PINGREQ and the division into segments are ignored unless `ComparisonSettings`
counts them.  A pair is compared, and forgotten, as soon as both connections have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
)
from mqttscope.mqtt.topics import compile_filter
from mqttscope.replay.align import CAPTURE_KEYS, CAPTURE_KEYS_WITHOUT_PAYLOAD, Pair, align, displaced
from mqttscope.replay.script import Script, ScriptEntry, ScriptReader
from mqttscope.replay.verify.device import changed_fields
from mqttscope.replay.verify.fields import field_differences
from mqttscope.replay.verify.metrics import RecordedMetrics

A, B = 0, 1
"""Indexes of the two captures in pairs."""
IGNORABLE = ("payload", "properties", "qos", "retain", "answers", "order", "close")
"""Allowed values of `ComparisonSettings.ignore`."""
COUNTABLE = ("packet-identifier", "topic-alias", "dup", "reason-string", "ping")
"""Allowed values of `ComparisonSettings.count`: differences that are ignored by default."""
MAX_KEPT_BYTES = 512 << 20
"""Maximum size of the packets that wait for their counterparts."""
PACKET_COST = 999
"""Size counted for each packet in addition to its bytes, which are kept twice."""
CONTENT_COST = 10
"""Size of a packet with the content of its payload, in sizes of the packet."""
MAX_CHOICES = 250_000
"""Maximum number of pairs of connections compared by topics at once, to find the most similar ones."""
_ANSWERS = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Pingresp)


class TooMuchKeptError(MqttscopeError):
    """Too many packets of one capture wait for their counterparts in the other one."""


class CaptureDifferenceKind(StrEnum):
    """Kind of a difference; the names are stable."""

    CONNECTION = "connection"
    """Only one capture has the connection."""
    PACKET = "packet"
    """Only one capture has the packet."""
    FIELD = "field"
    ORDER = "order"
    TIME = "time"
    CLOSE = "close"


@dataclass(slots=True, frozen=True)
class ComparisonSettings:
    """Which differences are reported."""

    ignore: frozenset[str] = frozenset()
    """Values of `IGNORABLE`."""
    count: frozenset[str] = frozenset()
    """Values of `COUNTABLE`."""
    ignored_topics: tuple[str, ...] = ()
    """Topic Filters of messages to be left out."""
    clients: tuple[str, ...] = ()
    """Globs of the Client Identifiers to be compared; empty for all."""
    tolerance_ns: int | None = None
    """Maximum difference between the times of two packets, each from the opening of its connection; ``None``: any."""
    by_topics: bool = False
    """Whether to pair all connections by topics, for clients that make up a new Client Identifier each time."""


@dataclass(slots=True, eq=False)
class CaptureDifference:
    """One difference between the captures."""

    kind: CaptureDifferenceKind
    client: str
    """The Client Identifier; may be empty."""
    scripts: tuple[Script | None, Script | None]
    """The connections in A and B."""
    entries: tuple[ScriptEntry | None, ScriptEntry | None] = (None, None)
    """The packets in A and B; both ``None`` for `CaptureDifferenceKind.CONNECTION` and ``CLOSE``."""
    field: str = ""
    """Path of the field as in JSON, for `CaptureDifferenceKind.FIELD`."""
    values: tuple[Any, Any] = (None, None)
    """Values of the field; nanoseconds for ``TIME``; the side that ended the connection for ``CLOSE``."""

    @property
    def only(self) -> str:
        """``a`` or ``b`` if only that capture has the connection or packet, else empty."""
        sides: tuple[object, object] = self.scripts if self.kind is CaptureDifferenceKind.CONNECTION else self.entries
        if self.kind is CaptureDifferenceKind.CLOSE or None not in sides:
            return ""
        return "b" if sides[A] is None else "a"

    @property
    def entry(self) -> ScriptEntry | None:
        """The packet that the difference is about: of A, else of B."""
        return self.entries[A] or self.entries[B]


@dataclass(slots=True)
class ComparisonCounts:
    """Number of things compared for one client, or for all."""

    connections: list[int] = field(default_factory=lambda: [0, 0])
    packets: list[int] = field(default_factory=lambda: [0, 0])
    bytes: list[int] = field(default_factory=lambda: [0, 0])
    """Total bytes of the packets."""
    segments: list[int] = field(default_factory=lambda: [0, 0])
    """TCP segments with data, for information only."""
    equal: int = 0
    """Packets of A that B has with the same meaning."""
    differences: int = 0
    lost: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes that the captures lack."""

    def add(self, other: ComparisonCounts) -> None:
        """Add the counts of a client."""
        for side in (A, B):
            self.connections[side] += other.connections[side]
            self.packets[side] += other.packets[side]
            self.bytes[side] += other.bytes[side]
            self.segments[side] += other.segments[side]
            self.lost[side] += other.lost[side]
        self.equal += other.equal
        self.differences += other.differences


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection of one capture, while it is read and until it is compared."""

    side: int
    reader: ScriptReader = field(default_factory=ScriptReader)
    key: tuple[str, int] | None = None
    """Client Identifier, and number of its earlier connections; ``None`` for connections paired by topics."""
    cost: int = 0
    bytes: int = 0
    segments: int = 0
    """Final number of TCP segments with data, as in `ComparisonCounts`."""

    @property
    def script(self) -> Script:
        return self.reader.scripts[0]

    @property
    def client(self) -> str:
        return self.script.connection.client_identifier or ""


class CaptureComparison:
    """Takes the events of both captures, each in its order, and yields the differences."""

    def __init__(self, settings: ComparisonSettings | None = None) -> None:
        self.settings = settings or ComparisonSettings()
        self.clients: dict[str, ComparisonCounts] = {}
        """Counts by Client Identifier; connections without one share the empty one."""
        self.kept_bytes = 0
        self.readable = [0, 0]
        """Connections of A and B with readable packets, compared or not."""
        self._open: tuple[dict[int, _Connection], dict[int, _Connection]] = ({}, {})
        self._seen: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._waiting: dict[tuple[str, int], _Connection] = {}
        self._by_topics: tuple[list[_Connection], list[_Connection]] = ([], [])
        self._metrics = RecordedMetrics(), RecordedMetrics()

    @property
    def counts(self) -> ComparisonCounts:
        """Total counts of all clients."""
        total = ComparisonCounts()
        for counts in self.clients.values():
            total.add(counts)
        return total

    def feed(self, side: int, event: Event) -> Iterator[CaptureDifference]:
        """Take one event of a capture (`A` or `B`), while its connection is in the state before it."""
        connection = getattr(event, "connection", None)
        if connection is None:
            return
        read = self._open[side].get(connection.number)
        if read is None:
            if not isinstance(event, ConnectionOpened | PacketEvent | MalformedEvent):
                return
            read = self._open[side][connection.number] = _Connection(side)
        content = self._metrics[side].read(event) if isinstance(event, PacketEvent) else None
        read.reader.feed(event)
        if isinstance(event, PacketEvent | MalformedEvent):
            self._keep(read, event, 1 if content is None else CONTENT_COST)
            last = read.script.entries[-1:]
            if isinstance(event, PacketEvent) and last and last[0].packet is event.packet:
                last[0].content = content
        elif isinstance(event, ConnectionClosed):
            del self._open[side][connection.number]
            read.reader.finish()
            read.bytes = connection.client_side.bytes + connection.server_side.bytes
            tcp = connection.details.get("tcp", {})
            read.segments = sum(direction["data_segments"] for direction in tcp.values())
            if read.reader.scripts:
                yield from self._ended(read)

    def finish(self) -> Iterator[CaptureDifference]:
        """Compare the rest: connections that only one capture has, and connections paired by topics."""
        for connection in self._waiting.values():
            yield from self._unpaired(connection)
        self._waiting.clear()
        pairs, alone = _pair_by_topics(*self._by_topics)
        for first, other in pairs:
            yield from self._compare_pair(first, other)
        for connection in alone:
            yield from self._unpaired(connection)

    def _keep(self, connection: _Connection, event: PacketEvent | MalformedEvent, factor: int) -> None:
        packet = event.packet if isinstance(event, PacketEvent) else event.malformed
        cost = PACKET_COST + 2 * factor * len(packet.raw)
        connection.cost += cost
        self.kept_bytes += cost
        if self.kept_bytes > MAX_KEPT_BYTES:
            limit = f"more than {MAX_KEPT_BYTES >> 20} MiB of packets"
            raise TooMuchKeptError(f"{limit} wait for their counterparts in the other capture")
        is_first = isinstance(packet, Connect) and connection.key is None and not self.settings.by_topics
        if is_first and packet.client_identifier:  # type: ignore[union-attr]
            name: str = packet.client_identifier  # type: ignore[union-attr]
            number = self._seen[connection.side].get(name, 0)
            self._seen[connection.side][name] = number + 1
            connection.key = name, number

    def _ended(self, connection: _Connection) -> Iterator[CaptureDifference]:
        script = connection.script
        globs = self.settings.clients
        self.readable[connection.side] += bool(script.entries)
        if not script.entries or (globs and not any(fnmatchcase(script.name, pattern) for pattern in globs)):
            self.kept_bytes -= connection.cost
            return
        counts = self.clients.setdefault(connection.client, ComparisonCounts())
        counts.connections[connection.side] += 1
        counts.packets[connection.side] += len(script.entries)
        counts.bytes[connection.side] += connection.bytes
        counts.segments[connection.side] += connection.segments
        counts.lost[connection.side] += script.lost
        if connection.key is None:
            self._by_topics[connection.side].append(connection)
            return
        other = self._waiting.get(connection.key)
        if other is None:
            self._waiting[connection.key] = connection
            return
        del self._waiting[connection.key]
        yield from self._compare_pair(*((connection, other) if connection.side == A else (other, connection)))

    def _compare_pair(self, first: _Connection, other: _Connection) -> Iterator[CaptureDifference]:
        self.kept_bytes -= first.cost + other.cost
        counts = self.clients[first.client]
        pair = _CapturePair(self.settings, first.client, first.script, other.script, identified=first.key is not None)
        for difference in pair.compare():
            counts.differences += 1
            yield difference
        counts.equal += pair.equal

    def _unpaired(self, connection: _Connection) -> Iterator[CaptureDifference]:
        self.kept_bytes -= connection.cost
        self.clients[connection.client].differences += 1
        scripts = (connection.script, None) if connection.side == A else (None, connection.script)
        yield CaptureDifference(CaptureDifferenceKind.CONNECTION, connection.client, scripts)


def _topics(script: Script) -> frozenset[tuple[bool, str]]:
    """Topics of a connection: topics that each side publishes to, and Topic Filters."""
    topics: set[tuple[bool, str]] = set()
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Publish) and entry.topic is not None:
            topics.add((entry.from_client, entry.topic))
        elif isinstance(packet, Subscribe):
            topics |= {(True, subscription.topic_filter) for subscription in packet.subscriptions}
    return frozenset(topics)


def _pair_by_topics(
    ones: list[_Connection], others: list[_Connection]
) -> tuple[list[tuple[_Connection, _Connection]], list[_Connection]]:
    """Pairs of connections with equal topics in their order, then pairs sharing most topics; and unpaired ones."""
    topics = {id(connection): _topics(connection.script) for connection in (*ones, *others)}
    pairs, unpaired, rest = align(ones, others, [lambda connection: topics[id(connection)]])
    pairs += _most_alike(unpaired, rest, topics)
    paired = {id(connection) for pair in pairs for connection in pair}
    return pairs, [connection for connection in (*unpaired, *rest) if id(connection) not in paired]


def _most_alike(
    unpaired: list[_Connection], rest: list[_Connection], topics: dict[int, frozenset[tuple[bool, str]]]
) -> list[tuple[_Connection, _Connection]]:
    """Pairs of connections that share topics, the pairs sharing most first.

    If there are too many combinations, each connection is compared only with the same half of the other capture.
    """
    if len(unpaired) * len(rest) > MAX_CHOICES:
        at, place = len(unpaired) // 2, len(rest) // 2
        return _most_alike(unpaired[:at], rest[:place], topics) + _most_alike(unpaired[at:], rest[place:], topics)
    shared = sorted(
        (-len(topics[id(first)] & topics[id(other)]), at, place)
        for at, first in enumerate(unpaired)
        for place, other in enumerate(rest)
    )
    pairs: list[tuple[_Connection, _Connection]] = []
    used: tuple[set[int], set[int]] = (set(), set())
    for common, at, place in shared:
        if common and at not in used[A] and place not in used[B]:
            pairs.append((unpaired[at], rest[place]))
            used[A].add(at)
            used[B].add(place)
    return pairs


@dataclass(slots=True)
class _SideTraffic:
    """Packets of one side of a connection in one capture, and the answers of the other side."""

    entries: list[ScriptEntry] = field(default_factory=list)
    answers: dict[int, dict[str, ScriptEntry]] = field(default_factory=dict)
    """Answers by the packet that they answer and by their type; the first if there are several."""


class _CapturePair:
    """Two connections that are compared with each other."""

    def __init__(self, settings: ComparisonSettings, client: str, a: Script, b: Script, *, identified: bool) -> None:
        self.settings, self.client, self.scripts, self.identified = settings, client, (a, b), identified
        self.equal = 0
        self.connects = a.connect_packet, b.connect_packet

    @cached_property
    def _ignored_filters(self) -> list[Any]:
        return [compile_filter(topic_filter) for topic_filter in self.settings.ignored_topics]

    def compare(self) -> Iterator[CaptureDifference]:
        """All differences, beginning with the client's packets."""
        for from_client in (True, False):
            sides = tuple(self._traffic_of(script, from_client) for script in self.scripts)
            yield from self._direction(sides[A], sides[B], from_client=from_client)
        yield from self._ending()

    def _traffic_of(self, script: Script, from_client: bool) -> _SideTraffic:
        traffic = _SideTraffic()
        for entry in script.entries:
            packet = entry.packet
            request = entry.answers
            if request is not None and isinstance(packet, _ANSWERS):
                if request.from_client is from_client:
                    traffic.answers.setdefault(id(request), {}).setdefault(entry.type, entry)
            elif entry.from_client is from_client and self._is_compared(entry):
                traffic.entries.append(entry)
        return traffic

    def _is_compared(self, entry: ScriptEntry) -> bool:
        packet, counted = entry.packet, self.settings.count
        if isinstance(packet, Pingreq | Pingresp):
            return "ping" in counted
        if entry.resends is not None and "dup" not in counted:
            return False
        if isinstance(packet, _ANSWERS) and "answers" in self.settings.ignore:
            return False
        is_message = isinstance(packet, Publish) and entry.topic is not None
        return not (is_message and any(matches(entry.topic) for matches in self._ignored_filters))

    def _direction(self, first: _SideTraffic, other: _SideTraffic, *, from_client: bool) -> Iterator[CaptureDifference]:
        keys = CAPTURE_KEYS_WITHOUT_PAYLOAD if "payload" in self.settings.ignore else CAPTURE_KEYS
        pairs, left, right = align(first.entries, other.entries, keys)
        for before, now in pairs:
            differences = [*self._fields(before, now), *self._times(before, now)]
            self.equal += not differences
            yield from differences
            if "answers" not in self.settings.ignore:
                answers = first.answers.get(id(before), {}), other.answers.get(id(now), {})
                yield from self._answers(before, now, *answers)
        for entry in left:
            yield self._difference(CaptureDifferenceKind.PACKET, entry, None)
        for entry in right:
            yield self._difference(CaptureDifferenceKind.PACKET, None, entry)
        if "order" not in self.settings.ignore:
            yield from self._order(pairs, from_client=from_client)

    def _difference(
        self,
        kind: CaptureDifferenceKind,
        first: ScriptEntry | None,
        other: ScriptEntry | None,
        name: str = "",
        *values: Any,
    ) -> CaptureDifference:
        both = (values[0], values[1]) if values else (None, None)
        return CaptureDifference(kind, self.client, self.scripts, (first, other), name, both)

    def _fields(self, before: ScriptEntry, now: ScriptEntry) -> Iterator[CaptureDifference]:
        changes = [*self._changed(before, now)]
        if before.content is not None and now.content is not None:
            changes = [change for change in changes if change[0] not in ("payload", "will.will_payload")]
            changes += before.content.changes(now.content)
        for name, expected, actual in changes:
            if not self._is_ignored(name):
                yield self._difference(CaptureDifferenceKind.FIELD, before, now, name, expected, actual)

    def _is_ignored(self, name: str) -> bool:
        ignore = self.settings.ignore
        last = name.rpartition(".")[2]
        if name.startswith("payload."):
            return "payload" in ignore
        if "properties" in ignore and "properties." in name:
            return True
        return last.removeprefix("will_") in ignore or (last == "maximum_qos" and "qos" in ignore)

    def _changed(self, before: ScriptEntry, now: ScriptEntry) -> Iterator[tuple[str, Any, Any]]:
        """Path and both values of each field that differs."""
        first, other = before.packet, now.packet
        if isinstance(first, Malformed) or isinstance(other, Malformed):
            if before.raw != now.raw:
                yield "raw", before.raw, now.raw
            return
        if before.from_client and not isinstance(first, _ANSWERS):
            for change in changed_fields(before, now, identified=self.identified):
                yield change.change
        else:
            for change in field_differences(first, other, self.scripts[A].version, self.connects):
                yield change.change
            if isinstance(first, Publish) and isinstance(other, Publish) and not (first.missing or other.missing):
                yield from [("payload", first.payload, other.payload)] * (first.payload != other.payload)
        yield from self._counted_changes(first, other)

    def _counted_changes(self, first: ControlPacket, other: ControlPacket) -> Iterator[tuple[str, Any, Any]]:
        """Differences that are reported only if `ComparisonSettings.count` names them."""
        for name, path in (
            ("packet-identifier", "packet_identifier"),
            ("dup", "dup"),
            ("topic-alias", "properties.topic_alias"),
            ("reason-string", "properties.reason_string"),
        ):
            if name in self.settings.count:
                expected, actual = (_value(packet, path) for packet in (first, other))
                if expected != actual:
                    yield path, expected, actual

    def _answers(
        self, before: ScriptEntry, now: ScriptEntry, expected: dict[str, ScriptEntry], actual: dict[str, ScriptEntry]
    ) -> Iterator[CaptureDifference]:
        """Compare the answers of the other side to two packets; another QoS has other answers."""
        if getattr(before.packet, "qos", None) != getattr(now.packet, "qos", None):
            return
        for kind in dict.fromkeys((*expected, *actual)):
            first, other = expected.get(kind), actual.get(kind)
            if first is not None and other is not None:
                changed = list(self._fields(first, other))
                self.equal += not changed
                yield from changed
            else:
                yield self._difference(CaptureDifferenceKind.PACKET, first, other)

    def _times(self, before: ScriptEntry, now: ScriptEntry) -> Iterator[CaptureDifference]:
        tolerance = self.settings.tolerance_ns
        if tolerance is None:
            return
        after = tuple(
            entry.timestamp_ns - script.opened_ns for entry, script in zip((before, now), self.scripts, strict=True)
        )
        if abs(after[A] - after[B]) > tolerance:
            yield self._difference(CaptureDifferenceKind.TIME, before, now, "", *after)

    def _order(self, pairs: list[Pair], *, from_client: bool) -> Iterator[CaptureDifference]:
        """Compare the order of a client's packets, and of the deliveries of each topic (5.0 4.6)."""

        def flow(before: ScriptEntry, _: ScriptEntry) -> tuple[str | None] | None:
            return (None,) if from_client else (before.topic,) if isinstance(before.packet, Publish) else None

        for moved, _ in displaced(pairs, flow):
            for before, now in moved:
                yield self._difference(CaptureDifferenceKind.ORDER, before, now)

    def _ending(self) -> Iterator[CaptureDifference]:
        """Compare which side ended the connection; after a DISCONNECT of the client that is chance."""
        if "close" in self.settings.ignore:
            return
        first, other = (script.ending for script in self.scripts)
        disconnected = any(script.first(Disconnect, from_client=True) for script in self.scripts)
        if not disconnected and "open" not in (first.how, other.how) and first.by != other.by:
            values = first.by, other.by
            yield CaptureDifference(CaptureDifferenceKind.CLOSE, self.client, self.scripts, values=values)


def _value(packet: ControlPacket, path: str) -> Any:
    name = path.removeprefix("properties.")
    return getattr(packet if name == path else getattr(packet, "properties", None), name, None)
