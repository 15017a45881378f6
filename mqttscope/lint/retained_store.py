"""The retained messages that a server must have, as far as a capture shows them, and which clients wait for which.

Only what a server may not drop counts: messages of QoS 1 and 2.  A topic whose message may have been changed out of
sight is forgotten (`broker_watch`), as is the one published to longest ago where there are too many.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from mqttscope.lint.broker_watch import MAX_TOPICS, Watch
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Related, Report, Scope
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.mqtt import Connack, Connect, ControlPacket, Puback, Pubcomp, Publish, Pubrec, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.topics import compile_filter
from mqttscope.session.connection import Connection
from mqttscope.session.history import MAX_RECENT, NEVER_NS, Message
from mqttscope.session.matching import FAILURE, Subscribed

MAX_WAITING = 1_000
"""Connections of a server for which retained messages are expected."""
MAX_EXPECTED = 32
"""Retained messages that one connection is expected to get; more of them may be too many for a server's queue."""
MAX_SCANNED = 1_000
"""Topics that a wildcard is compared with, newest first."""
MAX_READERS = 8
"""Clients of a topic that are remembered as having got its retained message, and as many with live messages."""
MAX_LIVE = 1_000
"""Topics whose last message with RETAIN 1 is remembered for those who get it live."""
MAX_GONE = 4
"""Messages of a topic that are remembered of connections that have ended."""
MAX_FLOOD = 100
"""Retained messages on one connection from which on a server may have had too many to send all."""
MAX_IN_FLIGHT = 10
"""Messages that wait for an answer of the client; a server that limits them holds back what comes next."""
MAX_PATIENCE_NS = 600 * SECOND_NS
"""How long a message that has not come is remembered when its client subscribes again."""
WILL_NS = 5 * SECOND_NS
"""How long after the end of a connection its will may come."""
CUT = -1
"""Stands for the checksum of a message that the capture does not have all of."""
_OVERHEAD = 64
"""Bytes of a PUBLISH beside topic, payload and what it was published with: more than a server adds."""


@dataclass(slots=True)
class Kept:
    """A retained message that a client published with QoS 1 or 2 and that was not changed since."""

    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    checksum: int
    size: int
    until_ns: int
    """When it expires."""
    granted: bool
    """Whether an acknowledgment confirms that it was accepted, which is possible in 5.0 alone."""
    key: ConnectionKey = ("", 0, 0)
    """The connection that it was published on."""
    client: str = ""
    volatile: bool = False
    """Whether the session of its publisher ends with the connection."""
    before: int | None = None
    """CRC-32 of the message that it replaced, where that is another one and its own publisher had set it."""
    accepted_ns: int = 0
    """When the server had acknowledged it in full; 0 before."""
    proven: bool = False
    """Whether the server has sent it to somebody as a retained message."""
    outlived: bool = False
    """Whether that was after the connection of its publisher had ended."""
    readers: tuple[str, ...] = ()
    """Client Identifiers of those who got it."""
    live_readers: tuple[tuple[str, str | None], ...] = ()
    """Client Identifiers and user names of those who got messages of the topic on connections that have ended."""

    @property
    def acknowledged(self) -> bool:
        return bool(self.accepted_ns)

    @property
    def related(self) -> Related:
        return Related.to("the retained message", self)


@dataclass(slots=True)
class Held:
    """The content of a retained message, as it was published or sent last."""

    checksum: int
    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    client: str
    """Its publisher; empty where it was sent by the server and not published before it."""
    proven: bool
    """Whether the server has sent it to somebody as a retained message."""
    accepted: bool
    """Whether the server confirmed that it has taken it, which is possible in 5.0 alone."""


@dataclass(slots=True)
class Live:
    """A message that was published with RETAIN 1, for those who get it live."""

    checksum: int
    timestamp_ns: int
    packet: int
    frame: int
    capture: str
    key: ConnectionKey


@dataclass(slots=True)
class Expected:
    """A retained message that a SUBSCRIBE asks for."""

    topic_filter: str
    packet: int
    frame: int
    timestamp_ns: int
    kept_by: int
    """Number of the PUBLISH that it comes from."""


@dataclass(slots=True)
class Vain:
    """A retained message that was asked for and has not come, with all that could excuse it looked at."""

    topic: str
    expected: Expected
    kept: Kept
    subscribed: Subscribed
    reader: bool
    """Whether the client has got the message, or others of the topic on this connection, so that it may read them."""

    @property
    def related(self) -> tuple[Related, ...]:
        one = self.expected
        return Related.to("the SUBSCRIBE", one), self.kept.related


@dataclass(slots=True)
class RetainedStore(Watch):
    """Retained messages of a server, and who waits for which."""

    code = "retained_store"
    scope = Scope.BROKER
    looks_at = (Publish, Subscribe, Puback, Pubrec, Pubcomp, Connect, Connack)
    when: ClassVar[dict[type[ControlPacket], str]] = {Publish: "retain", Pubrec: "reason_code"}

    kept: dict[str, Kept] = field(default_factory=dict)
    waiting: dict[ConnectionKey, dict[str, Expected]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    """What was published or sent last of each topic, whatever its QoS."""
    live: dict[str, Live] = field(default_factory=dict)
    """What was published last with RETAIN 1, by topic."""
    awaited: dict[str, int] = field(default_factory=dict)
    """Topics in ``waiting``, with the number of connections that wait."""
    gone: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """CRC-32 and time of the last messages of connections that have ended, by topic."""
    lost_ns: int = 0
    """Up to when there were more of them than are remembered."""
    stirred: dict[str, int] = field(default_factory=dict)
    """Topics of wills, with the time until which they may have been published."""

    def forget(self) -> None:
        for one in (self.kept, self.waiting, self.held, self.live, self.awaited, self.gone, self.stirred):
            one.clear()

    def forget_topic(self, topic: str) -> None:
        self.kept.pop(topic, None)
        self.held.pop(topic, None)
        self.live.pop(topic, None)

    def accept(self, topic: str, now_ns: int) -> None:
        """The server has the message."""
        kept, held = self.kept.get(topic), self.held.get(topic)
        if kept is not None:
            kept.accepted_ns = kept.accepted_ns or now_ns
            if held is not None:
                held.accepted = held.accepted or kept.granted

    def minds(self, will: Will) -> bool:
        """Only a will that clears leaves no retained message."""
        return will.will_retain and not will.will_payload

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Follow what is retained, who asks for it and who gets it."""
        self.take(packet, at)
        if isinstance(packet, Publish):
            if at.from_client:
                self._publish(packet, at)
            elif at.topic is None:
                self._wait_no_more(at.key)
            else:
                self._deliver(packet, at.topic, at)
        elif isinstance(packet, Subscribe) and self.kept:
            self._ask(packet, at)

    def _publish(self, packet: Publish, at: RuleContext) -> None:
        """Take a message that a client published with RETAIN 1."""
        topic, connection = at.topic, at.connection
        if topic is None:
            self.forget()  # an alias that is not known: it may be any topic
            return
        event, name, checksum = at.event, at.client_name, zlib.crc32(packet.payload)
        before, known = self.kept.pop(topic, None), self.held.pop(topic, None)
        self.live.pop(topic, None)
        if packet.missing or topic[0] == "$" or not connection.retain_available:
            return
        place = (event.timestamp_ns, at.number, event.frame, event.capture)
        self.live[topic] = Live(checksum, *place, at.key)
        forget_oldest(self.live, MAX_LIVE)
        self.held[topic] = Held(checksum, *place, name, proven=False, accepted=False)
        forget_oldest(self.held, MAX_TOPICS)
        if not packet.payload or not 0 < packet.qos < 3 or self.hides(topic):
            return
        expiry = None if packet.properties is None else packet.properties.message_expiry_interval
        kept = self.kept[topic] = Kept(
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
            kept.live_readers = before.live_readers
        if before is not None and before.checksum == checksum:
            kept.before = before.before  # it came again
        elif known is not None and known.checksum != checksum and known.client == name:
            kept.before = known.checksum
        self.wait_for_answer(at, packet, topic)
        forget_oldest(self.kept, MAX_TOPICS)

    def _deliver(self, packet: Publish, topic: str, at: RuleContext) -> None:
        """Take a message with RETAIN 1 that the server sent: the server does have it, and it is no longer awaited."""
        waiting = self.waiting.get(at.key)
        if waiting is not None and waiting.pop(topic, None) is not None:
            self._await_less(topic)
            if not waiting:
                del self.waiting[at.key]
        if packet.missing:
            return
        checksum = zlib.crc32(packet.payload)
        stored = not at.history.subscriptions.match(topic).retain_as_published
        held = self.held.get(topic)
        if stored and topic[0] != "$":
            if held is None or held.checksum != checksum:
                event = at.event
                place = (event.timestamp_ns, at.number, event.frame, event.capture)
                self.held[topic] = Held(checksum, *place, "", proven=True, accepted=False)
                forget_oldest(self.held, MAX_TOPICS)
            else:
                held.proven = True
        kept = self.kept.get(topic)
        if kept is None or checksum != kept.checksum:
            return
        kept.proven = kept.proven or stored
        kept.outlived = kept.outlived or (stored and kept.key not in self.witnesses)
        name = at.client_name
        if name not in kept.readers:
            kept.readers = (*kept.readers, name)[-MAX_READERS:]

    def _ask(self, packet: Subscribe, at: RuleContext) -> None:
        """Note what a SUBSCRIBE should bring; its subscriptions are not in the table yet."""
        now = at.timestamp_ns
        waiting = dict(self.waiting.get(at.key, {}))
        for topic, one in list(waiting.items()):
            if one.timestamp_ns + MAX_PATIENCE_NS < now:
                del waiting[topic]
        for row in packet.subscriptions or ():
            if row.no_local or not _asks_for_retained(row, at):
                continue
            for topic, kept in self.matching(row.topic_filter, now, at):
                event, before = at.event, waiting.get(topic)
                if (
                    before is not None
                    and before.kept_by == kept.packet
                    and before.topic_filter == topic != row.topic_filter
                ):
                    continue  # the topic itself proves more: of a wildcard a client may not be allowed to read all
                waiting[topic] = Expected(row.topic_filter, at.number, event.frame, now, kept.packet)
        self._wait_no_more(at.key)
        if waiting and len(waiting) <= MAX_EXPECTED and len(self.waiting) < MAX_WAITING:
            self.waiting[at.key] = waiting
            for topic in waiting:
                self.awaited[topic] = self.awaited.get(topic, 0) + 1

    def _wait_no_more(self, key: ConnectionKey) -> None:
        for topic in self.waiting.pop(key, ()):
            self._await_less(topic)

    def _await_less(self, topic: str) -> None:
        left = self.awaited.get(topic, 0) - 1
        if left > 0:
            self.awaited[topic] = left
        else:
            self.awaited.pop(topic, None)

    def matching(self, topic_filter: str, until_ns: int, at: RuleContext) -> Iterator[tuple[str, Kept]]:
        """Messages that match, of this capture, that do not expire before and are not too long for the client."""
        if "+" in topic_filter or "#" in topic_filter:
            matches = compile_filter(topic_filter)
            names = [name for name in islice(reversed(self.kept), MAX_SCANNED) if matches(name)]
        else:
            names = [topic_filter] if topic_filter in self.kept else []
        limit = at.client.maximum_packet_size
        for name in names[: MAX_EXPECTED + 1]:
            kept = self.kept[name]
            fits = limit is None or kept.size + _OVERHEAD <= limit
            if fits and kept.acknowledged and kept.until_ns > until_ns and not at.is_apart(kept.capture):
                yield name, kept

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """A connection ends: what it waited for does not come, and what it sent is remembered in short."""
        Watch.closed(self, connection, at)
        self._wait_no_more(at.key)
        connect, left = at.history.connect, at.history.client.disconnect
        will = None if connect is None else connect.will
        if will is not None and (left is None or left.reason_code):
            block = will.properties
            delayed = block is not None and bool(block.will_delay_interval)
            self.stirred[will.will_topic] = NEVER_NS if delayed else max(self.now_ns, at.timestamp_ns) + WILL_NS
            forget_oldest(self.stirred, MAX_TOPICS)
        reader = at.client_name, None if connect is None else connect.user_name
        for topic in {row.topic for row in at.history.server.recent} & self.kept.keys():
            kept = self.kept[topic]
            if reader not in kept.live_readers:
                kept.live_readers = (*kept.live_readers, reader)[-MAX_READERS:]
        for party in (at.history.client, at.history.server):
            if len(party.recent) >= MAX_RECENT:
                self.lost_ns = max(self.lost_ns, party.recent[0].timestamp_ns)
            sent: dict[str, list[tuple[int, int]]] = {}
            for row in reversed(party.recent):
                sent.setdefault(row.topic, []).append((CUT if row.cut else row.checksum, row.timestamp_ns))
            for topic in reversed(sent):  # those of the last messages stand last
                messages = [*self.gone.pop(topic, ()), *reversed(sent[topic])]
                for _, lost_ns in messages[:-MAX_GONE]:
                    self.lost_ns = max(self.lost_ns, lost_ns)
                self.gone[topic] = tuple(messages[-MAX_GONE:])
        if len(self.gone) > MAX_TOPICS:
            # The first keys at once: each look for the first one goes over all that were removed before it.
            for name in list(islice(self.gone, len(self.gone) - MAX_TOPICS)):
                dropped = self.gone.pop(name)
                self.lost_ns = max(self.lost_ns, dropped[-1][1])

    def heard_since(self, topic: str, checksum: int, since_ns: int, at: RuleContext) -> bool:
        """Whether a message with this content may have been sent since then, to the server or from it.

        Wills count, as does everything on a connection that sent more than is remembered or has lost bytes.
        """
        return self._said_since(topic, checksum, since_ns, at, both=True)

    def published_since(self, topic: str, beside: Live, since_ns: int, at: RuleContext) -> bool:
        """The same of what clients sent with the content of one message, beside that one itself."""
        return self._said_since(topic, beside.checksum, since_ns, at, beside, both=False)

    def _said_since(
        self,
        topic: str,
        checksum: int,
        since_ns: int,
        at: RuleContext,
        beside: Live | None = None,
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
        """What an open connection of a client has published since then with this content, with the client's name."""
        for key in self.witnesses:
            history = at.history_of(key)
            if history is None:
                continue
            for row in history.client.recent:
                if row.topic == topic and row.checksum == checksum and row.timestamp_ns > since_ns:
                    connect = history.connect
                    return ("" if connect is None else connect.client_identifier or ""), row
        return None

    def in_vain(self, topic: str, one: Expected, patience_ns: int, at: RuleContext) -> Vain | None:
        """What was not sent, where nothing excuses it."""
        kept = self.kept.get(topic)
        if kept is None or self.hides(topic) or not self.witnessed(kept.timestamp_ns):
            return None
        # Where packets are counted by connection, those of two connections may have the same number.
        if kept.packet != one.kept_by or kept.timestamp_ns > one.timestamp_ns:
            return None
        if kept.until_ns <= one.timestamp_ns + patience_ns + 2 * SECOND_NS:
            return None
        history = at.history
        table = history.subscriptions
        subscribed = table.named(one.topic_filter, one.packet)
        if subscribed is None or not _in_force(subscribed) or not table.complete:
            return None
        limit = min(at.client.receive_maximum, MAX_IN_FLIGHT)
        if at.server.in_flight >= limit or len(table.retained) > MAX_FLOOD:
            return None
        recent = [row for row in history.server.recent if row.topic == topic]
        if any(row.timestamp_ns >= one.timestamp_ns and not self._is_beside(row, kept, at) for row in recent):
            return None  # without RETAIN, or a later one
        reader = bool(recent) or topic in table.retained or at.client_name in kept.readers
        if not reader and one.topic_filter != topic:
            user = None if history.connect is None else history.connect.user_name
            if (at.client_name, user) not in kept.live_readers and not self._is_left_out(one, kept, at):
                return None
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        if self.waits_behind_a_hole(at):
            return None
        return Vain(topic, one, kept, subscribed, reader)

    def _is_left_out(self, one: Expected, kept: Kept, at: RuleContext) -> bool:
        """Whether the server answered a wildcard with other retained messages, and access rules hardly forbid this one.

        Neither its publisher nor the client that asks has a user name, a certificate or another proof of who it is, and
        the server has accepted the message: rules for nobody in particular that let all write and not read are rare.
        """
        if not (kept.granted or kept.proven) or not (_is_anonymous(kept.key, at) and _is_anonymous(at.key, at)):
            return False
        table, matches = at.history.subscriptions, compile_filter(one.topic_filter)
        return (table.flood_ns or 0) >= one.timestamp_ns and any(
            row.timestamp_ns >= one.timestamp_ns and row.topic in table.retained and matches(row.topic)
            for row in at.history.server.recent
        )

    def _is_beside(self, row: Message, kept: Kept, at: RuleContext) -> bool:
        """Whether what the server sent is an ordinary message of a captured client, which leaves the retained one."""
        if row.cut or row.checksum == kept.checksum:
            return False
        return self.plain(row.topic, row.checksum, kept.timestamp_ns, at) is not None


@dataclass(slots=True)
class Judged:
    """How far a rule has looked at what each connection waits for."""

    until_ns: dict[ConnectionKey, int] = field(default_factory=dict)
    """What was asked for up to then."""


class WaitingRule(Rule):
    """A rule about retained messages that are asked for and do not come in time (its setting ``timeout``).

    Its ``Memory`` is `Judged`, its model `RetainedStore`, and it looks at SUBSCRIBE.
    """

    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = Subscribe
    needs = Needs.OPENING | Needs.WHOLE
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {"timeout": 30}
    models = (RetainedStore,)
    Memory = Judged

    def judge(self, vain: Vain, store: RetainedStore, at: RuleContext) -> Report | None:
        raise NotImplementedError

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Look again when what it asks for should have come."""
        if at.model(RetainedStore).kept:
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge what has not come in time."""
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
        told = []
        for topic, one in list(waiting.items()):
            if one.timestamp_ns > asked_ns:
                at.ask(self, one.timestamp_ns + self.nanoseconds("timeout"))
            elif one.timestamp_ns > done_ns:
                vain = store.in_vain(topic, one, at.timestamp_ns - one.timestamp_ns, at)
                found = None if vain is None else self.judge(vain, store, at)
                if found is not None:
                    told.append(found)
        memory.until_ns[at.key] = asked_ns
        return told

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """What was due by now has been judged; nothing else is expected here."""
        at.memory(self).until_ns.pop(at.key, None)
        return None


def waited_s(one: Expected, at: RuleContext) -> float:
    return (at.timestamp_ns - one.timestamp_ns) / SECOND_NS


def _asks_for_retained(row: Subscription, at: RuleContext) -> bool:
    if row.topic_filter.startswith("$") or not at.connection.retain_available:
        return False  # Shared Subscriptions, and what servers before 5.0 take for such
    if at.version is not V5 or row.retain_handling == 0:
        return True
    table, resumed = at.history.subscriptions, at.connection.session_present is not False
    return row.retain_handling == 1 and not resumed and row.topic_filter not in table.live


def _is_anonymous(key: ConnectionKey, at: RuleContext) -> bool:
    """Whether an open connection has nothing that access rules may go by but its Client Identifier and its address."""
    history, connection = at.history_of(key), at.connection_of(key)
    connect = None if history is None else history.connect
    if connect is None or connection is None or connection.transport == "tls":
        return False
    method = None if connect.properties is None else connect.properties.authentication_method
    return connect.user_name is None and connect.password is None and method is None


def _in_force(one: Subscribed) -> bool:
    return one.granted is not None and one.granted < FAILURE and one.ending_ns is None and one.ended_ns is None
