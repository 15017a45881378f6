"""What dissecting a capture yields, in capture order: the one vocabulary of reports, rules, filters and pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqttscope.mqtt.constants import Direction, type_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import Unparsed
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets
from mqttscope.session.connection import Connection

_NAMES: Final = tuple([type_name(number) for number in range(16)])
"""Names of packet types by their number."""


@dataclass(slots=True)
class PacketEvent:
    """One MQTT Control Packet.  While it is handled, ``connection`` is in the state before the packet."""

    connection: Connection
    direction: Direction
    number: int
    """Counted from 0 over all packets of the run, malformed ones included."""
    frame: int
    """The frame that completed the packet."""
    timestamp_ns: int
    capture: str
    packet: ControlPacket
    topic: str | None
    """Resolved topic of a PUBLISH; ``None`` for other packets and where an alias cannot be resolved."""
    stream_offset: int = -1
    """Place of its first byte in the stream of its direction: that of TCP, or what its WebSocket or TLS carries.  The
    same however the capture was cut into files; -1 where there is no stream."""

    @property
    def type(self) -> str:
        """Name of the packet type: ``publish``."""
        return _NAMES[self.packet.packet_type]


@dataclass(slots=True)
class MalformedEvent:
    """One packet that breaks the layout."""

    connection: Connection
    direction: Direction
    number: int
    frame: int
    timestamp_ns: int
    capture: str
    malformed: Malformed
    topic: str | None
    stream_offset: int = -1
    """As in `PacketEvent`."""

    @property
    def type(self) -> str | None:
        """Name of the packet type, ``None`` where not even that is known."""
        kind = self.malformed.packet_type
        return None if kind is None else type_name(kind)


@dataclass(slots=True)
class GapEvent:
    """Bytes that the capture does not have."""

    connection: Connection
    direction: Direction
    frame: int
    timestamp_ns: int
    capture: str
    length: int
    reason: str
    """As in ``net.flow.StreamGap``."""
    stream_offset: int = -1
    """Place of the first missing byte in the stream of TCP."""


@dataclass(slots=True)
class UnparsedEvent:
    """Bytes that belong to no packet that could be read."""

    connection: Connection
    direction: Direction
    frame: int
    timestamp_ns: int
    capture: str
    unparsed: Unparsed
    stream_offset: int = -1
    """As in `PacketEvent`."""


@dataclass(slots=True)
class ConnectionOpened:
    """A connection was recognised; for MQTT inside TLS it is listed only."""

    connection: Connection
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class ConnectionDue:
    """The capture time has come at which a judge wants to look at a connection again (`History.ask`).

    It counts before all that is captured at that time; nothing of the connection itself need come for it.
    """

    connection: Connection
    frame: int
    """The last one of the connection."""
    timestamp_ns: int
    """The time that was asked for."""
    capture: str


@dataclass(slots=True)
class ConnectionEnding:
    """The first FIN or RST of a connection; packets of the other side may still follow."""

    connection: Connection
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class ConnectionClosed:
    """Nothing more comes of a connection: both sides ended, or the capture did.

    Its place is that of the first FIN or RST, whatever came later; without one it is that of the last frame.
    """

    connection: Connection
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class DiscardedEvent:
    """A segment with data that no connection takes.  It may come after the connection was closed."""

    connection: Connection
    """The connection whose numbers it has; it may be over."""
    direction: Direction
    frame: int
    timestamp_ns: int
    capture: str
    length: int
    """How many bytes are in no stream."""
    reason: str
    """As in ``net.flow.SegmentDiscarded``."""


@dataclass(slots=True)
class ClockStep:
    """The clock of a capture was set, or may have been.  Times after it are `session.capture_time.CaptureTime`."""

    capture: str
    frame: int
    """The first one after it."""
    timestamp_ns: int
    """Of this frame."""
    by_ns: int
    """How far forward; negative if the clock was set back, 0 if it may have been set and nothing proves it."""

    @property
    def message(self) -> str:
        """What happened, for people."""
        if not self.by_ns:
            why = "since the TCP timestamps of one host say so and no others prove or disprove it"
            return f"the clock may have been set forward at frame {self.frame:,}, {why}"
        seconds = abs(self.by_ns) / 1e9
        way = "forward" if self.by_ns > 0 else "back"
        return f"the clock was set {way} by {seconds:,.{0 if seconds >= 10 else 1}f} s at frame {self.frame:,}"


CaptureRemark = CaptureError | CaptureDrops | ClockStep
"""What concerns a capture and no connection, and what a user is told in every case."""

Damage = MalformedEvent | GapEvent | UnparsedEvent | DiscardedEvent
"""Bytes that are no packet, or no good one, or are not there."""
Event = (
    PacketEvent
    | Damage
    | ConnectionOpened
    | ConnectionDue
    | ConnectionEnding
    | ConnectionClosed
    | CaptureRemark
    | CaptureSecrets
)
