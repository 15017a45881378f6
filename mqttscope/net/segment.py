"""TCP segments, the endpoints they run between, and why a frame holds none.

What comes before what: TCP sequence numbers, which wrap at 2**32 (RFC 9293 section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

MODULUS = 1 << 32
MASK = MODULUS - 1
HALF = 1 << 31


def distance(start: int, end: int) -> int:
    """Signed number of bytes from ``start`` forward to ``end``, in -2**31 ... 2**31 - 1 (RFC 9293 section 3.4).

    ``distance(2**32 - 10, 10)`` is 20; it is negative when ``end`` lies before ``start``.
    """
    return ((end - start + HALF) & MASK) - HALF


def advance(sequence: int, count: int) -> int:
    """Sequence number ``count`` bytes after ``sequence``; ``count`` may be negative and of any size."""
    return (sequence + count) & MASK


FIN = 0x01
SYN = 0x02
RST = 0x04
PSH = 0x08
ACK = 0x10


@dataclass(slots=True)
class Segment:
    """One TCP segment (RFC 9293 section 3.1) with what reassembly needs of its frame."""

    key: bytes
    """Direction key: source address, destination address (4 or 16 bytes each), source port, destination port
    (2 bytes each, big endian), then the encapsulation (VLAN identifiers, tunnel identifiers), usually empty."""
    sequence: int
    acknowledgment: int
    """Acknowledgment number; without meaning when the ACK bit of ``flags`` is clear."""
    flags: int
    window: int
    payload: bytes
    """The captured payload."""
    missing: int
    """How many payload bytes the snap length cut off after ``payload``."""
    frame: int
    """Number of the frame that completed the segment (the last one, for IP fragments)."""
    timestamp_ns: int
    capture: str
    options: bytes = b""
    """The options of the TCP header with their padding, as far as they were captured."""


@dataclass(slots=True)
class Fragment:
    """One IP fragment; ``fragments.FragmentTable`` turns a full set of them into segments."""

    key: bytes
    """Source and destination address, identification, protocol, encapsulation: equal for all parts of a datagram."""
    offset: int
    """Offset of ``data`` in the datagram's payload, in bytes."""
    more: bool
    """More Fragments bit."""
    protocol: int
    """Protocol of the datagram's payload (6 is TCP)."""
    data: bytes
    missing: int
    """Bytes that the snap length cut off after ``data``."""
    source: bytes
    destination: bytes
    encapsulation: bytes
    frame: int
    timestamp_ns: int
    capture: str


@dataclass(slots=True, frozen=True)
class NotSegment:
    """Why a frame holds no TCP segment.  Instances are shared constants, compared by identity or ``reason``."""

    reason: str
    """Stable snake_case word: ``unsupported_link_type``, ``not_ip``, ``not_tcp``, ``truncated``, ``malformed``,
    or one of `unread.UNREAD`."""
    detail: str
    """One sentence for people, such as "link type 147 (USER0) is not supported"."""


def direction_key(addresses: bytes, ports: bytes, encapsulation: bytes = b"") -> bytes:
    """Build a direction key.

    ``addresses`` is source then destination (8 or 32 bytes), ``ports`` likewise (4 bytes), ``encapsulation`` an even
    number of bytes.  Plain keys are 12 or 36 bytes long, so that the hot path can slice them out of a frame; a key
    with an encapsulation ends with the IP version and has an odd length, so the three never collide.
    """
    if not encapsulation:
        return addresses + ports
    return addresses + ports + encapsulation + (b"\x04" if len(addresses) == 8 else b"\x06")


def is_ipv4_key(key: bytes) -> bool:
    """Whether a direction key holds IPv4 addresses (otherwise IPv6)."""
    return len(key) == 12 or (len(key) % 2 == 1 and key[-1] == 4)


def reverse_key(key: bytes) -> bytes:
    """Direction key of the opposite direction: addresses and ports swapped, encapsulation kept."""
    if is_ipv4_key(key):
        return key[4:8] + key[0:4] + key[10:12] + key[8:10] + key[12:]
    return key[16:32] + key[0:16] + key[34:36] + key[32:34] + key[36:]


def plain_key(key: bytes) -> bytes:
    """A direction key without its encapsulation: the same for all places in which a segment is captured."""
    return key[:12] if is_ipv4_key(key) else key[:36]


def group_key(key: bytes) -> bytes:
    """The key that all segments share which may belong to one flow, in whichever places they were captured."""
    return plain_key(flow_key(key))


def flow_key(key: bytes) -> bytes:
    """The key that both directions of a flow share: that of the direction which sorts first."""
    return min(key, reverse_key(key))


def endpoints(key: bytes) -> tuple[str, str]:
    """Source and destination of a direction key as text: ``10.0.0.4:51234``, ``[fd00::1]:1883``."""
    if is_ipv4_key(key):
        return (
            f"{IPv4Address(key[0:4])}:{int.from_bytes(key[8:10], 'big')}",
            f"{IPv4Address(key[4:8])}:{int.from_bytes(key[10:12], 'big')}",
        )
    return (
        f"[{IPv6Address(key[0:16])}]:{int.from_bytes(key[32:34], 'big')}",
        f"[{IPv6Address(key[16:32])}]:{int.from_bytes(key[34:36], 'big')}",
    )


def ports(key: bytes) -> tuple[int, int]:
    """Source and destination port of a direction key."""
    at = 8 if is_ipv4_key(key) else 32
    return int.from_bytes(key[at : at + 2], "big"), int.from_bytes(key[at + 2 : at + 4], "big")
