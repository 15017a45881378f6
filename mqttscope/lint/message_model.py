"""The messages that pass a server: publications, the clients that should get them, and the deliveries to each client.

`Messages` is the model of a server (`lint.model`).  It remembers the PUBLISH packets of captured clients on topics with
subscribers, follows all subscriptions (`subscriber_table`), and pairs what the server sends with what it received, by
topic and payload.  A pair is only as certain as its payload is distinctive.  A delivery without a counterpart comes
from a publisher outside the capture and proves nothing.  Retained messages sent after a SUBSCRIBE are handled apart;
topics of wills are left out, because the server publishes there itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from zlib import crc32

from mqttscope.events import GapEvent
from mqttscope.lint.broker_watch import BrokerWatch
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Scope
from mqttscope.lint.subscriber_table import MAX_HOLDERS, HeldSubscription, KnownSession, SubscriberTable, plain_filter
from mqttscope.mqtt import Malformed, PacketType, Properties, ProtocolVersion, Unparsed, Will
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqttscope.mqtt.properties import MESSAGE_EXPIRY_INTERVAL
from mqttscope.session.connection import Connection
from mqttscope.session.matching import FAILURE

MAX_TOPICS = 10_000
"""Maximum number of topics of a server with remembered messages; the one published to longest ago is dropped first."""
MAX_MESSAGES = 50_000
"""Maximum number of messages of a server, all topics together, if each has a payload of its own."""
MAX_OF_TOPIC = 64
"""Minimum number of messages kept of one topic; the oldest are forgotten when there are twice as many."""
MAX_CONTENTS = 512
"""Maximum number of payload checksums remembered per topic."""
MAX_ALIKE = 4
"""Maximum number of messages of one topic with the same payload; beyond it they are not judged."""
MAX_COPIES = 64
"""Maximum number of clients remembered per message, and of copies per client."""
MAX_ROUTES = 64
"""Maximum number of pairs of publisher and subscriber remembered per topic."""
MAX_UNANSWERED = 10_000
"""Maximum number of unanswered messages remembered; when exceeded, the oldest never counts as accepted."""
MAX_EXPECTED = 64
"""Maximum number of messages that a client is expected to get; beyond it its queue may overflow: nothing is judged."""
MAX_WAITING = 2_000
"""Maximum number of clients of a server with expected messages."""
MAX_TEXT = 4_096
"""Maximum total length of a message's properties; longer ones are not compared."""
KEEP_NS = 3_600 * SECOND_NS
"""How long a message is remembered."""
EXPECT_NS = 600 * SECOND_NS
"""How long a message is expected beyond the timeout of a rule, and how long nothing is expected for a client after it
exceeded `MAX_EXPECTED`."""
SETTLE_NS = SECOND_NS
"""Time after its SUBACK before a subscription counts: the parts of a server process it one after the other, and the
order of packets on different connections may differ between server and capture."""
HIDDEN_NS = 60 * SECOND_NS
"""How long after an unreadable message others may be equal to it."""
OVERHEAD = 64
"""Maximum number of bytes that a server adds to a PUBLISH, beyond topic, payload and published properties."""
NARROW = 10
"""Threshold of unacknowledged messages: a server may hold back the next one."""
_COMPARED = frozenset((0x01, 0x03, 0x08, 0x09, 0x26))
"""Payload Format Indicator, Content Type, Response Topic, Correlation Data, User Property."""

ForwardedProperties = tuple[tuple[int, Any], ...]
"""Properties that a server has to forward, in the order sent."""


@dataclass(slots=True)
class DeliveredCopy:
    """One delivery of a message to a client."""

    key: ConnectionKey
    qos: int
    packet_identifier: int | None
    packet: int
    frame: int
    timestamp_ns: int
    retained: bool = False
    share: str = ""
    """Shared Subscription of the delivery, if the client has no other matching subscription."""


@dataclass(slots=True)
class PublishedMessage:
    """A message that a client published."""

    number: int
    """Running number per server."""
    topic: str
    checksum: int
    """CRC-32 of the payload."""
    length: int
    """Bytes of the payload."""
    qos: int
    timestamp_ns: int
    publisher: str
    key: ConnectionKey
    packet: int
    frame: int
    capture: str
    version: ProtocolVersion
    size: int
    """Bytes of the packet, with the complete topic."""
    forwarded: ForwardedProperties | None
    """Its forwarded properties; ``None`` if they are too long."""
    expiry: int | None = None
    """Message Expiry Interval in seconds."""
    retain: bool = False
    again: bool = False
    """Whether the topic had, or may have had, an earlier message with this payload: the two look alike."""
    resent: bool = False
    """Whether the publisher sent it more than once."""
    accepted_ns: int = 0
    """When the server acknowledged it in full; 0 before."""
    refused: bool = False
    copies: dict[str, list[DeliveredCopy]] = field(default_factory=dict)
    """Deliveries, by client."""
    crowded: bool = False
    """Whether there were more deliveries, or equal messages, than are remembered."""

    @property
    def is_distinct(self) -> bool:
        """Whether a delivery with its topic and payload must be of this message."""
        return not (self.again or self.crowded)


@dataclass(slots=True)
class TopicMessages:
    """The messages of one topic."""

    name: str
    number: int
    """Number of its first message; an evicted topic that returns has another number."""
    revision: int = -1
    """Revision of the subscriber table for ``patterns``."""
    patterns: tuple[str, ...] = ()
    """Matching filters with wildcards."""
    skipped: bool = False
    """Whether messages without a subscriber, which are not remembered, were published."""
    recent: list[PublishedMessage] = field(default_factory=list)
    """Oldest first."""
    contents: dict[int, list[PublishedMessage]] = field(default_factory=dict)
    """Messages by checksum, last published last; evicted messages leave empty lists."""
    retained: PublishedMessage | None = None
    """The last message with RETAIN 1."""
    routes: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Pairs of a publisher and a subscriber that received its messages."""
    proven: dict[str, bool] = field(default_factory=dict)
    """Publishers with a message that was delivered to any client."""


@dataclass(slots=True)
class ExpectedMessage:
    """A message that a client should get."""

    sent: PublishedMessage
    held: HeldSubscription
    topic_number: int
    number: int
    """Running number per server, by time."""
    since_ns: int
    """When the server accepted it, or when the client came back if it was away."""


ExpectedMessages = dict[tuple[str, int], ExpectedMessage]
"""Messages by topic and checksum."""


@dataclass(slots=True)
class Pairing:
    """A PUBLISH of the server, with the messages that it may be a copy of."""

    topic: TopicMessages
    owner: str
    """The receiving client."""
    candidates: list[PublishedMessage]
    """Messages with this topic and payload, oldest first."""
    retained: bool
    """Whether it answers a subscription: then the message is the last one with RETAIN 1."""

    @property
    def sole(self) -> PublishedMessage | None:
        """The message, if no other message has its topic and payload."""
        if len(self.candidates) != 1:
            return None
        message = self.candidates[0]
        return message if message.is_distinct else None


@dataclass(slots=True)
class Messages(BrokerWatch):
    """The messages that pass one server."""

    code = "messages"
    scope = Scope.BROKER
    looks_at = (Publish, Puback, Pubrec, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback, Connect, Connack)

    table: SubscriberTable = field(default_factory=SubscriberTable)
    topics: dict[str, TopicMessages] = field(default_factory=dict)
    size: int = 0
    """Number of messages and payloads remembered, all topics together."""
    published: int = 0
    """Number of messages published."""
    awaited: dict[tuple[ConnectionKey, int], PublishedMessage] = field(default_factory=dict)
    """Messages that the server has not acknowledged, by connection and packet identifier."""
    expected: dict[ConnectionKey, ExpectedMessages] = field(default_factory=dict)
    """Messages to be delivered on open connections."""
    owed: dict[str, ExpectedMessages] = field(default_factory=dict)
    """Messages for sessions without a connection; a session that overflowed has no entry until its client is back."""
    owed_to: dict[ConnectionKey, ExpectedMessages] = field(default_factory=dict)
    """Messages of ``owed`` after the client came back."""
    overflowed: dict[str, int] = field(default_factory=dict)
    """When a client exceeded `MAX_EXPECTED`."""
    oversized: dict[ConnectionKey, PublishedMessage] = field(default_factory=dict)
    """The last message that was too long for a client."""
    marked: dict[str, str] = field(default_factory=dict)
    """Topics with U+FEFF, by the topic without it."""
    numbered: int = 0
    hidden_ns: int = -HIDDEN_NS
    """When an unreadable message was published."""
    at_hand: tuple[ConnectionKey, int, Pairing | None] | None = field(default=None, compare=False, repr=False)
    """The pairing of the current packet."""

    def follows_will(self, will: Will) -> bool:
        """Always: the message of a will has no PUBLISH of a client."""
        return True

    def forget(self) -> None:
        """Discard everything known about published messages."""
        self.topics.clear()
        self.awaited.clear()
        self.expected.clear()
        self.owed.clear()
        self.owed_to.clear()
        self.oversized.clear()
        self.marked.clear()
        self.size = 0
        self.hidden_ns = self.now_ns

    def forget_topic(self, topic: str) -> None:
        known = self.topics.pop(topic, None)
        if known is not None:
            self.size -= len(known.recent) + len(known.contents)

    # Connections

    def opened(self, connection: Connection, at: RuleContext) -> None:
        """Handle a connection from before the capture: it may have any subscriptions."""
        BrokerWatch.opened(self, connection, at)
        if not connection.handshake_seen and connection.transport != "tls":
            self.table.mark_incomplete(at.key)

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        """Handle lost bytes of a connection: they may have changed its subscriptions."""
        BrokerWatch.gap(self, event, at)
        self.table.mark_incomplete(at.key)

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        BrokerWatch.unparsed(self, unparsed, at)

    def damaged(self, packet: Malformed, at: RuleContext) -> None:
        """Handle a packet that could not be read completely; a PUBLISH of the server may be a copy of any message."""
        BrokerWatch.damaged(self, packet, at)
        if not packet.complete and packet.packet_type == PacketType.PUBLISH:
            self.forget()

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of a connection: its unanswered messages may be lost, or sent again elsewhere."""
        BrokerWatch.closed(self, connection, at)
        self.expected.pop(at.key, None)
        self.owed_to.pop(at.key, None)
        self.oversized.pop(at.key, None)
        for identifier in at.client.exchanges:
            self.awaited.pop((at.key, identifier), None)
        expiry = float(connection.session_expiry_interval or 0)
        if connection.version is not ProtocolVersion.V5 or expiry == 0xFFFFFFFF:
            expiry = 0.0 if connection.version is not ProtocolVersion.V5 and connection.clean_start else 1e9
        self.table.leave(at.client_name, at.key, at.timestamp_ns, expiry)

    # Packets

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Update publications, subscriptions and deliveries with a packet."""
        if type(packet) is Publish:
            if at.from_client:
                self.publish(packet, at)
            else:
                self.deliver(packet, at)
        elif isinstance(packet, (Puback, Pubrec, Pubcomp)):
            if not at.from_client:
                self._answer(packet, at)
        elif isinstance(packet, (Connect, Connack)):
            self.take(packet, at)
            if isinstance(packet, Connack) and not at.from_client:
                if not packet.reason_code:
                    self._connected(packet, at)
                elif at.history.connack is None:
                    self.table.refuse(at.client_name, at.key)
        else:
            self._subscriptions(packet, at)

    def _connected(self, packet: Connack, at: RuleContext) -> None:
        connect = at.history.connect
        resumes = bool(packet.session_present)
        if at.version is ProtocolVersion.V3_1:
            resumes = not at.connection.clean_start  # 3.1 has no Session Present
        owner = at.client_name
        session = self.table.connect(owner, at.key, at.timestamp_ns, resumes=resumes)
        session.limit = at.client.maximum_packet_size
        owed = self.owed.pop(owner, None)
        self.overflowed.pop(owner, None)
        if (
            owed
            and resumes
            and session.queued <= MAX_EXPECTED
            and len(self.owed_to) < MAX_WAITING
            and not (connect is not None and connect.bridge)
        ):
            for expected in owed.values():
                expected.since_ns = at.timestamp_ns
            self.owed_to[at.key] = owed

    def _subscriptions(self, packet: Any, at: RuleContext) -> None:
        table, owner = self.table, at.client_name
        session = table.sessions.get(owner)
        if isinstance(packet, Subscribe):
            if session is None or session.key != at.key:
                if at.history.connect is not None and at.history.connack is None:
                    session = table.ask(owner, at.key, at.timestamp_ns)
                else:
                    session = table.connect(owner, at.key, at.timestamp_ns, resumes=True)
                session.limit = at.client.maximum_packet_size
            for row in packet.subscriptions or ():
                plain, is_shared = plain_filter(row.topic_filter)
                fields = (plain, is_shared, row.no_local, at.number, at.event.frame, at.timestamp_ns)
                table.subscribe(session, HeldSubscription(owner, row.topic_filter, *fields))
            return
        if session is None or session.key != at.key:
            return
        if isinstance(packet, Unsubscribe):
            for name in packet.topic_filters or ():
                held = session.held.get(name)
                if held is not None:
                    held.ending = True
            return
        kind = "subscribe" if isinstance(packet, Suback) else "unsubscribe"
        request = at.history.subscriptions.request_for(packet.packet_identifier, kind)
        if request is None or request.answers:
            return
        codes = packet.reason_codes or ()
        for place, name in enumerate(request.topic_filters):
            held = session.held.get(name)
            if held is None or held.timestamp_ns > request.timestamp_ns:
                continue
            if kind == "subscribe":
                if held.packet == request.packet and len(codes) == len(request.topic_filters):
                    code = codes[place]
                    held.qos = code if code < 3 else -1
                    held.granted_ns = at.timestamp_ns
            elif place >= len(codes) or codes[place] < FAILURE:
                table.unsubscribe(session, name)

    # Publishing

    def publish(self, packet: Publish, at: RuleContext) -> None:
        """Handle a PUBLISH of a client."""
        self.published += 1
        if at.timestamp_ns < self.now_ns:
            self.pass_time(at.timestamp_ns)
        else:
            self.now_ns = at.timestamp_ns
        name = at.topic
        if not name or name[0] == "$":
            if name is None:
                self.forget()  # an unknown alias: it may be any topic
            return
        known = self.topics.get(name)
        if known is None:
            if self.wills and self.hides(name):
                return
            known = self.topics[name] = TopicMessages(name, self.published)
            if len(self.topics) > MAX_TOPICS:
                self._forget_oldest()
        if packet.missing:
            self.forget_topic(name)  # it may equal any of its messages
            self.hidden_ns = at.timestamp_ns
        elif self._holding(known):
            self._remember(packet, known, at)
        else:
            known.skipped = True
            if packet.retain:
                checksum = crc32(packet.payload)
                known.retained = self._sent(packet, checksum, known, at) if packet.payload else None

    def _holding(self, known: TopicMessages) -> list[dict[tuple[str, str], HeldSubscription]]:
        """Subscriptions to a topic, by filter."""
        table = self.table
        if known.revision != table.revision:
            known.patterns, known.revision = table.matching(known.name), table.revision
        return table.holding(known.name, known.patterns)

    def _remember(self, packet: Publish, known: TopicMessages, at: RuleContext) -> None:
        checksum, identifier = crc32(packet.payload), packet.packet_identifier
        alike = known.contents.pop(checksum, None)
        if packet.dup and packet.qos and alike:
            for message in alike:
                # After its PUBREL the server has forgotten a QoS 2 message, and takes the PUBLISH for a new one.
                is_over = message.qos == 2 and message.accepted_ns
                if message.publisher == at.client_name and message.qos == packet.qos and not is_over:
                    message.resent = True
                    known.contents[checksum] = alike
                    if identifier is not None and not message.accepted_ns:
                        self._await((at.key, identifier), message)
                    return
        message = self._sent(packet, checksum, known, at)
        message.again = alike is not None or packet.dup or at.timestamp_ns - self.hidden_ns < HIDDEN_NS
        if alike is None:
            alike = []
            self.size += 1
        elif len(alike) >= MAX_ALIKE:
            alike = alike[1:]
            for other in alike:
                other.crowded = True
            message.crowded = True
        alike.append(message)
        known.contents[checksum] = alike
        self.topics[known.name] = self.topics.pop(known.name)
        known.recent.append(message)
        self.size += 1
        if packet.retain:
            known.retained = message if packet.payload else None
        if identifier is not None:
            self._await((at.key, identifier), message)
        if "\ufeff" in known.name and len(self.marked) < MAX_TOPICS:
            self.marked[known.name.replace("\ufeff", "")] = known.name
        if len(known.recent) >= 2 * MAX_OF_TOPIC or known.recent[0].timestamp_ns < at.timestamp_ns - KEEP_NS:
            self._thin(known, at.timestamp_ns - KEEP_NS)
        while self.size > 2 * MAX_MESSAGES and len(self.topics) > 1:
            self._forget_oldest()

    def _sent(self, packet: Publish, checksum: int, known: TopicMessages, at: RuleContext) -> PublishedMessage:
        event, block = at.event, packet.properties
        message = PublishedMessage(
            self.published, known.name, checksum, len(packet.payload), packet.qos, at.timestamp_ns,
            at.client_name, at.key, at.number, event.frame, event.capture, at.version,
            len(packet.raw) + (0 if packet.topic_name else len(known.name)),
            () if not block else forwarded_properties(block),
        )  # fmt: skip
        if block:
            message.expiry = block.first(MESSAGE_EXPIRY_INTERVAL)
        message.resent, message.retain = packet.dup, packet.retain
        return message

    def _await(self, key: tuple[ConnectionKey, int], message: PublishedMessage) -> None:
        self.awaited[key] = message
        forget_oldest(self.awaited, MAX_UNANSWERED)

    def _forget_oldest(self) -> None:
        self.forget_topic(next(iter(self.topics)))

    def _thin(self, known: TopicMessages, before_ns: int) -> None:
        """Drop the oldest messages of a topic, and above a limit the checksums of earlier payloads."""
        recent, contents = known.recent, known.contents
        count = MAX_OF_TOPIC if len(recent) >= 2 * MAX_OF_TOPIC else 0
        while count < len(recent) - 1 and recent[count].timestamp_ns < before_ns:
            count += 1
        for message in recent[:count]:
            alike = contents.get(message.checksum)
            if alike and alike[0] is message:
                del alike[0]
        del recent[:count]
        self.size -= count
        if len(contents) > MAX_CONTENTS:
            for checksum in list(islice(contents, MAX_CONTENTS // 2)):
                if not contents[checksum]:
                    del contents[checksum]
                    self.size -= 1

    # Answers of the server

    def awaiting(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> PublishedMessage | None:
        """The message that an answer of the server accepts."""
        if at.from_client or (packet.reason_code or 0) >= FAILURE or type(packet) is Pubrec or is_doubtful(packet, at):
            return None
        return self.awaited.get((at.key, packet.packet_identifier))

    def _answer(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> None:
        refused = (packet.reason_code or 0) >= FAILURE
        if type(packet) is Pubrec and not refused:
            return
        message = self.awaited.pop((at.key, packet.packet_identifier), None)
        if message is None:
            return
        if is_doubtful(packet, at):
            for _, session in self.lacking(message, at.timestamp_ns):
                session.queued += session.key is None
            return
        if refused:
            message.refused = True
            known = self.topics.get(message.topic)
            if known is not None and known.retained is message:
                known.retained = None
            return
        message.accepted_ns = at.timestamp_ns
        known = self.topics.get(message.topic)
        if known is None:
            return
        for held, session in self.lacking(message, at.timestamp_ns):
            fitting = fits(message, session)
            if not fitting:
                if fitting is False and session.key is not None:
                    self.oversized[session.key] = message
                continue
            new = ExpectedMessage(message, held, known.number, self.numbered, at.timestamp_ns)
            self.numbered += 1
            if session.key is None:
                session.queued += 1
                if session.queued > MAX_EXPECTED:
                    self.owed.pop(session.owner, None)
                    continue
                self._put(self.owed, session.owner, session.owner, new)
            elif not self._has_come(message, session.key, at):
                self._put(self.expected, session.key, session.owner, new)

    def _has_come(self, message: PublishedMessage, key: ConnectionKey, at: RuleContext) -> bool:
        """Whether the capture shows the message at the subscriber before it shows it at the publisher."""
        history = at.history_of(key)
        if history is None:
            return True
        since_ns = message.timestamp_ns - SETTLE_NS
        for row in reversed(history.server.recent):
            if row.timestamp_ns < since_ns:
                break
            if row.checksum == message.checksum and row.topic == message.topic:
                return True
        return False

    def _put(self, where: dict[Any, ExpectedMessages], key: Any, owner: str, new: ExpectedMessage) -> None:
        now_ns = new.since_ns
        waiting = where.get(key)
        if waiting is None:
            if len(where) >= MAX_WAITING:
                return
            waiting = where[key] = {}
        if len(waiting) >= MAX_EXPECTED and where is self.expected:
            for name in [name for name, expected in waiting.items() if expected.since_ns < now_ns - EXPECT_NS]:
                del waiting[name]
        if len(waiting) >= MAX_EXPECTED:
            del where[key]
            self.overflowed[owner] = now_ns
            forget_oldest(self.overflowed, MAX_WAITING)
            return
        name = new.sent.topic, new.sent.checksum
        waiting.pop(name, None)  # the table is in the order of numbers
        waiting[name] = new

    def lacking(self, message: PublishedMessage, now_ns: int) -> Iterator[tuple[HeldSubscription, KnownSession]]:
        """Subscriptions of clients that should have got a message and have not: one per client.

        Subscriptions that began or may end meanwhile are left out.  The message may be too long for a client (`fits`).
        """
        known = self.topics.get(message.topic)
        if known is None or not message.qos or message.refused or message.crowded:
            return
        holding = self._holding(known)
        if sum(map(len, holding)) > MAX_HOLDERS:
            return
        before_ns = message.timestamp_ns - SETTLE_NS
        sessions, copies, overflowed = self.table.sessions, message.copies, self.overflowed
        seen: set[str] = set()
        for held in (subscription for table in holding for subscription in table.values()):
            owner = held.owner
            if held.qos < 1 or held.granted_ns > message.timestamp_ns or held.ending or held.is_shared:
                continue
            if owner in copies or owner in seen or (held.no_local and owner == message.publisher):
                continue
            session = sessions.get(owner)
            if session is None or session.until_ns < now_ns:
                continue
            if max(held.granted_ns, session.since_ns) > before_ns and not self._is_served(message, held, session):
                continue
            seen.add(owner)
            if session.key is None and session.since_ns <= self.hidden_ns:
                continue  # unreadable messages may have filled its queue
            if overflowed and now_ns - overflowed.get(owner, -EXPECT_NS) < EXPECT_NS:
                continue
            yield held, session

    def _is_served(self, message: PublishedMessage, held: HeldSubscription, session: KnownSession) -> bool:
        """Whether a new subscription already delivered an earlier message of this publisher and topic."""
        for earlier in reversed(self.topics[message.topic].recent):
            if earlier.timestamp_ns < held.granted_ns:
                return False
            if earlier.number < message.number and earlier.key == message.key and earlier.is_distinct:
                for copy in earlier.copies.get(held.owner, ()):
                    if copy.key == session.key and not copy.retained and copy.timestamp_ns > held.granted_ns:
                        return True
        return False

    def overtaking(self, expected: ExpectedMessage, key: ConnectionKey) -> DeliveredCopy | None:
        """Delivery on a connection of a later message, which the server must not send before the expected one.

        Both are of one connection of the publisher, one topic and one QoS (5.0 4.6.0-6).  With QoS 2, the later message
        was published after the exchange of the expected one: some servers send in the order of the PUBREL packets.
        """
        sent, held = expected.sent, expected.held
        known = self.topics.get(sent.topic)
        if known is None:
            return None
        for later in known.recent:
            if later.number <= sent.number or later.key != sent.key or later.qos != sent.qos:
                continue
            if not later.is_distinct or (sent.qos == 2 and later.timestamp_ns <= sent.accepted_ns):
                continue
            copies = later.copies.get(held.owner, ())
            if len(copies) != 1 or copies[0].qos != min(sent.qos, held.qos):
                continue
            if copies[0].key == key and not copies[0].retained:
                return copies[0]
        return None

    # Deliveries

    def pairing(self, packet: Publish, at: RuleContext) -> Pairing | None:
        """A PUBLISH of the server with the messages it may be a copy of; ``None`` without any."""
        name = at.topic
        known = None if name is None else self.topics.get(name)
        if known is None:
            return None
        hand = self.at_hand
        if hand is not None and hand[1] == at.number and hand[0] == at.key:
            return hand[2]
        pairing = self._pair(packet, known, at)
        self.at_hand = at.key, at.number, pairing
        return pairing

    def _pair(self, packet: Publish, known: TopicMessages, at: RuleContext) -> Pairing | None:
        if packet.missing or (known.skipped and (not self.table.whole or at.key in self.table.strangers)):
            return None  # it may be a message that is not remembered
        checksum, length = crc32(packet.payload), len(packet.payload)
        if packet.retain and not at.history.subscriptions.match(known.name).retain_as_published:
            message = known.retained
            if message is None or message.checksum != checksum or message.length != length:
                return None
            return Pairing(known, at.client_name, [message], True)
        alike = known.contents.get(checksum)
        if not alike:
            return None
        candidates = [message for message in alike if message.length == length and not message.refused]
        return Pairing(known, at.client_name, candidates, False) if candidates else None

    def topic_with_mark(self, packet: Publish, topic: str, at: RuleContext) -> PublishedMessage | None:
        """The message on the same topic with U+FEFF in it, if nothing was published on the topic itself."""
        known = self.topics.get(self.marked.get(topic, ""))
        if known is None or packet.missing or self.pairing(packet, at) is not None:
            return None
        alike = known.contents.get(crc32(packet.payload), ())
        candidates = [message for message in alike if message.length == len(packet.payload) and not message.refused]
        return candidates[-1] if candidates and not candidates[-1].crowded else None

    def deliver(self, packet: Publish, at: RuleContext) -> None:
        """Handle a PUBLISH of the server."""
        name = at.topic
        if name is None:
            # It may be on any topic.
            self.expected.pop(at.key, None)
            self.owed_to.pop(at.key, None)
            return
        for table in (self.expected, self.owed_to):
            waiting = table.get(at.key)
            if waiting and waiting.pop((name, crc32(packet.payload)), None) is not None and not waiting:
                del table[at.key]  # room for another client (`MAX_WAITING`)
        if packet.missing:
            self.forget_topic(name)  # the message is unknown
            return
        pairing = self.pairing(packet, at)
        self.at_hand = None
        if pairing is None:
            return
        owner, known = pairing.owner, pairing.topic
        copy = DeliveredCopy(
            at.key, packet.qos, packet.packet_identifier, at.number, at.event.frame, at.timestamp_ns, pairing.retained
        )
        if self.table.shared:
            copy.share = share_of(known.name, at)
        for message in pairing.candidates:
            copies = message.copies.get(owner)
            if copies is None:
                if len(message.copies) >= MAX_COPIES:
                    message.crowded = True
                else:
                    message.copies[owner] = [copy]
            elif len(copies) < MAX_COPIES:
                copies.append(copy)
            else:
                message.crowded = True
        if not pairing.retained:
            publisher = pairing.candidates[-1].publisher
            if (publisher, owner) not in known.routes and len(known.routes) < MAX_ROUTES:
                known.routes[publisher, owner] = True
                known.proven[publisher] = True

    def holds(self, expected: ExpectedMessage) -> bool:
        """Whether everything that happened to its topic since is known."""
        known = self.topics.get(expected.sent.topic)
        return known is not None and known.number == expected.topic_number and not expected.sent.refused


def is_doubtful(packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> bool:
    """Whether an answer of the server may belong to another message, or may be incomplete in the capture."""
    return packet.missing > 0 or at.server.gapped or at.history.disordered


def share_of(topic: str, at: RuleContext) -> str:
    """The Shared Subscription of a topic, if no other subscription of the client matches; else ``""``."""
    match = at.history.subscriptions.match(topic)
    if len(match.subscriptions) != 1 or not match.known or match.replaces or match.ended:
        return ""
    (subscription,) = match.subscriptions
    return subscription.topic_filter if subscription.is_shared and subscription.granted is not None else ""


def fits(message: PublishedMessage, session: KnownSession) -> bool | None:
    """Whether a message fits the client's limit; ``None`` if that depends on how the server encodes it."""
    limit = session.limit
    if limit is None or message.size + OVERHEAD <= limit:
        return True
    least = len(message.topic.encode("utf-8", "surrogateescape")) + message.length + 7
    return False if least > limit else None


def forwarded_properties(block: Properties) -> ForwardedProperties | None:
    """The properties that a server has to forward; ``None`` if they are too long."""
    properties = tuple([row for row in block.items if row[0] in _COMPARED])
    size = 0
    for number, value in properties:
        if number != 0x01:
            size += sum(map(len, value)) if number == 0x26 else len(value)
    return properties if size <= MAX_TEXT else None
