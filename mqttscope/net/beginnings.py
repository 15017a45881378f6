"""What connections begin with: a SYN, and the first bytes of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqttscope.net.flow import Flow
from mqttscope.net.reassembly import START_WINDOW, HalfStream
from mqttscope.net.segment import ACK, SYN, Segment, plain_key
from mqttscope.net.tap_views import COPY_NS, halves

_FEW: Final = 3
"""Maximum number of copies that come together without being sent so."""
_PROTOCOL_NAMES: Final = (b"\x00\x04MQTT", b"\x00\x06MQIsdp")


def is_syn(segment: Segment) -> bool:
    """Whether a segment is a SYN without ACK: it says nothing of the other side's numbers."""
    return segment.flags & (SYN | ACK) == SYN


def beginning_kind(payload: bytes) -> str:
    """What kind of beginning data is: CONNECT, CONNACK, an HTTP upgrade or its answer, a TLS hello; else empty."""
    first = payload[:1]
    if first == b"\x10" and any(2 <= payload.find(name, 2, 13) <= 5 for name in _PROTOCOL_NAMES):
        return "CONNECT"
    if first == b"\x20" and len(payload) >= 4 and payload[1] >= 2 and payload[2] <= 1:
        return "CONNACK"
    if payload[:2] == b"\x16\x03" and payload[5:6] in (b"\x01", b"\x02"):
        return "TLS"
    return "HTTP" if payload.startswith((b"GET /", b"HTTP/1.1 101")) else ""


def known_kind(half: HalfStream) -> str:
    """The kind of beginning with which a stream began."""
    return beginning_kind(half.beginning or b"".join(half.history[:1]))


def begins(half: HalfStream, segment: Segment) -> bool:
    """Whether data is a beginning of the kind with which the known stream began, if that is known."""
    kind = beginning_kind(segment.payload)
    return bool(kind) and known_kind(half) in ("", kind)


def last_beginning(kept: Sequence[Segment]) -> int:
    """Where in segments that are kept, one after the other, the last of several beginnings is; 0 for a single one."""
    last = 0
    for at, segment in enumerate(kept):
        if at and (is_syn(segment) or beginning_kind(segment.payload)):
            before = [other for other in kept[last:at] if plain_key(other.key) == plain_key(segment.key)]
            ahead = (other.sequence + len(other.payload) - segment.sequence & 0xFFFFFFFF for other in before)
            later = is_syn(segment) and segment.timestamp_ns - kept[at - 1].timestamp_ns > COPY_NS
            if later or any(1 < bytes_ahead <= START_WINDOW for bytes_ahead in ahead):
                last = at
    return last


def asks_for_connection(flow: Flow, segments: Sequence[Segment]) -> bool:
    """Whether segments with the numbers of a flow hold what its initiator begins a connection with, or are many."""
    return len(segments) > _FEW or any(
        segment.flags & SYN or (halves(flow, segment)[0] is flow.initiator and beginning_kind(segment.payload))
        for segment in segments
    )
