"""The live connection as its client sees it: state, what corresponds to the recording, and acknowledgements.

The state is that of `session.Connection`, as in a capture.  Acknowledgements answer what the live server sends, with
the live packet identifier, and with the reason code and properties that the recorded client gave for the same message.
What the recorded client never acknowledged is not acknowledged.

Which recorded delivery a live one corresponds to: the first with the same topic and payload that is still open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V3_1, V5, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Publish
from mqttscope.replay.player import reactions
from mqttscope.replay.player.actions import Kind, Note, Send, Session, Sessions
from mqttscope.replay.player.room import Room
from mqttscope.replay.script import C2S, S2C, Ending, Entry, Script
from mqttscope.session.connection import Connection
from mqttscope.session.connection_phase import CONNECTED
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS


class Deliveries:
    """The messages that the recorded server sent on one connection."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._open: dict[tuple[str | None, bytes], deque[Entry]] = {}
        for entry in entries:
            if not entry.from_client and isinstance(entry.packet, Publish) and entry.resends is None:
                self._open.setdefault((entry.topic, entry.packet.payload), deque()).append(entry)

    def match(self, topic: str | None, packet: Publish) -> Entry | None:
        """The recorded delivery that this live one is; ``None`` when the recording has none, or no more of it."""
        waiting = self._open.get((topic, packet.payload))
        return waiting.popleft() if waiting else None


MAX_NOTES = 1_000
"""Different notes that are kept of one connection."""
MAX_WAITING = 2 * MAX_PACKET_IDENTIFIERS
"""Exchanges that can be open on one connection: each side has its own packet identifiers."""
MAX_REACTIONS = MAX_PACKET_IDENTIFIERS
"""Acknowledgements that wait to be sent; a broker that keeps to the protocol cannot ask for more."""


@dataclass(slots=True)
class Manner:
    """How connections are played."""

    faithful: bool = False
    """The recorded bytes in recorded order, whatever the live server says."""
    user_name: str | None = None
    """Replaces the recorded one."""
    password: bytes | None = None
    delay: float = 0.0
    """By what the recorded time between a message and its acknowledgement is multiplied."""
    keep: bool = True
    """Keep the packets of the live connection, to compare them."""


@dataclass(slots=True)
class Live:
    """One connection.  Times are those that the caller gives, in nanoseconds."""

    script: Script
    """The recording."""
    live: Script
    """What happens; filled as it goes."""
    sessions: Sessions
    manner: Manner
    fences: Collection[Entry] = frozenset()
    """Recorded packets behind which a PINGREQ is sent, whose answer proves that the server has handled them."""
    notes: dict[Note, int] = field(default_factory=dict)
    """What differs from the recorded bytes, and how often."""
    skipped: set[Entry] = field(default_factory=set)
    """Recorded packets that were not sent."""
    next_place: Callable[[], int] = field(default_factory=lambda: count().__next__)
    """Gives the places of live packets."""
    done: list[Entry] = field(default_factory=list)
    """Recorded packets of the server, and fences, that have their counterpart or never will; the caller empties it."""
    over: bool = False
    """Nothing more will be sent."""
    left: bool = False
    """The client has sent DISCONNECT."""
    unreadable: Malformed | None = None
    """The first packet of the server that could not be read."""
    dismissed: bool = False
    """The server has sent DISCONNECT."""
    session: Session = field(default_factory=Session)
    answered: dict[Entry, list[Entry]] = field(default_factory=dict)
    """Recorded answers by what they answer."""
    number: int = 0
    """Packets of both sides."""
    performed: set[Entry] = field(default_factory=set)
    """Recorded packets of the client that were sent."""
    came: set[Entry] = field(default_factory=set)
    """Recorded packets of the server that have their counterpart."""
    refused: str = ""
    """The Reason Code with which the live server refused the connection, other than the recorded one."""
    auths: int = 0
    """AUTH packets of the live server."""
    not_kept: int = 0
    """Packets beyond the recording for which there was no room: `live` does not have them."""
    room: Room = field(default_factory=Room)
    """What may be kept beyond the recording."""
    connack: Entry | None = None
    recorded_connack: Entry | None = None
    inherited: list[int] = field(default_factory=list)
    """Packet identifiers of what the session had not finished when this connection began."""
    owed: deque[ControlPacket] = field(default_factory=deque)
    """What the session has to send again before anything else."""
    fenced: dict[Entry, Entry] = field(default_factory=dict)
    """Live PINGREQs that are fences, with the recorded packet behind which they were sent."""
    _deliveries: Deliveries = field(init=False)
    _next: deque[Entry] = field(default_factory=deque)
    """What the recorded server sent, up to what the live one said something else instead of."""
    _pending: deque[reactions.Reaction] = field(default_factory=deque)
    _waiting: dict[int, Entry] = field(default_factory=dict)
    """Live packets that wait for an answer, by their number."""
    _withheld: set[type[ControlPacket]] = field(default_factory=set)
    """Types of acknowledgements that the recorded client left out."""
    _pings: deque[Entry] = field(default_factory=deque)
    _beyond: int = 0
    """Bytes that are kept beyond the recording."""
    _connect: Entry | None = None
    _unasked: list[Entry] = field(default_factory=list)
    """What the recorded server said that answers no packet identifier: AUTH and DISCONNECT."""

    def __post_init__(self) -> None:
        for entry in self.script.entries:
            if entry.answers is not None:
                self.answered.setdefault(entry.answers, []).append(entry)
        self._next.extend(self.awaited)
        self._unasked = [one for one in self.awaited if isinstance(one.packet, packets.Auth | packets.Disconnect)]
        self._deliveries = Deliveries(self.script.entries)
        self.recorded_connack = self.script.connack
        self.connection.assume_version(self.script.version, "the recording", known=True)

    @property
    def version(self) -> ProtocolVersion:
        """The version spoken."""
        return self.script.version

    @property
    def progress(self) -> int:
        """How much of the recording has happened again, on both sides: it ends, whatever the server goes on to send."""
        return len(self.came) + len(self.performed)

    @property
    def connection(self) -> Connection:
        """The state of the live connection."""
        return self.live.connection

    @property
    def keep_alive_ns(self) -> int:
        """Within which time the client has to send something; 0 for any (5.0 3.1.2.10)."""
        connection = self.live.connection
        return (connection.keep_alive or 0) * 1_000_000_000 if connection.phase is CONNECTED else 0

    def note(self, note: Note) -> None:
        """Count a difference from the recorded bytes."""
        if note in self.notes or len(self.notes) < MAX_NOTES:
            self.notes[note] = self.notes.get(note, 0) + 1

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Take one packet of the live server."""
        if isinstance(packet, Malformed):
            self.unreadable = self.unreadable or packet
            self._record(Entry(False, packet, None, now_ns, 0, raw=packet.raw), beyond=True)
            return
        connection = self.live.connection
        topic = connection.resolve_topic(packet, S2C) if type(packet) is packets.Publish else None
        entry = Entry(False, packet, topic, now_ns, 0, raw=packet.raw)
        exchange = connection.answered_by(packet, S2C)
        if exchange is not None:
            entry.answers = (
                self._waiting.pop(exchange.packet, None)
                if reactions.ends(packet)
                else self._waiting.get(exchange.packet)
            )
        self._record(entry)
        connection.identify(packet)
        connection.apply(packet, S2C, self.number - 1, 0, now_ns)
        if reactions.begins(packet):
            self._awaits_answer(entry)
        if isinstance(packet, packets.Publish):
            self._delivered(entry, packet, now_ns)
        elif isinstance(packet, packets.Connack):
            self._accepted(entry, packet)
        elif isinstance(packet, packets.Pingresp):
            entry.answers = self._pings.popleft() if self._pings else None
            self._answer_of(entry)
        elif isinstance(packet, packets.Pubrel):
            self._released(entry, packet, now_ns)
        elif isinstance(packet, packets.Pubrec):
            self._answer_of(entry)
            self._received(packet, now_ns)
        elif isinstance(packet, packets.Puback | packets.Pubcomp):
            self._answer_of(entry)
            self.session.unfinished.pop(packet.packet_identifier, None)
        elif isinstance(packet, packets.Auth | packets.Disconnect):
            self.auths += isinstance(packet, packets.Auth)
            self.dismissed = self.dismissed or isinstance(packet, packets.Disconnect)
            # They answer nothing that has an identifier: one after the other.
            self._correspond(entry, self._unasked)
        else:
            self._answer_of(entry)
        if entry.source is None:
            self._make_room(entry)
            if self.manner.faithful:
                self._stands_in()

    def react(self, now_ns: int) -> list[Send]:
        """Acknowledgements that are due."""
        sends = []
        while self._pending and self._pending[0].due_ns <= now_ns and not self.over:
            sends.append(self.react_now(now_ns))
        return sends

    def react_now(self, now_ns: int) -> Send:
        """The next acknowledgement, due or not."""
        one = self._pending.popleft()
        raw = one.source.raw if one.source is not None and one.source.packet is one.packet else b""
        send = self.sent(one.packet, raw or encode(one.packet, self.version), one.source, now_ns)
        if one.source is None:
            self.note(Note(Kind.ADDED, f"{reactions.word(one.packet)} for what the recording does not have"))
        return send

    @property
    def busy(self) -> bool:
        """Whether so much is to be acknowledged that nothing more should be read."""
        return len(self._pending) >= MAX_REACTIONS // 2

    @property
    def reaction_due_ns(self) -> int | None:
        """When the next acknowledgement is due."""
        return self._pending[0].due_ns if self._pending else None

    def ping(self, now_ns: int) -> Send:
        """A PINGREQ that the recording does not have, to keep the connection alive."""
        self.note(Note(Kind.ADDED, "PINGREQ, to keep the connection alive"))
        return self.sent(packets.Pingreq(), b"\xc0\x00", None, now_ns)

    @property
    def awaited(self) -> Iterator[Entry]:
        """What the recorded server sent."""
        return (one for one in self.script.entries if not one.from_client)

    def await_nothing(self) -> None:
        """What the server was recorded to send is not to be waited for any longer."""
        self.done += self.awaited

    def ended(self, ending: Ending) -> None:
        """The connection is gone."""
        self._pending.clear()
        self.live.ending = ending
        self.over = True
        self.await_nothing()
        self.done += self.fences
        connection = self.connection
        lasting = connection.session_expiry_interval if self.version >= V5 else not connection.clean_start
        if not lasting:
            self.session.clear()

    def sent(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Note that a packet is sent."""
        entry = Entry(True, packet, topic, now_ns, 0, source=source, raw=raw)
        again = source is None or source in self.performed
        if source is not None:
            self.performed.add(source)
        self._record(entry, beyond=again)
        if not isinstance(packet, Malformed):
            if isinstance(packet, packets.Connect):
                self._connect = entry
                self.connection.identify(packet)
            exchange = self.connection.answered_by(packet, C2S)
            if exchange is not None:
                entry.answers = self._waiting.get(exchange.packet)
                if reactions.ends(packet):
                    self._waiting.pop(exchange.packet, None)
            self.connection.apply(packet, C2S, self.number - 1, 0, now_ns)
            if reactions.begins(packet):
                self._awaits_answer(entry)
            elif isinstance(packet, packets.Pingreq):
                self._pings.append(entry)
            elif isinstance(packet, packets.Pubcomp):
                self.session.receiving.pop(packet.packet_identifier, None)
            elif isinstance(packet, packets.Disconnect):
                self.left = True
        return Send(raw, entry)

    def _record(self, entry: Entry, *, beyond: bool = False) -> None:
        self.number += 1
        entry.place = self.next_place()
        if self.manner.keep:
            self.live.entries.append(entry)
            if beyond:
                self._make_room(entry)

    def _make_room(self, entry: Entry) -> None:
        """Keep the last packet, which the recording does not have, where there is room for it."""
        entries = self.live.entries
        if not entries or entries[-1] is not entry:
            return
        cost = self.room.take(self._beyond, entry.raw)
        self._beyond += cost
        if not cost:
            entries.pop()
            self.not_kept += 1

    def _awaits_answer(self, entry: Entry) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting[self.number - 1] = entry

    def _answer_of(self, entry: Entry) -> None:
        """Find the recorded packet that a live answer corresponds to."""
        asked = entry.answers
        if asked is None:
            return
        fence = self.fenced.pop(asked, None)
        if fence is not None:
            self.done.append(fence)
        elif asked.source is not None:
            answers = self.answered.get(asked.source, ())
            self._correspond(entry, answers)
            if reactions.ends(entry.packet):
                # Nothing more comes of the exchange, whatever came of the recorded one.
                self.done += answers

    def _stands_in(self) -> None:
        """Whatever the server says instead: who waits for what was recorded next waits no longer."""
        while self._next and self._next[0] in self.came:
            self._next.popleft()
        if self._next:
            self.done.append(self._next.popleft())

    def _correspond(self, entry: Entry, candidates: Iterable[Entry]) -> None:
        for one in candidates:
            if one.type == entry.type and one not in self.came:
                self.came.add(one)
                entry.source = one
                self.done.append(one)
                return

    def _accepted(self, entry: Entry, packet: packets.Connack) -> None:
        entry.answers = self._connect
        recorded = self.recorded_connack
        self._answer_of(entry)
        if self.connack is not None:
            return  # a second one begins nothing anew
        self.connack = entry
        if packet.reason_code:
            if recorded is None or not getattr(recorded.packet, "reason_code", 0):
                why = f"0x{packet.reason_code:02x} {reason_name(packet.packet_type, packet.reason_code, self.version)}"
                self.note(Note(Kind.ENDED, f"refused by the broker: {why}"))
                self.refused = why
            return
        block = packet.properties
        if block is not None and block.assigned_client_identifier is not None:
            replaced = self.script.connection.client_identifier
            if replaced:
                self.sessions.assigned[replaced] = block.assigned_client_identifier
            self.sessions.known[block.assigned_client_identifier] = self.session
        before = isinstance(recorded.packet, packets.Connack) and recorded.packet.session_present if recorded else False
        if bool(packet.session_present) != bool(before) and self.version > V3_1:
            has = "the server has a session" if packet.session_present else "the server has no session"
            self.note(Note(Kind.SESSION, f"{has}, other than in the recording"))
        # What was sent ahead of the CONNACK belongs to this connection, whatever the server remembers.
        if self.version > V3_1 and not packet.session_present:
            if self.inherited:
                self.note(Note(Kind.SESSION, "unacknowledged messages were forgotten with the session"))
            self.session.forget(self.inherited)
        elif not self.manner.faithful:
            self.owed.extend(reactions.owed(self.session, self.inherited))

    def _delivered(self, entry: Entry, packet: packets.Publish, now_ns: int) -> None:
        """A message for the client: acknowledge it as the recorded client did."""
        identifier = packet.packet_identifier
        again = packet.qos == 2 and identifier in self.session.receiving
        if not again:
            entry.source = self._deliveries.match(entry.topic, packet)
            if entry.source is not None:
                self.came.add(entry.source)
                self.done.append(entry.source)
                if packet.qos < 2:
                    self.done += self.answered.get(entry.source, ())
        if not packet.qos or identifier is None:
            return
        source = self.session.receiving.setdefault(identifier, entry.source) if packet.qos == 2 else entry.source
        if self.manner.faithful:
            return
        wanted = packets.Puback if packet.qos == 1 else packets.Pubrec
        before = source.packet.qos if source is not None and isinstance(source.packet, packets.Publish) else 0
        overtaking = before != packet.qos and wanted in self._withheld  # of another type it was no question of order
        if before and (overtaking or not reactions.acknowledged(self.answered.get(source, ()))):  # type: ignore[arg-type]
            self._withhold(wanted)
            return
        self._acknowledge(wanted, identifier, source if before == packet.qos else None, now_ns)

    def _released(self, entry: Entry, packet: packets.Pubrel, now_ns: int) -> None:
        source = self.session.receiving.get(packet.packet_identifier)
        if source is not None:
            self._correspond(entry, self.answered.get(source, ()))
        if source not in self.answered or not reactions.exactly_once(source):
            # From an earlier connection, new, or delivered with another QoS than in the recording.
            source = None
        if not self.manner.faithful:
            self._acknowledge(packets.Pubcomp, packet.packet_identifier, source, now_ns)

    def _received(self, packet: packets.Pubrec, now_ns: int) -> None:
        """PUBREC for a message of the client: release it, unless the recorded client did not."""
        identifier = packet.packet_identifier
        owed = self.session.unfinished.get(identifier)
        if (packet.reason_code or 0) >= 0x80:
            self.session.unfinished.pop(identifier, None)
            return
        if owed is not None:
            owed.released = True
        source = None if owed is None else owed.entry.source
        answers = self.answered.get(source, ()) if source is not None else ()
        answer = reactions.recorded(packets.Pubrec, answers)
        refused = answer is None or (answer.packet.reason_code or 0) >= 0x80  # type: ignore[union-attr]
        if refused and reactions.recorded(packets.Pubrel, answers) is None:
            # The recorded client had nothing to release.
            source = None
        if not self.manner.faithful:
            self._acknowledge(packets.Pubrel, identifier, source, now_ns)

    def _acknowledge(self, wanted: type[ControlPacket], identifier: int, source: Entry | None, now_ns: int) -> None:
        """Acknowledge as the recorded client did; plainly where the recording has no such message."""
        answers = self.answered.get(source, []) if source is not None else []
        found = reactions.recorded(wanted, answers)
        if found is not None:
            delay = int(reactions.delay_ns(found, answers) * self.manner.delay)
            self._queue(reactions.readdressed(found, identifier), found, now_ns + delay)
        elif source is None:
            self._queue(wanted(packet_identifier=identifier), None, now_ns)  # type: ignore[call-arg]
        else:
            self._withhold(wanted)

    def _withhold(self, wanted: type[ControlPacket]) -> None:
        """Leave one out as the recorded client did: others must not overtake it (5.0 4.6)."""
        self._withheld.add(wanted)
        self.note(reactions.withheld(wanted))

    def _queue(self, packet: ControlPacket, source: Entry | None, due_ns: int) -> None:
        if self.left or len(self._pending) >= MAX_REACTIONS:
            # Nothing follows a client's DISCONNECT (5.0 MQTT-3.14.4-1), whatever the server still sends.
            return
        if self._pending:
            # Acknowledgements go out in the order of what they acknowledge (5.0 MQTT-4.6.0-2 to MQTT-4.6.0-4).
            due_ns = max(due_ns, self._pending[-1].due_ns)
        self._pending.append(reactions.Reaction(packet, source, due_ns))
