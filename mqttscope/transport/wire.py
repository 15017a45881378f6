"""One TCP connection as a capture would show it, made of what an endpoint knows: who sent what, and how it ended.

A `Wire` is told what happened and answers with the segments that say so: a `net.frame.Frame` with correct headers for
the file, and beside it the `net.segment.Segment` that anybody reads from this frame, for the dissector.  It does no
I/O and has no clock.

The acknowledgment numbers are what the caller knows to have reached the other side, never more: who reads the file
takes them as proof that a side had received what it ignores.
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
"""Payload of one segment.  An IP datagram could hold four times as much; but what is read from a segment is read in one
go, and bytes that look like MQTT and are none take long."""
WINDOW = 0xFFFF
WINDOW_SHIFT = 14
"""Both sides offer 1 GiB, so that what is under way always fits."""

_OPTIONS = struct.pack("!BBHBBBB", 2, 4, MAX_SEGMENT_BYTES, 1, 3, 3, WINDOW_SHIFT)


class Endpoint(NamedTuple):
    """Address and port of one side."""

    address: IPv4Address | IPv6Address
    port: int

    @classmethod
    def of(cls, name: tuple[str, int] | tuple[str, int, int, int]) -> Endpoint:
        """From what a socket says; IPv4 in IPv6 becomes IPv4, and no zone is kept."""
        address = ip_address(name[0].partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return cls(mapped or address, name[1])

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"


class Made(NamedTuple):
    """One segment, as the file and as the dissector get it."""

    frame: Frame
    segment: Segment


@dataclass(slots=True)
class _Side:
    """One direction: who sends, and how far it has come."""

    source: Endpoint
    destination: Endpoint
    sequence: int
    """Sequence number of what comes next."""
    key: bytes = b""
    sent: int = 0
    """Bytes of the stream."""
    finished: bool = False
    """Whether it has sent its FIN."""
    acknowledged: int = 0
    """How far it has acknowledged the stream of the other side, its FIN counted as one byte."""
    acknowledgment: int = 0
    """The same as a number in the header."""

    def __post_init__(self) -> None:
        addresses = self.source.address.packed + self.destination.address.packed
        self.key = direction_key(addresses, struct.pack("!HH", self.source.port, self.destination.port))

    def end(self) -> int:
        """How far the other side can acknowledge this one."""
        return self.sent + self.finished


@dataclass(slots=True)
class Wire:
    """One connection from its handshake to its end.  Positions count the bytes of a stream from 0."""

    client: Endpoint
    server: Endpoint
    capture: str
    next_number: Callable[[], int]
    """Gives the numbers of frames, which count over all connections of a capture."""
    client_sequence: int = 0
    """Initial sequence number of the client."""
    server_sequence: int = 0
    opened: bool = False
    reset: bool = False
    _sides: tuple[_Side, _Side] = field(init=False)

    def __post_init__(self) -> None:
        if self.client.address.version != self.server.address.version:
            raise ValueError(f"{self.client} and {self.server} are of different address families")
        self._sides = (
            _Side(self.client, self.server, self.client_sequence & MASK),
            _Side(self.server, self.client, self.server_sequence & MASK),
        )

    def open(self, timestamp_ns: int) -> list[Made]:
        """The handshake: SYN, SYN-ACK, ACK."""
        assert not self.opened
        self.opened = True
        client, server = self._sides
        made = [self._make(client, timestamp_ns, SYN, options=_OPTIONS)]
        client.sequence = (client.sequence + 1) & MASK
        server.acknowledgment = client.sequence
        made.append(self._make(server, timestamp_ns, SYN | ACK, options=_OPTIONS))
        server.sequence = (server.sequence + 1) & MASK
        client.acknowledgment = server.sequence
        made.append(self._make(client, timestamp_ns, ACK))
        return made

    def data(self, from_client: bool, data: bytes, timestamp_ns: int, acknowledged: int = 0) -> list[Made]:
        """What a side sent, and how far it had certainly received the other one's stream before.

        Nothing when it had sent its FIN, or when the connection was reset.
        """
        side, other = self._both(from_client)
        if side.finished or self.reset:
            return []
        self._advance(side, other, acknowledged)
        made = []
        for start in range(0, len(data), MAX_SEGMENT_BYTES):
            part = data[start : start + MAX_SEGMENT_BYTES]
            last = start + MAX_SEGMENT_BYTES >= len(data)
            made.append(self._make(side, timestamp_ns, PSH | ACK if last else ACK, part))
            side.sequence = (side.sequence + len(part)) & MASK
            side.sent += len(part)
        return made

    def acknowledge(self, from_client: bool, acknowledged: int, timestamp_ns: int) -> list[Made]:
        """A side is known to have received the other one's stream up to a position; nothing when that is not new."""
        side, other = self._both(from_client)
        if self.reset or not self._advance(side, other, acknowledged):
            return []
        return [self._make(side, timestamp_ns, ACK)]

    def close(self, from_client: bool, timestamp_ns: int, acknowledged: int = 0) -> list[Made]:
        """A side ends its stream: FIN.  The other one may continue."""
        side, other = self._both(from_client)
        if side.finished or self.reset:
            return []
        self._advance(side, other, acknowledged)
        made = [self._make(side, timestamp_ns, FIN | ACK)]
        side.sequence = (side.sequence + 1) & MASK
        side.finished = True
        return made

    def abort(self, from_client: bool, timestamp_ns: int) -> list[Made]:
        """A side gives the connection up: RST."""
        side, _ = self._both(from_client)
        if self.ended:
            return []
        self.reset = True
        return [self._make(side, timestamp_ns, RST | ACK)]

    def settle(self, timestamp_ns: int) -> list[Made]:
        """Both sides have received all of each other: the acknowledgments that are left, those of the FINs too."""
        made = []
        for from_client in (False, True):
            _, other = self._both(from_client)
            made += self.acknowledge(from_client, other.end(), timestamp_ns)
        return made

    @property
    def ended(self) -> bool:
        return self.reset or (self._sides[0].finished and self._sides[1].finished)

    def sent(self, from_client: bool) -> int:
        return self._sides[not from_client].sent

    def acknowledged(self, from_client: bool) -> int:
        return self._sides[not from_client].acknowledged

    def _both(self, from_client: bool) -> tuple[_Side, _Side]:
        client, server = self._sides
        return (client, server) if from_client else (server, client)

    def _advance(self, side: _Side, other: _Side, acknowledged: int) -> bool:
        step = min(acknowledged, other.end()) - side.acknowledged
        if step <= 0:
            return False
        side.acknowledged += step
        side.acknowledgment = (side.acknowledgment + step) & MASK
        return True

    def _make(self, side: _Side, timestamp_ns: int, flags: int, payload: bytes = b"", options: bytes = b"") -> Made:
        data = ip_frame(
            side.source.address.packed, side.destination.address.packed, (side.source.port, side.destination.port),
            sequence=side.sequence, acknowledgment=side.acknowledgment, flags=flags, window=WINDOW, payload=payload,
            options=options,
        )  # fmt: skip
        number = self.next_number()
        return Made(
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
