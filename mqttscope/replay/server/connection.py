"""A device as the server that is played sees it: its connection, and the session that outlives it (5.0 4.1).

`DeviceConnection` takes what comes, and says what goes out and when.  `ServerSessions` has what the server remembers of
each client between its connections.
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
    Room,
    Send,
    Unfinished,
    ends_exchange,
    packet_name,
)
from mqttscope.replay.script import Ending, Entry, Script
from mqttscope.replay.server.recorded import ServerScript
from mqttscope.session.connection import Connection
from mqttscope.session.inflight import MAX_PACKET_IDENTIFIERS

MAX_SESSIONS = 100_000
"""Maximum number of sessions.  Beyond it, empty ones are forgotten first, then the oldest down to nine tenths."""
MAX_SUBSCRIPTIONS = 10_000
"""Of one session; a device that asks for more is disconnected."""
MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Packets of one connection that are kept to be compared; further ones are not."""
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Of requests that wait for an answer; the oldest are forgotten first."""
MAX_PINGS = 1_000
"""PINGREQ that wait for an answer; the oldest are forgotten first."""
MALFORMED, PROTOCOL_ERROR, PACKET_TOO_LARGE = 0x81, 0x82, 0x95
_IN_CONNACK = (MALFORMED, PROTOCOL_ERROR, PACKET_TOO_LARGE)
"""Reason Codes for the end of a connection that a CONNACK may have."""
_FOR_PEOPLE = (BY_NAME["reason_string"].identifier, BY_NAME["user_property"].identifier)
_ALWAYS_TOLD = (packets.Connack, packets.Publish, packets.Disconnect)
SECOND = 1_000_000_000


@dataclass(slots=True)
class Subscribed:
    """A subscription of the device."""

    options: Subscription
    """As the device asked for it."""
    qos: int
    """Granted."""
    identifier: int | None = None
    """Subscription Identifier."""


@dataclass(slots=True)
class ServerSessionState:
    """One client."""

    subscriptions: dict[str, Subscribed] = field(default_factory=dict)
    """By Topic Filter."""
    unfinished: dict[int, Unfinished] = field(default_factory=dict)
    """By packet identifier, in the order in which they were sent."""
    arrived: dict[int, Entry] = field(default_factory=dict)
    """Messages of the device whose handshake is not complete, by packet identifier."""
    arrived_bytes: int = 0
    """How many bytes these have."""

    def arrive(self, identifier: int, entry: Entry) -> None:
        self.complete(identifier)
        self.arrived[identifier] = entry
        self.arrived_bytes += len(entry.raw)

    def complete(self, identifier: int | None) -> None:
        gone = None if identifier is None else self.arrived.pop(identifier, None)
        if gone is not None:
            self.arrived_bytes -= len(gone.raw)

    def clear(self) -> None:
        """The session has ended."""
        self.subscriptions.clear()
        self.unfinished.clear()
        self.arrived.clear()
        self.arrived_bytes = 0

    @property
    def empty(self) -> bool:
        return not (self.subscriptions or self.unfinished or self.arrived)

    def covering(self, topic: str, *, shared: bool = True) -> Iterator[Subscribed]:
        return (one for name, one in self.subscriptions.items() if matches(name, topic, shared=shared))


@dataclass(slots=True)
class ServerSessions:
    """All clients of a run."""

    known: dict[str, ServerSessionState] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    """Client Identifiers that were given to clients without one."""
    forgotten: int = 0
    """Sessions with something in them that were forgotten beyond `MAX_SESSIONS`."""

    def of(self, client_identifier: str) -> ServerSessionState:
        """The session of a client; a new one where there is none."""
        found = self.known.get(client_identifier)
        if found is None:
            if len(self.known) >= MAX_SESSIONS:
                self._make_room()
            found = self.known[client_identifier] = ServerSessionState()
        return found

    def _make_room(self) -> None:
        """Forget enough that this is not needed again soon."""
        self.known = {name: one for name, one in self.known.items() if not one.empty}
        oldest = list(self.known)[: max(0, len(self.known) - MAX_SESSIONS * 9 // 10)]
        self.forgotten += len(oldest)
        for name in oldest:
            del self.known[name]

    def assign(self, wanted: str | None) -> str:
        """A Client Identifier that nobody has; the recorded one where that is free (5.0 3.1.3.1)."""
        base = wanted or "mqttscope"
        number, name = 1, base if wanted else f"{base}-1"
        while name in self.assigned or name in self.known:
            number += 1
            name = f"{base}-{number}"
        self.assigned.add(name)
        return name

    def resumed(self, connect: packets.Connect) -> bool:
        """Whether a client asks for a session that there is."""
        found = self.known.get(connect.client_identifier)
        return not connect.clean_start and found is not None and not found.empty


@dataclass(slots=True)
class ServerOptions:
    """How the recorded server is played."""

    speed: float | None = 1.0
    """Recorded seconds per second; ``None`` for as soon as possible."""
    patience_ns: int = 5 * SECOND
    """How much later than recorded a device may do what came before a delivery, until it is delivered without."""
    keep: bool = True
    """Keep the packets of the live connection, to compare them."""


@dataclass(slots=True, order=True)
class Answer:
    """An answer that is to be sent."""

    due_ns: int
    turn: int
    packet: ControlPacket = field(compare=False)
    source: Entry | None = field(compare=False)
    """The recorded answer."""


def live_connection(
    script: Script, *, keep: bool = True, next_place: Callable[[], int] | None = None
) -> LiveConnection:
    """A connection of a device, limited since nobody knows what devices send; it fills ``script``."""
    live = LiveConnection(
        script,
        plays_client=False,
        keep=keep,
        room=Room(MAX_KEPT_BYTES, MAX_KEPT_BYTES),
        max_waiting_bytes=MAX_WAITING_BYTES,
        max_pings=MAX_PINGS,
    )
    live.next_place = next_place or live.next_place
    return live


@dataclass(slots=True, kw_only=True)
class DeviceConnection:
    """Takes what a device says into state and session, and sends answers when they are due and in their order."""

    live: LiveConnection
    recorded: ServerScript
    """The recording; one without entries where there is none."""
    options: ServerOptions
    session: ServerSessionState = field(default_factory=ServerSessionState)
    connect: packets.Connect | None = None
    """What the device introduced itself with."""
    accepted: bool = False
    """A CONNACK has been sent that accepts it."""
    heard_ns: int = 0
    """When the device last said something."""
    end: Close | None = None
    """How the connection is to end, after what is queued."""
    over: bool = False
    """Nothing more will be sent."""
    queue: list[Answer] = field(default_factory=list)
    """A heap of what is to be sent."""
    owed: deque[Unfinished] = field(default_factory=deque)
    """Deliveries that the session has to send again before anything else."""
    happened: dict[Entry, int] = field(default_factory=dict)
    """When recorded packets had their counterpart."""
    last_ns: int = field(init=False)
    """When something last happened that the recording has."""
    last_recorded_ns: int = field(init=False)
    """The latest recorded time of what has happened."""
    _turn: int = 0
    _queued: dict[type, int] = field(default_factory=dict)
    """When the latest answer of a type is due: acknowledgements keep their order (5.0 4.6)."""
    _floor_ns: int = 0
    """Nothing is sent before the CONNACK."""

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
        """Whether nothing that the device says has an effect any more."""
        return self.over or self.end is not None

    @property
    def keep_alive_ns(self) -> int:
        """How long the device may be silent; 0 forever (5.0 MQTT-3.1.2-22)."""
        keep_alive = (self.state.keep_alive or 0) if self.accepted else 0
        return keep_alive * 1_500_000_000

    @property
    def has_room(self) -> bool:
        """Whether a further QoS 1 or 2 message may be under way (5.0 3.3.4)."""
        state = self.state
        sending, taken = state.server_side, len(state.server_side.exchanges)
        return sending.in_flight < state.client_side.receive_maximum and taken < MAX_PACKET_IDENTIFIERS

    def free_identifier(self, wanted: int | None) -> int:
        """The recorded packet identifier, or the lowest that is free on this connection and in the session."""
        taken, owed = self.state.server_side.exchanges, self.session.unfinished
        if wanted and wanted not in taken and wanted not in owed:
            return wanted
        return next(one for one in range(1, MAX_PACKET_IDENTIFIERS + 1) if one not in taken and one not in owed)

    def note(self, kind: NoteKind, text: str) -> None:
        self.live.note(kind, text)

    def take(self, packet: ControlPacket | Malformed, now_ns: int) -> Entry:
        """Take a packet of the device; its ``answers`` and ``resends`` are found, its ``source`` is not.

        The first CONNECT introduces the device; a further one would change the state.
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

    def _arrived(self, entry: Entry, packet: packets.Publish) -> None:
        """A message with a packet identifier: one that was there already, or a new one."""
        assert packet.packet_identifier is not None
        before = self.session.arrived.get(packet.packet_identifier)
        again = before is not None and isinstance(before.packet, packets.Publish) and before.packet.qos == packet.qos
        if packet.dup and again:
            assert before is not None
            entry.resends = before.resends or before
            entry.source = before.source
        elif not (again and packet.qos == 2):
            # QoS 2 without DUP before PUBREL is the same message all the same (5.0 MQTT-4.3.3-10).
            self.session.arrive(packet.packet_identifier, entry)
        else:
            assert before is not None
            entry.source = before.source

    def send(self, packet: ControlPacket, source: Entry | None, now_ns: int) -> Send:
        """Send a packet, as the device can take it."""
        kept = source is not None and source.packet is packet and self.version == self.recorded.script.version
        packet, raw = _encoded(packet, self.state, self.connect)
        if kept and source is not None and source.packet is packet:
            raw = source.raw or raw
        if not raw:
            self.note(NoteKind.SKIPPED, f"{packet_name(packet)} longer than the device's Maximum Packet Size")
            return Send(b"", Entry(False, packet, None, now_ns, 0, source=source))
        return self.send_as(packet, raw, source, now_ns)

    def send_as(
        self, packet: ControlPacket | Malformed, raw: bytes, source: Entry | None, now_ns: int, topic: str | None = None
    ) -> Send:
        """Send these bytes."""
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
                self.session.unfinished[packet.packet_identifier] = Unfinished(send.entry)
        elif isinstance(packet, packets.Puback | packets.Pubrec | packets.Pubcomp) and ends_exchange(packet):
            self.session.complete(packet.packet_identifier)
        return send

    def _limit(self, entry: Entry) -> None:
        if not self.live.limit(entry):
            text = f"packet that is not compared: more than {MAX_KEPT_BYTES:,} bytes were kept before"
            self.note(NoteKind.SKIPPED, text)

    def answer(self, now_ns: int) -> Send | None:
        """Send the next answer, if one is due."""
        if not self.queue or (self.queue[0].due_ns > now_ns and self.end is None):
            return None
        one = heapq.heappop(self.queue)
        return self.send(one.packet, one.source, now_ns)

    def enqueue(self, packet: ControlPacket, source: Entry | None, delay_ns: int, now_ns: int) -> None:
        """Have an answer sent so long after its request."""
        speed = self.options.speed
        due_ns = now_ns if speed is None else now_ns + int(max(0, delay_ns) / speed)
        due_ns = max(due_ns, self._floor_ns, self._queued.get(type(packet), 0))
        self._queued[type(packet)] = due_ns
        if isinstance(packet, packets.Connack):
            self._floor_ns = due_ns
        self._turn += 1
        heapq.heappush(self.queue, Answer(due_ns, self._turn, packet, source))

    def respond(self, packet: ControlPacket, source: Entry | None, request: Entry | None, now_ns: int) -> None:
        """Queue an answer with the recorded delay after its recorded request."""
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

    def end_after_due(self, now_ns: int) -> None:
        """The device leaves: end the connection after what is due, which had been said before this was heard."""
        self.queue = sorted(one for one in self.queue if one.due_ns <= now_ns)
        self.end = Close("fin")

    def mark(self, recorded: Entry, now_ns: int) -> None:
        self.happened.setdefault(recorded, now_ns)
        self.last_ns = now_ns
        self.last_recorded_ns = max(self.last_recorded_ns, recorded.timestamp_ns)

    def ended(self, ending: Ending) -> None:
        """The connection is gone, and the session with it where it does not last (5.0 3.1.2.11.2)."""
        self.live.script.ending = ending
        state = self.state
        lasting = state.session_expiry_interval if self.version >= V5 else state.clean_start is False
        if self.accepted and not lasting:
            self.session.clear()


def _encoded(packet: ControlPacket, live: Connection, connect: packets.Connect | None) -> tuple[ControlPacket, bytes]:
    """An answer with what the device wants to hear, and its bytes; empty where it would be too long.

    Reason String and User Properties are left out where the device said so (5.0 MQTT-3.1.2-29), and where they would
    exceed its Maximum Packet Size (MQTT-3.4.2-2 and others).
    """
    asked = EMPTY if connect is None or connect.properties is None else connect.properties
    if asked.request_problem_information == 0 and not isinstance(packet, _ALWAYS_TOLD):
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
    made = copy.copy(packet)
    made.raw = b""
    made.properties = block.without(*_FOR_PEOPLE)  # type: ignore[attr-defined]
    return made
