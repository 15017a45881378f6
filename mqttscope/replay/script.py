"""Packets of both sides of a connection, in order: the form of recordings and of replays.

`read_scripts` makes scripts from the events of a capture.  Every packet is a `ScriptEntry`, with links to the packets
that it answers and resends.  A replay is recorded as scripts too; there each entry also has a link to the recorded
packet that it corresponds to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mqttscope.events import (
    ConnectionClosed,
    ConnectionEnding,
    ConnectionOpened,
    Event,
    GapEvent,
    MalformedEvent,
    PacketEvent,
    UnparsedEvent,
)
from mqttscope.mqtt.constants import Direction, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import Connack, Connect, Pingreq, Pingresp, Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.session.connection import Connection

UNSAID = Properties.of(())
"""Stands for unknown properties of a server's packet, since the recording is of a version without properties.
Compared by identity."""
C2S = Direction.CLIENT_TO_SERVER
S2C = Direction.SERVER_TO_CLIENT


@dataclass(slots=True, eq=False)
class ScriptEntry:
    """One packet of a connection."""

    from_client: bool
    packet: ControlPacket | Malformed
    topic: str | None
    """Resolved topic of a PUBLISH; ``None`` for other packets and for an unknown Topic Alias."""
    timestamp_ns: int
    place: int
    """Position among all packets of all connections, from 0 in the order of the capture."""
    frame: int = 0
    capture: str = ""
    answers: ScriptEntry | None = None
    """The packet that this one answers: for CONNACK its CONNECT, for each acknowledgement of a PUBLISH (PUBREL too)
    that PUBLISH, for SUBACK its SUBSCRIBE, for PINGRESP its PINGREQ.  ``None`` if it was not seen."""
    resends: ScriptEntry | None = None
    """The PUBLISH that this one sends again, on this connection or on an earlier one of the session."""
    source: ScriptEntry | None = None
    """In a replay: the recorded packet that this one performs or corresponds to; ``None`` for a new packet."""
    raw: bytes = b""
    """The bytes as they were on the wire."""
    origin: ScriptEntry | None = None
    """After changes by options: the captured packet that this one was made from."""
    doubt: int = 0
    """Level of suspicion that its bytes are part of a secret (`secrets.packets`)."""
    content: Any = None
    """Content of a payload of Sparkplug (`verify.metrics`), if two captures are compared."""

    @property
    def meaning(self) -> Any:
        """The payload of a PUBLISH, or what it means."""
        return self.packet.payload if self.content is None else self.content.key  # type: ignore[union-attr]

    @property
    def type(self) -> str:
        """``publish``; ``malformed`` for an unreadable packet."""
        return "malformed" if isinstance(self.packet, Malformed) else self.packet.packet_type.name.lower()


@dataclass(slots=True)
class Ending:
    """How a connection ended."""

    how: str
    """``fin``, ``reset``, ``open`` (it was still open when the capture or the replay ended), or in a replay
    ``refused`` (no connection was made), ``failed`` (the transport broke, TLS or WebSocket included)."""
    by: str | None = None
    """``client`` or ``server``; ``None`` if it is not known."""
    timestamp_ns: int = 0
    detail: str = ""
    """Description for people, if something failed."""
    stopped: bool = False
    """In a replay: whether it ended because the replay was stopped."""


@dataclass(slots=True)
class Script:
    """One connection: its packets in order, and its end."""

    connection: Connection
    """The connection, in its final state."""
    entries: list[ScriptEntry] = field(default_factory=list)
    ending: Ending = field(default_factory=lambda: Ending("open"))
    opened_ns: int = 0
    opened_place: int = 0
    """Number of packets of all connections before it was opened."""
    ended_place: int = 0
    """Number of packets of all connections up to its end: the first FIN or RST, and answers that still came."""
    late: int = 0
    """Number of packets that the client sent after the server had ended the connection.  They reached no one and are
    not entries."""
    lost: int = 0
    """Bytes that the capture lost or that could not be read."""
    lost_from_client: int = 0
    """Lost bytes that the client sent: a replay without them is incomplete."""

    @property
    def name(self) -> str:
        """Name for people: the Client Identifier, else the client's endpoint."""
        return self.connection.client_identifier or self.connection.client

    @property
    def version(self) -> ProtocolVersion:
        return self.connection.version

    def first(self, kind: type[ControlPacket], *, from_client: bool) -> ScriptEntry | None:
        sent = (entry for entry in self.entries if entry.from_client is from_client)
        return next((entry for entry in sent if isinstance(entry.packet, kind)), None)

    @property
    def connect(self) -> ScriptEntry | None:
        return self.first(Connect, from_client=True)

    @property
    def connect_packet(self) -> Connect | None:
        entry = self.connect
        return entry.packet if entry is not None and isinstance(entry.packet, Connect) else None

    @property
    def begins(self) -> bool:
        """Whether the recording has the client's first packet: a CONNECT, malformed or not."""
        first = next((entry for entry in self.entries if entry.from_client), None)
        return first is not None and bool(first.raw) and first.raw[0] >> 4 == PacketType.CONNECT

    @property
    def connack(self) -> ScriptEntry | None:
        return self.first(Connack, from_client=False)


class ScriptReader:
    """Makes scripts from the events of captures, sorted by the opening of connections."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.places = 0
        self._open: dict[int, _OpenScript] = {}
        self._unfinished: dict[str, dict[int, ScriptEntry]] = {}
        """Messages of clients not acknowledged when their connection ended, by session and packet identifier."""

    def feed(self, event: Event) -> None:
        """Take one event, while its connection is in the state before it."""
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent):
            script = self._open_script(event.connection, event.timestamp_ns).script
            raw = event.malformed.raw
            self._add(script, event, ScriptEntry(event.direction is C2S, event.malformed, None, 0, 0, raw=raw))
        elif isinstance(event, GapEvent):
            self._lost(event.connection, event.direction, event.length, event.timestamp_ns)
        elif isinstance(event, UnparsedEvent):
            self._lost(event.connection, event.direction, event.unparsed.length, event.timestamp_ns)
        elif isinstance(event, ConnectionOpened):
            if event.connection.transport != "tls" or event.connection.decrypted:
                self._open_script(event.connection, event.timestamp_ns)
        elif isinstance(event, ConnectionEnding):
            self._ending(event)
        elif isinstance(event, ConnectionClosed):
            self._closed(event)

    def finish(self) -> list[Script]:
        """All scripts; a script without a captured end is open until its last packet."""
        for current in self._open.values():
            script = current.script
            script.ended_place = self.places
            script.ending.timestamp_ns = script.entries[-1].timestamp_ns if script.entries else script.opened_ns
        return self.scripts

    def _open_script(self, connection: Connection, timestamp_ns: int) -> _OpenScript:
        current = self._open.get(connection.number)
        if current is None:
            # Without a captured handshake, the first packet opens it.
            script = Script(connection, opened_ns=timestamp_ns, opened_place=self.places)
            current = self._open[connection.number] = _OpenScript(script)
            self.scripts.append(script)
        return current

    def _add(self, script: Script, event: PacketEvent | MalformedEvent, entry: ScriptEntry) -> bool:
        """Add an entry, unless the client sent it after the server's end."""
        entry.timestamp_ns, entry.frame, entry.capture = event.timestamp_ns, event.frame, event.capture
        if entry.from_client and script.ending.by == "server" and _came_after_end(event):
            script.late += 1
            return False
        entry.place, entry.doubt = self.places, event.connection.side(event.direction).doubt
        self.places += 1
        script.entries.append(entry)
        if script.ending.how != "open":
            # The side that ends first still waits for answers, and gets them.
            script.ended_place = self.places
        return True

    def _packet(self, event: PacketEvent) -> None:
        packet, connection = event.packet, event.connection
        current = self._open_script(connection, event.timestamp_ns)
        from_client = event.direction is C2S
        entry = ScriptEntry(from_client, packet, event.topic, 0, 0, raw=packet.raw)
        if not self._add(current.script, event, entry):
            return
        current.by_number[event.number] = entry
        if isinstance(packet, Connack):
            entry.answers = current.script.connect
        elif isinstance(packet, Pingreq):
            current.ping = entry
        elif isinstance(packet, Pingresp):
            entry.answers, current.ping = current.ping, None
        elif isinstance(packet, Publish):
            if packet.qos and packet.packet_identifier is not None:
                self._resent(entry, packet, event, current)
        else:
            exchange = connection.answered_by(packet, event.direction)
            if exchange is not None:
                entry.answers = current.by_number.get(exchange.packet)

    def _resent(self, entry: ScriptEntry, packet: Publish, event: PacketEvent, current: _OpenScript) -> None:
        assert packet.packet_identifier is not None
        side = event.connection.side(event.direction)
        running = side.running(packet.packet_identifier, "publish")
        if not packet.dup:
            return
        if running is not None:
            entry.resends = current.by_number.get(running.packet)
            # Answers link to the first PUBLISH.
            current.by_number[event.number] = entry.resends or entry
        elif entry.from_client:
            entry.resends = self._unfinished.get(session_of(event.connection), {}).get(packet.packet_identifier)

    def _lost(self, connection: Connection, direction: Direction, length: int, timestamp_ns: int) -> None:
        script = self._open_script(connection, timestamp_ns).script
        script.lost += length
        if direction is C2S:
            script.lost_from_client += length

    def _ending(self, event: ConnectionEnding) -> None:
        """The first FIN or RST; later ones are ignored."""
        connection, current = event.connection, self._open.get(event.connection.number)
        if current is None or connection.closed_how not in ("fin", "reset"):
            return
        current.script.ended_place = self.places
        current.script.ending = Ending(connection.closed_how, connection.closed_by, event.timestamp_ns)

    def _closed(self, event: ConnectionClosed) -> None:
        current = self._open.pop(event.connection.number, None)
        if current is None:
            return
        script, connection = current.script, event.connection
        if script.ending.how == "open":
            script.ended_place = self.places
            how = connection.closed_how if connection.closed_how in ("fin", "reset") else "open"
            script.ending = Ending(how or "open", connection.closed_by if how != "open" else None, event.timestamp_ns)
        unfinished = {
            number: current.by_number[exchange.packet]
            for number, exchange in connection.client_side.exchanges.items()
            if exchange.kind == "publish" and exchange.packet in current.by_number
        }
        self._unfinished[session_of(connection)] = unfinished


@dataclass(slots=True)
class _OpenScript:
    script: Script
    by_number: dict[int, ScriptEntry] = field(default_factory=dict)
    """Entries by the number of the packet in the run."""
    ping: ScriptEntry | None = None


def _came_after_end(event: PacketEvent | MalformedEvent) -> bool:
    """Whether a packet was captured after the first FIN or RST; some packets are reported later than that."""
    connection = event.connection
    if event.capture == connection.closed_capture:
        return event.frame > connection.closed_frame
    return event.timestamp_ns > connection.closed_ns


def session_of(connection: Connection) -> str:
    return f"{connection.server} {connection.client_identifier or connection.client}"


def read_scripts(events: Iterable[Event]) -> list[Script]:
    """Scripts of all connections with readable packets, sorted by the opening of connections."""
    reader = ScriptReader()
    for event in events:
        reader.feed(event)
    return reader.finish()
