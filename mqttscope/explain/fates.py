"""What becomes of messages, and what is remembered to tell it: messages, clients, and how they stand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum

from mqttscope.explain.model import Evidence
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import Connection

NEVER = 1 << 62
"""A time that does not come."""
MAX_COMPARED_LENGTH = 256
"""Maximum number of characters of a topic that filters are compared with by their letters."""
LIKE = 0.75
"""How like the topic a filter has to be to be named, from 0 to 1."""


class Fate(StrEnum):
    """What became of a message for one client."""

    DELIVERED = "delivered"
    NOT_CONCERNED = "not_concerned"
    """It is not meant for the client: No Local, or another member of the share got it."""
    NO_SUBSCRIPTION = "no_subscription"
    SUBSCRIBED_LATER = "subscribed_later"
    UNSUBSCRIBED = "unsubscribed"
    SUBSCRIPTION_REFUSED = "subscription_refused"
    MESSAGE_REFUSED = "message_refused"
    """The broker refused the PUBLISH."""
    OFFLINE = "offline"
    SESSION_GONE = "session_gone"
    EXPIRED = "expired"
    QUOTA_FULL = "quota_full"
    TOO_LARGE = "too_large"
    NOT_CAPTURED = "not_captured"
    """It may be in a gap of the capture, or in a direction that the capture does not have."""
    CONNECTION_ENDED = "connection_ended"
    NOT_RECEIVED = "not_received"
    """Nothing shows that the broker received the message."""
    STALLED = "stalled"
    """The client had not read or acknowledged what the broker had sent before."""
    NOT_SENT = "not_sent"
    """It should have come."""


@dataclass(slots=True)
class Delivery:
    """The fate of a message for one client."""

    client: str
    connection: int | None
    fate: Fate
    said: str
    frame: int | None = None
    timestamp_ns: int | None = None
    capture: str | None = None
    advice: tuple[str, ...] = ()

    @property
    def is_trouble(self) -> bool:
        """Whether the client wanted the message and did not get it."""
        return self.fate not in (Fate.DELIVERED, Fate.NOT_CONCERNED, Fate.NO_SUBSCRIPTION)


@dataclass(slots=True)
class Loss:
    """A message that did not reach a client, or a request that the broker refused."""

    client: str
    connection: int
    """Of the client, when the message was published or the request was sent."""
    fate: Fate
    topic: str
    """Topic Name of the message or Topic Filter of the subscription, as on the wire: not to be shown."""
    text: str
    """What happened, without secrets."""
    frame: int
    """Of the message or the request."""
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class Wanted:
    """A subscription."""

    topic_filter: str
    plain_filter: str
    shared: bool
    qos: int
    no_local: bool
    asked_ns: int
    frame: int
    capture: str
    connection: int
    since_ns: int
    """Since when the broker may know it: its SUBSCRIBE, or the CONNACK where that came later."""
    granted_ns: int | None = None
    """Time of the SUBACK, which proves that the broker had the subscription."""
    code: int | None = None
    ended_ns: int | None = None
    ended_frame: int = 0


@dataclass(slots=True)
class Subscriber:
    """A client with its subscriptions, which may survive its connections."""

    name: str
    server: str
    """Host."""
    connection: Connection | None = None
    """While it is open."""
    number: int = -1
    """Of its last connection."""
    filters: dict[str, Wanted] = field(default_factory=dict)
    complete: bool = True
    """Whether all its subscriptions are known."""
    requests: dict[int, tuple[str, ...]] = field(default_factory=dict)
    left_ns: int = 0
    left_frame: int = 0
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Time and frame of the ends of its connections, by their numbers."""
    keeps: bool = False
    """Whether its session survives the connection."""
    was_cut: bool = False
    """Whether its last connection ended without DISCONNECT."""
    returns: list[tuple[int, int, bool, int]] = field(default_factory=list)
    """Its later connections: time, frame, session present, number."""
    gap_ns: int = -NEVER
    """Time of the last gap in what the server sent it."""


@dataclass(slots=True)
class Held:
    """How a client stood to a message when it was published."""

    wanted: Wanted | None
    online: bool
    number: int
    full: bool = False
    """Whether the Receive Maximum of the client was used up."""
    largest: int | None = None
    """Maximum Packet Size of the client."""
    one_sided: bool = False
    keeps: bool = False
    """Whether the session survives the end of its connection."""
    was_cut: bool = False
    """Whether that connection had ended without DISCONNECT."""
    left_ns: int = 0
    left_frame: int = 0
    """When that connection had ended."""
    reader: Connection | None = None
    """The connection, while it is open."""

    @property
    def backlog(self) -> str:
        """What shows that the broker may have waited to send more to the client; empty where nothing does."""
        if self.reader is None:
            return ""
        if self.reader.server_unacknowledged:
            return (
                f"never acknowledged {counted(self.reader.server_unacknowledged, 'byte')} that the broker had sent it"
            )
        tcp = self.reader.details.get("tcp")
        own = tcp.get("client_to_server") if isinstance(tcp, dict) else None
        return "had not read what came before: its TCP window was closed" if own and own["zero_windows"] else ""


@dataclass(slots=True)
class Published:
    """A message as its publisher sent it."""

    client: str
    connection: int
    server: str
    topic: str
    qos: int
    retain: bool
    size: int
    checksum: int
    expiry: int | None
    frame: int
    timestamp_ns: int
    capture: str
    key: tuple[str, str]
    """Of the publisher."""
    source: Connection
    """The connection of the publisher."""
    end: int
    """Offset of its last byte and one in what the publisher sent."""
    is_whole: bool = True
    """Whether the capture has all of its bytes."""
    code: int | None = None
    """Of its acknowledgement."""
    answer: Evidence | None = None
    is_answer_unknown: bool = False
    """Whether its acknowledgement was not looked for: too many messages waited for theirs."""
    held: dict[tuple[str, str], Held] = field(default_factory=dict)
    got: dict[tuple[str, str], tuple[int, int, str, int]] = field(default_factory=dict)
    """Time, frame, capture and connection of its deliveries."""
    shares: set[str] = field(default_factory=set)
    """Filters of the Shared Subscriptions that have got their copy."""

    @property
    def latest_ns(self) -> int:
        """Time by which the broker had received it; without an answer, far away if its connection lost segments."""
        if self.answer is not None and self.answer.timestamp_ns is not None:
            return self.answer.timestamp_ns
        tcp = self.source.details.get("tcp")
        own = tcp.get("client_to_server") if isinstance(tcp, dict) else None
        return NEVER if own and own["retransmitted_segments"] else self.timestamp_ns

    @property
    def is_complete(self) -> bool:
        """Whether all got it that had a subscription for it when it was published."""
        for key, held in self.held.items():
            wanted = held.wanted
            if wanted is None or key in self.got or (wanted.no_local and key == self.key):
                continue
            if wanted.shared and wanted.topic_filter in self.shares:
                continue
            if wanted.ended_ns is None and (wanted.code or 0) < 0x80:
                return False
        return True

    @property
    def is_received(self) -> bool:
        """Whether the broker has acknowledged the message, or its bytes.

        What wraps MQTT makes bytes more: those that lack an acknowledgment of TCP hold at most as many of MQTT.
        """
        source = self.source
        if self.answer is not None:
            return True
        if source.closed_by == "server" and 0 < source.closed_ns <= self.timestamp_ns:
            return False  # who has closed need not read what its host acknowledges
        return self.end <= source.client_side.stream_offset - source.client_unacknowledged


@dataclass(slots=True)
class MessageFate:
    """One message and its clients."""

    topic: str
    said: str
    published: Published | None
    evidence: tuple[Evidence, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    is_told: bool = False
    """Whether an earlier message of the topic tells all of it: who has a filter that comes near."""


@dataclass(slots=True)
class Trace:
    """What became of the messages that were asked for."""

    messages: list[MessageFate]
    told: list[str]
    """About all of them."""


def likeness(topic: str, plain: str) -> tuple[float, str] | None:
    """How like a topic a filter is that does not match it, from 0 to 1, and the difference; ``None``: not at all."""
    if matches(plain, topic, shared=False):
        return None
    if matches(plain.lower(), topic.lower(), shared=False):
        return 1.0, " (upper and lower case differ)"
    bare = plain.strip("/")
    if bare and matches(bare, topic.strip("/"), shared=False):
        return 1.0, " (a slash at an end is a level of its own)"
    if matches(plain.rstrip("/") + "/#", topic, shared=False):
        return 1.0, " (without /# it has no levels below)"
    if abs(len(plain) - len(topic)) > len(topic) * (1 - LIKE) or len(topic) > MAX_COMPARED_LENGTH:
        return None
    pair = SequenceMatcher(None, plain, topic, autojunk=False)
    if pair.quick_ratio() < LIKE:
        return None
    ratio = pair.ratio()
    return (ratio, "") if ratio >= LIKE else None
