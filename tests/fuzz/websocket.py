"""No matter what two directions say and how it is cut, WebSocket, HTTP upgrade and TLS are read without an exception.

Chunks change nothing that is said, bytes and gaps are all accounted for, and forgetting zlib's state between two calls
changes nothing either.  The input: a byte of flags, a seed for the cuts, then pieces, each a byte for direction and
kind, two bytes of length and the bytes (of a gap, the length alone).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from mqttscope.net.http_upgrade import FRAMES, HTTP, MAX_EARLY_BYTES, Problem, looks_like_upgrade
from mqttscope.net.tls_hello import MAX_HANDSHAKE_BYTES, TlsObserver, looks_like_tls, looks_like_tls_records
from mqttscope.net.websocket import (
    MAX_CONTROL_BYTES,
    MAX_INFLATE_BYTES,
    MAX_PENDING_BYTES,
    WINDOW_BYTES,
    ControlFrame,
    Inflater,
    LostBytes,
    MessageData,
    MessageGap,
    WebSocket,
    WebSocketEvent,
    WebSocketSide,
)
from tests.fuzz.material import conversations, names
from tests.fuzz.target import Input, cuts
from tests.net.framing import deflate, frame, request, response

MAX_LENGTH = 4_000
_DATA, _GAP, _CLOSE = 0, 1, 2
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate\r\n"

Piece = tuple[int, bool, bytes, int]
"""Kind, whether from the client, bytes, length of a gap."""


def check(data: bytes) -> None:
    """The law for one connection, read as WebSocket and as TLS."""
    source = Input(data)
    flags, random = source.number(), Random(source.number())
    pieces = _pieces(source)
    expected = _run(_made(flags), pieces, forget=False)
    some = _recut(pieces, random, 4)
    assert _run(_made(flags), some, forget=False) == expected, "chunks make a difference"
    assert _run(_made(flags), pieces, forget=True) == expected, "zlib's state makes a difference"
    if len(data) < 600:
        assert _run(_made(flags), _recut(pieces, random, 1), forget=True) == expected, "single bytes make a difference"
    observed = _observe(pieces)
    assert observed == _observe(some) == _observe(_recut(pieces, random, 1))
    for head in {piece for _, _, piece, _ in pieces[:3]}:
        looks_like_tls_records(head)
        _check_recognition(head, looks_like_tls)
        _check_recognition(head, looks_like_upgrade)


def _check_recognition(head: bytes, recognise: Callable[[bytes], bool | None]) -> None:
    """An answer stands: more bytes do not change it."""
    decided = None
    for length in sorted({*range(12), 20, 60, len(head) // 2, len(head) - 1, len(head)}):
        answer = recognise(head[: max(0, length)])
        assert decided is None or answer is decided, "more bytes change the answer"
        decided = answer


def _made(flags: int) -> WebSocket:
    """A connection as the flags want it: from its beginning, joined, or with the exchange done."""
    if flags & 3 == 1:
        return WebSocket.joined()
    if flags & 3 == 2:
        deflate = "agreed" if flags & 4 else ""
        takeover = bool(flags & 8)
        return WebSocket(
            None,
            WebSocketSide(True, FRAMES, deflate, inflater=Inflater(takeover) if deflate else None),
            WebSocketSide(False, FRAMES, deflate, inflater=Inflater(takeover) if deflate else None),
        )
    return WebSocket()


def _pieces(source: Input) -> list[Piece]:
    pieces: list[Piece] = []
    while source.left():
        how, size = source.number(), source.number(2)
        kind = {14: _GAP, 15: _CLOSE}.get(how >> 4, _DATA)
        pieces.append((kind, not how & 1, b"" if kind else source.take(size), size))
    return pieces


def _recut(pieces: list[Piece], random: Random, count: int) -> list[Piece]:
    cut: list[Piece] = []
    for kind, side, data, length in pieces:
        if kind != _DATA:
            cut.append((kind, side, data, length))
        else:
            cut += [(kind, side, piece, 0) for piece in cuts(data, random, count)]
    return cut


def _run(websocket: WebSocket, pieces: list[Piece], *, forget: bool) -> list[object]:
    """What a connection says, in a form that does not depend on the cuts; checks every step."""
    result: list[WebSocketEvent] = []
    fed = {True: 0, False: 0}
    for kind, from_client, data, length in pieces:
        if kind == _DATA:
            new = websocket.feed(from_client, data)
            inflated = sum(len(part.data) for part in new if isinstance(part, MessageData))
            assert inflated <= 1_100 * (len(data) + MAX_EARLY_BYTES + 70_000)
            fed[from_client] += len(data)
        elif kind == _GAP:
            new = websocket.gap(from_client, length)
            fed[from_client] += length
        else:
            new = websocket.close(from_client)
        result += new
        for side in (websocket.client, websocket.server):
            _check_side(side, forget=forget)
    for part in result:
        assert not isinstance(part, MessageData) or len(part.data) <= MAX_INFLATE_BYTES
        assert not isinstance(part, ControlFrame) or len(part.payload) <= MAX_CONTROL_BYTES
    for side in (websocket.client, websocket.server):
        if side.phase is not HTTP:
            assert side.offset + len(side.header) + len(side.held) == fed[side.from_client], (
                "a byte is not accounted for"
            )
    return _merged(result)


def _check_side(side: WebSocketSide, *, forget: bool) -> None:
    assert len(side.header) < 14
    assert len(side.held) < 65_536 + 14
    assert len(side.control) <= MAX_CONTROL_BYTES
    inflater = side.inflater
    if inflater is not None:
        assert len(inflater.window) <= 2 * WINDOW_BYTES
        assert len(inflater.tail) <= 2 * WINDOW_BYTES
        assert len(inflater.pending) <= MAX_PENDING_BYTES + MAX_LENGTH
        if forget and inflater.fed <= MAX_PENDING_BYTES:
            inflater.zlib_object = None


def _merged(events: list[WebSocketEvent]) -> list[object]:
    """Each direction's events with neighbouring data and losses joined.

    Where a compressed message breaks, the bytes of its frame that were already given count as lost or not, depending
    on the cuts; so the length of a loss after such an error is left out.
    """
    out: list[object] = []
    broken = {True: False, False: False}
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Problem) and event.reason in ("inflate_error", "gap_in_compressed_message"):
            broken[event.from_client] = True
        if (
            isinstance(event, MessageData)
            and isinstance(last, MessageData)
            and not last.frame_end
            and last.from_client is event.from_client
        ):
            data = last.data + event.data
            out[-1] = replace(event, data=data, place=last.place, key=last.key)
            continue
        if isinstance(event, LostBytes):
            event = LostBytes(event.from_client, 0 if broken[event.from_client] else event.length)
            if isinstance(last, LostBytes) and last.from_client is event.from_client:
                out[-1] = LostBytes(event.from_client, last.length + event.length)
                continue
        if isinstance(event, MessageGap) and isinstance(last, MessageGap) and last.from_client is event.from_client:
            out[-1] = MessageGap(event.from_client, last.length + event.length)
            continue
        out.append(event)
    return [repr(each) for each in out if not isinstance(each, MessageData) or each.data or each.frame_end]


def _observe(pieces: list[Piece]) -> dict[str, object]:
    observer = TlsObserver()
    for kind, from_client, data, length in pieces:
        if kind == _DATA:
            observer.feed(from_client, data)
        elif kind == _GAP:
            observer.gap(from_client, length)
        assert len(observer.client.handshake) <= MAX_HANDSHAKE_BYTES + MAX_LENGTH
        assert len(observer.client.header) < 5
    return observer.summary()


def written(from_client: bool, data: bytes) -> bytes:
    """A piece in the form of the input."""
    return bytes((0 if from_client else 1,)) + len(data).to_bytes(2, "big") + data


def gap(from_client: bool, length: int) -> bytes:
    """A gap in the form of the input."""
    return bytes((0xE0 if from_client else 0xE1,)) + length.to_bytes(2, "big")


def seeds() -> Iterator[bytes]:
    """The conversations of the captures, and frames of every kind after an exchange."""
    for name in names():
        if name.startswith(("websocket", "tls")):
            for conversation in conversations(name):
                written_down = b"".join(written(side, data) for side, data in conversation)
                yield b"\x00\x01" + written_down[: MAX_LENGTH - 2]
                yield b"\x01\x02" + b"".join(written(side, data) for side, data in conversation[2:])
    mask = b"\x12\x34\x56\x78"
    opening = written(True, request()) + written(False, response())
    compressed = written(True, request(DEFLATE)) + written(False, response(DEFLATE))
    publish = b"\x30\x0e\x00\x03a/btext text"
    kinds = [
        frame(publish, key=mask), frame(publish[:4], 0x02, mask) + frame(publish[4:], 0x80, mask),
        frame(b"ping", 0x89, mask), frame(b"\x03\xe8done", 0x88, mask), frame(b"text", 0x81, mask),
        frame(publish * 12, key=mask), frame(publish),
    ]  # fmt: skip
    for kind in kinds:
        yield b"\x00\x03" + opening + written(True, kind + kind)
        yield b"\x02\x04" + written(True, kind) + gap(True, 3) + written(True, kind)
    for takeover in (True, False):
        messages = deflate([publish] * 3, takeover)
        packed = b"".join(frame(message[:5], 0x42) + frame(message[5:], 0x80) for message in messages)
        yield b"\x00\x05" + compressed + written(False, packed)
        yield bytes((0x0E if takeover else 0x06, 6)) + written(False, packed) + gap(False, 4)
        yield b"\x02\x07" + written(False, packed)
    yield b"\x00\x08" + written(True, request() + kinds[0]) + b"\xf0\0\0"
    yield b"\x00\x09" + gap(True, 9) + written(False, response() + kinds[-1]) + b"\xf1\0\0"
    refused = b"HTTP/1.1 401 No\r\nContent-Length: 4\r\n\r\nbody"
    yield b"\x00\x0a" + written(True, request()) + written(False, refused) + opening


def dictionary() -> Iterator[bytes]:
    """Words of the HTTP exchange."""
    other = b"Transfer-Encoding: chunked\r\nContent-Length: 0"
    for line in (request(DEFLATE) + response() + other).split(b"\r\n"):
        yield line
        yield line.partition(b":")[0]
