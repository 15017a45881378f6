"""What the options of a replay made of a recording: what was left out, changed, and copied.

The scripts as they were captured and as they are played, side by side.  From this follows which recorded deliveries
cannot come, and which differences are the user's own doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mqttscope.mqtt.packets import Connect, Publish, Subscribe
from mqttscope.mqtt.topics import compile_filter, parse_shared
from mqttscope.replay.script import Entry, Script

Key = tuple[str, bytes, int]
"""Topic, payload, and how many bytes of the payload the capture lacks."""


@dataclass(slots=True)
class Options:
    """The options that change what is played."""

    clients: Sequence[str] = ()
    filtered: bool = False
    start_ns: int | None = None
    end_ns: int | None = None
    topics: bool = False
    names: bool = False
    settings: Sequence[str] = ()
    """Paths that are set or left out."""
    copies: int = 1
    credentials: bool = False

    @property
    def parts(self) -> list[str]:
        """Those that leave parts of the recording out."""
        given = {
            "--client": self.clients,
            "--filter": self.filtered,
            "--start": self.start_ns is not None,
            "--end": self.end_ns is not None,
        }
        return [name for name, one in given.items() if one]

    def left_out_by(self, script: Script, entry: Entry) -> str:
        """Which option left a recorded packet out."""
        if self.clients and not any(fnmatchcase(script.name, one) for one in self.clients):
            return "--client"
        if self.start_ns is not None and entry.timestamp_ns < self.start_ns:
            return "--start"
        if self.end_ns is not None and entry.timestamp_ns >= self.end_ns:
            return "--end"
        return "--filter" if self.filtered else next(iter(self.parts), "")

    def sets(self, packet: str) -> bool:
        """Whether fields of a type of packet are set: ``publish``."""
        return any(one.startswith(f"{packet}.") for one in self.settings)


@dataclass(slots=True, frozen=True)
class Asked:
    """A Topic Filter of a SUBSCRIBE."""

    topic_filter: str
    place: int
    entry: Entry
    matches: Callable[[str], bool]


@dataclass(slots=True)
class Subscriptions:
    """Who subscribed to what, by Client Identifier."""

    of: dict[str, list[Asked]] = field(default_factory=dict)

    def learn(self, script: Script) -> None:
        """Take the subscriptions of a script."""
        mine = self.of.setdefault(client_of(script), [])
        for entry in script.entries:
            if entry.from_client and isinstance(entry.packet, Subscribe):
                for row in entry.packet.subscriptions:
                    shared = parse_shared(row.topic_filter) is not None
                    matches = compile_filter(row.topic_filter, shared=shared)
                    mine.append(Asked(row.topic_filter, entry.place, entry, matches))

    def matching(self, script: Script, topic: str, before: int | None = None) -> list[Asked]:
        """Those of the client of a script that a topic belongs to, up to a place."""
        mine = self.of.get(client_of(script), ())
        return [one for one in mine if (before is None or one.place < before) and one.matches(topic)]

    def anybody(self, topic: str) -> Iterator[Asked]:
        """Those of all clients that a topic belongs to."""
        return (one for mine in self.of.values() for one in mine if one.matches(topic))


class Alterations:
    """A recording, and what is played of it."""

    def __init__(self, captured: Sequence[Script], played: Sequence[Script], options: Options) -> None:
        self.options = options
        self.subscribed, self.subscribes = Subscriptions(), Subscriptions()
        """In the capture, and in what is played."""
        self.sources: dict[Key, list[Entry]] = {}
        """What is played of the messages of clients, their Wills included, by what they were in the capture."""
        self.publishes: dict[Key, list[Entry]] = {}
        """The same, by what they are now."""
        self.left_out: dict[Key, list[tuple[Entry, str]]] = {}
        """Messages of clients that are not played, and by which option."""
        self.left_out_entries: dict[str, list[tuple[Entry, str]]] = {}
        """All packets that are not played, by their client."""
        self.not_retained: dict[str, str] = {}
        """Topics whose retained message was replaced or removed by what is not played, and by which option."""
        self.not_expected: dict[int, Counter[Key]] = {}
        """By the number of a captured connection: deliveries that are no longer expected."""
        self._captured: dict[Entry, Script] = {}
        kept: set[Entry] = set()
        for script in played:
            self.subscribes.learn(script)
            for entry in script.entries:
                kept.add(origin(entry))
                if is_published(entry):
                    self.sources.setdefault(key_of(origin(entry)), []).append(entry)
                    self.publishes.setdefault(key_of(entry), []).append(entry)
        for script in captured:
            self.subscribed.learn(script)
            for entry in script.entries:
                self._captured[entry] = script
                if entry not in kept:
                    self._leave_out(script, entry)

    def _leave_out(self, script: Script, entry: Entry) -> None:
        told = entry, self.options.left_out_by(script, entry)
        self.left_out_entries.setdefault(client_of(script), []).append(told)
        if is_published(entry):
            key = key_of(entry)
            self.left_out.setdefault(key, []).append(told)
            if retained(entry):
                self.not_retained[key[0]] = told[1]
        elif isinstance(entry.packet, Publish) and not entry.from_client and entry.resends is None:
            self.not_expected.setdefault(script.connection.number, Counter())[key_of(entry)] += 1

    def captured(self, script: Script) -> Script:
        """The captured connection that a played one was made of."""
        first = next(iter(script.entries), None)
        return script if first is None else self._captured.get(origin(first), script)

    def left_out_of(self, script: Script) -> Sequence[tuple[Entry, str]]:
        """What is not played of the client of a played connection, and by which option."""
        return self.left_out_entries.get(client_of(self.captured(script)), ())

    def cannot_come(self, script: Script, entry: Entry) -> str:
        """The option because of which a recorded delivery cannot come; empty where it can."""
        before, options = origin(entry), self.options
        if not isinstance(before.packet, Publish) or before.topic is None or entry.topic is None:
            return ""
        sources = [one for one in self.sources.get(key_of(before), ()) if origin(one).place < before.place]
        gone = [how for one, how in self.left_out.get(key_of(before), ()) if one.place < before.place]
        if gone and not sources:
            return gone[0]
        if sources and all(key_of(one) != key_of(entry) for one in sources):
            return "--set"
        if before.packet.retain and sources and all(_no_longer_retained(one) for one in sources):
            return "--set"
        then = self.subscribed.matching(self.captured(script), before.topic, before.place)
        if then and not self.subscribes.matching(script, entry.topic, entry.place):
            unasked = [how for one, how in self.left_out_of(script) if all(row.entry is one for row in then)]
            if unasked:
                return unasked[0]
            mine = {row.topic_filter for row in self.subscribes.of.get(client_of(script), ())}
            if any(row.topic_filter in mine for row in then):
                return "--map-topic"  # the filter stayed, the topic did not
            return "--set" if options.sets("subscribe") else "--map-topic" if options.topics else ""
        return ""

    def unreachable(self, played: Sequence[Script]) -> set[Entry]:
        """All recorded deliveries that cannot come, and what a server says about them."""
        found: set[Entry] = set()
        for script in played:
            for entry in script.entries:
                if entry.from_client:
                    continue
                unsent = isinstance(entry.packet, Publish) and self.cannot_come(script, entry)
                if unsent or entry.answers in found or entry.resends in found:
                    found.add(entry)
        return found


def origin(entry: Entry) -> Entry:
    """The packet of the capture that an entry comes from."""
    return entry.origin or entry


def is_published(entry: Entry) -> bool:
    """Whether it is a message of a client, or a CONNECT with a Will; what is sent again is not counted."""
    if not entry.from_client:
        return False
    packet = entry.packet
    if isinstance(packet, Publish):
        return entry.topic is not None and entry.resends is None
    return isinstance(packet, Connect) and packet.will is not None


def key_of(entry: Entry) -> Key:
    """What tells messages apart; of a CONNECT, its Will."""
    packet = entry.packet
    if isinstance(packet, Connect) and packet.will is not None:
        return packet.will.will_topic, packet.will.will_payload, 0
    assert isinstance(packet, Publish)
    return entry.topic or "", packet.payload, packet.missing


def retained(entry: Entry) -> bool:
    """Whether a message of a client, or the Will of a CONNECT, is to be retained."""
    packet = entry.packet
    if isinstance(packet, Connect):
        return packet.will is not None and packet.will.will_retain
    return isinstance(packet, Publish) and packet.retain


def client_of(script: Script) -> str:
    """Whose session a connection belongs to."""
    return script.connection.client_identifier or f"\0{script.connection.number}"


def _no_longer_retained(entry: Entry) -> bool:
    return retained(origin(entry)) and not retained(entry)
