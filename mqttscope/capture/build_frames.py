"""Frames of TCP segments, built by dpkt: an IP header, a TCP header with its options, and the payload.

Everything that writes a capture of what no interface saw builds its frames here: recordings of live runs, generated
captures, and copies of TLS flows for tshark.
"""

from __future__ import annotations

from dpkt.ip import IP, IP_PROTO_TCP
from dpkt.ip6 import IP6
from dpkt.tcp import TCP

LINK_TYPE_RAW = 101
"""Frames begin with the IP header: there is no link that an endpoint could report."""
_HOP_LIMIT = 64
_V4_BYTES = 4
_UNCHECKED = 0xFFFF
"""In the place of a checksum: where there is one, dpkt leaves lengths and checksums as they are."""


def ip_frame(
    source: bytes,
    destination: bytes,
    ports: tuple[int, int],
    *,
    sequence: int,
    acknowledgment: int,
    flags: int,
    window: int,
    payload: bytes = b"",
    options: bytes = b"",
    missing: int = 0,
) -> bytes:
    """One TCP segment as an IP datagram, with correct lengths and checksums.

    ``source``, ``destination``: addresses, 4 or 16 bytes each.  ``ports``: of source and destination.  ``options``: of
    TCP, a multiple of 4 bytes.  ``missing``: bytes of the payload that are counted in the lengths, but not there; then
    there are no checksums.
    """
    segment = TCP(
        sport=ports[0], dport=ports[1], seq=sequence, ack=acknowledgment, flags=flags, win=window,
        off=5 + len(options) // 4, opts=options, data=payload,
    )  # fmt: skip
    length = len(segment) + missing
    if len(source) == _V4_BYTES:
        known = {"len": 20 + length, "sum": _UNCHECKED} if missing else {}
        return bytes(IP(src=source, dst=destination, p=IP_PROTO_TCP, ttl=_HOP_LIMIT, df=1, data=segment, **known))
    if missing:
        segment.sum = _UNCHECKED
    return bytes(IP6(src=source, dst=destination, nxt=IP_PROTO_TCP, hlim=_HOP_LIMIT, plen=length, data=segment))
