"""What a client has subscribed to on one connection, as the requests and their answers show it.

A subscription counts from its SUBSCRIBE on, since a server may deliver before it answers (3.1.1 3.8.4, 5.0 3.8.4), and
until the UNSUBACK.  The identifier of a SUBSCRIBE that replaces another with the same Topic Filter replaces its
options as well (5.0 MQTT-3.8.4-3); the one before is kept in ``replaced``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.topics import matches, parse_shared

MAX_SUBSCRIPTIONS = 10_000
"""Subscriptions of a connection that are followed; beyond it the table says that it is not `complete`."""
MAX_ENDED = 1_000
"""Ended subscriptions, and answered requests, that are remembered."""
MAX_MATCHES = 2_000
"""Topics whose matching subscriptions are remembered."""


@dataclass(slots=True)
class Subscribed:
    """One subscription of a client."""

    topic_filter: str
    """As sent, with ``$share/`` where it is shared."""
    maximum_qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    subscription_identifier: int | None
    packet: int
    """Number of the SUBSCRIBE."""
    frame: int
    timestamp_ns: int
    existed: bool = False
    """Whether a subscription with the same Topic Filter was there when this one was asked for."""
    granted: int | None = None
    """Reason code of its SUBACK: the granted QoS or a failure; ``None`` before it came."""
    granted_ns: int = 0
    ending_ns: int | None = None
    """Time of an UNSUBSCRIBE that has not been answered."""
    ended_ns: int | None = None
    """Time of the UNSUBACK that ended it."""
    replaced: Subscribed | None = None
    """The subscription that this one replaced; that one's own predecessor is forgotten."""

    @property
    def shared(self) -> tuple[str, str] | None:
        """ShareName and Topic Filter of a Shared Subscription, else ``None``."""
        return parse_shared(self.topic_filter)

    @property
    def plain_filter(self) -> str:
        """The Topic Filter that topics are compared with, without ``$share/name/``."""
        shared = self.shared
        return self.topic_filter if shared is None else shared[1]

    @property
    def qos(self) -> int:
        """Highest QoS of deliveries: as granted, or as asked for while there is no answer."""
        return self.maximum_qos if self.granted is None else self.granted


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
    asked: tuple[Subscribed, ...] = ()
    """What a SUBSCRIBE asks for, in its order."""
    answers: int = 0
    """How many SUBACK or UNSUBACK packets answered it."""


@dataclass(slots=True)
class Subscriptions:
    """The subscriptions of one connection."""

    live: dict[str, Subscribed] = field(default_factory=dict)
    """By Topic Filter."""
    ended: dict[str, Subscribed] = field(default_factory=dict)
    """Unsubscribed on this connection and not subscribed again, by Topic Filter."""
    requests: dict[int, Request] = field(default_factory=dict)
    """By packet identifier, answered ones included."""
    complete: bool = True
    """``False`` once `MAX_SUBSCRIPTIONS` was reached: what is not in the table proves nothing."""
    found: dict[str, tuple[Subscribed, ...]] = field(default_factory=dict)
    """Matching subscriptions by topic, as long as the table does not change."""

    def matching(self, topic: str) -> tuple[Subscribed, ...]:
        """Subscriptions that a topic belongs to, refused ones left out, in the order of their first SUBSCRIBE."""
        found = self.found.get(topic)
        if found is None:
            found = tuple(
                one
                for one in self.live.values()
                if (one.granted is None or one.granted < 0x80) and matches(one.topic_filter, topic)
            )
            if len(self.found) >= MAX_MATCHES:
                self.found.clear()
            self.found[topic] = found
        return found

    def subscribe(self, packet: Subscribe, number: int, frame: int, timestamp_ns: int) -> None:
        """Take a SUBSCRIBE."""
        block = packet.properties
        identifier = None if block is None else block.first(0x0B)
        asked = []
        for row in packet.subscriptions or ():
            before = self.live.get(row.topic_filter)
            if before is not None:
                before.replaced = None
                if before.granted is not None and before.granted >= 0x80:
                    before = None
            one = Subscribed(
                row.topic_filter,
                row.maximum_qos,
                row.no_local,
                row.retain_as_published,
                row.retain_handling,
                identifier,
                number,
                frame,
                timestamp_ns,
                existed=before is not None,
                replaced=before,
            )
            asked.append(one)
            if row.topic_filter in self.live or len(self.live) < MAX_SUBSCRIPTIONS:
                self.live[row.topic_filter] = one
                self.ended.pop(row.topic_filter, None)
            else:
                self.complete = False
        self._request(
            Request(
                "subscribe",
                packet.packet_identifier,
                number,
                frame,
                timestamp_ns,
                tuple(one.topic_filter for one in asked),
                tuple(asked),
            )
        )

    def unsubscribe(self, packet: Unsubscribe, number: int, frame: int, timestamp_ns: int) -> None:
        """Take an UNSUBSCRIBE."""
        filters = tuple(packet.topic_filters or ())
        for name in filters:
            one = self.live.get(name)
            if one is not None:
                one.ending_ns = timestamp_ns
        self._request(Request("unsubscribe", packet.packet_identifier, number, frame, timestamp_ns, filters))

    def granted(self, packet: Suback, timestamp_ns: int) -> None:
        """Take a SUBACK."""
        request = self._answered(packet.packet_identifier, "subscribe")
        if request is None:
            return
        for one, code in zip(request.asked, packet.reason_codes or (), strict=False):
            one.granted, one.granted_ns = code, timestamp_ns
            if code >= 0x80 and self.live.get(one.topic_filter) is one:
                # A refused request leaves the subscription that was there before as it was.
                if one.replaced is not None:
                    self.live[one.topic_filter] = one.replaced
                else:
                    del self.live[one.topic_filter]

    def unsubscribed(self, packet: Unsuback, timestamp_ns: int) -> None:
        """Take an UNSUBACK."""
        request = self._answered(packet.packet_identifier, "unsubscribe")
        if request is None:
            return
        codes = packet.reason_codes
        for index, name in enumerate(request.topic_filters):
            if codes is not None and index < len(codes) and codes[index] >= 0x80:
                continue
            one = self.live.get(name)
            if one is not None and one.ending_ns is not None and one.packet < request.packet:
                del self.live[name]
                one.ended_ns, one.replaced = timestamp_ns, None
                self.ended[name] = one
                if len(self.ended) > MAX_ENDED:
                    del self.ended[next(iter(self.ended))]

    def _request(self, request: Request) -> None:
        self.found.clear()
        self.requests.pop(request.packet_identifier, None)
        self.requests[request.packet_identifier] = request
        if len(self.requests) > MAX_ENDED:
            del self.requests[next(iter(self.requests))]

    def _answered(self, packet_identifier: int, kind: str) -> Request | None:
        request = self.requests.get(packet_identifier)
        if request is None or request.kind != kind:
            return None
        request.answers += 1
        self.found.clear()
        return request if request.answers == 1 else None
