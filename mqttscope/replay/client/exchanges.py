"""Matches packets of the live server to recorded ones, and decides what the client acknowledges.

Recorded packets that the live server has sent are no longer waited for.  Acknowledgements have the live packet
identifier, and the Reason Code and properties that the recorded client sent for the message.  Messages that the
recorded client never acknowledged stay unacknowledged.  A session contains what a client remembers between its
connections (5.0 4.1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import UnionType

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.replay.align import CLIENT_KEYS, Counterparts
from mqttscope.replay.live import (
    LiveConnection,
    NoteKind,
    UnfinishedMessage,
    ends_exchange,
    readdressed,
    recorded_delay_ns,
    sent_again,
)
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

_UNASKED = packets.Publish | packets.Auth | packets.Disconnect
MAX_ACKNOWLEDGEMENTS = MAX_PACKET_IDENTIFIERS
"""Maximum number of queued acknowledgements; a broker that keeps to the protocol cannot cause more."""


@dataclass(slots=True)
class Correspondence:
    """Finds the recorded packet for each packet of the live server, and remembers the matched ones."""

    script: Script
    """The recorded connection."""
    fences: Collection[ScriptEntry] = frozenset()
    """Recorded packets followed by a PINGREQ; its answer proves that the server has handled them."""
    answered: dict[ScriptEntry, list[ScriptEntry]] = field(default_factory=dict)
    """Recorded answers of both sides, by the packet that they answer."""
    matched: set[ScriptEntry] = field(default_factory=set)
    """Recorded packets of the server that are matched."""
    done: list[ScriptEntry] = field(default_factory=list)
    """Recorded packets of the server, and fences, that are matched or given up; the caller empties it."""
    _fenced: dict[ScriptEntry, ScriptEntry] = field(default_factory=dict)
    """Live PINGREQs that are fences, with the recorded packet before each."""
    _unasked: Counterparts = field(init=False)
    """Recorded deliveries by topic and payload, and AUTH and DISCONNECT, which have no packet identifier."""
    _next: deque[ScriptEntry] = field(init=False)
    """Recorded packets of the server that no live packet has matched or replaced, in order."""

    def __post_init__(self) -> None:
        for entry in self.script.entries:
            if entry.answers is not None:
                self.answered.setdefault(entry.answers, []).append(entry)
        self._next = deque(self.awaited)
        first = (entry for entry in self.awaited if entry.resends is None)
        self._unasked = Counterparts((entry for entry in first if isinstance(entry.packet, _UNASKED)), CLIENT_KEYS)

    @property
    def awaited(self) -> Iterator[ScriptEntry]:
        return (entry for entry in self.script.entries if not entry.from_client)

    def answers_of(self, source: ScriptEntry | None) -> Sequence[ScriptEntry]:
        """Recorded answers to a recorded packet; empty for ``None``."""
        return self.answered.get(source, ()) if source is not None else ()

    def fence(self, ping: ScriptEntry, published: ScriptEntry) -> None:
        """Register a live PINGREQ: its answer proves that the server has handled ``published``."""
        self._fenced[ping] = published

    def answer(self, entry: ScriptEntry) -> None:
        """Match a live answer to a recorded one."""
        request = entry.answers
        if request is None:
            return
        fence = self._fenced.pop(request, None)
        if fence is not None:
            self.done.append(fence)
        elif request.source is not None:
            answers = self.answers_of(request.source)
            self.match(entry, answers)
            if ends_exchange(entry.packet):
                # The live exchange is over, however the recorded one continued.
                self.done += answers

    def delivery(self, entry: ScriptEntry, packet: packets.Publish) -> None:
        """Match a live delivery to a recorded one."""
        self.match_unasked(entry)
        if entry.source is not None and packet.qos < 2:
            self.done += self.answers_of(entry.source)

    def match_unasked(self, entry: ScriptEntry) -> None:
        """Match a live delivery, AUTH or DISCONNECT to a recorded one."""
        counterpart = self._unasked.find(entry)
        if counterpart is not None:
            self._match(entry, counterpart[0])

    def match(self, entry: ScriptEntry, candidates: Iterable[ScriptEntry]) -> None:
        """Match a live packet to the first unmatched candidate of its type."""
        for candidate in candidates:
            if candidate.type == entry.type and candidate not in self.matched:
                self._match(entry, candidate)
                return

    def _match(self, entry: ScriptEntry, recorded: ScriptEntry) -> None:
        entry.source = recorded
        self.matched.add(recorded)
        self.done.append(recorded)

    def replaced(self) -> None:
        """The server sent something else: give up the next recorded packet."""
        while self._next and self._next[0] in self.matched:
            self._next.popleft()
        if self._next:
            self.done.append(self._next.popleft())

    def skipped(self, entry: ScriptEntry) -> None:
        """A recorded packet of the client is not sent: give up its answers."""
        self.done += self.answers_of(entry)
        if entry in self.fences:
            self.done.append(entry)

    def await_nothing(self) -> None:
        """Give up all recorded packets of the server."""
        self.done += self.awaited


@dataclass(slots=True)
class ClientSessionState:
    """The session of one client at the live server."""

    unfinished: dict[int, UnfinishedMessage] = field(default_factory=dict)
    """Messages of the client, by live packet identifier, in the order sent."""
    receiving: dict[int, ScriptEntry | None] = field(default_factory=dict)
    """QoS 2 messages of the server that are not released, by live packet identifier, with the recorded delivery."""

    def forget(self, identifiers: Iterable[int]) -> None:
        """The server has no session: drop these messages of the client, and all of the server's."""
        for identifier in identifiers:
            self.unfinished.pop(identifier, None)
        self.receiving.clear()

    def clear(self) -> None:
        self.forget(list(self.unfinished))

    def owed(self, identifiers: Iterable[int]) -> Iterator[ControlPacket]:
        """Packets that the client resends when the session continues (5.0 4.4): PUBLISH with DUP or PUBREL."""
        for identifier in identifiers:
            message = self.unfinished[identifier]
            if message.released:
                yield packets.Pubrel(packet_identifier=identifier)
            else:
                assert isinstance(message.entry.packet, packets.Publish)
                yield sent_again(message.entry.packet, message.entry.topic)


@dataclass(slots=True)
class ClientSessions:
    """The sessions of all clients of a replay."""

    known: dict[str, ClientSessionState] = field(default_factory=dict)
    assigned: dict[str, str] = field(default_factory=dict)
    """Client Identifiers that the live server assigned, by the recorded ones that they replace."""

    def session_of(self, client_identifier: str) -> ClientSessionState:
        """The session of a client; for an empty identifier, which the server will replace, always a new one."""
        if not client_identifier:
            return ClientSessionState()
        return self.known.setdefault(client_identifier, ClientSessionState())


@dataclass(slots=True)
class PendingAcknowledgement:
    """An acknowledgement that waits to be sent."""

    packet: ControlPacket
    source: ScriptEntry | None
    """The recorded acknowledgement."""
    due_ns: int


def _recorded(kind: type[ControlPacket] | UnionType, answers: Iterable[ScriptEntry]) -> ScriptEntry | None:
    return next((answer for answer in answers if isinstance(answer.packet, kind)), None)


@dataclass(slots=True)
class Acknowledger:
    """Decides how one client acknowledges packets of the live server."""

    live: LiveConnection
    correspondence: Correspondence
    delay: float = 0.0
    """Factor for the recorded delay between a message and its acknowledgement."""
    silent: bool = False
    """Whether nothing is acknowledged here: the recorded acknowledgements are sent as steps."""
    session: ClientSessionState = field(default_factory=ClientSessionState)
    closed: bool = False
    """Whether the client has sent DISCONNECT: nothing may follow it (5.0 MQTT-3.14.4-1)."""
    pending: deque[PendingAcknowledgement] = field(default_factory=deque)
    """Acknowledgements to be sent, in order."""
    _withheld: set[type[ControlPacket]] = field(default_factory=set)
    """Types of acknowledgements that the recorded client left out."""

    @property
    def due_ns(self) -> int | None:
        return self.pending[0].due_ns if self.pending else None

    @property
    def busy(self) -> bool:
        """Whether reading must pause because too many acknowledgements are queued."""
        return len(self.pending) >= MAX_ACKNOWLEDGEMENTS // 2

    def deliver(self, entry: ScriptEntry, packet: packets.Publish, now_ns: int) -> None:
        """Acknowledge a delivery as the recorded client did."""
        identifier = packet.packet_identifier
        is_repetition = packet.qos == 2 and identifier in self.session.receiving
        if not is_repetition:
            self.correspondence.delivery(entry, packet)
        if not packet.qos or identifier is None:
            return
        source = self.session.receiving.setdefault(identifier, entry.source) if packet.qos == 2 else entry.source
        if self.silent:
            return
        kind = packets.Puback if packet.qos == 1 else packets.Pubrec
        before = source.packet.qos if source is not None and isinstance(source.packet, packets.Publish) else 0
        overtaking = before != packet.qos and kind in self._withheld  # order matters only within one type
        answers = self.correspondence.answers_of(source)
        if before and (overtaking or not _recorded(packets.Puback | packets.Pubrec, answers)):
            self._withhold(kind)
            return
        self._acknowledge(kind, identifier, source if before == packet.qos else None, now_ns)

    def release(self, entry: ScriptEntry, packet: packets.Pubrel, now_ns: int) -> None:
        """Complete a QoS 2 message that the server has released."""
        source = self.session.receiving.get(packet.packet_identifier)
        if source is not None:
            self.correspondence.match(entry, self.correspondence.answers_of(source))
        if source not in self.correspondence.answered or getattr(source.packet, "qos", 0) != 2:
            # Delivered on an earlier connection, new, or delivered with another QoS than in the recording.
            source = None
        self._acknowledge(packets.Pubcomp, packet.packet_identifier, source, now_ns)

    def receive(self, packet: packets.Pubrec, now_ns: int) -> None:
        """Release a message that the server has received, unless the recorded client did not release it."""
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

    def _acknowledge(self, kind: type[ControlPacket], identifier: int, source: ScriptEntry | None, now_ns: int) -> None:
        """Acknowledge as the recorded client did; with success if the recording does not have the message."""
        if self.silent:
            return
        answers = self.correspondence.answers_of(source)
        acknowledgement = _recorded(kind, answers)
        if acknowledgement is not None:
            assert isinstance(acknowledgement.packet, ControlPacket)
            delay_ns = int(recorded_delay_ns(acknowledgement, answers) * self.delay)
            self._queue(readdressed(acknowledgement.packet, identifier), acknowledgement, now_ns + delay_ns)
        elif source is None:
            self._queue(kind(packet_identifier=identifier), None, now_ns)  # type: ignore[call-arg]
        else:
            self._withhold(kind)

    def _withhold(self, kind: type[ControlPacket]) -> None:
        """Leave an acknowledgement out as the recorded client did; later ones must not overtake it (5.0 4.6)."""
        self._withheld.add(kind)
        name = kind.__name__.upper()
        self.live.note(NoteKind.SKIPPED, f"{name} that the recorded client did not send, or that would overtake one")

    def _queue(self, packet: ControlPacket, source: ScriptEntry | None, due_ns: int) -> None:
        if self.closed:
            return
        if len(self.pending) >= MAX_ACKNOWLEDGEMENTS:
            self.live.note(NoteKind.SKIPPED, f"acknowledgement, since {MAX_ACKNOWLEDGEMENTS:,} others wait to be sent")
            return
        if self.pending:
            # Acknowledgements have the order of the packets that they acknowledge (5.0 MQTT-4.6.0-2 to MQTT-4.6.0-4).
            due_ns = max(due_ns, self.pending[-1].due_ns)
        self.pending.append(PendingAcknowledgement(packet, source, due_ns))
