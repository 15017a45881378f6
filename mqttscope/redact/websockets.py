"""WebSockets with other content: what took the place of packets goes into their frames, masked and compressed.

One `WebStream` goes along each direction.  It notes where in the stream of TCP the application bytes lie, and keeps the
headers of frames and what opens the WebSocket.  Compressed messages are compressed again, after the replaced ones that
came before them, and filled up with empty blocks (RFC 1951 section 3.2.3) to the length that they had.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from mqttscope.net import websocket
from mqttscope.net.http_upgrade import HEAD_END, MAX_HEADER_BYTES, Upgrade
from mqttscope.redact.http import HEAD, Heads
from mqttscope.redact.kinds import BLANK, filler
from mqttscope.redact.pseudonyms import Pseudonyms

MAX_BUFFER: Final = 2 * MAX_HEADER_BYTES
"""Bytes between two payloads that are looked at, more than heads and control frames take; others are filler."""
MAX_MESSAGE: Final = 1 << 22
"""Bytes of a compressed message, inflated, up to which it is compressed again; a longer one is filler."""
_TAIL: Final = b"\0\0\xff\xff"
_LEVELS: Final = (9, 6, 1)
_STRATEGIES: Final = (
    zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE,
)  # fmt: skip
_STEPS: Final = 48
"""Parts of a message that are made shorter one after the other."""
_TRIES: Final = 6
"""How many parts more are tried if the length does not come out exactly."""
MAX_SHAPED: Final = 1 << 16
"""Bytes of the longest message that is compressed in all ways."""

Learn = Callable[[int, bytes, bytes], None]
"""Puts bytes in the place of others, by the offset in the stream of TCP."""


@dataclass(slots=True)
class _Part:
    """Application bytes that lie together in the stream of TCP."""

    start: int
    """Their offset among the application bytes."""
    length: int
    place: int
    key: bytes


@dataclass(slots=True)
class _Message:
    """A compressed message that waits for what its content is replaced by."""

    start: int
    plain: bytes
    made: bytearray
    known: bytearray
    pieces: list[tuple[int, bytes, bytes]]
    """Place, masking key and masked bytes of the payload of each frame."""


@dataclass(slots=True)
class WebStream:
    """One direction."""

    names: Pseudonyms
    heads: Heads
    learn: Learn
    base: int = -1
    """Offset in the stream of TCP at which the WebSocket begins."""
    place: int = 0
    """Offset of the first byte of ``buffer``."""
    buffer: bytearray = field(default_factory=bytearray)
    offset: int = 0
    """Application bytes so far, lost ones included."""
    parts: list[_Part] = field(default_factory=list)
    opened: bool = False
    """Its bytes count: it carries MQTT."""
    inflater: websocket.Inflater | None = None
    """Of the original content."""
    window: bytes = b""
    """The replaced content before the next message."""
    messages: list[_Message] = field(default_factory=list)
    message: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    compressed: bool = False
    begins: int = -1
    """Offset of the compressed message that is read."""
    last: bytes = b""
    """The replaced content of the message before."""
    unfit: int = 0
    """Compressed messages that could not be made as long as they were."""

    def take(self, offset: int, data: bytes) -> None:
        """Take bytes of TCP, before they are read."""
        if self.base < 0:
            self.base = self.place = offset
        # A compressed frame has to be complete.
        room = MAX_BUFFER if self.inflater is None else max(MAX_BUFFER, MAX_MESSAGE)
        if offset != self.place + len(self.buffer) or len(self.buffer) > room:
            self._walk(len(self.buffer))
            self.unfit += len(self.buffer) > room
            self.buffer.clear()
            self.place = offset
        self.buffer += data

    def see(self, one: object) -> None:
        """Take what the WebSocket gives."""
        if isinstance(one, Upgrade):
            self.opened = True
        elif isinstance(one, websocket.MessageData):
            self.opened = True
            if one.place >= 0:
                at = self.base + one.place
                self._walk(at - self.place)
                self.parts.append(_Part(self.offset, len(one.data), at, one.key))
                del self.buffer[: max(0, at + len(one.data) - self.place)]
                self.place = at + len(one.data)
            elif self.begins < 0:
                self.begins = self.offset
            self.offset += len(one.data)
            if one.place < 0 and one.frame_end:
                self._walk(len(self.buffer))
        elif isinstance(one, websocket.MessageGap | websocket.Lost) and self.opened:
            self.offset += one.length

    def put(self, offset: int, raw: bytes, made: bytes) -> None:
        """Put replaced application bytes into their frames."""
        end = offset + len(raw)
        for part in self.parts:
            low, high = max(offset, part.start), min(end, part.start + part.length)
            if low < high:
                turn = (low - part.start) & 3
                key = part.key[turn:] + part.key[:turn]
                old, new = raw[low - offset : high - offset], made[low - offset : high - offset]
                if key:
                    old, new = websocket.unmask(old, key), websocket.unmask(new, key)
                self.learn(part.place + low - part.start, old, new)
        self.parts = [one for one in self.parts if one.start + one.length > end]
        for message in self.messages:
            low, high = max(offset, message.start), min(end, message.start + len(message.plain))
            if low < high:
                message.made[low - message.start : high - message.start] = made[low - offset : high - offset]
                message.known[low - message.start : high - message.start] = b"\1" * (high - low)
        while self.messages and 0 not in self.messages[0].known:
            self._compress(self.messages.pop(0))

    def close(self) -> None:
        """Nothing more comes."""
        self._walk(len(self.buffer))
        for message in self.messages:
            self._compress(message)
        self.messages.clear()

    def _walk(self, length: int) -> None:
        """Go through complete heads and frames at the beginning of the buffer; the last one may be a header alone."""
        at = 0
        while 0 <= at < length:
            raw = bytes(self.buffer[at:length])
            if HEAD.match(raw):
                end = HEAD_END.search(raw)
                if end is None:
                    break
                head = raw[: end.end()]
                self.learn(self.place + at, head, self.heads.replaced(head))
                at += len(head)
                continue
            used = self._frame(raw, self.place + at)
            if not used:
                break
            at += used
        if at > 0:
            del self.buffer[:at]
            self.place += at

    def _frame(self, raw: bytes, place: int) -> int:
        """Keep the header of a frame; returns how many bytes were gone through, 0 where it is not complete."""
        if len(raw) < 2:
            return 0
        opcode, size, body = raw[0] & 0x0F, raw[1] & 0x7F, 2
        if size > 125:
            body = 4 if size == 126 else 10
            size = int.from_bytes(raw[2:body], "big")
        key = raw[body : body + 4] if raw[1] & 0x80 else b""
        body += len(key) if key else 0
        if body > len(raw) or (raw[1] & 0x80 and len(key) < 4):
            return 0
        header, payload = raw[:body], raw[body : body + size]
        is_data = opcode < websocket.CLOSE
        if is_data and opcode:
            self.compressed = bool(raw[0] & 0x40)
        if len(payload) < size and not (is_data and not self.compressed and len(raw) == body):
            return 0
        self.learn(place, header, header)
        if not is_data:
            self._control(opcode, place + body, payload, key)
        elif self.compressed:
            self.message.append((place + body, key, payload))
            if raw[0] & 0x80:
                self._read_message()
        return body + len(payload)

    def _control(self, opcode: int, place: int, payload: bytes, key: bytes) -> None:
        """Replace the text of a control frame; the code of a close frame stays."""
        plain = websocket.unmask(payload, key) if key and payload else payload
        kept = 2 if opcode == websocket.CLOSE else 0
        make = self.names.text if opcode == websocket.CLOSE else self.names.payload
        made = plain[:kept] + make(plain[kept:], b"control")
        self.learn(place, payload, websocket.unmask(made, key) if key and made else made)

    def _read_message(self) -> None:
        """A compressed message is complete: note what is in it."""
        pieces, self.message = self.message, []
        if self.inflater is None or self.begins < 0:
            return
        out: list[bytes] = []
        whole = b"".join(websocket.unmask(raw, key) if key and raw else raw for _, key, raw in pieces)
        error = self.inflater.feed(whole, True, out)
        plain = b"".join(out)
        start, self.begins = self.begins, self.begins + len(plain)
        if self.begins >= self.offset:
            self.begins = -1
        if error is None and len(plain) <= MAX_MESSAGE:
            made = bytearray(filler(len(plain)))
            self.messages.append(_Message(start, plain, made, bytearray(len(plain)), pieces))
        elif error is None:
            self.unfit += 1

    def _compress(self, message: _Message) -> None:
        length = sum(len(raw) for _, _, raw in message.pieces)
        made = bytes(message.made)
        fitting = fit(made, length, self.window)
        if fitting is None:
            made, fitting = self._shorter(message.plain, made, length)
        if fitting is None:
            self.unfit += 1
            return
        if self.inflater is not None and self.inflater.context_takeover:
            self.window = (self.window + made)[-websocket.WINDOW_BYTES :]
        self.last = made
        at = 0
        for place, key, raw in message.pieces:
            new = fitting[at : at + len(raw)]
            at += len(raw)
            if raw:
                self.learn(place, raw, websocket.unmask(new, key) if key else new)

    def _shorter(self, plain: bytes, made: bytes, length: int) -> tuple[bytes, bytes | None]:
        """Content that can be compressed to a length: as the message before, else filler, from the end on.

        Payloads are at the end, and names are needed longer.
        """
        pairs = enumerate(zip(plain, made, strict=True))
        changed = [at for at, (old, new) in pairs if old != new and new < 0x80 and chr(new).isalnum()][::-1]
        before = self.last if len(self.last) == len(made) else b""
        for source in (before, b"") if before else (b"",):
            # The more is replaced, the shorter it gets.
            low, high = 0, _STEPS
            while low < high:
                middle = (low + high) // 2
                trial = _with_replaced(made, changed[: len(changed) * middle // _STEPS], source)
                if len(_packed(trial, self.window)) - len(_TAIL) > length:
                    low = middle + 1
                else:
                    high = middle
            for count in range(low, min(_STEPS, low + _TRIES) + 1):
                trial = _with_replaced(made, changed[: len(changed) * count // _STEPS], source)
                fitting = fit(trial, length, self.window)
                if fitting is not None:
                    return trial, fitting
        return made, None


def _with_replaced(made: bytes, places: list[int], source: bytes) -> bytes:
    """Content with other letters and digits in some places: those of another content, else filler."""
    trial = bytearray(made)
    for at in places:
        is_digit = chr(made[at]).isdigit()
        known = source[at : at + 1]
        alike = known.isdigit() if is_digit else known.isalpha()
        trial[at : at + 1] = known if known and alike else b"1" if is_digit else BLANK
    return bytes(trial)


def fit(plain: bytes, length: int, window: bytes) -> bytes | None:
    """A message of permessage-deflate (RFC 7692) with this content and exactly this length, ``None`` without one.

    ``window``: the content before it that it may refer to.
    """
    strategies = _STRATEGIES if len(plain) <= MAX_SHAPED else _STRATEGIES[:1]
    for strategy, level in product(strategies, _LEVELS):
        made = _packed(plain, window, level, strategy)
        padding = _empty_blocks(length - len(made) + len(_TAIL))
        if padding is not None:
            return (made + padding)[: -len(_TAIL)]
    return None


def _packed(plain: bytes, window: bytes, level: int = 9, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    shaped = (level, zlib.DEFLATED, -15, 9, strategy)
    packer = zlib.compressobj(*shaped, zdict=window) if window else zlib.compressobj(*shaped)
    return packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH)


def _empty_blocks(length: int) -> bytes | None:
    """So many bytes of blocks without content, after a byte is complete; ``None`` where no blocks are so long."""
    if length < 0:
        return None
    parts: list[bytes] = []
    while length >= 10:
        size = 5 if length >= 15 or length == 10 else length - 5 if length - 5 in (6, 7, 9) else 6
        parts.append(_block(size))
        length -= size
    if length and _block(length) == b"":
        return None
    return b"".join((*parts, _block(length)))


def _block(length: int) -> bytes:
    """Empty blocks with fixed codes, 10 bits each, then an empty stored one, which ends with a byte."""
    count = {5: 0, 6: 1, 7: 2, 9: 3}.get(length)
    if count is None:
        return b""
    bits = sum(1 << (10 * index + 1) for index in range(count))
    return bits.to_bytes(length - len(_TAIL), "little") + _TAIL
