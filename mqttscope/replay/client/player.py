"""Plays the client side of one recorded connection against a live server.  No I/O and no clock.

A driver asks for the next step (`peek`), decides when it may happen, and calls `perform`.  It passes every packet of
the live server to `receive`, and sends the acknowledgements that `react` returns.

Steps are what the client did of its own accord, in recorded order: CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ,
AUTH, DISCONNECT, and its end of the connection.  `perform` returns what a step waits for; nothing waits here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V3_1, V5, ProtocolVersion, reason_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.replay.client import adapt
from mqttscope.replay.client.adapt import AdaptedPacket
from mqttscope.replay.client.exchanges import Acknowledger, ClientSessions, ClientSessionState, Correspondence
from mqttscope.replay.live import Close, LiveConnection, NoteKind, ReplayNote, Send, UnfinishedMessage, packet_name
from mqttscope.replay.script import Ending, Script, ScriptEntry
from mqttscope.session.connection import CONNECTED, Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

_REQUESTS = (packets.Subscribe, packets.Unsubscribe)


@dataclass(slots=True)
class ClientOptions:
    """How connections are played."""

    faithful: bool = False
    """Send the recorded bytes in recorded order, whatever the live server sends."""
    user_name: str | None = None
    """User name that replaces the recorded one."""
    password: bytes | None = None
    delay: float = 0.0
    """Factor for the recorded delay between a message and its acknowledgement."""
    keep: bool = True
    """Keep the packets of the live connection, to compare them."""


class AwaitedEvent(StrEnum):
    """Events that a player waits for."""

    CONNACK = "CONNACK"
    AUTH = "AUTH of the server"
    RECEIVE_MAXIMUM = "room within the Receive Maximum"
    PACKET_IDENTIFIER = "a free packet identifier"
    CLOSE = "the end of the connection by the server"
    TAKEN = "the server to read what is sent"


@dataclass(slots=True)
class ClientWait:
    """Nothing can be sent before this event."""

    until: AwaitedEvent


@dataclass(slots=True)
class SkippedStep:
    """A recorded step that was not performed, with the reason."""

    entry: ScriptEntry
    note: ReplayNote


Action = Send | ClientWait | SkippedStep | Close


@dataclass(slots=True)
class ClientPlayer:
    """One connection, from CONNECT to its end.  The caller supplies all times, in nanoseconds."""

    script: Script
    """The recorded connection."""
    live: LiveConnection
    """The live connection."""
    sessions: ClientSessions
    options: ClientOptions
    fences: Collection[ScriptEntry] = frozenset()
    """Recorded packets followed by a PINGREQ; its answer proves that the server has handled them."""
    steps: deque[ScriptEntry] = field(default_factory=deque)
    """Steps left to perform."""
    skipped: set[ScriptEntry] = field(default_factory=set)
    """Recorded packets that were not sent."""
    over: bool = False
    """Whether nothing more will be sent."""
    unreadable: Malformed | None = None
    """The first packet of the server that could not be read."""
    dismissed: bool = False
    """Whether the server has sent DISCONNECT."""
    refused: str = ""
    """Reason Code of the live server's refusal; empty if the recorded server refused the connection too."""
    connack: ScriptEntry | None = None
    """The first CONNACK of the live server."""
    gave_up_connack: bool = False
    """Whether the wait for the CONNACK timed out."""
    gave_up: AwaitedEvent | None = None
    """Event of the last wait that timed out."""
    correspondence: Correspondence = field(init=False)
    acknowledger: Acknowledger = field(init=False)
    recorded_connack: ScriptEntry | None = field(init=False)
    _owed: deque[ControlPacket] = field(default_factory=deque)
    """Packets that the session has to resend before anything else."""
    _inherited: list[int] = field(default_factory=list)
    """Packet identifiers of messages that the session had not finished when this connection began."""
    _fence: ScriptEntry | None = None
    """A live PUBLISH that a fence has to follow."""
    _auths: int = 0
    """Number of AUTH packets from the live server."""
    _last_identifier: int = 0
    """The last packet identifier chosen in place of a recorded one."""
    _recorded_steps: set[ScriptEntry] = field(default_factory=set)
    """All recorded packets that are steps."""
    _performed: set[ScriptEntry] = field(default_factory=set)
    """Recorded packets of the client that were sent."""

    def __post_init__(self) -> None:
        options, entries = self.options, self.script.entries
        self.live.connection.assume_version(self.script.version, "the recording", known=True)
        self.correspondence = Correspondence(self.script, self.fences)
        self.acknowledger = Acknowledger(self.live, self.correspondence, options.delay, options.faithful)
        self.recorded_connack = self.script.connack
        reactions = () if options.faithful else packets.Acknowledgement
        self.steps.extend(entry for entry in entries if entry.from_client and not isinstance(entry.packet, reactions))
        self._recorded_steps.update(self.steps)

    @property
    def version(self) -> ProtocolVersion:
        return self.script.version

    @property
    def connection(self) -> Connection:
        return self.live.connection

    @property
    def session(self) -> ClientSessionState:
        return self.acknowledger.session

    @property
    def progress(self) -> int:
        """Number of recorded packets, of both sides, that have happened again; extra packets do not count."""
        return len(self.correspondence.matched) + len(self._performed)

    @property
    def keep_alive_ns(self) -> int:
        """Time within which the client has to send something; 0: unlimited (5.0 3.1.2.10)."""
        connection = self.live.connection
        return (connection.keep_alive or 0) * 1_000_000_000 if connection.phase is CONNECTED else 0

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Process one packet of the live server."""
        entry = self.live.received(packet, now_ns)
        if isinstance(packet, Malformed):
            self.unreadable = self.unreadable or packet
            self.live.limit(entry)
            return
        recorded, acknowledger = self.correspondence, self.acknowledger
        if isinstance(packet, packets.Publish):
            acknowledger.deliver(entry, packet, now_ns)
        elif isinstance(packet, packets.Pubrel):
            acknowledger.release(entry, packet, now_ns)
        elif isinstance(packet, packets.Auth | packets.Disconnect):
            self._auths += isinstance(packet, packets.Auth)
            self.dismissed = self.dismissed or isinstance(packet, packets.Disconnect)
            recorded.match_unasked(entry)
        else:
            recorded.answer(entry)
            if isinstance(packet, packets.Connack):
                self._accepted(entry, packet)
            elif isinstance(packet, packets.Pubrec):
                acknowledger.receive(packet, now_ns)
            elif isinstance(packet, packets.Puback | packets.Pubcomp):
                self.session.unfinished.pop(packet.packet_identifier, None)
        if entry.source is None:
            self.live.limit(entry)
            if self.options.faithful:
                recorded.replaced()

    def _accepted(self, entry: ScriptEntry, packet: packets.Connack) -> None:
        """CONNACK: queue the packets that the session resends, or forget them."""
        if self.connack is not None:
            return  # only the first one counts
        self.connack = entry
        recorded = None if self.recorded_connack is None else self.recorded_connack.packet
        if packet.reason_code:
            if not getattr(recorded, "reason_code", 0):
                why = f"0x{packet.reason_code:02x} {reason_name(packet.packet_type, packet.reason_code, self.version)}"
                self.live.note(NoteKind.ENDED, f"refused by the broker: {why}")
                self.refused = why
            return
        block = packet.properties
        if block is not None and block.assigned_client_identifier is not None:
            replaced = self.script.connection.client_identifier
            if replaced:
                self.sessions.assigned[replaced] = block.assigned_client_identifier
            self.sessions.known[block.assigned_client_identifier] = self.session
        before = isinstance(recorded, packets.Connack) and recorded.session_present
        if bool(packet.session_present) != bool(before) and self.version > V3_1:
            has = "the server has a session" if packet.session_present else "the server has no session"
            self.live.note(NoteKind.SESSION, f"{has}, other than in the recording")
        # Packets sent before the CONNACK belong to this connection, whatever the server remembers.
        if self.version > V3_1 and not packet.session_present:
            if self._inherited:
                self.live.note(NoteKind.SESSION, "unacknowledged messages were forgotten with the session")
            self.session.forget(self._inherited)
        elif not self.options.faithful:
            self._owed.extend(self.session.owed(self._inherited))

    def react(self, now_ns: int) -> list[Send]:
        """Send the acknowledgements that are due."""
        sends = []
        while self.acknowledger.pending and self.acknowledger.pending[0].due_ns <= now_ns and not self.over:
            sends.append(self._acknowledge(now_ns))
        return sends

    def _acknowledge(self, now_ns: int) -> Send:
        acknowledgement = self.acknowledger.pending.popleft()
        packet, source = acknowledgement.packet, acknowledgement.source
        raw = source.raw if source is not None and source.packet is packet else b""
        send = self._sent(packet, raw or encode(packet, self.version), source, now_ns)
        if source is None:
            name = packet_name(packet)
            self.live.note(NoteKind.ADDED, f"{name} for a packet that the recording does not have")
        return send

    def ping(self, now_ns: int) -> Send:
        """A PINGREQ that the recording does not have, to keep the connection alive."""
        self.live.note(NoteKind.ADDED, "PINGREQ, to keep the connection alive")
        return self._sent(packets.Pingreq(), b"\xc0\x00", None, now_ns)

    def _sent(
        self,
        packet: ControlPacket | Malformed,
        raw: bytes,
        source: ScriptEntry | None,
        now_ns: int,
        topic: str | None = None,
    ) -> Send:
        is_extra = source is None or source in self._performed
        if source is not None:
            self._performed.add(source)
        send = self.live.sent(packet, raw, source, now_ns, topic)
        if is_extra:
            self.live.limit(send.entry)
        if isinstance(packet, packets.Pubcomp):
            self.session.receiving.pop(packet.packet_identifier, None)
        elif isinstance(packet, packets.Disconnect):
            self.acknowledger.closed = True
        return send

    def peek(self) -> ScriptEntry | None:
        """The next recorded step; ``None`` when only the end of the connection is left."""
        return self.steps[0] if self.steps else None

    @property
    def urgent(self) -> bool:
        """Whether a packet has to be sent that is not a recorded step and does not wait for its turn."""
        return bool(self._owed) or self._fence is not None

    def perform(self, now_ns: int) -> Action:
        """Perform the next step, or return what it waits for."""
        if self._fence is not None:
            return self._send_fence(self._fence, now_ns)
        if self._owed:
            full = self._required_room() if isinstance(self._owed[0], packets.Publish) else None
            return self._send_owed(now_ns) if full is None else ClientWait(full)
        is_last = not self.steps or isinstance(self.steps[0].packet, packets.Disconnect)
        if self.acknowledger.due_ns is not None and is_last:
            # The last packet comes after all pending acknowledgements.
            return self._acknowledge(now_ns)
        if not self.steps:
            return self._end(now_ns)
        entry = self.steps[0]
        if self.options.faithful or isinstance(entry.packet, Malformed):
            self.steps.popleft()
            return self._sent(entry.packet, entry.raw, entry, now_ns, entry.topic)
        waits = self._required_event(entry)
        if waits is not None:
            return ClientWait(waits)
        self.steps.popleft()
        if isinstance(entry.packet, packets.Publish):
            return self._publish(entry, entry.packet, now_ns)
        return self._send_other(entry, now_ns)

    def give_up(self) -> SkippedStep | Close:
        """Stop waiting for the event that `perform` returned: skip the step, or end the connection."""
        if self._owed:
            self._owed.clear()
        if self.steps:
            entry = self.steps[0]
            why = self._required_event(entry)
            self.gave_up_connack = self.gave_up_connack or why is AwaitedEvent.CONNACK
            self.gave_up = why or self.gave_up
            self.steps.popleft()
            return self._skip(entry, f"{packet_name(entry.packet)}, which waited in vain for {why or 'its turn'}")
        self.over = True
        self.gave_up = AwaitedEvent.CLOSE
        return Close("fin")

    def ended(self, ending: Ending) -> None:
        """The connection is gone: skip all remaining steps."""
        self.acknowledger.pending.clear()
        self.live.script.ending = ending
        self.over = True
        self.correspondence.await_nothing()
        self.correspondence.done += self.fences
        connection = self.connection
        lasting = connection.session_expiry_interval if self.version >= V5 else not connection.clean_start
        if not lasting:
            self.session.clear()
        why = self._skip_reason(ending)
        for entry in self.steps:
            self._skip(entry, f"{packet_name(entry.packet)}, because {why}")
        self.steps.clear()
        self._owed.clear()
        self._fence = None

    def _skip_reason(self, ending: Ending) -> str:
        if ending.stopped:
            return "the replay was stopped"
        if ending.how == "refused":
            return "its connection was never opened"
        if self.refused:
            return "the broker had refused the connection"
        return "the connection had ended"

    def _required_event(self, entry: ScriptEntry) -> AwaitedEvent | None:
        """Event of the server that a step waits for."""
        packet = entry.packet
        if isinstance(packet, packets.Connect):
            return None
        is_auth = isinstance(packet, packets.Auth)
        if self.connack is None:
            recorded = self.recorded_connack
            # If the CONNACK is not in the recording, it came before this step.
            if not is_auth if recorded is None else recorded.place < entry.place:
                return AwaitedEvent.CONNACK
        if isinstance(packet, packets.Publish):
            return self._required_room() if packet.qos and self.connection.maximum_qos else None
        if isinstance(packet, _REQUESTS):
            in_use = len(self.connection.client_side.exchanges)
            return AwaitedEvent.PACKET_IDENTIFIER if in_use >= MAX_PACKET_IDENTIFIERS else None
        if is_auth:
            earlier = (other for other in self.script.entries if other.place < entry.place and not other.from_client)
            auths = sum(isinstance(other.packet, packets.Auth) for other in earlier)
            return AwaitedEvent.AUTH if self._auths < auths else None
        return None

    def _required_room(self) -> AwaitedEvent | None:
        """Event that has to happen before a further message may be in flight (5.0 3.3.4)."""
        side, recorded = self.connection.client_side, self.script.connection
        broken = recorded.client_side.in_flight_peak > recorded.server_side.receive_maximum
        if side.in_flight >= self.connection.server_side.receive_maximum and not broken:
            return AwaitedEvent.RECEIVE_MAXIMUM
        in_use = len(side.exchanges) + len(self.session.unfinished)
        return AwaitedEvent.PACKET_IDENTIFIER if in_use >= MAX_PACKET_IDENTIFIERS else None

    def _send_other(self, entry: ScriptEntry, now_ns: int) -> Send | SkippedStep:
        packet = entry.packet
        if isinstance(packet, packets.Connect):
            options = self.options
            fitted = adapt.connect(entry, self.sessions.assigned, options.user_name, options.password)
            assert isinstance(fitted.packet, packets.Connect)
            self.acknowledger.session = self.sessions.session_of(fitted.packet.client_identifier)
            if fitted.packet.clean_start:
                self.session.clear()
            self._inherited = list(self.session.unfinished)
            return self._send(fitted, entry, now_ns)
        if isinstance(packet, packets.Subscribe):
            fitted = adapt.subscribe(entry, self.connection, self.script.connection)
        else:
            fitted = adapt.any_other(entry, self.connection, self.script.connection)
        if fitted.refused is not None:
            return self._skip(entry, fitted.refused.text)
        if isinstance(packet, _REQUESTS):
            self._identify(fitted, packet.packet_identifier)
        return self._send(fitted, entry, now_ns)

    def _publish(self, entry: ScriptEntry, packet: packets.Publish, now_ns: int) -> Send | SkippedStep:
        identifier = None
        if packet.qos and packet.dup:
            # Reuse the live identifier if the server still waits for this message.
            unfinished = () if entry.resends is None else self.session.unfinished.items()
            identifier = next((number for number, message in unfinished if message.entry.source is entry.resends), None)
            if identifier is None and self._was_delivered(entry.resends):
                return self._skip(entry, "PUBLISH sent again, which the live server had acknowledged")
            if identifier is None:
                self.live.note(NoteKind.ADAPTED, "DUP cleared: the live server has not received this message before")
        fitted = adapt.publish(entry, self.connection, self.script.connection, dup=identifier is not None)
        if fitted.refused is not None:
            return self._skip(entry, fitted.refused.text)
        assert isinstance(fitted.packet, packets.Publish)
        if not fitted.packet.qos:
            identifier = None
        elif identifier is None:
            identifier = self._identify(fitted, packet.packet_identifier or 1)
        else:
            adapt.identified(fitted, identifier, self.version)
        send = self._send(fitted, entry, now_ns)
        if identifier is not None:
            self.session.unfinished.setdefault(identifier, UnfinishedMessage(send.entry))
        if entry in self.fences:
            self._fence = send.entry
        return send

    def _was_delivered(self, first: ScriptEntry | None) -> bool:
        """Whether the live server already has a message that the recorded client resends."""
        is_known = first in self._recorded_steps or bool(self.connection.session_present) or self.version == V3_1
        return first is not None and is_known

    def _identify(self, fitted: AdaptedPacket, wanted: int) -> int:
        """Give a packet its recorded identifier, or the next free one; returns it."""
        in_use, owed = self.connection.client_side.exchanges, self.session.unfinished
        if wanted in in_use or wanted in owed:
            # Continue after the last identifier chosen: if one client has nearly all in use, the ones before are too.
            start = self._last_identifier
            rest = chain(range(start + 1, MAX_PACKET_IDENTIFIERS + 1), range(1, start + 1))
            unused = (number for number in rest if number not in in_use and number not in owed)
            wanted = self._last_identifier = next(unused, wanted)
            self.live.note(NoteKind.ADAPTED, "another packet identifier, since the recorded one was in use")
        adapt.identified(fitted, wanted, self.version)
        return wanted

    def _end(self, now_ns: int) -> Action:
        ending, connection = self.script.ending, self.connection
        if self.acknowledger.closed:
            self.over = True
            return Close("fin")
        if ending.how == "open" and connection.phase is CONNECTED and not self.options.faithful:
            self.live.note(NoteKind.ADDED, "DISCONNECT, since the recording ends before the connection does")
            packet = packets.Disconnect()
            return self._sent(packet, encode(packet, self.version), None, now_ns)
        if ending.by == "server":
            return ClientWait(AwaitedEvent.CLOSE)
        self.over = True
        return Close("reset" if ending.how == "reset" else "fin")

    def _send_fence(self, published: ScriptEntry, now_ns: int) -> Send:
        self._fence = None
        self.live.note(NoteKind.ADDED, "PINGREQ, to be sure that the server has handled the packets before it")
        send = self._sent(packets.Pingreq(), b"\xc0\x00", None, now_ns)
        assert published.source is not None
        self.correspondence.fence(send.entry, published.source)
        return send

    def _send_owed(self, now_ns: int) -> Send:
        """Resend a packet that the session owes (5.0 MQTT-4.4.0-1)."""
        packet: ControlPacket = self._owed.popleft()
        self.live.note(NoteKind.SESSION, f"{packet_name(packet)} sent again, since the session continues")
        message = self.session.unfinished[packet.packet_identifier]  # type: ignore[attr-defined]
        if isinstance(packet, packets.Publish):
            send = self._sent(packet, encode(packet, self.version), message.entry.source, now_ns, message.entry.topic)
            message.entry = send.entry
            return send
        send = self._sent(packet, encode(packet, self.version), None, now_ns)
        send.entry.answers = message.entry
        return send

    def _send(self, fitted: AdaptedPacket, entry: ScriptEntry, now_ns: int) -> Send:
        for note in fitted.notes:
            self.live.note(note.kind, note.text)
        return self._sent(fitted.packet, fitted.raw, entry, now_ns, entry.topic)

    def _skip(self, entry: ScriptEntry, text: str) -> SkippedStep:
        self.live.note(NoteKind.SKIPPED, text)
        self.skipped.add(entry)
        self.correspondence.skipped(entry)
        return SkippedStep(entry, ReplayNote(NoteKind.SKIPPED, text))
