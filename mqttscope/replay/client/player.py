"""The client side of one recorded connection, played against a live server.  No I/O and no clock.

Whoever drives it asks for the next step (`peek`), decides when it may happen, calls `perform`; gives it every packet
of the live server (`receive`); and sends the acknowledgements that follow from them (`react`).

Steps are what the client did of its own accord, in recorded order: CONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, PINGREQ,
AUTH, DISCONNECT, and its end of the connection.  What a step waits for is said, never waited for here.
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
from mqttscope.replay.client.adapt import Fitted
from mqttscope.replay.client.exchanges import Acknowledger, ClientSessions, ClientSessionState, Correspondence
from mqttscope.replay.live import Close, LiveConnection, Note, NoteKind, Send, Unfinished, packet_name
from mqttscope.replay.script import Ending, Entry, Script
from mqttscope.session.connection import CONNECTED, Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

_REQUESTS = (packets.Subscribe, packets.Unsubscribe)


@dataclass(slots=True)
class ClientOptions:
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


class Until(StrEnum):
    """What a player waits for."""

    CONNACK = "CONNACK"
    AUTH = "AUTH of the server"
    RECEIVE_MAXIMUM = "room within the Receive Maximum"
    PACKET_IDENTIFIER = "a free packet identifier"
    CLOSE = "the end of the connection by the server"
    TAKEN = "the server to read what is sent"


@dataclass(slots=True)
class Wait:
    """Nothing can be sent before this has happened."""

    until: Until


@dataclass(slots=True)
class Skip:
    """The step was not performed."""

    entry: Entry
    note: Note


Action = Send | Wait | Skip | Close


@dataclass(slots=True)
class ClientPlayer:
    """One connection, from CONNECT to its end.  Times are those that the caller gives, in nanoseconds."""

    script: Script
    """The recording."""
    live: LiveConnection
    """What happens."""
    sessions: ClientSessions
    options: ClientOptions
    fences: Collection[Entry] = frozenset()
    """Recorded packets after which a PINGREQ is sent, whose answer proves that the server has handled them."""
    steps: deque[Entry] = field(default_factory=deque)
    """What is left to do."""
    skipped: set[Entry] = field(default_factory=set)
    """Recorded packets that were not sent."""
    over: bool = False
    """Nothing more will be sent."""
    unreadable: Malformed | None = None
    """The first packet of the server that could not be read."""
    dismissed: bool = False
    """The server has sent DISCONNECT."""
    refused: str = ""
    """The Reason Code with which the live server refused the connection, other than the recorded one."""
    connack: Entry | None = None
    """The first one of the live server."""
    gave_up_connack: bool = False
    """Whether the answer to CONNECT was waited for in vain."""
    gave_up: Until | None = None
    """What a step of its own was waited for in vain."""
    correspondence: Correspondence = field(init=False)
    acknowledger: Acknowledger = field(init=False)
    recorded_connack: Entry | None = field(init=False)
    _owed: deque[ControlPacket] = field(default_factory=deque)
    """What the session has to send again before anything else."""
    _inherited: list[int] = field(default_factory=list)
    """Packet identifiers of what the session had not finished when this connection began."""
    _fence: Entry | None = None
    """A live PUBLISH after which a fence is due."""
    _auths: int = 0
    """AUTH packets of the live server."""
    _found: int = 0
    """The last packet identifier that was found in place of a recorded one."""
    _own: set[Entry] = field(default_factory=set)
    """All steps."""
    _performed: set[Entry] = field(default_factory=set)
    """Recorded packets of the client that were sent."""

    def __post_init__(self) -> None:
        options, entries = self.options, self.script.entries
        self.live.connection.assume_version(self.script.version, "the recording", known=True)
        self.correspondence = Correspondence(self.script, self.fences)
        self.acknowledger = Acknowledger(self.live, self.correspondence, options.delay, options.faithful)
        self.recorded_connack = self.script.connack
        kept = () if options.faithful else packets.Acknowledgement
        self.steps.extend(one for one in entries if one.from_client and not isinstance(one.packet, kept))
        self._own.update(self.steps)

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
        """How much of the recording has happened again, on both sides: it ends, whatever the server sends besides."""
        return len(self.correspondence.came) + len(self._performed)

    @property
    def keep_alive_ns(self) -> int:
        """Within which time the client has to send something; 0 for any (5.0 3.1.2.10)."""
        connection = self.live.connection
        return (connection.keep_alive or 0) * 1_000_000_000 if connection.phase is CONNECTED else 0

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> None:
        """Take one packet of the live server."""
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
            recorded.unasked(entry)
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

    def _accepted(self, entry: Entry, packet: packets.Connack) -> None:
        """CONNACK: what the session has to send again, or has to forget."""
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
        # What was sent ahead of the CONNACK belongs to this connection, whatever the server remembers.
        if self.version > V3_1 and not packet.session_present:
            if self._inherited:
                self.live.note(NoteKind.SESSION, "unacknowledged messages were forgotten with the session")
            self.session.forget(self._inherited)
        elif not self.options.faithful:
            self._owed.extend(self.session.owed(self._inherited))

    def react(self, now_ns: int) -> list[Send]:
        """Acknowledgements that are due."""
        sends = []
        while self.acknowledger.pending and self.acknowledger.pending[0].due_ns <= now_ns and not self.over:
            sends.append(self._acknowledge(now_ns))
        return sends

    def _acknowledge(self, now_ns: int) -> Send:
        """Send the next acknowledgement, due or not."""
        one = self.acknowledger.pending.popleft()
        raw = one.source.raw if one.source is not None and one.source.packet is one.packet else b""
        send = self._sent(one.packet, raw or encode(one.packet, self.version), one.source, now_ns)
        if one.source is None:
            name = packet_name(one.packet)
            self.live.note(NoteKind.ADDED, f"{name} for what the recording does not have")
        return send

    def ping(self, now_ns: int) -> Send:
        """A PINGREQ that the recording does not have, to keep the connection alive."""
        self.live.note(NoteKind.ADDED, "PINGREQ, to keep the connection alive")
        return self._sent(packets.Pingreq(), b"\xc0\x00", None, now_ns)

    def _sent(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Note that a packet is sent."""
        again = source is None or source in self._performed
        if source is not None:
            self._performed.add(source)
        send = self.live.sent(packet, raw, source, now_ns, topic)
        if again:
            self.live.limit(send.entry)
        if isinstance(packet, packets.Pubcomp):
            self.session.receiving.pop(packet.packet_identifier, None)
        elif isinstance(packet, packets.Disconnect):
            self.acknowledger.closed = True
        return send

    def peek(self) -> Entry | None:
        """The next recorded step; ``None`` when only the end of the connection is left."""
        return self.steps[0] if self.steps else None

    @property
    def urgent(self) -> bool:
        """Whether something is to be sent that is no recorded step and waits for no turn."""
        return bool(self._owed) or self._fence is not None

    def perform(self, now_ns: int) -> Action:
        """Do what is next, or say what it waits for."""
        if self._fence is not None:
            return self._send_fence(self._fence, now_ns)
        if self._owed:
            full = self._full() if isinstance(self._owed[0], packets.Publish) else None
            return self._send_owed(now_ns) if full is None else Wait(full)
        is_last = not self.steps or isinstance(self.steps[0].packet, packets.Disconnect)
        if self.acknowledger.due_ns is not None and is_last:
            # The last word comes after what was still to be acknowledged.
            return self._acknowledge(now_ns)
        if not self.steps:
            return self._end(now_ns)
        entry = self.steps[0]
        if self.options.faithful or isinstance(entry.packet, Malformed):
            self.steps.popleft()
            return self._sent(entry.packet, entry.raw, entry, now_ns, entry.topic)
        waits = self._waits(entry)
        if waits is not None:
            return Wait(waits)
        self.steps.popleft()
        if isinstance(entry.packet, packets.Publish):
            return self._publish(entry, entry.packet, now_ns)
        return self._other(entry, now_ns)

    def give_up(self) -> Skip | Close:
        """Do not wait any longer for what `perform` waits for: leave the step out, or end."""
        if self._owed:
            self._owed.clear()
        if self.steps:
            entry = self.steps[0]
            why = self._waits(entry)
            self.gave_up_connack = self.gave_up_connack or why is Until.CONNACK
            self.gave_up = why or self.gave_up
            self.steps.popleft()
            return self._skip(entry, f"{packet_name(entry.packet)}, which waited in vain for {why or 'its turn'}")
        self.over = True
        self.gave_up = Until.CLOSE
        return Close("fin")

    def ended(self, ending: Ending) -> None:
        """The connection is gone: what was not done yet will not be."""
        self.acknowledger.pending.clear()
        self.live.script.ending = ending
        self.over = True
        self.correspondence.await_nothing()
        self.correspondence.done += self.fences
        connection = self.connection
        lasting = connection.session_expiry_interval if self.version >= V5 else not connection.clean_start
        if not lasting:
            self.session.clear()
        why = self._why_not(ending)
        for entry in self.steps:
            self._skip(entry, f"{packet_name(entry.packet)}, because {why}")
        self.steps.clear()
        self._owed.clear()
        self._fence = None

    def _why_not(self, ending: Ending) -> str:
        """Why what is left is not sent."""
        if ending.stopped:
            return "the replay was stopped"
        if ending.how == "refused":
            return "its connection was never opened"
        if self.refused:
            return "the broker had refused the connection"
        return "the connection had ended"

    def _waits(self, entry: Entry) -> Until | None:
        """What has to come from the server before a step."""
        packet = entry.packet
        if isinstance(packet, packets.Connect):
            return None
        is_auth = isinstance(packet, packets.Auth)
        if self.connack is None:
            recorded = self.recorded_connack
            # Where the recording does not show the CONNACK, it had come.
            if not is_auth if recorded is None else recorded.place < entry.place:
                return Until.CONNACK
        if isinstance(packet, packets.Publish):
            return self._full() if packet.qos and self.connection.maximum_qos else None
        if isinstance(packet, _REQUESTS):
            taken = len(self.connection.client_side.exchanges)
            return Until.PACKET_IDENTIFIER if taken >= MAX_PACKET_IDENTIFIERS else None
        if is_auth:
            earlier = (one for one in self.script.entries if one.place < entry.place and not one.from_client)
            return Until.AUTH if self._auths < sum(isinstance(one.packet, packets.Auth) for one in earlier) else None
        return None

    def _full(self) -> Until | None:
        """Whether no further message may be under way (5.0 3.3.4)."""
        side, recorded = self.connection.client_side, self.script.connection
        broken = recorded.client_side.in_flight_peak > recorded.server_side.receive_maximum
        if side.in_flight >= self.connection.server_side.receive_maximum and not broken:
            return Until.RECEIVE_MAXIMUM
        taken = len(side.exchanges) + len(self.session.unfinished)
        return Until.PACKET_IDENTIFIER if taken >= MAX_PACKET_IDENTIFIERS else None

    def _other(self, entry: Entry, now_ns: int) -> Send | Skip:
        packet = entry.packet
        if isinstance(packet, packets.Connect):
            options = self.options
            fitted = adapt.connect(entry, self.sessions.assigned, options.user_name, options.password)
            assert isinstance(fitted.packet, packets.Connect)
            self.acknowledger.session = self.sessions.of(fitted.packet.client_identifier)
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

    def _publish(self, entry: Entry, packet: packets.Publish, now_ns: int) -> Send | Skip:
        identifier = None
        if packet.qos and packet.dup:
            # The live identifier, if the server waits for it.
            unfinished = () if entry.resends is None else self.session.unfinished.items()
            identifier = next((number for number, one in unfinished if one.entry.source is entry.resends), None)
            if identifier is None and self._was_delivered(entry.resends):
                return self._skip(entry, "PUBLISH sent again, which the live server had acknowledged")
            if identifier is None:
                self.live.note(NoteKind.ADAPTED, "DUP cleared: the live server has not had this message before")
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
            self.session.unfinished.setdefault(identifier, Unfinished(send.entry))
        if entry in self.fences:
            self._fence = send.entry
        return send

    def _was_delivered(self, first: Entry | None) -> bool:
        """Whether the live server took over a message that the recorded client sends again: not if it forgot it."""
        known = first in self._own or bool(self.connection.session_present) or self.version == V3_1
        return first is not None and known

    def _identify(self, fitted: Fitted, wanted: int) -> int:
        """Give a packet its recorded identifier, or the next free one; returns it."""
        taken, owed = self.connection.client_side.exchanges, self.session.unfinished
        if wanted in taken or wanted in owed:
            # After the last one that was found: those before it are in use, where a client has only one for all.
            start = self._found
            rest = chain(range(start + 1, MAX_PACKET_IDENTIFIERS + 1), range(1, start + 1))
            wanted = self._found = next((one for one in rest if one not in taken and one not in owed), wanted)
            self.live.note(NoteKind.ADAPTED, "another packet identifier, since the recorded one was in use")
        adapt.identified(fitted, wanted, self.version)
        return wanted

    def _end(self, now_ns: int) -> Action:
        """What comes after the last step."""
        ending, connection = self.script.ending, self.connection
        if self.acknowledger.closed:
            self.over = True
            return Close("fin")
        if ending.how == "open" and connection.phase is CONNECTED and not self.options.faithful:
            self.live.note(NoteKind.ADDED, "DISCONNECT, since the recording ends before the connection does")
            packet = packets.Disconnect()
            return self._sent(packet, encode(packet, self.version), None, now_ns)
        if ending.by == "server":
            return Wait(Until.CLOSE)
        self.over = True
        return Close("reset" if ending.how == "reset" else "fin")

    def _send_fence(self, published: Entry, now_ns: int) -> Send:
        self._fence = None
        self.live.note(NoteKind.ADDED, "PINGREQ, to know that the server has handled what was sent before")
        send = self._sent(packets.Pingreq(), b"\xc0\x00", None, now_ns)
        assert published.source is not None
        self.correspondence.fence(send.entry, published.source)
        return send

    def _send_owed(self, now_ns: int) -> Send:
        """Send again what the session owes (5.0 MQTT-4.4.0-1)."""
        packet: ControlPacket = self._owed.popleft()
        self.live.note(NoteKind.SESSION, f"{packet_name(packet)} sent again, since the session continues")
        kept = self.session.unfinished[packet.packet_identifier]  # type: ignore[attr-defined]
        if isinstance(packet, packets.Publish):
            send = self._sent(packet, encode(packet, self.version), kept.entry.source, now_ns, kept.entry.topic)
            kept.entry = send.entry
            return send
        send = self._sent(packet, encode(packet, self.version), None, now_ns)
        send.entry.answers = kept.entry
        return send

    def _send(self, fitted: Fitted, entry: Entry, now_ns: int) -> Send:
        for note in fitted.notes:
            self.live.note(note.kind, note.text)
        return self._sent(fitted.packet, fitted.raw, entry, now_ns, entry.topic)

    def _skip(self, entry: Entry, text: str) -> Skip:
        self.live.note(NoteKind.SKIPPED, text)
        self.skipped.add(entry)
        self.correspondence.skipped(entry)
        return Skip(entry, Note(NoteKind.SKIPPED, text))
