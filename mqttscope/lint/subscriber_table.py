"""The subscriptions on a server: the sessions of all captured clients, found by the topics that they get.

A connection knows its own subscriptions (`session.subscriptions`).  What one client publishes and another one gets
takes those of all: of clients that are connected, and of those whose sessions wait for them.  Looking a topic up costs
nothing for the subscriptions that do not match it, and next to nothing as long as no new wildcard filter comes: who
holds a filter changes with every reconnect, the filters themselves are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.lint.context import ConnectionKey
from mqttscope.mqtt.topics import parse_shared
from mqttscope.session.history import NEVER_NS
from mqttscope.session.matching import FilterIndex

MAX_SESSIONS = 100_000
"""Sessions of a server; beyond them the one that connected longest ago is forgotten."""
MAX_SUBSCRIPTIONS = 200_000
"""Subscriptions of a server; later ones are not in the table, which then is not `SubscriberTable.whole`."""
MAX_HOLDERS = 1_000
"""Subscriptions of one topic that are looked at; what a message with more of them does is not judged."""
MAX_PATTERNS = 1_000
"""Filters with wildcards that are looked at for one topic."""
MAX_MATCHED = 10_000
"""Topics of which the filters that match are remembered."""
MAX_EMPTY = 1_000
"""Filters without a subscriber that stay, beside as many as have one: their clients may come back."""
EXTENSIONS = ("$queue/", "$exclusive/")
"""What some servers take for an option of the subscription to the filter that follows."""


@dataclass(slots=True)
class Held:
    """A subscription that a session holds."""

    owner: str
    """Client Identifier of the session, or the endpoint of a client whose identifier is not known."""
    topic_filter: str
    """As sent."""
    plain_filter: str
    """What topics are compared with."""
    is_shared: bool
    """Whether it is shared, or something like it that only some servers know."""
    no_local: bool
    packet: int
    """Number of the SUBSCRIBE."""
    frame: int
    timestamp_ns: int
    qos: int = -1
    """As granted; -1 before the SUBACK, and after one that refuses it."""
    granted_ns: int = NEVER_NS
    """When that was."""
    ending: bool = False
    """Whether an UNSUBSCRIBE is under way."""


@dataclass(slots=True)
class KnownSession:
    """The session of a client."""

    owner: str
    key: ConnectionKey | None
    """Its connection; ``None`` while it sleeps."""
    since_ns: int
    """When that was accepted, or ended."""
    limit: int | None = None
    """Maximum Packet Size of the client, in bytes."""
    until_ns: int = NEVER_NS
    """When it ends while it sleeps."""
    queued: int = 0
    """Messages for it since it fell asleep."""
    held: dict[str, Held] = field(default_factory=dict)
    """By Topic Filter."""


@dataclass(slots=True)
class SubscriberTable:
    """The sessions of one server and their subscriptions."""

    sessions: dict[str, KnownSession] = field(default_factory=dict)
    """By owner, in the order of their connections."""
    holders: dict[str, dict[tuple[str, str], Held]] = field(default_factory=dict)
    """By plain filter, then by owner and Topic Filter; those with wildcards stay when nobody is subscribed any more."""
    number: int = 0
    """Of all subscriptions."""
    shared: int = 0
    """Of those that are shared."""
    patterns: int = 0
    """Filters with wildcards among ``holders``."""
    held_patterns: int = 0
    """Those of them that have a subscriber."""
    revision: int = 0
    """Grows whenever other filters with wildcards may match."""
    strangers: dict[ConnectionKey, bool] = field(default_factory=dict)
    """Open connections whose sessions may have subscriptions that were not captured; ``False`` as long as only a
    CONNACK that is still to come can tell."""
    whole: bool = True
    """Whether no subscription was left out for want of room."""
    index: FilterIndex | None = field(default=None, compare=False, repr=False)
    """Of the filters with wildcards; made from ``holders`` when a topic is looked up, and not written down with the
    rest."""
    matched: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    """What `matching` found by topic, for the revision below; not written down either."""
    matched_revision: int = field(default=-1, compare=False, repr=False)

    def connect(self, owner: str, key: ConnectionKey, timestamp_ns: int, *, resumes: bool) -> KnownSession:
        """A connection was accepted; ``resumes``: with a session that had been there before."""
        session = self.sessions.pop(owner, None)
        if session is not None and session.key == key:
            self._accept(session, key, resumes=resumes)
            session.since_ns = timestamp_ns
            self.sessions[owner] = session
            return session
        if session is not None and (not resumes or session.until_ns < timestamp_ns):
            self._clear(session)
            session = None
        if session is None:
            if resumes:
                self.strange(key)
            if len(self.sessions) >= MAX_SESSIONS:
                self._forget_oldest()
            session = KnownSession(owner, key, timestamp_ns)
        session.key, session.since_ns, session.until_ns = key, timestamp_ns, NEVER_NS
        self.sessions[owner] = session
        return session

    def ask(self, owner: str, key: ConnectionKey, timestamp_ns: int) -> KnownSession:
        """A client subscribes before its connection is accepted, as it may (5.0 3.1.4): `connect` follows."""
        known = key in self.strangers
        session = self.connect(owner, key, timestamp_ns, resumes=True)
        if not known and (key in self.strangers or len(self.strangers) < MAX_SESSIONS):
            self.strangers[key] = False
        return session

    def _accept(self, session: KnownSession, key: ConnectionKey, *, resumes: bool) -> None:
        """Keep what a client has subscribed to on this connection, and what it had before only if that continues."""
        before = [name for name, held in session.held.items() if held.timestamp_ns < session.since_ns]
        if not resumes:
            for name in before:
                self.unsubscribe(session, name)
        if self.strangers.get(key) is False:
            if resumes and not before:
                self.strangers[key] = True
            else:
                del self.strangers[key]

    def refuse(self, owner: str, key: ConnectionKey) -> None:
        """A connection was refused: nothing comes of what its client has subscribed to."""
        session = self.sessions.get(owner)
        if session is not None and session.key == key:
            for name in [name for name, held in session.held.items() if held.timestamp_ns >= session.since_ns]:
                self.unsubscribe(session, name)

    def strange(self, key: ConnectionKey) -> None:
        """A connection may have subscriptions that were not captured."""
        if len(self.strangers) < MAX_SESSIONS:
            self.strangers[key] = True
        else:
            self.whole = False

    def leave(self, owner: str, key: ConnectionKey, timestamp_ns: int, expiry: float) -> None:
        """A connection has ended; its session stays for so many seconds."""
        self.strangers.pop(key, None)
        session = self.sessions.get(owner)
        if session is None or session.key != key:
            return
        if expiry <= 0 or not session.held:
            self.end(owner)
            return
        session.key, session.since_ns = None, timestamp_ns
        session.queued = 0
        session.until_ns = min(NEVER_NS, timestamp_ns + round(min(expiry, 1e9) * 1_000_000_000))

    def end(self, owner: str) -> None:
        session = self.sessions.pop(owner, None)
        if session is not None:
            self._clear(session)

    def _forget_oldest(self) -> None:
        """Make room; the open connection of a forgotten session may get what no subscription of the table explains."""
        session = next(iter(self.sessions.values()))
        self.end(session.owner)
        if session.key is not None:
            self.strange(session.key)

    def _clear(self, session: KnownSession) -> None:
        for held in session.held.values():
            self._out(held)
        session.held.clear()

    def subscribe(self, session: KnownSession, held: Held) -> None:
        """A session asks for a subscription; one with its filter that was there is replaced."""
        name = held.topic_filter
        before = session.held.pop(name, None)
        if before is not None:
            self._out(before)
        elif self.number >= MAX_SUBSCRIPTIONS:
            self.whole = False
            return
        session.held[name] = held
        self.number += 1
        self.shared += held.is_shared
        plain = held.plain_filter
        known = self.holders.get(plain)
        if known is None:
            known = self.holders[plain] = {}
            if is_pattern(plain):
                self.patterns += 1
                self.revision += 1
                if self.index is not None:
                    self.index.add(plain, plain)
        if not known and is_pattern(plain):
            self.held_patterns += 1
        known[held.owner, name] = held

    def unsubscribe(self, session: KnownSession, topic_filter: str) -> None:
        """A session does not hold a subscription any more."""
        held = session.held.pop(topic_filter, None)
        if held is not None:
            self._out(held)

    def _out(self, held: Held) -> None:
        self.number -= 1
        self.shared -= held.is_shared
        plain = held.plain_filter
        known = self.holders[plain]
        del known[held.owner, held.topic_filter]
        if known:
            return
        if not is_pattern(plain):
            del self.holders[plain]
            return
        self.held_patterns -= 1
        if self.patterns > 2 * self.held_patterns + MAX_EMPTY:
            self.holders = {name: held for name, held in self.holders.items() if held}
            self.patterns = self.held_patterns
            self.index = None
            self.revision += 1

    def matching(self, topic: str) -> tuple[str, ...]:
        """Filters with wildcards that match a topic, `MAX_PATTERNS` at most, with a subscriber or without."""
        matched = self.matched
        if self.matched_revision != self.revision or len(matched) >= MAX_MATCHED:
            matched.clear()
            self.matched_revision = self.revision
        found = matched.get(topic)
        if found is None:
            index = self.index
            if index is None:
                index = self.index = FilterIndex()
                for plain in self.holders:
                    if is_pattern(plain):
                        index.add(plain, plain)
            found = tuple(index.match(topic, MAX_PATTERNS + 1))
            if len(found) > MAX_PATTERNS:
                self.whole, found = False, found[:MAX_PATTERNS]
            matched[topic] = found
        return found

    def holding(self, topic: str, patterns: tuple[str, ...]) -> list[dict[tuple[str, str], Held]]:
        """Who holds a topic as it stands, and each of these filters."""
        holders = self.holders
        found = []
        for name in patterns:
            one = holders.get(name)
            if one:
                found.append(one)
        exact = holders.get(topic)
        if exact:
            found.append(exact)
        return found


def is_pattern(plain: str) -> bool:
    """Whether a filter may match anything else than the topic of its name."""
    return "+" in plain or "#" in plain


def plain_filter(topic_filter: str) -> tuple[str, bool]:
    """What topics are compared with, and whether the subscription may be shared, in whatever version.

    Servers before 5.0 may know shares too, so that nothing must rest on these being ordinary filters.
    """
    share = parse_shared(topic_filter)
    if share is not None:
        return share[1], True
    for prefix in EXTENSIONS:
        if topic_filter.startswith(prefix):
            return topic_filter.removeprefix(prefix), True
    return topic_filter, False
