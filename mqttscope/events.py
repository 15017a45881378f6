"""Events from dissecting a capture, in capture order: the common input of reports, rules, filters and pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mqttscope.mqtt.constants import Direction, type_name
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.stream import Unparsed
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets
from mqttscope.session.connection import Connection

_NAMES: Final = tuple([type_name(number) for number in range(16)])
"""Names of packet types by number."""


@dataclass(slots=True)
class PacketEvent:
    """One MQTT Control Packet.  While it is handled, ``connection`` is in the state before the packet."""

    connection: Connection
    direction: Direction
    number: int
    """Number of the packet from 0 over the whole run, including malformed packets."""
    frame: int
    """Number of the frame that completed the packet."""
    timestamp_ns: int
    capture: str
    packet: ControlPacket
    topic: str | None
    """Resolved topic of a PUBLISH; ``None`` for other packets, and for an unknown Topic Alias."""
    stream_offset: int = -1
    """Offset of the first byte in the stream of its direction: TCP, or the contents of WebSocket or TLS.  Does not
    depend on the division of the capture into files; -1 without a stream."""

    @property
    def type(self) -> str:
        """Name of the packet type: ``publish``."""
        return _NAMES[self.packet.packet_type]


@dataclass(slots=True)
class MalformedEvent:
    """One malformed packet."""

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
        """Name of the packet type, or ``None`` if it is unknown."""
        kind = self.malformed.packet_type
        return None if kind is None else type_name(kind)


@dataclass(slots=True)
class LossEvent:
    """Bytes that are not read: missing in the capture, or discarded."""

    connection: Connection
    direction: Direction
    frame: int
    timestamp_ns: int
    capture: str
    length: int
    reason: str
    kind: ClassVar[str]
    reasons: ClassVar[dict[str, str]]
    """Each reason, in words that follow the number of bytes."""

    @property
    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LOSS_VALUES}

    @classmethod
    def describe(cls, length: int, reason: str) -> str:
        """Description of one loss, or of several with the same reason."""
        return f"{counted(length, 'byte')} {cls.reasons.get(reason, reason)}"


LOSS_VALUES: Final[dict[str, type]] = {"length": int, "reason": str}
"""Values of every loss, with their types."""


@dataclass(slots=True)
class GapEvent(LossEvent):
    """Bytes missing in the capture, for a reason of ``net.flow.StreamGap``."""

    kind: ClassVar[str] = "gap"
    reasons: ClassVar[dict[str, str]] = {
        "not_captured": "acknowledged but not captured",
        "cut": "cut off by the snap length",
        "unproven": "missing, without proof that the capture lost them",
    }
    stream_offset: int = -1
    """Offset of the first missing byte in the TCP stream."""


@dataclass(slots=True)
class UnparsedEvent:
    """Bytes that belong to no readable packet."""

    connection: Connection
    direction: Direction
    frame: int
    timestamp_ns: int
    capture: str
    unparsed: Unparsed
    stream_offset: int = -1
    """As in `PacketEvent`."""
    kind: ClassVar[str] = "unparsed"


@dataclass(slots=True)
class ConnectionEvent:
    """An event of a connection, not of one direction."""

    connection: Connection
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True)
class ConnectionOpened(ConnectionEvent):
    """A connection was recognised; MQTT inside TLS is only listed."""


@dataclass(slots=True)
class ConnectionDue(ConnectionEvent):
    """A time that a rule chose for another check of a connection (`History.ask`).

    It precedes everything captured at that time, and does not need a frame of the connection: its frame is the last one
    of the connection, its time the requested one.
    """


@dataclass(slots=True)
class ConnectionEnding(ConnectionEvent):
    """The first FIN or RST of a connection; packets of the other side may still follow."""


@dataclass(slots=True)
class ConnectionClosed(ConnectionEvent):
    """A connection is over: both sides ended it, or the capture ended.

    Frame and time belong to the first FIN or RST; without one, to the last frame.
    """


@dataclass(slots=True)
class DiscardedEvent(LossEvent):
    """A segment with data, for a reason of ``net.flow.SegmentDiscarded``; its connection may be over."""

    kind: ClassVar[str] = "discarded"
    reasons: ClassVar[dict[str, str]] = {
        "after_fin": "after the FIN of this side",
        "after_close": "after the connection was closed",
        "after_reset": "after the connection was reset",
        "late_copy": "that came again after the end",
        "late": "that came after their gap was given up",
        "before_start": "before the first byte that was read",
        "out_of_window": "with numbers that belong to no connection",
        "in_reset": "beside a reset",
        "damaged": "of a damaged segment: wrong checksum",
    }


@dataclass(slots=True)
class ClockStep:
    """The clock of a capture was set, or may have been set.  Later times are `session.capture_time.CaptureTime`."""

    capture: str
    frame: int
    """Number of the first frame after the step."""
    timestamp_ns: int
    """Timestamp of this frame."""
    by_ns: int
    """Size of the step; negative if the clock was set back, 0 if a step is possible but not proven."""

    @property
    def message(self) -> str:
        """Description for users."""
        if not self.by_ns:
            why = "according to the TCP timestamps of one host; no other host confirms or refutes it"
            return f"the clock may have been set forward at frame {self.frame:,}, {why}"
        seconds = abs(self.by_ns) / 1e9
        way = "forward" if self.by_ns > 0 else "back"
        return f"the clock was set {way} by {seconds:,.{0 if seconds >= 10 else 1}f} s at frame {self.frame:,}"


CaptureRemark = CaptureError | CaptureDrops | ClockStep
"""Events of a capture, not of a connection, that are always reported to the user."""

Damage = MalformedEvent | GapEvent | UnparsedEvent | DiscardedEvent
"""Malformed, unparsed, missing or discarded bytes."""
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
