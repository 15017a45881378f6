"""Exchanges with a live server: which recorded packet each of its packets is, and what the client acknowledges.

What the live server sends again of the recording is not waited for any longer.  Acknowledgements answer what it sends,
with the live packet identifier, and with the reason code and properties that the recorded client gave for the same
message.  What the recorded client never acknowledged is not acknowledged.  What a client remembers between its
connections is its part of the session (5.0 4.1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import UnionType

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.replay.live import (
    LiveConnection,
    NoteKind,
    Unfinished,
    ends_exchange,
    readdressed,
    recorded_delay_ns,
    sent_again,
)
from mqttscope.replay.script import Entry, Script
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

MAX_ACKNOWLEDGEMENTS = MAX_PACKET_IDENTIFIERS
"""Acknowledgements that wait to be sent; a broker that keeps to the protocol cannot ask for more."""


@dataclass(slots=True)
class Correspondence:
    """Finds the recorded packet for each packet of the live server, and keeps what has its counterpart."""

    script: Script
    """The recording."""
    fences: Collection[Entry] = frozenset()
    """Recorded packets after which a PINGREQ is sent, whose answer proves that the server has handled them."""
    answered: dict[Entry, list[Entry]] = field(default_factory=dict)
    """Recorded answers of both sides by what they answer."""
    came: set[Entry] = field(default_factory=set)
    """Recorded packets of the server that have their counterpart."""
    done: list[Entry] = field(default_factory=list)
    """Recorded packets of the server, and fences, that have their counterpart or never will; the caller empties it."""
    _fenced: dict[Entry, Entry] = field(default_factory=dict)
    """Live PINGREQs that are fences, with the recorded packet after which they were sent."""
    _deliveries: dict[tuple[str | None, bytes], deque[Entry]] = field(default_factory=dict)
    """Recorded deliveries that have not come yet, by topic and payload."""
    _next: deque[Entry] = field(init=False)
    """What the recorded server sent, up to what the live one said something else instead of."""
    _unasked: list[Entry] = field(init=False)
    """What the recorded server said that answers no packet identifier: AUTH and DISCONNECT."""

    def __post_init__(self) -> None:
        for entry in self.script.entries:
            if entry.answers is not None:
                self.answered.setdefault(entry.answers, []).append(entry)
        self._next = deque(self.awaited)
        self._unasked = [one for one in self.awaited if isinstance(one.packet, packets.Auth | packets.Disconnect)]
        for entry in self.awaited:
            if isinstance(entry.packet, packets.Publish) and entry.resends is None:
                self._deliveries.setdefault((entry.topic, entry.packet.payload), deque()).append(entry)

    @property
    def awaited(self) -> Iterator[Entry]:
        return (one for one in self.script.entries if not one.from_client)

    def answers_of(self, source: Entry | None) -> Sequence[Entry]:
        """The recorded answers to a recorded packet; none where there is no such packet."""
        return self.answered.get(source, ()) if source is not None else ()

    def fence(self, ping: Entry, published: Entry) -> None:
        """Have the answer to a live PINGREQ prove that the server has handled a recorded packet."""
        self._fenced[ping] = published

    def answer(self, entry: Entry) -> None:
        """Find the recorded packet that a live answer corresponds to."""
        asked = entry.answers
        if asked is None:
            return
        fence = self._fenced.pop(asked, None)
        if fence is not None:
            self.done.append(fence)
        elif asked.source is not None:
            answers = self.answers_of(asked.source)
            self.match(entry, answers)
            if ends_exchange(entry.packet):
                # Nothing more comes of the exchange, whatever came of the recorded one.
                self.done += answers

    def delivery(self, entry: Entry, packet: packets.Publish) -> None:
        """Find the recorded delivery that a live one corresponds to."""
        waiting = self._deliveries.get((entry.topic, packet.payload))
        if waiting:
            entry.source = waiting.popleft()
            self.came.add(entry.source)
            self.done.append(entry.source)
            if packet.qos < 2:
                self.done += self.answers_of(entry.source)

    def unasked(self, entry: Entry) -> None:
        """Find the recorded AUTH or DISCONNECT for a live one: they have no identifier, and come one by one."""
        self.match(entry, self._unasked)

    def match(self, entry: Entry, candidates: Iterable[Entry]) -> None:
        """Let a live packet correspond to the first of these that is of its type and has no counterpart."""
        for one in candidates:
            if one.type == entry.type and one not in self.came:
                self.came.add(one)
                entry.source = one
                self.done.append(one)
                return

    def replaced(self) -> None:
        """The server has said something else: who waits for what was recorded next waits no longer."""
        while self._next and self._next[0] in self.came:
            self._next.popleft()
        if self._next:
            self.done.append(self._next.popleft())

    def skipped(self, entry: Entry) -> None:
        """A recorded packet of the client is not sent: nothing comes of it."""
        self.done += self.answers_of(entry)
        if entry in self.fences:
            self.done.append(entry)

    def await_nothing(self) -> None:
        """What the server was recorded to send is not to be waited for any longer."""
        self.done += self.awaited


@dataclass(slots=True)
class ClientSessionState:
    """One client at the live server."""

    unfinished: dict[int, Unfinished] = field(default_factory=dict)
    """Messages of the client, by live packet identifier, in the order in which they were sent."""
    receiving: dict[int, Entry | None] = field(default_factory=dict)
    """QoS 2 messages of the server that it has not released, by live packet identifier, with the recorded delivery."""

    def forget(self, identifiers: Iterable[int]) -> None:
        """The server has no session: of the client's messages these are forgotten, and all of its own."""
        for identifier in identifiers:
            self.unfinished.pop(identifier, None)
        self.receiving.clear()

    def clear(self) -> None:
        self.forget(list(self.unfinished))

    def owed(self, identifiers: Iterable[int]) -> Iterator[ControlPacket]:
        """What the client sends again when the session continues (5.0 4.4): PUBLISH with DUP, or PUBREL, in order."""
        for identifier in identifiers:
            one = self.unfinished[identifier]
            if one.released:
                yield packets.Pubrel(packet_identifier=identifier)
            else:
                assert isinstance(one.entry.packet, packets.Publish)
                yield sent_again(one.entry.packet, one.entry.topic)


@dataclass(slots=True)
class ClientSessions:
    """The sessions of all clients of a replay."""

    known: dict[str, ClientSessionState] = field(default_factory=dict)
    assigned: dict[str, str] = field(default_factory=dict)
    """Client Identifiers that the recorded server assigned, and what the live one assigned in their place."""

    def of(self, client_identifier: str) -> ClientSessionState:
        """The session of a client; a new one for an empty identifier, which the server will replace."""
        if not client_identifier:
            return ClientSessionState()
        return self.known.setdefault(client_identifier, ClientSessionState())


@dataclass(slots=True)
class Acknowledgement:
    """An acknowledgement that is to be sent."""

    packet: ControlPacket
    source: Entry | None
    """The recorded acknowledgement."""
    due_ns: int


def _recorded(wanted: type[ControlPacket] | UnionType, answers: Iterable[Entry]) -> Entry | None:
    """The acknowledgement of this type among the recorded answers of a message."""
    return next((one for one in answers if isinstance(one.packet, wanted)), None)


@dataclass(slots=True)
class Acknowledger:
    """Says how one client acknowledges what the live server sends."""

    live: LiveConnection
    correspondence: Correspondence
    delay: float = 0.0
    """By what the recorded time between a message and its acknowledgement is multiplied."""
    silent: bool = False
    """Nothing is acknowledged: the recorded acknowledgements are sent as they are."""
    session: ClientSessionState = field(default_factory=ClientSessionState)
    closed: bool = False
    """The client has sent DISCONNECT: nothing follows it (5.0 MQTT-3.14.4-1), whatever the server still sends."""
    pending: deque[Acknowledgement] = field(default_factory=deque)
    """What is to be sent, in its order."""
    _withheld: set[type[ControlPacket]] = field(default_factory=set)
    """Types of acknowledgements that the recorded client left out."""

    @property
    def due_ns(self) -> int | None:
        return self.pending[0].due_ns if self.pending else None

    @property
    def busy(self) -> bool:
        """Whether so much is to be acknowledged that nothing more should be read."""
        return len(self.pending) >= MAX_ACKNOWLEDGEMENTS // 2

    def deliver(self, entry: Entry, packet: packets.Publish, now_ns: int) -> None:
        """Acknowledge a message for the client as the recorded client did."""
        identifier = packet.packet_identifier
        again = packet.qos == 2 and identifier in self.session.receiving
        if not again:
            self.correspondence.delivery(entry, packet)
        if not packet.qos or identifier is None:
            return
        source = self.session.receiving.setdefault(identifier, entry.source) if packet.qos == 2 else entry.source
        if self.silent:
            return
        wanted = packets.Puback if packet.qos == 1 else packets.Pubrec
        before = source.packet.qos if source is not None and isinstance(source.packet, packets.Publish) else 0
        overtaking = before != packet.qos and wanted in self._withheld  # of another type it was no question of order
        answers = self.correspondence.answers_of(source)
        if before and (overtaking or not _recorded(packets.Puback | packets.Pubrec, answers)):
            self._withhold(wanted)
            return
        self._acknowledge(wanted, identifier, source if before == packet.qos else None, now_ns)

    def release(self, entry: Entry, packet: packets.Pubrel, now_ns: int) -> None:
        """Complete a message for the client, which the server has released."""
        source = self.session.receiving.get(packet.packet_identifier)
        if source is not None:
            self.correspondence.match(entry, self.correspondence.answers_of(source))
        if source not in self.correspondence.answered or getattr(source.packet, "qos", 0) != 2:
            # From an earlier connection, new, or delivered with another QoS than in the recording.
            source = None
        self._acknowledge(packets.Pubcomp, packet.packet_identifier, source, now_ns)

    def receive(self, packet: packets.Pubrec, now_ns: int) -> None:
        """Release a message of the client, which the server has received, unless the recorded client did not."""
        identifier = packet.packet_identifier
        owed = self.session.unfinished.get(identifier)
        if ends_exchange(packet):
            self.session.unfinished.pop(identifier, None)
            return
        if owed is not None:
            owed.released = True
        source = None if owed is None else owed.entry.source
        answers = self.correspondence.answers_of(source)
        answer = _recorded(packets.Pubrec, answers)
        if (answer is None or ends_exchange(answer.packet)) and _recorded(packets.Pubrel, answers) is None:
            # The recorded client had nothing to release.
            source = None
        self._acknowledge(packets.Pubrel, identifier, source, now_ns)

    def _acknowledge(self, wanted: type[ControlPacket], identifier: int, source: Entry | None, now_ns: int) -> None:
        """Acknowledge as the recorded client did; plainly where the recording has no such message."""
        if self.silent:
            return
        answers = self.correspondence.answers_of(source)
        found = _recorded(wanted, answers)
        if found is not None:
            assert isinstance(found.packet, ControlPacket)
            delay_ns = int(recorded_delay_ns(found, answers) * self.delay)
            self._queue(readdressed(found.packet, identifier), found, now_ns + delay_ns)
        elif source is None:
            self._queue(wanted(packet_identifier=identifier), None, now_ns)  # type: ignore[call-arg]
        else:
            self._withhold(wanted)

    def _withhold(self, wanted: type[ControlPacket]) -> None:
        """Leave one out as the recorded client did: others must not overtake it (5.0 4.6)."""
        self._withheld.add(wanted)
        name = wanted.__name__.upper()
        self.live.note(NoteKind.SKIPPED, f"{name} that the recorded client did not send, or that would overtake one")

    def _queue(self, packet: ControlPacket, source: Entry | None, due_ns: int) -> None:
        if self.closed:
            return
        if len(self.pending) >= MAX_ACKNOWLEDGEMENTS:
            self.live.note(NoteKind.SKIPPED, f"acknowledgement, since {MAX_ACKNOWLEDGEMENTS:,} others wait to be sent")
            return
        if self.pending:
            # Acknowledgements go out in the order of what they acknowledge (5.0 MQTT-4.6.0-2 to MQTT-4.6.0-4).
            due_ns = max(due_ns, self.pending[-1].due_ns)
        self.pending.append(Acknowledgement(packet, source, due_ns))
