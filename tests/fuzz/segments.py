"""No matter in which order, how often and how damaged segments come, each stream is told once, in order, within limits.

The input: limits of the table, then segments, each a byte for flow, direction and time, flags, signed distances of
sequence and acknowledgment number from where the direction stands, a byte of window and cut, and the payload.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqttscope.budget import Budget
from mqttscope.mqtt import ProtocolVersion
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN, Segment, direction_key, reverse_key
from tests.fuzz.laws import check_dissection, check_flows
from tests.fuzz.material import conversations, names
from tests.fuzz.target import Input

MAX_LENGTH = 4_000
KEYS = tuple(
    direction_key(bytes((10, 0, 0, 1, 10, 0, 0, 2)), client.to_bytes(2, "big") + server.to_bytes(2, "big"))
    for client, server in ((50_000, 1883), (50_001, 8080), (50_002, 9), (1883, 40_000))
)
STEPS_NS = (1_000, 100_000_000, 2_500_000_000, 8_000_000_000_000)
START = (0xFFFF_FF00, 5_000)
"""First sequence numbers of both directions; those of the first wrap soon."""
FAR = (0, 1 << 16, 1 << 22, 1 << 31)


def check(data: bytes) -> None:
    """The law for some segments."""
    source = Input(data)
    limits = source.number()
    segments = list(given(source))
    check_flows(segments, _table(limits))
    check_dissection(segments, ProtocolVersion.V5 if limits & 1 else None)


def _table(limits: int) -> FlowTable:
    """A table whose limits are as usual, or so small that they are hit."""
    if not limits & 2:
        return FlowTable()
    return FlowTable(
        max_flows=1 + (limits >> 2 & 3),
        max_buffered_bytes=(20, 100, 1_000, 60_000)[limits >> 4 & 3],
        max_buffered_segments=(1, 3, 8, 100)[limits >> 6],
        budget=Budget((30, 300, 3_000, 100_000)[limits >> 4 & 3]),
    )


def given(source: Input) -> Iterator[Segment]:
    now, number = 1_767_225_600_000_000_000, 0
    # Where a well-behaved sender would continue, by flow and direction.
    stands = {(flow, side): START[side] for flow in range(len(KEYS)) for side in (0, 1)}
    while source.left():
        where, flags = source.number(), source.number()
        ahead, acknowledged, tail, size = source.number(), source.number(), source.number(), source.number()
        payload = source.take(size)
        flow, side = where & 3, where >> 2 & 1
        key = KEYS[flow] if side == 0 else reverse_key(KEYS[flow])
        number += 1
        now += STEPS_NS[where >> 3 & 3]
        sequence = stands[flow, side] + _distance(ahead)
        missing = (tail & 7) * 100 if tail & 8 else 0
        if not ahead:
            used_number = len(payload) + missing + bool(flags & SYN) + bool(flags & FIN)
            stands[flow, side] = (stands[flow, side] + used_number) & 0xFFFFFFFF
        acknowledgment = stands[flow, 1 - side] + _distance(acknowledged)
        window = 0 if tail & 0x80 else 64_000
        sequence, acknowledgment = sequence & 0xFFFFFFFF, acknowledgment & 0xFFFFFFFF
        yield Segment(
            key, sequence, acknowledgment, flags & 0x3F, window, payload, missing, number, now, "fuzz"
        )  # fmt: skip


def _distance(byte: int) -> int:
    """A signed distance: 0 is none, bit 7 its sign, bits 6-5 how far off, the others count bytes."""
    size = (byte & 0x1F) + FAR[byte >> 5 & 3]
    return -size if byte & 0x80 else size


def written(side: int, flags: int, payload: bytes = b"", *, flow: int = 0, ahead: int = 0, step: int = 0) -> bytes:
    """Segments in the form of the input: as many as the payload needs."""
    raw = b""
    pieces = [payload[at : at + 255] for at in range(0, len(payload), 255)] or [b""]
    for piece in pieces:
        raw += bytes((flow | side << 2 | step << 3, flags, ahead, 0, 0, len(piece))) + piece
    return raw


def seeds() -> Iterator[bytes]:
    """The conversations of the captures: in order, without handshake, with pieces exchanged, repeated and left out."""
    opening = written(0, SYN) + written(1, SYN | ACK) + written(0, ACK)
    ending = written(0, FIN | ACK) + written(1, FIN | ACK) + written(0, ACK)
    flows = (conversation for name in names() for conversation in conversations(name))
    for number, flow in enumerate(flows):
        if flow:
            pieces = [written(0 if side else 1, PSH | ACK, data) for side, data in flow]
            yield (
                bytes((number & 1,)) + opening + b"".join(pieces) + ending,
                b"\x00" + b"".join(pieces[1:]),
                b"\x56" + opening + b"".join(pieces[:2] + pieces[3:]) + written(1, RST | ACK),
                b"\x00" + opening + b"".join(piece + piece for piece in pieces) + ending,
                b"\x02" + opening + b"".join(_overtaken(flow)) + ending,
            )[number % 5]


def _overtaken(pairs: tuple[tuple[bool, bytes], ...]) -> Iterator[bytes]:
    for side, data in pairs:
        who = 0 if side else 1
        if 1 < len(data) < 32:
            yield written(who, ACK, data[1:], ahead=1)
            yield written(who, ACK, data[:1])
            yield written(who, ACK, data[1:])
        else:
            yield written(who, ACK, data)
