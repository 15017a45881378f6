"""The subscriptions of a client on one connection, by its requests and their answers.

A subscription counts from its SUBSCRIBE to the UNSUBACK, since a server may deliver before the SUBACK (3.1.1 3.8.4, 5.0
3.8.4).  A second SUBSCRIBE with a Topic Filter replaces options and identifier of the first (5.0 MQTT-3.8.4-3).  The
first one is kept in ``replaced``, since its messages may still be in flight.

References to subscriptions use the filter and the number of the SUBSCRIBE, not objects, so that the state can be
stored and read back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.mqtt.topics import parse_shared
from mqttscope.session.inflight import TablesOnDemand
from mqttscope.session.matching import FAILURE, ClientSubscription, Match, SubscriptionIndex

MAX_SUBSCRIPTIONS: Final = 100_000
"""Maximum number of subscriptions followed per connection; beyond it the table is not `complete`."""
MAX_ENDED: Final = 1_000
"""Maximum number each of ended subscriptions, refused filters, and answered requests that are remembered."""
MAX_MATCHES: Final = 2_000
"""Maximum number of topics with cached matches."""
MAX_CHAIN: Final = 8
"""Maximum number of unanswered requests per packet identifier, and of former identifiers per subscription."""
MAX_RETAINED: Final = 10_000
"""Maximum number of topics with a count of retained messages."""
MAX_NEAR: Final = 1_000
"""Maximum number of subscriptions searched for a near match."""
LATE_NS: Final = 60_000_000_000
"""Maximum time from an UNSUBACK to the last messages of the ended subscription."""
FLOOD_START_NS: Final = 30_000_000_000
"""Maximum time from a SUBSCRIBE to its first retained messages."""
FLOOD_PAUSE_NS: Final = 5_000_000_000
"""Maximum pause between retained messages of one SUBSCRIBE."""


@dataclass(slots=True)
class SubscriptionRequest:
    """A SUBSCRIBE or UNSUBSCRIBE, kept until its packet identifier is reused."""

    kind: str
    """``subscribe`` or ``unsubscribe``."""
    packet_identifier: int
    packet: int
    frame: int
    timestamp_ns: int
    topic_filters: tuple[str, ...]
    position: int = 0
    """Stream position of the client after the packet."""
    maximum_qos: tuple[int, ...] = ()
    """Requested QoS of each filter of a SUBSCRIBE."""
    existing: tuple[int, ...] = ()
    """Number of the SUBSCRIBE that each filter of an UNSUBSCRIBE ends; -1 without one."""
    codes: tuple[int, ...] = ()
    """Reason codes of the answer."""
    answers: int = 0
    """Number of SUBACK or UNSUBACK packets that answered it."""
    answer: int = -1
    """Number of the first answer."""
    earlier: SubscriptionRequest | None = None
    """An earlier request with the same packet identifier that was unanswered when this one was sent."""


@dataclass(slots=True)
class Subscriptions(TablesOnDemand):
    """The subscriptions of one connection."""

    live: dict[str, ClientSubscription] = field(init=False)
    """Active subscriptions by Topic Filter."""
    patterns: dict[str, bool] = field(init=False)
    """Filters of ``live`` that are not plain topics: wildcards, shares."""
    ended: dict[str, ClientSubscription] = field(init=False)
    """Subscriptions that ended on this connection and were not renewed, by Topic Filter."""
    refused: dict[str, int] = field(init=False)
    """Filters that the server refused last, with the number of their SUBSCRIBE."""
    requests: dict[int, SubscriptionRequest] = field(init=False)
    """Requests by packet identifier, answered ones included."""
    complete: bool = True
    """``False`` once `MAX_SUBSCRIPTIONS` was reached, a request could not be read, or a subscription was dropped within
    `LATE_NS` of its end: then a filter that is not in the table proves nothing."""
    unread_answers: bool = False
    """Whether a SUBACK or UNSUBACK could not be read."""
    retained: dict[str, int] = field(init=False)
    """Number of the server's messages with RETAIN 1 per topic, without repetitions (DUP) and without messages that may
    be live ones because of Retain As Published."""
    flood_ns: int | None = None
    """Time of the last message in a series of retained messages after a SUBSCRIBE."""
    held_ns: int | None = None
    """When the client's closed receive window last delayed that series."""
    subscribed_ns: int | None = None
    """Time of the last SUBSCRIBE."""
    matches: dict[str, Match] = field(init=False)
    """Cached matches by topic, valid until the table changes."""
    index: SubscriptionIndex | None = field(default=None, compare=False, repr=False)
    """Index of ``live`` and ``ended``, built when a topic is looked up, and not stored."""

    def match(self, topic: str) -> Match:
        """The subscriptions that match a topic."""
        match = self.matches.get(topic)
        if match is None:
            if len(self.matches) >= MAX_MATCHES:
                self.matches.clear()
            match = self.matches[topic] = self._indexed().match(topic, self.live, self.ended, known=self.complete)
        return match

    def may_match(self, topic: str) -> bool:
        """Whether an active subscription may match; faster than `match`."""
        if topic in self.live:
            return True
        for name in self.patterns:
            # Without the last character, since `a/#` also matches `a`; filters with a share prefix always pass.
            if name.startswith("$") or topic.startswith(name.partition("+")[0].partition("#")[0][:-1]):
                return True
        return False

    def _indexed(self) -> SubscriptionIndex:
        if self.index is None:
            self.index = SubscriptionIndex.of(self.live, self.patterns, self.ended)
        return self.index

    def _put(self, name: str, subscription: ClientSubscription) -> None:
        self.live[name] = subscription
        if "+" in name or "#" in name or name.startswith(("$share/", "$queue/")):
            self.patterns[name] = True
        if self.index is not None:
            self.index.put(subscription, pattern=name in self.patterns)

    def _drop(self, name: str) -> None:
        """Remove the active subscription with this filter."""
        del self.live[name]
        self.patterns.pop(name, None)
        if self.index is not None:
            self.index.drop(name)

    def _forget_ended(self, name: str) -> None:
        if self.ended.pop(name, None) is not None and self.index is not None:
            self.index.ended.discard(name)

    def matching(self, topic: str) -> tuple[ClientSubscription, ...]:
        """Active subscriptions that match a topic, without refused ones, in the order of their first SUBSCRIBE.

        Before 5.0, ``$share/`` is an ordinary first level.
        """
        return self.match(topic).subscriptions

    def near(self, topic: str) -> tuple[str, str] | None:
        """For a topic without a match: a filter that would match after a forbidden change, and the change."""
        match = self.match(topic)
        if not match.near_known:
            match.near_known = True
            if not match.subscriptions and len(self.live) <= MAX_NEAR:
                match.near = self._indexed().nearest(topic, self.live)
        return match.near

    def overlapping(self, plain_filter: str, most: int) -> tuple[list[str], int]:
        """Active filters that share a matching topic with this one (without its share), oldest first, and the steps.

        The search ends after ``most`` steps, complete or not.
        """
        return self._indexed().overlapping(plain_filter, self.live, most)

    def request_for(self, packet_identifier: int, kind: str) -> SubscriptionRequest | None:
        """The request that a SUBACK or UNSUBACK answers: the oldest unanswered one, otherwise the last one."""
        waiting = last = None
        request = self.requests.get(packet_identifier)
        while request is not None:
            if request.kind == kind:
                last = last or request
                if not request.answers:
                    waiting = request
            request = request.earlier
        return waiting or last

    def find(self, topic_filter: str, number: int) -> ClientSubscription | None:
        """The subscription of this filter and this SUBSCRIBE, ended or replaced included."""
        for subscription in (self.live.get(topic_filter), self.ended.get(topic_filter)):
            if subscription is not None:
                if subscription.packet == number:
                    return subscription
                if subscription.replaced is not None and subscription.replaced.packet == number:
                    return subscription.replaced
        return None

    def subscribe(
        self,
        packet: Subscribe,
        number: int,
        frame: int,
        timestamp_ns: int,
        position: int = 0,
        *,
        shared: bool = True,
    ) -> None:
        """Handle a SUBSCRIBE; ``shared``: whether the version has Shared Subscriptions."""
        block = packet.properties
        identifier = None if block is None else block.first(SUBSCRIPTION_IDENTIFIER)
        rows = packet.known("subscriptions") or ()
        self.subscribed_ns = timestamp_ns
        for row in rows:
            name = row.topic_filter
            share = parse_shared(name) if shared else None
            subscription = ClientSubscription(
                name,
                name if share is None else share[1],
                row.maximum_qos,
                row.no_local,
                row.retain_as_published,
                row.retain_handling,
                identifier,
                number,
                frame,
                timestamp_ns,
                packet.packet_identifier,
            )
            before = self.live.get(name) or self.ended.get(name)
            if before is not None:
                self._follow(subscription, before)
            if name in self.live or len(self.live) < MAX_SUBSCRIPTIONS:
                self._put(name, subscription)
                self._forget_ended(name)
            else:
                self.complete = False
        self._request(
            SubscriptionRequest(
                "subscribe",
                packet.packet_identifier,
                number,
                frame,
                timestamp_ns,
                tuple(row.topic_filter for row in rows),
                position,
                tuple(row.maximum_qos for row in rows),
            )
        )

    def _follow(self, subscription: ClientSubscription, before: ClientSubscription) -> None:
        """Copy former values from the previous subscription with the same filter."""
        before.replaced = None
        subscription.times = before.times + 1
        former = before.formerly
        if before.subscription_identifier not in (None, subscription.subscription_identifier):
            former = (before.subscription_identifier, *former)
        former = tuple(known for known in former if known != subscription.subscription_identifier)
        subscription.formerly, subscription.has_forgotten = (
            former[:MAX_CHAIN],
            before.has_forgotten or len(former) > MAX_CHAIN,
        )
        subscription.former_qos = max(before.qos, before.former_qos)
        subscription.replaced = before
        subscription.existed = before.ending_ns is None and before.ended_ns is None

    def unsubscribe(self, packet: Unsubscribe, number: int, frame: int, timestamp_ns: int, position: int = 0) -> None:
        """Handle an UNSUBSCRIBE."""
        filters = tuple(packet.known("topic_filters") or ())
        existing = []
        for name in filters:
            subscription = self.live.get(name)
            existing.append(-1 if subscription is None else subscription.packet)
            if subscription is not None and subscription.ending_ns is None:
                subscription.ending_ns = timestamp_ns
        self._request(
            SubscriptionRequest(
                "unsubscribe",
                packet.packet_identifier,
                number,
                frame,
                timestamp_ns,
                filters,
                position,
                existing=tuple(existing),
            )
        )

    def handle_suback(self, packet: Suback, number: int, timestamp_ns: int) -> None:
        """Handle a SUBACK."""
        request = self._answered(packet.packet_identifier, "subscribe", packet.reason_codes, number)
        if request is None or len(request.codes) != len(request.topic_filters):
            return  # the codes cannot be assigned to filters
        for name, code in zip(request.topic_filters, request.codes, strict=True):
            subscription = self.find(name, request.packet)
            if subscription is None:
                continue
            subscription.granted, subscription.granted_ns = code, timestamp_ns
            if code < FAILURE:
                self.refused.pop(name, None)
            else:
                self._refuse(name, subscription)

    def _refuse(self, name: str, subscription: ClientSubscription) -> None:
        """Handle a refusal: the previous subscription stays unchanged, as far as is known."""
        self.refused.pop(name, None)
        self.refused[name] = subscription.packet
        if len(self.refused) > MAX_ENDED:
            del self.refused[next(iter(self.refused))]
        current = self.live.get(name)
        if current is None:
            return
        if current.packet != subscription.packet:
            if current.replaced is not None and current.replaced.packet == subscription.packet:
                current.replaced, current.existed = None, False
        elif current.replaced is not None and current.replaced.ended_ns is None:
            current.replaced.doubtful = True
            self._put(name, current.replaced)
        else:
            self._drop(name)
            if current.replaced is not None:
                self._end(name, current.replaced)

    def handle_unsuback(self, packet: Unsuback, number: int, timestamp_ns: int) -> None:
        """Handle an UNSUBACK."""
        request = self._answered(packet.packet_identifier, "unsubscribe", packet.reason_codes, number)
        if request is None:
            return
        codes = request.codes
        for index, name in enumerate(request.topic_filters):
            subscription = self.find(name, request.existing[index])
            if subscription is None or subscription.ended_ns is not None:
                continue
            if index < len(codes) and codes[index] >= FAILURE:
                subscription.ending_ns = None
                continue
            subscription.ended_ns = timestamp_ns
            if self.live[name].packet == subscription.packet:  # otherwise it was renewed in the meantime
                self._drop(name)
                self._end(name, subscription)

    def _end(self, name: str, subscription: ClientSubscription) -> None:
        subscription.replaced = None
        self.ended[name] = subscription
        if self.index is not None:
            self.index.end(subscription)
        if len(self.ended) > MAX_ENDED:
            oldest = next(iter(self.ended))
            if (subscription.ended_ns or 0) - (self.ended[oldest].ended_ns or 0) <= LATE_NS:
                self.complete = False
            self._forget_ended(oldest)

    def retained_sent(self, topic: str, timestamp_ns: int) -> None:
        """Handle a message of the server with RETAIN 1."""
        match = self.match(topic)
        if match.retain_as_published:
            return  # it may be a live message
        if match.known and not match.subscriptions and not match.ended:
            return  # no SUBSCRIBE asked for it yet: later requests must still be answered
        self.retained[topic] = self.retained.get(topic, 0) + 1
        if len(self.retained) > MAX_RETAINED:
            del self.retained[next(iter(self.retained))]
        if self.is_flood(timestamp_ns):
            self.flood_ns = timestamp_ns

    def is_flood(self, timestamp_ns: int) -> bool:
        """Whether a retained message at this time may still belong to the last SUBSCRIBE."""
        if self.subscribed_ns is not None and timestamp_ns - self.subscribed_ns <= FLOOD_START_NS:
            return True
        return self.pauses_until_ns(timestamp_ns) > 0

    def hold_up(self, timestamp_ns: int) -> None:
        """Handle a receive window of 0 of the client: a series of retained messages continues when it opens."""
        if self.is_flood(timestamp_ns):
            self.held_ns = timestamp_ns

    def pauses_until_ns(self, timestamp_ns: int) -> int:
        """Time until which the current series of retained messages may continue; 0 if it is over."""
        if self.held_ns is not None and self.held_ns >= (self.flood_ns or 0):
            return timestamp_ns + FLOOD_PAUSE_NS  # nothing of the series could come since then
        if self.flood_ns is None or timestamp_ns - self.flood_ns > FLOOD_PAUSE_NS:
            return 0
        return self.flood_ns + FLOOD_PAUSE_NS + 1

    def note_unreadable(self, *, request: bool) -> None:
        """Handle a SUBSCRIBE, an UNSUBSCRIBE or an answer that could not be read."""
        self.matches.clear()
        if request:
            self.complete = False
            self.requests.clear()
        else:
            self.unread_answers = True

    def _request(self, request: SubscriptionRequest) -> None:
        self.matches.clear()
        before = self.requests.pop(request.packet_identifier, None)
        earlier, depth = before, 0
        while earlier is not None and depth < MAX_CHAIN:
            if not earlier.answers:
                request.earlier = before
            if depth == MAX_CHAIN - 1:
                earlier.earlier = None
            earlier, depth = earlier.earlier, depth + 1
        self.requests[request.packet_identifier] = request
        if len(self.requests) > MAX_ENDED:
            del self.requests[next(iter(self.requests))]

    def _answered(
        self, packet_identifier: int, kind: str, codes: list[int] | None, number: int
    ) -> SubscriptionRequest | None:
        request = self.request_for(packet_identifier, kind)
        if request is None:
            return None
        request.answers += 1
        self.matches.clear()
        if request.answers > 1:
            return None
        request.codes, request.answer = tuple(codes or ()), number
        return request
