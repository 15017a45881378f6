"""Unusual forms of packets, which some receivers do not expect."""

from __future__ import annotations

from collections.abc import Container, Iterator

from mqttscope.events import MalformedEvent, UnparsedEvent
from mqttscope.mqtt import PacketType, packets
from mqttscope.mqtt.constants import MalformedReason
from mqttscope.mqtt.declare import ControlPacket

_ACKNOWLEDGEMENTS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
_PLAIN_ACKNOWLEDGEMENT = 4
"""Bytes of an acknowledgement without a Reason Code, the only form before 5.0."""
_USUAL_KEEP_ALIVES = frozenset((5, 10, 15, 20, 30, 45, 60, 90, 100, 120, 180, 240))
"""In seconds; with their bytes swapped they are values that nobody chooses."""

_NO_PACKET = frozenset(
    (
        MalformedReason.TRUNCATED, MalformedReason.PACKET_TYPE_RESERVED, MalformedReason.FIXED_HEADER_FLAGS,
        MalformedReason.REMAINING_LENGTH_TOO_LONG, MalformedReason.REMAINING_LENGTH_WRONG,
    )
)  # fmt: skip
"""Faults of a fixed header that may not be a header at all."""
ENDS = frozenset(("reset", "port_reused", "idle", "evicted", "capture_end"))
"""Reasons of bytes that were not read (`mqtt.stream.Unparsed`), if the end of the connection cut their packet."""
_LAST_OLD_CODE = 5
"""Highest return code of a CONNACK before 5.0."""


def oddity(packet: ControlPacket) -> str:
    """Unusual form of a packet, or empty."""
    kind = packet.packet_type.name
    if len(packet.raw) > 2 and packet.raw[1] >= 0x80 and _length_bytes(packet.raw) > _length_bytes_needed(packet.raw):
        return f"{kind} with a Remaining Length in {_length_bytes(packet.raw)} bytes, which needs fewer"
    if isinstance(packet, packets.Publish) and packet.dup:
        return f"{kind} with DUP"
    if packet.packet_type in _ACKNOWLEDGEMENTS and len(packet.raw) > _PLAIN_ACKNOWLEDGEMENT:
        return f"{kind} of {len(packet.raw)} bytes, with a Reason Code"
    return ""


def unused_identifier(packet: ControlPacket, requests: Container[int]) -> str:
    """An acknowledgment for an identifier that is not in use, as words, or empty; ``requests``: identifiers in use."""
    identifier = getattr(packet, "packet_identifier", None) or 0
    if packet.packet_type not in (PacketType.PUBREC, PacketType.PUBACK) or identifier in requests:
        return ""
    return f"{packet.packet_type.name} for identifier {identifier}, which the client had not used on this connection"


def _length_bytes(raw: bytes) -> int:
    return next((at for at in range(1, 5) if at < len(raw) and raw[at] < 0x80), 4)


def _length_bytes_needed(raw: bytes) -> int:
    length = announced(raw) - 1 - _length_bytes(raw)
    return 1 if length < 1 << 7 else 2 if length < 1 << 14 else 3 if length < 1 << 21 else 4


def unusual(connect: packets.Connect) -> Iterator[tuple[str, str]]:
    """Features of a CONNECT that some brokers refuse, each with advice."""
    if connect.bridge:
        yield (
            "its protocol level has the bridge bit (0x80), which most brokers but mosquitto do not know",
            "Switch the bridge bit off (mosquitto: try_private false).",
        )
    if connect.will is not None and connect.will.will_retain:
        yield (
            "its will is retained, which brokers without retained messages refuse",
            "Try a will without RETAIN, or none (mosquitto bridges: notifications false).",
        )
    swapped = (connect.keep_alive or 0) >> 8
    if connect.keep_alive == swapped << 8 and swapped in _USUAL_KEEP_ALIVES:
        yield (
            f"its Keep Alive of {connect.keep_alive:,} s would be {swapped} s with its two bytes swapped",
            "Write two-byte numbers with the high byte first.",
        )


def announced(raw: bytes) -> int:
    """Bytes that a packet should have by its fixed header; 0 where that is missing."""
    length = shift = 0
    for at, byte in enumerate(raw[1:5], 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return at + length
    return 0


def is_whole(event: MalformedEvent | UnparsedEvent) -> bool:
    """Whether the bytes are a packet of the length that it announces, malformed inside."""
    return (
        isinstance(event, MalformedEvent)
        and bool(event.malformed.packet_type)
        and not event.malformed.missing
        and event.malformed.reason not in _NO_PACKET
    )


def old_refusal(raw: bytes) -> int:
    """The return code of a refusing CONNACK that is laid out as before 5.0; 0 for all other bytes (3.1.1 3.2)."""
    return raw[3] if len(raw) == 4 and raw[:3] == b"\x20\x02\x00" and raw[3] <= _LAST_OLD_CODE else 0
