"""Two captures compared by what was said in them: what one has and the other lacks, by client, topic and packet.

    comparison = Comparison(Settings())
    for side, event in events_of_both:
        for difference in comparison.feed(side, event): ...
    for difference in comparison.finish(): ...

Connections of one Client Identifier stand for each other in their order; those without one, and those whose CONNECT is
not in the capture, are paired by the topics that they speak of.  Packets are aligned by topic and payload, never by
time.  Packet Identifiers, DUP, Topic Aliases, times, PINGREQ and the cut of the bytes into segments do not count unless
`Settings` say so.  A pair is compared, and forgotten, as soon as both connections have ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, partial
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
    Unsubscribe,
)
from mqttscope.mqtt.topics import compile_filter
from mqttscope.replay.script import Entry, Script, ScriptReader
from mqttscope.replay.verify.deliveries import align, longest_rise
from mqttscope.replay.verify.device import changed_fields
from mqttscope.replay.verify.fields import field_differences

A, B = 0, 1
"""The two captures."""
IGNORABLE = ("payload", "properties", "qos", "retain", "answers", "order", "close")
"""What `Settings.ignore` may name."""
COUNTABLE = ("packet-identifier", "topic-alias", "dup", "reason-string", "ping")
"""What `Settings.count` may name: it does not count otherwise."""
MAX_KEPT_BYTES = 512 << 20
"""Of packets whose counterparts have not come yet."""
PACKET_COST = 999
"""What each packet counts beside its bytes, which are kept twice."""
MAX_CHOICES = 250_000
"""Maximum number of pairs of connections whose topics are compared at once, to find those that are most alike."""
_ANSWERS = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Pingresp)
_LEVELS = 3


class TooMuchKeptError(MqttscopeError):
    """Too many packets of one capture wait for their counterparts in the other one."""


class CaptureDifferenceKind(StrEnum):
    """What kind of difference it is; the names are stable."""

    CONNECTION = "connection"
    """Only one capture has the connection."""
    PACKET = "packet"
    """Only one capture has the packet."""
    FIELD = "field"
    ORDER = "order"
    TIME = "time"
    CLOSE = "close"


@dataclass(slots=True, frozen=True)
class Settings:
    """What counts."""

    ignore: frozenset[str] = frozenset()
    """Of `IGNORABLE`."""
    count: frozenset[str] = frozenset()
    """Of `COUNTABLE`."""
    ignored_topics: tuple[str, ...] = ()
    """Topic Filters of messages that are left out."""
    clients: tuple[str, ...] = ()
    """Globs of the Client Identifiers that are compared; all where there are none."""
    tolerance_ns: int | None = None
    """By how much the time of a packet since its connection was opened may differ; ``None`` for any."""
    by_topics: bool = False
    """Pair all connections by topics: clients make up a new Client Identifier for each."""


@dataclass(slots=True, eq=False)
class CaptureDifference:
    """One thing that the captures do not have in common."""

    kind: CaptureDifferenceKind
    client: str
    """The Client Identifier, empty where there is none."""
    scripts: tuple[Script | None, Script | None]
    """The connections in A and B."""
    entries: tuple[Entry | None, Entry | None] = (None, None)
    """The packets in A and B; both ``None`` for `CaptureDifferenceKind.CONNECTION` and ``CLOSE``."""
    field: str = ""
    """Path of the field as in JSON, for `CaptureDifferenceKind.FIELD`."""
    values: tuple[Any, Any] = (None, None)
    """Of the field; nanoseconds for ``TIME``; who ended the connection for ``CLOSE``."""

    @property
    def only(self) -> str:
        """``a`` or ``b`` where the other capture has no such connection or packet, else empty."""
        sides: tuple[object, object] = self.scripts if self.kind is CaptureDifferenceKind.CONNECTION else self.entries
        if self.kind is CaptureDifferenceKind.CLOSE or None not in sides:
            return ""
        return "b" if sides[A] is None else "a"

    @property
    def entry(self) -> Entry | None:
        """The packet that it is about: that of A, else that of B."""
        return self.entries[A] or self.entries[B]


@dataclass(slots=True)
class Counts:
    """What was compared of one client, or of all."""

    connections: list[int] = field(default_factory=lambda: [0, 0])
    packets: list[int] = field(default_factory=lambda: [0, 0])
    bytes: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes of packets."""
    segments: list[int] = field(default_factory=lambda: [0, 0])
    """TCP segments with data, which say nothing of what they mean."""
    equal: int = 0
    """Packets of A that B has with the same meaning."""
    differences: int = 0
    lost: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes that the captures lack."""

    def add(self, other: Counts) -> None:
        """Add those of a client."""
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
    """Client Identifier, and how many connections of it came before; ``None`` for those paired by topics."""
    cost: int = 0
    bytes: int = 0
    segments: int = 0
    """What it had in the end, as in `Counts`."""

    @property
    def script(self) -> Script:
        return self.reader.scripts[0]

    @property
    def client(self) -> str:
        return self.script.connection.client_identifier or ""


class Comparison:
    """Takes the events of both captures, each in its order, and yields what differs."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.clients: dict[str, Counts] = {}
        """By Client Identifier; those without one share the empty one."""
        self.kept_bytes = 0
        self.readable = [0, 0]
        """Connections of A and B of which packets could be read, whether they are compared or not."""
        self._open: tuple[dict[int, _Connection], dict[int, _Connection]] = ({}, {})
        self._seen: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._waiting: dict[tuple[str, int], _Connection] = {}
        self._by_topics: tuple[list[_Connection], list[_Connection]] = ([], [])

    @property
    def counts(self) -> Counts:
        """Those of all clients."""
        total = Counts()
        for one in self.clients.values():
            total.add(one)
        return total

    def feed(self, side: int, event: Event) -> Iterator[CaptureDifference]:
        """Take one event of a capture (`A` or `B`), while its connection is in the state before it."""
        connection = getattr(event, "connection", None)
        if connection is None:
            return
        found = self._open[side].get(connection.number)
        if found is None:
            if not isinstance(event, ConnectionOpened | PacketEvent | MalformedEvent):
                return
            found = self._open[side][connection.number] = _Connection(side)
        found.reader.feed(event)
        if isinstance(event, PacketEvent | MalformedEvent):
            self._keep(found, event)
        elif isinstance(event, ConnectionClosed):
            del self._open[side][connection.number]
            found.reader.finish()
            found.bytes = connection.client_side.bytes + connection.server_side.bytes
            tcp = connection.details.get("tcp", {})
            found.segments = sum(one["data_segments"] for one in tcp.values())
            if found.reader.scripts:
                yield from self._ended(found)

    def finish(self) -> Iterator[CaptureDifference]:
        """What is left at the end: connections that only one capture has, and those that are paired by topics."""
        for found in self._waiting.values():
            yield from self._alone(found)
        self._waiting.clear()
        pairs, alone = _pair_by_topics(*self._by_topics)
        for one, other in pairs:
            yield from self._both(one, other)
        for found in alone:
            yield from self._alone(found)

    def _keep(self, found: _Connection, event: PacketEvent | MalformedEvent) -> None:
        packet = event.packet if isinstance(event, PacketEvent) else event.malformed
        cost = PACKET_COST + 2 * len(packet.raw)
        found.cost += cost
        self.kept_bytes += cost
        if self.kept_bytes > MAX_KEPT_BYTES:
            limit = f"more than {MAX_KEPT_BYTES >> 20} MiB of packets"
            raise TooMuchKeptError(f"{limit} wait for their counterparts in the other capture")
        is_first = isinstance(packet, Connect) and found.key is None and not self.settings.by_topics
        if is_first and packet.client_identifier:  # type: ignore[union-attr]
            name: str = packet.client_identifier  # type: ignore[union-attr]
            number = self._seen[found.side].get(name, 0)
            self._seen[found.side][name] = number + 1
            found.key = name, number

    def _ended(self, found: _Connection) -> Iterator[CaptureDifference]:
        script = found.script
        wanted = self.settings.clients
        self.readable[found.side] += bool(script.entries)
        if not script.entries or (wanted and not any(fnmatchcase(script.name, one) for one in wanted)):
            self.kept_bytes -= found.cost
            return
        counts = self.clients.setdefault(found.client, Counts())
        counts.connections[found.side] += 1
        counts.packets[found.side] += len(script.entries)
        counts.bytes[found.side] += found.bytes
        counts.segments[found.side] += found.segments
        counts.lost[found.side] += script.lost
        if found.key is None:
            self._by_topics[found.side].append(found)
            return
        other = self._waiting.get(found.key)
        if other is None:
            self._waiting[found.key] = found
            return
        del self._waiting[found.key]
        yield from self._both(*((found, other) if found.side == A else (other, found)))

    def _both(self, one: _Connection, other: _Connection) -> Iterator[CaptureDifference]:
        self.kept_bytes -= one.cost + other.cost
        counts = self.clients[one.client]
        pair = _Pair(self.settings, one.client, one.script, other.script, identified=one.key is not None)
        for difference in pair.compare():
            counts.differences += 1
            yield difference
        counts.equal += pair.equal

    def _alone(self, found: _Connection) -> Iterator[CaptureDifference]:
        self.kept_bytes -= found.cost
        self.clients[found.client].differences += 1
        scripts = (found.script, None) if found.side == A else (None, found.script)
        yield CaptureDifference(CaptureDifferenceKind.CONNECTION, found.client, scripts)


def _topics(script: Script) -> frozenset[tuple[bool, str]]:
    """What a connection speaks of: topics that each side publishes to, and Topic Filters."""
    found: set[tuple[bool, str]] = set()
    for entry in script.entries:
        packet = entry.packet
        if isinstance(packet, Publish) and entry.topic is not None:
            found.add((entry.from_client, entry.topic))
        elif isinstance(packet, Subscribe):
            found |= {(True, one.topic_filter) for one in packet.subscriptions}
    return frozenset(found)


def _pair_by_topics(
    ones: list[_Connection], others: list[_Connection]
) -> tuple[list[tuple[_Connection, _Connection]], list[_Connection]]:
    """Pairs of connections with the same topics in their order, then of those that share most; and those left."""
    pairs: list[tuple[_Connection, _Connection]] = []
    waiting: dict[frozenset[tuple[bool, str]], list[_Connection]] = {}
    topics = {id(one): _topics(one.script) for one in (*ones, *others)}
    for one in reversed(others):
        waiting.setdefault(topics[id(one)], []).append(one)
    left = []
    for one in ones:
        same = waiting.get(topics[id(one)])
        if same:
            pairs.append((one, same.pop()))
        else:
            left.append(one)
    taken = {id(other) for _, other in pairs}
    rest = [one for one in others if id(one) not in taken]
    pairs += _most_alike(left, rest, topics)
    taken |= {id(one) for pair in pairs for one in pair}
    return pairs, [one for one in (*left, *rest) if id(one) not in taken]


def _most_alike(
    left: list[_Connection], rest: list[_Connection], topics: dict[int, frozenset[tuple[bool, str]]]
) -> list[tuple[_Connection, _Connection]]:
    """Pairs of connections that share topics, those that share most first.

    Where there are too many to compare all of them, each is compared with those in the same half of its capture.
    """
    if len(left) * len(rest) > MAX_CHOICES:
        at, place = len(left) // 2, len(rest) // 2
        return _most_alike(left[:at], rest[:place], topics) + _most_alike(left[at:], rest[place:], topics)
    shared = sorted(
        (-len(topics[id(one)] & topics[id(other)]), at, place)
        for at, one in enumerate(left)
        for place, other in enumerate(rest)
    )
    pairs: list[tuple[_Connection, _Connection]] = []
    used: tuple[set[int], set[int]] = (set(), set())
    for common, at, place in shared:
        if common and at not in used[A] and place not in used[B]:
            pairs.append((left[at], rest[place]))
            used[A].add(at)
            used[B].add(place)
    return pairs


@dataclass(slots=True)
class _Said:
    """What one side of a connection said in one capture: packets, and their answers by the other side."""

    entries: list[Entry] = field(default_factory=list)
    answers: dict[int, dict[str, Entry]] = field(default_factory=dict)
    """By the packet that is answered and the type of the answer; the first where there are several."""


class _Pair:
    """Two connections that stand for each other."""

    def __init__(self, settings: Settings, client: str, a: Script, b: Script, *, identified: bool) -> None:
        self.settings, self.client, self.scripts, self.identified = settings, client, (a, b), identified
        self.equal = 0
        self.connects = a.connect_packet, b.connect_packet

    @cached_property
    def _ignores(self) -> list[Any]:
        return [compile_filter(one) for one in self.settings.ignored_topics]

    def compare(self) -> Iterator[CaptureDifference]:
        """Everything that differs, what the client said first."""
        for from_client in (True, False):
            sides = tuple(self._said(script, from_client) for script in self.scripts)
            yield from self._direction(sides[A], sides[B], from_client=from_client)
        yield from self._ending()

    def _said(self, script: Script, from_client: bool) -> _Said:
        said = _Said()
        for entry in script.entries:
            packet = entry.packet
            request = entry.answers
            if request is not None and isinstance(packet, _ANSWERS):
                if request.from_client is from_client:
                    said.answers.setdefault(id(request), {}).setdefault(entry.type, entry)
            elif entry.from_client is from_client and self._counts(entry):
                said.entries.append(entry)
        return said

    def _counts(self, entry: Entry) -> bool:
        packet, wanted = entry.packet, self.settings.count
        if isinstance(packet, Pingreq | Pingresp):
            return "ping" in wanted
        if entry.resends is not None and "dup" not in wanted:
            return False
        if isinstance(packet, _ANSWERS) and "answers" in self.settings.ignore:
            return False
        is_message = isinstance(packet, Publish) and entry.topic is not None
        return not (is_message and any(matches(entry.topic) for matches in self._ignores))

    def _direction(self, one: _Said, other: _Said, *, from_client: bool) -> Iterator[CaptureDifference]:
        with_payload = "payload" not in self.settings.ignore
        levels = [partial(_key, level=level, with_payload=with_payload) for level in range(_LEVELS)]
        pairs, left, right = align(one.entries, other.entries, levels)
        for before, now in pairs:
            found = [*self._fields(before, now), *self._times(before, now)]
            self.equal += not found
            yield from found
            if "answers" not in self.settings.ignore:
                answers = one.answers.get(id(before), {}), other.answers.get(id(now), {})
                yield from self._answers(before, now, *answers)
        for entry in left:
            yield self._made(CaptureDifferenceKind.PACKET, entry, None)
        for entry in right:
            yield self._made(CaptureDifferenceKind.PACKET, None, entry)
        if "order" not in self.settings.ignore:
            yield from self._order(pairs, from_client=from_client)

    def _made(
        self, kind: CaptureDifferenceKind, one: Entry | None, other: Entry | None, name: str = "", *values: Any
    ) -> CaptureDifference:
        both = (values[0], values[1]) if values else (None, None)
        return CaptureDifference(kind, self.client, self.scripts, (one, other), name, both)

    def _fields(self, before: Entry, now: Entry) -> Iterator[CaptureDifference]:
        for name, expected, found in self._changed(before, now):
            if not self._is_ignored(name):
                yield self._made(CaptureDifferenceKind.FIELD, before, now, name, expected, found)

    def _is_ignored(self, name: str) -> bool:
        ignore = self.settings.ignore
        last = name.rpartition(".")[2]
        if "properties" in ignore and "properties." in name:
            return True
        return last.removeprefix("will_") in ignore or (last == "maximum_qos" and "qos" in ignore)

    def _changed(self, before: Entry, now: Entry) -> Iterator[tuple[str, Any, Any]]:
        """Path and both values of each field that differs."""
        one, other = before.packet, now.packet
        if isinstance(one, Malformed) or isinstance(other, Malformed):
            if before.raw != now.raw:
                yield "raw", before.raw, now.raw
            return
        if before.from_client and not isinstance(one, _ANSWERS):
            for change in changed_fields(before, now, identified=self.identified):
                yield change.change
        else:
            for change in field_differences(one, other, self.scripts[A].version, self.connects):
                yield change.change
            if isinstance(one, Publish) and isinstance(other, Publish) and not (one.missing or other.missing):
                yield from [("payload", one.payload, other.payload)] * (one.payload != other.payload)
        yield from self._asked_for(one, other)

    def _asked_for(self, one: ControlPacket, other: ControlPacket) -> Iterator[tuple[str, Any, Any]]:
        """What counts only because `Settings.count` says so."""
        for wanted, path in (
            ("packet-identifier", "packet_identifier"),
            ("dup", "dup"),
            ("topic-alias", "properties.topic_alias"),
            ("reason-string", "properties.reason_string"),
        ):
            if wanted in self.settings.count:
                expected, found = (_value(packet, path) for packet in (one, other))
                if expected != found:
                    yield path, expected, found

    def _answers(
        self, before: Entry, now: Entry, expected: dict[str, Entry], found: dict[str, Entry]
    ) -> Iterator[CaptureDifference]:
        """What the other side answered to two packets; another QoS has other answers."""
        if getattr(before.packet, "qos", None) != getattr(now.packet, "qos", None):
            return
        for kind in dict.fromkeys((*expected, *found)):
            one, other = expected.get(kind), found.get(kind)
            if one is not None and other is not None:
                changed = list(self._fields(one, other))
                self.equal += not changed
                yield from changed
            else:
                yield self._made(CaptureDifferenceKind.PACKET, one, other)

    def _times(self, before: Entry, now: Entry) -> Iterator[CaptureDifference]:
        tolerance = self.settings.tolerance_ns
        if tolerance is None:
            return
        after = tuple(
            entry.timestamp_ns - script.opened_ns for entry, script in zip((before, now), self.scripts, strict=True)
        )
        if abs(after[A] - after[B]) > tolerance:
            yield self._made(CaptureDifferenceKind.TIME, before, now, "", *after)

    def _order(self, pairs: list[tuple[Entry, Entry]], *, from_client: bool) -> Iterator[CaptureDifference]:
        """A client's packets in another order, and the deliveries of one topic (5.0 4.6)."""
        flows: dict[str | None, list[tuple[Entry, Entry]]] = {}
        for before, now in sorted(pairs, key=lambda pair: pair[0].place):
            if from_client:
                flows.setdefault(None, []).append((before, now))
            elif isinstance(before.packet, Publish):
                flows.setdefault(before.topic, []).append((before, now))
        for flow in flows.values():
            kept = longest_rise([now.place for _, now in flow])
            for index, (before, now) in enumerate(flow):
                if index not in kept:
                    yield self._made(CaptureDifferenceKind.ORDER, before, now)

    def _ending(self) -> Iterator[CaptureDifference]:
        """Who ended the connection, unless a DISCONNECT of the client did, after which that is chance."""
        if "close" in self.settings.ignore:
            return
        one, other = (script.ending for script in self.scripts)
        said = any(script.first(Disconnect, from_client=True) for script in self.scripts)
        if not said and "open" not in (one.how, other.how) and one.by != other.by:
            values = one.by, other.by
            yield CaptureDifference(CaptureDifferenceKind.CLOSE, self.client, self.scripts, values=values)


def _value(packet: ControlPacket, path: str) -> Any:
    name = path.removeprefix("properties.")
    return getattr(packet if name == path else getattr(packet, "properties", None), name, None)


def _key(entry: Entry, level: int, *, with_payload: bool) -> Hashable:
    """Packets that say the same come first, then messages of one topic with one payload, then those of one topic."""
    packet = entry.packet
    if isinstance(packet, Publish):
        payload = packet.payload if with_payload else b""
        said = (entry.type, entry.topic, payload, packet.qos, packet.retain)
        return said if level == 0 else said[:3] if level == 1 else said[:2]
    if isinstance(packet, Malformed):
        return entry.type, packet.raw if level == 0 else packet.reason
    if isinstance(packet, Subscribe | Unsubscribe):
        rows: list[Any] = packet.subscriptions if isinstance(packet, Subscribe) else packet.topic_filters
        names = [getattr(row, "topic_filter", row) for row in rows]
        return entry.type, tuple(names if level == 0 else sorted(names))
    return entry.type, getattr(packet, "reason_code", None) if level == 0 else None
