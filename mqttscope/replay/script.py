"""What both sides of a connection said, in order: the form that is replayed, and that replays are recorded in.

`read_scripts` makes scripts of the events of a capture.  Every packet is an `Entry`, which knows what it answers
and what it sends again; the same form holds what happened in a replay, where each entry also names the recorded
one that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
"""Stands for properties of a server's packet of which nobody knows what they would have been, since the recording is of
a version without properties.  Told by identity."""
C2S = Direction.CLIENT_TO_SERVER
S2C = Direction.SERVER_TO_CLIENT


@dataclass(slots=True, eq=False)
class Entry:
    """One packet of a connection."""

    from_client: bool
    packet: ControlPacket | Malformed
    topic: str | None
    """Resolved topic of a PUBLISH; ``None`` for other packets and where an alias cannot be resolved."""
    timestamp_ns: int
    place: int
    """Its place among all packets of all connections, counted from 0 in the order of the capture."""
    frame: int = 0
    capture: str = ""
    answers: Entry | None = None
    """The packet that this one answers: CONNACK its CONNECT, each acknowledgement of a PUBLISH (PUBREL too) that
    PUBLISH, SUBACK its SUBSCRIBE, PINGRESP its PINGREQ.  ``None`` where that was not seen."""
    resends: Entry | None = None
    """The PUBLISH that this one sends again, on this connection or on an earlier one of the session."""
    source: Entry | None = None
    """In a replay: the recorded packet that this one performs or corresponds to; ``None`` for what is new."""
    raw: bytes = b""
    """The bytes as they were on the wire."""
    origin: Entry | None = None
    """In what options changed: the packet of the capture that this one was made of."""
    doubt: int = 0
    """How little its bytes are trusted not to be of a secret (`redact.packets`)."""

    @property
    def type(self) -> str:
        """``publish``; ``malformed`` for what could not be read."""
        return "malformed" if isinstance(self.packet, Malformed) else self.packet.packet_type.name.lower()


@dataclass(slots=True)
class Ending:
    """How a connection ended."""

    how: str
    """``fin``, ``reset``, ``open`` (it was still open when the capture or the replay ended), or in a replay
    ``refused`` (there was no connection), ``failed`` (the transport broke, TLS or WebSocket included)."""
    by: str | None = None
    """``client`` or ``server``; ``None`` where it is not known."""
    timestamp_ns: int = 0
    detail: str = ""
    """For people, where something failed."""
    stopped: bool = False
    """In a replay: it ended because the replay did."""


@dataclass(slots=True)
class Script:
    """One connection."""

    connection: Connection
    """What it was, in the state at its end."""
    entries: list[Entry] = field(default_factory=list)
    ending: Ending = field(default_factory=lambda: Ending("open"))
    opened_ns: int = 0
    opened_place: int = 0
    """How many packets of all connections came before it was opened."""
    ended_place: int = 0
    """How many had come when it ended: with the first FIN or RST, and what the server still answered."""
    late: int = 0
    """Packets that the client sent after the server had ended the connection.  Nobody heard them, so that they are no
    entries."""
    lost: int = 0
    """Bytes that the capture lost or that could not be read."""
    lost_from_client: int = 0
    """Those of them that the client sent: what is replayed without them is not what was said."""

    @property
    def name(self) -> str:
        """For people: the Client Identifier, else the client's endpoint."""
        return self.connection.client_identifier or self.connection.client

    @property
    def version(self) -> ProtocolVersion:
        return self.connection.version

    def first(self, kind: type[ControlPacket], *, from_client: bool) -> Entry | None:
        sent = (one for one in self.entries if one.from_client is from_client)
        return next((one for one in sent if isinstance(one.packet, kind)), None)

    @property
    def connect(self) -> Entry | None:
        return self.first(Connect, from_client=True)

    @property
    def connect_packet(self) -> Connect | None:
        entry = self.connect
        return entry.packet if entry is not None and isinstance(entry.packet, Connect) else None

    @property
    def begins(self) -> bool:
        """Whether the recording has the beginning of what the client said: a CONNECT, malformed or not."""
        first = next((one for one in self.entries if one.from_client), None)
        return first is not None and bool(first.raw) and first.raw[0] >> 4 == PacketType.CONNECT

    @property
    def connack(self) -> Entry | None:
        return self.first(Connack, from_client=False)


class ScriptReader:
    """Takes the events of captures and makes scripts of them, in the order in which connections were opened."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.places = 0
        self._open: dict[int, _Open] = {}
        self._unfinished: dict[str, dict[int, Entry]] = {}
        """By Client Identifier: messages of the client that were not acknowledged when its connection ended."""

    def feed(self, event: Event) -> None:
        """Take one event, while its connection is in the state before it."""
        if isinstance(event, PacketEvent):
            self._packet(event)
        elif isinstance(event, MalformedEvent):
            script = self._of(event.connection, event.timestamp_ns).script
            raw = event.malformed.raw
            self._add(script, event, Entry(event.direction is C2S, event.malformed, None, 0, 0, raw=raw))
        elif isinstance(event, GapEvent):
            self._lost(event.connection, event.direction, event.length, event.timestamp_ns)
        elif isinstance(event, UnparsedEvent):
            self._lost(event.connection, event.direction, event.unparsed.length, event.timestamp_ns)
        elif isinstance(event, ConnectionOpened):
            if event.connection.transport != "tls" or event.connection.decrypted:
                self._of(event.connection, event.timestamp_ns)
        elif isinstance(event, ConnectionEnding):
            self._ending(event)
        elif isinstance(event, ConnectionClosed):
            self._closed(event)

    def finish(self) -> list[Script]:
        """All scripts; those whose end was not seen are open until the last packet."""
        for current in self._open.values():
            script = current.script
            script.ended_place = self.places
            script.ending.timestamp_ns = script.entries[-1].timestamp_ns if script.entries else script.opened_ns
        return self.scripts

    def _of(self, connection: Connection, timestamp_ns: int) -> _Open:
        found = self._open.get(connection.number)
        if found is None:
            # Where the handshake was not captured it is opened by its first packet.
            script = Script(connection, opened_ns=timestamp_ns, opened_place=self.places)
            found = self._open[connection.number] = _Open(script)
            self.scripts.append(script)
        return found

    def _add(self, script: Script, event: PacketEvent | MalformedEvent, entry: Entry) -> bool:
        """Take an entry, unless nobody heard it."""
        entry.timestamp_ns, entry.frame, entry.capture = event.timestamp_ns, event.frame, event.capture
        if entry.from_client and script.ending.by == "server" and _comes_behind(event):
            script.late += 1
            return False
        entry.place, entry.doubt = self.places, event.connection.side(event.direction).doubt
        self.places += 1
        script.entries.append(entry)
        if script.ending.how != "open":
            # Who ends first waits for the answers that it got all the same.
            script.ended_place = self.places
        return True

    def _packet(self, event: PacketEvent) -> None:
        packet, connection = event.packet, event.connection
        current = self._of(connection, event.timestamp_ns)
        from_client = event.direction is C2S
        entry = Entry(from_client, packet, event.topic, 0, 0, raw=packet.raw)
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

    def _resent(self, entry: Entry, packet: Publish, event: PacketEvent, current: _Open) -> None:
        assert packet.packet_identifier is not None
        side = event.connection.side(event.direction)
        running = side.running(packet.packet_identifier, "publish")
        if not packet.dup:
            return
        if running is not None:
            entry.resends = current.by_number.get(running.packet)
            # Answers name the first one.
            current.by_number[event.number] = entry.resends or entry
        elif entry.from_client:
            entry.resends = self._unfinished.get(session_of(event.connection), {}).get(packet.packet_identifier)

    def _lost(self, connection: Connection, direction: Direction, length: int, timestamp_ns: int) -> None:
        script = self._of(connection, timestamp_ns).script
        script.lost += length
        if direction is C2S:
            script.lost_from_client += length

    def _ending(self, event: ConnectionEnding) -> None:
        """The first FIN or RST: what comes later is no end of its own."""
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
        kept = {
            number: current.by_number[exchange.packet]
            for number, exchange in connection.client_side.exchanges.items()
            if exchange.kind == "publish" and exchange.packet in current.by_number
        }
        self._unfinished[session_of(connection)] = kept


@dataclass(slots=True)
class _Open:
    script: Script
    by_number: dict[int, Entry] = field(default_factory=dict)
    """By the number of the packet in the run."""
    ping: Entry | None = None


def _comes_behind(event: PacketEvent | MalformedEvent) -> bool:
    """Whether it was captured after the first FIN or RST; some packets are reported later than that."""
    connection = event.connection
    if event.capture == connection.closed_capture:
        return event.frame > connection.closed_frame
    return event.timestamp_ns > connection.closed_ns


def session_of(connection: Connection) -> str:
    return f"{connection.server} {connection.client_identifier or connection.client}"


def read_scripts(events: Iterable[Event]) -> list[Script]:
    """Scripts of all connections whose packets can be read, in the order in which they were opened."""
    reader = ScriptReader()
    for event in events:
        reader.feed(event)
    return reader.finish()
