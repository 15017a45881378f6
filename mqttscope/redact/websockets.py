"""Redacts WebSockets: writes replaced packets into their frames, masked and compressed.

One `WebStream` per direction notes the positions of application bytes in the TCP stream, and keeps frame headers and
the opening handshake.  Compressed messages are compressed again, with the replaced earlier messages as window, and
padded with empty blocks (RFC 1951 section 3.2.3) to their original length.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from mqttscope.net import websocket
from mqttscope.net.http_upgrade import HEAD_END, MAX_HEADER_BYTES, Upgrade
from mqttscope.redact.http import HEAD, HeadRedactor
from mqttscope.redact.kinds import BLANK, filler
from mqttscope.redact.pseudonyms import Pseudonyms

MAX_BUFFER: Final = 2 * MAX_HEADER_BYTES
"""Maximum number of bytes read between two payloads, more than heads and control frames need; the rest is filler."""
MAX_MESSAGE: Final = 1 << 22
"""Maximum decompressed size of a message that is compressed again; a longer one becomes filler."""
_TAIL: Final = b"\0\0\xff\xff"
_LEVELS: Final = (9, 6, 1)
_STRATEGIES: Final = (
    zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE,
)  # fmt: skip
_STEPS: Final = 48
"""Number of steps to make a message more compressible."""
_TRIES: Final = 6
"""Number of further steps tried if the exact length is not reached."""
MAX_SHAPED: Final = 1 << 16
"""Maximum size of a message that is compressed with all strategies."""

Learn = Callable[[int, bytes, bytes], None]
"""Replaces bytes: offset in the TCP stream, original bytes, new bytes."""


@dataclass(slots=True)
class _PayloadPart:
    """Application bytes that are contiguous in the TCP stream."""

    start: int
    """Offset among the application bytes."""
    length: int
    place: int
    key: bytes


@dataclass(slots=True)
class _CompressedMessage:
    """A compressed message that waits for the replacement of its content."""

    start: int
    plain: bytes
    replaced: bytearray
    known: bytearray
    pieces: list[tuple[int, bytes, bytes]]
    """Offset, masking key and masked payload of each frame."""


@dataclass(slots=True)
class WebStream:
    """One direction of a WebSocket."""

    names: Pseudonyms
    heads: HeadRedactor
    learn: Learn
    base: int = -1
    """Offset of the WebSocket in the TCP stream."""
    place: int = 0
    """Offset of the first byte of ``buffer``."""
    buffer: bytearray = field(default_factory=bytearray)
    offset: int = 0
    """Number of application bytes received, including lost ones."""
    parts: list[_PayloadPart] = field(default_factory=list)
    opened: bool = False
    """Whether the WebSocket carries MQTT."""
    inflater: websocket.Inflater | None = None
    """Decompressor of the original content."""
    window: bytes = b""
    """Replaced content before the next message, as compression window."""
    messages: list[_CompressedMessage] = field(default_factory=list)
    message: list[tuple[int, bytes, bytes]] = field(default_factory=list)
    compressed: bool = False
    begins: int = -1
    """Offset of the current compressed message."""
    last: bytes = b""
    """Replaced content of the previous message."""
    unfit: int = 0
    """Number of compressed messages that could not be redacted in unchanged length."""

    def feed(self, offset: int, data: bytes) -> None:
        """Buffer bytes of the TCP stream before the dissector reads them."""
        if self.base < 0:
            self.base = self.place = offset
        # A compressed frame must be complete.
        room = MAX_BUFFER if self.inflater is None else max(MAX_BUFFER, MAX_MESSAGE)
        if offset != self.place + len(self.buffer) or len(self.buffer) > room:
            self._walk(len(self.buffer))
            self.unfit += len(self.buffer) > room
            self.buffer.clear()
            self.place = offset
        self.buffer += data

    def note(self, item: object) -> None:
        """Note an event of the WebSocket."""
        if isinstance(item, Upgrade):
            self.opened = True
        elif isinstance(item, websocket.MessageData):
            self.opened = True
            if item.place >= 0:
                at = self.base + item.place
                self._walk(at - self.place)
                self.parts.append(_PayloadPart(self.offset, len(item.data), at, item.key))
                del self.buffer[: max(0, at + len(item.data) - self.place)]
                self.place = at + len(item.data)
            elif self.begins < 0:
                self.begins = self.offset
            self.offset += len(item.data)
            if item.place < 0 and item.frame_end:
                self._walk(len(self.buffer))
        elif isinstance(item, websocket.MessageGap | websocket.LostBytes) and self.opened:
            self.offset += item.length

    def put(self, offset: int, raw: bytes, replacement: bytes) -> None:
        """Write replaced application bytes into their frames."""
        end = offset + len(raw)
        for part in self.parts:
            low, high = max(offset, part.start), min(end, part.start + part.length)
            if low < high:
                turn = (low - part.start) & 3
                key = part.key[turn:] + part.key[:turn]
                old, new = raw[low - offset : high - offset], replacement[low - offset : high - offset]
                if key:
                    old, new = websocket.unmask(old, key), websocket.unmask(new, key)
                self.learn(part.place + low - part.start, old, new)
        self.parts = [part for part in self.parts if part.start + part.length > end]
        for message in self.messages:
            low, high = max(offset, message.start), min(end, message.start + len(message.plain))
            if low < high:
                message.replaced[low - message.start : high - message.start] = replacement[low - offset : high - offset]
                message.known[low - message.start : high - message.start] = b"\1" * (high - low)
        while self.messages and 0 not in self.messages[0].known:
            self._compress(self.messages.pop(0))

    def close(self) -> None:
        """Process the remaining bytes and messages."""
        self._walk(len(self.buffer))
        for message in self.messages:
            self._compress(message)
        self.messages.clear()

    def _walk(self, length: int) -> None:
        """Process the complete heads and frames in the buffer; the last frame may be only a header."""
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
        """Keep the header of a frame; returns the number of processed bytes, 0 if the frame is incomplete."""
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
        size = 2 if opcode == websocket.CLOSE else 0
        make = self.names.text if opcode == websocket.CLOSE else self.names.payload
        new = plain[:size] + make(plain[size:], b"control")
        self.learn(place, payload, websocket.unmask(new, key) if key and new else new)

    def _read_message(self) -> None:
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
            content = bytearray(filler(len(plain)))
            self.messages.append(_CompressedMessage(start, plain, content, bytearray(len(plain)), pieces))
        elif error is None:
            self.unfit += 1

    def _compress(self, message: _CompressedMessage) -> None:
        length = sum(len(raw) for _, _, raw in message.pieces)
        content = bytes(message.replaced)
        fitting = fit(content, length, self.window)
        if fitting is None:
            content, fitting = self._shorten(message.plain, content, length)
        if fitting is None:
            self.unfit += 1
            return
        if self.inflater is not None and self.inflater.context_takeover:
            self.window = (self.window + content)[-websocket.WINDOW_BYTES :]
        self.last = content
        at = 0
        for place, key, raw in message.pieces:
            new = fitting[at : at + len(raw)]
            at += len(raw)
            if raw:
                self.learn(place, raw, websocket.unmask(new, key) if key else new)

    def _shorten(self, plain: bytes, content: bytes, length: int) -> tuple[bytes, bytes | None]:
        """Change content from the end on until it compresses to a length: as in the previous message, else to filler.

        It starts at the end because payloads are less important than names.
        """
        pairs = enumerate(zip(plain, content, strict=True))
        changed = [at for at, (old, new) in pairs if old != new and new < 0x80 and chr(new).isalnum()][::-1]
        before = self.last if len(self.last) == len(content) else b""
        for source in (before, b"") if before else (b"",):
            # More filler makes the compressed message shorter.
            low, high = 0, _STEPS
            while low < high:
                middle = (low + high) // 2
                trial = _with_replaced(content, changed[: len(changed) * middle // _STEPS], source)
                if len(_packed(trial, self.window)) - len(_TAIL) > length:
                    low = middle + 1
                else:
                    high = middle
            for count in range(low, min(_STEPS, low + _TRIES) + 1):
                trial = _with_replaced(content, changed[: len(changed) * count // _STEPS], source)
                fitting = fit(trial, length, self.window)
                if fitting is not None:
                    return trial, fitting
        return content, None


def _with_replaced(content: bytes, places: list[int], source: bytes) -> bytes:
    """Content with letters and digits at some places taken from ``source``, else filler."""
    trial = bytearray(content)
    for at in places:
        is_digit = chr(content[at]).isdigit()
        known = source[at : at + 1]
        alike = known.isdigit() if is_digit else known.isalpha()
        trial[at : at + 1] = known if known and alike else b"1" if is_digit else BLANK
    return bytes(trial)


def fit(plain: bytes, length: int, window: bytes) -> bytes | None:
    """A permessage-deflate message (RFC 7692) with this content and exact length; ``None`` if impossible.

    ``window`` is the earlier content for back references.
    """
    strategies = _STRATEGIES if len(plain) <= MAX_SHAPED else _STRATEGIES[:1]
    for strategy, level in product(strategies, _LEVELS):
        packed = _packed(plain, window, level, strategy)
        padding = _empty_blocks(length - len(packed) + len(_TAIL))
        if padding is not None:
            return (packed + padding)[: -len(_TAIL)]
    return None


def _packed(plain: bytes, window: bytes, level: int = 9, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    shaped = (level, zlib.DEFLATED, -15, 9, strategy)
    packer = zlib.compressobj(*shaped, zdict=window) if window else zlib.compressobj(*shaped)
    return packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH)


def _empty_blocks(length: int) -> bytes | None:
    """Empty blocks of a total length, on a byte boundary; ``None`` if no blocks have this length."""
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
    """Empty blocks with fixed codes, 10 bits each, then an empty stored block that ends on a byte boundary."""
    count = {5: 0, 6: 1, 7: 2, 9: 3}.get(length)
    if count is None:
        return b""
    bits = sum(1 << (10 * index + 1) for index in range(count))
    return bits.to_bytes(length - len(_TAIL), "little") + _TAIL
