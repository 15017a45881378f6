"""The messages that pass a server: what was published, which clients should get it, and what was delivered to each.

`Messages` is the model of a server (`lint.model`).  It remembers the PUBLISH packets that captured clients sent, for
the topics that have subscribers, follows the subscriptions of all of them (`subscriber_table`), and pairs what the
server sends with what it had received: by topic and payload.  A pair is only as certain as its payload is distinctive;
a delivery without a counterpart comes from a publisher that was not captured, and proves nothing.  Retained messages
that answer a SUBSCRIBE are kept apart, as are topics of wills, which the server publishes itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from zlib import crc32

from mqttscope.events import GapEvent
from mqttscope.lint.broker_watch import Watch
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Scope
from mqttscope.lint.subscriber_table import MAX_HOLDERS, Held, KnownSession, SubscriberTable, plain_filter
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
"""Topics of a server whose messages are remembered; the one published to longest ago goes first."""
MAX_MESSAGES = 50_000
"""Messages of all topics of a server together, where each has a payload of its own."""
MAX_OF_TOPIC = 64
"""Minimum number of messages kept of one topic; the oldest are forgotten when there are twice as many."""
MAX_CONTENTS = 512
"""Payloads of one topic that are known to have come before, by their checksums."""
MAX_ALIKE = 4
"""Messages of one topic with the same payload; where there were more, they are not judged."""
MAX_COPIES = 64
"""Clients that got a message, and how often one did, as far as that is remembered."""
MAX_ROUTES = 64
"""Ways from a publisher to a subscriber that are remembered of a topic."""
MAX_UNANSWERED = 10_000
"""Messages whose answers are waited for; one that was published longer ago is never taken for accepted."""
MAX_EXPECTED = 64
"""Messages that one client should get and has not; more of them are too many for its queue, and none is judged."""
MAX_WAITING = 2_000
"""Clients of a server for which messages are expected."""
MAX_TEXT = 4_096
"""Characters and bytes of the properties of a message that are remembered; longer ones are not compared."""
KEEP_NS = 3_600 * SECOND_NS
"""How long a message is remembered."""
EXPECT_NS = 600 * SECOND_NS
"""How long a message is expected, beyond the time-out of a rule; and how long nothing is expected for a client that had
more to get than is waited for."""
SETTLE_NS = SECOND_NS
"""A subscription counts from so long after its SUBACK on: the parts of a server learn of it one after the other, and
the capture shows several connections in an order of its own."""
HIDDEN_NS = 60 * SECOND_NS
"""How long after a message that could not be read others may be like it."""
OVERHEAD = 64
"""Bytes of a PUBLISH beside topic, payload and what it was published with: more than a server adds."""
NARROW = 10
"""Messages that wait for answers of a client; a server that limits them holds back what comes next."""
_COMPARED = frozenset((0x01, 0x03, 0x08, 0x09, 0x26))
"""Payload Format Indicator, Content Type, Response Topic, Correlation Data, User Property."""

Told = tuple[tuple[int, Any], ...]
"""Properties that a server has to pass on, in the order in which they were sent."""


@dataclass(slots=True)
class Copy:
    """What a client got of a message."""

    key: ConnectionKey
    qos: int
    packet_identifier: int | None
    packet: int
    frame: int
    timestamp_ns: int
    retained: bool = False
    share: str = ""
    """The Shared Subscription that it is for, where the client has no other one that matches."""


@dataclass(slots=True)
class Sent:
    """A message that a client published."""

    number: int
    """Counted for the server."""
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
    told: Told | None
    """Its properties, ``None`` where they are too long."""
    expiry: int | None = None
    """Message Expiry Interval in seconds."""
    retain: bool = False
    again: bool = False
    """Whether the topic had a message with this payload before, or may have had, so that the two look alike."""
    resent: bool = False
    """Whether the publisher sent it more than once."""
    accepted_ns: int = 0
    """When the server had acknowledged it in full; 0 before."""
    refused: bool = False
    copies: dict[str, list[Copy]] = field(default_factory=dict)
    """What clients got of it."""
    crowded: bool = False
    """Whether there was more than is remembered."""

    @property
    def is_distinct(self) -> bool:
        """Whether a delivery with its topic and payload is one of this message."""
        return not (self.again or self.crowded)


@dataclass(slots=True)
class Topic:
    """The messages of one topic."""

    name: str
    number: int
    """Of the message that it began with: a topic that was forgotten in between is another one."""
    revision: int = -1
    """Of the table that ``patterns`` are from."""
    patterns: tuple[str, ...] = ()
    """Filters with wildcards that match."""
    skipped: bool = False
    """Whether there were messages without any subscriber, which are not remembered."""
    recent: list[Sent] = field(default_factory=list)
    """Oldest first."""
    contents: dict[int, list[Sent]] = field(default_factory=dict)
    """The same by checksum, with those that were forgotten as empty lists, last published last."""
    retained: Sent | None = None
    """The last one with RETAIN 1."""
    routes: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Publishers and subscribers of whom one got what the other sent."""
    proven: dict[str, bool] = field(default_factory=dict)
    """Publishers whose messages went to anybody."""


@dataclass(slots=True)
class Expected:
    """A message that a client should get."""

    sent: Sent
    held: Held
    topic_number: int
    number: int
    """Counted for the server, in the order of their times."""
    since_ns: int
    """When the server had accepted it; for one that waited while the client was away, when that came back."""


@dataclass(slots=True)
class Pairing:
    """What the server sends, with the messages that it may be of."""

    topic: Topic
    owner: str
    """Who gets it."""
    candidates: list[Sent]
    """Messages with this topic and payload, oldest first."""
    retained: bool
    """Whether it is sent because a client has subscribed: the last one with RETAIN 1 then."""

    @property
    def sole(self) -> Sent | None:
        """The message, where no other one has its topic and payload."""
        if len(self.candidates) != 1:
            return None
        found = self.candidates[0]
        return found if found.is_distinct else None


@dataclass(slots=True)
class Messages(Watch):
    """The messages that pass one server."""

    code = "messages"
    scope = Scope.BROKER
    looks_at = (Publish, Puback, Pubrec, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback, Connect, Connack)

    table: SubscriberTable = field(default_factory=SubscriberTable)
    topics: dict[str, Topic] = field(default_factory=dict)
    kept: int = 0
    """Messages and payloads of all topics."""
    published: int = 0
    """Messages so far."""
    awaited: dict[tuple[ConnectionKey, int], Sent] = field(default_factory=dict)
    """Messages that the server has not acknowledged, by their packet identifier."""
    expected: dict[ConnectionKey, dict[tuple[str, int], Expected]] = field(default_factory=dict)
    """What a connection should bring, by topic and checksum."""
    owed: dict[str, dict[tuple[str, int], Expected]] = field(default_factory=dict)
    """What sleeping sessions should get; of those that have overflowed nothing, until they come back."""
    owed_to: dict[ConnectionKey, dict[tuple[str, int], Expected]] = field(default_factory=dict)
    """The same once they have come back."""
    overflowed: dict[str, int] = field(default_factory=dict)
    """When a client had more to get than is waited for."""
    oversized: dict[ConnectionKey, Sent] = field(default_factory=dict)
    """The last message that was too long for a client."""
    marked: dict[str, str] = field(default_factory=dict)
    """Topics with U+FEFF, by what is left without it."""
    numbered: int = 0
    hidden_ns: int = -HIDDEN_NS
    """When a message was published that could not be read."""
    at_hand: tuple[ConnectionKey, int, Pairing | None] | None = field(default=None, compare=False, repr=False)
    """The pairing of the packet that is judged now."""

    def minds(self, will: Will) -> bool:
        """What a will brings has no PUBLISH of a client."""
        return True

    def forget(self) -> None:
        """Nothing is certain any more of what was published."""
        self.topics.clear()
        self.awaited.clear()
        self.expected.clear()
        self.owed.clear()
        self.owed_to.clear()
        self.oversized.clear()
        self.marked.clear()
        self.kept = 0
        self.hidden_ns = self.now_ns

    def forget_topic(self, topic: str) -> None:
        known = self.topics.pop(topic, None)
        if known is not None:
            self.kept -= len(known.recent) + len(known.contents)

    # What happens to connections

    def opened(self, connection: Connection, at: RuleContext) -> None:
        """A connection from before the capture may have any subscriptions."""
        Watch.opened(self, connection, at)
        if not connection.handshake_seen and connection.transport != "tls":
            self.table.strange(at.key)

    def gap(self, event: GapEvent, at: RuleContext) -> None:
        """Bytes of a connection are lost; what it subscribes to is not known any more."""
        Watch.gap(self, event, at)
        self.table.strange(at.key)

    def unparsed(self, unparsed: Unparsed, at: RuleContext) -> None:
        """Bytes of a connection belong to no packet."""
        Watch.unparsed(self, unparsed, at)

    def damaged(self, found: Malformed, at: RuleContext) -> None:
        """A packet could not be read to its end; a PUBLISH of the server may be a copy of any message."""
        Watch.damaged(self, found, at)
        if not found.complete and found.packet_type == PacketType.PUBLISH:
            self.forget()

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """A connection has ended; what it had not been answered may have been lost, or sent again elsewhere."""
        Watch.closed(self, connection, at)
        self.expected.pop(at.key, None)
        self.owed_to.pop(at.key, None)
        self.oversized.pop(at.key, None)
        for identifier in at.client.exchanges:
            self.awaited.pop((at.key, identifier), None)
        expiry = float(connection.session_expiry_interval or 0)
        if connection.version is not ProtocolVersion.V5 or expiry == 0xFFFFFFFF:
            expiry = 0.0 if connection.version is not ProtocolVersion.V5 and connection.clean_start else 1e9
        self.table.leave(at.client_name, at.key, at.timestamp_ns, expiry)

    # What packets say

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Move on by a packet."""
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
            resumes = not at.connection.clean_start  # there a CONNACK does not say
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
            for one in owed.values():
                one.since_ns = at.timestamp_ns
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
                where = (at.number, at.event.frame, at.timestamp_ns)
                table.subscribe(session, Held(owner, row.topic_filter, plain, is_shared, row.no_local, *where))
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

    # What is published

    def publish(self, packet: Publish, at: RuleContext) -> None:
        """Take what a client publishes."""
        self.published += 1
        if at.timestamp_ns < self.now_ns:
            self.pass_time(at.timestamp_ns)
        else:
            self.now_ns = at.timestamp_ns
        name = at.topic
        if not name or name[0] == "$":
            if name is None:
                self.forget()  # an alias that is not known: it may be any topic
            return
        known = self.topics.get(name)
        if known is None:
            if self.wills and self.hides(name):
                return
            known = self.topics[name] = Topic(name, self.published)
            if len(self.topics) > MAX_TOPICS:
                self._forget_oldest()
        if packet.missing:
            self.forget_topic(name)  # it may be any of its messages
            self.hidden_ns = at.timestamp_ns
        elif self._holding(known):
            self._remember(packet, known, at)
        else:
            known.skipped = True
            if packet.retain:
                checksum = crc32(packet.payload)
                known.retained = self._sent(packet, checksum, known, at) if packet.payload else None

    def _holding(self, known: Topic) -> list[dict[tuple[str, str], Held]]:
        """Who has subscribed to a topic, by filter."""
        table = self.table
        if known.revision != table.revision:
            known.patterns, known.revision = table.matching(known.name), table.revision
        return table.holding(known.name, known.patterns)

    def _remember(self, packet: Publish, known: Topic, at: RuleContext) -> None:
        checksum, identifier = crc32(packet.payload), packet.packet_identifier
        alike = known.contents.pop(checksum, None)
        if packet.dup and packet.qos and alike:
            for one in alike:
                if one.publisher == at.client_name and one.qos == packet.qos:
                    one.resent = True
                    known.contents[checksum] = alike
                    if identifier is not None and not one.accepted_ns:
                        self._await((at.key, identifier), one)
                    return
        one = self._sent(packet, checksum, known, at)
        one.again = alike is not None or packet.dup or at.timestamp_ns - self.hidden_ns < HIDDEN_NS
        if alike is None:
            alike = []
            self.kept += 1
        elif len(alike) >= MAX_ALIKE:
            alike = alike[1:]
            for other in alike:
                other.crowded = True
            one.crowded = True
        alike.append(one)
        known.contents[checksum] = alike
        self.topics[known.name] = self.topics.pop(known.name)
        known.recent.append(one)
        self.kept += 1
        if packet.retain:
            known.retained = one if packet.payload else None
        if identifier is not None:
            self._await((at.key, identifier), one)
        if "\ufeff" in known.name and len(self.marked) < MAX_TOPICS:
            self.marked[known.name.replace("\ufeff", "")] = known.name
        if len(known.recent) >= 2 * MAX_OF_TOPIC or known.recent[0].timestamp_ns < at.timestamp_ns - KEEP_NS:
            self._thin(known, at.timestamp_ns - KEEP_NS)
        while self.kept > 2 * MAX_MESSAGES and len(self.topics) > 1:
            self._forget_oldest()

    def _sent(self, packet: Publish, checksum: int, known: Topic, at: RuleContext) -> Sent:
        event, block = at.event, packet.properties
        one = Sent(
            self.published, known.name, checksum, len(packet.payload), packet.qos, at.timestamp_ns,
            at.client_name, at.key, at.number, event.frame, event.capture, at.version,
            len(packet.raw) + (0 if packet.topic_name else len(known.name)),
            () if not block else told(block),
        )  # fmt: skip
        if block:
            one.expiry = block.first(MESSAGE_EXPIRY_INTERVAL)
        one.resent, one.retain = packet.dup, packet.retain
        return one

    def _await(self, whose: tuple[ConnectionKey, int], one: Sent) -> None:
        self.awaited[whose] = one
        forget_oldest(self.awaited, MAX_UNANSWERED)

    def _forget_oldest(self) -> None:
        self.forget_topic(next(iter(self.topics)))

    def _thin(self, known: Topic, before_ns: int) -> None:
        """Forget the oldest messages of a topic, and beyond some number that their payloads have come before."""
        recent, contents = known.recent, known.contents
        count = MAX_OF_TOPIC if len(recent) >= 2 * MAX_OF_TOPIC else 0
        while count < len(recent) - 1 and recent[count].timestamp_ns < before_ns:
            count += 1
        for one in recent[:count]:
            alike = contents.get(one.checksum)
            if alike and alike[0] is one:
                del alike[0]
        del recent[:count]
        self.kept -= count
        if len(contents) > MAX_CONTENTS:
            for checksum in list(islice(contents, MAX_CONTENTS // 2)):
                if not contents[checksum]:
                    del contents[checksum]
                    self.kept -= 1

    # What the server says to it

    def awaiting(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> Sent | None:
        """The message that an answer of the server accepts."""
        if at.from_client or (packet.reason_code or 0) >= FAILURE or type(packet) is Pubrec or is_doubtful(packet, at):
            return None
        return self.awaited.get((at.key, packet.packet_identifier))

    def _answer(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> None:
        refused = (packet.reason_code or 0) >= FAILURE
        if type(packet) is Pubrec and not refused:
            return
        one = self.awaited.pop((at.key, packet.packet_identifier), None)
        if one is None:
            return
        if is_doubtful(packet, at):
            for _, session in self.lacking(one, at.timestamp_ns):
                session.queued += session.key is None
            return
        if refused:
            one.refused = True
            known = self.topics.get(one.topic)
            if known is not None and known.retained is one:
                known.retained = None
            return
        one.accepted_ns = at.timestamp_ns
        known = self.topics.get(one.topic)
        if known is None:
            return
        for held, session in self.lacking(one, at.timestamp_ns):
            fitting = fits(one, session)
            if not fitting:
                if fitting is False and session.key is not None:
                    self.oversized[session.key] = one
                continue
            new = Expected(one, held, known.number, self.numbered, at.timestamp_ns)
            self.numbered += 1
            if session.key is None:
                session.queued += 1
                if session.queued > MAX_EXPECTED:
                    self.owed.pop(session.owner, None)
                    continue
                self._put(self.owed, session.owner, session.owner, new)
            elif not self._has_come(one, session.key, at):
                self._put(self.expected, session.key, session.owner, new)

    def _has_come(self, one: Sent, key: ConnectionKey, at: RuleContext) -> bool:
        """Whether the capture shows a message at the subscriber before it shows it at the publisher."""
        history = at.history_of(key)
        if history is None:
            return True
        since_ns = one.timestamp_ns - SETTLE_NS
        for row in reversed(history.server.recent):
            if row.timestamp_ns < since_ns:
                break
            if row.checksum == one.checksum and row.topic == one.topic:
                return True
        return False

    def _put(self, where: dict[Any, dict[tuple[str, int], Expected]], whose: Any, owner: str, new: Expected) -> None:
        now_ns = new.since_ns
        found = where.get(whose)
        if found is None:
            if len(where) >= MAX_WAITING:
                return
            found = where[whose] = {}
        if len(found) >= MAX_EXPECTED and where is self.expected:
            for name in [name for name, one in found.items() if one.since_ns < now_ns - EXPECT_NS]:
                del found[name]
        if len(found) >= MAX_EXPECTED:
            del where[whose]
            self.overflowed[owner] = now_ns
            forget_oldest(self.overflowed, MAX_WAITING)
            return
        name = new.sent.topic, new.sent.checksum
        found.pop(name, None)  # they stand in the order of their numbers
        found[name] = new

    def lacking(self, one: Sent, now_ns: int) -> Iterator[tuple[Held, KnownSession]]:
        """Subscriptions by which clients should get a message that they have not got yet: one of each client.

        Those that began or may end meanwhile are left out.  It may be too long for a client (`fits`).
        """
        known = self.topics.get(one.topic)
        if known is None or not one.qos or one.refused or one.crowded:
            return
        holding = self._holding(known)
        if sum(map(len, holding)) > MAX_HOLDERS:
            return
        before_ns = one.timestamp_ns - SETTLE_NS
        sessions, copies, overflowed = self.table.sessions, one.copies, self.overflowed
        seen: set[str] = set()
        for held in (one for some in holding for one in some.values()):
            owner = held.owner
            if held.qos < 1 or held.granted_ns > one.timestamp_ns or held.ending or held.is_shared or owner in copies:
                continue
            if owner in seen or (held.no_local and owner == one.publisher):
                continue
            session = sessions.get(owner)
            if session is None or session.until_ns < now_ns:
                continue
            if max(held.granted_ns, session.since_ns) > before_ns and not self._is_served(one, held, session):
                continue
            seen.add(owner)
            if session.key is None and session.since_ns <= self.hidden_ns:
                continue  # what could not be read may have filled its queue
            if overflowed and now_ns - overflowed.get(owner, -EXPECT_NS) < EXPECT_NS:
                continue
            yield held, session

    def _is_served(self, one: Sent, held: Held, session: KnownSession) -> bool:
        """Whether a new subscription has brought an earlier message of this publisher and topic on this connection."""
        for earlier in reversed(self.topics[one.topic].recent):
            if earlier.timestamp_ns < held.granted_ns:
                return False
            if earlier.number < one.number and earlier.key == one.key and earlier.is_distinct:
                for copy in earlier.copies.get(held.owner, ()):
                    if copy.key == session.key and not copy.retained and copy.timestamp_ns > held.granted_ns:
                        return True
        return False

    def overtaking(self, expected: Expected, key: ConnectionKey) -> Copy | None:
        """Delivery on a connection of a later message, which the server must not send before the expected one.

        Both are of one connection of the publisher, one topic and one QoS (5.0 4.6.0-6).  Of QoS 2 the later message
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

    # What the server sends

    def pairing(self, packet: Publish, at: RuleContext) -> Pairing | None:
        """What the server sends, with what it had received; ``None`` where it had nothing like that."""
        name = at.topic
        known = None if name is None else self.topics.get(name)
        if known is None:
            return None
        hand = self.at_hand
        if hand is not None and hand[1] == at.number and hand[0] == at.key:
            return hand[2]
        found = self._pair(packet, known, at)
        self.at_hand = at.key, at.number, found
        return found

    def _pair(self, packet: Publish, known: Topic, at: RuleContext) -> Pairing | None:
        if packet.missing or (known.skipped and (not self.table.whole or at.key in self.table.strangers)):
            return None  # it may be a message that is not remembered
        checksum, length = crc32(packet.payload), len(packet.payload)
        if packet.retain and not at.history.subscriptions.match(known.name).retain_as_published:
            one = known.retained
            if one is None or one.checksum != checksum or one.length != length:
                return None
            return Pairing(known, at.client_name, [one], True)
        alike = known.contents.get(checksum)
        if not alike:
            return None
        found = [one for one in alike if one.length == length and not one.refused]
        return Pairing(known, at.client_name, found, False) if found else None

    def topic_with_mark(self, packet: Publish, topic: str, at: RuleContext) -> Sent | None:
        """For a topic that the message was not published on: the message, on the same topic with U+FEFF in it."""
        known = self.topics.get(self.marked.get(topic, ""))
        if known is None or packet.missing or self.pairing(packet, at) is not None:
            return None
        alike = known.contents.get(crc32(packet.payload), ())
        found = [one for one in alike if one.length == len(packet.payload) and not one.refused]
        return found[-1] if found and not found[-1].crowded else None

    def deliver(self, packet: Publish, at: RuleContext) -> None:
        """Take what the server sends."""
        name = at.topic
        if name is None:
            # It may be of any topic.
            self.expected.pop(at.key, None)
            self.owed_to.pop(at.key, None)
            return
        for table in (self.expected, self.owed_to):
            waiting = table.get(at.key)
            if waiting and waiting.pop((name, crc32(packet.payload)), None) is not None and not waiting:
                del table[at.key]  # room for another client (`MAX_WAITING`)
        if packet.missing:
            self.forget_topic(name)  # nobody can tell which message it is of
            return
        found = self.pairing(packet, at)
        self.at_hand = None
        if found is None:
            return
        owner, known = found.owner, found.topic
        copy = Copy(
            at.key, packet.qos, packet.packet_identifier, at.number, at.event.frame, at.timestamp_ns, found.retained
        )
        if self.table.shared:
            copy.share = share_of(known.name, at)
        for one in found.candidates:
            copies = one.copies.get(owner)
            if copies is None:
                if len(one.copies) >= MAX_COPIES:
                    one.crowded = True
                else:
                    one.copies[owner] = [copy]
            elif len(copies) < MAX_COPIES:
                copies.append(copy)
            else:
                one.crowded = True
        if not found.retained:
            publisher = found.candidates[-1].publisher
            if (publisher, owner) not in known.routes and len(known.routes) < MAX_ROUTES:
                known.routes[publisher, owner] = True
                known.proven[publisher] = True

    def holds(self, one: Expected) -> bool:
        """Whether all that happened to its topic since is known."""
        known = self.topics.get(one.sent.topic)
        return known is not None and known.number == one.topic_number and not one.sent.refused


def is_doubtful(packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> bool:
    """Whether an answer of the server may be one to another message, or may say more than the capture has of it."""
    return packet.missing > 0 or at.server.gapped or at.history.disordered


def share_of(topic: str, at: RuleContext) -> str:
    """The Shared Subscription by which the client gets a topic, where it is the only one that matches; else ``""``."""
    match = at.history.subscriptions.match(topic)
    if len(match.subscriptions) != 1 or not match.known or match.replaces or match.ended:
        return ""
    (one,) = match.subscriptions
    return one.topic_filter if one.is_shared and one.granted is not None else ""


def fits(one: Sent, session: KnownSession) -> bool | None:
    """Whether a message is not too long for a client; ``None`` where that depends on how the server writes it."""
    limit = session.limit
    if limit is None or one.size + OVERHEAD <= limit:
        return True
    least = len(one.topic.encode("utf-8", "surrogateescape")) + one.length + 7
    return False if least > limit else None


def told(block: Properties) -> Told | None:
    """The properties that a server has to pass on."""
    found = tuple([row for row in block.items if row[0] in _COMPARED])
    size = 0
    for number, value in found:
        if number != 0x01:
            size += sum(map(len, value)) if number == 0x26 else len(value)
    return found if size <= MAX_TEXT else None
