"""WebSockets with other content: masks, fragments, control frames and compression."""

from __future__ import annotations

import random
import zlib

import pytest

from mqttscope.mqtt import Publish
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment
from mqttscope.net.websocket import WebSocket
from mqttscope.redact import websockets
from mqttscope.redact.websockets import _empty_blocks, fit
from tests.dissect.scenes import MASK
from tests.dissect.talk import CONNACK, Talk, connect, wire
from tests.each import each
from tests.net.framing import FLUSH, application, deflate, frame, request, response
from tests.redact.redacting import redacted, redaction, shapes, taped

SECRET = b"secret of the boiler"
PUBLISH = wire(Publish(topic_name="plant/boiler", payload=SECRET))


def opened(extra: str = "") -> Talk:
    talk = Talk(port=8080).handshake()
    talk.client(request(extra))
    talk.server(response(extra))
    return talk


def carried(talk: Talk) -> tuple[bytes, bytes]:
    """What the client and the server have said inside of their frames."""
    web, result = WebSocket(), {True: b"", False: b""}
    for single_frame in redacted(taped(talk.tape)):
        actual_segment = segment(single_frame)
        assert isinstance(actual_segment, Segment)
        from_client = actual_segment.key[8:10] != (8080).to_bytes(2, "big")
        for event in web.feed(from_client, actual_segment.payload) if actual_segment.payload else ():
            result[True] += application([event], True)
            result[False] += application([event], False)
    return result[True], result[False]


@each(
    "payloads",
    [
        [frame(wire(connect()), key=MASK), frame(PUBLISH, key=MASK)],
        [frame(wire(connect()) + PUBLISH, key=MASK)],
        [frame(wire(connect()), key=MASK), frame(PUBLISH[:9], 0x02, MASK) + frame(PUBLISH[9:], 0x80, b"abcd")],
        [
            frame(wire(connect()), key=MASK),
            frame(PUBLISH[:9], 0x02, MASK) + frame(b"ping secret", 0x89, MASK) + frame(PUBLISH[9:], 0x80, MASK),
        ],
        [frame(wire(connect()), key=MASK), frame(PUBLISH, key=None)],
        [frame(wire(connect()), key=MASK), frame(PUBLISH, key=b"\0\0\0\0"), frame(b"\x03\xe8secret bye", 0x88, MASK)],
    ],
    ids=["frames", "together", "fragments", "ping between", "unmasked", "zero mask and close"],
)
def test_every_byte_is_replaced_under_its_mask(payloads: list[bytes]) -> None:
    whole = b"".join(payloads)
    for size in (7, 10_000):
        talk = opened()
        for at in range(0, len(whole), size):
            talk.client(whole[at : at + size])
        talk.server(frame(wire(CONNACK)))
        talk.close()
        raw, answered = carried(talk)
        plain = wire(connect()) + PUBLISH
        assert (len(raw), answered) == (len(plain), wire(CONNACK))
        assert b"secret" not in raw
        assert b"boiler" not in raw
        assert raw[: len(plain) - len(PUBLISH)].startswith(wire(connect())[:8])
        frames = taped(talk.tape)
        if size == 7:
            assert shapes(frames) == shapes(redacted(frames))


@each("parameters", ["", "; client_no_context_takeover"])
def test_compressed_messages_have_the_same_length(parameters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of frames over many segments, of which there is no payload before their end."""
    monkeypatch.setattr(websockets, "MAX_BUFFER", 20)
    extension = "Sec-WebSocket-Extensions: permessage-deflate"
    talk = Talk(port=8080).handshake()
    talk.client(request(f"{extension}\r\n"))
    talk.server(response(f"{extension}{parameters}\r\n"))
    publishes = [
        wire(Publish(topic_name="plant/boiler", payload=b'{"degrees": %d.5, "unit": "C", "place": "cellar"}' % number))
        for number in range(20, 28)
    ]
    for message in deflate([wire(connect()), *publishes], takeover=not parameters):
        whole = frame(message, 0xC2, MASK)
        for at in range(0, len(whole), 9):
            talk.client(whole[at : at + 9])
    talk.server(frame(wire(CONNACK)))
    talk.close()
    frames, run = taped(talk.tape), redaction()
    new_frames = redacted(frames, run)

    assert run.unfit == 0
    assert shapes(new_frames) == shapes(frames)


def test_messages_of_a_length() -> None:
    draw = random.Random(5)
    for size in range(1, 120, 7):
        plain = bytes(draw.choice(b"abcdefgh") for _ in range(size))
        shortest = len(fit_shortest(plain))
        for length in (shortest, shortest + 5, shortest + 6, shortest + 30, shortest + 131):
            raw = fit(plain, length, b"")
            assert raw is not None
            assert len(raw) == length
            assert zlib.decompressobj(-15).decompress(raw + FLUSH) == plain
    assert fit(bytes(draw.randbytes(200)), 20, b"") is None
    window = b"a text that comes again and again"
    raw = fit(window, 12, window)
    assert raw is not None
    assert zlib.decompressobj(-15, zdict=window).decompress(raw + FLUSH) == window


def fit_shortest(plain: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    return (packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def test_empty_blocks_have_every_length_but_a_few() -> None:
    for length in range(80):
        raw = _empty_blocks(length)
        assert (raw is None) is (length in (1, 2, 3, 4, 8))
        if raw:
            assert len(raw) == length
            assert zlib.decompressobj(-15).decompress(fit_shortest(b"text") + FLUSH + raw) == b"text"
    assert _empty_blocks(-1) is None


def test_what_is_lost_is_filler() -> None:
    talk = opened()
    talk.client(frame(wire(connect()), key=MASK))
    talk.lose("client", 50)
    talk.client(b"\x00secret in no frame" * 4)
    talk.ack("server")
    talk.close()
    raw = b"".join(frame.data for frame in redacted(taped(talk.tape)))

    assert b"secret" not in raw
