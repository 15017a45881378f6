"""TCP segments, their endpoints, and reasons why a frame has no segment.

Sequence numbers wrap at 2**32: `distance` and `advance` count with them (RFC 9293 section 3.4).

A frame without a TCP segment has a reason (`NotSegment.reason`).  Most reasons are ordinary: ARP, DNS, ICMP.  Those
in `UNREAD` are not: the frame may contain MQTT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv6Address
from typing import Final

from mqttscope.net.checksum import UNJUDGED

MODULUS: Final = 1 << 32
MASK: Final = MODULUS - 1
HALF: Final = 1 << 31


def distance(start: int, end: int) -> int:
    """Signed number of bytes from ``start`` forward to ``end`` (RFC 9293 section 3.4): 20 from 2**32 - 10 to 10."""
    return ((end - start + HALF) & MASK) - HALF


def advance(sequence: int, count: int) -> int:
    """Sequence number ``count`` bytes after ``sequence``; ``count`` may be negative and of any size."""
    return (sequence + count) & MASK


FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10


@dataclass(slots=True)
class Segment:
    """One TCP segment (RFC 9293 section 3.1), with the data of its frame that reassembly needs."""

    key: bytes
    """Direction key: source address, destination address (4 or 16 bytes each), source port, destination port
    (2 bytes each, big endian), then the encapsulation (VLAN identifiers, tunnel identifiers), usually empty."""
    sequence: int
    acknowledgment: int
    """Acknowledgment number; meaningless when the ACK bit of ``flags`` is clear."""
    flags: int
    window: int
    payload: bytes
    missing: int
    """Number of payload bytes after ``payload`` that the snap length cut off."""
    frame: int
    """Number of the frame that completed the segment (the last one, for IP fragments)."""
    timestamp_ns: int
    capture: str
    options: bytes = b""
    """The options of the TCP header with their padding, as far as captured."""
    checksum: int = field(default=UNJUDGED, compare=False)
    """Result of the checksum: `checksum.UNJUDGED`, ``RIGHT`` or ``WRONG``."""


@dataclass(slots=True)
class Fragment:
    """One IP fragment; ``fragments.FragmentTable`` reassembles a complete set into segments."""

    key: bytes
    """Source and destination address, identification, protocol, encapsulation: equal in all fragments."""
    offset: int
    """Offset of ``data`` in the datagram's payload, in bytes."""
    more: bool
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
    """Why a frame has no TCP segment.  Instances are shared constants, compared by identity or ``reason``.

    Only `DnsMessage` has instances of its own.
    """

    reason: str
    """Stable snake_case word: ``unsupported_link_type``, ``not_ip``, ``not_tcp``, ``truncated``, ``malformed``,
    or one of `UNREAD`."""
    detail: str
    """One sentence for people, such as "link type 147 (USER0) is not supported"."""


@dataclass(slots=True, frozen=True)
class DnsMessage(NotSegment):
    """A datagram from or to UDP port 53, which may name addresses (`host_names.HostNames`)."""

    client: bytes
    server: bytes
    """Addresses."""
    data: bytes
    """The payload, as far as captured."""
    frame: int = 0
    timestamp_ns: int = 0


def direction_key(addresses: bytes, ports: bytes, encapsulation: bytes = b"") -> bytes:
    """Build a direction key of addresses (8 or 32 bytes), ports (4 bytes) and an even number of further bytes.

    Plain keys have 12 or 36 bytes, so that the hot path can slice them out of a frame; a key with an encapsulation
    ends with the IP version and has an odd length, so the three never collide.
    """
    if not encapsulation:
        return addresses + ports
    return addresses + ports + encapsulation + (b"\x04" if len(addresses) == 8 else b"\x06")


def is_ipv4_key(key: bytes) -> bool:
    return len(key) == 12 or (len(key) % 2 == 1 and key[-1] == 4)


def reverse_key(key: bytes) -> bytes:
    """Direction key of the opposite direction: addresses and ports swapped, encapsulation kept."""
    if is_ipv4_key(key):
        return key[4:8] + key[0:4] + key[10:12] + key[8:10] + key[12:]
    return key[16:32] + key[0:16] + key[34:36] + key[32:34] + key[36:]


def plain_key(key: bytes) -> bytes:
    """A direction key without its encapsulation: equal at all places where a segment is captured."""
    return key if len(key) == 12 else key[:12] if is_ipv4_key(key) else key[:36]


def group_key(key: bytes) -> bytes:
    """The common key of all segments that may belong to one flow, wherever they were captured."""
    return plain_key(flow_key(key))


def flow_key(key: bytes) -> bytes:
    """The common key of both directions of a flow: the smaller direction key."""
    return min(key, reverse_key(key))


def endpoints(key: bytes) -> tuple[str, str]:
    """Source and destination of a direction key as text: ``10.0.0.4:51234``, ``[fd00::1]:1883``."""
    if is_ipv4_key(key):
        # Equal to the text of `IPv4Address`, but many times faster.
        return (
            f"{key[0]}.{key[1]}.{key[2]}.{key[3]}:{key[8] << 8 | key[9]}",
            f"{key[4]}.{key[5]}.{key[6]}.{key[7]}:{key[10] << 8 | key[11]}",
        )
    return (
        f"[{IPv6Address(key[0:16])}]:{int.from_bytes(key[32:34], 'big')}",
        f"[{IPv6Address(key[16:32])}]:{int.from_bytes(key[34:36], 'big')}",
    )


def ports(key: bytes) -> tuple[int, int]:
    """Source and destination port of a direction key."""
    at = 8 if is_ipv4_key(key) else 32
    return int.from_bytes(key[at : at + 2], "big"), int.from_bytes(key[at + 2 : at + 4], "big")


READS, WITH_KEYS, NOTHING = "tshark", "tshark with keys", "nothing"
"""Programs that can read a frame which mqttscope does not read."""


@dataclass(slots=True, frozen=True)
class UnreadReason:
    """One reason for an unread frame."""

    words: str
    """The unread frames, in words that follow "3 frames"."""
    reader: str
    """`READS`, `WITH_KEYS` or `NOTHING`."""
    note: str = ""
    """An additional remark."""
    group: str = "not_tcp"
    """The coarser reason that includes this one."""


UNREAD: Final[dict[str, UnreadReason]] = {
    **{
        f"gtp_u_version_{number}": UnreadReason(f"of GTP-U version {number}", READS) for number in (0, 2, 3, 4, 5, 6, 7)
    },
    "gtp_u": UnreadReason("of GTP-U with unknown content", READS),
    "erspan": UnreadReason("of ERSPAN in an unknown form", READS),
    "vxlan_gpe": UnreadReason("of VXLAN-GPE with unknown content", READS),
    "tzsp": UnreadReason("of TZSP with unknown content", READS),
    "l2tp_version_3": UnreadReason("of L2TP version 3", READS),
    "ppp_compressed": UnreadReason("of PPP with compressed headers", READS, group="not_ip"),
    "ppp_encrypted": UnreadReason("of encrypted or compressed PPP", NOTHING, group="not_ip"),
    "capwap": UnreadReason("of CAPWAP", READS),
    "teredo": UnreadReason("of Teredo", READS),
    "lisp": UnreadReason("of LISP", READS),
    "wlan_encrypted": UnreadReason("of encrypted 802.11", WITH_KEYS, group="not_ip"),
    "wlan_fragment": UnreadReason("of fragmented 802.11", READS, group="not_ip"),
    "wlan_aggregate": UnreadReason("of aggregated 802.11", READS, group="not_ip"),
    "macsec": UnreadReason("of encrypted MACsec", WITH_KEYS, group="not_ip"),
    "esp": UnreadReason("of encrypted IPsec", WITH_KEYS),
    "wireguard": UnreadReason("of encrypted WireGuard", WITH_KEYS),
    "mqtt_sn": UnreadReason("of MQTT-SN over UDP", NOTHING, "not MQTT"),
    "quic": UnreadReason("of QUIC", NOTHING, "MQTT over QUIC is encrypted"),
    "incomplete_fragments": UnreadReason("with IP fragments of TCP whose other fragments are missing", NOTHING),
    "unsupported_link_type": UnreadReason("of an unsupported link type", READS, group="unsupported_link_type"),
    "malformed": UnreadReason("with malformed headers", NOTHING, group="malformed"),
    "truncated": UnreadReason("cut inside their headers by the snap length", NOTHING, group="truncated"),
}
"""Notable reasons, in the order of their mention."""


INCOMPLETE_FRAGMENTS, MALFORMED, TRUNCATED = "incomplete_fragments", "malformed", "truncated"
"""Reasons for frames without a segment that are incomplete or damaged in the capture."""
NoteSkipped = Callable[[str, str, int], object]
"""Takes the capture, the reason, and the number of frames without a TCP segment."""


@cache
def unread(name: str) -> NotSegment:
    """The shared constant of a reason of `UNREAD`."""
    return NotSegment(name, f"the frame is one {UNREAD[name].words}, which is not read")


def notable_reasons(skipped: Mapping[str, int]) -> dict[str, int]:
    """The notable reasons among counts of frames by reason."""
    return {name: skipped[name] for name in UNREAD if skipped.get(name)}
