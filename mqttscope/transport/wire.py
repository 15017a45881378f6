"""Synthesises a TCP connection as a capture would show it, from the data that both sides sent and from its end.

Each method of `SyntheticConnection` takes one event and returns its segments: a `net.frame.Frame` with correct headers
for the file, and the `net.segment.Segment` that a reader gets from this frame, for the dissector.  It does no I/O and
has no clock.

Callers acknowledge only bytes that certainly reached the other side: readers of the file take acknowledgment numbers
as proof that a side had received the bytes it ignores.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from mqttscope.capture.write import LINK_TYPE_RAW, ip_frame
from mqttscope.net.frame import Frame
from mqttscope.net.segment import ACK, FIN, MASK, PSH, RST, SYN, Segment, direction_key

MAX_SEGMENT_BYTES = 16 * 1024
"""Maximum payload of one segment.  An IP datagram could hold four times as much, but the bytes of a segment are parsed
in one go, and bytes that only look like MQTT take long."""
WINDOW = 0xFFFF
WINDOW_SHIFT = 14
"""Both sides offer a window of 1 GiB, so that bytes in flight always fit."""

_OPTIONS = struct.pack("!BBHBBBB", 2, 4, MAX_SEGMENT_BYTES, 1, 3, 3, WINDOW_SHIFT)


class Endpoint(NamedTuple):
    """Address and port of one side."""

    address: IPv4Address | IPv6Address
    port: int

    @classmethod
    def of(cls, name: tuple[str, int] | tuple[str, int, int, int]) -> Endpoint:
        """From a socket address; IPv4-mapped IPv6 becomes IPv4, and zones are dropped."""
        address = ip_address(name[0].partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return cls(mapped or address, name[1])

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"


class FramedSegment(NamedTuple):
    """One segment, in the forms for the file and for the dissector."""

    frame: Frame
    segment: Segment


@dataclass(slots=True)
class _SenderState:
    """State of one direction: how much its sender has sent, and acknowledged of the other direction."""

    source: Endpoint
    destination: Endpoint
    sequence: int
    """Sequence number of the next byte."""
    key: bytes = b""
    sent: int = 0
    """Bytes sent."""
    finished: bool = False
    """Whether the sender has sent its FIN."""
    acknowledged: int = 0
    """Bytes of the other direction that the sender has acknowledged, their FIN counted as one byte."""
    acknowledgment: int = 0
    """Acknowledgment number in the header."""

    def __post_init__(self) -> None:
        addresses = self.source.address.packed + self.destination.address.packed
        self.key = direction_key(addresses, struct.pack("!HH", self.source.port, self.destination.port))

    def end(self) -> int:
        """Highest position that the other side can acknowledge."""
        return self.sent + self.finished


@dataclass(slots=True)
class SyntheticConnection:
    """One connection from handshake to end.  Positions count the bytes of a stream from 0."""

    client: Endpoint
    server: Endpoint
    capture: str
    next_number: Callable[[], int]
    """Returns the next frame number, counted over all connections of a capture."""
    client_sequence: int = 0
    """Initial sequence number of the client."""
    server_sequence: int = 0
    opened: bool = False
    reset: bool = False
    _sides: tuple[_SenderState, _SenderState] = field(init=False)

    def __post_init__(self) -> None:
        if self.client.address.version != self.server.address.version:
            raise ValueError(f"{self.client} and {self.server} are of different address families")
        self._sides = (
            _SenderState(self.client, self.server, self.client_sequence & MASK),
            _SenderState(self.server, self.client, self.server_sequence & MASK),
        )

    def open(self, timestamp_ns: int) -> list[FramedSegment]:
        """The handshake: SYN, SYN-ACK, ACK."""
        assert not self.opened
        self.opened = True
        client, server = self._sides
        segments = [self._make(client, timestamp_ns, SYN, options=_OPTIONS)]
        client.sequence = (client.sequence + 1) & MASK
        server.acknowledgment = client.sequence
        segments.append(self._make(server, timestamp_ns, SYN | ACK, options=_OPTIONS))
        server.sequence = (server.sequence + 1) & MASK
        client.acknowledgment = server.sequence
        segments.append(self._make(client, timestamp_ns, ACK))
        return segments

    def data(self, from_client: bool, data: bytes, timestamp_ns: int, acknowledged: int = 0) -> list[FramedSegment]:
        """Segments for bytes that a side sent, with how much of the other stream it had certainly received before.

        Empty after the side's FIN or a reset.
        """
        side, other = self._directions(from_client)
        if side.finished or self.reset:
            return []
        self._advance(side, other, acknowledged)
        segments = []
        for start in range(0, len(data), MAX_SEGMENT_BYTES):
            part = data[start : start + MAX_SEGMENT_BYTES]
            last = start + MAX_SEGMENT_BYTES >= len(data)
            segments.append(self._make(side, timestamp_ns, PSH | ACK if last else ACK, part))
            side.sequence = (side.sequence + len(part)) & MASK
            side.sent += len(part)
        return segments

    def acknowledge(self, from_client: bool, acknowledged: int, timestamp_ns: int) -> list[FramedSegment]:
        """Segment that acknowledges the other side's stream up to a position; empty if the position is not new."""
        side, other = self._directions(from_client)
        if self.reset or not self._advance(side, other, acknowledged):
            return []
        return [self._make(side, timestamp_ns, ACK)]

    def close(self, from_client: bool, timestamp_ns: int, acknowledged: int = 0) -> list[FramedSegment]:
        """Segment with a side's FIN.  The other side may continue."""
        side, other = self._directions(from_client)
        if side.finished or self.reset:
            return []
        self._advance(side, other, acknowledged)
        segments = [self._make(side, timestamp_ns, FIN | ACK)]
        side.sequence = (side.sequence + 1) & MASK
        side.finished = True
        return segments

    def abort(self, from_client: bool, timestamp_ns: int) -> list[FramedSegment]:
        """Segment with a side's RST."""
        side, _ = self._directions(from_client)
        if self.ended:
            return []
        self.reset = True
        return [self._make(side, timestamp_ns, RST | ACK)]

    def settle(self, timestamp_ns: int) -> list[FramedSegment]:
        """Segments that acknowledge everything both sides have sent, FINs included."""
        segments = []
        for from_client in (False, True):
            _, other = self._directions(from_client)
            segments += self.acknowledge(from_client, other.end(), timestamp_ns)
        return segments

    @property
    def ended(self) -> bool:
        return self.reset or (self._sides[0].finished and self._sides[1].finished)

    def sent(self, from_client: bool) -> int:
        return self._sides[not from_client].sent

    def acknowledged(self, from_client: bool) -> int:
        return self._sides[not from_client].acknowledged

    def _directions(self, from_client: bool) -> tuple[_SenderState, _SenderState]:
        client, server = self._sides
        return (client, server) if from_client else (server, client)

    def _advance(self, side: _SenderState, other: _SenderState, acknowledged: int) -> bool:
        step = min(acknowledged, other.end()) - side.acknowledged
        if step <= 0:
            return False
        side.acknowledged += step
        side.acknowledgment = (side.acknowledgment + step) & MASK
        return True

    def _make(
        self, side: _SenderState, timestamp_ns: int, flags: int, payload: bytes = b"", options: bytes = b""
    ) -> FramedSegment:
        data = ip_frame(
            side.source.address.packed, side.destination.address.packed, (side.source.port, side.destination.port),
            sequence=side.sequence, acknowledgment=side.acknowledgment, flags=flags, window=WINDOW, payload=payload,
            options=options,
        )  # fmt: skip
        number = self.next_number()
        return FramedSegment(
            Frame(number, timestamp_ns, LINK_TYPE_RAW, data, len(data), self.capture),
            Segment(
                side.key,
                side.sequence,
                side.acknowledgment,
                flags,
                WINDOW,
                payload,
                0,
                number,
                timestamp_ns,
                self.capture,
                options,
            ),
        )
