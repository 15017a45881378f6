"""Bytes of Ethernet frames around TCP payloads, with right lengths and checksums, and the pcapng file they go to.

Written for speed, since captures of a million frames are made of it; shares nothing with the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct, pack
from typing import BinaryIO

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
MSS = 1448
"""Payload of a full segment: Ethernet's 1500 bytes less IPv4, TCP and its time stamps."""
BUFFER_BYTES = 1 << 20
START_NS = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""

_IPV4 = Struct("!HHHBBH").pack
_IPV6 = Struct("!HBB").pack
_TCP = Struct("!IIBBHHHIII").pack
_BLOCK = Struct("<IIIIIII").pack
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_TIME_STAMPS = 0x0101080A  # two no-operations, kind 8, length 10
_TCP_LENGTH = 32


@dataclass(slots=True)
class Line:
    """One direction of a connection: everything of its frames that never changes."""

    head: bytes
    """Ethernet with tags, and IP up to its length."""
    tail: bytes
    """Addresses and ports."""
    ip_sum: int
    pseudo_sum: int
    version: int


@dataclass(slots=True)
class Link:
    """A connection as TCP sees it; side 0 is the client."""

    lines: tuple[Line, Line]
    sequence: list[int]
    """The next sequence number of each side."""
    identification: int = 0


def link(
    version: int, addresses: tuple[bytes, bytes], ports: tuple[int, int], vlan: int, sequence: tuple[int, int]
) -> Link:
    """A new connection between two hosts; ``vlan`` 0 is none."""
    macs = [b"\x02\0" + address[-4:] for address in addresses]
    lines = []
    for here, there in ((0, 1), (1, 0)):
        tag = pack("!HH", 0x8100, vlan) if vlan else b""
        head = macs[there] + macs[here] + tag + (b"\x08\0\x45\0" if version == 4 else b"\x86\xdd\x60\0\0\0")
        pair = addresses[here] + addresses[there]
        tail = pair + pack("!HH", ports[here], ports[there])
        of_pair = int.from_bytes(pair, "big") % 65_535
        fixed = 0x4500 + 0x4000 + (64 << 8 | 6) + of_pair
        lines.append(Line(head, tail, fixed, of_pair + 6 + ports[here] + ports[there], version))
    return Link((lines[0], lines[1]), list(sequence))


@dataclass(slots=True)
class Writer:
    """Frames to a pcapng file (one section, one Ethernet interface, nanoseconds), gathered in large pieces."""

    file: BinaryIO
    now_ns: int
    frames: int = 0
    size: int = 0
    parts: list[bytes] = field(default_factory=list)
    held: int = 0

    def start(self) -> None:
        """Section header and interface description."""
        self.file.write(pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        self.file.write(pack("<IIHHIHHB3xHHI", 1, 32, 1, 0, 262_144, 9, 1, 9, 0, 0, 32))

    def segment(self, link: Link, side: int, sequence: int, payload: bytes, flags: int, step_ns: int) -> None:
        """Append one frame; its time is ``step_ns`` after the one before."""
        line = link.lines[side]
        self.now_ns = now = self.now_ns + step_ns
        stamp = now >> 20 & 0xFFFFFFFF
        acknowledgment = link.sequence[1 - side] if flags & ACK else 0
        length = _TCP_LENGTH + len(payload)
        checksum = (
            0xFFFF
            - (
                line.pseudo_sum
                + length
                + (sequence >> 16)
                + (sequence & 0xFFFF)
                + (acknowledgment >> 16)
                + (acknowledgment & 0xFFFF)
                + (0x8000 | flags)
                + 0xF000
                + 0x0101
                + 0x080A
                + 2 * ((stamp >> 16) + (stamp & 0xFFFF))
                + (int.from_bytes(payload, "big") << (len(payload) & 1) * 8)
            )
            % 65_535
        )
        tcp = _TCP(sequence, acknowledgment, 0x80, flags, 0xF000, checksum, 0, _TIME_STAMPS, stamp, stamp)
        if line.version == 4:
            link.identification = identification = (link.identification + 1) & 0xFFFF
            total = length + 20
            ip_checksum = 0xFFFF - (line.ip_sum + total + identification) % 65_535
            ip = _IPV4(total, identification, 0x4000, 64, 6, ip_checksum)
        else:
            ip = _IPV6(length, 6, 64)
        frame = b"".join((line.head, ip, line.tail, tcp, payload))
        size = len(frame)
        padding = _PADDING[size & 3]
        block = 32 + size + len(padding)
        header = _BLOCK(6, block, 0, now >> 32, now & 0xFFFFFFFF, size, size)
        self.parts += (header, frame, padding, header[4:8])
        self.frames += 1
        self.size += size
        self.held += block
        if self.held >= BUFFER_BYTES:
            self.flush()

    def bare(self, link: Link, side: int, flags: int, step_ns: int) -> None:
        """Append a frame without data."""
        self.segment(link, side, link.sequence[side], b"", flags, step_ns)
        if flags & (SYN | FIN):
            link.sequence[side] = (link.sequence[side] + 1) & 0xFFFFFFFF

    def data(self, link: Link, side: int, payload: bytes, step_ns: int) -> None:
        """Append a frame with the data that come next."""
        self.segment(link, side, link.sequence[side], payload, PSH | ACK, step_ns)
        link.sequence[side] = (link.sequence[side] + len(payload)) & 0xFFFFFFFF

    def handshake(self, link: Link, step_ns: int) -> None:
        """Append SYN, SYN-ACK and ACK."""
        for side, flags in ((0, SYN), (1, SYN | ACK), (0, ACK)):
            self.bare(link, side, flags, step_ns)

    def flush(self) -> None:
        """Write what was gathered."""
        self.file.write(b"".join(self.parts))
        self.parts.clear()
        self.held = 0


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """A new capture."""
    with path.open("wb") as file:
        writer = Writer(file, START_NS)
        writer.start()
        yield writer
        writer.flush()
