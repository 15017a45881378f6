"""Facts about a recording and its replay: packets performed, messages published, and subscriptions, by client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.packets import Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.topics import compile_filter, parse_shared
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.verify.difference import DeviceKind, Difference, DifferenceKind, Tally
from mqttscope.replay.verify.fields import FAILURE

IGNORED_TOPICS = ("$SYS/#",)
"""Topics of brokers' information about themselves."""

Key = tuple[str, bytes, int]
"""Topic, payload, and number of payload bytes that the capture lacks."""

NOT_PERFORMED = "the replay did not perform the step that it belongs to"
INCOMPLETE = "the recording is not complete"
ENDED = "the recording ended too early to show it"
UNREADABLE = "the recording does not show the whole packet"


@dataclass(slots=True)
class Publication:
    """A message that a client published, its Will included."""

    entry: ScriptEntry
    """The PUBLISH, or the CONNECT with the Will."""
    script: Script
    qos: int
    expiry: int | None
    performed: ScriptEntry | None = None
    """The corresponding packet of the replay."""

    @property
    def client(self) -> str:
        return client_of(self.script)


@dataclass(slots=True, frozen=True)
class RecordedFilter:
    """One Topic Filter of a SUBSCRIBE."""

    topic_filter: str
    entry: ScriptEntry
    script: Script
    position: int
    matches: Callable[[str], bool]
    shared: bool


def filters_of(script: Script) -> Iterator[RecordedFilter]:
    """The Topic Filters that the client of a connection subscribes to, in their order."""
    for entry in script.entries:
        if entry.from_client and isinstance(entry.packet, Subscribe):
            for position, row in enumerate(entry.packet.subscriptions):
                shared = parse_shared(row.topic_filter) is not None
                matches = compile_filter(row.topic_filter, shared=shared)
                yield RecordedFilter(row.topic_filter, entry, script, position, matches, shared)


@dataclass(slots=True)
class FilterTable:
    """Subscriptions by Client Identifier."""

    by_client: dict[str, list[RecordedFilter]] = field(default_factory=dict)
    _found: dict[tuple[str, str], list[RecordedFilter]] = field(default_factory=dict)

    def learn(self, script: Script) -> None:
        self.by_client.setdefault(client_of(script), []).extend(filters_of(script))

    def matching(self, script: Script, topic: str) -> list[RecordedFilter]:
        """Subscriptions of a script's client that match a topic."""
        key = client_of(script), topic
        rows = self._found.get(key)
        if rows is None:
            rows = self._found[key] = [row for row in self.by_client.get(key[0], ()) if row.matches(topic)]
        return rows

    def subscriptions_to(self, topic: str) -> Iterator[RecordedFilter]:
        return (row for rows in self.by_client.values() for row in rows if row.matches(topic))


@dataclass(slots=True, eq=False)
class ConnectionPair:
    """A recorded connection and its replay."""

    script: Script
    live: Script | None
    tally: Tally
    differences: list[Difference] = field(default_factory=list)
    cause: Difference | None = None
    """Difference that kept the connection from continuing as recorded."""
    session_lost: Difference | None = None
    """Difference in Session Present: only the recorded broker had a session of the client."""

    last_from_server: int = -1
    """Place of the last recorded packet of the broker."""
    releases: dict[int, ScriptEntry] = field(default_factory=dict)
    """The PUBREL of each delivery with QoS 2, on both sides."""
    again: set[int] = field(default_factory=set)
    """Deliveries that the broker resent on the same connection: each message counts once."""
    acknowledged: set[int] = field(default_factory=set)
    """Deliveries that the client answered, on both sides."""

    def __post_init__(self) -> None:
        for script in (self.script, self.live):
            if script is not None:
                self._follow_deliveries(script)
        self.last_from_server = max((entry.place for entry in self.script.entries if not entry.from_client), default=-1)

    def _follow_deliveries(self, script: Script) -> None:
        """Find what belongs to each delivery by its packet identifier, as in both kinds of scripts."""
        running: dict[int, ScriptEntry] = {}
        for entry in script.entries:
            packet = entry.packet
            if isinstance(packet, Publish):
                if entry.from_client or packet.packet_identifier is None:
                    continue
                first = running.get(packet.packet_identifier)
                if packet.dup and first is not None and getattr(first.packet, "payload", None) == packet.payload:
                    self.again.add(id(entry))
                else:
                    running[packet.packet_identifier] = entry
            elif isinstance(packet, Puback | Pubrec | Pubcomp) and entry.from_client:
                delivery = running.get(packet.packet_identifier)
                if delivery is not None:
                    self.acknowledged.add(id(delivery))
                    if not isinstance(packet, Pubrec) or (packet.reason_code or 0) >= FAILURE:
                        del running[packet.packet_identifier]
            elif isinstance(packet, Pubrel) and not entry.from_client and packet.packet_identifier in running:
                self.releases.setdefault(id(running[packet.packet_identifier]), entry)

    @property
    def joined(self) -> bool:
        """Whether the recording begins in the middle of the connection."""
        return bool(self.script.entries) and connect_of(self.script) is None

    @property
    def lost_from_server(self) -> int:
        """Bytes of the broker that the recording lacks."""
        return self.script.lost - self.script.lost_from_client

    def add(
        self,
        kind: DifferenceKind | DeviceKind,
        message: str,
        recorded: ScriptEntry | None = None,
        live: ScriptEntry | None = None,
        change: tuple[str, Any, Any] = ("", None, None),
    ) -> Difference:
        """Add a difference; ``change`` is the path of a field with its recorded and its live value."""
        difference = Difference(kind, self.script, recorded, live, *change, message, self.live)
        self.differences.append(difference)
        for entry in (recorded, live):
            if entry is not None and not entry.from_client:
                self.tally.different(entry)
                return difference
        self.tally.otherwise()
        return difference

    def follow(self, entry: ScriptEntry, cause: Difference) -> None:
        """Count an entry as missing because of a difference, perhaps of another connection."""
        cause.follows += 1
        self.tally.follow(entry)


def connect_of(script: Script) -> ScriptEntry | None:
    """The CONNECT of a connection, even if it cannot be read."""
    for entry in script.entries:
        if entry.from_client and entry.packet.packet_type == PacketType.CONNECT:
            return entry
    return None


def client_of(script: Script) -> str:
    return script.connection.client_identifier or f"\0{script.connection.number}"


def is_published(entry: ScriptEntry) -> bool:
    """Whether an entry is a message of a client, or a CONNECT with a Will; resent messages are not."""
    if not entry.from_client:
        return False
    packet = entry.packet
    if isinstance(packet, Publish):
        return entry.topic is not None and entry.resends is None
    return isinstance(packet, Connect) and packet.will is not None


def key_of(entry: ScriptEntry) -> Key:
    """Key that distinguishes messages; for a CONNECT, of its Will."""
    packet = entry.packet
    if isinstance(packet, Connect) and packet.will is not None:
        return packet.will.will_topic, packet.will.will_payload, 0
    assert isinstance(packet, Publish)
    return entry.topic or "", packet.payload, packet.missing


class ReplayRun:
    """A recording and its replay."""

    def __init__(
        self,
        pairs: Iterable[tuple[Script, Script | None]],
        skipped: Iterable[ScriptEntry] = (),
        ignored_topics: Iterable[str] = IGNORED_TOPICS,
    ) -> None:
        self.pairs = [ConnectionPair(recorded, live, Tally(recorded)) for recorded, live in pairs]
        self._ignored = [compile_filter(topic_filter) for topic_filter in ignored_topics]
        self.skipped = {id(entry) for entry in skipped}
        self.performed: dict[int, ScriptEntry] = {}
        """Client packets of the replay by the recorded ones they perform; the first if one was sent again."""
        self.publications: dict[Key, list[Publication]] = {}
        self.refused: dict[int, Difference] = {}
        """Publications that only the live broker refused, by their recorded entry."""
        self.changed: dict[tuple[int, int], Difference] = {}
        """Subscriptions that were answered in another way, by their SUBSCRIBE and the position in it."""
        self._filters = FilterTable()
        for pair in self.pairs:
            for entry in pair.live.entries if pair.live else ():
                if entry.from_client and entry.source is not None:
                    self.performed.setdefault(id(entry.source), entry)
        for pair in self.pairs:
            self._filters.learn(pair.script)
            for entry in pair.script.entries:
                if is_published(entry):
                    self._learn(pair.script, entry)
        self.incomplete = any(pair.joined or pair.script.lost_from_client for pair in self.pairs)
        """Whether clients may have published messages that the recording does not show."""

    def _learn(self, script: Script, entry: ScriptEntry) -> None:
        message = entry.packet.will if isinstance(entry.packet, Connect) else entry.packet
        assert isinstance(message, Publish | Will)
        qos = message.qos if isinstance(message, Publish) else message.will_qos
        expiry = None if message.properties is None else message.properties.message_expiry_interval
        publication = Publication(entry, script, qos, expiry, self.performed.get(id(entry)))
        self.publications.setdefault(key_of(entry), []).append(publication)

    def ignores(self, topic: str) -> bool:
        return any(matches(topic) for matches in self._ignored)

    def subscriptions(self, script: Script, topic: str | None) -> list[RecordedFilter]:
        return self._filters.matching(script, topic or "")

    def played_with_qos(self, entry: ScriptEntry) -> int | None:
        """The QoS of a recorded PUBLISH in the replay: a live broker may not allow the recorded one."""
        performed = self.performed.get(id(entry))
        return performed.packet.qos if performed is not None and isinstance(performed.packet, Publish) else None

    def was_skipped(self, entry: ScriptEntry) -> bool:
        return id(entry) in self.skipped
