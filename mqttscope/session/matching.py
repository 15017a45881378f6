"""Which subscriptions a topic belongs to, and what follows from them for a delivery.

A `FilterIndex` has Topic Filters by their levels, so that finding those that match a topic costs nothing for all the
others.
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
"""Reason codes of SUBACK and UNSUBACK from here on are failures."""
MAX_MATCHING: Final = 1_000
"""Subscriptions of one topic that are looked at; where there are more the match is not `Match.known`."""


@dataclass(slots=True)
class Node:
    """What filters have in common up to here."""

    label: str = ""
    """The levels since the node before, with ``/`` between them; the root has none."""
    names: dict[str, bool] = field(default_factory=dict)
    """Filters that end here."""
    below: dict[str, bool] = field(default_factory=dict)
    """Filters that continue with ``#`` alone."""
    children: dict[str, Node] = field(default_factory=dict)
    """By the first level of their label."""


@dataclass(slots=True)
class FilterIndex:
    """Topic Filters under names of their own, found by the topics that they match.

    It is a tree: each edge is a run of levels that filters have in common, ``+`` among them, as long as possible;
    filters that end in ``#`` stand at the node of the levels before it.  A filter of thousands of levels is one edge
    until another one parts from it, so that the tree is not larger than the filters.  Whoever looks a topic up goes
    from node to node with all that still may match, at most two ways from each: by the level itself, and by ``+``.
    """

    root: Node = field(default_factory=Node)
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Place in the order of arrival, and filter, by name."""
    arrived: int = 0
    visited: int = 0
    """Nodes that were looked at so far: the work that was done."""

    def __len__(self) -> int:
        return len(self.known)

    def add(self, name: str, topic_filter: str) -> None:
        """Take a filter; a name that is known keeps its place.  Filters that are not valid match nothing."""
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
        """Names of the filters that match a topic, in the order of their arrival; at most that many, any of them."""
        if not topic:
            return []
        found: list[str] = []
        size, hidden = len(topic), topic[0] == "$"  # 5.0 MQTT-4.7.2-1
        if not hidden:
            found += islice(self.root.below, most)
        todo = [(self.root, 0)]
        while todo and (most is None or len(found) < most):
            node, at = todo.pop()
            self.visited += 1
            end = topic.find("/", at)
            level = topic[at:] if end < 0 else topic[at:end]
            children = node.children
            for one in (children.get(level), children.get("+") if level != "+" and (at or not hidden) else None):
                if one is None:
                    continue
                after = _behind(one.label, topic, at, size)
                if after < 0:
                    continue
                if one.below:
                    found += islice(one.below, most)
                if after > size:
                    found += islice(one.names, most)
                elif one.children:
                    todo.append((one, after))
        if len(found) > 1:
            known = self.known
            found.sort(key=lambda name: known[name][0])
        return found if most is None else found[:most]

    def overlapping(self, topic_filter: str, most: int) -> tuple[list[str], int]:
        """Names of the filters that match a topic which this filter matches too, and how many nodes were looked at.

        They are in the order of their arrival.  At most that many nodes are looked at; where there is more, those are
        found that come up first.
        """
        if topic_filter_problem(topic_filter, shared=False) is not None:
            return [], 0
        wanted = topic_filter.split("/")
        last = len(wanted)
        found = list(islice(self.root.below, most)) if wanted[0][:1] != "$" else []
        todo = [(self.root, 0, 0)]
        left = most
        while todo and left > 0 and len(found) < most:
            node, at, above = todo.pop()
            if at == last:
                continue
            level = wanted[at]
            if level in ("+", "#"):
                children = list(islice(node.children.values(), left))
            else:
                children = [one for one in (node.children.get(level), node.children.get("+")) if one is not None]
            left -= len(children) + 1
            self.visited += len(children) + 1
            for child in children:
                if not above and _hides(child.label, level):
                    continue
                after = _along(child.label, wanted, at)
                if after < 0:
                    continue
                depth = above + child.label.count("/") + 1
                # `#` takes the level above it as well, but no topic is empty.
                nothing = depth == 1 and (not wanted[0] or not child.label)
                if after < last or not nothing:
                    found += islice(child.below, most)
                if after == last or (wanted[after] == "#" and not (nothing and after == depth)):
                    found += islice(child.names, most)
                if child.children:
                    todo.append((child, after, depth))
        known = self.known
        found.sort(key=lambda name: known[name][0])
        return found, most - left

    def _reach(self, path: str | None) -> Node:
        """The node of these levels, made where there is none."""
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
                # They part within the label: the levels before become a node of their own.
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
    """The levels before ``#``, ``None`` for none at all, and whether there is a ``#``."""
    if topic_filter == "#":
        return None, True
    if topic_filter.endswith("/#"):
        return topic_filter[:-2], True
    return topic_filter, False


def _common(one: str, other: str) -> int:
    """How many characters of whole levels two runs of levels have in common; the first level always is."""
    if one == other:
        return len(one)
    at = -1
    while True:
        first, second = one.find("/", at + 1), other.find("/", at + 1)
        first, second = first if first >= 0 else len(one), second if second >= 0 else len(other)
        if first != second or one[at + 1 : first] != other[at + 1 : second]:
            return at
        at = first
        if at == len(one) or at == len(other):
            return at


def _hides(label: str, level: str) -> bool:
    """Whether one of two first levels begins with ``$`` and the other one is a wildcard (5.0 MQTT-4.7.2-1)."""
    first = label.partition("/")[0]
    return (first[:1] == "$" and level in ("+", "#")) or (first == "+" and level[:1] == "$")


def _along(label: str, wanted: list[str], at: int) -> int:
    """How many levels of a filter are used up after a label, that of a last ``#`` never; -1: no topic is in both."""
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


def _behind(label: str, topic: str, at: int, size: int) -> int:
    """Where the next level of a topic begins after a label, past the end where there is none; -1: no match."""
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
    has_forgotten: bool = False
    """Whether it had more of them than are kept."""
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
        known = known and not any(one.has_forgotten for one in (*candidates, *over))
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


def joined(first: Match, second: Match) -> Match:
    """What a topic belongs to by two tables that have no filter in common."""
    subscriptions = sorted((*first.subscriptions, *second.subscriptions), key=lambda one: one.packet)
    return _match(
        subscriptions,
        [*first.ended, *second.ended],
        [*first.extended, *second.extended],
        () if subscriptions else (*first.beside, *second.beside),
        known=first.known and second.known,
    )


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


CHANGES: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("folding case", str.casefold),
    ("collapsing '//'", lambda text: re.sub("/{2,}", "/", text)),
    ("trimming '/'", lambda text: text.strip("/")),
    ("Unicode normalisation to NFC", lambda text: unicodedata.normalize("NFC", text)),
    ("Unicode normalisation to NFKC", lambda text: unicodedata.normalize("NFKC", text)),
)
"""What no server may do to topics and filters before it compares them."""
