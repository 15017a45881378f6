"""Finding the next frame of a WebSocket behind bytes that were not captured.

A place is taken when a whole, final binary frame stands there whose payload is MQTT Control Packets from its first byte
to its last.  The answer depends on the bytes alone, never on how they were cut.  Messages that are compressed with
context takeover cannot be read without those before them, so such a direction stays lost.
"""

from __future__ import annotations

import re
import zlib

from mqttscope.net.http_upgrade import FRAMES, LOST, Problem, not_captured
from mqttscope.net.websocket_frames import SEARCH, Lost, Side, WebSocketEvent, lose, read, unmask

MAX_SEARCH_BYTES = 64 * 1024
"""Longest payload of a frame at which a search ends, and so what a search holds, a header aside."""
MAX_COMPRESSED_BYTES = 4 * 1024
"""The same for compressed payloads, which have to be inflated to be judged; so much of each is inflated."""
MAX_LOOKED_AT = 64
"""Packets of one frame that are looked at."""

_PLACES = re.compile(rb"[\x82\xc2]")
_TAKEN, _REFUSED, _UNDECIDED = 0, 1, 2
_STARTS = frozenset(
    b"\x10\x20\x30\x31\x32\x33\x34\x35\x38\x3a\x3b\x3c\x3d\x40\x50\x62\x70\x82\x90\xa2\xb0\xc0\xd0\xe0\xf0"
)
_OF_CLIENT, _OF_SERVER = (1, 8, 10, 12), (2, 9, 11, 13)
_LENGTHS = {
    1: (10, 1 << 28),
    2: (2, 1 << 12),
    3: (3, 1 << 28),
    12: (0, 0),
    13: (0, 0),
    14: (0, 1 << 12),
    15: (0, 1 << 17),
}
_FLUSH = b"\x00\x00\xff\xff"


def begin(side: Side, length: int, out: list[WebSocketEvent]) -> None:
    """``length`` bytes are missing where a frame header should be: look for a frame behind them."""
    hopeless = side.inflater is not None and side.inflater.context_takeover
    why = "; messages are compressed with context takeover, so nothing behind can be read" if hopeless else ""
    out.append(Problem(side.from_client, "gap_in_framing", not_captured(length) + why, side.offset, True))
    lose(side, side.header, out)
    if not hopeless:
        _restart(side)


def advance(side: Side, data: bytes, out: list[WebSocketEvent], *, final: bool = False) -> None:
    """Search and unwrap by turns.  ``final``: what is not complete never will be."""
    while True:
        if side.phase == FRAMES:
            read(side, data, out)
            if side.phase == LOST and side.searches:
                # A frame that was found, or one behind it, is none after all; the bytes are in ``held``.
                _restart(side)
                data = b""
                continue
            return
        if side.phase != SEARCH:
            lose(side, data, out)
            return
        data = _search(side, bytes(side.held) + data, out, final=final)
        if side.phase == SEARCH:
            return


def _restart(side: Side) -> None:
    side.phase, side.searches = SEARCH, True
    side.message, side.compressed, side.message_lost, side.trusted = 0, False, False, False
    if side.inflater is not None:
        side.inflater.reset()


def _search(side: Side, data: bytes, out: list[WebSocketEvent], *, final: bool) -> bytes:
    """Pass by what is no frame; returns the bytes from where one begins, with the phase changed, or nothing."""
    at, found = 0, None
    side.held.clear()
    while (found := _PLACES.search(data, at)) is not None:
        at = found.start()
        verdict = _judge(side, data, at)
        if verdict == _TAKEN:
            break
        if verdict == _UNDECIDED and not final:
            side.held += data[at:]
            break
        at += 1
    skipped = at if found is not None else len(data)
    if skipped:
        side.offset += skipped
        side.passed += skipped
        out.append(Lost(side.from_client, skipped))
    if found is None or side.held:
        return b""
    detail = f"a frame begins here again, {side.passed} of the bytes that were captured are passed over"
    out.append(Problem(side.from_client, "resynchronised", detail, side.offset, False))
    side.phase, side.passed = FRAMES, 0
    return data[at:]


def _judge(side: Side, data: bytes, at: int) -> int:
    """Whether a frame with packets begins at a byte that may begin one."""
    end = len(data)
    compressed = data[at] == 0xC2
    if compressed and side.inflater is None:
        return _REFUSED
    if end - at < 2:
        return _UNDECIDED
    length, masked, body = data[at + 1] & 0x7F, data[at + 1] >= 0x80, at + 2
    if masked is not side.from_client or not length or length == 127:
        # A length of 127 is followed by one of 64 KiB and more.
        return _REFUSED
    if length == 126:
        body += 2
        if body > end:
            return _UNDECIDED
        length = int.from_bytes(data[at + 2 : body], "big")
        if length < 126:
            return _REFUSED
    if length > (MAX_COMPRESSED_BYTES if compressed else MAX_SEARCH_BYTES):
        return _REFUSED
    key = data[body : body + 4] if masked else b""
    body += 4 if masked else 0
    if body > end:
        return _UNDECIDED
    stop = body + length
    if compressed:
        if stop > end:
            return _UNDECIDED
        payload = data[body:stop]
        return _compressed(side, unmask(payload, key) if key else payload)
    return _holds_mqtt(side, data, body, stop, key)


def _compressed(side: Side, payload: bytes) -> int:
    try:
        made = zlib.decompressobj(-15).decompress(payload + _FLUSH, MAX_COMPRESSED_BYTES)
    except zlib.error:
        return _REFUSED
    if not made:
        return _REFUSED
    whole = len(made) < MAX_COMPRESSED_BYTES
    verdict = _holds_mqtt(side, made, 0, len(made) if whole else 1 << 28, b"")
    return _REFUSED if verdict == _REFUSED else _TAKEN


def _holds_mqtt(side: Side, data: bytes, body: int, stop: int, key: bytes) -> int:
    """Whether the payload from ``body`` to ``stop`` is packets that this side may send."""
    at = body
    for _ in range(MAX_LOOKED_AT):
        if at >= stop:
            return _TAKEN if at == stop and stop <= len(data) else _REFUSED if at > stop else _UNDECIDED
        head = data[at : min(at + 7, stop)]
        if key and head:
            turn = (at - body) & 3
            head = unmask(head, key[turn:] + key[:turn])
        short = len(head) < min(7, stop - at)
        if head and head[0] not in _STARTS:
            return _REFUSED
        length = shift = 0
        used = 1
        while True:
            if used >= len(head):
                return _UNDECIDED if short else _REFUSED
            octet = head[used]
            length |= (octet & 0x7F) << shift
            shift += 7
            used += 1
            if octet < 0x80:
                break
            if used == 5:
                return _REFUSED
        kind, end = head[0] >> 4, at + used + length
        low, high = _LENGTHS.get(kind, (2, 1 << 17))
        if end > stop or not low <= length <= high or kind in (_OF_SERVER if side.from_client else _OF_CLIENT):
            return _REFUSED
        if kind == 3:
            if len(head) < used + 2:
                return _UNDECIDED if short else _REFUSED
            topic = int.from_bytes(head[used : used + 2], "big")
            if topic > length - 2:
                return _REFUSED
            name = data[at + used + 2 : at + used + 2 + topic]
            if key:
                turn = (at + used + 2 - body) & 3
                name = unmask(name, key[turn:] + key[:turn])
            try:
                if not name.decode().isprintable():
                    return _REFUSED
            except UnicodeDecodeError as error:
                if len(name) == topic or error.reason != "unexpected end of data":
                    return _REFUSED
        at = end
    return _TAKEN if stop <= len(data) else _UNDECIDED
