"""The retained messages that a server must have, as the capture proves, and the clients that wait for them.

Only messages that a server may not drop are judged: those with QoS 1 and 2.  A topic is forgotten if its message may
have changed outside the capture (`broker_watch`), or if there are too many topics: then the oldest publication first.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from mqttscope.lint.broker_watch import MAX_TOPICS, BrokerWatch
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Related, Report, Scope
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt import Connack, Connect, ControlPacket, Puback, Pubcomp, Publish, Pubrec, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.topics import compile_filter
from mqttscope.session.connection import Connection
from mqttscope.session.history import MAX_RECENT, NEVER_NS, Message
from mqttscope.session.matching import FAILURE, ClientSubscription

MAX_WAITING = 1_000
"""Maximum number of connections of a server that wait for retained messages."""
MAX_EXPECTED = 32
"""Maximum number of retained messages expected on a connection; more may exceed a server's queue."""
MAX_SCANNED = 1_000
"""Maximum number of topics compared with a wildcard, newest first."""
MAX_READERS = 8
"""Maximum number of clients remembered per topic that got the retained message, and that got live messages."""
MAX_LIVE = 1_000
"""Maximum number of topics with a remembered live message with RETAIN 1."""
MAX_GONE = 4
"""Maximum number of messages per topic remembered from ended connections."""
MAX_FLOOD = 100
"""Number of retained messages on one connection above which a server may drop some."""
MAX_IN_FLIGHT = 10
"""Threshold of unacknowledged messages: a server may hold back the next one."""
MAX_PATIENCE_NS = 600 * SECOND_NS
"""How long a missing message is remembered after its client subscribes again."""
WILL_NS = 5 * SECOND_NS
"""How long after the end of a connection its will may be published."""
CUT = -1
"""Checksum of a message that the capture has only in part."""
_OVERHEAD = 64
"""Maximum number of bytes that a server adds to a PUBLISH, beyond topic, payload and published properties."""


@dataclass(slots=True)
class RetainedMessage:
    """A retained message of a client with QoS 1 or 2 that has not been replaced since."""

    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    checksum: int
    size: int
    until_ns: int
    """When it expires."""
    granted: bool
    """Whether an acknowledgment proves that the server accepted it, which only 5.0 allows."""
    key: ConnectionKey = ("", 0, 0)
    """The connection that published it."""
    client: str = ""
    volatile: bool = False
    """Whether the publisher's session ends with its connection."""
    before: int | None = None
    """CRC-32 of the different message that it replaced, if its publisher had set that one too."""
    accepted_ns: int = 0
    """When the server acknowledged it in full; 0 before."""
    proven: bool = False
    """Whether the server sent it to any client as a retained message."""
    outlived: bool = False
    """Whether the server sent it after the publisher's connection had ended."""
    readers: tuple[str, ...] = ()
    """Client Identifiers of clients that got it."""
    live_readers: tuple[tuple[str, str | None], ...] = ()
    """Client Identifiers and user names of clients that got messages of the topic on ended connections."""

    @property
    def acknowledged(self) -> bool:
        return bool(self.accepted_ns)

    @property
    def related(self) -> Related:
        return Related.to("the retained message", self)


@dataclass(slots=True)
class RetainedEntry:
    """The content of a retained message, as last published or sent."""

    checksum: int
    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    client: str
    """Its publisher; empty if the server sent it without a captured publication."""
    proven: bool
    """Whether the server sent it to any client as a retained message."""
    accepted: bool
    """Whether the server confirmed that it accepted the message, which only 5.0 allows."""


@dataclass(slots=True)
class LivePublication:
    """A message published with RETAIN 1, as seen by clients that are already subscribed."""

    checksum: int
    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    key: ConnectionKey


@dataclass(slots=True)
class RetainedRequest:
    """A retained message that a SUBSCRIBE asks for."""

    topic_filter: str
    packet: int
    frame: int
    timestamp_ns: int
    kept_by: int
    """Number of its PUBLISH."""


@dataclass(slots=True)
class MissingMessage:
    """A requested retained message that was not sent, although nothing in the capture excuses that."""

    topic: str
    expected: RetainedRequest
    message: RetainedMessage
    subscribed: ClientSubscription
    reader: bool
    """Whether the client may read the topic: it got the message, or others of the topic on this connection."""

    @property
    def related(self) -> tuple[Related, ...]:
        expected = self.expected
        return Related.to("the SUBSCRIBE", expected), self.message.related


@dataclass(slots=True)
class RetainedStore(BrokerWatch):
    """Retained messages of a server, and the clients that wait for them."""

    code = "retained_store"
    scope = Scope.BROKER
    looks_at = (Publish, Subscribe, Puback, Pubrec, Pubcomp, Connect, Connack)
    when: ClassVar[dict[type[ControlPacket], str]] = {Publish: "retain", Pubrec: "reason_code"}

    messages: dict[str, RetainedMessage] = field(default_factory=dict)
    waiting: dict[ConnectionKey, dict[str, RetainedRequest]] = field(default_factory=dict)
    held: dict[str, RetainedEntry] = field(default_factory=dict)
    """The last content published or sent per topic, with any QoS."""
    live: dict[str, LivePublication] = field(default_factory=dict)
    """The last message published with RETAIN 1, by topic."""
    awaited: dict[str, int] = field(default_factory=dict)
    """Topics in ``waiting``, with the number of waiting connections."""
    gone: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """CRC-32 and time of the last messages of ended connections, by topic."""
    lost_ns: int = 0
    """Latest time of such a message that may have been dropped."""
    stirred: dict[str, int] = field(default_factory=dict)
    """Topics of wills, with the time until which they may be published."""

    def forget(self) -> None:
        for table in (self.messages, self.waiting, self.held, self.live, self.awaited, self.gone, self.stirred):
            table.clear()

    def forget_topic(self, topic: str) -> None:
        self.messages.pop(topic, None)
        self.held.pop(topic, None)
        self.live.pop(topic, None)

    def accept(self, topic: str, now_ns: int) -> None:
        """Handle that the server accepted the message."""
        message, entry = self.messages.get(topic), self.held.get(topic)
        if message is not None:
            message.accepted_ns = message.accepted_ns or now_ns
            if entry is not None:
                entry.accepted = entry.accepted or message.granted

    def follows_will(self, will: Will) -> bool:
        """Whether the will clears its topic: any other will leaves a retained message."""
        return will.will_retain and not will.will_payload

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Handle a packet: messages with RETAIN 1, requests for them, and deliveries."""
        self.take(packet, at)
        if isinstance(packet, Publish):
            if at.from_client:
                self._publish(packet, at)
            elif at.topic is None:
                self._wait_no_more(at.key)
            else:
                self._deliver(packet, at.topic, at)
        elif isinstance(packet, Subscribe) and self.messages:
            self._ask(packet, at)

    def _publish(self, packet: Publish, at: RuleContext) -> None:
        """Handle a message of a client with RETAIN 1."""
        topic, connection = at.topic, at.connection
        if topic is None:
            self.forget()  # an unknown alias: it may be any topic
            return
        event, name, checksum = at.event, at.client_name, zlib.crc32(packet.payload)
        before, known = self.messages.pop(topic, None), self.held.pop(topic, None)
        self.live.pop(topic, None)
        if packet.missing or topic[0] == "$" or not connection.retain_available:
            return
        place = (event.timestamp_ns, at.number, event.frame, event.capture)
        self.live[topic] = LivePublication(checksum, *place, at.key)
        forget_oldest(self.live, MAX_LIVE)
        self.held[topic] = RetainedEntry(checksum, *place, name, proven=False, accepted=False)
        forget_oldest(self.held, MAX_TOPICS)
        if not packet.payload or not 0 < packet.qos < 3 or self.hides(topic):
            return
        expiry = None if packet.properties is None else packet.properties.message_expiry_interval
        message = self.messages[topic] = RetainedMessage(
            *place,
            checksum,
            len(packet.raw) + len(topic),
            NEVER_NS if expiry is None else event.timestamp_ns + expiry * SECOND_NS,
            at.version is V5,
            at.key,
            name,
            at.connection.keeps_session is False,
        )
        if before is not None:
            message.live_readers = before.live_readers
        if before is not None and before.checksum == checksum:
            message.before = before.before  # the same message again
        elif known is not None and known.checksum != checksum and known.client == name:
            message.before = known.checksum
        self.wait_for_answer(at, packet, topic)
        forget_oldest(self.messages, MAX_TOPICS)

    def _deliver(self, packet: Publish, topic: str, at: RuleContext) -> None:
        """Handle a message of the server with RETAIN 1: the server has it, and the client no longer waits for it."""
        waiting = self.waiting.get(at.key)
        if waiting is not None and waiting.pop(topic, None) is not None:
            self._await_less(topic)
            if not waiting:
                del self.waiting[at.key]
        if packet.missing:
            return
        checksum = zlib.crc32(packet.payload)
        stored = not at.history.subscriptions.match(topic).retain_as_published
        entry = self.held.get(topic)
        if stored and topic[0] != "$":
            if entry is None or entry.checksum != checksum:
                event = at.event
                place = (event.timestamp_ns, at.number, event.frame, event.capture)
                self.held[topic] = RetainedEntry(checksum, *place, "", proven=True, accepted=False)
                forget_oldest(self.held, MAX_TOPICS)
            else:
                entry.proven = True
        message = self.messages.get(topic)
        if message is None or checksum != message.checksum:
            return
        message.proven = message.proven or stored
        message.outlived = message.outlived or (stored and message.key not in self.witnesses)
        name = at.client_name
        if name not in message.readers:
            message.readers = (*message.readers, name)[-MAX_READERS:]

    def _ask(self, packet: Subscribe, at: RuleContext) -> None:
        """Remember which messages a SUBSCRIBE should bring; its subscriptions are not in the table yet."""
        now = at.timestamp_ns
        waiting = dict(self.waiting.get(at.key, {}))
        for topic, expected in list(waiting.items()):
            if expected.timestamp_ns + MAX_PATIENCE_NS < now:
                del waiting[topic]
        for row in packet.subscriptions or ():
            if row.no_local or not _asks_for_retained(row, at):
                continue
            for topic, message in self.matching(row.topic_filter, now, at):
                event, before = at.event, waiting.get(topic)
                if (
                    before is not None
                    and before.kept_by == message.packet
                    and before.topic_filter == topic != row.topic_filter
                ):
                    continue  # the exact topic proves more: a wildcard may cover forbidden topics
                waiting[topic] = RetainedRequest(row.topic_filter, at.number, event.frame, now, message.packet)
        self._wait_no_more(at.key)
        if waiting and len(waiting) <= MAX_EXPECTED and len(self.waiting) < MAX_WAITING:
            self.waiting[at.key] = waiting
            for topic in waiting:
                self.awaited[topic] = self.awaited.get(topic, 0) + 1

    def _wait_no_more(self, key: ConnectionKey) -> None:
        for topic in self.waiting.pop(key, ()):
            self._await_less(topic)

    def _await_less(self, topic: str) -> None:
        remaining = self.awaited.get(topic, 0) - 1
        if remaining > 0:
            self.awaited[topic] = remaining
        else:
            self.awaited.pop(topic, None)

    def matching(self, topic_filter: str, until_ns: int, at: RuleContext) -> Iterator[tuple[str, RetainedMessage]]:
        """Matching messages of this capture that do not expire before and fit the client's limit."""
        if "+" in topic_filter or "#" in topic_filter:
            matches = compile_filter(topic_filter)
            names = [name for name in islice(reversed(self.messages), MAX_SCANNED) if matches(name)]
        else:
            names = [topic_filter] if topic_filter in self.messages else []
        limit = at.client.maximum_packet_size
        for name in names[: MAX_EXPECTED + 1]:
            message = self.messages[name]
            fits = limit is None or message.size + _OVERHEAD <= limit
            if fits and message.acknowledged and message.until_ns > until_ns and not at.is_apart(message.capture):
                yield name, message

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of a connection: drop what it waits for, and remember its messages in short."""
        BrokerWatch.closed(self, connection, at)
        self._wait_no_more(at.key)
        connect, disconnect = at.history.connect, at.history.client.disconnect
        will = None if connect is None else connect.will
        if will is not None and (disconnect is None or disconnect.reason_code):
            block = will.properties
            delayed = block is not None and bool(block.will_delay_interval)
            self.stirred[will.will_topic] = NEVER_NS if delayed else max(self.now_ns, at.timestamp_ns) + WILL_NS
            forget_oldest(self.stirred, MAX_TOPICS)
        reader = at.client_name, None if connect is None else connect.user_name
        for topic in {row.topic for row in at.history.server.recent} & self.messages.keys():
            message = self.messages[topic]
            if reader not in message.live_readers:
                message.live_readers = (*message.live_readers, reader)[-MAX_READERS:]
        for party in (at.history.client, at.history.server):
            if len(party.recent) >= MAX_RECENT:
                self.lost_ns = max(self.lost_ns, party.recent[0].timestamp_ns)
            sent: dict[str, list[tuple[int, int]]] = {}
            for row in reversed(party.recent):
                sent.setdefault(row.topic, []).append((CUT if row.cut else row.checksum, row.timestamp_ns))
            for topic in reversed(sent):  # topics with the latest messages last
                messages = [*self.gone.pop(topic, ()), *reversed(sent[topic])]
                for _, lost_ns in messages[:-MAX_GONE]:
                    self.lost_ns = max(self.lost_ns, lost_ns)
                self.gone[topic] = tuple(messages[-MAX_GONE:])
        if len(self.gone) > MAX_TOPICS:
            # All first keys in one pass: searching the first key again skips over all removed ones.
            for name in list(islice(self.gone, len(self.gone) - MAX_TOPICS)):
                dropped = self.gone.pop(name)
                self.lost_ns = max(self.lost_ns, dropped[-1][1])

    def heard_since(self, topic: str, checksum: int, since_ns: int, at: RuleContext) -> bool:
        """Whether a message with this content may have been sent since then, by any client or the server.

        Wills count, and so does everything on a connection that sent more than is remembered or lost bytes.
        """
        return self._said_since(topic, checksum, since_ns, at, both=True)

    def published_since(self, topic: str, beside: LivePublication, since_ns: int, at: RuleContext) -> bool:
        """Whether a client may have published the content of a message since then, apart from the message itself."""
        return self._said_since(topic, beside.checksum, since_ns, at, beside, both=False)

    def _said_since(
        self,
        topic: str,
        checksum: int,
        since_ns: int,
        at: RuleContext,
        beside: LivePublication | None = None,
        *,
        both: bool,
    ) -> bool:
        if self.lost_ns >= since_ns or self.stirred.get(topic, -1) >= since_ns or self.has_will(topic, checksum, at):
            return True
        own_ns, own = (-1, None) if beside is None else (beside.timestamp_ns, (beside.key, beside.packet))
        for known, when_ns in self.gone.get(topic, ()):
            if known in (checksum, CUT) and when_ns >= since_ns and when_ns != own_ns:
                return True
        for key in self.witnesses:
            history = at.history_of(key)
            if history is None:
                continue
            connection = at.connection_of(key)
            if both and connection is not None and (connection.server_side.gapped or history.server.malformed):
                return True
            for party in (history.client, history.server) if both else (history.client,):
                recent = party.recent
                if len(recent) >= MAX_RECENT and recent[0].timestamp_ns > since_ns:
                    return True
                for row in recent:
                    same = row.topic == topic and (row.checksum == checksum or row.cut)
                    if same and row.timestamp_ns >= since_ns and own != (key, row.packet):
                        return True
        return False

    def has_will(self, topic: str, checksum: int, at: RuleContext) -> bool:
        """Whether an open connection has a will with this content."""
        for key in self.witnesses:
            history = at.history_of(key)
            will = None if history is None or history.connect is None else history.connect.will
            if will is not None and will.will_topic == topic and zlib.crc32(will.will_payload) == checksum:
                return True
        return False

    def plain(self, topic: str, checksum: int, since_ns: int, at: RuleContext) -> tuple[str, Message] | None:
        """The PUBLISH with this content of an open connection since then, with the client's name."""
        for key in self.witnesses:
            history = at.history_of(key)
            if history is None:
                continue
            for row in history.client.recent:
                if row.topic == topic and row.checksum == checksum and row.timestamp_ns > since_ns:
                    connect = history.connect
                    return ("" if connect is None else connect.client_identifier or ""), row
        return None

    def missing(
        self, topic: str, expected: RetainedRequest, patience_ns: int, at: RuleContext
    ) -> MissingMessage | None:
        """A retained message that was not sent, unless something excuses that."""
        message = self.messages.get(topic)
        if message is None or self.hides(topic) or not self.witnessed(message.timestamp_ns):
            return None
        # If packets are numbered per connection, two packets may have the same number.
        if message.packet != expected.kept_by or message.timestamp_ns > expected.timestamp_ns:
            return None
        if message.until_ns <= expected.timestamp_ns + patience_ns + 2 * SECOND_NS:
            return None
        history = at.history
        table = history.subscriptions
        subscribed = table.find(expected.topic_filter, expected.packet)
        if subscribed is None or not _in_force(subscribed) or not table.complete:
            return None
        limit = min(at.client.receive_maximum, MAX_IN_FLIGHT)
        if at.server.in_flight >= limit or len(table.retained) > MAX_FLOOD:
            return None
        recent = [row for row in history.server.recent if row.topic == topic]
        if any(row.timestamp_ns >= expected.timestamp_ns and not self._is_beside(row, message, at) for row in recent):
            return None  # delivered without RETAIN, or replaced by a later message
        reader = bool(recent) or topic in table.retained or at.client_name in message.readers
        if not reader and expected.topic_filter != topic:
            user = None if history.connect is None else history.connect.user_name
            if (at.client_name, user) not in message.live_readers and not self._is_left_out(expected, message, at):
                return None
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        if self.waits_behind_a_hole(at):
            return None
        return MissingMessage(topic, expected, message, subscribed, reader)

    def _is_left_out(self, expected: RetainedRequest, message: RetainedMessage, at: RuleContext) -> bool:
        """Whether a wildcard brought other retained messages, and access rules are unlikely to forbid this one.

        Publisher and reader have no user name, certificate or other proof of identity, and the server accepted the
        message.  Rules that let anonymous clients write but not read are rare.
        """
        is_accepted = message.granted or message.proven
        if not (is_accepted and _is_anonymous(message.key, at) and _is_anonymous(at.key, at)):
            return False
        table, matches = at.history.subscriptions, compile_filter(expected.topic_filter)
        return (table.flood_ns or 0) >= expected.timestamp_ns and any(
            row.timestamp_ns >= expected.timestamp_ns and row.topic in table.retained and matches(row.topic)
            for row in at.history.server.recent
        )

    def _is_beside(self, row: Message, message: RetainedMessage, at: RuleContext) -> bool:
        """Whether a delivery is an ordinary message of a captured client, not the retained message."""
        if row.cut or row.checksum == message.checksum:
            return False
        return self.plain(row.topic, row.checksum, message.timestamp_ns, at) is not None


@dataclass(slots=True)
class JudgingProgress:
    """Progress of a rule that judges the requests of each connection."""

    until_ns: dict[ConnectionKey, int] = field(default_factory=dict)
    """Requests up to this time are judged."""


class WaitingRule(Rule):
    """A rule about requested retained messages that do not arrive within its setting ``timeout``.

    Its ``Memory`` is `JudgingProgress`, its model is `RetainedStore`, and it looks at SUBSCRIBE.
    """

    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = Subscribe
    needs = Needs.OPENING | Needs.WHOLE
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    models = (RetainedStore,)
    Memory = JudgingProgress

    def judge(self, missing: MissingMessage, store: RetainedStore, at: RuleContext) -> Report | None:
        raise NotImplementedError

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Check again when the messages should have arrived."""
        if at.model(RetainedStore).messages:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge the messages that did not arrive in time."""
        store, memory = at.model(RetainedStore), at.memory(self)
        waiting = store.waiting.get(at.key)
        if waiting is None:
            return None
        pauses_until_ns = at.history.subscriptions.pauses_until_ns(at.timestamp_ns)
        if pauses_until_ns:
            at.ask(self, pauses_until_ns)
            return None
        asked_ns = at.timestamp_ns - self.nanoseconds("timeout")
        done_ns = memory.until_ns.get(at.key, 0)
        reports = []
        for topic, expected in list(waiting.items()):
            if expected.timestamp_ns > asked_ns:
                at.ask(self, expected.timestamp_ns + self.nanoseconds("timeout"))
            elif expected.timestamp_ns > done_ns:
                missing = store.missing(topic, expected, at.timestamp_ns - expected.timestamp_ns, at)
                report = None if missing is None else self.judge(missing, store, at)
                if report is not None:
                    reports.append(report)
        memory.until_ns[at.key] = asked_ns
        return reports

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Forget the connection: everything that was due has been judged."""
        at.memory(self).until_ns.pop(at.key, None)
        return None


def waited_s(expected: RetainedRequest, at: RuleContext) -> float:
    return (at.timestamp_ns - expected.timestamp_ns) / SECOND_NS


def _asks_for_retained(row: Subscription, at: RuleContext) -> bool:
    if row.topic_filter.startswith("$") or not at.connection.retain_available:
        return False  # Shared Subscriptions, and similar filters of servers before 5.0
    if at.version is not V5 or row.retain_handling == 0:
        return True
    table, resumed = at.history.subscriptions, at.connection.session_present is not False
    return row.retain_handling == 1 and not resumed and row.topic_filter not in table.live


def _is_anonymous(key: ConnectionKey, at: RuleContext) -> bool:
    """Whether access rules can identify a client only by its Client Identifier and its address."""
    history, connection = at.history_of(key), at.connection_of(key)
    connect = None if history is None else history.connect
    if connect is None or connection is None or connection.transport == "tls":
        return False
    method = None if connect.properties is None else connect.properties.authentication_method
    return connect.user_name is None and connect.password is None and method is None


def _in_force(row: ClientSubscription) -> bool:
    return row.granted is not None and row.granted < FAILURE and row.ending_ns is None and row.ended_ns is None
