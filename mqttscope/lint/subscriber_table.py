"""Who has subscribed to what on a server: the sessions of all captured clients, found by the topics that they get.

A connection knows its own subscriptions (`session.subscriptions`).  What one client publishes and another one gets
takes those of all: of clients that are connected, and of those whose sessions wait for them.  Looking a topic up costs
nothing for the subscriptions that do not match it, and nothing at all as long as none of them changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.lint.context import ConnectionKey
from mqttscope.mqtt.topics import parse_shared
from mqttscope.session.filter_index import FilterIndex
from mqttscope.session.history import NEVER_NS

MAX_SESSIONS = 100_000
"""Sessions of a server; beyond them the ones that sleep for longest are forgotten."""
MAX_SUBSCRIPTIONS = 200_000
"""Subscriptions of a server; later ones are not in the table, which then is not `SubscriberTable.whole`."""
MAX_HOLDERS = 1_000
"""Subscriptions of one topic that are looked at; what a message with more of them does is not judged."""
EXTENSIONS = ("$queue/", "$exclusive/")
"""What some servers take for an option of the subscription to the filter behind it."""


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
class Session:
    """The session of a client."""

    owner: str
    key: ConnectionKey | None
    """Its connection; ``None`` while it sleeps."""
    since_ns: int
    """When that was accepted, or ended."""
    limit: int | None = None
    """Maximum Packet Size of the client, in bytes."""
    slept_ns: int = 0
    """When it fell asleep the last time; 0 for never."""
    until_ns: int = NEVER_NS
    """When it ends while it sleeps."""
    held: dict[str, Held] = field(default_factory=dict)
    """By Topic Filter."""


@dataclass(slots=True)
class SubscriberTable:
    """The sessions of one server and their subscriptions."""

    sessions: dict[str, Session] = field(default_factory=dict)
    """By owner, in the order of their connections."""
    holders: dict[str, dict[tuple[str, str], Held]] = field(default_factory=dict)
    """By plain filter, then by owner and Topic Filter."""
    number: int = 0
    """Of all subscriptions."""
    revision: int = 0
    """Grows whenever other subscriptions may match."""
    strangers: dict[ConnectionKey, bool] = field(default_factory=dict)
    """Open connections whose sessions may have subscriptions that nobody has seen."""
    whole: bool = True
    """Whether none was left out for want of room."""
    index: FilterIndex | None = field(default=None, compare=False, repr=False)
    """Of the plain filters; made from ``holders`` when a topic is looked up, and not written down with the rest."""

    def connect(self, owner: str, key: ConnectionKey, timestamp_ns: int, *, resumes: bool) -> Session:
        """A connection was accepted; ``resumes`` says whether with a session that had been there before."""
        session = self.sessions.pop(owner, None)
        if session is not None and (not resumes or session.until_ns < timestamp_ns):
            self._clear(session)
            session = None
        if session is None:
            if resumes:
                self.strange(key)
            if len(self.sessions) >= MAX_SESSIONS:
                self.end(next(iter(self.sessions)))
            session = Session(owner, key, timestamp_ns)
        elif session.key is not None:
            session.slept_ns = timestamp_ns  # taken over
        session.key, session.since_ns, session.until_ns = key, timestamp_ns, NEVER_NS
        self.sessions[owner] = session
        return session

    def strange(self, key: ConnectionKey) -> None:
        """A connection may have subscriptions that nobody has seen."""
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
        session.key, session.since_ns, session.slept_ns = None, timestamp_ns, timestamp_ns
        session.until_ns = min(NEVER_NS, timestamp_ns + round(min(expiry, 1e9) * 1_000_000_000))

    def end(self, owner: str) -> None:
        """A session is over."""
        session = self.sessions.pop(owner, None)
        if session is not None:
            self._clear(session)

    def _clear(self, session: Session) -> None:
        for held in session.held.values():
            self._out(held)
        session.held.clear()

    def subscribe(self, session: Session, held: Held) -> None:
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
        self.revision += 1
        plain = held.plain_filter
        known = self.holders.get(plain)
        if known is None:
            known = self.holders[plain] = {}
            if self.index is not None:
                self.index.add(plain, plain)
        known[held.owner, name] = held

    def unsubscribe(self, session: Session, topic_filter: str) -> None:
        """A session does not hold a subscription any more."""
        held = session.held.pop(topic_filter, None)
        if held is not None:
            self._out(held)

    def _out(self, held: Held) -> None:
        self.number -= 1
        self.revision += 1
        plain = held.plain_filter
        known = self.holders[plain]
        del known[held.owner, held.topic_filter]
        if not known:
            del self.holders[plain]
            if self.index is not None:
                self.index.discard(plain)

    def matching(self, topic: str) -> tuple[Held, ...]:
        """Subscriptions that a topic matches, `MAX_HOLDERS` and one at most."""
        index = self.index
        if index is None:
            index = self.index = FilterIndex()
            for plain in self.holders:
                index.add(plain, plain)
        found: list[Held] = []
        for plain in index.match(topic, MAX_HOLDERS + 1):
            found += self.holders[plain].values()
            if len(found) > MAX_HOLDERS:
                return tuple(found[: MAX_HOLDERS + 1])
        return tuple(found)


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
