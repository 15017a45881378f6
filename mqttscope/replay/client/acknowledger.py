"""What a client acknowledges, and what it remembers between its connections: its part of the session (5.0 4.1).

Acknowledgements answer what the live server sends, with the live packet identifier, and with the reason code and
properties that the recorded client gave for the same message.  What the recorded client never acknowledged is not
acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.replay.client.correspondence import Correspondence
from mqttscope.replay.live import (
    LiveConnection,
    NoteKind,
    Unfinished,
    ends_exchange,
    readdressed,
    recorded_delay_ns,
    sent_again,
)
from mqttscope.replay.script import Entry
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

MAX_ACKNOWLEDGEMENTS = MAX_PACKET_IDENTIFIERS
"""Acknowledgements that wait to be sent; a broker that keeps to the protocol cannot ask for more."""


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
        """The session has ended, or the server has none."""
        self.unfinished.clear()
        self.receiving.clear()

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


def acknowledged(answers: Iterable[Entry]) -> bool:
    """Whether the recorded client acknowledged a message at all."""
    return any(isinstance(one.packet, packets.Puback | packets.Pubrec) for one in answers)


def exactly_once(entry: Entry | None) -> bool:
    """Whether it is a PUBLISH with QoS 2."""
    return entry is not None and isinstance(entry.packet, packets.Publish) and entry.packet.qos == 2


def recorded(wanted: type[ControlPacket], answers: Iterable[Entry]) -> Entry | None:
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
        """When the next acknowledgement is due."""
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
        if before and (overtaking or not acknowledged(self.correspondence.answers_of(source))):
            self._withhold(wanted)
            return
        self._acknowledge(wanted, identifier, source if before == packet.qos else None, now_ns)

    def release(self, entry: Entry, packet: packets.Pubrel, now_ns: int) -> None:
        """Complete a message for the client, which the server has released."""
        source = self.session.receiving.get(packet.packet_identifier)
        if source is not None:
            self.correspondence.match(entry, self.correspondence.answers_of(source))
        if source not in self.correspondence.answered or not exactly_once(source):
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
        answer = recorded(packets.Pubrec, answers)
        if (answer is None or ends_exchange(answer.packet)) and recorded(packets.Pubrel, answers) is None:
            # The recorded client had nothing to release.
            source = None
        self._acknowledge(packets.Pubrel, identifier, source, now_ns)

    def _acknowledge(self, wanted: type[ControlPacket], identifier: int, source: Entry | None, now_ns: int) -> None:
        """Acknowledge as the recorded client did; plainly where the recording has no such message."""
        if self.silent:
            return
        answers = self.correspondence.answers_of(source)
        found = recorded(wanted, answers)
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
        if self.closed or len(self.pending) >= MAX_ACKNOWLEDGEMENTS:
            return
        if self.pending:
            # Acknowledgements go out in the order of what they acknowledge (5.0 MQTT-4.6.0-2 to MQTT-4.6.0-4).
            due_ns = max(due_ns, self.pending[-1].due_ns)
        self.pending.append(Acknowledgement(packet, source, due_ns))
