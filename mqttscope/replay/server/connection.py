"""A device as the played server sees it: its connection, and the session that outlives it (5.0 4.1).

`DeviceConnection` processes received packets, and decides what is sent and when.  `ServerSessions` contains what the
server remembers of each client between its connections.
"""

from __future__ import annotations

import copy
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mqttscope.mqtt import packets
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import V5, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import BY_NAME, EMPTY, Properties
from mqttscope.mqtt.topics import matches
from mqttscope.replay.live import (
    Close,
    LiveConnection,
    NoteKind,
    PacketBudget,
    Send,
    UnfinishedMessage,
    ends_exchange,
    packet_name,
)
from mqttscope.replay.script import Ending, Script, ScriptEntry
from mqttscope.replay.server.recorded import ServerScript
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

MAX_SESSIONS = 100_000
"""Maximum number of sessions.  Beyond it, empty ones are forgotten first, then the oldest down to nine tenths."""
MAX_SUBSCRIPTIONS = 10_000
"""Maximum number of subscriptions of one session; a device that asks for more is disconnected."""
MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Maximum size of the packets of one connection that are kept to be compared; further ones are not kept."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Maximum size of requests that wait for an answer; the oldest are forgotten first."""
MAX_PINGS = 1_000
"""Maximum number of PINGREQs that wait for an answer; the oldest are forgotten first."""
MALFORMED, PROTOCOL_ERROR, PACKET_TOO_LARGE = 0x81, 0x82, 0x95
_IN_CONNACK = (MALFORMED, PROTOCOL_ERROR, PACKET_TOO_LARGE)
"""Reason Codes for ending a connection that a CONNACK may carry."""
_FOR_PEOPLE = (BY_NAME["reason_string"].identifier, BY_NAME["user_property"].identifier)
_WITH_TEXTS_ALWAYS = (packets.Connack, packets.Publish, packets.Disconnect)
SECOND = 1_000_000_000


@dataclass(slots=True)
class DeviceSubscription:
    """A subscription of the device."""

    options: Subscription
    """Subscription options that the device requested."""
    qos: int
    """Granted QoS."""
    identifier: int | None = None
    """Subscription Identifier."""


@dataclass(slots=True)
class ServerSessionState:
    """Session of one client."""

    subscriptions: dict[str, DeviceSubscription] = field(default_factory=dict)
    """Subscriptions by Topic Filter."""
    unfinished: dict[int, UnfinishedMessage] = field(default_factory=dict)
    """Unacknowledged deliveries by packet identifier, in the order sent."""
    arrived: dict[int, ScriptEntry] = field(default_factory=dict)
    """Messages of the device with an incomplete handshake, by packet identifier."""
    arrived_bytes: int = 0
    """Total size of these messages."""

    def arrive(self, identifier: int, entry: ScriptEntry) -> None:
        self.complete(identifier)
        self.arrived[identifier] = entry
        self.arrived_bytes += len(entry.raw)

    def complete(self, identifier: int | None) -> None:
        completed = None if identifier is None else self.arrived.pop(identifier, None)
        if completed is not None:
            self.arrived_bytes -= len(completed.raw)

    def clear(self) -> None:
        """Drop everything, since the session has ended."""
        self.subscriptions.clear()
        self.unfinished.clear()
        self.arrived.clear()
        self.arrived_bytes = 0

    @property
    def empty(self) -> bool:
        return not (self.subscriptions or self.unfinished or self.arrived)

    def covering(self, topic: str, *, shared: bool = True) -> Iterator[DeviceSubscription]:
        return (row for name, row in self.subscriptions.items() if matches(name, topic, shared=shared))


@dataclass(slots=True)
class ServerSessions:
    """Sessions of all clients of a run."""

    known: dict[str, ServerSessionState] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    """Client Identifiers assigned to clients without one."""
    forgotten: int = 0
    """Number of non-empty sessions dropped because of `MAX_SESSIONS`."""

    def session_of(self, client_identifier: str) -> ServerSessionState:
        """The session of a client, created if necessary."""
        session = self.known.get(client_identifier)
        if session is None:
            if len(self.known) >= MAX_SESSIONS:
                self._make_room()
            session = self.known[client_identifier] = ServerSessionState()
        return session

    def _make_room(self) -> None:
        """Drop enough sessions that this is not needed again soon."""
        self.known = {name: session for name, session in self.known.items() if not session.empty}
        oldest = list(self.known)[: max(0, len(self.known) - MAX_SESSIONS * 9 // 10)]
        self.forgotten += len(oldest)
        for name in oldest:
            del self.known[name]

    def assign(self, wanted: str | None) -> str:
        """A Client Identifier that is not in use; the recorded one if it is free (5.0 3.1.3.1)."""
        base = wanted or "mqttscope"
        number, name = 1, base if wanted else f"{base}-1"
        while name in self.assigned or name in self.known:
            number += 1
            name = f"{base}-{number}"
        self.assigned.add(name)
        return name

    def resumed(self, connect: packets.Connect) -> bool:
        """Whether a client resumes a session that exists."""
        session = self.known.get(connect.client_identifier)
        return not connect.clean_start and session is not None and not session.empty


@dataclass(slots=True)
class ServerOptions:
    """How the recorded server is played."""

    speed: float | None = 1.0
    """Recorded seconds per second; ``None`` for as soon as possible."""
    patience_ns: int = 5 * SECOND
    """Maximum delay of a device compared with the recording; then deliveries no longer wait for it."""
    keep: bool = True
    """Whether to keep the packets of the live connection, to compare them."""


@dataclass(slots=True, order=True)
class QueuedAnswer:
    """An answer that waits to be sent."""

    due_ns: int
    turn: int
    packet: ControlPacket = field(compare=False)
    source: ScriptEntry | None = field(compare=False)
    """The recorded answer."""


def live_connection(
    script: Script, *, keep: bool = True, next_place: Callable[[], int] | None = None
) -> LiveConnection:
    """A connection of a device, with limits since devices may send anything; it fills ``script``."""
    live = LiveConnection(
        script,
        plays_client=False,
        keep=keep,
        budget=PacketBudget(MAX_KEPT_BYTES, MAX_KEPT_BYTES),
        max_waiting_bytes=MAX_WAITING_BYTES,
        max_pings=MAX_PINGS,
    )
    live.next_place = next_place or live.next_place
    return live


@dataclass(slots=True, kw_only=True)
class DeviceConnection:
    """Applies a device's packets to connection and session, and sends answers in their order when they are due."""

    live: LiveConnection
    recorded: ServerScript
    """The recorded connection; an empty one if the recording has no match."""
    options: ServerOptions
    session: ServerSessionState = field(default_factory=ServerSessionState)
    connect: packets.Connect | None = None
    """CONNECT of the device."""
    accepted: bool = False
    """Whether a CONNACK was sent that accepts the device."""
    heard_ns: int = 0
    """Time of the device's last packet."""
    end: Close | None = None
    """How the connection is to end, after the queued answers."""
    over: bool = False
    """Whether nothing more will be sent."""
    queue: list[QueuedAnswer] = field(default_factory=list)
    """Heap of answers to be sent."""
    owed: deque[UnfinishedMessage] = field(default_factory=deque)
    """Deliveries that the session has to resend before anything else."""
    happened: dict[ScriptEntry, int] = field(default_factory=dict)
    """Live time of each recorded packet that happened again."""
    last_ns: int = field(init=False)
    """Time of the last event that the recording has too."""
    last_recorded_ns: int = field(init=False)
    """Latest recorded time of the events that have happened."""
    _turn: int = 0
    _queued: dict[type, int] = field(default_factory=dict)
    """Due time of the latest answer of each type: acknowledgements keep their order (5.0 4.6)."""
    _floor_ns: int = 0
    """Earliest time for other packets, so that the CONNACK comes first."""

    def __post_init__(self) -> None:
        self.last_ns, self.last_recorded_ns = self.live.script.opened_ns, self.recorded.script.opened_ns

    @property
    def state(self) -> Connection:
        return self.live.connection

    @property
    def version(self) -> ProtocolVersion:
        return self.live.version

    @property
    def ending(self) -> bool:
        """Whether packets of the device no longer have an effect."""
        return self.over or self.end is not None

    @property
    def keep_alive_ns(self) -> int:
        """Maximum silence of the device; 0: unlimited (5.0 MQTT-3.1.2-22)."""
        keep_alive = (self.state.keep_alive or 0) if self.accepted else 0
        return keep_alive * 1_500_000_000

    @property
    def has_room(self) -> bool:
        """Whether a further QoS 1 or 2 message may be in flight (5.0 3.3.4)."""
        state = self.state
        sending, in_use = state.server_side, len(state.server_side.exchanges)
        return sending.in_flight < state.client_side.receive_maximum and in_use < MAX_PACKET_IDENTIFIERS

    def free_identifier(self, wanted: int | None) -> int:
        """The recorded packet identifier, or the lowest that is free on this connection and in the session."""
        in_use, owed = self.state.server_side.exchanges, self.session.unfinished
        if wanted and wanted not in in_use and wanted not in owed:
            return wanted
        numbers = range(1, MAX_PACKET_IDENTIFIERS + 1)
        return next(number for number in numbers if number not in in_use and number not in owed)

    def note(self, kind: NoteKind, text: str) -> None:
        self.live.note(kind, text)

    def receive(self, packet: ControlPacket | Malformed, now_ns: int) -> ScriptEntry:
        """Process a packet of the device, and find its ``answers`` and ``resends``.

        Only the first CONNECT introduces the device; a further one would change the state.
        """
        self.heard_ns = now_ns
        introduces = isinstance(packet, packets.Connect) and self.connect is None and not self.ending
        entry = self.live.received(packet, now_ns, apply=introduces or not isinstance(packet, packets.Connect))
        self._limit(entry)
        if isinstance(packet, packets.Connect) and introduces:
            self.connect = packet
        elif isinstance(packet, packets.Publish) and packet.qos and packet.packet_identifier is not None:
            self._arrived(entry, packet)
        return entry

    def _arrived(self, entry: ScriptEntry, packet: packets.Publish) -> None:
        """A message with a packet identifier: a repetition, or a new one."""
        assert packet.packet_identifier is not None
        before = self.session.arrived.get(packet.packet_identifier)
        publish = None if before is None else before.packet
        is_repetition = isinstance(publish, packets.Publish) and publish.qos == packet.qos
        if packet.dup and is_repetition:
            assert before is not None
            entry.resends = before.resends or before
            entry.source = before.source
        elif not (is_repetition and packet.qos == 2):
            # QoS 2 without DUP before PUBREL is still the same message (5.0 MQTT-4.3.3-10).
            self.session.arrive(packet.packet_identifier, entry)
        else:
            assert before is not None
            entry.source = before.source

    def send(self, packet: ControlPacket, source: ScriptEntry | None, now_ns: int) -> Send:
        """Send a packet, adapted to what the device accepts."""
        unchanged = source is not None and source.packet is packet and self.version == self.recorded.script.version
        packet, raw = _encoded(packet, self.state, self.connect)
        if unchanged and source is not None and source.packet is packet:
            raw = source.raw or raw
        if not raw:
            self.note(NoteKind.SKIPPED, f"{packet_name(packet)} longer than the device's Maximum Packet Size")
            return Send(b"", ScriptEntry(False, packet, None, now_ns, 0, source=source))
        return self.send_as(packet, raw, source, now_ns)

    def send_as(
        self,
        packet: ControlPacket | Malformed,
        raw: bytes,
        source: ScriptEntry | None,
        now_ns: int,
        topic: str | None = None,
    ) -> Send:
        """Send a packet with these bytes in place of a recorded one."""
        if source is not None:
            self.mark(source, now_ns)
        send = self.live.sent(packet, raw, source, now_ns, topic)
        self._limit(send.entry)
        if isinstance(packet, packets.Connack):
            self.accepted = not packet.reason_code
            self._floor_ns = 0
            if packet.reason_code:
                self.end = Close("fin")
        elif isinstance(packet, packets.Publish):
            if packet.qos and packet.packet_identifier is not None:
                self.session.unfinished[packet.packet_identifier] = UnfinishedMessage(send.entry)
        elif isinstance(packet, packets.Puback | packets.Pubrec | packets.Pubcomp) and ends_exchange(packet):
            self.session.complete(packet.packet_identifier)
        return send

    def _limit(self, entry: ScriptEntry) -> None:
        if not self.live.limit(entry):
            text = f"packet that is not compared: more than {MAX_KEPT_BYTES:,} bytes were kept before"
            self.note(NoteKind.SKIPPED, text)

    def answer(self, now_ns: int) -> Send | None:
        """Send the next answer, if one is due."""
        if not self.queue or (self.queue[0].due_ns > now_ns and self.end is None):
            return None
        answer = heapq.heappop(self.queue)
        return self.send(answer.packet, answer.source, now_ns)

    def enqueue(self, packet: ControlPacket, source: ScriptEntry | None, delay_ns: int, now_ns: int) -> None:
        """Queue an answer, to be sent ``delay_ns`` after its request."""
        speed = self.options.speed
        due_ns = now_ns if speed is None else now_ns + int(max(0, delay_ns) / speed)
        due_ns = max(due_ns, self._floor_ns, self._queued.get(type(packet), 0))
        self._queued[type(packet)] = due_ns
        if isinstance(packet, packets.Connack):
            self._floor_ns = due_ns
        self._turn += 1
        heapq.heappush(self.queue, QueuedAnswer(due_ns, self._turn, packet, source))

    def respond(
        self, packet: ControlPacket, source: ScriptEntry | None, request: ScriptEntry | None, now_ns: int
    ) -> None:
        """Queue an answer, with the recorded delay between request and answer."""
        delay_ns = 0 if source is None or request is None else source.timestamp_ns - request.timestamp_ns
        self.enqueue(packet, source, delay_ns, now_ns)

    def end_with(self, code: int, why: str, now_ns: int) -> None:
        """End the connection with a Reason Code, if the version has a packet for it (5.0 4.13)."""
        self.queue.clear()
        if self.version >= V5 and self.accepted:
            self.enqueue(packets.Disconnect(code), None, 0, now_ns)
        elif self.version >= V5 and self.connect is not None and code in _IN_CONNACK:
            self.enqueue(packets.Connack(reason_code=code), None, 0, now_ns)
        self.end = Close("fin", why)

    def end_after_due(self, now_ns: int) -> None:
        """The device leaves: end the connection after the answers that are already due."""
        self.queue = sorted(answer for answer in self.queue if answer.due_ns <= now_ns)
        self.end = Close("fin")

    def mark(self, recorded: ScriptEntry, now_ns: int) -> None:
        self.happened.setdefault(recorded, now_ns)
        self.last_ns = now_ns
        self.last_recorded_ns = max(self.last_recorded_ns, recorded.timestamp_ns)

    def ended(self, ending: Ending) -> None:
        """The connection is gone, and its session too unless that outlives it (5.0 3.1.2.11.2)."""
        self.live.script.ending = ending
        state = self.state
        lasting = state.session_expiry_interval if self.version >= V5 else state.clean_start is False
        if self.accepted and not lasting:
            self.session.clear()


def _encoded(packet: ControlPacket, live: Connection, connect: packets.Connect | None) -> tuple[ControlPacket, bytes]:
    """An answer as the device accepts it, and its bytes; empty if it would be too long.

    Reason String and User Properties are left out if the device declined them (5.0 MQTT-3.1.2-29), and if they would
    exceed its Maximum Packet Size (MQTT-3.4.2-2 and others).
    """
    requested = EMPTY if connect is None or connect.properties is None else connect.properties
    if requested.request_problem_information == 0 and not isinstance(packet, _WITH_TEXTS_ALWAYS):
        packet = _without_texts(packet)
    raw = packet.raw or encode(packet, live.version)
    limit = live.client_side.maximum_packet_size
    if limit is not None and len(raw) > limit:
        packet = _without_texts(packet)
        raw = packet.raw or encode(packet, live.version)
        if len(raw) > limit:
            return packet, b""
    return packet, raw


def _without_texts(packet: ControlPacket) -> ControlPacket:
    """The packet without its Reason String and User Properties."""
    block: Properties | None = getattr(packet, "properties", None)
    if block is None or not any(number in _FOR_PEOPLE for number, _ in block.items):
        return packet
    shortened = copy.copy(packet)
    shortened.raw = b""
    shortened.properties = block.without(*_FOR_PEOPLE)  # type: ignore[attr-defined]
    return shortened
