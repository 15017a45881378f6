"""The subscriptions that match a topic, and their effect on a delivery.

A `FilterIndex` stores Topic Filters by their levels, so that a look-up costs nothing for filters that do not match.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from mqttscope.mqtt.topics import parse_shared, topic_filter_problem

FAILURE: Final = 0x80
"""Minimum Reason Code of a failure in SUBACK and UNSUBACK."""
MAX_MATCHING: Final = 1_000
"""Maximum number of subscriptions examined per topic; beyond it the match is not `Match.known`."""


@dataclass(slots=True)
class Node:
    """Common levels of filters."""

    label: str = ""
    """The levels since the parent node, separated by ``/``; empty for the root."""
    names: dict[str, bool] = field(default_factory=dict)
    """Filters that end here."""
    below: dict[str, bool] = field(default_factory=dict)
    """Filters that continue with ``#`` alone."""
    children: dict[str, Node] = field(default_factory=dict)
    """Child nodes by the first level of their label."""


@dataclass(slots=True)
class FilterIndex:
    """Named Topic Filters, found by the topics that they match.

    It is a tree: each edge is the longest run of levels that filters have in common, with ``+`` as a level.  Filters
    that end in ``#`` are at the node of the levels before it.  A filter of thousands of levels is one edge until
    another one branches off, so the tree is not larger than the filters.  A look-up walks down all nodes that may
    match, at most two from each: by the level itself, and by ``+``.
    """

    root: Node = field(default_factory=Node)
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Order of arrival, and filter, by name."""
    arrived: int = 0
    visited: int = 0
    """Number of nodes visited: a measure of the work."""

    def __len__(self) -> int:
        return len(self.known)

    def add(self, name: str, topic_filter: str) -> None:
        """Add a filter; a known name keeps its order.  Invalid filters match nothing."""
        before = self.known.get(name)
        if before is not None:
            if before[1] == topic_filter:
                return
            place = before[0]
            self._remove(name, before[1])
        else:
            place = self.arrived = self.arrived + 1
        self.known[name] = place, topic_filter
        if topic_filter_problem(topic_filter, shared=False) is None:
            path, below = _path(topic_filter)
            node = self._reach(path)
            (node.below if below else node.names)[name] = True

    def discard(self, name: str) -> None:
        before = self.known.pop(name, None)
        if before is not None:
            self._remove(name, before[1])

    def match(self, topic: str, most: int | None = None) -> list[str]:
        """Names of the filters that match a topic, in order of arrival; at most ``most``, chosen arbitrarily."""
        if not topic:
            return []
        names: list[str] = []
        size, hidden = len(topic), topic[0] == "$"  # 5.0 MQTT-4.7.2-1
        if not hidden:
            names += islice(self.root.below, most)
        todo = [(self.root, 0)]
        while todo and (most is None or len(names) < most):
            node, at = todo.pop()
            self.visited += 1
            end = topic.find("/", at)
            level = topic[at:] if end < 0 else topic[at:end]
            children = node.children
            for child in (children.get(level), children.get("+") if level != "+" and (at or not hidden) else None):
                if child is None:
                    continue
                after = _next_level(child.label, topic, at, size)
                if after < 0:
                    continue
                if child.below:
                    names += islice(child.below, most)
                if after > size:
                    names += islice(child.names, most)
                elif child.children:
                    todo.append((child, after))
        if len(names) > 1:
            known = self.known
            names.sort(key=lambda name: known[name][0])
        return names if most is None else names[:most]

    def overlapping(self, topic_filter: str, most: int) -> tuple[list[str], int]:
        """Names of the filters that share a matching topic with this filter, and the number of visited nodes.

        The names are in order of arrival.  At most ``most`` nodes are visited; if there are more, the result has the
        filters found until then.
        """
        if topic_filter_problem(topic_filter, shared=False) is not None:
            return [], 0
        wanted = topic_filter.split("/")
        last = len(wanted)
        names = list(islice(self.root.below, most)) if wanted[0][:1] != "$" else []
        todo = [(self.root, 0, 0)]
        left = most
        while todo and left > 0 and len(names) < most:
            node, at, above = todo.pop()
            if at == last:
                continue
            level = wanted[at]
            if level in ("+", "#"):
                children = list(islice(node.children.values(), left))
            else:
                children = [child for child in (node.children.get(level), node.children.get("+")) if child is not None]
            left -= len(children) + 1
            self.visited += len(children) + 1
            for child in children:
                if not above and _hides(child.label, level):
                    continue
                after = _along(child.label, wanted, at)
                if after < 0:
                    continue
                depth = above + child.label.count("/") + 1
                # `#` matches the level above it as well, but no topic is empty.
                nothing = depth == 1 and (not wanted[0] or not child.label)
                if after < last or not nothing:
                    names += islice(child.below, most)
                if after == last or (wanted[after] == "#" and not (nothing and after == depth)):
                    names += islice(child.names, most)
                if child.children:
                    todo.append((child, after, depth))
        known = self.known
        names.sort(key=lambda name: known[name][0])
        return names, most - left

    def _reach(self, path: str | None) -> Node:
        """The node of these levels, created if needed."""
        node = self.root
        rest = path
        while rest is not None:
            level = rest.partition("/")[0]
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = Node(rest)
                return child
            common = _common(child.label, rest)
            if common < len(child.label):
                # They branch within the label: the levels before become a node of their own.
                upper = Node(child.label[:common])
                child.label = child.label[common + 1 :]
                upper.children[child.label.partition("/")[0]] = child
                node.children[level] = child = upper
            rest = None if common == len(rest) else rest[common + 1 :]
            node = child
        return node

    def _remove(self, name: str, topic_filter: str) -> None:
        if topic_filter_problem(topic_filter, shared=False) is not None:
            return
        path, below = _path(topic_filter)
        way: list[tuple[Node, str]] = []
        node, rest = self.root, path
        while rest is not None:
            level = rest.partition("/")[0]
            way.append((node, level))
            node = node.children[level]
            rest = None if len(rest) == len(node.label) else rest[len(node.label) + 1 :]
        del (node.below if below else node.names)[name]
        while way and not node.names and not node.below:
            parent, level = way.pop()
            if not node.children:
                del parent.children[level]
            elif len(node.children) == 1:
                (child,) = node.children.values()
                child.label = f"{node.label}/{child.label}"
                parent.children[level] = child
                return
            else:
                return
            node = parent


def _path(topic_filter: str) -> tuple[str | None, bool]:
    """The levels before ``#``, ``None`` without any, and whether there is a ``#``."""
    if topic_filter == "#":
        return None, True
    if topic_filter.endswith("/#"):
        return topic_filter[:-2], True
    return topic_filter, False


def _common(label: str, other: str) -> int:
    """Length of the whole levels that two labels have in common; the first level always is."""
    if label == other:
        return len(label)
    at = -1
    while True:
        first, second = label.find("/", at + 1), other.find("/", at + 1)
        first, second = first if first >= 0 else len(label), second if second >= 0 else len(other)
        if first != second or label[at + 1 : first] != other[at + 1 : second]:
            return at
        at = first
        if at == len(label) or at == len(other):
            return at


def _hides(label: str, level: str) -> bool:
    """Whether one first level begins with ``$`` and the other one is a wildcard (5.0 MQTT-4.7.2-1)."""
    first = label.partition("/")[0]
    return (first[:1] == "$" and level in ("+", "#")) or (first == "+" and level[:1] == "$")


def _along(label: str, wanted: list[str], at: int) -> int:
    """Index of the next level of a filter after a label, at most the index of a final ``#``; -1: no common topic."""
    last = len(wanted)
    for level in label.split("/"):
        if at == last:
            return -1
        other = wanted[at]
        if other == "#":
            return at
        if other != level and "+" not in (other, level):
            return -1
        at += 1
    return at


def _next_level(label: str, topic: str, at: int, size: int) -> int:
    """Index of the topic's next level after a label, beyond the end without one; -1: no match."""
    if "+" not in label:
        end = at + len(label)
        if not topic.startswith(label, at):
            return -1
        return end + 1 if end == size or topic[end] == "/" else -1
    for level in label.split("/"):
        if at > size:
            return -1
        end = topic.find("/", at)
        end = size if end < 0 else end
        if level != "+" and (end - at != len(level) or not topic.startswith(level, at)):
            return -1
        at = end + 1
    return at


@dataclass(slots=True)
class ClientSubscription:
    """One subscription of a client."""

    topic_filter: str
    """As sent, with ``$share/`` for a shared one."""
    plain_filter: str
    """The filter to compare topics with, without ``$share/name/``."""
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
    """Packet identifier of the SUBSCRIBE."""
    existed: bool = False
    """Whether a subscription with this Topic Filter existed when this one was requested."""
    granted: int | None = None
    """Reason Code of its SUBACK: the granted QoS or a failure; ``None`` before the SUBACK."""
    granted_ns: int = 0
    ending_ns: int | None = None
    """Time of the first unanswered UNSUBSCRIBE."""
    ended_ns: int | None = None
    """Time of the UNSUBACK that ended it."""
    times: int = 1
    """Number of requests with this filter on this connection."""
    formerly: tuple[int, ...] = ()
    """Former Subscription Identifiers of the filter, newest first."""
    has_forgotten: bool = False
    """Whether it had more former identifiers than are kept."""
    former_qos: int = 0
    """Highest former QoS of the filter."""
    doubtful: bool = False
    """Whether the server refused to replace it: it is unknown whether it still exists."""
    replaced: ClientSubscription | None = None
    """The previous subscription with this filter, replaced or ended, without its own predecessor."""

    @property
    def shared(self) -> tuple[str, str] | None:
        """ShareName and Topic Filter of a Shared Subscription, else ``None``."""
        return parse_shared(self.topic_filter) if self.is_shared else None

    @property
    def is_shared(self) -> bool:
        return len(self.plain_filter) != len(self.topic_filter)

    @property
    def qos(self) -> int:
        """Maximum QoS of deliveries: as granted, or as requested before the answer."""
        return min(self.maximum_qos if self.granted is None else self.granted, 2)

    @property
    def asks_for_retained(self) -> bool:
        """Whether the server answers its SUBSCRIBE with retained messages (5.0 3.3.1.3, 4.8.2)."""
        return not self.is_shared and (
            self.retain_handling == 0 or (self.retain_handling == 1 and not self.existed) or self.retain_handling == 3
        )


@dataclass(slots=True)
class Match:
    """The subscriptions that match a topic, and their combined effect."""

    known: bool
    """Whether all subscriptions are known and were examined; if not, an absent one proves nothing."""
    subscriptions: tuple[ClientSubscription, ...]
    """Active subscriptions, without refused ones."""
    ended: tuple[ClientSubscription, ...]
    """Unsubscribed subscriptions."""
    extended: tuple[ClientSubscription, ...]
    """Before 5.0: subscriptions that match if the server implements ``$share/`` or ``$queue/`` as its own extension."""
    beside: tuple[str, ...]
    """For an unmatched topic with ``$``: filters with a leading wildcard that would match without the ``$``."""
    granted_qos: int
    """Highest QoS of the active ones."""
    highest_qos: int
    """Highest QoS, with replaced, ended and extended subscriptions."""
    identifiers: tuple[int, ...]
    """Subscription Identifiers of the active ones."""
    possible_identifiers: tuple[int, ...]
    """Subscription Identifiers, former ones and those from ended subscriptions included."""
    all_identified: bool
    """Whether each active one has a Subscription Identifier."""
    all_no_local: bool
    """Whether each active one has No Local."""
    retain_as_published: bool
    """Whether any of them, ended or not, has Retain As Published."""
    replaces: bool
    """Whether an active one replaced another."""
    near: tuple[str, str] | None = None
    """Filter that would match after a change of the topic, and the change; see `nearest`."""
    near_known: bool = False


@dataclass(slots=True)
class SubscriptionIndex:
    """Index of a table of subscriptions for looking up topics; built on first use."""

    patterns: FilterIndex = field(default_factory=FilterIndex)
    """Active filters that are not plain topics: wildcards, shares."""
    extended: FilterIndex = field(default_factory=FilterIndex)
    """Filters among them that a server before 5.0 may implement as shares, without their prefix."""
    ended: FilterIndex = field(default_factory=FilterIndex)
    every: FilterIndex | None = None
    """All active filters; ``None`` until `overlapping` is called."""
    near: list[FilterIndex] = field(default_factory=list)
    """All active filters after each of the `CHANGES`; empty until `nearest` is called."""

    @classmethod
    def of(
        cls, live: dict[str, ClientSubscription], patterns: Iterable[str], ended: dict[str, ClientSubscription]
    ) -> SubscriptionIndex:
        """Index a table; ``patterns`` are the filters of ``live`` that are not plain topics."""
        index = cls()
        for name in patterns:
            index.put(live[name], pattern=True)
        for subscription in ended.values():
            index.end(subscription)
        return index

    def put(self, subscription: ClientSubscription, *, pattern: bool) -> None:
        """Add an active subscription."""
        name = subscription.topic_filter
        if pattern:
            self.patterns.add(name, subscription.plain_filter)
            extension = None if subscription.is_shared else _extension(name)
            if extension is not None:
                self.extended.add(name, extension)
            else:
                self.extended.discard(name)
        if self.every is not None:
            self.every.add(name, subscription.plain_filter)
        for index, (_, change) in zip(self.near, CHANGES, strict=False):
            index.add(name, change(subscription.plain_filter))

    def drop(self, name: str) -> None:
        """Remove a filter from the active ones."""
        for index in (self.patterns, self.extended, *self.near):
            index.discard(name)
        if self.every is not None:
            self.every.discard(name)

    def end(self, subscription: ClientSubscription) -> None:
        self.ended.add(subscription.topic_filter, subscription.plain_filter)

    def match(
        self, topic: str, live: dict[str, ClientSubscription], ended: dict[str, ClientSubscription], *, known: bool
    ) -> Match:
        """Compute the subscriptions that match a topic."""
        candidates = []
        exact = live.get(topic)
        if exact is not None and exact.plain_filter == topic:
            candidates.append(exact)
        names = self.patterns.match(topic, MAX_MATCHING + 1)
        candidates += (live[name] for name in names if live[name] is not exact)
        also = self.extended.match(topic, MAX_MATCHING + 1) if self.extended.known else []
        if also:
            matched = {row.topic_filter for row in candidates}
            also = [name for name in also if name not in matched and live[name] is not exact]
        extended = [live[name] for name in also]
        over = [ended[name] for name in self.ended.match(topic)] if ended else []
        known = known and len(names) <= MAX_MATCHING and len(extended) <= MAX_MATCHING
        known = known and not any(row.has_forgotten for row in (*candidates, *over))
        subscriptions = sorted(
            (row for row in candidates if row.granted is None or row.granted < FAILURE), key=lambda row: row.packet
        )
        beside = () if subscriptions or topic[:1] != "$" else self._beside(topic, live)
        return _match(subscriptions, over, extended, beside, known=known)

    def _beside(self, topic: str, live: dict[str, ClientSubscription]) -> tuple[str, ...]:
        """For a topic with ``$``: filters with a leading wildcard that would match without the ``$``."""
        names = self.patterns.match("_" + topic[1:], MAX_MATCHING)
        return tuple(name for name in names if live[name].plain_filter[:1] in ("+", "#"))

    def overlapping(self, plain_filter: str, live: dict[str, ClientSubscription], most: int) -> tuple[list[str], int]:
        """Active filters that share a matching topic with this one, oldest first, and the number of steps."""
        if self.every is None:
            self.every = FilterIndex()
            for name, row in live.items():
                self.every.add(name, row.plain_filter)
        return self.every.overlapping(plain_filter, most)

    def nearest(self, topic: str, live: dict[str, ClientSubscription]) -> tuple[str, str] | None:
        """A filter that matches after a change that no server may make before comparing, and the change in words."""
        if not self.near:
            self.near = [FilterIndex() for _ in CHANGES]
            for name, row in live.items():
                for index, (_, change) in zip(self.near, CHANGES, strict=True):
                    index.add(name, change(row.plain_filter))
        for index, (words, change) in zip(self.near, CHANGES, strict=True):
            for name in index.match(change(topic)):
                granted = live[name].granted
                if granted is None or granted < FAILURE:
                    return name, words
        return None


def join_matches(first: Match, second: Match) -> Match:
    """The match of two tables without a common filter."""
    subscriptions = sorted((*first.subscriptions, *second.subscriptions), key=lambda row: row.packet)
    return _match(
        subscriptions,
        [*first.ended, *second.ended],
        [*first.extended, *second.extended],
        () if subscriptions else (*first.beside, *second.beside),
        known=first.known and second.known,
    )


def _match(
    subscriptions: list[ClientSubscription],
    over: list[ClientSubscription],
    extended: list[ClientSubscription],
    beside: tuple[str, ...],
    *,
    known: bool,
) -> Match:
    replaced = [row.replaced for row in subscriptions if row.replaced is not None]
    before = [*subscriptions, *replaced, *over, *extended]
    identifiers = [row.subscription_identifier for row in subscriptions if row.subscription_identifier is not None]
    possible = [row.subscription_identifier for row in before if row.subscription_identifier is not None]
    return Match(
        known,
        tuple(subscriptions),
        tuple(over),
        tuple(extended),
        beside,
        max((row.qos for row in subscriptions), default=0),
        max((max(row.qos, row.former_qos) for row in before), default=0),
        tuple(identifiers),
        tuple(possible) + tuple(known for row in before for known in row.formerly),
        len(identifiers) == len(subscriptions) > 0,
        bool(subscriptions) and all(row.no_local for row in subscriptions),
        any(row.retain_as_published for row in before),
        bool(replaced) or any(row.formerly for row in subscriptions),
    )


def _extension(topic_filter: str) -> str | None:
    """The filter after ``$queue/`` or ``$share/name/``, for servers before 5.0 that support them."""
    if topic_filter.startswith("$queue/"):
        return topic_filter.removeprefix("$queue/")
    share = parse_shared(topic_filter)
    return None if share is None else share[1]


CHANGES: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("folding case", str.casefold),
    ("collapsing '//'", lambda text: re.sub("/{2,}", "/", text)),
    ("trimming '/'", lambda text: text.strip("/")),
    ("Unicode normalisation to NFC", lambda text: unicodedata.normalize("NFC", text)),
    ("Unicode normalisation to NFKC", lambda text: unicodedata.normalize("NFKC", text)),
)
"""Changes that no server may make to topics and filters before comparing them."""
