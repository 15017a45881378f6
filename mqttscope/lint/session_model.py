"""What a server and a client keep of a Client Identifier over several connections, as far as the capture proves it.

The session belongs to the connection that was accepted last, its owner.  When the owner ends, or another connection
takes the session over, the model takes from it what had no full answer, what was subscribed to, and the topics of its
Topic Aliases.  A CONNACK then says what becomes of that: with Session Present 1 the session continues, with a clean
start it is discarded, and what is not known to continue is forgotten.

What is here is a fact only as far as the capture shows it:

* a session that the capture did not see begin holds more than is known (``born``);
* after lost bytes, or an end that was not captured, a message without an answer may have had one (``Carried.sure``);
* another user may be another client for the server, and another capture may be of another server (``apart``);
* 3.1 has no Session Present, so whether a session continues is unknown there (``resumed`` is ``None``).

Rules about what has to be sent again when a session continues share `ResumptionRule`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Confidence, Related, Report, Scope, Severity
from mqttscope.lint.model import Model
from mqttscope.lint.rule import V3_1, V5, Findings, Needs, Rule
from mqttscope.mqtt import ControlPacket, Direction, PacketType
from mqttscope.mqtt.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Unsuback
from mqttscope.session.connection import C2S, S2C, Connection
from mqttscope.session.history import NEVER_NS, History
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange, ExchangePhase
from mqttscope.session.matching import FAILURE, Match, Subscribed, SubscriptionIndex, joined
from mqttscope.session.subscriptions import Request

ENDLESS = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
TAKEN_OVER = 0x8E
"""Reason Code of a DISCONNECT after another connection has taken the session over."""
MAX_CARRIED = 1_000
"""Unanswered messages of each side that are kept of a session, the oldest ones; a broken receiver may leave 65,535."""
MAX_FILTERS = 1_000
"""Topic Filters that are kept of a session; of more than these the first ones are not judged."""
MAX_ALIASES = 64
"""Topic Aliases that are kept of the connection before, of each side: they only explain a mistake."""
TOLERANCE_SECONDS = 60.0
"""How long after its end a server may still have a session of which it learns late, unless a rule says otherwise."""
_STEPS = {SENT: "PUBLISH", RECEIVED: "PUBREL", RELEASED: "PUBREL"}


@dataclass(slots=True)
class Carried:
    """A message of QoS 1 or 2 that had no full answer when its connection ended."""

    packet_identifier: int
    qos: int
    topic: str | None
    checksum: int | None
    """CRC-32 of its payload."""
    phase: ExchangePhase
    """How far it had come at the end of its connection."""
    packet: int
    frame: int
    timestamp_ns: int
    """Of the PUBLISH, the last one that was sent."""
    order: int = 0
    """Grows in the order in which the messages were sent for the first time."""
    expires_ns: int = NEVER_NS
    """When its Message Expiry Interval runs out."""
    sure: bool = False
    """Whether the capture would have shown its answer."""
    answered: bool = False
    """Whether the answer that ends it has come since."""
    refused: Related | None = None
    """The answer that refused it."""
    reason_code: int = 0
    """Of that answer."""
    released: bool = False
    """Whether its PUBREL has come since."""

    @property
    def step(self) -> str:
        """The packet that its sender has to send again: ``PUBLISH`` or ``PUBREL``."""
        return _STEPS[self.phase]

    @property
    def related(self) -> Related:
        return Related.to(f"PUBLISH {self.packet_identifier}", self)

    def is_message(self, packet: Publish, topic: str | None) -> bool:
        """Whether a PUBLISH has the same topic, QoS and payload; never, where one of them is not known."""
        if topic is None or topic != self.topic or packet.qos != self.qos or packet.missing:
            return False
        return self.checksum == zlib.crc32(packet.payload)

    def differs(self, packet: Publish, topic: str | None) -> bool:
        """Whether a PUBLISH is another message for certain: its topic or its payload is another one."""
        if topic is None or self.topic is None or self.checksum is None or packet.missing:
            return False
        return topic != self.topic or self.checksum != zlib.crc32(packet.payload)


Unanswered = dict[int, Carried]
"""By packet identifier, in the order in which they were sent for the first time."""


@dataclass(slots=True)
class SessionModel(Model):
    """The session of one Client Identifier on one server."""

    code = "session"
    scope = Scope.SESSION
    looks_at = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Unsuback, Disconnect)
    # Acknowledgments matter only where messages came from an earlier connection.
    when: ClassVar[dict[type[ControlPacket], str]] = dict.fromkeys((Puback, Pubrec, Pubrel, Pubcomp), "carries")

    owner: ConnectionKey | None = None
    """The connection that has the session, or had it last."""
    live: bool = False
    """Whether it is open, as far as the capture has shown."""
    client: str = ""
    """Endpoint of its client."""
    capture: str = ""
    """Where it began."""
    user_name: str | None = None
    connack: Related | None = None
    """What gave it the session."""
    accepted_ns: int = 0
    waits_for: ConnectionKey | None = None
    """The connection that it took the session from while that was open, until that ends: answers may still come there,
    and whether the capture has all of it shows only then."""
    told_ns: int = 0
    """When the server reported that another connection takes the session over; 0 while it did not."""
    lasting: bool = False
    """Whether CONNECT and CONNACK let the session outlive it."""
    ended_ns: int = 0
    ended_how: str = ""
    """``fin`` or ``reset``, ``taken over`` where it was still open then, empty where the capture does not show it."""
    ended_by: str | None = None
    """``client`` or ``server``, where the capture shows it."""
    kept_seconds: int | None = None
    """How long the session is kept after that: 0 not at all, `ENDLESS` forever, ``None`` where nothing is certain."""
    resumed: bool | None = None
    """Whether it continues a session; ``None`` where the version has no Session Present."""
    born: bool = False
    """Whether the capture has seen the session begin, and all of its connections since as far as is known."""
    whole: bool = False
    """Whether nothing was lost of these connections up to the owner."""
    apart: bool = False
    """Whether a part of the session is from another capture than where the owner began."""
    before_apart: bool = False
    """The same of the connection before, whether or not its session continues."""
    client_sent: Unanswered = field(default_factory=dict)
    """What the client had not been answered when the owner came, while the session continues."""
    server_sent: Unanswered = field(default_factory=dict)
    refused_to_client: Unanswered = field(default_factory=dict)
    """Messages of the client that were refused on connections before the owner, and not sent again since."""
    refused_to_server: Unanswered = field(default_factory=dict)
    discarded_client_sent: Unanswered = field(default_factory=dict)
    """The same of the session that the clean start of the owner has discarded."""
    discarded_server_sent: Unanswered = field(default_factory=dict)
    client_aliases: dict[int, str] = field(default_factory=dict)
    """Topic Aliases of the client on the connection before the owner."""
    server_aliases: dict[int, str] = field(default_factory=dict)
    filters: dict[str, Subscribed] = field(default_factory=dict)
    """Subscriptions that the session had when the owner came, by Topic Filter."""
    ended_filters: dict[str, Subscribed] = field(default_factory=dict)
    """Those that have ended, or may have: messages for them may still wait."""
    filters_known: bool = False
    """Whether there are no others."""
    index: SubscriptionIndex | None = field(default=None, compare=False, repr=False)
    """Of both; made when a topic is looked up, and not written down with the rest."""
    discarded_filters: dict[str, Subscribed] = field(default_factory=dict)
    """The same of the session that the clean start of the owner has discarded."""
    client_takes: int | None = None
    """Maximum Packet Size of the client on the connection before; ``None`` for no limit."""
    server_takes: int | None = None
    order: int = 0
    """How many messages were put in order so far."""

    def sent(self, direction: Direction) -> Unanswered:
        """What a side had not been answered when the owner came, while the session continues."""
        return self.client_sent if direction is C2S else self.server_sent

    def carried(self, direction: Direction, at: RuleContext) -> Unanswered:
        """The same where it may be relied on now; empty elsewhere, and for other connections than the owner."""
        return self.sent(direction) if self.owner == at.key and self.waits_for is None else {}

    def refused(self, direction: Direction, at: RuleContext) -> Unanswered:
        """Messages of a side that the other one refused on connections before this one."""
        if self.owner != at.key or self.waits_for is not None or self.resumed is False:
            return {}
        return self.refused_to_client if direction is C2S else self.refused_to_server

    def discarded(self, direction: Direction) -> Unanswered:
        """The same of the session that a clean start has discarded."""
        return self.discarded_client_sent if direction is C2S else self.discarded_server_sent

    def is_discarded(self, packet: Publish, at: RuleContext) -> bool:
        """Whether a PUBLISH brings a message of the session that the clean start of this connection has discarded."""
        if self.owner != at.key or packet.packet_identifier is None:
            return False
        one = self.discarded(at.direction).get(packet.packet_identifier)
        return one is not None and one.phase is SENT and one.is_message(packet, at.topic)

    def aliases(self, direction: Direction) -> dict[int, str]:
        """Topic Aliases of a side on the last connection on which it set some."""
        return self.client_aliases if direction is C2S else self.server_aliases

    def has_all_filters(self, at: RuleContext) -> bool:
        """Whether the subscriptions that the session brought to this connection are all known."""
        if self.owner != at.key or self.waits_for is not None or self.apart:
            return False
        return self.resumed is True and self.filters_known

    def match(self, topic: str, own: Match, at: RuleContext) -> Match:
        """What a topic belongs to: ``own`` subscriptions of this connection, and those that the session brought."""
        if self.index is None:
            patterns = [name for name in self.filters if name[:1] == "$" or not {"+", "#"}.isdisjoint(name)]
            self.index = SubscriptionIndex.of(self.filters, patterns, self.ended_filters)
        brought = self.index.match(topic, self.filters, self.ended_filters, known=True)
        table, changed = at.history.subscriptions, bool(brought.ended)
        rows = []
        for one in brought.subscriptions:
            newer = table.live.get(one.topic_filter)
            if newer is not None:
                changed = changed or _changes(newer, one)
            elif one.topic_filter in table.ended:
                changed = True
            else:
                rows.append(one)
        if changed:
            return replace(own, known=False)  # a message may have waited for what is over
        return joined(own, replace(brought, subscriptions=tuple(rows), ended=()))

    def kept_until(self, tolerance: float | None = None) -> tuple[int, int] | None:
        """When the session ends, or has ended, and how many nanoseconds more a server may take for that.

        ``tolerance``: seconds, by default `TOLERANCE_SECONDS`.
        ``None`` while its connection is open or nothing is certain.  Both sides have ended an orderly connection, so
        that the server knows; of a reset it may learn much later, and clocks differ.
        """
        seconds = self.kept_seconds
        if self.live or self.owner is None or seconds is None:
            return None
        if tolerance is None:
            tolerance = TOLERANCE_SECONDS
        if not seconds:
            return self.ended_ns, SECOND_NS if self.ended_how == "fin" else round(tolerance * SECOND_NS)
        if seconds == ENDLESS:
            return NEVER_NS, 0
        return self.ended_ns + seconds * SECOND_NS, round(max(tolerance, seconds / 10) * SECOND_NS)

    def is_over(self, now_ns: int) -> bool:
        until = self.kept_until()
        return until is not None and now_ns > sum(until)

    def is_of(self, connect: Connect) -> bool:
        """Whether a CONNECT may be for this session: some servers keep clients of different users apart."""
        return self.owner is not None and self.user_name == connect.user_name

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Move on by a packet."""
        if isinstance(packet, Connack):
            self._connack(packet, at)
        elif isinstance(packet, Disconnect):
            if not at.from_client and packet.reason_code == TAKEN_OVER and self.owner == at.key:
                self.told_ns = at.timestamp_ns
        elif isinstance(packet, Unsuback):
            request = at.history.subscriptions.request_for(packet.packet_identifier, "unsubscribe")
            for name in () if request is None else request.topic_filters:
                self._end_filter(name, self.filters.get(name))
        elif isinstance(packet, Pubrel):
            one = self.sent(at.direction).get(packet.packet_identifier)
            if one is not None and self.owner == at.key:
                one.released = True
            elif one is not None:
                one.phase = RELEASED
        else:
            self._acknowledged(packet, at)

    def _end_filter(self, name: str, one: Subscribed | None) -> None:
        self.filters.pop(name, None)
        self.index = None
        if one is not None:
            self.ended_filters[name] = one
            if forget_oldest(self.ended_filters, MAX_FILTERS):
                self.filters_known = False

    def _acknowledged(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> None:
        """An answer, which may come on a connection before the owner too."""
        one = self.sent(at.direction.opposite).get(packet.packet_identifier)
        if one is None:
            return
        if not isinstance(packet, Pubrec) or (packet.reason_code or 0) >= FAILURE:
            one.answered = True
        elif self.owner != at.key or not at.other.has_sent(packet.packet_identifier):
            one.phase = RECEIVED

    def _connack(self, packet: Connack, at: RuleContext) -> None:
        connect, history = at.history.connect, at.history
        if packet.reason_code or history.connack is not None or connect is None:
            return
        if not at.connection.client_identifier:
            return
        now_ns = at.timestamp_ns
        if self.waits_for is not None:
            self._doubt()
            self.waits_for = None
        if self.live and self.owner is not None and self.owner != at.key:
            self._take_over(at)
        same = self.is_of(connect) and now_ns >= self.ended_ns - SECOND_NS
        self._begin(connect, packet, same=same, at=at)
        self.owner, self.live, self.user_name = at.key, True, connect.user_name
        self.client, self.capture = at.connection.client, at.connection.capture
        self.accepted_ns, self.told_ns = now_ns, 0
        self.lasting = _lasts(connect, packet, at.connection)
        self.ended_ns, self.ended_how, self.ended_by, self.kept_seconds = now_ns, "", None, None
        self.connack = Related("the CONNACK before it", at.number, at.event.frame, now_ns)
        history.carries = bool(
            self.client_sent
            or self.server_sent
            or self.discarded_client_sent
            or self.discarded_server_sent
            or self.discarded_filters
        )

    def _begin(self, connect: Connect, connack: Connack, *, same: bool, at: RuleContext) -> None:
        """Decide what becomes of the session when it gets its next owner."""
        fresh = bool(connect.clean_start) or connack.session_present is False
        self.discarded_client_sent, self.discarded_server_sent, self.discarded_filters = {}, {}, {}
        self.index = None
        apart = same and at.is_apart(self.capture, at.connection.capture)
        self.before_apart = apart
        if not same:
            self.client_aliases, self.server_aliases = {}, {}
        self.resumed = None
        if connack.session_present is not None:
            self.resumed = connack.session_present
        if same and not fresh and not self.is_over(at.timestamp_ns):
            self.apart = self.apart or apart
            return
        if same and connect.clean_start:
            self.discarded_client_sent, self.discarded_server_sent = self.client_sent, self.server_sent
            self.discarded_filters = self.filters
        self.client_sent, self.server_sent, self.filters, self.ended_filters = {}, {}, {}, {}
        self.refused_to_client, self.refused_to_server = {}, {}
        self.born = self.filters_known = self.whole = fresh
        self.apart = False

    def _take_over(self, at: RuleContext) -> None:
        """Take leave of an owner that is still open."""
        assert self.owner is not None
        before = at.connection_of(self.owner)
        if before is None or before.history is None:
            self._forget()
            return
        self._leave(before, before.history, "taken over", at.timestamp_ns)
        before.history.carries = True  # an answer may still come there
        self.waits_for = self.owner

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """The owner has ended, or the connection that it took the session from."""
        if self.waits_for == at.key:
            self.waits_for = None
            if connection.closed_how not in ("fin", "reset") or not _is_whole(connection, at.history):
                self._doubt()
        if self.owner != at.key or not self.live or at.history.connack is None:
            return
        how = connection.closed_how
        self._leave(connection, at.history, how if how in ("fin", "reset") else "", at.timestamp_ns)
        self.ended_by = connection.closed_by
        if self.ended_how and not at.client.gapped and not at.history.client.malformed:
            self.kept_seconds = _kept_seconds(connection, at.history, lasting=self.lasting)

    def _doubt(self) -> None:
        """What was taken from the connection before is not certain."""
        self.whole = self.filters_known = False
        for one in (*self.client_sent.values(), *self.server_sent.values()):
            one.sure = False

    def _forget(self) -> None:
        self.client_sent, self.server_sent, self.filters, self.ended_filters = {}, {}, {}, {}
        self.index = None
        self.client_aliases, self.server_aliases = {}, {}
        self.born = self.whole = self.filters_known = False

    def _leave(self, connection: Connection, history: History, how: str, now_ns: int) -> None:
        """Take from the owner what the session keeps."""
        self.live, self.ended_ns, self.ended_how = False, now_ns, how
        sure = bool(how) and _is_whole(connection, history)
        self.whole = self.whole and sure
        self.client_sent = self._left(C2S, connection, history, sure=sure)
        self.server_sent = self._left(S2C, connection, history, sure=sure)
        self.refused_to_client = _refused(C2S, history, self.refused_to_client)
        self.refused_to_server = _refused(S2C, history, self.refused_to_server)
        self.client_aliases = dict(list(connection.client_side.aliases.items())[-MAX_ALIASES:]) or self.client_aliases
        self.server_aliases = dict(list(connection.server_side.aliases.items())[-MAX_ALIASES:]) or self.server_aliases
        self.client_takes = connection.client_side.maximum_packet_size
        self.server_takes = connection.server_side.maximum_packet_size
        self._leave_filters(history, sure=sure)

    def _left(self, direction: Direction, connection: Connection, history: History, *, sure: bool) -> Unanswered:
        """What a side leaves unanswered, with what it had from before and never sent again."""
        party, side, carried = history.party(direction), connection.side(direction), self.sent(direction)
        rows = []
        for one in carried.values():
            if not one.answered and not party.has_sent(one.packet_identifier):
                one.sure = one.sure and sure
                if one.released:
                    one.phase, one.released = RELEASED, False
                rows.append(one)
        exchanges = [one for one in side.exchanges.values() if one.kind == "publish"]
        for exchange in sorted(exchanges, key=lambda one: one.packet):
            if party.settled.get(exchange.packet_identifier) == exchange.packet:
                continue
            made = _carried(exchange, history, direction, sure=sure)
            before = carried.get(exchange.packet_identifier)
            if before is not None and (before.topic, before.checksum) == (made.topic, made.checksum):
                made.order = before.order
            else:
                self.order += 1
                made.order = self.order
            rows.append(made)
        rows.sort(key=lambda one: one.order)
        if len(rows) > MAX_CARRIED:
            self.whole = False
        return {one.packet_identifier: one for one in rows[:MAX_CARRIED]}

    def _leave_filters(self, history: History, *, sure: bool) -> None:
        """What the session is subscribed to from now on."""
        table, self.index = history.subscriptions, None
        for name, one in table.ended.items():
            self._end_filter(name, one)
        for name, one in table.live.items():
            self.filters.pop(name, None)
            self.ended_filters.pop(name, None)
            if one.granted is not None and one.granted < FAILURE and one.ending_ns is None and not one.doubtful:
                self.filters[name] = replace(one, replaced=None)
            else:
                self.filters_known = False
            if forget_oldest(self.filters, MAX_FILTERS):
                self.filters_known = False
        for request in table.requests.values():
            asked: Request | None = request
            while asked is not None:
                if asked.kind == "unsubscribe" and not asked.answers:
                    for name in asked.topic_filters:  # whether they still exist nobody knows
                        self._end_filter(name, self.filters.get(name))
                asked = asked.earlier
        self.filters_known = self.filters_known and sure and table.complete and not table.unread_answers
        if not sure:  # any of them may have ended with an UNSUBSCRIBE that was not read
            self.filters.clear()


def _changes(newer: Subscribed, one: Subscribed) -> bool:
    """Whether a SUBSCRIBE has changed a subscription that the session brought."""
    asked = newer.subscription_identifier, newer.granted, newer.no_local, newer.retain_as_published
    return asked != (one.subscription_identifier, one.granted, one.no_local, one.retain_as_published)


def _carried(exchange: Exchange, history: History, direction: Direction, *, sure: bool) -> Carried:
    party, identifier = history.party(direction), exchange.packet_identifier
    seconds = party.expiries.get(identifier)
    return Carried(
        identifier,
        exchange.qos,
        exchange.topic,
        party.checksums.get(identifier),
        exchange.phase,
        exchange.packet,
        exchange.frame,
        exchange.timestamp_ns,
        expires_ns=NEVER_NS if seconds is None else exchange.timestamp_ns + seconds * SECOND_NS,
        sure=sure and identifier not in party.shared,
    )


def _refused(direction: Direction, history: History, before: Unanswered) -> Unanswered:
    """Messages of a side that the other one refused with PUBACK or PUBREC, with those of ``before`` that it left."""
    party = history.party(direction)
    rows = {identifier: one for identifier, one in before.items() if not party.has_sent(identifier)}
    rows |= {
        identifier: Carried(
            identifier, one.qos, one.topic, one.checksum, one.phase, one.packet, one.frame, one.timestamp_ns,
            refused=Related.to(f"the {PacketType(one.by).name}", one.answer), reason_code=one.reason_code,
        )
        for identifier, one in party.ended.items()
        if one.reason_code >= FAILURE and identifier not in party.shared
    }  # fmt: skip
    return dict(list(rows.items())[-MAX_CARRIED:])


def _is_whole(connection: Connection, history: History) -> bool:
    """Whether the capture has all that both sides sent, as far as acknowledgments and sequence numbers show."""
    client, server = history.client, history.server
    if connection.client_side.gapped or connection.server_side.gapped or history.disordered:
        return False
    if client.malformed or server.malformed or connection.unseen_bytes:
        return False
    # A FIN counts one.
    return server.acknowledged <= client.position + 1 and client.acknowledged <= server.position + 1


def _lasts(connect: Connect, connack: Connack, connection: Connection) -> bool:
    """Whether the session outlives the connection, by its CONNECT and CONNACK."""
    if connection.version is not V5:
        return not connect.clean_start
    for packet in (connack, connect):
        said = None if packet.properties is None else packet.properties.session_expiry_interval
        if said is not None:
            return bool(said)
    return False


def _kept_seconds(connection: Connection, history: History, *, lasting: bool) -> int | None:
    """How long the session is kept after the end of its connection; ``None`` where that is open."""
    connect = history.connect
    if connect is None or history.connack is None:
        return None
    if connection.version is not V5:
        return 0 if connect.clean_start else ENDLESS
    seconds = connection.session_expiry_interval or 0
    asked = None if connect.properties is None else connect.properties.session_expiry_interval
    if seconds and not asked and history.client.disconnect is not None and not lasting:
        return None  # raised from 0, which is not allowed: a server may take it or not
    return seconds


def session_match(topic: str, at: RuleContext) -> Match:
    """The subscriptions of a client that match a topic, with those that its session brought from earlier connections.

    For rules that have `SessionModel` among their models.
    """
    table = at.history.subscriptions
    own = table.found.get(topic) or table.match(topic)
    if at.connection.clean_start or not at.connection.session_present:
        return own
    model = at.model(SessionModel)
    return model.match(topic, own, at) if model.has_all_filters(at) else own


def doubted(*, apart: bool) -> dict[str, Any]:
    """Severity and confidence for a report that rests on an earlier connection.

    Captures that differ may be of different servers with one address.
    """
    return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC} if apart else {}


class ResumptionRule(Rule):
    """A rule about what has to be sent again when a session continues, and was not when ``timeout`` seconds are over.

    It withholds its judgment while the sender has not been heard since, while messages of its own are under way
    (it may send one at a time), and of what the other side takes no more.
    """

    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = Connack
    sender: ClassVar[Direction | None] = S2C
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {
        # Seconds after the CONNACK in which everything has to have been sent again.
        "timeout": 30,
    }

    def blames(self, one: Carried, direction: Direction, at: RuleContext) -> bool:
        """Whether this rule is about that message, which was not sent again."""
        raise NotImplementedError

    def tell(self, one: Carried) -> str:
        raise NotImplementedError

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Have a look when the time is over; what the session holds is known only after the CONNACK."""
        connect, model = at.history.connect, at.model(SessionModel)
        if packet.reason_code or at.history.connack is not None or connect is None or connect.clean_start:
            return None
        if packet.session_present is not False and model.is_of(connect):
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Look for what was not sent again."""
        if not at.history.carries:
            return
        model = at.model(SessionModel)
        if model.owner != at.key or not model.live or at.history.server.disconnect or at.history.client.disconnect:
            return
        due_ns = model.accepted_ns + self.nanoseconds("timeout")
        for direction in (C2S, S2C):
            rows = [one for one in missing(model, direction, at) if self.blames(one, direction, at)]
            if not rows:
                continue
            side = connection.side(direction)
            if side.last_timestamp_ns is None or side.last_timestamp_ns < due_ns:
                at.ask(self, at.timestamp_ns)
                continue
            if side.in_flight:
                at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
                continue
            first = rows[0]
            more = f", and {len(rows) - 1:,} more" if len(rows) > 1 else ""
            doubt = doubted(apart=model.apart)
            if model.resumed is None:
                doubt.setdefault("confidence", Confidence.HEURISTIC)
            yield self.report(
                "", self.tell(first) + more, sender=direction, related=(first.related,), overdue=True, **doubt
            )


def missing(model: SessionModel, direction: Direction, at: RuleContext) -> Iterator[Carried]:
    """What a side should have sent again by now and has not."""
    if at.version is V3_1 and direction is S2C:
        return  # whether the server had the session nobody knows
    party = at.history.party(direction)
    for one in model.carried(direction, at).values():
        if not one.sure or one.answered or party.has_sent(one.packet_identifier):
            continue
        if one.phase is not SENT:
            if not one.released:
                yield one
        elif not is_refusable(one, direction, model, at):
            yield one


def is_refusable(one: Carried, direction: Direction, model: SessionModel, at: RuleContext) -> bool:
    """Whether the other side may not take a message any more that it took on the connection before."""
    takes = at.connection.receiver(direction).maximum_packet_size
    took = model.server_takes if direction is C2S else model.client_takes
    if takes is not None and (took is None or takes < took):
        return True  # it may be too long now
    return direction is C2S and one.qos > at.connection.maximum_qos


def may_move(one: Carried, direction: Direction, model: SessionModel) -> bool:
    """Whether a server may have given a message of QoS 1 to another member of a share."""
    if direction is C2S or one.qos == 2:
        return False
    return not model.filters_known or any(name.startswith("$share/") for name in model.filters)


def may_be_dropped(one: Carried, direction: Direction, model: SessionModel, at: RuleContext) -> bool:
    """Whether a sender need not hold a message of the connection before any more, which sets its identifier free."""
    if one.phase is not SENT:
        return False
    if one.expires_ns <= at.timestamp_ns or is_refusable(one, direction, model, at):
        return True
    return may_move(one, direction, model)
