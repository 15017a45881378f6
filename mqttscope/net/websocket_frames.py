"""The frames of one direction of a WebSocket, unwrapped and judged as they come (RFC 6455 section 5)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.net.http_upgrade import HTTP, LOST, Problem, Upgrade, not_captured
from mqttscope.net.inflate import Inflater

MAX_CONTROL_BYTES = 125
"""Payload of a control frame (RFC 6455 section 5.5); the rest of a longer one is dropped."""

SEARCH = "searching"
"""Phase of a direction that lost its framing and looks for the next frame (``websocket_search``)."""

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

FRAME_REASONS = (
    "unmasked_client_frame masked_server_frame reserved_bits reserved_opcode fragmented_control_frame control_too_long "
    "continuation_without_start message_interrupted text_frame length_not_minimal length_too_large "
    "close_payload_invalid data_after_close deflate_assumed inflate_error gap_in_framing gap_in_compressed_message "
    "resynchronised truncated_frame"
)
"""Every ``Problem.reason`` of frames and gaps, separated by spaces; ``http_upgrade.HTTP_REASONS`` has the others."""


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
    searches: bool = False
    """Bytes were missing between frames: where no frame begins, the next one is looked for."""
    held: bytearray = field(default_factory=bytearray)
    """Bytes from where a frame may begin that is not complete yet, in a search."""
    passed: int = 0
    """Bytes that the search has passed over."""


def may_start_frame(head: bytes) -> bool:
    """Whether a frame of either side may begin with this first byte; of the packets of MQTT only SUBSCRIBE does."""
    opcode, reserved = head[0] & 0x0F, head[0] & 0x70
    return opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG) and reserved in (
        (0, 0x40) if opcode in (TEXT, BINARY) else (0,)
    )


def unmask(data: bytes, key: bytes) -> bytes:
    """XOR ``data`` with the repeated four bytes of ``key`` (RFC 6455 section 5.3); masks as well."""
    size = len(data)
    mask = int.from_bytes((key * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(data, "little") ^ mask).to_bytes(size, "little")


def read(side: Side, data: bytes, out: list[WebSocketEvent]) -> None:
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
            if side.searches:
                side.held += data[at:]
                lose(side, b"", out)
            else:
                lose(side, data[at:], out)
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
            found.append(("control_too_long", f"the payload of a frame with opcode {opcode} takes {length} bytes"))
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


def skip(side: Side, length: int, out: list[WebSocketEvent]) -> int:
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
            detail = f"{not_captured(length)}{later}"
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


def lose(side: Side, data: bytes, out: list[WebSocketEvent]) -> None:
    """Give up framing; ``data`` is what cannot be unwrapped."""
    side.phase = LOST
    side.header = b""
    side.in_frame = False
    side.offset += len(data)
    if data:
        out.append(Lost(side.from_client, len(data)))
