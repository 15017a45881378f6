"""MQTT inside WebSocket, read passively (RFC 6455, permessage-deflate of RFC 7692, MQTT 5.0 section 6).

Ordered bytes of both directions come in, application bytes and remarks go out.  MQTT does not care about WebSocket
frames (MQTT-6.0.0-2), so payload is delivered as it arrives and no frame is ever buffered.  When bytes are missing or
wrong the position in the frames is kept only where it is certain.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from mqttscope.net.http_upgrade import FRAMES, HTTP, LOST, Handshake, Problem, Upgrade

MAX_INFLATE_BYTES = 1024 * 1024
"""Longest piece of inflated payload.  One call of ``feed`` yields at most about 1030 times the bytes it was given."""
MAX_PENDING_BYTES = 64 * 1024
"""Compressed bytes of an unfinished message that are kept so that ``Inflater`` can be written down."""
MAX_FINAL_BLOCKS = 16
"""DEFLATE blocks with BFINAL set in one message, each of which restarts zlib."""
MAX_CONTROL_BYTES = 125
"""Payload of a control frame (RFC 6455 section 5.5); the rest of a longer one is dropped."""
WINDOW_BYTES = 32 * 1024
_INFLATE_STEP = 64 * 1024
_FLUSH = b"\x00\x00\xff\xff"

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

FRAME_REASONS = (
    "unmasked_client_frame masked_server_frame reserved_bits reserved_opcode fragmented_control_frame control_too_long "
    "continuation_without_start message_interrupted text_frame length_not_minimal length_too_large "
    "close_payload_invalid data_after_close deflate_assumed inflate_error gap_in_framing gap_in_compressed_message "
    "truncated_frame"
)
"""Every ``Problem.reason`` of frames and gaps, separated by spaces (``HTTP_REASONS``: of the HTTP exchange)."""


@dataclass(slots=True)
class MessageData:
    """Application bytes, unmasked and inflated; may be empty.

    ``opcode`` is the frame's (0 continuation, 1 text, 2 binary), ``text`` says whether the message is of type text.
    Every data frame of which nothing is missing ends with exactly one ``frame_end``.
    """

    from_client: bool
    data: bytes
    opcode: int
    text: bool
    frame_end: bool


@dataclass(slots=True)
class MessageGap:
    """``length`` application bytes were not captured; framing is kept."""

    from_client: bool
    length: int


@dataclass(slots=True)
class Lost:
    """An unknown number of application bytes is missing here: ``length`` bytes of the stream were not unwrapped."""

    from_client: bool
    length: int


@dataclass(slots=True)
class Control:
    """A close (8), ping (9) or pong (10) frame.

    ``missing``: payload bytes not captured, or beyond ``MAX_CONTROL_BYTES``.  ``code`` and ``reason`` are those of a
    close frame (RFC 6455 section 7.4), ``None`` when it has none; bad UTF-8 is surrogate-escaped.
    """

    from_client: bool
    opcode: int
    payload: bytes
    missing: int = 0
    code: int | None = None
    reason: str | None = None


WebSocketEvent = Upgrade | MessageData | MessageGap | Lost | Control | Problem


@dataclass(slots=True)
class Inflater:
    """Inflates the messages of one direction.

    ``zlib_object`` (up to 32 KiB of window and some tables) may be set to ``None`` between any two calls, for instance
    to write this object down: it is rebuilt from the other fields, which are plain data.  Only a message with more
    than ``MAX_PENDING_BYTES`` compressed bytes so far cannot be continued then, and becomes an error.

    After an error the window is empty.  Messages that refer to lost history then fail too, rather than inflate to other
    bytes, for every later window is a true suffix of what was sent.
    """

    context_takeover: bool
    window: bytearray = field(default_factory=bytearray)  # output before the current message; its last 32 KiB count
    tail: bytearray = field(default_factory=bytearray)  # output of the current message, likewise
    pending: bytearray = field(default_factory=bytearray)  # its compressed bytes, empty when they are too many
    fed: int = 0  # how many compressed bytes the current message has had
    finals: int = 0  # how many final blocks it has had
    restart: bool = False  # the last byte ended a final block
    zlib_object: Any = field(default=None, repr=False, compare=False)

    def feed(self, data: bytes, last: bool, out: list[bytes]) -> str | None:
        """Append the inflated bytes of the next part of a message to ``out``; returns what is wrong, if anything."""
        error = None
        had, delivered = self.fed, len(out)
        if self.zlib_object is None and self.fed and not self.restart:
            error = self._replay()
        for at in range(0, len(data), _INFLATE_STEP):
            error = error or self._run(data[at : at + _INFLATE_STEP], out)
        if error is None and last and self.fed and not self.restart:
            # Behind a final block there is nothing to flush when the sender left out the byte that RFC 7692
            # section 7.2.3.4 asks for.
            error = self._run(_FLUSH, out)
        if error:
            if len(self.pending) == had:
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
        self.zlib_object = None

    def _finish(self) -> None:
        if self.context_takeover:
            self.window += self.tail
            if len(self.window) > 2 * WINDOW_BYTES:
                del self.window[:-WINDOW_BYTES]
        if self.restart or not self.context_takeover:
            self.zlib_object = None
        self.fed = self.finals = 0
        self.restart = False
        self.tail.clear()
        self.pending.clear()

    def _salvage(self, data: bytes, out: list[bytes], delivered: int) -> None:
        """Append what ``data`` holds before the byte that is wrong: zlib drops it, as much as the chunking has it."""
        self.zlib_object = None
        self.fed = self.finals = 0
        self.tail.clear()
        self._run(bytes(self.pending), [])
        found: list[bytes] = []
        for at in range(len(data)):
            if self._run(data[at : at + 1], found):
                break
        rest = b"".join(found)[delivered:]
        out += [rest[at : at + MAX_INFLATE_BYTES] for at in range(0, len(rest), MAX_INFLATE_BYTES)]

    def _replay(self) -> str | None:
        if len(self.pending) != self.fed:
            return f"the state inside a message of more than {MAX_PENDING_BYTES} compressed bytes was not kept"
        self.fed = self.finals = 0
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
class Side:
    """One direction behind the HTTP exchange.

    ``deflate``: ``""`` not agreed, ``agreed``, or ``unknown`` because the negotiation was not captured.  ``trusted``:
    it is certain that frames begin where they are assumed to.  ``message``: opcode of the message in progress, or 0.
    """

    from_client: bool
    phase: str = HTTP
    deflate: str = ""
    trusted: bool = True
    offset: int = 0
    """Position in the stream of the next byte to read; of the first byte of ``header`` when that is not empty."""
    header: bytes = b""
    message: int = 0
    compressed: bool = False
    message_lost: bool = False
    closing: bool = False
    in_frame: bool = False
    opcode: int = 0
    fin: bool = False
    key: bytes = b""
    """Masking key turned to the next byte of payload; empty when there is nothing to unmask."""
    remaining: int = 0
    frame_offset: int = 0
    control: bytearray = field(default_factory=bytearray)
    control_missing: int = 0
    data_frames: int = 0
    control_frames: int = 0
    inflater: Inflater | None = None


@dataclass(slots=True)
class WebSocket:
    """One connection.  Feed the ordered bytes of both directions, in the order of the capture; close both at the end.

    The limits of the HTTP exchange are those of ``Handshake``.  ``handshake`` is ``None`` when frames have begun.
    """

    handshake: Handshake | None = field(default_factory=Handshake)
    client: Side = field(default_factory=lambda: Side(True))
    server: Side = field(default_factory=lambda: Side(False))

    @classmethod
    def joined(cls) -> WebSocket:
        """A connection whose beginning was not captured: a frame is assumed to begin at the start of each direction."""
        return cls(None, Side(True, FRAMES, "unknown", trusted=False), Side(False, FRAMES, "unknown", trusted=False))

    def feed(self, from_client: bool, data: bytes) -> list[WebSocketEvent]:
        """Take the next bytes of one direction; returns what they complete, which may concern both directions."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        if side.phase == FRAMES:
            _read(side, data, out)
        elif side.phase == LOST:
            _lose(side, data, out)
        elif self.handshake:
            news: list[Upgrade | Problem] = []
            used = self.handshake.feed(from_client, data, news)
            self._proceed(news, out)
            if used < len(data):
                out += self.feed(from_client, data[used:])
        return out

    def gap(self, from_client: bool, length: int) -> list[WebSocketEvent]:
        """Say that the next ``length`` bytes of one direction were not captured."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        news: list[Upgrade | Problem] = []
        if length <= 0:
            return out
        if side.phase == HTTP and self.handshake:
            self.handshake.gap(from_client, length, news)
            self._proceed(news, out)
        elif side.phase == FRAMES and side.in_frame:
            length -= _skip(side, length, out)
        if length and side.phase == FRAMES:
            detail = f"{length} bytes were not captured"
            out.append(Problem(from_client, "gap_in_framing", detail, side.offset, True))
            _lose(side, side.header, out)
        if length:
            side.offset += length
            out.append(Lost(from_client, length))
        return out

    def close(self, from_client: bool) -> list[WebSocketEvent]:
        """Say that one direction ended."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        news: list[Upgrade | Problem] = []
        if self.handshake:
            self.handshake.close(from_client, news)
            self._proceed(news, out)
        if side.phase == FRAMES and (side.in_frame or side.header):
            detail = f"{side.remaining} bytes of payload are missing" if side.in_frame else "its header is incomplete"
            at = side.frame_offset if side.in_frame else side.offset
            out.append(Problem(from_client, "truncated_frame", detail, at, False))
        return out

    def _proceed(self, news: list[Upgrade | Problem], out: list[WebSocketEvent]) -> None:
        """Pass on what the HTTP exchange says and begin with the frames of the directions that are through with it."""
        out += news
        handshake = self.handshake
        if handshake is None:
            return
        agreed = handshake.response
        for side, opening in ((self.client, handshake.client), (self.server, handshake.server)):
            if agreed and side.inflater is None and side.deflate != "agreed":
                side.deflate = "agreed" if agreed.deflate else ""
                if agreed.deflate:
                    side.inflater = Inflater(agreed.client_takeover if side.from_client else agreed.server_takeover)
            if side.phase == HTTP and opening.phase in (FRAMES, LOST):
                side.phase, side.offset = opening.phase, opening.offset
                if agreed is None:
                    side.deflate, side.trusted = "unknown", False
                rest = bytes(opening.buffer)
                opening.buffer.clear()
                if side.phase == FRAMES:
                    _read(side, rest, out)
                else:
                    _lose(side, rest, out)
        if self.client.phase != HTTP and self.server.phase != HTTP:
            self.handshake = None


def unmask(data: bytes, key: bytes) -> bytes:
    """XOR ``data`` with the repeated four bytes of ``key`` (RFC 6455 section 5.3); masks as well."""
    size = len(data)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(data, "little") ^ mask).to_bytes(size, "little")


def _read(side: Side, data: bytes, out: list[WebSocketEvent]) -> None:
    """Unwrap the frames in ``data`` as far as they go."""
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
            _payload(side, piece, out)
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
            out.append(MessageData(from_client, unmask(piece, key) if key else piece, BINARY, False, True))
            continue
        side.frame_offset = start + at
        side.key = key if key != b"\0\0\0\0" else b""
        side.remaining = length
        fatal = _header(side, first, second, minimal, out)
        if fatal:
            out.append(Problem(from_client, *fatal, side.frame_offset, True))
            side.offset = start + at
            _lose(side, data[at:], out)
            return
        at = body
    side.offset = start + at
    side.header = data[at:]


def _header(side: Side, first: int, second: int, minimal: bool, out: list[WebSocketEvent]) -> tuple[str, str] | None:
    """Judge a header and begin its frame; returns reason and detail when framing is lost."""
    found: list[tuple[str, str]] = []
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
            return reason, detail + ", so no frame begins here"
        found.append((reason, detail))
    if reserved and (is_control or opcode == CONTINUATION):
        found.append(("reserved_bits", "RSV1 is set in a frame that begins no message"))
    if not minimal:
        found.append(("length_not_minimal", f"the length {length} is not in its shortest form"))
    if is_control:
        if not fin:
            found.append(("fragmented_control_frame", f"FIN is clear in a frame with opcode {opcode}"))
        if length > MAX_CONTROL_BYTES:
            found.append(("control_too_long", f"{length} bytes of payload in a frame with opcode {opcode}"))
        side.control.clear()
        side.control_missing = 0
    else:
        if side.closing:
            found.append(("data_after_close", "a data frame follows a close frame"))
        if opcode == CONTINUATION:
            if not side.message:
                if side.trusted or side.data_frames:
                    found.append(("continuation_without_start", "no message is in progress"))
                side.message, side.compressed = BINARY, False
        else:
            if side.message:
                found.append(("message_interrupted", f"a message with opcode {opcode} begins inside another one"))
                if side.compressed and side.inflater and not side.message_lost:
                    side.inflater.reset()
            if opcode == TEXT:
                found.append(("text_frame", "a text message carries MQTT"))
            if reserved and side.inflater is None:
                found.append(("deflate_assumed", "RSV1 is set, permessage-deflate is assumed"))
                side.inflater = Inflater(True)
            side.message, side.compressed, side.message_lost = opcode, bool(reserved), False
    out += [Problem(side.from_client, reason, detail, side.frame_offset, False) for reason, detail in found]
    side.in_frame, side.opcode, side.fin = True, opcode, fin
    return None


def _payload(side: Side, piece: bytes, out: list[WebSocketEvent]) -> None:
    """Deliver the next payload bytes of the frame in progress, and end it with its last one."""
    side.remaining -= len(piece)
    done = not side.remaining
    if side.key and piece:
        key = side.key
        piece = unmask(piece, key)
        turn = len(piece) & 3
        side.key = key[turn:] + key[:turn]
    if side.opcode >= CLOSE:
        room = 0 if side.control_missing else MAX_CONTROL_BYTES - len(side.control)
        side.control += piece[:room]
        side.control_missing += len(piece[room:])
    elif side.compressed and side.inflater:
        _inflate(side, side.inflater, piece, done, out)
    else:
        out.append(MessageData(side.from_client, piece, side.opcode, side.message == TEXT, done))
    if done:
        _end_frame(side, out)


def _inflate(side: Side, inflater: Inflater, piece: bytes, done: bool, out: list[WebSocketEvent]) -> None:
    from_client, opcode, text = side.from_client, side.opcode, side.message == TEXT
    if side.message_lost:
        if piece:
            out.append(Lost(from_client, len(piece)))
        return
    pieces: list[bytes] = []
    error = inflater.feed(piece, done and side.fin, pieces)
    if done and not error and not pieces:
        pieces.append(b"")
    out += [MessageData(from_client, data, opcode, text, False) for data in pieces]
    if error:
        side.message_lost = True
        out.append(Problem(from_client, "inflate_error", error, side.frame_offset, False))
        out.append(Lost(from_client, len(piece)))
    elif done:
        out[-1] = MessageData(from_client, pieces[-1], opcode, text, True)


def _skip(side: Side, length: int, out: list[WebSocketEvent]) -> int:
    """Step over missing payload bytes; returns how many of ``length`` belong to the frame in progress."""
    length = min(length, side.remaining)
    side.remaining -= length
    side.offset += length
    turn = length & 3
    side.key = side.key[turn:] + side.key[:turn]
    if side.opcode >= CLOSE:
        side.control_missing += length
    elif side.compressed and side.inflater:
        if not side.message_lost:
            side.message_lost = True
            later = "; later messages may depend on it" if side.inflater.context_takeover else ""
            detail = f"{length} bytes were not captured{later}"
            out.append(Problem(side.from_client, "gap_in_compressed_message", detail, side.frame_offset, False))
            side.inflater.reset()
        out.append(Lost(side.from_client, length))
    else:
        out.append(MessageGap(side.from_client, length))
    if not side.remaining:
        _end_frame(side, out)
    return length


def _end_frame(side: Side, out: list[WebSocketEvent]) -> None:
    side.in_frame = False
    if side.opcode < CLOSE:
        side.data_frames += 1
        if side.fin:
            side.message = 0
        return
    side.control_frames += 1
    control = Control(side.from_client, side.opcode, bytes(side.control), side.control_missing)
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
        elif not control.missing and any("\udc80" <= character <= "\udcff" for character in control.reason):
            wrong = "the reason is not valid UTF-8"
    elif control.payload and not control.missing:
        wrong = "its payload is one byte long"
    if wrong:
        out.append(Problem(side.from_client, "close_payload_invalid", wrong, side.frame_offset, False))


def _lose(side: Side, data: bytes, out: list[WebSocketEvent]) -> None:
    """Give up framing; ``data`` is what cannot be unwrapped."""
    side.phase = LOST
    side.header = b""
    side.in_frame = False
    side.offset += len(data)
    if data:
        out.append(Lost(side.from_client, len(data)))
