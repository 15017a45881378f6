"""Payloads whose bytes are learned later: split, repeated, overlapping, spooled into a file."""

from __future__ import annotations

import io
import random

from mqttscope.redact.frames import DatagramPart, MovedFrame, folded, word_sum
from mqttscope.redact.kinds import FILLER, filler
from mqttscope.redact.pieces import HISTORY, DirectionPieces, FrameSpool
from tests.each import each

HEAD = 20


def segment(spool: FrameSpool, direction: DirectionPieces, start: int, payload: bytes) -> MovedFrame:
    """A frame with 20 bytes before its payload, with a checksum over it at byte 16."""
    data = bytearray(HEAD) + filler(len(payload))
    data[16:18] = (~folded(word_sum(data[HEAD:])) & 0xFFFF).to_bytes(2, "big")
    frame = MovedFrame(0, 101, len(data), data, b"g", payload=HEAD, checksum=16)
    direction.add(frame, start & 0xFFFFFFFF, payload, spool.put)
    spool.append(frame)
    return frame


def held(spool: FrameSpool) -> list[bytes]:
    """Payloads of all frames, whose checksums are right."""
    chunks = []
    for frame in spool.frames():
        assert frame.data is not None
        assert folded(word_sum(frame.data[16:18]) + word_sum(frame.data[HEAD:])) in (0xFFFF, 0)
        chunks.append(bytes(frame.data[HEAD:]))
    return chunks


@each("memory", [1, 1 << 20], ids=["in a file", "in memory"])
def test_bytes_come_where_they_lie(memory: int) -> None:
    spool, direction = FrameSpool(io.BytesIO(), memory), DirectionPieces()
    for at in range(0, 26, 3):
        segment(spool, direction, 0xFFFFFFF8 + at, b"abcdefghijklmnopqrstuvwxyz"[at : at + 3])

    direction.learn(0xFFFFFFF8, b"abcdefghij", b"ABCDEFGHIJ", spool.put)
    direction.learn(2, b"klmnop", b"KLMNOP", spool.put)

    raw = b"".join(held(spool))
    assert raw[:16] == b"ABCDEFGHIJKLMNOP"
    assert raw[16:] == filler(10)


def test_what_is_sent_again_is_the_same_and_what_differs_stays_different() -> None:
    spool, direction = FrameSpool(io.BytesIO()), DirectionPieces()
    segment(spool, direction, 100, b"secret")
    direction.learn(100, b"secret", b"qwerty", spool.put)
    segment(spool, direction, 100, b"secret")
    segment(spool, direction, 98, b"..secXet++")
    segment(spool, direction, 103, b"ret")

    first, again, longer, part = held(spool)
    assert first == again == b"qwerty"
    assert part == b"rty"
    assert longer[2:5] + longer[6:8] == b"qwe" + b"ty"
    assert longer[5] not in (ord("r"), ord("X"))


def test_copies_that_came_before_are_filled_in_as_well() -> None:
    spool, direction = FrameSpool(io.BytesIO()), DirectionPieces()
    for start, payload in ((100, b"sec"), (100, b"secret"), (103, b"ret"), (102, b"cXet")):
        segment(spool, direction, start, payload)
    direction.learn(100, b"secret", b"qwerty", spool.put)

    assert held(spool)[:3] == [b"qwe", b"qwerty", b"rty"]
    assert held(spool)[3] in (b"e" + bytes((number,)) + b"ty" for number in FILLER[:2])


def test_another_connection_with_the_same_numbers_has_its_own_bytes() -> None:
    spool, direction = FrameSpool(io.BytesIO()), DirectionPieces()
    segment(spool, direction, 100, b"secret")
    direction.learn(100, b"secret", b"qwerty", spool.put)
    direction.end()
    segment(spool, direction, 100, b"secret")
    direction.learn(100, b"secret", b"zzzzzz", spool.put)

    assert held(spool) == [b"qwerty", b"zzzzzz"]


def test_what_nobody_learns_is_filler_and_is_let_go() -> None:
    spool, direction = FrameSpool(io.BytesIO()), DirectionPieces()
    for number in range(200):
        segment(spool, direction, number * 4, b"lost")
    direction.release_until(100 * 4)
    assert len(direction.waiting) == 100
    assert len(direction.history) == HISTORY

    assert set(held(spool)) == {filler(4)}


def test_a_payload_may_lie_in_several_frames() -> None:
    spool = FrameSpool(io.BytesIO(), 1)
    parts = []
    for number, length in enumerate((8, 5)):
        data = bytearray(HEAD) + filler(length)
        checksum = -1 if number else 16
        frame = MovedFrame(0, 101, len(data), data, bytes(1), payload=HEAD, checksum=checksum)
        if not number:
            data[16:18] = (~folded(word_sum(filler(13))) & 0xFFFF).to_bytes(2, "big")
        spool.append(frame)
        parts.append(DatagramPart(8 * number, length, frame, HEAD))
    joined = MovedFrame(0, 0, 0, None, parts=parts)
    direction = DirectionPieces()
    direction.add(joined, 50, b"thirteen-byte", spool.put)
    direction.learn(53, b"rteen-byt", b"RTEEN-BYT", spool.put)
    for part in parts:
        spool.assign_group(part.frame, b"g")

    first, second = (frame for frame in spool.frames())
    assert first.data is not None
    assert second.data is not None
    payload = bytes(first.data[HEAD:] + second.data[HEAD:])
    assert payload[3:12] == b"RTEEN-BYT"
    assert folded(word_sum(first.data[16:18]) + word_sum(payload)) in (0xFFFF, 0)
    assert (first.group, second.group) == (b"g", b"g")


def test_any_order_of_segments_gives_the_same() -> None:
    text = bytes(range(65, 91)) * 4
    raw = bytes(number + 32 for number in text)
    for seed in range(30):
        draw = random.Random(seed)
        spool, direction = FrameSpool(io.BytesIO(), draw.choice((1, 1 << 20))), DirectionPieces()
        cuts = [(at, draw.randrange(5, 12)) for at in range(0, len(text), 5)]
        draw.shuffle(cuts)
        for at, length in cuts:
            segment(spool, direction, 1000 + at, text[at : at + length])
        at = 0
        while at < len(text):
            stop = at + draw.randrange(1, 30)
            direction.learn(1000 + at, text[at:stop], raw[at:stop], spool.put)
            at = stop
        again = [(at, draw.randrange(1, 20)) for at in range(0, len(text), 9)]
        for at, length in again:
            segment(spool, direction, 1000 + at, text[at : at + length])
        for (at, length), payload in zip((*cuts, *again), held(spool), strict=True):
            assert payload == raw[at : at + length]
