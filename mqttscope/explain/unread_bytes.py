"""Bytes that could not be read as packets: where the framing broke, stray bytes, and other protocols."""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.events import MalformedEvent, UnparsedEvent
from mqttscope.explain.model import Moment
from mqttscope.mqtt import ProtocolVersion
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.repair import Misreading, misreading

MAX_STRAY = 4
"""Maximum number of bytes after a packet that are shown."""


@dataclass(slots=True)
class Misread:
    """The first packet of a side that may have broken its framing."""

    kind: str
    data: bytes
    """Captured bytes of the packet, from its first one."""
    version: ProtocolVersion
    frame: int
    timestamp_ns: int
    offset: int
    """Offset of its first byte in the stream of the side."""
    before: bytes = b""
    """The PUBLISH before it, as `Malformed.before` has it."""
    before_moment: Moment | None = None

    def reading(self, sent: int) -> Misreading | None:
        """The reading that proves the fault; ``sent``: all bytes of MQTT that the side sent, -1 if unknown."""
        return misreading(self.data, self.before, self.version, sent=sent - self.offset)

    def place(self, reading: Misreading) -> Moment:
        """Where the packet with the fault is."""
        if reading.is_before and self.before_moment is not None:
            return self.before_moment
        return Moment(self.timestamp_ns, self.frame, "", self.kind)


@dataclass(slots=True)
class Stray:
    """Bytes after a whole packet that are not a packet, or the beginning of a packet."""

    before: Moment
    """The packet."""
    data: bytes
    offset: int
    """Offset of the first byte in the stream of the side."""
    is_beginning: bool
    """Whether a packet may begin so."""

    @classmethod
    def of(cls, event: MalformedEvent | UnparsedEvent, before: Moment) -> Stray:
        """The bytes of an event after a packet."""
        if isinstance(event, UnparsedEvent):
            return cls(before, event.unparsed.raw[:MAX_STRAY], event.stream_offset, True)
        bad = event.malformed
        is_beginning = bad.reason is MalformedReason.TRUNCATED and bool(bad.packet_type)
        return cls(before, (bad.raw + bad.after)[:MAX_STRAY], event.stream_offset, is_beginning)


@dataclass(slots=True)
class ForeignBytes:
    """The first bytes of a side that speaks another protocol than MQTT."""

    protocol: str
    """As `mqtt.foreign.foreign_protocol` names it."""
    head: bytes
    moment: Moment
