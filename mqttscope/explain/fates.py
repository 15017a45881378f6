"""What becomes of messages, and what is remembered to tell it: messages, clients, and how they stand to each other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.model import Evidence
from mqttscope.mqtt import ProtocolVersion, packets
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import C2S, Connection
from mqttscope.session.matching import FAILURE

SECOND = 1_000_000_000
QUEUE = "Look in the log of the broker for messages that it dropped: a full queue, or a rate limit."
MANY = 20
"""Messages for a client that was away, from which on the queue of a broker may be full (mosquitto sends 20 at once)."""
MAX_WILLS = 1_000
"""Maximum number of topics with such a will, and of subscriptions that are remembered for one of them."""
NEVER = 1 << 62
"""A time that does not come."""


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
    NOT_RELEASED = "not_released"
    """Its publisher sent no PUBREL for it, and a broker may wait for that (5.0 and 3.1.1, 4.3.3)."""
    NOT_ACKNOWLEDGED = "not_acknowledged"
    """The broker sent it, and nothing shows that it arrived."""
    OTHER_MEMBER = "other_member"
    """Another member of the share, away or not in the capture, may have it (5.0 4.8.2)."""
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
    share: str
    """Its Topic Filter if it is shared, else empty: a copy for one ordinary subscription serves all of them."""
    qos: int
    no_local: bool
    identifier: int | None
    """Subscription Identifier."""
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
    with_session: bool = False
    """Whether it ended with its session, and not by UNSUBSCRIBE."""
    is_lost: bool = False
    """Whether that session was to be kept, and its client asked for it (Clean Start 0)."""
    begun: Wanted | None = None
    """The first of those that it replaced without an end."""
    before: Wanted | None = None
    """The client's earlier subscription to the same, which had ended or was not granted."""
    is_presumed: bool = False
    """Whether its version of MQTT has no Shared Subscriptions, and its filter has the form of one."""

    asks_for_retained: bool = False
    """Whether its SUBSCRIBE is answered with all retained messages that match: Retain Handling 0, and not shared."""
    retained: Got | None = None
    """The first of them."""

    def applies(self, message: Published, key: tuple[str, str]) -> bool:
        """Whether the client, with this key, had the subscription for a message when that was published."""
        if self.since_ns > message.timestamp_ns or (self.code or 0) >= FAILURE:
            return False
        if self.no_local and key == message.key:
            return False
        return self.ended_ns is None or self.ended_ns > message.timestamp_ns

    def first_after(self, now_ns: int) -> Wanted | None:
        """The first of the client's subscriptions to this filter that began after a time and was not refused."""
        first, one = None, self.begun or self
        while one.since_ns > now_ns:
            first = one if (one.code or 0) < FAILURE else first
            if one.before is None:
                break
            one = one.before.begun or one.before
        return first


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
    garbled_ns: int = -NEVER
    """Time of the last bytes from the client that are not a packet: they may be an acknowledgement."""
    full: list[tuple[int, int]] = field(default_factory=list)
    """From when to when its Receive Maximum was used up, `NEVER` for the end of what lasts."""

    resumes: bool = False
    """Whether the CONNECT of its last connection has Clean Start 0."""
    parts: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Time, frame and announced size of messages of which it was sent the beginning alone, by topic."""
    most_in_flight: int = 0
    """How many messages the broker had in flight to it at a time, over all its connections."""

    keeps_retain: bool = False
    """Whether RETAIN 1 may be of a live message to it: Retain As Published."""

    def has_room(self, now_ns: int) -> None:
        """Note that its Receive Maximum is not used up any more."""
        if self.full and self.full[-1][1] == NEVER:
            self.full[-1] = self.full[-1][0], now_ns

    def full_until(self, now_ns: int) -> int:
        """Until when its Receive Maximum was used up from a time on, in nanoseconds; 0 if it was not."""
        return next((until_ns for from_ns, until_ns in self.full if from_ns <= now_ns < until_ns), 0)


@dataclass(slots=True)
class Got:
    """A message as the broker sent it to a client."""

    timestamp_ns: int
    frame: int
    capture: str
    connection: int
    reader: Connection
    end: int
    """Offset of its last byte and one in what the broker sent."""
    is_answered: bool = False
    """Whether the client answered it with PUBACK or PUBREC."""
    needs_answer: bool = False
    """Whether it came with QoS 1 or 2."""
    copies: int = 1
    """How many copies came: a broker may send one for each overlapping subscription (5.0 and 3.1.1, 3.3.4/3.3.5)."""
    identifier: int | None = None
    """Packet Identifier."""
    again: Got | None = None
    """The same copy, as it was sent again on a later connection."""

    @property
    def last(self) -> Got:
        """The last time that it was sent."""
        return self if self.again is None else self.again.last

    @property
    def best(self) -> Got:
        """The first time that it arrived, else the last time that it was sent."""
        return self if self.again is None or self.arrived else self.again.best

    def is_repeated_by(self, event: PacketEvent) -> bool:
        """Whether a PUBLISH to the client is this copy, sent again on a later connection (5.0 and 3.1.1, 4.4)."""
        last, packet = self.last, event.packet
        return (
            bool(getattr(packet, "dup", False))
            and last.needs_answer
            and not last.is_answered
            and last.connection != event.connection.number
            and last.identifier == getattr(packet, "packet_identifier", None)
        )

    @property
    def is_acknowledged(self) -> bool:
        """Whether the capture has an acknowledgment of the client or of TCP."""
        reader = self.reader
        return self.is_answered or self.end <= reader.server_side.stream_offset - reader.server_unacknowledged

    @property
    def is_left(self) -> bool:
        """Whether the client closed its connection itself within a second of it, by DISCONNECT or FIN."""
        reader = self.reader
        itself = reader.disconnect_by == "client" or (reader.closed_by == "client" and reader.closed_how == "fin")
        return itself and abs(reader.closed_ns - self.timestamp_ns) <= SECOND

    @property
    def arrived(self) -> bool:
        """Whether TCP or the client acknowledged it, as far as the capture can show that."""
        reader = self.reader
        if self.is_answered or not reader.closed_how or reader.one_sided or not reader.server_unacknowledged:
            return True
        tcp = reader.details.get("tcp")
        own = tcp.get("server_to_client") if isinstance(tcp, dict) else None
        if reader.closed_how not in ("fin", "reset") and not (own and own["retransmitted_segments"]):
            return True  # the acknowledgment may come after the capture
        return self.is_acknowledged

    @property
    def is_silent(self) -> bool:
        """Whether the client sent nothing after it on this connection."""
        return (self.reader.client_side.last_timestamp_ns or 0) < self.timestamp_ns

    @property
    def is_abandoned(self) -> bool:
        """Whether the session of the client ended with its connection and without PUBACK or PUBREC."""
        reader = self.reader
        return (
            self.needs_answer
            and not self.is_answered
            and reader.closed_how not in ("", "capture_end")
            and reader.keeps_session is False
            and not reader.one_sided
            and not reader.client_side.gapped
        )


@dataclass(slots=True)
class Held:
    """How a client stood to a message when it was published, for one copy that it needed."""

    subscriptions: tuple[Wanted, ...]
    """Its ordinary ones, any of which the copy serves, or one shared."""
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
    in_flight: int = 0
    """How many messages of the broker it had not acknowledged."""

    @property
    def share(self) -> str:
        """Topic Filter of the Shared Subscription, if it is for one."""
        return self.subscriptions[0].share

    def best(self, message: Published, key: tuple[str, str]) -> Wanted:
        """The subscription that proves most that the message was due to the client, which has this key."""

        def rank(one: Wanted) -> tuple[bool, bool, bool, bool, int]:
            lasts = one.ended_ns is None or one.with_session or one.ended_ns > due_ns(message)
            is_granted = one.granted_ns is not None and one.granted_ns <= message.timestamp_ns
            return one.applies(message, key), lasts, (one.code or 0) < FAILURE, is_granted, one.qos

        return max(self.subscriptions, key=rank)

    def backlog(self, since_ns: int) -> str:
        """What shows that the broker may have waited to send more to the client; empty where nothing does.

        A broker that has sent something else since a time, in nanoseconds, did not wait.
        """
        if self.reader is None or (self.reader.server_side.last_timestamp_ns or 0) > since_ns:
            return ""
        if self.reader.server_unacknowledged:
            return (
                f"never acknowledged {counted(self.reader.server_unacknowledged, 'byte')} that the broker had sent it"
            )
        tcp = self.reader.details.get("tcp")
        own = tcp.get("client_to_server") if isinstance(tcp, dict) else None
        return "had not read what came before: its TCP window was closed" if own and own["zero_windows"] else ""

    def window(self, since_ns: int, until_ns: int, most: int) -> str:
        """What shows that the broker's own limit of unacknowledged messages may be reached; empty if nothing does.

        The client never acknowledges the messages that the broker sent before a time, in nanoseconds, and had a
        second for that before another time.  A broker that ever had more messages in flight (``most``) has a larger
        limit.
        """
        reader = self.reader
        if reader is None or reader.server_unacknowledged or reader.client_side.gapped:
            return ""
        waiting = [
            exchange
            for exchange in reader.server_side.exchanges.values()
            if exchange.kind == "publish" and exchange.timestamp_ns <= since_ns
        ]
        if not waiting or most > len(waiting):
            return ""
        first = min(waiting, key=lambda exchange: exchange.timestamp_ns)
        if until_ns - first.timestamp_ns < SECOND:
            return ""
        return (
            f"has left {counted(len(waiting), 'message')} of the broker unacknowledged since frame {first.frame};"
            " many brokers send no more of QoS 1 and 2 then (mosquitto: max_inflight_messages, 20)"
        )


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
    is_removal: bool = False
    """Whether it removes the retained message of its topic: RETAIN and an empty payload (3.3.1.3)."""
    is_again: bool = False
    """Whether it has DUP, and its first sending is not in the capture."""
    code: int | None = None
    """Of its acknowledgement."""
    answer: Evidence | None = None
    is_answer_unknown: bool = False
    """Whether its acknowledgement was not looked for: too many messages waited for theirs."""
    held: dict[tuple[str, str], tuple[Held, ...]] = field(default_factory=dict)
    """What each client needed: a copy for its ordinary subscriptions, and one for each share."""
    released: bool = False
    """Whether its publisher has sent PUBREL for it."""
    got: dict[tuple[str, str], dict[str, Got]] = field(default_factory=dict)
    """Its deliveries, by client and share; for none: by the empty text."""
    shares: set[str] = field(default_factory=set)
    """Filters of the Shared Subscriptions that have got their copy."""

    def is_with_share(self, share: str) -> bool:
        """Whether a member of a share got its copy, and had not left it unacknowledged when its session ended."""
        return any(share in copies and not copies[share].best.is_abandoned for copies in self.got.values())

    def is_like(self, size: int) -> bool:
        """Whether a copy of it may have this many bytes: its properties and its identifier may differ."""
        return abs(size - self.size) * 8 <= self.size

    def is_due(self, key: tuple[str, str], client: Subscriber) -> bool:
        """Whether a client had a subscription for it when it was published, and a session that lasts until now."""
        if any(back_ns > self.timestamp_ns and not present for back_ns, _, present, _ in client.returns):
            return False
        return any(
            (held.online or held.keeps) and any(each.applies(self, key) for each in held.subscriptions)
            for held in self.held.get(key, ())
        )

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
        for key, needs in self.held.items():
            for held in needs:
                if held.share in self.got.get(key, ()) or held.share in self.shares:
                    continue
                if any(
                    one.applies(self, key) and (one.ended_ns is None or one.with_session) for one in held.subscriptions
                ):
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
class AnnouncedWill:
    """A will that no client was sent."""

    place: Evidence
    """Its CONNECT."""
    connection: Connection
    end: int = 0
    """Offset of the last byte and one of the DISCONNECT that discards it (3.14.4), in what its client sent."""
    frame: int = 0
    """Of that DISCONNECT."""

    def disconnect(self, event: PacketEvent, packet: packets.Disconnect) -> None:
        """Take a DISCONNECT of any connection; after the end that the broker made it discards nothing."""
        ended = self.connection.disconnect_by or self.connection.closed_by == "server"
        if event.connection is self.connection and event.direction is C2S and not packet.reason_code and not ended:
            self.frame, self.end = event.frame, event.stream_offset + len(packet.raw)

    @property
    def said(self) -> str:
        """What became of it, in a sentence."""
        announced, source = f"{self.place.text} (frame {self.place.frame})", self.connection
        if self.frame and self.end <= source.client_side.stream_offset - source.client_unacknowledged:
            return f"{announced}; it sent DISCONNECT (frame {self.frame}), which discards the will."
        return f"{announced}, and no client was sent it in this capture."


@dataclass(slots=True)
class PublishedWill:
    """A will with Will Retain 1 that the broker has published."""

    said: str
    """Who announced it, and who got it."""
    checksum: int
    until_ns: int
    """When it expires."""
    asked: list[tuple[Subscriber, Connection, Wanted]] = field(default_factory=list)

    def missed(self, now_ns: int) -> Iterator[tuple[Subscriber, Wanted]]:
        """Who should have got it as a retained message within a second."""
        for client, reader, wanted in self.asked:
            over_ns = min(now_ns, reader.closed_ns or now_ns, wanted.ended_ns or now_ns, self.until_ns)
            is_whole = not (reader.one_sided or reader.server_side.gapped or reader.closed_how == "reset")
            is_granted = wanted.granted_ns is not None and (wanted.code or 0) < FAILURE
            if is_whole and is_granted and wanted.asked_ns + SECOND <= over_ns:
                yield client, wanted


@dataclass(slots=True)
class RetainedWills:
    """Wills with Will Retain 1 that were published, nothing has replaced since, and nothing shows to be retained."""

    topics: OrderedDict[tuple[str, str], PublishedWill] = field(default_factory=OrderedDict)
    """By the host of the server and the topic."""
    dropped: int = 0
    """Wills and subscriptions beyond `MAX_WILLS`."""

    def publish(self, place: tuple[str, str], will: Will, checksum: int, ended: Connection, event: PacketEvent) -> None:
        """A client got a message that is like the will of a connection that has ended."""
        block, is_retained = will.properties, getattr(event.packet, "retain", False)
        delay, expiry = (0, None) if block is None else (block.will_delay_interval or 0, block.message_expiry_interval)
        if not will.will_retain or not will.will_payload or is_retained or place in self.topics:
            return
        if event.timestamp_ns < ended.closed_ns + delay * SECOND:
            return
        if len(self.topics) >= MAX_WILLS:
            self.topics.popitem(last=False)
            self.dropped += 1
        name, reader = (describe.name(one.client_identifier) or one.client for one in (ended, event.connection))
        until_ns = NEVER if expiry is None else event.timestamp_ns + expiry * SECOND
        said = f"{name} had announced the will to {describe.name(place[1])} with Will Retain 1, and {reader} got it"
        self.topics[place] = PublishedWill(f"{said} in frame {event.frame}", checksum, until_ns)

    def replace(self, place: tuple[str, str], checksum: int | None = None) -> None:
        """Another message may be the retained one of a topic now, or somebody who subscribed got this content."""
        known = self.topics.get(place)
        if known is not None and (known.checksum != checksum or known.asked):
            del self.topics[place]

    def ask(self, client: Subscriber, reader: Connection, row: Subscription, wanted: Wanted, *, existed: bool) -> None:
        """A client subscribes."""
        if wanted.share or row.retain_handling == 2 or (row.retain_handling == 1 and existed):
            return
        for (server, topic), will in self.topics.items():
            if server == client.server and matches(wanted.plain_filter, topic, shared=False):
                will.asked.append((client, reader, wanted))
                self.dropped += len(will.asked) > MAX_WILLS
                del will.asked[MAX_WILLS:]

    def remarks(self, now_ns: int) -> Iterator[str]:
        """A sentence about each will that somebody should have got."""
        for will in self.topics.values():
            missed = next(will.missed(now_ns), None)
            if missed is not None:
                client, wanted = missed
                yield (
                    f"{will.said}; {client.name} subscribed afterwards (frame {wanted.frame}) and got no retained"
                    " message of the topic: look whether the broker retains wills, and lets this client read the topic."
                )
        if self.dropped:
            yield f"limit: {MAX_WILLS:,} wills are followed that are to be retained; forgotten: {self.dropped:,}."


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


def held_by(client: Subscriber, topic: str) -> tuple[Held, ...]:
    """How a client stands to a topic, for each copy that it needs of a message."""
    needs: dict[str, list[Wanted]] = {}
    for one in client.filters.values():
        if matches(one.plain_filter, topic, shared=False):
            needs.setdefault(one.share, []).append(one)
    connection = client.connection
    if connection is None:
        return tuple(
            Held(
                tuple(subscriptions), online=False, number=client.number, keeps=client.keeps, left_ns=client.left_ns,
                left_frame=client.left_frame, was_cut=client.was_cut,
            )
            for subscriptions in needs.values()
        )  # fmt: skip
    full = connection.server_side.in_flight >= connection.client_side.receive_maximum
    return tuple(
        Held(
            tuple(subscriptions), True, connection.number, full, connection.client_side.maximum_packet_size,
            bool(connection.one_sided), bool(connection.keeps_session), reader=connection,
            in_flight=connection.server_side.in_flight,
        )
        for subscriptions in needs.values()
    )  # fmt: skip


def due_ns(one: Published) -> int:
    """When a message should have come: when the last one got it of those who did at once, else within a second."""
    until_ns = one.latest_ns + SECOND
    times = (got.timestamp_ns for copies in one.got.values() for got in copies.values())
    return max((time_ns for time_ns in times if time_ns <= until_ns), default=until_ns)


def is_loss(fate: Fate, message: Published, held: Held, client: Subscriber) -> bool:
    """Whether a client that did not get a message had reason to expect it.

    Where it was away, it has to have come back: as a session that was kept, or after it was cut off.
    """
    if fate in (Fate.NOT_SENT, Fate.EXPIRED, Fate.TOO_LARGE):
        return True
    if fate not in (Fate.SESSION_GONE, Fate.OFFLINE) or not (held.keeps or held.was_cut):
        return False
    return any(returned_ns > message.timestamp_ns for returned_ns, *_ in client.returns)


def suspects(one: Published, *, queued: bool = False) -> Iterator[str]:
    """Where to look for a message that the broker had and did not send; ``queued``: it may have waited in a queue."""
    if queued:
        yield QUEUE
    if not one.got:
        if one.is_again:
            yield "It was sent with DUP: look whether the broker took it for a message that it had already."
        if one.source.version != ProtocolVersion.V5 or not one.qos:
            why = "before MQTT 5.0 the broker acknowledges also what its access rules forbid."
            yield f"Look whether {one.client} may publish to this topic: " + (
                why if one.qos else "QoS 0 has no answer."
            )
        yield "Look whether the broker's access rules let the client read this topic; a SUBACK need not refuse that."
    if not queued:
        yield QUEUE


def said_goodbye(connection: Connection) -> bool:
    """Whether its client sent DISCONNECT, which discards the will."""
    return connection.disconnect_by == "client" and not connection.disconnect_reason


def shown_order(delivery: Delivery) -> tuple[int, str]:
    """Clients that missed a message first, then those with a similar filter, those that got it, and all others."""
    places = {Fate.NO_SUBSCRIPTION: 1, Fate.DELIVERED: 2, Fate.NOT_CONCERNED: 3}
    return places.get(delivery.fate, 0), delivery.client
