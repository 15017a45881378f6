"""The session of a Client Identifier across several connections, as far as the capture proves it.

The session belongs to its owner, the connection that was accepted last.  When the owner ends, or another connection
takes the session over, the model stores the owner's unanswered messages, subscriptions and Topic Aliases.  The next
CONNACK decides: with Session Present 1 the session continues, with a clean start it is discarded, and anything else
that is not known to continue is forgotten.

Some facts depend on the completeness of the capture:

* a session that began before the capture contains more than is known (``born``);
* after lost bytes, or an end outside the capture, a message may have been answered (``UnansweredMessage.sure``);
* another user may be another client for the server, and another capture may be of another server (``apart``);
* 3.1 has no Session Present, so it is unknown whether a session continues (``resumed`` is ``None``).

Rules about messages that have to be sent again share `ResumptionRule`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.finding import Confidence, Related, Report, Scope, Severity
from mqttscope.lint.model import Model
from mqttscope.lint.rule import V3_1, V5, Findings, Needs, Rule
from mqttscope.mqtt import ControlPacket, Direction, PacketType
from mqttscope.mqtt.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Unsuback
from mqttscope.session.connection import C2S, S2C, Connection
from mqttscope.session.history import NEVER_NS, History, PeerHistory
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange, ExchangePhase, TablesOnDemand
from mqttscope.session.matching import FAILURE, ClientSubscription, Match, SubscriptionIndex, join_matches
from mqttscope.session.subscriptions import SubscriptionRequest

ENDLESS = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (5.0 3.1.2.11.2)."""
TAKEN_OVER = 0x8E
"""Reason Code of a DISCONNECT after another connection has taken over the session."""
MAX_CARRIED = 1_000
"""Maximum number of unanswered messages kept per side, the oldest; a broken receiver may leave 65,535."""
MAX_FILTERS = 1_000
"""Maximum number of Topic Filters kept per session; the oldest are dropped and not judged."""
MAX_ALIASES = 64
"""Maximum number of Topic Aliases kept per side from the last connection: they only explain mistakes."""
MAX_COMPLETED = 16
"""Maximum number of QoS 2 messages kept per side from the last connection: only the latest may be resent by mistake."""
TOLERANCE_SECONDS = 60.0
"""Default time that a server may keep an ended session, since it may notice the end late."""
_STEPS = {SENT: "PUBLISH", RECEIVED: "PUBREL", RELEASED: "PUBREL"}


@dataclass(slots=True)
class UnansweredMessage:
    """A message of QoS 1 or 2 that was not fully acknowledged when its connection ended."""

    packet_identifier: int
    qos: int
    topic: str | None
    checksum: int | None
    """CRC-32 of its payload."""
    phase: ExchangePhase
    """Progress of the exchange at the end of its connection."""
    packet: int
    frame: int
    timestamp_ns: int
    """Time of its last PUBLISH."""
    order: int = 0
    """Increases from message to message, by their first sending."""
    expires_ns: int = NEVER_NS
    """When its Message Expiry Interval ends."""
    sure: bool = False
    """Whether the capture would show its answer."""
    answered: bool = False
    """Whether the final answer has arrived since."""
    refused: Related | None = None
    """The answer that refused it."""
    reason_code: int = 0
    """Reason Code of the refusal."""
    released: bool = False
    """Whether its PUBREL has been sent since."""

    @property
    def step(self) -> str:
        """The packet that its sender has to send again: ``PUBLISH`` or ``PUBREL``."""
        return _STEPS[self.phase]

    @property
    def related(self) -> Related:
        return Related.to(f"PUBLISH {self.packet_identifier}", self)

    def is_message(self, packet: Publish, topic: str | None) -> bool:
        """Whether a PUBLISH has the same topic, QoS and payload; ``False`` if one of them is unknown."""
        if topic is None or topic != self.topic or packet.qos != self.qos or packet.missing:
            return False
        return self.checksum == zlib.crc32(packet.payload)

    def differs(self, packet: Publish, topic: str | None) -> bool:
        """Whether a PUBLISH is certainly another message: its topic or payload differs."""
        if topic is None or self.topic is None or self.checksum is None or packet.missing:
            return False
        return topic != self.topic or self.checksum != zlib.crc32(packet.payload)


Unanswered = dict[int, UnansweredMessage]
"""Messages by packet identifier, ordered by their first sending."""


@dataclass(slots=True)
class SessionModel(TablesOnDemand, Model):
    """The session of one Client Identifier on one server."""

    code = "session"
    scope = Scope.SESSION
    looks_at = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Unsuback, Disconnect)
    # Acknowledgments matter only if messages of an earlier connection are unanswered.
    when: ClassVar[dict[type[ControlPacket], str]] = dict.fromkeys((Puback, Pubrec, Pubrel, Pubcomp), "carries")

    owner: ConnectionKey | None = None
    """The connection that has the session, or had it last."""
    live: bool = False
    """Whether the owner is open, as far as the capture shows."""
    client: str = ""
    """Endpoint of the owner's client."""
    capture: str = ""
    """Capture with the start of the owner."""
    user_name: str | None = None
    connack: Related | None = None
    """The CONNACK that gave the owner the session."""
    accepted_ns: int = 0
    waits_for: ConnectionKey | None = None
    """The previous owner, while it is still open after a takeover: answers may still arrive there, and only its end
    shows whether the capture is complete."""
    told_ns: int = 0
    """When the server reported the takeover to the owner; 0 without a report."""
    lasting: bool = False
    """Whether the session outlives the owner, by CONNECT and CONNACK."""
    ended_ns: int = 0
    ended_how: str = ""
    """``fin`` or ``reset``; ``taken over`` if the owner was still open; empty if the capture does not show it."""
    ended_by: str | None = None
    """``client`` or ``server``, if the capture shows it."""
    kept_seconds: int | None = None
    """Seconds that the session is kept afterwards: 0 not at all, `ENDLESS` forever, ``None`` if uncertain."""
    resumed: bool | None = None
    """Whether the owner continues a session; ``None`` in a version without Session Present."""
    born: bool = False
    """Whether the capture shows the session from its start, with all of its connections as far as is known."""
    whole: bool = False
    """Whether no bytes of these connections, up to the owner, are missing."""
    apart: bool = False
    """Whether part of the session is from another capture than the start of the owner."""
    before_apart: bool = False
    """Whether the previous connection is from another capture, whether or not its session continues."""
    client_sent: dict[int, UnansweredMessage] = field(init=False)
    """Unanswered messages of the client from before the owner, while the session continues."""
    server_sent: dict[int, UnansweredMessage] = field(init=False)
    refused_to_client: dict[int, UnansweredMessage] = field(init=False)
    """Messages of the client that were refused on earlier connections and not sent again since."""
    refused_to_server: dict[int, UnansweredMessage] = field(init=False)
    completed_by_client: dict[int, UnansweredMessage] = field(init=False)
    """The last QoS 2 messages of the client on the previous connection that were answered in full."""
    completed_by_server: dict[int, UnansweredMessage] = field(init=False)
    discarded_client_sent: dict[int, UnansweredMessage] = field(init=False)
    """Unanswered messages of the session that the owner's clean start discarded."""
    discarded_server_sent: dict[int, UnansweredMessage] = field(init=False)
    client_aliases: dict[int, str] = field(init=False)
    """Topic Aliases of the client on the previous connection."""
    server_aliases: dict[int, str] = field(init=False)
    filters: dict[str, ClientSubscription] = field(init=False)
    """Subscriptions from before the owner, by Topic Filter."""
    ended_filters: dict[str, ClientSubscription] = field(init=False)
    """Subscriptions that have ended, or may have: messages for them may still be queued."""
    filters_known: bool = False
    """Whether the two tables have all subscriptions."""
    index: SubscriptionIndex | None = field(default=None, compare=False, repr=False)
    """Index of both tables; created on the first look-up and not stored."""
    discarded_filters: dict[str, ClientSubscription] = field(init=False)
    """Subscriptions of the session that the owner's clean start discarded."""
    client_takes: int | None = None
    """Maximum Packet Size of the client on the previous connection; ``None`` for no limit."""
    server_takes: int | None = None
    order: int = 0
    """Number of messages ordered."""

    def sent(self, direction: Direction) -> Unanswered:
        """Unanswered messages of a side from before the owner, while the session continues."""
        return self.client_sent if direction is C2S else self.server_sent

    def carried(self, direction: Direction, at: RuleContext) -> Unanswered:
        """Unanswered messages that are reliable now; empty if in doubt, and for connections other than the owner."""
        return self.sent(direction) if self.owner == at.key and self.waits_for is None else {}

    def refused(self, direction: Direction, at: RuleContext) -> Unanswered:
        """Messages of a side that were refused on earlier connections."""
        if self.owner != at.key or self.waits_for is not None or self.resumed is False:
            return {}
        return self.refused_to_client if direction is C2S else self.refused_to_server

    def completed(self, direction: Direction, at: RuleContext) -> Unanswered:
        """QoS 2 messages of a side that were answered in full on the previous connection of this session."""
        if self.owner != at.key or self.resumed is False:
            return {}
        return self.completed_by_client if direction is C2S else self.completed_by_server

    def discarded(self, direction: Direction) -> Unanswered:
        """Unanswered messages of a side in the session that a clean start discarded."""
        return self.discarded_client_sent if direction is C2S else self.discarded_server_sent

    def is_discarded(self, packet: Publish, at: RuleContext) -> bool:
        """Whether a PUBLISH is a message of the session that this connection's clean start discarded."""
        if self.owner != at.key or packet.packet_identifier is None:
            return False
        message = self.discarded(at.direction).get(packet.packet_identifier)
        return message is not None and message.phase is SENT and message.is_message(packet, at.topic)

    def aliases(self, direction: Direction) -> dict[int, str]:
        """Topic Aliases of a side on the last connection that set any."""
        return self.client_aliases if direction is C2S else self.server_aliases

    def has_all_filters(self, at: RuleContext) -> bool:
        """Whether all subscriptions that the session brought to this connection are known."""
        if self.owner != at.key or self.waits_for is not None or self.apart:
            return False
        return self.resumed is True and self.filters_known

    def match(self, topic: str, own: Match, at: RuleContext) -> Match:
        """Subscriptions that match a topic: ``own`` ones of this connection, and subscriptions of the session."""
        if self.index is None:
            patterns = [name for name in self.filters if name[:1] == "$" or not {"+", "#"}.isdisjoint(name)]
            self.index = SubscriptionIndex.of(self.filters, patterns, self.ended_filters)
        brought = self.index.match(topic, self.filters, self.ended_filters, known=True)
        table, changed = at.history.subscriptions, bool(brought.ended)
        rows = []
        for subscription in brought.subscriptions:
            newer = table.live.get(subscription.topic_filter)
            if newer is not None:
                changed = changed or _changes(newer, subscription)
            elif subscription.topic_filter in table.ended:
                changed = True
            else:
                rows.append(subscription)
        if changed:
            return replace(own, known=False)  # a message may have been queued for a former subscription
        return join_matches(own, replace(brought, subscriptions=tuple(rows), ended=()))

    def kept_until(self, tolerance: float | None = None) -> tuple[int, int] | None:
        """When the session ends or ended, and the additional nanoseconds that a server may take for it.

        ``tolerance``: seconds, by default `TOLERANCE_SECONDS`.  ``None`` while the connection is open or if the end is
        uncertain.  Both sides end an orderly connection, so both have the same time.  The server may notice a reset
        much later, and clocks differ.
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
        """Whether a CONNECT may be for this session: some servers separate clients of different users."""
        return self.owner is not None and self.user_name == connect.user_name

    def follow(self, packet: Any, at: RuleContext) -> None:
        """Update the session with an acknowledgment, a CONNACK or a DISCONNECT."""
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
            message = self.sent(at.direction).get(packet.packet_identifier)
            if message is not None and self.owner == at.key:
                message.released = True
            elif message is not None:
                message.phase = RELEASED
        else:
            self._acknowledged(packet, at)

    def _end_filter(self, name: str, subscription: ClientSubscription | None) -> None:
        self.filters.pop(name, None)
        self.index = None
        if subscription is not None:
            self.ended_filters[name] = subscription
            if forget_oldest(self.ended_filters, MAX_FILTERS):
                self.filters_known = False

    def _acknowledged(self, packet: Puback | Pubrec | Pubcomp, at: RuleContext) -> None:
        """Handle an answer, which may also arrive on the previous owner."""
        message = self.sent(at.direction.opposite).get(packet.packet_identifier)
        if message is None:
            return
        if not isinstance(packet, Pubrec) or (packet.reason_code or 0) >= FAILURE:
            message.answered = True
        elif self.owner != at.key or not at.other.has_sent(packet.packet_identifier):
            message.phase = RECEIVED

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
        history.carries = self.has_any(
            "client_sent", "server_sent", "discarded_client_sent", "discarded_server_sent", "discarded_filters"
        )

    def _begin(self, connect: Connect, connack: Connack, *, same: bool, at: RuleContext) -> None:
        """Decide what happens to the session when it gets its next owner."""
        fresh = bool(connect.clean_start) or connack.session_present is False
        self.empty("discarded_client_sent", "discarded_server_sent", "discarded_filters")
        self.index = None
        apart = same and at.is_apart(self.capture, at.connection.capture)
        self.before_apart = apart
        if not same:
            self.empty("client_aliases", "server_aliases")
        self.resumed = None
        if connack.session_present is not None:
            self.resumed = connack.session_present
        if same and not fresh and not self.is_over(at.timestamp_ns):
            self.apart = self.apart or apart
            return
        if same and connect.clean_start:
            self.discarded_client_sent, self.discarded_server_sent = self.client_sent, self.server_sent
            self.discarded_filters = self.filters
        self.empty("client_sent", "server_sent", "filters", "ended_filters")
        self.empty("refused_to_client", "refused_to_server")
        self.born = self.filters_known = self.whole = fresh
        self.apart = False

    def _take_over(self, at: RuleContext) -> None:
        """Store the state of an owner that is still open."""
        assert self.owner is not None
        before = at.connection_of(self.owner)
        if before is None or before.history is None:
            self._forget()
            return
        self._leave(before, before.history, "taken over", at.timestamp_ns)
        before.history.carries = True  # an answer may still arrive there
        self.waits_for = self.owner

    def closed(self, connection: Connection, at: RuleContext) -> None:
        """Handle the end of the owner, or of the connection that it took the session from."""
        if self.waits_for == at.key:
            self.waits_for = None
            if connection.closed_how not in ("fin", "reset") or not _is_whole(connection, at.history):
                self._doubt()
        if self.owner != at.key and at.history.connack is None:
            # Its CONNACK could not be read: it may have had the session, and used the identifiers of earlier messages.
            self.empty("refused_to_client", "refused_to_server")
        if self.owner != at.key or not self.live or at.history.connack is None:
            return
        how = connection.closed_how
        self._leave(connection, at.history, how if how in ("fin", "reset") else "", at.timestamp_ns)
        self.ended_by = connection.closed_by
        if self.ended_how and not at.client.gapped and not at.history.client.malformed:
            self.kept_seconds = _kept_seconds(connection, at.history, lasting=self.lasting)

    def _doubt(self) -> None:
        """Mark the state from the previous connection as uncertain."""
        self.whole = self.filters_known = False
        for message in (*self.client_sent.values(), *self.server_sent.values()):
            message.sure = False

    def _forget(self) -> None:
        self.empty("client_sent", "server_sent", "filters", "ended_filters")
        self.index = None
        self.empty("client_aliases", "server_aliases")
        self.born = self.whole = self.filters_known = False

    def _leave(self, connection: Connection, history: History, how: str, now_ns: int) -> None:
        """Store the owner's state that the session keeps."""
        self.live, self.ended_ns, self.ended_how = False, now_ns, how
        sure = bool(how) and _is_whole(connection, history)
        self.whole = self.whole and sure
        self.client_sent = self._rest(C2S, connection, history, sure=sure)
        self.server_sent = self._rest(S2C, connection, history, sure=sure)
        self.completed_by_client, self.completed_by_server = _completed(history.client), _completed(history.server)
        # Bytes that the capture lacks may have used the identifiers of earlier messages.
        self.refused_to_client = _refused(C2S, history, self.refused_to_client if sure else {})
        self.refused_to_server = _refused(S2C, history, self.refused_to_server if sure else {})
        self.client_aliases = dict(list(connection.client_side.aliases.items())[-MAX_ALIASES:]) or self.client_aliases
        self.server_aliases = dict(list(connection.server_side.aliases.items())[-MAX_ALIASES:]) or self.server_aliases
        self.client_takes = connection.client_side.maximum_packet_size
        self.server_takes = connection.server_side.maximum_packet_size
        self._leave_filters(connection, history, sure=sure)

    def _rest(self, direction: Direction, connection: Connection, history: History, *, sure: bool) -> Unanswered:
        """Unanswered messages of a side, including earlier ones that were never sent again."""
        party, side, carried = history.party(direction), connection.side(direction), self.sent(direction)
        rows = []
        for message in carried.values():
            if not message.answered and not party.has_sent(message.packet_identifier):
                message.sure = message.sure and sure
                if message.released:
                    message.phase, message.released = RELEASED, False
                rows.append(message)
        exchanges = [exchange for exchange in side.exchanges.values() if exchange.kind == "publish"]
        for exchange in sorted(exchanges, key=lambda exchange: exchange.packet):
            if party.settled.get(exchange.packet_identifier) == exchange.packet:
                continue
            message = _carried(exchange, history, direction, sure=sure)
            before = carried.get(exchange.packet_identifier)
            if before is not None and (before.topic, before.checksum) == (message.topic, message.checksum):
                message.order = before.order
            else:
                self.order += 1
                message.order = self.order
            rows.append(message)
        rows.sort(key=lambda message: message.order)
        if len(rows) > MAX_CARRIED:
            self.whole = False
        return {message.packet_identifier: message for message in rows[:MAX_CARRIED]}

    def _leave_filters(self, connection: Connection, history: History, *, sure: bool) -> None:
        table, self.index = history.subscriptions, None
        for name, subscription in table.ended.items():
            self._end_filter(name, subscription)
        for name, subscription in table.live.items():
            self.filters.pop(name, None)
            self.ended_filters.pop(name, None)
            granted, is_sure = subscription.granted, subscription.ending_ns is None and not subscription.doubtful
            if granted is not None and granted < FAILURE and is_sure:
                # An open connection may still change its own; a copy costs more than all else here.
                is_final = subscription.replaced is None and connection.closed_how is not None
                self.filters[name] = subscription if is_final else replace(subscription, replaced=None)
            else:
                self.filters_known = False
            if forget_oldest(self.filters, MAX_FILTERS):
                self.filters_known = False
        for request in table.requests.values():
            asked: SubscriptionRequest | None = request
            while asked is not None:
                if asked.kind == "unsubscribe" and not asked.answers:
                    for name in asked.topic_filters:  # it is unknown whether they still exist
                        self._end_filter(name, self.filters.get(name))
                asked = asked.earlier
        self.filters_known = self.filters_known and sure and table.complete and not table.unread_answers
        if not sure:  # an UNSUBSCRIBE that was not read may have ended any of them
            self.filters.clear()


def _changes(newer: ClientSubscription, earlier: ClientSubscription) -> bool:
    """Whether a SUBSCRIBE changed a subscription that the session brought."""
    asked = newer.subscription_identifier, newer.granted, newer.no_local, newer.retain_as_published
    return asked != (earlier.subscription_identifier, earlier.granted, earlier.no_local, earlier.retain_as_published)


def _carried(exchange: Exchange, history: History, direction: Direction, *, sure: bool) -> UnansweredMessage:
    party, identifier = history.party(direction), exchange.packet_identifier
    seconds = party.expiries.get(identifier)
    return UnansweredMessage(
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


def _completed(party: PeerHistory) -> Unanswered:
    """The last QoS 2 messages of a side that were answered in full, with their PUBREL."""
    rows = (ended for ended in reversed(party.ended.values()) if ended.released_by >= 0 and ended.topic is not None)
    return {
        ended.packet_identifier: UnansweredMessage(
            ended.packet_identifier, ended.qos, ended.topic, ended.checksum, RELEASED, ended.packet, ended.frame,
            ended.timestamp_ns, sure=ended.packet_identifier not in party.shared,
        )
        for ended in islice(rows, MAX_COMPLETED)
    }  # fmt: skip


def _refused(direction: Direction, history: History, before: Unanswered) -> Unanswered:
    """Messages of a side that were refused with PUBACK or PUBREC, with earlier ones that were not sent again."""
    party = history.party(direction)
    rows = {identifier: message for identifier, message in before.items() if not party.has_sent(identifier)}
    if not party.has_refusals:
        return rows
    rows |= {
        identifier: UnansweredMessage(
            identifier, end.qos, end.topic, end.checksum, end.phase, end.packet, end.frame, end.timestamp_ns,
            refused=Related.to(f"the {PacketType(end.by).name}", end.answer), reason_code=end.reason_code,
        )
        for identifier, end in party.ended.items()
        if end.reason_code >= FAILURE and identifier not in party.shared
    }  # fmt: skip
    return dict(list(rows.items())[-MAX_CARRIED:])


def _is_whole(connection: Connection, history: History) -> bool:
    """Whether the capture has everything that both sides sent, by acknowledgments and sequence numbers."""
    client, server = history.client, history.server
    if connection.client_side.gapped or connection.server_side.gapped or history.disordered:
        return False
    if client.malformed or server.malformed or connection.unseen_bytes:
        return False
    # A FIN counts as one byte.
    return server.acknowledged <= client.position + 1 and client.acknowledged <= server.position + 1


def _lasts(connect: Connect, connack: Connack, connection: Connection) -> bool:
    """Whether the session outlives the connection, by its CONNECT and CONNACK."""
    if connection.version is not V5:
        return not connect.clean_start
    for packet in (connack, connect):
        seconds = None if packet.properties is None else packet.properties.session_expiry_interval
        if seconds is not None:
            return bool(seconds)
    return False


def _kept_seconds(connection: Connection, history: History, *, lasting: bool) -> int | None:
    """Seconds that the session is kept after the end of its connection; ``None`` if uncertain."""
    connect = history.connect
    if connect is None or history.connack is None:
        return None
    if connection.version is not V5:
        return 0 if connect.clean_start else ENDLESS
    seconds = connection.session_expiry_interval or 0
    asked = None if connect.properties is None else connect.properties.session_expiry_interval
    if seconds and not asked and history.client.disconnect is not None and not lasting:
        return None  # raised from 0, which is forbidden: a server may accept it or not
    return seconds


def session_match(topic: str, at: RuleContext) -> Match:
    """Subscriptions of a client that match a topic, including subscriptions from earlier connections of its session.

    For rules with `SessionModel` among their models.
    """
    table = at.history.subscriptions
    own = table.matches.get(topic) or table.match(topic)
    if at.connection.clean_start or not at.connection.session_present:
        return own
    model = at.model(SessionModel)
    return model.match(topic, own, at) if model.has_all_filters(at) else own


def doubted(*, apart: bool) -> dict[str, Any]:
    """Severity and confidence of a report that depends on an earlier connection.

    Different captures may be of different servers with one address.
    """
    return {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC} if apart else {}


class ResumptionRule(Rule):
    """A rule about messages of a resumed session that were not sent again within ``timeout`` seconds.

    It does not judge while the sender is silent, while new messages of the sender are in flight (it may send one at a
    time), or messages that the receiver no longer accepts.
    """

    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    looks_at: ClassVar[type[ControlPacket] | tuple[type[ControlPacket], ...]] = Connack
    sender: ClassVar[Direction | None] = S2C
    needs = Needs.OPENING | Needs.WHOLE
    models = (SessionModel,)
    settings: ClassVar[dict[str, int | float | str | list[str]]] = {
        # Seconds after the CONNACK within which everything must be sent again.
        "timeout": 30,
    }

    def blames(self, message: UnansweredMessage, direction: Direction, at: RuleContext) -> bool:
        """Whether this rule is about that message, which was not sent again."""
        raise NotImplementedError

    def describe(self, message: UnansweredMessage) -> str:
        raise NotImplementedError

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Schedule the check; the content of the session is known only after the CONNACK."""
        connect, model = at.history.connect, at.model(SessionModel)
        if packet.reason_code or at.history.connack is not None or connect is None or connect.clean_start:
            return None
        if packet.session_present is not False and model.is_of(connect):
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Report messages that were not sent again."""
        if not at.history.carries:
            return
        model = at.model(SessionModel)
        if model.owner != at.key or not model.live or at.history.server.disconnect or at.history.client.disconnect:
            return
        due_ns = model.accepted_ns + self.nanoseconds("timeout")
        for direction in (C2S, S2C):
            rows = [message for message in missing(model, direction, at) if self.blames(message, direction, at)]
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
                "", self.describe(first) + more, sender=direction, related=(first.related,), overdue=True, **doubt
            )


def missing(model: SessionModel, direction: Direction, at: RuleContext) -> Iterator[UnansweredMessage]:
    """Messages that a side should have sent again by now."""
    if at.version is V3_1 and direction is S2C:
        return  # it is unknown whether the server had the session
    party = at.history.party(direction)
    for message in model.carried(direction, at).values():
        if not message.sure or message.answered or party.has_sent(message.packet_identifier):
            continue
        if message.phase is not SENT:
            if not message.released:
                yield message
        elif not is_refusable(message, direction, model, at):
            yield message


def is_refusable(message: UnansweredMessage, direction: Direction, model: SessionModel, at: RuleContext) -> bool:
    """Whether the receiver may no longer accept a message that it accepted on the previous connection."""
    takes = at.connection.receiver(direction).maximum_packet_size
    took = model.server_takes if direction is C2S else model.client_takes
    if takes is not None and (took is None or takes < took):
        return True  # it may be too long now
    return direction is C2S and message.qos > at.connection.maximum_qos


def may_move(message: UnansweredMessage, direction: Direction, model: SessionModel) -> bool:
    """Whether a server may have given a message of QoS 1 to another member of a share."""
    if direction is C2S or message.qos == 2:
        return False
    return not model.filters_known or any(name.startswith("$share/") for name in model.filters)


def may_be_dropped(message: UnansweredMessage, direction: Direction, model: SessionModel, at: RuleContext) -> bool:
    """Whether a sender may discard a message of the previous connection, which frees its identifier."""
    if message.phase is not SENT:
        return False
    if message.expires_ns <= at.timestamp_ns or is_refusable(message, direction, model, at):
        return True
    return may_move(message, direction, model)
