"""Unwraps MQTT from WebSocket, passively (RFC 6455, permessage-deflate of RFC 7692, MQTT 5.0 section 6).

`WebSocket` takes the ordered bytes of both directions and returns application bytes and remarks.  MQTT ignores frame
boundaries (MQTT-6.0.0-2), so payload is delivered as it arrives and no frame is buffered.

After a gap between frames, the next frame is searched for: a complete, final binary frame with a payload of complete
MQTT Control Packets.  The result depends on the bytes alone, not on their chunks.
Messages compressed with context takeover need the messages before them, so such a direction stays lost.
"""

from __future__ import annotations

import re
import zlib
from codecs import utf_8_decode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from mqttscope.net.http_upgrade import (
    FRAMES,
    HTTP,
    LOST,
    SEARCHING,
    Handshake,
    Problem,
    Upgrade,
    WebSocketPhase,
    not_captured,
)

MAX_CONTROL_BYTES: Final = 125
"""Maximum payload of a control frame (RFC 6455 section 5.5); the rest of a longer one is dropped."""

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

MAX_INFLATE_BYTES: Final = 1024 * 1024
"""Longest piece of inflated payload.  One call of ``feed`` yields at most about 1030 times its input."""
MAX_PENDING_BYTES: Final = 64 * 1024
"""Maximum compressed bytes kept of an unfinished message, so that ``Inflater`` can be stored."""
MAX_FINAL_BLOCKS: Final = 16
"""Maximum number of DEFLATE blocks with BFINAL in one message; zlib restarts after each of them."""
WINDOW_BYTES: Final = 32 * 1024
MAX_INFLATE_RATIO: Final = 200
"""Maximum growth of a message by inflating, beyond `MAX_INFLATE_BYTES`; the limit of Apache's mod_deflate."""
_TOO_MUCH: Final = f"the message inflates to more than {MAX_INFLATE_RATIO} times its size"
_NOT_KEPT: Final = f"the state inside a message of more than {MAX_PENDING_BYTES} compressed bytes was not kept"
_INFLATE_STEP: Final = 64 * 1024
_FLUSH: Final = b"\x00\x00\xff\xff"
_LAST_BLOCK: Final = b"\x01\x00\x00\xff\xff"
_HOPELESS: Final = "; messages are compressed with context takeover, so nothing that follows can be read"
_NOT_UTF8: Final = re.compile(r"[\udc80-\udcff]")


@dataclass(slots=True)
class MessageData:
    """Application bytes, unmasked and inflated; may be empty.

    ``opcode`` is the opcode of the frame (0 continuation, 1 text, 2 binary), ``text`` is true in a text message.
    Every complete data frame ends with exactly one ``frame_end``.
    """

    from_client: bool
    data: bytes
    opcode: int
    text: bool
    frame_end: bool
    place: int = field(default=-1, compare=False)
    """Stream offset of its first byte, still masked in the stream; -1 for inflated bytes."""
    key: bytes = field(default=b"", compare=False)
    """The masking key, rotated to the first byte; empty without masking."""


@dataclass(slots=True)
class MessageGap:
    """``length`` application bytes were not captured; framing is kept."""

    from_client: bool
    length: int


@dataclass(slots=True)
class LostBytes:
    """An unknown number of application bytes is missing: ``length`` bytes of the stream were not unwrapped."""

    from_client: bool
    length: int


@dataclass(slots=True)
class ControlFrame:
    """A close (8), ping (9) or pong (10) frame.

    ``missing``: payload bytes not captured, or beyond ``MAX_CONTROL_BYTES``.  ``code`` and ``reason`` belong to a
    close frame (RFC 6455 section 7.4), else ``None``; bad UTF-8 is surrogate-escaped.
    """

    from_client: bool
    opcode: int
    payload: bytes
    missing: int = 0
    code: int | None = None
    reason: str | None = None


WebSocketEvent = Upgrade | MessageData | MessageGap | LostBytes | ControlFrame | Problem


@dataclass(slots=True)
class Inflater:
    """permessage-deflate of one direction (RFC 7692): inflates compressed messages that arrive in any chunks.

    The caller may set ``zlib_object`` to ``None`` between any two calls, for instance to store this object: it is
    rebuilt from the other fields, unless the current message has more than ``MAX_PENDING_BYTES`` compressed bytes.

    After an error the window is empty, so that messages with references to lost history fail too.
    """

    context_takeover: bool
    window: bytearray = field(default_factory=bytearray)  # output before the current message; the last 32 KiB matter
    tail: bytearray = field(default_factory=bytearray)  # output of the current message, likewise
    pending: bytearray = field(default_factory=bytearray)  # its compressed bytes, empty if there are too many
    fed: int = 0  # number of its compressed bytes
    inflated: int = 0  # number of its inflated bytes
    finals: int = 0  # number of its final blocks
    restart: bool = False  # the last byte ended a final block
    zlib_object: Any = field(default=None, repr=False, compare=False)

    def feed(self, data: bytes, last: bool, out: list[bytes]) -> str | None:
        """Append the inflated bytes of the next part of a message to ``out``; returns the error, if any."""
        error = None
        had, delivered = self.fed, len(out)
        if self.zlib_object is None and self.fed and not self.restart:
            error = self._replay() if len(self.pending) == self.fed else _NOT_KEPT
        for at in range(0, len(data), _INFLATE_STEP):
            error = error or self._run(data[at : at + _INFLATE_STEP], out)
        if error is None and last and self.fed and not self.restart:
            # After a final block there is nothing to flush if the sender omitted the byte that RFC 7692
            # section 7.2.3.4 requires.
            before = len(out)
            error = self._run(_FLUSH, out) or self._end()
            if error:
                del out[before:]  # inside a block the flush was read as data
        if error:
            if len(self.pending) == had and error != _TOO_MUCH:
                self._salvage(data + _FLUSH if last else data, out, sum(map(len, out[delivered:])))
            self.reset()
        elif last:
            self._finish()
        elif self.fed <= MAX_PENDING_BYTES:
            self.pending += data
        else:
            self.pending.clear()
        return error

    def reset(self) -> None:
        """Forget the current message and all history."""
        self.tail.clear()
        self.window.clear()
        self._finish()

    def _end(self) -> str | None:
        """Take an empty last block, which ends the message if the blocks before it were complete."""
        if self.zlib_object is not None:
            with suppress(zlib.error):
                self.zlib_object.decompress(_LAST_BLOCK)
            if self.zlib_object.eof:
                return None
        return "the message ends inside a block"

    def _finish(self) -> None:
        if self.context_takeover:
            self.window += self.tail
            if len(self.window) > 2 * WINDOW_BYTES:
                del self.window[:-WINDOW_BYTES]
        self.zlib_object = None
        self.fed = self.inflated = self.finals = 0
        self.restart = False
        self.tail.clear()
        self.pending.clear()

    def _salvage(self, data: bytes, out: list[bytes], delivered: int) -> None:
        """Append the bytes of ``data`` before the wrong byte: zlib drops them, depending on the chunks."""
        self._replay()
        pieces: list[bytes] = []
        for at in range(len(data)):
            if self._run(data[at : at + 1], pieces):
                break
        rest = b"".join(pieces)[delivered:]
        out += [rest[at : at + MAX_INFLATE_BYTES] for at in range(0, len(rest), MAX_INFLATE_BYTES)]

    def _replay(self) -> str | None:
        self.zlib_object = None
        self.fed = self.inflated = self.finals = 0
        self.tail.clear()
        return self._run(bytes(self.pending), [])

    def _run(self, data: bytes, out: list[bytes]) -> str | None:
        self.fed += len(data)
        while True:
            if self.zlib_object is None:
                history = bytes((self.window + self.tail)[-WINDOW_BYTES:])
                self.zlib_object = zlib.decompressobj(-15, zdict=history) if history else zlib.decompressobj(-15)
                self.restart = False
            try:
                piece = self.zlib_object.decompress(data, MAX_INFLATE_BYTES)
            except zlib.error as error:
                return str(error)
            if piece:
                self.inflated += len(piece)
                if self.inflated > MAX_INFLATE_BYTES + MAX_INFLATE_RATIO * self.fed:
                    return _TOO_MUCH
                out.append(piece)
                self.tail += piece[-WINDOW_BYTES:]
                if len(self.tail) > 2 * WINDOW_BYTES:
                    del self.tail[:-WINDOW_BYTES]
            self.restart = self.zlib_object.eof
            if self.restart:
                data = self.zlib_object.unused_data
                self.zlib_object = None
                self.finals += 1
                if self.finals > MAX_FINAL_BLOCKS:
                    return f"more than {MAX_FINAL_BLOCKS} final blocks in one message"
            else:
                data = self.zlib_object.unconsumed_tail
            if not data and (self.restart or len(piece) < MAX_INFLATE_BYTES):
                return None


@dataclass(slots=True)
class WebSocketSide:
    """One direction after the HTTP exchange.

    ``deflate``: ``""`` not negotiated, ``agreed``, or ``unknown`` because the negotiation was not captured.
    ``trusted``: the start of the frames is certain.  ``message``: opcode of the message in progress, or 0.
    """

    from_client: bool
    phase: WebSocketPhase = HTTP
    deflate: str = ""
    trusted: bool = True
    offset: int = 0
    """Stream offset of the next byte to read, or of the first byte of ``header`` if that is not empty."""
    header: bytes = b""
    message: int = 0
    compressed: bool = False
    message_lost: bool = False
    closing: bool = False
    in_frame: bool = False
    opcode: int = 0
    fin: bool = False
    key: bytes = b""
    """Masking key, rotated to the next payload byte; empty without masking."""
    remaining: int = 0
    frame_offset: int = 0
    control: bytearray = field(default_factory=bytearray)
    control_missing: int = 0
    data_frames: int = 0
    control_frames: int = 0
    inflater: Inflater | None = None
    searches: bool = False
    """Bytes were missing between frames: if a frame is invalid, the next one is searched for."""
    held: bytearray = field(default_factory=bytearray)
    """Bytes of a possible frame that is incomplete, in a search."""
    passed: int = 0
    """Number of bytes skipped by the search."""


def may_start_frame(head: bytes) -> bool:
    """Whether a frame of either side may begin with this byte; of the packets of MQTT only SUBSCRIBE does."""
    opcode, reserved = head[0] & 0x0F, head[0] & 0x70
    if opcode in (TEXT, BINARY):
        return reserved in (0, 0x40)
    return not reserved and opcode in (CONTINUATION, CLOSE, PING, PONG)


def unmask(data: bytes, key: bytes) -> bytes:
    """XOR ``data`` with the repeated four bytes of ``key`` (RFC 6455 section 5.3); also masks."""
    size = len(data)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(data, "little") ^ mask).to_bytes(size, "little")


def rotated_key(key: bytes, count: int) -> bytes:
    """A masking key, rotated by ``count`` bytes."""
    turn = count & 3
    return key[turn:] + key[:turn]


def read(side: WebSocketSide, data: bytes, out: list[WebSocketEvent]) -> None:
    """Unwrap the frames in ``data`` as far as possible."""
    if side.header:
        data = side.header + data
        side.header = b""
    from_client = side.from_client
    start, end, at = side.offset, len(data), 0
    while True:
        if side.in_frame:
            if at == end and side.remaining:
                break
            piece = data[at : at + side.remaining]
            at += len(piece)
            _payload(side, piece, 0, start + at - len(piece), out)
            continue
        if end - at < 2:
            break
        first, second = data[at], data[at + 1]
        length = second & 0x7F
        body = at + 2
        minimal = True
        if length > 125:
            body += 2 if length == 126 else 8
            minimum = 126 if length == 126 else 0x10000
            length = int.from_bytes(data[at + 2 : body], "big")
            minimal = length >= minimum
        key = b""
        if second & 0x80:
            key = data[body : body + 4]
            body += 4
        if body > end:
            break
        whole = first == 0x82 and minimal and body + length <= end
        if whole and (second >= 0x80) is from_client and not side.message and not side.closing:
            at = body + length
            piece = data[body:at]
            side.data_frames += 1
            shown = unmask(piece, key) if key else piece
            out.append(MessageData(from_client, shown, BINARY, False, True, start + body, key))
            continue
        side.frame_offset = start + at
        side.key = key if key != b"\0\0\0\0" else b""
        side.remaining = length
        fatal = _header(side, first, second, minimal, out)
        if fatal:
            out.append(Problem(from_client, *fatal, side.frame_offset, True))
            side.offset = start + at
            if side.searches:
                side.held, data = bytearray(data[at:]), b""
            give_up_framing(side, data[at:], out)
            return
        at = body
    side.offset = start + at
    side.header = data[at:]


def _header(
    side: WebSocketSide, first: int, second: int, minimal: bool, out: list[WebSocketEvent]
) -> tuple[str, str] | None:
    """Check a header and begin its frame; returns reason and detail if framing is lost."""
    remarks: list[tuple[str, str]] = []
    opcode, fin, reserved, length = first & 0x0F, first >= 0x80, first & 0x70, side.remaining
    is_control = opcode >= 8
    if opcode > PONG or BINARY < opcode < CLOSE:
        return "reserved_opcode", f"the opcode is {opcode}"
    if reserved & 0x30 or (reserved and not side.deflate):
        return "reserved_bits", f"the reserved bits are {reserved >> 4:03b}"
    if length >= 1 << 63:
        return "length_too_large", f"the length is {length}"
    if (second >= 0x80) is not side.from_client:
        reason = "unmasked_client_frame" if side.from_client else "masked_server_frame"
        detail = f"a {'client' if side.from_client else 'server'}'s frame is {'' if second >= 0x80 else 'not '}masked"
        if not side.trusted and not side.data_frames and not side.control_frames:
            return reason, detail + ", so this is not the start of a frame"
        remarks.append((reason, detail))
    if reserved and (is_control or opcode == CONTINUATION):
        remarks.append(("reserved_bits", "RSV1 is set in a frame that does not begin a message"))
    if not minimal:
        remarks.append(("length_not_minimal", f"the length {length} is not in its shortest form"))
    if is_control:
        if not fin:
            remarks.append(("fragmented_control_frame", f"FIN is clear in a frame with opcode {opcode}"))
        if length > MAX_CONTROL_BYTES:
            remarks.append(("control_too_long", f"the payload of a frame with opcode {opcode} has {length} bytes"))
        side.control.clear()
        side.control_missing = 0
    else:
        if side.closing:
            remarks.append(("data_after_close", "a data frame follows a close frame"))
        if opcode == CONTINUATION:
            if not side.message:
                if side.trusted or side.data_frames:
                    remarks.append(("continuation_without_start", "no message is in progress"))
                side.message, side.compressed = BINARY, False
        else:
            if side.message:
                remarks.append(("message_interrupted", f"a message with opcode {opcode} begins inside another one"))
                if side.compressed and side.inflater and not side.message_lost:
                    side.inflater.reset()
            if opcode == TEXT:
                remarks.append(("text_frame", "a text message carries MQTT"))
            if reserved and side.inflater is None:
                remarks.append(("deflate_assumed", "RSV1 is set, permessage-deflate is assumed"))
                side.inflater = Inflater(True)
            side.message, side.compressed, side.message_lost = opcode, bool(reserved), False
    out += [Problem(side.from_client, reason, detail, side.frame_offset, False) for reason, detail in remarks]
    side.in_frame, side.opcode, side.fin = True, opcode, fin
    return None


def _payload(side: WebSocketSide, piece: bytes, missing: int, place: int, out: list[WebSocketEvent]) -> None:
    """Deliver the next payload bytes of the frame in progress, or skip missing ones; the last byte ends the frame."""
    key, length = side.key, len(piece) + missing
    side.key = rotated_key(key, length)
    side.remaining -= length
    done = not side.remaining
    if key and piece:
        piece = unmask(piece, key)
    if side.opcode >= CLOSE:
        room = 0 if side.control_missing else MAX_CONTROL_BYTES - len(side.control)
        side.control += piece[:room]
        side.control_missing += len(piece[room:]) + missing
    elif side.compressed and side.inflater:
        _inflate(side, side.inflater, piece, missing, out)
    elif missing:
        out.append(MessageGap(side.from_client, missing))
    else:
        out.append(MessageData(side.from_client, piece, side.opcode, side.message == TEXT, done, place, key))
    if done:
        _end_frame(side, out)


def _inflate(side: WebSocketSide, inflater: Inflater, piece: bytes, missing: int, out: list[WebSocketEvent]) -> None:
    from_client, opcode, text, done = side.from_client, side.opcode, side.message == TEXT, not side.remaining
    if missing and not side.message_lost:
        side.message_lost = True
        later = "; later messages may depend on it" if inflater.context_takeover else ""
        detail = f"{not_captured(missing)}{later}"
        out.append(Problem(from_client, "gap_in_compressed_message", detail, side.frame_offset, False))
        inflater.reset()
    if side.message_lost:
        if piece or missing:
            out.append(LostBytes(from_client, len(piece) + missing))
        return
    pieces: list[bytes] = []
    error = inflater.feed(piece, done and side.fin, pieces)
    if done and not error and not pieces:
        pieces.append(b"")
    last = len(pieces) - 1 if done and not error else -1
    out += [MessageData(from_client, data, opcode, text, at == last) for at, data in enumerate(pieces)]
    if error:
        side.message_lost = True
        out.append(Problem(from_client, "inflate_error", error, side.frame_offset, False))
        out.append(LostBytes(from_client, len(piece)))


def _end_frame(side: WebSocketSide, out: list[WebSocketEvent]) -> None:
    side.in_frame = False
    if side.opcode < CLOSE:
        side.data_frames += 1
        if side.fin:
            side.message = 0
        return
    side.control_frames += 1
    control = ControlFrame(side.from_client, side.opcode, bytes(side.control), side.control_missing)
    out.append(control)
    if side.opcode != CLOSE:
        return
    side.closing = True
    wrong = ""
    if len(control.payload) >= 2:
        code = control.code = int.from_bytes(control.payload[:2], "big")
        control.reason = control.payload[2:].decode("utf-8", "surrogateescape")
        if not (1000 <= code <= 1014 or 3000 <= code <= 4999) or code in (1004, 1005, 1006):
            wrong = f"the status code is {code}"
        elif not control.missing and _NOT_UTF8.search(control.reason):
            wrong = "the reason is not valid UTF-8"
    elif control.payload and not control.missing:
        wrong = "its payload is one byte long"
    if wrong:
        out.append(Problem(side.from_client, "close_payload_invalid", wrong, side.frame_offset, False))


def give_up_framing(side: WebSocketSide, data: bytes, out: list[WebSocketEvent]) -> None:
    """Give up framing; ``data`` cannot be unwrapped."""
    side.phase = LOST
    side.header = b""
    side.in_frame = False
    side.offset += len(data)
    if data:
        out.append(LostBytes(side.from_client, len(data)))


@dataclass(slots=True)
class WebSocket:
    """One connection: feed the ordered bytes of both directions in capture order, and close both at the end."""

    handshake: Handshake | None = field(default_factory=Handshake)
    """``None`` after the exchange."""
    client: WebSocketSide = field(default_factory=lambda: WebSocketSide(True))
    server: WebSocketSide = field(default_factory=lambda: WebSocketSide(False))

    @classmethod
    def joined(cls) -> WebSocket:
        """A connection captured from the middle: each direction is assumed to start with a frame."""
        return cls(
            None,
            WebSocketSide(True, FRAMES, "unknown", trusted=False),
            WebSocketSide(False, FRAMES, "unknown", trusted=False),
        )

    def feed(self, from_client: bool, data: bytes) -> list[WebSocketEvent]:
        """Take the next bytes of one direction; returns the completed events, maybe of both directions."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        if side.phase is FRAMES and not side.searches:
            read(side, data, out)
        elif side.phase in (FRAMES, SEARCHING, LOST):
            advance(side, data, out)
        elif self.handshake:
            used = self.handshake.feed(from_client, data, out.append)
            self._proceed(self.handshake, out)
            if used < len(data):
                out += self.feed(from_client, data[used:])
        return out

    def gap(self, from_client: bool, length: int) -> list[WebSocketEvent]:
        """Take a gap: the next ``length`` bytes of one direction were not captured."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        if length <= 0:
            return out
        if side.phase is HTTP and self.handshake:
            self.handshake.gap(from_client, length, out.append)
            self._proceed(self.handshake, out)
        if side.phase is SEARCHING:
            advance(side, b"", out, final=True)
        if side.phase is FRAMES and side.in_frame:
            missing = min(length, side.remaining)
            side.offset += missing
            length -= missing
            _payload(side, b"", missing, -1, out)
        if length and side.phase is FRAMES:
            hopeless = side.inflater is not None and side.inflater.context_takeover
            why = f"{not_captured(length)}{_HOPELESS if hopeless else ''}"
            out.append(Problem(from_client, "gap_in_framing", why, side.offset, True))
            give_up_framing(side, side.header, out)
            if not hopeless:
                _restart_framing(side)
        if length:
            side.offset += length
            out.append(LostBytes(from_client, length))
        return out

    def close(self, from_client: bool) -> list[WebSocketEvent]:
        """End one direction; an incomplete frame is a problem."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        if self.handshake:
            self.handshake.close(from_client, out.append)
            self._proceed(self.handshake, out)
        if side.phase is SEARCHING:
            advance(side, b"", out, final=True)
        if side.phase is FRAMES and side.in_frame:
            detail = f"{side.remaining} of its payload bytes never arrived"
            out.append(Problem(from_client, "truncated_frame", detail, side.frame_offset, False))
        elif side.phase is FRAMES and side.header:
            out.append(Problem(from_client, "truncated_frame", "its header is incomplete", side.offset, False))
        return out

    def _proceed(self, handshake: Handshake, out: list[WebSocketEvent]) -> None:
        """Start reading frames in the directions that have completed the HTTP exchange."""
        agreed = handshake.response
        for side, opening in ((self.client, handshake.client), (self.server, handshake.server)):
            if agreed and side.inflater is None and side.deflate != "agreed":
                side.deflate = "agreed" if agreed.deflate else ""
                if agreed.deflate:
                    side.inflater = Inflater(agreed.client_takeover if side.from_client else agreed.server_takeover)
            if side.phase is HTTP and opening.phase in (FRAMES, LOST):
                side.phase, side.offset = opening.phase, opening.offset
                if agreed is None:
                    side.deflate, side.trusted = "unknown", False
                rest = bytes(opening.buffer)
                opening.buffer.clear()
                proceed = read if side.phase is FRAMES else give_up_framing
                proceed(side, rest, out)
        if self.client.phase is not HTTP and self.server.phase is not HTTP:
            self.handshake = None


MAX_COMPRESSED_BYTES: Final = 4 * 1024
"""Maximum compressed payload of a frame that ends a search, and maximum of its inflated bytes that are checked."""
MAX_LOOKED_AT: Final = 64
"""Maximum number of packets in a frame that are checked."""

_PLACES: Final = re.compile(rb"[\x82\xc2]")
_LENGTHS: Final = (
    dict.fromkeys(b"\x30\x31\x32\x33\x34\x35\x38\x3a\x3b\x3c\x3d", (3, 1 << 28))
    | dict.fromkeys(b"\x40\x50\x62\x70\x82\x90\xa2\xb0", (2, 1 << 17))
    | {0x10: (10, 1 << 28), 0x20: (2, 1 << 12), 0xC0: (0, 0), 0xD0: (0, 0), 0xE0: (0, 1 << 12), 0xF0: (0, 1 << 17)}
)
"""Smallest and largest Remaining Length of packets, by the first byte of the packet."""
_FROM_CLIENT: Final = b"\x10\x82\xa2\xc0"
_FROM_SERVER: Final = b"\x20\x90\xb0\xd0"
_LENGTH: Final = re.compile(rb"[\x80-\xff]{0,3}[\x00-\x7f]")


def advance(side: WebSocketSide, data: bytes, out: list[WebSocketEvent], *, final: bool = False) -> None:
    """Search and unwrap in turn in a direction without framing.  ``final``: no more bytes follow."""
    while side.phase is not LOST:
        if side.phase is SEARCHING:
            data = _search(side, bytes(side.held) + data, out, final=final)
            if side.phase is SEARCHING:
                return
        read(side, data, out)
        if side.phase is FRAMES:
            return
        # The frame that the search found, or a later one, is not a frame; the bytes are in ``held``.
        _restart_framing(side)
        data = b""
    give_up_framing(side, data, out)


def _restart_framing(side: WebSocketSide) -> None:
    side.phase, side.searches = SEARCHING, True
    side.message, side.compressed, side.message_lost, side.trusted = 0, False, False, False
    if side.inflater is not None:
        side.inflater.reset()


def _search(side: WebSocketSide, data: bytes, out: list[WebSocketEvent], *, final: bool) -> bytes:
    """Skip bytes up to the next frame; returns the bytes from there and changes the phase, or returns nothing."""
    side.held.clear()
    at, is_frame = len(data), None
    for place in _PLACES.finditer(data):
        is_frame = _is_frame(side, data, place.start())
        if is_frame is None and not final:
            side.held += data[place.start() :]
        if is_frame or side.held:
            at = place.start()
            break
    if at:
        side.offset += at
        side.passed += at
        out.append(LostBytes(side.from_client, at))
    if not is_frame:
        return b""
    detail = f"a frame begins here again, {side.passed} captured bytes were skipped"
    out.append(Problem(side.from_client, "resynchronised", detail, side.offset, False))
    side.phase, side.passed = FRAMES, 0
    return data[at:]


def _is_frame(side: WebSocketSide, data: bytes, at: int) -> bool | None:
    """Whether a frame with packets begins at a byte; ``None``: more bytes are needed."""
    end, compressed = len(data), data[at] == 0xC2
    if compressed and side.inflater is None:
        return False
    if end - at < 2:
        return None
    length, masked, body = data[at + 1] & 0x7F, data[at + 1] >= 0x80, at + 2
    if masked is not side.from_client or length in (0, 127):  # a length of 127 means 64 KiB or more: too long
        return False
    if length == 126:
        body += 2
        if body > end:
            return None
        length = int.from_bytes(data[at + 2 : body], "big")
        if length < 126:
            return False
    if compressed and length > MAX_COMPRESSED_BYTES:
        return False
    key = data[body : body + 4] if masked else b""
    body += 4 if masked else 0
    stop = body + length
    if body > end or (compressed and stop > end):
        return None
    if not compressed:
        return _holds_mqtt(side, data, body, stop, key)
    try:
        plain = zlib.decompressobj(-15).decompress(
            _unmasked(data, body, stop, body, key) + _FLUSH, MAX_COMPRESSED_BYTES
        )
    except zlib.error:
        return False
    size = len(plain) if len(plain) < MAX_COMPRESSED_BYTES else 1 << 28
    return bool(plain) and _holds_mqtt(side, plain, 0, size, b"") is not False


def _unmasked(data: bytes, start: int, stop: int, body: int, key: bytes) -> bytes:
    """The bytes from ``start`` to ``stop`` of a payload that begins at ``body``."""
    return unmask(data[start:stop], rotated_key(key, start - body)) if key else data[start:stop]


def _holds_mqtt(side: WebSocketSide, data: bytes, body: int, stop: int, key: bytes) -> bool | None:
    """Whether the payload from ``body`` to ``stop`` is packets of this side; ``None``: more bytes are needed."""
    at = body
    for _ in range(MAX_LOOKED_AT):
        if at >= stop:
            break
        head = _unmasked(data, at, min(at + 7, stop), body, key)
        short = len(head) < min(7, stop - at)
        if head and head[0] not in _LENGTHS:
            return False
        field = _LENGTH.match(head, 1)
        if field is None:
            return None if short and len(head) < 5 else False
        length = sum((octet & 0x7F) << 7 * place for place, octet in enumerate(field[0]))
        low, high = _LENGTHS[head[0]]
        start = at + field.end()
        at = start + length
        if at > stop or not low <= length <= high or head[0] in (_FROM_SERVER if side.from_client else _FROM_CLIENT):
            return False
        if head[0] >> 4 == 3:
            size = head[field.end() : field.end() + 2]
            if len(size) < 2:
                return None if short else False
            topic = int.from_bytes(size, "big")
            name = _unmasked(data, start + 2, start + 2 + topic, body, key)
            text, _ = utf_8_decode(name, "surrogateescape", len(name) == topic)
            if topic > length - 2 or not text.isprintable():
                return False
    return True if stop <= len(data) else None
