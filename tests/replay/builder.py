"""The one builder of recordings for tests: what is said on connections, read as captures are.

Tests write recordings down as packets (`recordings`) or as lines of text (`talk`); both are made here.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from mqttscope.events import ConnectionClosed, ConnectionEnding, ConnectionOpened, GapEvent, MalformedEvent, PacketEvent
from mqttscope.mqtt import Connect, ControlPacket, Malformed, ProtocolVersion, Publish, decode, encode
from mqttscope.replay.script import C2S, S2C, Script, ScriptReader
from mqttscope.session.connection import Connection

CAPTURE, SERVER = "a.pcap", "10.0.0.2:1883"


@dataclass
class Builder:
    """Connections by any key."""

    now_ns: int = 0
    number: int = 0
    """Of the next packet, of all connections."""
    as_written: bool = False
    """Keep packets as the test wrote them, instead of reading them from their bytes."""
    reader: ScriptReader = field(default_factory=ScriptReader)
    connections: dict[Hashable, Connection] = field(default_factory=dict)
    """Those that are open."""
    opened: int = 0

    def open(
        self, key: Hashable, client: str = "", server: str = SERVER, *, version: ProtocolVersion | None = None
    ) -> Connection:
        """Begin a connection at the next packet; without ``version`` its CONNECT will tell, or a guess."""
        client = client or f"10.0.0.1:{5000 + self.opened}"
        made = Connection(self.opened, client, server, CAPTURE, self.number, self.now_ns, handshake_seen=True)
        if version is not None:
            made.version = version
        self.opened += 1
        self.connections[key] = made
        self.reader.feed(ConnectionOpened(made, self.number + 1, self.now_ns, CAPTURE))
        return made

    def wait(self, ns: int) -> None:
        """Let time pass."""
        self.now_ns += ns

    def say(self, key: Hashable, arrow: str, said: ControlPacket | bytes) -> None:
        """One packet: ``>`` of the client, ``<`` of the server."""
        connection, direction = self.connections[key], C2S if arrow == ">" else S2C
        version = said.version if isinstance(said, Connect) else connection.version
        raw = said if isinstance(said, bytes) else encode(said, version)
        as_written = self.as_written and isinstance(said, ControlPacket)
        packet = replace(said, raw=raw) if as_written else decode(raw, version)  # type: ignore[type-var]
        place = (direction, self.number, self.number + 1, self.now_ns, CAPTURE)
        self.number += 1
        if isinstance(packet, Malformed):
            self.reader.feed(MalformedEvent(connection, *place, packet, None))
            return
        assert isinstance(packet, ControlPacket), packet
        connection.identify(packet)
        topic = connection.resolve_topic(packet, direction) if isinstance(packet, Publish) else None
        self.reader.feed(PacketEvent(connection, *place, packet, topic))
        connection.apply(packet, direction, place[1], place[2], self.now_ns)

    def lose(self, key: Hashable, arrow: str, length: int) -> None:
        """Bytes that the capture lacks."""
        direction = C2S if arrow == ">" else S2C
        gap = GapEvent(self.connections[key], direction, self.number + 1, self.now_ns, CAPTURE, length, "not_captured")
        self.reader.feed(gap)

    def end(self, key: Hashable, how: str, by: str) -> None:
        """The first FIN or RST of a connection, after which the other side may continue."""
        connection = self.connections[key]
        connection.closed_how, connection.closed_by = how, by
        connection.closed_frame, connection.closed_ns, connection.closed_capture = self.number + 1, self.now_ns, CAPTURE
        self.number += 1
        self.reader.feed(ConnectionEnding(connection, self.number, self.now_ns, CAPTURE))

    def close(self, key: Hashable, how: str, by: str | None) -> None:
        """The end of a connection."""
        connection = self.connections.pop(key)
        connection.closed_how, connection.closed_by = how, by
        self.reader.feed(ConnectionClosed(connection, self.number + 1, self.now_ns, CAPTURE))

    def finish(self) -> list[Script]:
        """All scripts; connections that are open stay so."""
        for key in list(self.connections):
            self.close(key, "capture_end", None)
        return self.reader.finish()
