"""What a device is answered: recorded answers where the recording has them, conforming ones elsewhere.

What goes to the device: answers when they are due, and the end of the connection behind them.

Which recorded packet of the client a packet of the device is.

PUBLISH by topic and payload, then by topic, then in order; SUBSCRIBE and UNSUBSCRIBE by their Topic Filters, then in
order; everything else in order.  What was found for a packet that only resembles it is given once more to one that is
the same: a message that the recording does not have takes nothing away from those that follow.

What a server may not put up with: the Reason Code with which it ends the connection (5.0 4.13, 3.1.1 4.8).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import V3_1_1, V5, MalformedReason
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.topics import topic_filter_problem
from mqttscope.replay.player import reactions
from mqttscope.replay.player.actions import Kind
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.stand_in import answers
from mqttscope.replay.stand_in.actions import Close, Manner, Send, Unexpected
from mqttscope.replay.stand_in.connection_matching import (
    ACKNOWLEDGEMENTS,
    MAX_SUBSCRIPTIONS,
    Part,
    Sessions,
    Unfinished,
)
from mqttscope.replay.stand_in.deliver import Substitutes
from mqttscope.replay.stand_in.live import MAX_SESSION_BYTES, Live
from mqttscope.session.connection import Connection

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID = 0x8F, 0x90
RECEIVE_MAXIMUM_EXCEEDED, TOPIC_ALIAS_INVALID, PACKET_TOO_LARGE = 0x93, 0x94, 0x95
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x9A, 0x9B
_OF_SERVERS = (packets.Connack, packets.Suback, packets.Unsuback, packets.Pingresp)
_UNSUPPORTED = (MalformedReason.PROTOCOL_NAME_INVALID, MalformedReason.PROTOCOL_VERSION_UNKNOWN)


def violation(packet: ControlPacket | Malformed, topic: str | None, live: Connection) -> int | None:
    """Why the connection has to end, looked at behind `Live.take`; ``None`` where it goes on.

    ``topic``: of a PUBLISH, its alias resolved.
    """
    if isinstance(packet, Malformed):
        return MALFORMED
    if isinstance(packet, _OF_SERVERS) or (isinstance(packet, packets.Auth) and live.version < V5):
        return PROTOCOL_ERROR
    server = live.server_side
    if server.maximum_packet_size is not None and len(packet.raw) > server.maximum_packet_size:
        return PACKET_TOO_LARGE
    if isinstance(packet, packets.Publish):
        return _publish(packet, topic, live)
    if isinstance(packet, packets.Subscribe):
        filters = [one.topic_filter for one in packet.subscriptions]
        return PROTOCOL_ERROR if not filters else _filters(filters, live)
    if isinstance(packet, packets.Unsubscribe):
        return PROTOCOL_ERROR if not packet.topic_filters else _filters(packet.topic_filters, live)
    return None


def _publish(packet: packets.Publish, topic: str | None, live: Connection) -> int | None:
    server = live.server_side
    alias = None if packet.properties is None else packet.properties.topic_alias
    if alias is not None and not 0 < alias <= server.topic_alias_maximum:
        return TOPIC_ALIAS_INVALID
    if topic is None:
        return PROTOCOL_ERROR
    if "+" in topic or "#" in topic:
        return TOPIC_NAME_INVALID
    if packet.qos > live.maximum_qos:
        return QOS_NOT_SUPPORTED
    if packet.retain and not live.retain_available:
        return RETAIN_NOT_SUPPORTED
    if packet.qos and packet.packet_identifier == 0:
        return PROTOCOL_ERROR
    if packet.qos and live.client_side.in_flight > server.receive_maximum:
        return RECEIVE_MAXIMUM_EXCEEDED
    return None


def _filters(filters: list[str], live: Connection) -> int | None:
    problems = [topic_filter_problem(one, shared=live.version >= V5) for one in filters]
    return None if not any(problems) else TOPIC_FILTER_INVALID if live.version >= V5 else PROTOCOL_ERROR


def refusal(packet: Malformed) -> int | None:
    """The CONNACK return code for a CONNECT that cannot be read; ``None`` where the connection is just closed."""
    if packet.reason in _UNSUPPORTED:
        return 0x01  # 3.1.1 MQTT-3.1.2-2; it is what clients of any version can read
    return None


@dataclass(slots=True)
class Counterpart:
    """A recorded packet."""

    entry: Entry
    same: bool
    """Whether both say the same, as far as they are recognised by it."""
    alike: bool
    """Whether they are about the same: a message to the same topic, or the very same kind of request."""


@dataclass(slots=True)
class Counterparts:
    """The packets of a recorded client that have not come yet."""

    entries: Iterable[Entry]
    _same: dict[Hashable, deque[Entry]] = field(default_factory=dict)
    _alike: dict[Hashable, deque[Entry]] = field(default_factory=dict)
    _kinds: dict[type, deque[Entry]] = field(default_factory=dict)
    _taken: set[Entry] = field(default_factory=set)
    _lent: set[Entry] = field(default_factory=set)
    """Given to packets that only resemble them."""

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.from_client:
                same, alike = _keys(entry.packet, entry.topic)
                self._same.setdefault(same, deque()).append(entry)
                self._alike.setdefault(alike, deque()).append(entry)
                self._kinds.setdefault(type(entry.packet), deque()).append(entry)

    def find(
        self, packet: ControlPacket | Malformed, topic: str | None, expected: Entry | None, *, in_order: bool = True
    ) -> Counterpart | None:
        """The recorded packet that this one is; ``None`` where the recording has none.

        ``topic``: of a PUBLISH, its alias resolved.  ``expected``: what the recorded client would send next; a packet
        that resembles nothing else is that one, if it is of its type and ``in_order`` allows it.
        """
        same, alike = _keys(packet, topic)
        found = self._next(self._same.get(same), lent=True)
        if found is not None:
            self._taken.add(found)
            return Counterpart(found, same=True, alike=True)
        found = self._next(self._alike.get(alike), lent=False)
        if found is not None:
            self._lent.add(found)
            return Counterpart(found, same=False, alike=True)
        if not in_order:
            return None
        if isinstance(packet, packets.Publish):
            # Further behind it would be given to what has nothing to do with it.
            found = expected if expected is not None and isinstance(expected.packet, packets.Publish) else None
            if found in self._taken or found in self._lent:
                return None
        else:
            found = self._next(self._kinds.get(type(packet)), lent=False)
        if found is None:
            return None
        self._lent.add(found)
        return Counterpart(found, same=False, alike=False)

    def _next(self, candidates: deque[Entry] | None, *, lent: bool) -> Entry | None:
        """The first that is still there."""
        while candidates:
            found = candidates[0]
            if found not in self._taken and (lent or found not in self._lent):
                return found
            candidates.popleft()
        return None


def _keys(packet: ControlPacket | Malformed, topic: str | None) -> tuple[Hashable, Hashable]:
    """By what a packet is recognised as the same, and as one that is about the same."""
    kind = type(packet).__name__
    if isinstance(packet, packets.Publish):
        return (kind, topic, packet.payload), (kind, topic)
    if isinstance(packet, packets.Subscribe):
        filters = tuple(one.topic_filter for one in packet.subscriptions)
        return (kind, filters), (kind, frozenset(filters))
    if isinstance(packet, packets.Unsubscribe):
        return (kind, tuple(packet.topic_filters)), (kind, frozenset(packet.topic_filters))
    if isinstance(packet, Malformed):
        return (kind, packet.raw), (kind, packet.raw)
    return kind, kind


_IN_CONNACK = (MALFORMED, PROTOCOL_ERROR, PACKET_TOO_LARGE)
"""Reason Codes of `violation` that a CONNACK may have."""


@dataclass(slots=True, order=True)
class Answer:
    """An answer that is to be sent."""

    due_ns: int
    turn: int
    packet: ControlPacket = field(compare=False)
    source: Entry | None = field(compare=False)
    """The recorded answer."""


@dataclass(slots=True, kw_only=True)
class Outgoing(Live):
    """The sending half of a stand-in."""

    script: Script
    """The recording; one without entries where there is none."""
    manner: Manner
    end: Close | None = None
    """How the connection is to end, behind what is queued."""
    over: bool = False
    """Nothing more will be sent."""
    queue: list[Answer] = field(default_factory=list)
    happened: dict[Entry, int] = field(default_factory=dict)
    """When recorded packets had their counterpart."""
    last_ns: int = 0
    """When something last happened that the recording has."""
    last_recorded_ns: int = 0
    """The latest recorded time of what has happened."""
    part: Part = field(init=False)
    _turn: int = 0
    _queued: dict[type, int] = field(default_factory=dict)
    """When the latest answer of a type is due: acknowledgements keep their order (5.0 4.6)."""
    _floor_ns: int = 0
    """Nothing is sent before the CONNACK."""

    def __post_init__(self) -> None:
        self.part = Part(self.script)
        self.last_ns, self.last_recorded_ns = self.live.opened_ns, self.script.opened_ns

    def send(self, packet: ControlPacket, source: Entry | None, now_ns: int) -> Send:
        """Send a packet, as the device can take it."""
        kept = source is not None and source.packet is packet and self.version == self.script.version
        packet, raw = answers.encoded(packet, self.connection, self.connect)
        if kept and source is not None and source.packet is packet:
            raw = source.raw or raw
        if not raw:
            self.note(Kind.SKIPPED, f"{reactions.word(packet)} longer than the device's Maximum Packet Size")
            return Send(b"", Entry(False, packet, None, now_ns, 0, source=source))
        return self.sent_as(packet, raw, source, now_ns)

    def sent_as(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Send these bytes."""
        if source is not None:
            self.mark(source, now_ns)
        send = self.sent(packet, raw, source, now_ns, topic)
        if isinstance(packet, packets.Connack):
            self._floor_ns = 0
            if packet.reason_code:
                self.end = Close("fin")
        return send

    def answer(self, now_ns: int) -> Send | None:
        """The next answer, if one is due."""
        if not self.queue or (self.queue[0].due_ns > now_ns and self.end is None):
            return None
        one = heapq.heappop(self.queue)
        return self.send(one.packet, one.source, now_ns)

    def enqueue(self, packet: ControlPacket, source: Entry | None, delay_ns: int, now_ns: int) -> None:
        """Have an answer sent so long after its request."""
        speed = self.manner.speed
        due_ns = now_ns if speed is None else now_ns + int(max(0, delay_ns) / speed)
        due_ns = max(due_ns, self._floor_ns, self._queued.get(type(packet), 0))
        self._queued[type(packet)] = due_ns
        if isinstance(packet, packets.Connack):
            self._floor_ns = due_ns
        self._turn += 1
        heapq.heappush(self.queue, Answer(due_ns, self._turn, packet, source))

    def respond(self, packet: ControlPacket, source: Entry | None, request: Entry | None, now_ns: int) -> None:
        """Queue an answer with the recorded delay behind its recorded request."""
        delay_ns = 0 if source is None or request is None else source.timestamp_ns - request.timestamp_ns
        self.enqueue(packet, source, delay_ns, now_ns)

    def end_with(self, code: int, why: str, now_ns: int) -> None:
        """End the connection with a Reason Code, where the version has a packet for it (5.0 4.13)."""
        self.queue.clear()
        if self.version >= V5 and self.accepted:
            self.enqueue(packets.Disconnect(code), None, 0, now_ns)
        elif self.version >= V5 and self.connect is not None and code in _IN_CONNACK:
            self.enqueue(packets.Connack(reason_code=code), None, 0, now_ns)
        self.end = Close("fin", why)

    def mark(self, recorded: Entry, now_ns: int) -> None:
        """A recorded packet has its counterpart."""
        self.happened.setdefault(recorded, now_ns)
        self.last_ns = now_ns
        self.last_recorded_ns = max(self.last_recorded_ns, recorded.timestamp_ns)


IDENTIFIER_REJECTED, IMPLEMENTATION_ERROR, QUOTA_EXCEEDED = 0x02, 0x83, 0x97


@dataclass(slots=True, kw_only=True)
class Responder(Outgoing):
    """The answering half of a stand-in."""

    sessions: Sessions
    earlier: Sequence[Script] = ()
    """Recorded connections of the same client before this one."""
    owed: deque[Unfinished] = field(default_factory=deque)
    """Deliveries that the session has to send again before anything else."""
    substitutes: Substitutes = field(default_factory=Substitutes)
    grants: answers.Grants = field(init=False)
    _counterparts: Counterparts = field(init=False)

    def __post_init__(self) -> None:
        super(Responder, self).__post_init__()
        self._counterparts = Counterparts(self.script.entries)
        self.grants = answers.Grants.of(one for script in (*self.earlier, self.script) for one in script.entries)

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Take one packet of the device."""
        entry = self.take(packet, now_ns)
        if self.over or self.end is not None:
            return
        if isinstance(packet, Malformed):
            self._malformed(entry, packet, now_ns)
        elif isinstance(packet, packets.Connect) and self.connect is None:
            self._connected(entry, packet, now_ns)
        elif self.connect is None:
            # 5.0 MQTT-3.1.0-1; there is no version to say it in.
            self.end_with(PROTOCOL_ERROR, f"the first packet is {reactions.word(packet)} and no CONNECT", now_ns)
        elif isinstance(packet, ACKNOWLEDGEMENTS):
            self._acknowledged(entry, packet, now_ns)
        elif isinstance(packet, packets.Disconnect):
            self._counterpart(entry, now_ns)
            # What is due had been said before this was heard.
            self.queue = sorted(one for one in self.queue if one.due_ns <= now_ns)
            self.end = Close("fin")
        else:
            self._asked(entry, packet, now_ns)
            self._limit(now_ns)

    def _limit(self, now_ns: int) -> None:
        """End the connection of a device that wants more remembered than there is room for."""
        session = self.session
        if session.arrived_bytes > MAX_SESSION_BYTES:
            why = f"more than {MAX_SESSION_BYTES:,} bytes of messages that are not complete"
        elif len(session.subscriptions) > MAX_SUBSCRIPTIONS:
            why = f"more than {MAX_SUBSCRIPTIONS:,} subscriptions"
        else:
            return
        session.clear()
        self.end_with(QUOTA_EXCEEDED, why, now_ns)

    def _counterpart(self, entry: Entry, now_ns: int) -> bool:
        """Find the recorded packet that a packet is; returns whether both say the same."""
        in_order = self.manner.unexpected is Unexpected.ANSWER or isinstance(entry.packet, packets.Connect)
        found = self._counterparts.find(entry.packet, entry.topic, self.part.next_needed, in_order=in_order)
        if found is None:
            return False
        entry.source = found.entry
        if found.alike or not self.part.ending_next:
            # The recorded server may have ended the connection because of what the device does not do.
            self.part.done.add(found.entry)
        self.mark(found.entry, now_ns)
        self.substitutes.learn(found.entry, entry)
        return found.same

    def _malformed(self, entry: Entry, packet: Malformed, now_ns: int) -> None:
        known = self._counterpart(entry, now_ns)
        source = entry.source
        first = self.connect is None
        if source is not None and (known or source is self.part.needed[0]):
            # The recording says what comes of it.
            for one in self.part.answers.get(source, ()):
                if isinstance(one.packet, ControlPacket) and not one.from_client:
                    self.respond(one.packet, one, source, now_ns)
        elif first:
            code = refusal(packet)
            if code is not None:
                self.enqueue(packets.Connack(reason_code=code), None, 0, now_ns)
            self.end = Close("fin", f"a CONNECT that cannot be read: {packet.reason.replace('_', ' ')}")
        elif self.manner.unexpected is not Unexpected.IGNORE:
            self.end_with(MALFORMED, f"a malformed packet: {packet.reason.replace('_', ' ')}", now_ns)

    def _connected(self, entry: Entry, packet: packets.Connect, now_ns: int) -> None:
        """CONNECT: the session, and the recorded answer (5.0 3.1.4)."""
        self._counterpart(entry, now_ns)
        self.introduce(packet, now_ns)
        if not packet.client_identifier and not packet.clean_start and packet.version < V5:
            # 3.1.1 MQTT-3.1.3-8.
            self.enqueue(packets.Connack(reason_code=IDENTIFIER_REJECTED), None, 0, now_ns)
            return
        source = entry.source
        authenticating = packet.properties is not None and packet.properties.authentication_method is not None
        if authenticating and source is not None and self._continue(source, now_ns):
            return
        recorded = self.script.connack
        if recorded is None and source is not None and self.part.silent_to(source, packets.Connack):
            self.note(Kind.SKIPPED, "CONNACK, which the recorded server did not send either")
            return
        self._accept(recorded, source, now_ns)

    def _continue(self, request: Entry, now_ns: int) -> bool:
        """Answer CONNECT or AUTH as recorded, with AUTH or CONNACK (5.0 4.12); returns whether that was possible."""
        found = [one for one in self.part.answers.get(request, ()) if not one.from_client]
        for one in found:
            if isinstance(one.packet, packets.Connack):
                self._accept(one, request, now_ns)
            elif isinstance(one.packet, packets.Auth):
                self.respond(one.packet, one, request, now_ns)
        return bool(found)

    def _accept(self, recorded: Entry | None, request: Entry | None, now_ns: int) -> None:
        """CONNACK, and what the session owes behind it."""
        connect, sessions = self.connect, self.sessions
        assert connect is not None
        before = recorded.packet if recorded is not None and isinstance(recorded.packet, packets.Connack) else None
        assigned = None
        if not connect.client_identifier and self.version >= V5:
            block = None if before is None else before.properties
            assigned = sessions.assign(None if block is None else block.assigned_client_identifier)
        present = False
        if before is None or not before.reason_code:
            self.session = sessions.of(assigned or connect.client_identifier or f"\0{id(self)}")
            resumed = sessions.resumed(connect)
            present = (
                resumed
                if before is None or self.version < V3_1_1
                else not connect.clean_start and bool(before.session_present)
            )
            if resumed and not present:
                self.note(Kind.SESSION, "the device's session was forgotten, since the recorded server had none")
            if not present:
                self.session.clear()
            self.owed.extend(self.session.unfinished.values())
        made = answers.connack(before, connect, present=present, assigned=assigned)
        self.respond(made, recorded, request, now_ns)

    def _acknowledged(self, entry: Entry, packet: ControlPacket, now_ns: int) -> None:
        """PUBACK, PUBREC and PUBCOMP for deliveries, PUBREL for a message of the device (5.0 4.3)."""
        if isinstance(packet, packets.Pubrel):
            self._released(entry, packet, now_ns)
            return
        identifier: int = packet.packet_identifier  # type: ignore[attr-defined]
        owed = self.session.unfinished.get(identifier)
        delivery = None if owed is None else owed.entry.source
        for one in self.part.answers.get(delivery, ()) if delivery is not None else ():
            if one.from_client and type(one.packet) is type(packet) and one not in self.happened:
                entry.source = one
                self.mark(one, now_ns)
                break
        if entry.answers is None and owed is not None:
            entry.answers = owed.entry
        if not isinstance(packet, packets.Pubrec) or (packet.reason_code or 0) >= answers.FAILURE:
            self.session.unfinished.pop(identifier, None)
        elif owed is None:
            code = answers.NOT_FOUND if self.version >= V5 else None
            self.enqueue(packets.Pubrel(identifier, code), None, 0, now_ns)
        else:
            owed.released = True
            recorded = None if delivery is None else self.part.answered(delivery, packets.Pubrel)
            plain = None if recorded is None else recorded.packet
            made = answers.acknowledgement(packets.Pubrel, identifier, plain, self.connection)  # type: ignore[arg-type]
            self._delayed(made, recorded, delivery, now_ns)

    def _released(self, entry: Entry, packet: packets.Pubrel, now_ns: int) -> None:
        message = self.session.arrived.get(packet.packet_identifier)
        source = None if message is None else message.source
        if message is None:
            code = answers.NOT_FOUND if self.version >= V5 else None
            self.enqueue(packets.Pubcomp(packet.packet_identifier, code), None, 0, now_ns)
            return
        entry.answers = entry.answers or message
        recorded = None
        if source is not None:
            asked = next(
                (one for one in self.part.answers.get(source, ()) if isinstance(one.packet, packets.Pubrel)), None
            )
            entry.source = asked
            if asked is not None:
                self.mark(asked, now_ns)
            recorded = self.part.answered(source, packets.Pubcomp)
            if recorded is None and asked is not None and self.part.silent_to(asked, packets.Pubcomp):
                self.note(Kind.SKIPPED, "PUBCOMP, which the recorded server did not send either")
                return
        plain = None if recorded is None else recorded.packet
        made = answers.acknowledgement(packets.Pubcomp, packet.packet_identifier, plain, self.connection)  # type: ignore[arg-type]
        self._delayed(made, recorded, source, now_ns)

    def _delayed(self, packet: ControlPacket, recorded: Entry | None, about: Entry | None, now_ns: int) -> None:
        """Queue an acknowledgement with the delay that the recorded server took for it."""
        delay_ns = 0
        if recorded is not None and about is not None:
            delay_ns = reactions.delay_ns(recorded, self.part.answers.get(about, ()))
        self.enqueue(packet, recorded, delay_ns, now_ns)

    def _asked(self, entry: Entry, packet: ControlPacket, now_ns: int) -> None:
        """PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, AUTH, and what no client may send."""
        known = False
        again = entry.resends is not None or entry.source is not None
        if not again or entry.source not in self.part.own:
            known = self._counterpart(entry, now_ns)
        if not known:
            code = violation(packet, entry.topic, self.connection)
            if code is None and isinstance(packet, packets.Connect):
                code = PROTOCOL_ERROR  # 5.0 MQTT-3.1.0-2
            if code is not None and self.manner.unexpected is not Unexpected.IGNORE:
                self.end_with(code, f"{reactions.word(packet)} that breaks the protocol", now_ns)
                return
        if entry.source is None and not again and not isinstance(packet, packets.Pingreq):
            self.note(Kind.ADDED, f"{reactions.word(packet)} of the device, which the recording does not have")
            if self.manner.unexpected is Unexpected.IGNORE:
                return
            if self.manner.unexpected is Unexpected.CLOSE:
                self.end_with(IMPLEMENTATION_ERROR, f"{reactions.word(packet)} that is not in the recording", now_ns)
                return
        if isinstance(packet, packets.Publish):
            self._published(entry, packet, now_ns)
        elif isinstance(packet, packets.Auth):
            if not (entry.source is not None and self._continue(entry.source, now_ns)) and not self.accepted:
                self._accept(None, None, now_ns)
        elif isinstance(packet, packets.Subscribe | packets.Unsubscribe | packets.Pingreq):
            self._requested(entry, packet, now_ns)

    def _silent(self, source: Entry | None, kinds: tuple[type[ControlPacket], ...]) -> bool:
        """Whether the recorded server gave no answer to this; that is told."""
        if source is None or not self.part.silent_to(source, kinds):
            return False
        self.note(
            Kind.SKIPPED, f"answer to {reactions.word(source.packet)}, which the recorded server did not give either"
        )
        return True

    def _published(self, entry: Entry, packet: packets.Publish, now_ns: int) -> None:
        identifier, source = packet.packet_identifier, entry.source
        if not packet.qos or identifier is None:
            return
        before = None if source is None else source.packet
        acked = isinstance(before, packets.Publish) and before.qos > 0
        kinds = (packets.Puback, packets.Pubrec)
        recorded = self.part.answered(source, kinds) if source is not None and acked else None
        if acked and self._silent(source, kinds):
            return
        kind = packets.Puback if packet.qos == 1 else packets.Pubrec
        plain = None if recorded is None or isinstance(recorded.packet, Malformed) else recorded.packet
        made = answers.acknowledgement(kind, identifier, plain, self.connection)
        self._delayed(made, recorded if isinstance(plain, kind) else None, source, now_ns)

    def _requested(
        self, entry: Entry, packet: packets.Subscribe | packets.Unsubscribe | packets.Pingreq, now_ns: int
    ) -> None:
        source = entry.source
        kind = _ANSWERED_BY[type(packet)]
        if self._silent(source, (kind,)):
            return
        found = self.part.answered(source, kind) if source is not None else None
        asked = source.packet if source is not None and found is not None else None
        given = None if found is None else found.packet
        made: ControlPacket
        if isinstance(packet, packets.Subscribe):
            pair = (
                (asked, given) if isinstance(asked, packets.Subscribe) and isinstance(given, packets.Suback) else None
            )
            suback = answers.suback(packet, pair, self.grants, self.connection)
            answers.subscribe(self.session, packet, suback)
            made = suback
        elif isinstance(packet, packets.Unsubscribe):
            both = (
                (asked, given)
                if isinstance(asked, packets.Unsubscribe) and isinstance(given, packets.Unsuback)
                else None
            )
            made = answers.unsuback(packet, both, self.session, self.connection)
            for name in packet.topic_filters:
                self.session.subscriptions.pop(name, None)
        else:
            made = packets.Pingresp()
        self.respond(made, found, source, now_ns)


_ANSWERED_BY: dict[type[ControlPacket], type[ControlPacket]] = {
    packets.Subscribe: packets.Suback,
    packets.Unsubscribe: packets.Unsuback,
    packets.Pingreq: packets.Pingresp,
}
