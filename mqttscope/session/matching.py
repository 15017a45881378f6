"""Which subscriptions a topic belongs to, and what follows from them for a delivery."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqttscope.mqtt.topics import parse_shared
from mqttscope.session.filter_index import FilterIndex

FAILURE = 0x80
"""Reason codes of SUBACK and UNSUBACK from here on are failures."""
MAX_MATCHING = 1_000
"""Subscriptions of one topic that are looked at; where there are more the match is not `Match.known`."""


@dataclass(slots=True)
class Subscribed:
    """One subscription of a client."""

    topic_filter: str
    """As sent, with ``$share/`` where it is shared."""
    plain_filter: str
    """What topics are compared with, without ``$share/name/``."""
    maximum_qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    subscription_identifier: int | None
    packet: int
    """Number of the SUBSCRIBE."""
    frame: int
    timestamp_ns: int
    packet_identifier: int = 0
    """Of the SUBSCRIBE."""
    existed: bool = False
    """Whether a subscription with the same Topic Filter was there when this one was asked for."""
    granted: int | None = None
    """Reason code of its SUBACK: the granted QoS or a failure; ``None`` before it came."""
    granted_ns: int = 0
    ending_ns: int | None = None
    """Time of the first UNSUBSCRIBE that has not been answered."""
    ended_ns: int | None = None
    """Time of the UNSUBACK that ended it."""
    times: int = 1
    """How often the filter was asked for on this connection."""
    formerly: tuple[int, ...] = ()
    """Subscription Identifiers that the filter had before, newest first."""
    former_qos: int = 0
    """Highest QoS that the filter had before."""
    doubtful: bool = False
    """Whether the server refused to replace it: nothing says whether it still exists."""
    replaced: Subscribed | None = None
    """The subscription with this filter before it, replaced or ended; that one's own predecessor is forgotten."""

    @property
    def shared(self) -> tuple[str, str] | None:
        """ShareName and Topic Filter of a Shared Subscription, else ``None``."""
        return parse_shared(self.topic_filter) if self.is_shared else None

    @property
    def is_shared(self) -> bool:
        """Whether it is a Shared Subscription."""
        return len(self.plain_filter) != len(self.topic_filter)

    @property
    def qos(self) -> int:
        """Highest QoS of deliveries: as granted, or as asked for while there is no answer."""
        return min(self.maximum_qos if self.granted is None else self.granted, 2)

    @property
    def asks_for_retained(self) -> bool:
        """Whether its SUBSCRIBE is answered with retained messages (5.0 3.3.1.3, 4.8.2)."""
        return not self.is_shared and (
            self.retain_handling == 0 or (self.retain_handling == 1 and not self.existed) or self.retain_handling == 3
        )


@dataclass(slots=True)
class Match:
    """The subscriptions that a topic belongs to, and what follows from them."""

    known: bool
    """Whether all subscriptions are known and looked at; if not, one that is missing proves nothing."""
    subscriptions: tuple[Subscribed, ...]
    """Those in force, refused ones left out."""
    ended: tuple[Subscribed, ...]
    """Those that were unsubscribed."""
    extended: tuple[Subscribed, ...]
    """Before 5.0: those that match where a server takes ``$share/`` or ``$queue/`` as an extension of its own."""
    beside: tuple[str, ...]
    """For a topic with ``$`` that nothing matches: filters whose leading wildcard would match it without that."""
    granted_qos: int
    """Highest QoS of those in force."""
    highest_qos: int
    """The same with those replaced, ended and extended."""
    identifiers: tuple[int, ...]
    """Subscription Identifiers of those in force."""
    possible_identifiers: tuple[int, ...]
    """The same with those of before, and of those ended."""
    all_identified: bool
    """Whether each one in force has a Subscription Identifier."""
    all_no_local: bool
    """Whether each one in force has No Local."""
    retain_as_published: bool
    """Whether one of them all has Retain As Published."""
    replaces: bool
    """Whether one in force replaced another."""
    near: tuple[str, str] | None = None
    """Filter that matches after a change of the topic, and the change; see `nearest`."""
    near_known: bool = False


@dataclass(slots=True)
class SubscriptionIndex:
    """The Topic Filters of a table of subscriptions, for looking topics up; made from the table when first needed."""

    patterns: FilterIndex = field(default_factory=FilterIndex)
    """Filters in force that are not simply the topic: wildcards, shares."""
    extended: FilterIndex = field(default_factory=FilterIndex)
    """Those of them that a server before 5.0 may take for shares of its own, without what stands before the filter."""
    ended: FilterIndex = field(default_factory=FilterIndex)
    every: FilterIndex | None = None
    """All filters in force; ``None`` until `overlapping` asks for them."""
    near: list[FilterIndex] = field(default_factory=list)
    """All filters in force after each of the `CHANGES`; empty until `nearest` asks for them."""

    @classmethod
    def of(
        cls, live: dict[str, Subscribed], patterns: Iterable[str], ended: dict[str, Subscribed]
    ) -> SubscriptionIndex:
        """Index a table; ``patterns`` are the filters of ``live`` that are not simply the topic."""
        made = cls()
        for name in patterns:
            made.put(live[name], pattern=True)
        for one in ended.values():
            made.end(one)
        return made

    def put(self, one: Subscribed, *, pattern: bool) -> None:
        """Take a subscription in force."""
        name = one.topic_filter
        if pattern:
            self.patterns.add(name, one.plain_filter)
            extension = None if one.is_shared else _extension(name)
            if extension is not None:
                self.extended.add(name, extension)
            else:
                self.extended.discard(name)
        if self.every is not None:
            self.every.add(name, one.plain_filter)
        for index, (_, change) in zip(self.near, CHANGES, strict=False):
            index.add(name, change(one.plain_filter))

    def drop(self, name: str) -> None:
        """A filter is not in force any more."""
        for index in (self.patterns, self.extended, *self.near):
            index.discard(name)
        if self.every is not None:
            self.every.discard(name)

    def end(self, one: Subscribed) -> None:
        """Take a subscription that was ended."""
        self.ended.add(one.topic_filter, one.plain_filter)

    def match(self, topic: str, live: dict[str, Subscribed], ended: dict[str, Subscribed], *, known: bool) -> Match:
        """Work out what a topic belongs to."""
        candidates = []
        exact = live.get(topic)
        if exact is not None and exact.plain_filter == topic:
            candidates.append(exact)
        names = self.patterns.match(topic, MAX_MATCHING + 1)
        candidates += (live[name] for name in names if live[name] is not exact)
        also = self.extended.match(topic, MAX_MATCHING + 1) if self.extended.known else []
        if also:
            taken = {one.topic_filter for one in candidates}
            also = [name for name in also if name not in taken and live[name] is not exact]
        extended = [live[name] for name in also]
        over = [ended[name] for name in self.ended.match(topic)] if ended else []
        known = known and len(names) <= MAX_MATCHING and len(extended) <= MAX_MATCHING
        subscriptions = sorted(
            (one for one in candidates if one.granted is None or one.granted < FAILURE), key=lambda one: one.packet
        )
        beside = () if subscriptions or topic[:1] != "$" else self._beside(topic, live)
        return _match(subscriptions, over, extended, beside, known=known)

    def _beside(self, topic: str, live: dict[str, Subscribed]) -> tuple[str, ...]:
        """For a topic with ``$``: filters whose leading wildcard would match it without that."""
        names = self.patterns.match("_" + topic[1:], MAX_MATCHING)
        return tuple(name for name in names if live[name].plain_filter[:1] in ("+", "#"))

    def overlapping(self, plain_filter: str, live: dict[str, Subscribed], most: int) -> tuple[list[str], int]:
        """Filters in force with topics that this one matches too, oldest first, and the steps that it took."""
        if self.every is None:
            self.every = FilterIndex()
            for name, one in live.items():
                self.every.add(name, one.plain_filter)
        return self.every.overlapping(plain_filter, most)

    def nearest(self, topic: str, live: dict[str, Subscribed]) -> tuple[str, str] | None:
        """A filter that matches after a change that no server may make before it compares, and the change in words."""
        if not self.near:
            self.near = [FilterIndex() for _ in CHANGES]
            for name, one in live.items():
                for index, (_, change) in zip(self.near, CHANGES, strict=True):
                    index.add(name, change(one.plain_filter))
        for index, (words, change) in zip(self.near, CHANGES, strict=True):
            for name in index.match(change(topic)):
                granted = live[name].granted
                if granted is None or granted < FAILURE:
                    return name, words
        return None


def _match(
    subscriptions: list[Subscribed],
    over: list[Subscribed],
    extended: list[Subscribed],
    beside: tuple[str, ...],
    *,
    known: bool,
) -> Match:
    replaced = [one.replaced for one in subscriptions if one.replaced is not None]
    before = [*subscriptions, *replaced, *over, *extended]
    identifiers = [one.subscription_identifier for one in subscriptions if one.subscription_identifier is not None]
    possible = [one.subscription_identifier for one in before if one.subscription_identifier is not None]
    return Match(
        known,
        tuple(subscriptions),
        tuple(over),
        tuple(extended),
        beside,
        max((one.qos for one in subscriptions), default=0),
        max((max(one.qos, one.former_qos) for one in before), default=0),
        tuple(identifiers),
        tuple(possible) + tuple(known for one in before for known in one.formerly),
        len(identifiers) == len(subscriptions) > 0,
        bool(subscriptions) and all(one.no_local for one in subscriptions),
        any(one.retain_as_published for one in before),
        bool(replaced) or any(one.formerly for one in subscriptions),
    )


def _extension(topic_filter: str) -> str | None:
    """The filter after ``$queue/`` or ``$share/name/``, for servers before 5.0 that know them."""
    if topic_filter.startswith("$queue/"):
        return topic_filter.removeprefix("$queue/")
    share = parse_shared(topic_filter)
    return None if share is None else share[1]


CHANGES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("folding case", str.casefold),
    ("collapsing '//'", lambda text: re.sub("/{2,}", "/", text)),
    ("trimming '/'", lambda text: text.strip("/")),
    ("Unicode normalisation to NFC", lambda text: unicodedata.normalize("NFC", text)),
    ("Unicode normalisation to NFKC", lambda text: unicodedata.normalize("NFKC", text)),
)
"""What no server may do to topics and filters before it compares them."""
