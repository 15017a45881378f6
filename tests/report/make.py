"""Events made by hand for the reporters: packets on a connection whose state moves on as it does when dissecting."""

from __future__ import annotations

from collections.abc import Iterable

from mqttscope.events import ConnectionClosed, ConnectionOpened, Event, GapEvent, MalformedEvent, PacketEvent
from mqttscope.events import UnparsedEvent as UnparsedEvent
from mqttscope.mqtt import ControlPacket, Direction, Malformed, ProtocolVersion, Publish, Unparsed, decode, encode
from mqttscope.redact.packets import CLEAR
from mqttscope.report.base import Reporter, View
from mqttscope.report.tree import Tree
from mqttscope.session import Connection

C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
V3_1, V3_1_1, V5 = ProtocolVersion
START_NS = 1_767_323_045_123_456_789
"""2026-01-02T03:04:05.123456789Z."""
MS = 1_000_000


class Lines:
    """A sink that keeps what was written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    @property
    def lines(self) -> list[str]:
        """Written lines; only line feeds end a line."""
        return self.data.decode().split("\n")[:-1]


class Talk:
    """One connection.  Each call makes the next event, a millisecond after the one before."""

    def __init__(
        self,
        version: ProtocolVersion = V5,
        *,
        number: int = 0,
        identifier: str | None = "dev1",
        client: str = "10.0.0.4:51234",
        known: bool = True,
        first_packet: int = 0,
    ) -> None:
        self.connection = Connection(
            number, client, "10.0.0.2:1883", "a.pcap", 1, START_NS, handshake_seen=True, client_identifier=identifier
        )
        self.connection.assume_version(version, "CONNECT" if known else "a run of packets", known=known)
        if identifier is not None:  # its CONNECT came, and other packets since
            self.connection.client_side.doubt = self.connection.server_side.doubt = CLEAR
        self.now = START_NS
        self.packets = first_packet
        self.frame = 0
        self.waiting: tuple[ControlPacket, Direction, int] | None = None

    def _next(self, after: int) -> None:
        if self.waiting is not None:
            # An event is seen before its packet is applied.
            packet, direction, number = self.waiting
            self.connection.apply(packet, direction, number, self.frame, self.now)
            self.waiting = None
        self.now += after
        self.frame += 1

    def say(self, packet: ControlPacket | bytes, direction: Direction = C2S, *, after: int = MS) -> Event:
        """The event of a packet, given by its fields or by its bytes."""
        self._next(after)
        raw = packet if isinstance(packet, bytes) else encode(packet, self.connection.version)
        found = decode(raw, self.connection.version)
        number = self.packets
        self.packets += 1
        place = (self.connection, direction, number, self.frame, self.now, "a.pcap")
        if isinstance(found, Malformed):
            return MalformedEvent(*place, found, None)
        if not isinstance(packet, bytes):
            found.missing = packet.missing
        self.connection.identify(found)
        topic = self.connection.resolve_topic(found, direction) if isinstance(found, Publish) else None
        self.waiting = found, direction, number
        return PacketEvent(*place, found, topic)

    def answer(self, packet: ControlPacket | bytes, *, after: int = MS) -> Event:
        """The event of a packet that the server sends."""
        return self.say(packet, S2C, after=after)

    def opened(self) -> Event:
        self._next(MS)
        return ConnectionOpened(self.connection, self.frame, self.now, "a.pcap")

    def closed(self, how: str = "fin", by: str | None = "client") -> Event:
        self._next(MS)
        self.connection.closed_how, self.connection.closed_by = how, by
        return ConnectionClosed(self.connection, self.frame, self.now, "a.pcap")

    def gap(self, length: int, reason: str = "not_captured") -> Event:
        self._next(MS)
        self.connection.gaps += 1
        self.connection.gap_bytes += length
        return GapEvent(self.connection, C2S, self.frame, self.now, "a.pcap", length, reason)

    def unparsed(self, found: Unparsed) -> Event:
        self._next(MS)
        return UnparsedEvent(self.connection, C2S, self.frame, self.now, "a.pcap", found)


def publish(topic: str = "a/b", payload: bytes = b"hi", **fields: object) -> Publish:
    """A PUBLISH."""
    return Publish(topic_name=topic, payload=payload, **fields)  # type: ignore[arg-type]


def shown(kind: type[Reporter], events: Iterable[Event], **view: object) -> list[str]:
    """Lines that a reporter writes for events; ``view`` are fields of `View`."""
    sink = Lines()
    reporter = kind(sink, View(**view))  # type: ignore[call-arg, arg-type]
    for event in events:
        reporter.feed(event)
    reporter.close()
    return sink.lines


def block_of(raw: bytes | Publish, version: int = 5, **view: object) -> list[str]:
    """Lines of one packet."""
    talk = Talk(V5 if version == 5 else V3_1_1)
    return shown(Tree, [talk.say(raw)], **{"width": 80, **view})[0 if view.get("width") == 0 else 1 :]
