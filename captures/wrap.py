"""TCP around bytes: whole connections built with dpkt, and recorded ones taken apart."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import dpkt
from pcapng import Frame

MILLISECOND = 1_000_000
EPOCH_NS = 1_767_225_600 * 1_000_000_000
"""2026-01-01T00:00:00Z, when the synthesised captures begin."""

FIN, SYN, RST, PSH, ACK = (dpkt.tcp.TH_FIN, dpkt.tcp.TH_SYN, dpkt.tcp.TH_RST, dpkt.tcp.TH_PUSH, dpkt.tcp.TH_ACK)


@dataclass(slots=True)
class Clock:
    """The time of the next frame; it moves a millisecond with each."""

    now_ns: int = EPOCH_NS

    def tick(self) -> int:
        """The time of a frame."""
        self.now_ns += MILLISECOND
        return self.now_ns


@dataclass(slots=True)
class Conversation:
    """A TCP connection that is written frame by frame, with right numbers and checksums.

    Addresses are of the documentation networks.  Side 0 is the client, 1 the server.
    """

    frames: list[Frame]
    clock: Clock
    client_port: int = 50000
    server_port: int = 1883
    addresses: tuple[bytes, bytes] = (socket.inet_aton("192.0.2.10"), socket.inet_aton("198.51.100.1"))
    next_number: list[int] = field(default_factory=lambda: [1000, 5000])
    ttl: tuple[int, int] = (64, 64)

    def open(self) -> None:
        """The three segments of the handshake."""
        self._segment(0, SYN)
        self._segment(1, SYN | ACK)
        self._segment(0, ACK)

    def client(self, *parts: bytes) -> None:
        """A segment from the client, and its acknowledgement."""
        self.send(0, b"".join(parts))
        self.acknowledge(1)

    def server(self, *parts: bytes) -> None:
        """A segment from the server, and its acknowledgement."""
        self.send(1, b"".join(parts))
        self.acknowledge(0)

    def send(self, side: int, data: bytes, back: int = 0) -> None:
        """A segment without acknowledgement; `back` says how many bytes of it were sent before."""
        self.next_number[side] -= back
        self._segment(side, PSH | ACK, data)

    def acknowledge(self, side: int) -> None:
        """A segment without data from the side that received."""
        self._segment(side, ACK)

    def close(self, first: int = 0) -> None:
        """FIN from both, `first` says who begins."""
        self._segment(first, FIN | ACK)
        self._segment(1 - first, FIN | ACK)
        self._segment(first, ACK)

    def finish(self, side: int) -> None:
        """A FIN that nobody answers."""
        self._segment(side, FIN | ACK)

    def reset(self, side: int = 0, *, flags: int = RST | ACK, ttl: int | None = None, identification: int = 0) -> None:
        """RST from one side; with another TTL it is a device between the two that sends it."""
        self._segment(side, flags, ttl=ttl, identification=identification)

    def _segment(
        self, side: int, flags: int, data: bytes = b"", *, ttl: int | None = None, identification: int = 0
    ) -> None:
        ports = (self.client_port, self.server_port)
        segment = dpkt.tcp.TCP(
            sport=ports[side],
            dport=ports[1 - side],
            seq=self.next_number[side],
            ack=self.next_number[1 - side] if flags & ACK else 0,
            flags=flags,
            win=64240,
            data=data,
        )
        if flags & SYN:
            segment.opts = bytes([dpkt.tcp.TCP_OPT_MSS, 4]) + (1460).to_bytes(2, "big")
            segment.off = 6
        sent = identification or len(self.frames)
        raw = ethernet(self.addresses, side, segment, sent, self.ttl[side] if ttl is None else ttl)
        self.frames.append(Frame(self.clock.tick(), raw))
        self.next_number[side] += len(data) + bool(flags & (SYN | FIN))


def ethernet(
    addresses: tuple[bytes, bytes], side: int, segment: dpkt.tcp.TCP, identification: int, ttl: int = 64
) -> bytes:
    """An Ethernet frame with IPv4 around a segment; dpkt fills in both checksums."""
    packet = dpkt.ip.IP(
        src=addresses[side], dst=addresses[1 - side], p=dpkt.ip.IP_PROTO_TCP, ttl=ttl, id=identification, data=segment
    )
    packet.len = len(packet)
    stations = (b"\x02\0\0\0\0\x10", b"\x02\0\0\0\0\x01")
    return bytes(dpkt.ethernet.Ethernet(src=stations[side], dst=stations[1 - side], data=packet))


@dataclass(slots=True)
class Segment:
    """A segment of a recording, with the connection it belongs to."""

    index: int
    """Position of its frame in the list."""
    connection: int
    side: int
    number: int
    """Sequence number of the first byte of data."""
    flags: int
    data: bytes
    timestamp_ns: int


def segments(frames: Iterable[Frame]) -> list[Segment]:
    """The TCP segments of a recording; connections are numbered by their SYN, client first."""
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    found = []
    opened = 0
    for index, frame in enumerate(frames):
        network = dpkt.ethernet.Ethernet(frame.data).data
        if not isinstance(network.data, dpkt.tcp.TCP):
            continue
        tcp = network.data
        key = (network.src, tcp.sport, network.dst, tcp.dport)
        if tcp.flags & (SYN | ACK) == SYN:
            known[key] = (opened, 0)
            known[network.dst, tcp.dport, network.src, tcp.sport] = (opened, 1)
            opened += 1
        connection, side = known[key]
        number = tcp.seq + bool(tcp.flags & SYN)
        found.append(Segment(index, connection, side, number, tcp.flags, bytes(tcp.data), frame.timestamp_ns))
    return found


def streams(found: list[Segment]) -> dict[tuple[int, int], tuple[int, bytes]]:
    """Per connection and side the first sequence number and all bytes, of a recording without loss."""
    made: dict[tuple[int, int], tuple[int, bytearray]] = {}
    for one in found:
        first, data = made.setdefault((one.connection, one.side), (one.number, bytearray()))
        if one.number == first + len(data):
            data += one.data
    return {key: (first, bytes(data)) for key, (first, data) in made.items()}


Cut = Callable[[bytes], list[bytes]]


def resend(found: list[Segment], cut: Cut, arrange: Callable[[list[Frame]], list[Frame]] = list) -> list[Frame]:
    """The connections of a recording sent anew.

    What one side sent until the other side answered is joined, cut into other segments by `cut`, and its frames are
    put into another order by `arrange`.  The connections follow one another and keep their ports.
    """
    frames: list[Frame] = []
    clock = Clock()
    for connection in sorted({one.connection for one in found}):
        mine = [one for one in found if one.connection == connection]
        talk = Conversation(frames, clock, client_port=50000 + connection)
        talk.open()
        for side, data in _turns(mine):
            begin = len(frames)
            for piece in cut(data):
                talk.send(side, piece)
            _reorder(frames, begin, arrange)
            talk.acknowledge(1 - side)
        closing = next((one for one in mine if one.flags & (FIN | RST)), None)
        if closing is not None and closing.flags & RST:
            talk.reset(closing.side)
        elif closing is not None:
            talk.close(closing.side)
    return frames


def _turns(found: list[Segment]) -> list[tuple[int, bytes]]:
    turns: list[tuple[int, bytes]] = []
    for one in found:
        if not one.data:
            continue
        if turns and turns[-1][0] == one.side:
            turns[-1] = (one.side, turns[-1][1] + one.data)
        else:
            turns.append((one.side, one.data))
    return turns


def _reorder(frames: list[Frame], begin: int, arrange: Callable[[list[Frame]], list[Frame]]) -> None:
    times = [frame.timestamp_ns for frame in frames[begin:]]
    for place, (frame, time) in enumerate(zip(arrange(frames[begin:]), times, strict=True), begin):
        frames[place] = Frame(time, frame.data, frame.original_length)
