"""What a client has subscribed to on one connection, as the requests and their answers show it.

A subscription counts from its SUBSCRIBE on, since a server may deliver before it answers (3.1.1 3.8.4, 5.0 3.8.4), and
until the UNSUBACK.  A SUBSCRIBE with the Topic Filter of another one replaces its options and its identifier as well
(5.0 MQTT-3.8.4-3); the one before is kept in ``replaced``, since messages of it may still be under way.

Nothing here refers to a subscription by object, only by filter and by the number of its SUBSCRIBE, so that the state
can be written down and read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER
from mqttscope.mqtt.topics import parse_shared
from mqttscope.session.matching import FAILURE, Match, Subscribed, SubscriptionIndex

MAX_SUBSCRIPTIONS: Final = 100_000
"""Subscriptions of a connection that are followed; beyond it the table says that it is not `complete`."""
MAX_ENDED: Final = 1_000
"""Ended subscriptions, refused filters, and answered requests, that are remembered."""
MAX_MATCHES: Final = 2_000
"""Topics whose matching subscriptions are remembered."""
MAX_CHAIN: Final = 8
"""Unanswered requests with one packet identifier, and former identifiers of a subscription, that are remembered."""
MAX_RETAINED: Final = 10_000
"""Topics whose retained messages are counted."""
MAX_NEAR: Final = 1_000
"""Subscriptions among which a filter is looked for that matches after a change of the topic."""
LATE_NS: Final = 60_000_000_000
"""Maximum time after an UNSUBACK at which messages of the ended subscription may arrive."""
FLOOD_START_NS: Final = 30_000_000_000
"""How long after a SUBSCRIBE its first retained messages may come."""
FLOOD_PAUSE_NS: Final = 5_000_000_000
"""Longest pause between retained messages that belong to one SUBSCRIBE."""


@dataclass(slots=True)
class Request:
    """A SUBSCRIBE or UNSUBSCRIBE, kept while its packet identifier is not used again."""

    kind: str
    """``subscribe`` or ``unsubscribe``."""
    packet_identifier: int
    packet: int
    frame: int
    timestamp_ns: int
    topic_filters: tuple[str, ...]
    position: int = 0
    """Stream position of the client after it."""
    maximum_qos: tuple[int, ...] = ()
    """What a SUBSCRIBE asks for, in its order."""
    existing: tuple[int, ...] = ()
    """For each filter of an UNSUBSCRIBE the number of the SUBSCRIBE whose subscription it ends, -1 for none."""
    codes: tuple[int, ...] = ()
    """Reason codes of the answer."""
    answers: int = 0
    """How many SUBACK or UNSUBACK packets answered it."""
    answer: int = -1
    """Number of the first answer."""
    earlier: Request | None = None
    """One with the same packet identifier that had no answer when this one came."""


@dataclass(slots=True)
class Subscriptions:
    """The subscriptions of one connection."""

    live: dict[str, Subscribed] = field(default_factory=dict)
    """By Topic Filter."""
    patterns: dict[str, bool] = field(default_factory=dict)
    """Those of ``live`` whose filter is not simply the topic: wildcards, shares."""
    ended: dict[str, Subscribed] = field(default_factory=dict)
    """Unsubscribed on this connection and not subscribed again, by Topic Filter."""
    refused: dict[str, int] = field(default_factory=dict)
    """Filters that the server refused last time, with the number of their SUBSCRIBE."""
    requests: dict[int, Request] = field(default_factory=dict)
    """By packet identifier, answered ones included."""
    complete: bool = True
    """``False`` after `MAX_SUBSCRIPTIONS` was reached, a request could not be read, or a subscription was forgotten
    within `LATE_NS` of its end: a filter that is not in the table proves nothing."""
    unread_answers: bool = False
    """Whether a SUBACK or UNSUBACK could not be read."""
    retained: dict[str, int] = field(default_factory=dict)
    """How many messages with RETAIN 1 the server has sent of each topic.  Those with DUP are left out, and those that
    may be live ones because of Retain As Published."""
    flood_ns: int | None = None
    """Time of the last one of those that came in one go after a SUBSCRIBE."""
    subscribed_ns: int | None = None
    """Time of the last SUBSCRIBE."""
    found: dict[str, Match] = field(default_factory=dict)
    """Matches by topic, as long as the table does not change."""
    index: SubscriptionIndex | None = field(default=None, compare=False, repr=False)
    """The filters of ``live`` and ``ended``, for looking topics up; made from them when a topic is looked up, and not
    written down with the rest."""

    def match(self, topic: str) -> Match:
        """What a topic belongs to."""
        found = self.found.get(topic)
        if found is None:
            if len(self.found) >= MAX_MATCHES:
                self.found.clear()
            found = self.found[topic] = self._indexed().match(topic, self.live, self.ended, known=self.complete)
        return found

    def may_match(self, topic: str) -> bool:
        """Whether a subscription in force may match, at a look that costs less than `match`."""
        if topic in self.live:
            return True
        for name in self.patterns:
            # Without the last character, since `a/#` matches `a` as well; what a share leaves of a filter is not
            # looked at.
            if name.startswith("$") or topic.startswith(name.partition("+")[0].partition("#")[0][:-1]):
                return True
        return False

    def _indexed(self) -> SubscriptionIndex:
        if self.index is None:
            self.index = SubscriptionIndex.of(self.live, self.patterns, self.ended)
        return self.index

    def _put(self, name: str, one: Subscribed) -> None:
        """Let a subscription be in force."""
        self.live[name] = one
        if "+" in name or "#" in name or name.startswith(("$share/", "$queue/")):
            self.patterns[name] = True
        if self.index is not None:
            self.index.put(one, pattern=name in self.patterns)

    def _drop(self, name: str) -> None:
        """Let none with this filter be in force."""
        del self.live[name]
        self.patterns.pop(name, None)
        if self.index is not None:
            self.index.drop(name)

    def _forget_ended(self, name: str) -> None:
        if self.ended.pop(name, None) is not None and self.index is not None:
            self.index.ended.discard(name)

    def matching(self, topic: str) -> tuple[Subscribed, ...]:
        """Subscriptions in force that a topic belongs to, refused ones left out, in the order of their first SUBSCRIBE.

        Before 5.0 ``$share/`` is an ordinary first level.
        """
        return self.match(topic).subscriptions

    def near(self, topic: str) -> tuple[str, str] | None:
        """For a topic that nothing matches: a filter that would after a forbidden change, and the change."""
        found = self.match(topic)
        if not found.near_known:
            found.near_known = True
            if not found.subscriptions and len(self.live) <= MAX_NEAR:
                found.near = self._indexed().nearest(topic, self.live)
        return found.near

    def overlapping(self, plain_filter: str, most: int) -> tuple[list[str], int]:
        """Filters in force with topics that this one, without its share, matches too, oldest first; and steps taken.

        The search ends after that many steps, whatever is left to be found.
        """
        return self._indexed().overlapping(plain_filter, self.live, most)

    def request_for(self, packet_identifier: int, kind: str) -> Request | None:
        """The request that a SUBACK or UNSUBACK answers: the oldest one without answer, else the last one."""
        waiting = last = None
        one = self.requests.get(packet_identifier)
        while one is not None:
            if one.kind == kind:
                last = last or one
                if not one.answers:
                    waiting = one
            one = one.earlier
        return waiting or last

    def named(self, topic_filter: str, number: int) -> Subscribed | None:
        """The subscription with this filter that the SUBSCRIBE of this number asked for, ended or replaced included."""
        for one in (self.live.get(topic_filter), self.ended.get(topic_filter)):
            if one is not None:
                if one.packet == number:
                    return one
                if one.replaced is not None and one.replaced.packet == number:
                    return one.replaced
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
        """Take a SUBSCRIBE; ``shared`` says whether the version knows Shared Subscriptions."""
        block = packet.properties
        identifier = None if block is None else block.first(SUBSCRIPTION_IDENTIFIER)
        rows = packet.known("subscriptions") or ()
        self.subscribed_ns = timestamp_ns
        for row in rows:
            name = row.topic_filter
            share = parse_shared(name) if shared else None
            one = Subscribed(
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
                self._follow(one, before)
            if name in self.live or len(self.live) < MAX_SUBSCRIPTIONS:
                self._put(name, one)
                self._forget_ended(name)
            else:
                self.complete = False
        self._request(
            Request(
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

    def _follow(self, one: Subscribed, before: Subscribed) -> None:
        """Take over what a subscription leaves to the next one with its filter."""
        before.replaced = None
        one.times = before.times + 1
        former = before.formerly
        if before.subscription_identifier not in (None, one.subscription_identifier):
            former = (before.subscription_identifier, *former)
        former = tuple(known for known in former if known != one.subscription_identifier)
        one.formerly, one.has_forgotten = former[:MAX_CHAIN], before.has_forgotten or len(former) > MAX_CHAIN
        one.former_qos = max(before.qos, before.former_qos)
        one.replaced = before
        one.existed = before.ending_ns is None and before.ended_ns is None

    def unsubscribe(self, packet: Unsubscribe, number: int, frame: int, timestamp_ns: int, position: int = 0) -> None:
        """Take an UNSUBSCRIBE."""
        filters = tuple(packet.known("topic_filters") or ())
        existing = []
        for name in filters:
            one = self.live.get(name)
            existing.append(-1 if one is None else one.packet)
            if one is not None and one.ending_ns is None:
                one.ending_ns = timestamp_ns
        self._request(
            Request(
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

    def granted(self, packet: Suback, number: int, timestamp_ns: int) -> None:
        """Take a SUBACK."""
        request = self._answered(packet.packet_identifier, "subscribe", packet.reason_codes, number)
        if request is None or len(request.codes) != len(request.topic_filters):
            return  # which code belongs to which filter is open
        for name, code in zip(request.topic_filters, request.codes, strict=True):
            one = self.named(name, request.packet)
            if one is None:
                continue
            one.granted, one.granted_ns = code, timestamp_ns
            if code < FAILURE:
                self.refused.pop(name, None)
            else:
                self._refuse(name, one)

    def _refuse(self, name: str, one: Subscribed) -> None:
        """A refused request leaves the subscription that was there before as it was, as far as one can know."""
        self.refused.pop(name, None)
        self.refused[name] = one.packet
        if len(self.refused) > MAX_ENDED:
            del self.refused[next(iter(self.refused))]
        current = self.live.get(name)
        if current is None:
            return
        if current.packet != one.packet:
            if current.replaced is not None and current.replaced.packet == one.packet:
                current.replaced, current.existed = None, False
        elif current.replaced is not None and current.replaced.ended_ns is None:
            current.replaced.doubtful = True
            self._put(name, current.replaced)
        else:
            self._drop(name)
            if current.replaced is not None:
                self._end(name, current.replaced)

    def unsubscribed(self, packet: Unsuback, number: int, timestamp_ns: int) -> None:
        """Take an UNSUBACK."""
        request = self._answered(packet.packet_identifier, "unsubscribe", packet.reason_codes, number)
        if request is None:
            return
        codes = request.codes
        for index, name in enumerate(request.topic_filters):
            one = self.named(name, request.existing[index])
            if one is None or one.ended_ns is not None:
                continue
            if index < len(codes) and codes[index] >= FAILURE:
                one.ending_ns = None
                continue
            one.ended_ns = timestamp_ns
            if self.live[name].packet == one.packet:  # else it was subscribed again meanwhile
                self._drop(name)
                self._end(name, one)

    def _end(self, name: str, one: Subscribed) -> None:
        one.replaced = None
        self.ended[name] = one
        if self.index is not None:
            self.index.end(one)
        if len(self.ended) > MAX_ENDED:
            oldest = next(iter(self.ended))
            if (one.ended_ns or 0) - (self.ended[oldest].ended_ns or 0) <= LATE_NS:
                self.complete = False
            self._forget_ended(oldest)

    def retained_sent(self, topic: str, timestamp_ns: int) -> None:
        """Take a message with RETAIN 1 from the server."""
        found = self.match(topic)
        if found.retain_as_published:
            return  # it may be a live message
        if found.known and not found.subscriptions and not found.ended:
            return  # nobody has asked for it yet: what a SUBSCRIBE to come asks for is still owed
        self.retained[topic] = self.retained.get(topic, 0) + 1
        if len(self.retained) > MAX_RETAINED:
            del self.retained[next(iter(self.retained))]
        if self.is_flood(timestamp_ns):
            self.flood_ns = timestamp_ns

    def is_flood(self, timestamp_ns: int) -> bool:
        """Whether a retained message that comes now may still belong to the last SUBSCRIBE."""
        if self.subscribed_ns is not None and timestamp_ns - self.subscribed_ns <= FLOOD_START_NS:
            return True
        return self.pauses_until_ns(timestamp_ns) > 0

    def pauses_until_ns(self, timestamp_ns: int) -> int:
        """Until when more of the retained messages may come that have come so far; 0 where that time is over."""
        if self.flood_ns is None or timestamp_ns - self.flood_ns > FLOOD_PAUSE_NS:
            return 0
        return self.flood_ns + FLOOD_PAUSE_NS + 1

    def unreadable(self, *, request: bool) -> None:
        """A SUBSCRIBE or UNSUBSCRIBE, or an answer to one, could not be read."""
        self.found.clear()
        if request:
            self.complete = False
            self.requests.clear()
        else:
            self.unread_answers = True

    def _request(self, request: Request) -> None:
        self.found.clear()
        before = self.requests.pop(request.packet_identifier, None)
        one, depth = before, 0
        while one is not None and depth < MAX_CHAIN:
            if not one.answers:
                request.earlier = before
            if depth == MAX_CHAIN - 1:
                one.earlier = None
            one, depth = one.earlier, depth + 1
        self.requests[request.packet_identifier] = request
        if len(self.requests) > MAX_ENDED:
            del self.requests[next(iter(self.requests))]

    def _answered(self, packet_identifier: int, kind: str, codes: list[int] | None, number: int) -> Request | None:
        request = self.request_for(packet_identifier, kind)
        if request is None:
            return None
        request.answers += 1
        self.found.clear()
        if request.answers > 1:
            return None
        request.codes, request.answer = tuple(codes or ()), number
        return request
