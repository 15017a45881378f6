"""Fates of messages, and their data: messages, clients, and subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from mqttscope.events import PacketEvent
from mqttscope.explain import model
from mqttscope.explain.forwards import Forward
from mqttscope.explain.model import Evidence, NodeAnswer
from mqttscope.explain.pauses import Pause
from mqttscope.explain.repetitions import Resend, has_answer
from mqttscope.mqtt import ProtocolVersion, packets
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import Connection
from mqttscope.session.matching import FAILURE

SECOND = 1_000_000_000
QUEUE = "Look in the log of the broker for messages that it dropped: a full queue, or a rate limit."
MANY = 20
"""Number of messages for an absent client that may fill the queue of a broker (mosquitto sends 20 at once)."""
EXACTLY_ONCE = 2
IGNORED_NS = 10 * SECOND
"""Minimum time for which a client sends other packets instead of the answer to a message."""
FOREVER = 0xFFFF_FFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
NEVER = 1 << 62
"""A time that does not come."""


class Fate(StrEnum):
    """The fate of a message for one client."""

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
    TOPIC_CHANGED = "topic_changed"
    """The broker most probably sent it with another topic."""
    NOT_SENT = "not_sent"
    """It should have come."""


@dataclass(slots=True)
class Delivery:
    """The fate of a message for one client."""

    client: str
    connection: int | None
    fate: Fate
    outcome: str
    frame: int | None = None
    timestamp_ns: int | None = None
    capture: str | None = None
    advice: tuple[str, ...] = ()
    remark: str = ""
    """How it came late or more than once, as the predicate of a sentence about several messages."""
    group: tuple[tuple[str, str], str] | None = None
    """Client, and the cause that it has in common with other messages, such as the Topic Filter of a SUBSCRIBE."""

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
    """The event as text, without secrets."""
    frame: int
    """Frame of the message or the request."""
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
    """Earliest time when the broker may have it: its SUBSCRIBE, or a later CONNACK."""
    granted_ns: int | None = None
    """Time of the SUBACK, which proves that the broker had the subscription."""
    code: int | None = None
    ended_ns: int | None = None
    ended_frame: int = 0
    refused_end: tuple[int, int, int] | None = None
    """Time, frame and code of the UNSUBACK that refused to end it."""
    with_session: bool = False
    """Whether it ended with its session, and not by UNSUBSCRIBE."""
    is_lost: bool = False
    """Whether that session was to be kept, and its client asked for it (Clean Start 0)."""
    begun: Wanted | None = None
    """The first subscription that it replaced without an end."""
    before: Wanted | None = None
    """The client's earlier subscription to this filter, which had ended or was not granted."""
    rival: int = 0
    """Frame of an earlier SUBSCRIBE with the same Packet Identifier and other filters that was not answered yet."""
    is_presumed: bool = False
    """Whether its version of MQTT has no Shared Subscriptions, and its filter has the form of one."""

    retain_handling: int = 0
    largest: int | None = None
    """Maximum Packet Size of the client then."""
    retained: Got | None = None
    """The first of them."""
    is_answered: bool = False
    """Whether a message with RETAIN 1 came that it matches, for whatever reason."""
    answers: int = 0
    """Number of them that came."""
    last_answer_ns: int = 0

    @property
    def asks_for_retained(self) -> bool:
        """Whether all retained messages that match answer its SUBSCRIBE: Retain Handling 0, and not shared."""
        return not self.share and not self.retain_handling

    def applies(self, message: Published, key: tuple[str, str]) -> bool:
        """Whether the client, with this key, had the subscription for a message when that was published."""
        if self.since_ns > message.timestamp_ns or (self.code or 0) >= FAILURE:
            return False
        if self.no_local and key == message.key:
            return False
        return self.ended_ns is None or self.ended_ns > message.timestamp_ns

    def first_after(self, now_ns: int) -> Wanted | None:
        """The first of the client's subscriptions to this filter that began after a time and was not refused."""
        first, wanted = None, self.begun or self
        while wanted.since_ns > now_ns:
            first = wanted if (wanted.code or 0) < FAILURE else first
            if wanted.before is None:
                break
            wanted = wanted.before.begun or wanted.before
        return first


@dataclass(slots=True)
class VainUnsubscribe:
    """An UNSUBSCRIBE of a Topic Filter that its client had not subscribed."""

    topic_filter: str
    frame: int
    timestamp_ns: int
    packet_identifier: int | None
    connection: int
    is_denied: bool = False
    """Whether the broker reported success for it in MQTT 5.0: then it had such a subscription."""


@dataclass(slots=True)
class Subscriber:
    """A client with its subscriptions, which may survive its connections."""

    name: str
    server: str
    """Host."""
    connection: Connection | None = None
    """While it is open."""
    number: int = -1
    """Number of its last connection."""
    filters: dict[str, Wanted] = field(default_factory=dict)
    complete: bool = True
    """Whether all its subscriptions are known."""
    requests: dict[int, list[tuple[int, tuple[str, ...]]]] = field(default_factory=dict)
    """Frames and Topic Filters of SUBSCRIBE packets without SUBACK, oldest first, by Packet Identifier."""
    vain: list[VainUnsubscribe] = field(default_factory=list)
    leaving: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Topic Filters of UNSUBSCRIBE packets without UNSUBACK, by Packet Identifier."""
    expires_ns: int = NEVER
    """When its session expires, after the end of its last connection."""
    largest: dict[int, int] = field(default_factory=dict)
    """Maximum Packet Size of its connections, by their numbers."""
    takes_aliases: bool = False
    """Whether a connection of it had a Topic Alias Maximum above 0."""
    address: str = ""
    """Host of its last connection."""
    is_named: bool = False
    """Whether its Client Identifier is known."""
    began: tuple[int, int, bool, bool] = (0, 0, False, False)
    """Time and frame of its first CONNACK that accepts it, Session Present, and whether it asked for its session."""
    sent: int = 0
    """Number of messages of other topics that the broker sent it."""
    sent_surely: int = 0
    """How many of them have QoS 1 or 2."""
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
    zero_answers: list[tuple[int, str, int]] = field(default_factory=list)
    """Times, types and frames of its last answers with the Packet Identifier 0, which is of no message."""
    full: list[tuple[int, int]] = field(default_factory=list)
    """From when to when its Receive Maximum was used up, `NEVER` for the end of what lasts."""

    resumes: bool = False
    """Whether the CONNECT of its last connection has Clean Start 0."""
    parts: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Time, frame and announced size of unfinished messages to it, by topic."""
    most_in_flight: int = 0
    """How many messages the broker had in flight to it at a time, over all its connections."""

    keeps_retain: bool = False
    """Whether RETAIN 1 may be of a live message to it: Retain As Published."""

    def note_zero(self, event: PacketEvent) -> None:
        """Take an answer with the Packet Identifier 0."""
        self.zero_answers.append((event.timestamp_ns, event.packet.packet_type.name, event.frame))
        del self.zero_answers[: -model.MAX_REPORTED]

    def zero_answer(self, from_ns: int) -> str:
        """The first of these answers within a second after a message; empty without one."""
        rows = [row for row in self.zero_answers if 0 <= row[0] - from_ns <= SECOND]
        return f"{rows[0][1]} with the Packet Identifier 0 (frame {rows[0][2]})" if rows else ""

    def leave(self, connection: Connection) -> None:
        """Note when its session expires, as its connection ends."""
        interval = connection.session_expiry_interval or 0
        is_limited = connection.version is ProtocolVersion.V5 and 0 < interval < FOREVER
        self.expires_ns = connection.closed_ns + interval * SECOND if is_limited else NEVER

    def confirm(self, event: PacketEvent, unsuback: packets.Unsuback) -> None:
        """Take an UNSUBACK: success in MQTT 5.0 shows that the broker had the subscription, an error that it stays."""
        codes, place = unsuback.reason_codes or (), (event.connection.number, unsuback.packet_identifier)
        for row in self.vain:
            if (row.connection, row.packet_identifier) == place:
                row.is_denied = row.is_denied or 0 in codes
        for name, code in zip(self.leaving.pop(unsuback.packet_identifier or 0, ()), codes, strict=False):
            wanted = self.filters.get(name)
            if wanted is not None and code >= FAILURE and not wanted.with_session:
                wanted.ended_ns, wanted.refused_end = None, (event.timestamp_ns, event.frame, code)

    def has_no_local(self, topic: str) -> bool:
        """Whether one of its subscriptions to a topic has No Local."""
        return any(wanted.no_local and matches(wanted.plain_filter, topic) for wanted in self.filters.values())

    def has_room(self, now_ns: int) -> None:
        """Note that its Receive Maximum is no longer used up."""
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
    answered_ns: int = 0
    answer_position: int = 0
    """Position in the TCP stream of the client after the answer."""
    repetition: Resend | None = None
    """The same copy, as it was sent again on this connection."""
    beside: list[int] = field(default_factory=list)
    """Frames of live copies that came within a second of the first one, for other subscriptions as it seems."""
    surplus: list[int] = field(default_factory=list)
    """Frames of copies that no subscription explains."""
    witness: str = ""
    """Name of a client that got one copy, which shows that the surplus copies are of no other message."""
    size: int = 0
    """Bytes of the PUBLISH."""
    reply: int = 0
    """Frame of the next message of the client, if it came within a second."""
    named: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Number of copies by their Subscription Identifiers."""
    passed_on: int = 0
    """Number of further copies that came after the publisher had sent the message again."""
    echo: str = ""
    """How a further copy came through another broker."""

    @property
    def last(self) -> Got:
        """The last time that it was sent."""
        return self if self.again is None else self.again.last

    @property
    def best(self) -> Got:
        """The first time that it arrived, else the last time that it was sent."""
        return self if self.again is None or self.arrived else self.again.best

    def is_repeated_by(self, event: PacketEvent, *, is_exact: bool = True) -> bool:
        """Whether a PUBLISH to the client is this copy, sent again on a later connection (5.0 and 3.1.1, 4.4).

        ``is_exact``: with DUP and the same Packet Identifier, as the protocol asks for.
        """
        last, packet = self.last, event.packet
        identifier = getattr(packet, "packet_identifier", None)
        return (
            ((bool(getattr(packet, "dup", False)) and last.identifier == identifier) or not is_exact)
            and identifier is not None
            and not getattr(packet, "retain", False)
            and last.needs_answer
            and not last.is_answered
            and last.connection != event.connection.number
        )

    def is_resent_by(self, event: PacketEvent, *, is_exact: bool = True) -> bool:
        """Whether a PUBLISH to the client is this copy, sent again on the same connection.

        It has the same Packet Identifier, and DUP unless ``is_exact`` is false.  Then the identifier cannot be free
        yet: the client has not acknowledged the first one, or TCP shows that the broker had not got that.
        """
        last, packet = self.last, event.packet
        if last.identifier is None or last.connection != event.connection.number:
            return False
        if last.identifier != getattr(packet, "packet_identifier", None) or not last.needs_answer:
            return False
        if is_exact or getattr(packet, "dup", False):
            return bool(getattr(packet, "dup", False))
        if not last.is_answered:
            history = event.connection.history
            return not event.connection.client_side.gapped and (history is None or history.server.in_step())
        return has_answer(event.connection, last.answer_position, from_client=False) is False

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
    def ignored_ns(self) -> int:
        """Time for which the client sent other packets instead of an answer; 0 if its answer may be missing."""
        reader, last_ns = self.reader, self.reader.client_side.last_timestamp_ns or 0
        is_known = self.needs_answer and not self.is_answered and not reader.one_sided and not reader.client_side.gapped
        return max(0, last_ns - self.timestamp_ns) if is_known else 0

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
    """State of a client when a message was published, for one copy that it needed."""

    subscriptions: tuple[Wanted, ...]
    """Its ordinary subscriptions, which one copy serves together, or one shared subscription."""
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
    expires_ns: int = NEVER
    """When the session expires, if the client stays away."""
    reader: Connection | None = None
    """The connection, while it is open."""
    in_flight: int = 0
    """How many messages of the broker it had not acknowledged."""
    sent: tuple[int, int] = (0, 0)
    """Number of messages of other topics that the broker had sent it, and how many of them with QoS 1 or 2."""

    @property
    def share(self) -> str:
        """Topic Filter of the Shared Subscription, if it is for one."""
        return self.subscriptions[0].share

    def best(self, message: Published, key: tuple[str, str]) -> Wanted:
        """The subscription that proves most that the message was due to the client, which has this key."""

        def rank(wanted: Wanted) -> tuple[bool, bool, bool, bool, int]:
            lasts = wanted.ended_ns is None or wanted.with_session or wanted.ended_ns > due_ns(message)
            is_granted = wanted.granted_ns is not None and wanted.granted_ns <= message.timestamp_ns
            return wanted.applies(message, key), lasts, (wanted.code or 0) < FAILURE, is_granted, wanted.qos

        return max(self.subscriptions, key=rank)

    def backlog(self, since_ns: int) -> str:
        """Evidence that the broker may have waited before it sent more to the client, or empty.

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
        """Evidence that the broker's own limit of unacknowledged messages may be reached, or empty.

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


@dataclass(slots=True, frozen=True)
class ChangedCopy:
    """A message as the broker sent it with another topic."""

    topic: str
    key: tuple[str, str]
    """Key of the client that got it."""
    client: str
    frame: int
    timestamp_ns: int
    capture: str
    how: str
    """The difference of the topics, as words."""


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
    """Host and Client Identifier of the publisher."""
    source: Connection
    """The connection of the publisher."""
    end: int
    """Offset of its last byte and one in what the publisher sent."""
    is_whole: bool = True
    """Whether the capture has all of its bytes."""
    is_empty: bool = False
    """Whether it has no payload."""
    alias_bytes: int = 0
    """Bytes that the message lacks because of its Topic Alias; negative if the alias is beside the Topic Name."""
    is_again: bool = False
    """Whether it has DUP, and its first sending is not in the capture."""
    code: int | None = None
    """Reason Code of its acknowledgement."""
    answer: Evidence | None = None
    is_answer_unknown: bool = False
    """Whether its acknowledgement was not looked for: too many messages waited for theirs."""
    held: dict[tuple[str, str], tuple[Held, ...]] = field(default_factory=dict)
    """Copies that each client needed: one for its ordinary subscriptions, and one for each share."""
    released: bool = False
    """Whether its publisher has sent PUBREL for it."""
    got: dict[tuple[str, str], dict[str, Got]] = field(default_factory=dict)
    """Its deliveries by client and share; the share is empty for ordinary subscriptions."""
    shares: set[str] = field(default_factory=set)
    """Filters of the Shared Subscriptions that have got their copy."""
    answer_position: int = 0
    """Position in the TCP stream of the broker after its acknowledgement."""
    repetition: Resend | None = None
    """How its publisher sent it again."""
    forward: Forward | None = None
    """How its publisher most probably came by it."""
    pause: Pause | None = None
    """A time for which its publisher held back its last bytes."""
    joined: str = ""
    """Name of the packet that left in the same frame as its last bytes, if the publisher had paused."""
    proof: Evidence | None = None
    """The last delivery that shows that the broker kept it as a retained message."""
    changed: list[ChangedCopy] = field(default_factory=list)
    """Its deliveries with another topic, as it seems."""

    @property
    def is_removal(self) -> bool:
        """Whether it removes the retained message of its topic (3.3.1.3), unless the broker refused it."""
        return self.retain and self.is_empty and (self.code or 0) < FAILURE

    @property
    def expires_ns(self) -> int:
        """When it expires."""
        return NEVER if self.expiry is None else self.timestamp_ns + self.expiry * SECOND

    @property
    def last_ns(self) -> int:
        """When its publisher sent it for the last time."""
        return self.timestamp_ns if self.repetition is None else self.repetition.last_ns

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
        """Time by which the broker had received it; without an answer, never if its connection lost segments."""
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
                    wanted.applies(self, key) and (wanted.ended_ns is None or wanted.with_session)
                    for wanted in held.subscriptions
                ):
                    return False
        return True

    @property
    def is_received(self) -> bool:
        """Whether the broker has acknowledged the message, or its bytes.

        Bytes around MQTT (TLS, WebSocket) only add to the unacknowledged bytes of TCP, so this never claims too much.
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
    outcome: str
    published: Published | None
    evidence: tuple[Evidence, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    is_covered: bool = False
    """Whether the remarks of an earlier message of the topic already name the clients with similar filters."""


@dataclass(slots=True)
class Trace:
    """Fates of the messages to the given topics."""

    messages: list[MessageFate]
    remarks: list[str]
    """Sentences about all of them."""
    nodes: tuple[NodeAnswer, ...] = ()
    """Answers about edge nodes of Sparkplug."""


def why_short(connect: packets.Connect, version: ProtocolVersion) -> str:
    """Why the session of a connection ends with it, as words; empty if its CONNECT does not show that."""
    if version is not ProtocolVersion.V5:
        return "Clean Session 1" if connect.clean_start else ""
    interval = None if connect.properties is None else connect.properties.session_expiry_interval
    return "" if interval else "Session Expiry Interval 0" if interval == 0 else "no Session Expiry Interval (5.0)"


def held_by(client: Subscriber, topic: str) -> tuple[Held, ...]:
    """State of a client for a topic, for each copy that it needs of a message."""
    needs: dict[str, list[Wanted]] = {}
    for wanted in client.filters.values():
        if matches(wanted.plain_filter, topic, shared=False):
            needs.setdefault(wanted.share, []).append(wanted)
    connection = client.connection
    if connection is None:
        return tuple(
            Held(
                tuple(subscriptions), online=False, number=client.number, keeps=client.keeps, left_ns=client.left_ns,
                left_frame=client.left_frame, was_cut=client.was_cut, expires_ns=client.expires_ns,
            )
            for subscriptions in needs.values()
        )  # fmt: skip
    full = connection.server_side.in_flight >= connection.client_side.receive_maximum
    return tuple(
        Held(
            tuple(subscriptions), True, connection.number, full, connection.client_side.maximum_packet_size,
            bool(connection.one_sided), bool(connection.keeps_session), reader=connection,
            in_flight=connection.server_side.in_flight, sent=(client.sent, client.sent_surely),
        )
        for subscriptions in needs.values()
    )  # fmt: skip


def due_ns(message: Published) -> int:
    """Time when the last prompt delivery of a message arrived, or a second after its publication."""
    until_ns = message.latest_ns + SECOND
    times = (got.timestamp_ns for copies in message.got.values() for got in copies.values())
    return max((time_ns for time_ns in times if time_ns <= until_ns), default=until_ns)


def is_loss(fate: Fate, message: Published, held: Held, client: Subscriber) -> bool:
    """Whether a client that did not get a message had reason to expect it.

    Where it was away, it has to have come back: as a session that was kept, or after it was cut off.
    """
    if fate in (Fate.NOT_SENT, Fate.EXPIRED, Fate.TOO_LARGE, Fate.TOPIC_CHANGED):
        return True
    if fate not in (Fate.SESSION_GONE, Fate.OFFLINE) or not (held.keeps or held.was_cut):
        return False
    return any(returned_ns > message.timestamp_ns for returned_ns, *_ in client.returns)


def suspects(message: Published, *, queued: bool = False, is_allowed: bool = False) -> Iterator[str]:
    """Where to look for a message that the broker had and did not send.

    ``queued``: it may have waited in a queue; ``is_allowed``: the client got other messages of its publisher and topic.
    """
    if queued:
        yield QUEUE
    if message.is_again and not message.got:
        yield "It was sent with DUP: look whether the broker took it for a message that it had already."
    if is_allowed:
        yield (
            "Look whether the broker still has the subscription, or its access rules were changed: it sent other"
            f" messages of {message.client} to this topic."
        )
    elif not message.got:
        if message.source.version != ProtocolVersion.V5 or not message.qos:
            why = "before MQTT 5.0 the broker acknowledges also what its access rules forbid."
            yield f"Look whether {message.client} may publish to this topic: " + (
                why if message.qos else "QoS 0 has no answer."
            )
        yield "Look whether the broker's access rules let the client read this topic; a SUBACK need not refuse that."
    if not queued:
        yield QUEUE


def shown_order(delivery: Delivery) -> tuple[int, str]:
    """Sort key: clients that missed a message, clients with a similar filter, clients that got it, all others."""
    places = {Fate.NO_SUBSCRIPTION: 1, Fate.DELIVERED: 2, Fate.NOT_CONCERNED: 3}
    return places.get(delivery.fate, 0), delivery.client
