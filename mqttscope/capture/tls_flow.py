"""One TCP connection with TLS in it, while it is decrypted live: what is held back of it, and its client random."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mqttscope.capture.tls_worker import Tshark
from mqttscope.net.segment import MASK, SYN, Segment, distance

_HELLO = b"\x16\x03"
_RANDOM = slice(11, 43)
"""In a ClientHello, behind the headers of record and message and the version."""


def begins(segment: Segment) -> bool:
    """Whether a segment looks like the beginning of a ClientHello."""
    return segment.payload[:2] == _HELLO and segment.payload[5:6] == b"\x01"


def start_of(segment: Segment) -> int:
    """Sequence number of the first byte of a segment: a SYN takes one of its own."""
    return (segment.sequence + bool(segment.flags & SYN)) & MASK


@dataclass(slots=True, eq=False)
class Held:
    """A segment that is held back."""

    segment: Segment
    flow: Flow
    left: int = 0
    """Frames that tshark has not answered."""
    waiting: bool = False
    """Whether it is to be fed once there are keys."""
    records: list[bytes] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Flow:
    """A TCP connection in which a ClientHello was seen."""

    key: bytes
    """Direction key of the client."""
    number: int = -1
    """Of the TLS session in it, for tshark."""
    first: int = 0
    """Sequence number of the ClientHello."""
    since: float = 0.0
    last: float = 0.0
    hello: bytearray = field(default_factory=bytearray)
    """Its first bytes, in order."""
    worker: Tshark[Held] | None = None
    """What decrypts it; while there is none and it does not wait, segments only pass in order."""
    waiting: bool = False
    waiting_bytes: int = 0
    ended: int = 0
    """Bit 1: the client has closed; bit 2: the server has."""
    held: deque[Held] = field(default_factory=deque)

    @property
    def random(self) -> bytes:
        """The client random; empty as long as it is not known."""
        return bytes(self.hello[_RANDOM]) if len(self.hello) >= _RANDOM.stop else b""

    def begin(self, segment: Segment, number: int) -> None:
        """A ClientHello: from here on there may be something to decrypt."""
        self.key, self.first, self.number, self.ended = segment.key, start_of(segment), number, 0
        self.hello, self.since, self.waiting = bytearray(), self.last, True

    def gather(self, segment: Segment) -> None:
        """Take what a segment of the client holds of the beginning of the ClientHello."""
        ahead = distance(self.first, start_of(segment))
        if 0 <= ahead <= len(self.hello) < _RANDOM.stop:
            del self.hello[ahead:]
            self.hello += segment.payload[: _RANDOM.stop]
