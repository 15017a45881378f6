"""The subscriptions on a server: the sessions of all captured clients, indexed by topic.

A connection has its own subscriptions (`session.subscriptions`).  Routing between clients needs the subscriptions of
all clients: connected ones, and ones with a waiting session.  Looking up a topic costs nothing for subscriptions that
do not match, and almost nothing while no new wildcard filter appears: the holders of a filter change with every
reconnect, the filters themselves stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.lint.context import ConnectionKey
from mqttscope.mqtt.topics import parse_shared
from mqttscope.session.history import NEVER_NS
from mqttscope.session.matching import FilterIndex

MAX_SESSIONS = 100_000
"""Maximum number of sessions per server; the one that connected longest ago is dropped first."""
MAX_SUBSCRIPTIONS = 200_000
"""Maximum number of subscriptions per server; beyond it the table is not `SubscriberTable.whole`."""
MAX_HOLDERS = 1_000
"""Maximum number of subscriptions examined per topic; a message with more is not judged."""
MAX_PATTERNS = 1_000
"""Maximum number of filters with wildcards examined per topic."""
MAX_MATCHED = 10_000
"""Maximum number of topics with cached matching filters."""
MAX_EMPTY = 1_000
"""Maximum number of unused filters kept in addition to one per used filter: their clients may come back."""
EXTENSIONS = ("$queue/", "$exclusive/")
"""Prefixes that some servers take as an option of the filter that follows."""


@dataclass(slots=True)
class HeldSubscription:
    """A subscription of a session."""

    owner: str
    """Client Identifier of the session, or the endpoint of a client without a known identifier."""
    topic_filter: str
    """As sent in the SUBSCRIBE."""
    plain_filter: str
    """The filter to compare topics with."""
    is_shared: bool
    """Whether it is shared, or has a similar prefix that only some servers support."""
    no_local: bool
    packet: int
    """Number of the SUBSCRIBE."""
    frame: int
    timestamp_ns: int
    qos: int = -1
    """Granted QoS; -1 before the SUBACK, and after a refusal."""
    granted_ns: int = NEVER_NS
    """When it was granted."""
    ending: bool = False
    """Whether an UNSUBSCRIBE is in flight."""


@dataclass(slots=True)
class KnownSession:
    """The session of a client."""

    owner: str
    key: ConnectionKey | None
    """Its connection; ``None`` while the client is away."""
    since_ns: int
    """When that connection was accepted, or ended."""
    limit: int | None = None
    """Maximum Packet Size of the client, in bytes."""
    until_ns: int = NEVER_NS
    """When the session ends while the client is away."""
    queued: int = 0
    """Number of messages for it since the client left."""
    held: dict[str, HeldSubscription] = field(default_factory=dict)
    """Subscriptions by Topic Filter."""


@dataclass(slots=True)
class SubscriberTable:
    """The sessions of one server and their subscriptions."""

    sessions: dict[str, KnownSession] = field(default_factory=dict)
    """Sessions by owner, in the order of their connections."""
    holders: dict[str, dict[tuple[str, str], HeldSubscription]] = field(default_factory=dict)
    """By plain filter, then by owner and Topic Filter; filters with wildcards stay when they have no subscriber."""
    number: int = 0
    """Number of all subscriptions."""
    shared: int = 0
    """Number of shared subscriptions."""
    patterns: int = 0
    """Number of filters with wildcards among ``holders``."""
    held_patterns: int = 0
    """Number of such filters with a subscriber."""
    revision: int = 0
    """Increases whenever other filters with wildcards may match."""
    strangers: dict[ConnectionKey, bool] = field(default_factory=dict)
    """Open connections with sessions that may have uncaptured subscriptions; ``False`` while only the CONNACK to come
    can decide that."""
    whole: bool = True
    """Whether all subscriptions had room."""
    index: FilterIndex | None = field(default=None, compare=False, repr=False)
    """Index of the filters with wildcards; built from ``holders`` when a topic is looked up, and not stored."""
    matched: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)
    """Results of `matching` by topic, for ``matched_revision``; not stored."""
    matched_revision: int = field(default=-1, compare=False, repr=False)

    def connect(self, owner: str, key: ConnectionKey, timestamp_ns: int, *, resumes: bool) -> KnownSession:
        """Handle an accepted connection; ``resumes``: its session existed before."""
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
                self.mark_incomplete(key)
            if len(self.sessions) >= MAX_SESSIONS:
                self._forget_oldest()
            session = KnownSession(owner, key, timestamp_ns)
        session.key, session.since_ns, session.until_ns = key, timestamp_ns, NEVER_NS
        self.sessions[owner] = session
        return session

    def ask(self, owner: str, key: ConnectionKey, timestamp_ns: int) -> KnownSession:
        """Handle a SUBSCRIBE before the CONNACK, which is allowed (5.0 3.1.4): `connect` follows."""
        known = key in self.strangers
        session = self.connect(owner, key, timestamp_ns, resumes=True)
        if not known and (key in self.strangers or len(self.strangers) < MAX_SESSIONS):
            self.strangers[key] = False
        return session

    def _accept(self, session: KnownSession, key: ConnectionKey, *, resumes: bool) -> None:
        """Keep subscriptions of this connection, and earlier ones only if the session continues."""
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
        """Handle a refused connection: its subscriptions are void."""
        session = self.sessions.get(owner)
        if session is not None and session.key == key:
            for name in [name for name, held in session.held.items() if held.timestamp_ns >= session.since_ns]:
                self.unsubscribe(session, name)

    def mark_incomplete(self, key: ConnectionKey) -> None:
        """Mark a connection that may have uncaptured subscriptions."""
        if len(self.strangers) < MAX_SESSIONS:
            self.strangers[key] = True
        else:
            self.whole = False

    def leave(self, owner: str, key: ConnectionKey, timestamp_ns: int, expiry: float) -> None:
        """Handle the end of a connection; its session is kept for ``expiry`` seconds."""
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
        """Drop the oldest session; its open connection may get messages that no subscription of the table explains."""
        session = next(iter(self.sessions.values()))
        self.end(session.owner)
        if session.key is not None:
            self.mark_incomplete(session.key)

    def _clear(self, session: KnownSession) -> None:
        for held in session.held.values():
            self._out(held)
        session.held.clear()

    def subscribe(self, session: KnownSession, held: HeldSubscription) -> None:
        """Add a subscription to a session; it replaces one with the same filter."""
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
        """Remove a subscription from a session."""
        held = session.held.pop(topic_filter, None)
        if held is not None:
            self._out(held)

    def _out(self, held: HeldSubscription) -> None:
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
        """Filters with wildcards that match a topic, `MAX_PATTERNS` at most, used or unused."""
        matched = self.matched
        if self.matched_revision != self.revision or len(matched) >= MAX_MATCHED:
            matched.clear()
            self.matched_revision = self.revision
        filters = matched.get(topic)
        if filters is None:
            index = self.index
            if index is None:
                index = self.index = FilterIndex()
                for plain in self.holders:
                    if is_pattern(plain):
                        index.add(plain, plain)
            filters = tuple(index.match(topic, MAX_PATTERNS + 1))
            if len(filters) > MAX_PATTERNS:
                self.whole, filters = False, filters[:MAX_PATTERNS]
            matched[topic] = filters
        return filters

    def holding(self, topic: str, patterns: tuple[str, ...]) -> list[dict[tuple[str, str], HeldSubscription]]:
        """Subscriptions to exactly a topic, and to each of these filters."""
        holders = self.holders
        tables = []
        for name in patterns:
            subscriptions = holders.get(name)
            if subscriptions:
                tables.append(subscriptions)
        exact = holders.get(topic)
        if exact:
            tables.append(exact)
        return tables


def is_pattern(plain: str) -> bool:
    """Whether a filter may match a topic other than its own text."""
    return "+" in plain or "#" in plain


def plain_filter(topic_filter: str) -> tuple[str, bool]:
    """The filter to compare topics with, and whether the subscription may be shared in any version.

    Servers before 5.0 may support shares too, so such filters may not be ordinary ones.
    """
    share = parse_shared(topic_filter)
    if share is not None:
        return share[1], True
    for prefix in EXTENSIONS:
        if topic_filter.startswith(prefix):
            return topic_filter.removeprefix(prefix), True
    return topic_filter, False
