"""What a comparison knows of a recording and its replay: what was performed, published and subscribed, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqttscope.mqtt.constants import PacketType
from mqttscope.mqtt.packets import Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from mqttscope.mqtt.topics import compile_filter, parse_shared
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, Tally
from mqttscope.replay.verify.fields import FAILURE

IGNORED_TOPICS = ("$SYS/#",)
"""What brokers tell of themselves."""

Key = tuple[str, bytes, int]
"""Topic, payload, and how many bytes of the payload the capture lacks."""

NOT_PERFORMED = "the replay did not perform what it belongs to"
INCOMPLETE = "the recording is not complete"
ENDED = "the recording ended too early to show it"
UNREADABLE = "the recording does not show the whole packet"


@dataclass(slots=True)
class Publication:
    """A message that a client published, its Will included."""

    entry: Entry
    """The PUBLISH, or the CONNECT that has the Will."""
    script: Script
    qos: int
    expiry: int | None
    performed: Entry | None = None
    """The same in the replay."""

    @property
    def client(self) -> str:
        return client_of(self.script)


@dataclass(slots=True)
class Wanted:
    """One Topic Filter of a recorded SUBSCRIBE."""

    topic_filter: str
    entry: Entry
    script: Script
    position: int
    matches: Callable[[str], bool] = lambda topic: False

    @property
    def shared(self) -> bool:
        return parse_shared(self.topic_filter) is not None


@dataclass(slots=True, eq=False)
class Pair:
    """A recorded connection and its replay."""

    script: Script
    live: Script | None
    tally: Tally
    differences: list[Difference] = field(default_factory=list)
    cause: Difference | None = None
    """Why the connection could not continue as it did in the recording."""
    session_lost: Difference | None = None
    """The broker had a session of the client in the recording, and has none in the replay."""

    last_from_server: int = -1
    """Place of the last recorded packet of the broker."""
    releases: dict[int, Entry] = field(default_factory=dict)
    """The PUBREL of each delivery with QoS 2, on both sides."""
    again: set[int] = field(default_factory=set)
    """Deliveries that the broker sent again on the same connection: each message counts once."""
    acknowledged: set[int] = field(default_factory=set)
    """Deliveries that the client answered, on both sides."""

    def __post_init__(self) -> None:
        for script in (self.script, self.live):
            if script is not None:
                self._follow_deliveries(script)
        self.last_from_server = max((one.place for one in self.script.entries if not one.from_client), default=-1)

    def _follow_deliveries(self, script: Script) -> None:
        """Packet Identifiers tell what belongs to a delivery, whoever wrote the script."""
        running: dict[int, Entry] = {}
        for entry in script.entries:
            packet = entry.packet
            if isinstance(packet, Publish):
                if entry.from_client or packet.packet_identifier is None:
                    continue
                first = running.get(packet.packet_identifier)
                if packet.dup and first is not None and _same_message(first, entry):
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

    def add(self, difference: Difference) -> Difference:
        """Take a difference."""
        difference.live_script = difference.live_script or self.live
        self.differences.append(difference)
        for entry in (difference.recorded, difference.live):
            if entry is not None and not entry.from_client:
                self.tally.different(entry)
                return difference
        self.tally.otherwise()
        return difference

    def follow(self, entry: Entry, cause: Difference) -> None:
        """An entry is missing because of a difference, perhaps of another connection."""
        cause.follows += 1
        self.tally.follow(entry)


def _same_message(first: Entry, again: Entry) -> bool:
    before, now = first.packet, again.packet
    return isinstance(before, Publish) and isinstance(now, Publish) and before.payload == now.payload


def connect_of(script: Script) -> Entry | None:
    """The CONNECT of a connection, also one that cannot be read."""
    for entry in script.entries:
        if entry.from_client and entry.packet.packet_type == PacketType.CONNECT:
            return entry
    return None


def client_of(script: Script) -> str:
    return script.connection.client_identifier or f"\0{script.connection.number}"


class ReplayRun:
    """A recording and its replay."""

    def __init__(
        self,
        pairs: Iterable[tuple[Script, Script | None]],
        skipped: Iterable[Entry] = (),
        ignored_topics: Iterable[str] = IGNORED_TOPICS,
    ) -> None:
        self.pairs = [Pair(recorded, live, Tally(recorded)) for recorded, live in pairs]
        self._ignored = [compile_filter(one) for one in ignored_topics]
        self.skipped = {id(entry) for entry in skipped}
        self.performed: dict[int, Entry] = {}
        """Client packets of the replay by the recorded ones they perform; the first where one was sent again."""
        self.publications: dict[Key, list[Publication]] = {}
        self.refused: dict[int, Difference] = {}
        """Publications that the live broker refused and the recorded one did not, by their recorded entry."""
        self.changed: dict[tuple[int, int], Difference] = {}
        """Subscriptions that were answered in another way, by their SUBSCRIBE and the position in it."""
        self._found: dict[tuple[str, str], list[Wanted]] = {}
        self.wanted: dict[str, list[Wanted]] = {}
        """What each client subscribed to, on all its connections."""
        for pair in self.pairs:
            for entry in pair.live.entries if pair.live else ():
                if entry.from_client and entry.source is not None:
                    self.performed.setdefault(id(entry.source), entry)
        for pair in self.pairs:
            for entry in pair.script.entries:
                if entry.from_client:
                    self._learn(pair.script, entry)
        self.incomplete = any(pair.joined or pair.script.lost_from_client for pair in self.pairs)
        """Whether clients may have published what the recording does not show."""

    def _learn(self, script: Script, entry: Entry) -> None:
        packet = entry.packet
        performed = self.performed.get(id(entry))
        if isinstance(packet, Publish):
            if entry.topic is not None and entry.resends is None:
                key = entry.topic, packet.payload, packet.missing
                expiry = None if packet.properties is None else packet.properties.message_expiry_interval
                self._published(key, Publication(entry, script, packet.qos, expiry, performed))
        elif isinstance(packet, Connect):
            will = packet.will
            if will is not None:
                expiry = None if will.properties is None else will.properties.message_expiry_interval
                key = will.will_topic, will.will_payload, 0
                self._published(key, Publication(entry, script, will.will_qos, expiry, performed))
        elif isinstance(packet, Subscribe):
            rows = self.wanted.setdefault(client_of(script), [])
            for position, row in enumerate(packet.subscriptions):
                shared = parse_shared(row.topic_filter) is not None
                matches = compile_filter(row.topic_filter, shared=shared)
                rows.append(Wanted(row.topic_filter, entry, script, position, matches))

    def _published(self, key: Key, publication: Publication) -> None:
        self.publications.setdefault(key, []).append(publication)

    def ignores(self, topic: str) -> bool:
        """Whether deliveries of a topic are not compared at all."""
        return any(matches(topic) for matches in self._ignored)

    def subscriptions(self, script: Script, topic: str) -> list[Wanted]:
        """Subscriptions of the client of a connection that a topic belongs to."""
        key = client_of(script), topic
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = [one for one in self.wanted.get(key[0], ()) if one.matches(topic)]
        return found

    def played_with_qos(self, entry: Entry) -> int | None:
        """The QoS with which the replay sent a recorded PUBLISH: a live broker may not allow the recorded one."""
        performed = self.performed.get(id(entry))
        return performed.packet.qos if performed is not None and isinstance(performed.packet, Publish) else None

    def was_skipped(self, entry: Entry) -> bool:
        """Whether the replay left a recorded packet out on purpose."""
        return id(entry) in self.skipped
