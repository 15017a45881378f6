"""Which subscriptions a topic belongs to, and what follows from them for a delivery."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mqttscope.mqtt.topics import matches, parse_shared

FAILURE = 0x80
"""Reason codes of SUBACK and UNSUBACK from here on are failures."""


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
    """Whether all subscriptions are known; if not, one that is missing proves nothing."""
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


def match_topic(
    topic: str, live: dict[str, Subscribed], patterns: Iterable[str], ended: dict[str, Subscribed], *, known: bool
) -> Match:
    """Work out what a topic belongs to; ``patterns`` are the filters of ``live`` that are not simply the topic."""
    candidates, extended = [], []
    exact = live.get(topic)
    if exact is not None and exact.plain_filter == topic:
        candidates.append(exact)
    for name in patterns:
        one = live[name]
        if one is exact:
            continue
        if matches(one.plain_filter, topic, shared=False):
            candidates.append(one)
        elif not one.is_shared and _extension_matches(name, topic):
            extended.append(one)
    subscriptions = sorted(
        (one for one in candidates if one.granted is None or one.granted < FAILURE), key=lambda one: one.packet
    )
    over = [one for one in ended.values() if matches(one.plain_filter, topic, shared=False)]
    replaced = [one.replaced for one in subscriptions if one.replaced is not None]
    before = [*subscriptions, *replaced, *over, *extended]
    identifiers = [one.subscription_identifier for one in subscriptions if one.subscription_identifier is not None]
    possible = [one.subscription_identifier for one in before if one.subscription_identifier is not None]
    return Match(
        known,
        tuple(subscriptions),
        tuple(over),
        tuple(extended),
        () if subscriptions or topic[:1] != "$" else _beside(topic, live, patterns),
        max((one.qos for one in subscriptions), default=0),
        max((max(one.qos, one.former_qos) for one in before), default=0),
        tuple(identifiers),
        tuple(possible) + tuple(known for one in before for known in one.formerly),
        len(identifiers) == len(subscriptions) > 0,
        bool(subscriptions) and all(one.no_local for one in subscriptions),
        any(one.retain_as_published for one in before),
        bool(replaced) or any(one.formerly for one in subscriptions),
    )


def _beside(topic: str, live: dict[str, Subscribed], patterns: Iterable[str]) -> tuple[str, ...]:
    other = "_" + topic[1:]
    return tuple(
        name
        for name in patterns
        if live[name].plain_filter[:1] in ("+", "#") and matches(live[name].plain_filter, other, shared=False)
    )


def nearest(topic: str, live: Iterable[Subscribed]) -> tuple[str, str] | None:
    """A filter that matches after a change that no server may make before it compares, and the change in words."""
    for words, change in _changes():
        changed = change(topic)
        for one in live:
            if (one.granted is None or one.granted < FAILURE) and matches(
                change(one.plain_filter), changed, shared=False
            ):
                return one.topic_filter, words
    return None


def _extension_matches(topic_filter: str, topic: str) -> bool:
    if topic_filter.startswith("$queue/"):
        return matches(topic_filter.removeprefix("$queue/"), topic, shared=False)
    share = parse_shared(topic_filter)
    return share is not None and matches(share[1], topic, shared=False)


def _changes() -> Iterator[tuple[str, Callable[[str], str]]]:
    yield "folding case", str.casefold
    yield "collapsing '//'", lambda text: re.sub("/{2,}", "/", text)
    yield "trimming '/'", lambda text: text.strip("/")
    yield "Unicode normalisation to NFC", lambda text: unicodedata.normalize("NFC", text)
    yield "Unicode normalisation to NFKC", lambda text: unicodedata.normalize("NFKC", text)
