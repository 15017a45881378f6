"""Redacts TLS: replaces names, tickets and certificates, in records of unchanged lengths.

Everything that describes the connection stays: records, versions, cipher suites, types of extensions, ALPN, alerts.
Host names become others.  Randoms, tickets, keys, signatures and encrypted bytes become other bytes.  Certificates keep
their structure (X.690) but not their content.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mqttscope.net import tls_hello
from mqttscope.redact.http import HeadRedactor
from mqttscope.redact.kinds import Value
from mqttscope.redact.packets import PacketRedactor
from mqttscope.redact.pseudonyms import Pseudonyms
from mqttscope.redact.websockets import Learn

MAX_MESSAGE: Final = 1 << 18
"""Maximum size of a handshake message that is read; a longer one becomes other bytes."""
_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_KEPT_EXTENSIONS: Final = frozenset((1, 5, 10, 11, 13, 18, 22, 23, 27, 28, 42, 43, 45, 49, 50, 0xFF01))
"""Extensions that describe the capabilities of a program, not its user."""
_SERVER_NAME, _ALPN, _PADDING, _TICKET, _PRE_SHARED, _COOKIE, _KEY_SHARE = 0, 16, 21, 35, 41, 44, 51
_NEW_TICKET, _CERTIFICATE, _SERVER_KEY, _REQUEST, _VERIFY, _CLIENT_KEY, _STATUS = 4, 11, 12, 13, 15, 16, 22
_PROTOCOL: Final = re.compile(rb"mqtt|x-amzn-mqtt-ca|x-amzn-http-ca|http/\d\.\d|h2|h2c|h3", re.IGNORECASE)
_VISIBLE: Final = re.compile(rb"[ -~]+")
MAX_DEPTH: Final = 32
"""Maximum nesting depth of a certificate."""


class TlsValues:
    """Replaces the content of handshake messages."""

    def __init__(self, names: Pseudonyms, heads: HeadRedactor, packets: PacketRedactor) -> None:
        self._names = names
        self._heads = heads
        self._value = packets.value

    def opaque(self, raw: bytes) -> bytes:
        """Other bytes for content that is not read."""
        return self._value(Value.TLS, raw, lambda data: self._names.stream(b"tls", data, len(data)))

    def message(self, kind: int, body: bytes) -> bytes:
        """The redacted body of a handshake message, in unchanged length."""
        new = self._message(kind, body)
        return new if len(new) == len(body) else self.opaque(body)

    def _message(self, kind: int, body: bytes) -> bytes:
        cursor = _Cursor(body)
        if kind in (tls_hello.CLIENT_HELLO, tls_hello.SERVER_HELLO):
            self._hello(cursor, kind)
        elif kind == _CERTIFICATE:
            cursor.keep(3)
            while cursor.left() >= 3:
                cursor.sized(3, self._certificate)
        elif kind == _NEW_TICKET:
            cursor.keep(6)
        elif kind == _SERVER_KEY:
            self._server_key(cursor)
        elif kind == _CLIENT_KEY:
            width = 1 if body[:1] and body[0] == len(body) - 1 else 2
            cursor.sized(width, self.opaque)
        elif kind == _VERIFY:
            cursor.keep(2)
            cursor.sized(2, self.opaque)
        elif kind == _REQUEST:
            cursor.sized(1, bytes)
            cursor.sized(2, bytes)
            cursor.keep(2)
            while cursor.left() >= 2:
                cursor.sized(2, self._certificate)
        elif kind == _STATUS:
            cursor.keep(1)
            cursor.sized(3, self._certificate)
        cursor.output += self.opaque(cursor.rest())
        return bytes(cursor.output)

    def _hello(self, cursor: _Cursor, kind: int) -> None:
        cursor.keep(2)
        random = cursor.take(32)
        cursor.output += random if random == _RETRY else self.opaque(random)
        cursor.sized(1, self.opaque)
        if kind == tls_hello.CLIENT_HELLO:
            cursor.sized(2, bytes)
            cursor.sized(1, bytes)
        else:
            cursor.keep(3)
        if cursor.left() < 2:
            return
        cursor.keep(2)
        while cursor.left() >= 4:
            number = int.from_bytes(cursor.peek(2), "big")
            cursor.keep(2)
            cursor.sized(2, lambda data, number=number: self._extension(number, kind, data))  # type: ignore[misc]

    def _extension(self, number: int, kind: int, data: bytes) -> bytes:
        if number in _KEPT_EXTENSIONS:
            return data
        if number == _PADDING:
            return bytes(len(data))
        cursor = _Cursor(data)
        if number == _SERVER_NAME:
            cursor.keep(2)
            while cursor.left() >= 3:
                cursor.keep(1)
                cursor.sized(2, self._heads.host)
        elif number == _ALPN:
            cursor.keep(2)
            while cursor.left():
                cursor.sized(1, self._protocol)
        elif number == _KEY_SHARE and len(data) > 2:
            if kind == tls_hello.CLIENT_HELLO:
                cursor.keep(2)
            while cursor.left() >= 4:
                cursor.keep(2)
                cursor.sized(2, self.opaque)
        elif number == _KEY_SHARE or (number == _PRE_SHARED and kind == tls_hello.SERVER_HELLO):
            cursor.keep(2)
        elif number == _PRE_SHARED:
            stop = 2 + int.from_bytes(data[:2], "big")
            cursor.keep(2)
            while cursor.at + 6 < stop and cursor.left():
                cursor.sized(2, self.opaque)
                cursor.output += self.opaque(cursor.take(4))
            cursor.keep(2)
            while cursor.left():
                cursor.sized(1, self.opaque)
        elif number == _COOKIE:
            cursor.sized(2, self.opaque)
        cursor.output += self.opaque(cursor.rest())
        return bytes(cursor.output)

    def _protocol(self, raw: bytes) -> bytes:
        if _PROTOCOL.fullmatch(raw):
            return raw
        return self._value(Value.TLS, raw, lambda name: self._names.text(name, b"alpn"))

    def _server_key(self, cursor: _Cursor) -> None:
        """Redact ServerKeyExchange: RFC 8422 section 5.4 with a named curve, or RFC 5246 section 7.4.3."""
        if cursor.peek(1) == b"\x03":
            cursor.keep(3)
            cursor.sized(1, self.opaque)
        else:
            for _ in range(3):
                cursor.sized(2, self.opaque)
        cursor.keep(2)
        cursor.sized(2, self.opaque)

    def _certificate(self, raw: bytes) -> bytes:
        return self._value(Value.TLS, raw, lambda der: self._der(der, 0) or self._names.stream(b"tls", der, len(der)))

    def _der(self, raw: bytes, depth: int) -> bytes | None:
        """Other content in the structure of the original (X.690); ``None`` without such a structure."""
        result, at = bytearray(), 0
        if depth > MAX_DEPTH:
            return None
        while at < len(raw):
            if at + 2 > len(raw) or raw[at] & 0x1F == 0x1F:
                return None
            tag, size, body = raw[at], raw[at + 1], at + 2
            if size > 0x80:
                body += size & 0x7F
                size = int.from_bytes(raw[at + 2 : body], "big")
            stop = body + size
            if stop > len(raw) or raw[at + 1] == 0x80:
                return None
            inner = raw[body:stop]
            new = self._der(inner, depth + 1) if tag & 0x20 else self._primitive(tag, inner, depth)
            if new is None:
                return None
            result += raw[at:body] + new
            at = stop
        return bytes(result)

    def _primitive(self, tag: int, raw: bytes, depth: int) -> bytes:
        random = self._names.stream(b"der", raw, len(raw))
        if tag in (0x01, 0x05, 0x06, 0x0A) or (tag in (0x02, 0x03) and len(raw) <= 4):
            return raw
        if tag == 0x02:
            # The number stays positive and keeps its length.
            head = 2 if raw[0] == 0 else 1
            first = bytes((0, random[0] | 0x80)) if head > 1 else bytes((random[0] & 0x3F | 0x40,))
            return first + random[head:]
        if tag == 0x03:
            return raw[:1] + (self._der(raw[1:], depth + 1) or random[1:])
        if tag == 0x04:
            return self._der(raw, depth + 1) or random
        if tag in (0x17, 0x18):
            return (b"200101000000Z" if tag == 0x17 else b"20200101000000Z").ljust(len(raw), b"Z")[: len(raw)]
        if tag in (0x0C, 0x12, 0x13, 0x14, 0x16, 0x1A) or (tag & 0xC0 == 0x80 and _VISIBLE.fullmatch(raw)):
            return self._names.text(raw, b"host")
        return random


class _Cursor:
    """Reads fields in order, and collects their replacements."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.output = bytearray()

    def left(self) -> int:
        return len(self.data) - self.at

    def peek(self, size: int) -> bytes:
        return self.data[self.at : self.at + size]

    def take(self, size: int) -> bytes:
        raw = self.peek(size)
        self.at += len(raw)
        return raw

    def rest(self) -> bytes:
        return self.take(self.left())

    def keep(self, size: int) -> None:
        self.output += self.take(size)

    def sized(self, width: int, make: Callable[[bytes], bytes]) -> None:
        size = int.from_bytes(self.peek(width), "big")
        self.keep(width)
        self.output += make(self.take(size))


@dataclass(slots=True)
class TlsStream:
    """TLS records of one direction."""

    values: TlsValues
    learn: Learn
    header: bytes = b""
    kind: int = 0
    remaining: int = 0
    framed: bool = True
    clear: bool = True
    """Whether handshake messages are still unencrypted."""
    short: bool = False
    """Whether the record is an unencrypted alert."""
    handshake: bytearray = field(default_factory=bytearray)
    """Collected bytes of a message or of an encrypted record."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Offset and length in the stream of the parts of ``handshake``."""

    def feed(self, offset: int, data: bytes) -> None:
        """Read bytes of the TCP stream."""
        at, end = 0, len(data)
        while at < end and self.framed:
            if self.remaining:
                piece = data[at : at + self.remaining]
                self.remaining -= len(piece)
                self._content(offset + at, piece)
                at += len(piece)
                continue
            used = min(5 - len(self.header), end - at)
            place = offset + at - len(self.header)
            self.header += data[at : at + used]
            at += used
            if len(self.header) == 5:
                self._begin_record(place)
        if at < end:
            self._opaque(offset + at, data[at:])

    def gap(self, length: int) -> None:
        """Skip missing bytes."""
        within = min(length, self.remaining)
        self.remaining -= within
        self._give_up()
        self.clear = False
        if within < length:
            self.framed = False

    def close(self) -> None:
        self._give_up()

    def _begin_record(self, place: int) -> None:
        header, self.header = self.header, b""
        kind, length = header[0], int.from_bytes(header[3:], "big")
        if (
            kind not in tls_hello.CONTENT_TYPES
            or header[1] != 3
            or header[2] > 4
            or length > tls_hello.MAX_RECORD_BYTES
        ):
            self.framed = False
            return
        self.learn(place, header, header)
        if kind != tls_hello.HANDSHAKE or self.kind != tls_hello.HANDSHAKE:
            self._give_up()
        self.kind, self.remaining, self.short = kind, length, kind == tls_hello.ALERT and length == 2
        if kind in (tls_hello.CHANGE_CIPHER_SPEC, tls_hello.APPLICATION_DATA):
            self.clear = False

    def _content(self, place: int, piece: bytes) -> None:
        if self.kind == tls_hello.CHANGE_CIPHER_SPEC or self.short:
            self.learn(place, piece, piece)
            return
        self.handshake += piece
        self.places.append((place, len(piece)))
        if self.kind == tls_hello.HANDSHAKE and self.clear:
            self._read_messages()
        elif not self.remaining:
            self._seal()

    def _read_messages(self) -> None:
        while len(self.handshake) >= 4 and self.clear:
            size = 4 + int.from_bytes(self.handshake[1:4], "big")
            if size > MAX_MESSAGE:
                self._give_up()
                self.clear = False
                return
            if len(self.handshake) < size:
                return
            raw = bytes(self.handshake[:size])
            self._put(raw, raw[:4] + self.values.message(raw[0], raw[4:]))

    def _give_up(self) -> None:
        """Replace the collected bytes of an incomplete message or record without reading them."""
        if self.handshake and self.kind == tls_hello.HANDSHAKE and self.clear:
            raw = bytes(self.handshake)
            self._put(raw, raw[:4] + self.values.opaque(raw[4:]))
        self._seal()

    def _seal(self) -> None:
        if self.handshake:
            raw = bytes(self.handshake)
            self._put(raw, self.values.opaque(raw))

    def _opaque(self, place: int, piece: bytes) -> None:
        self.learn(place, piece, self.values.opaque(piece))

    def _put(self, raw: bytes, new: bytes) -> None:
        at = 0
        while at < len(raw):
            place, length = self.places.pop(0)
            used = min(length, len(raw) - at)
            self.learn(place, raw[at : at + used], new[at : at + used])
            at += used
            if used < length:
                self.places.insert(0, (place + used, length - used))
        del self.handshake[: len(raw)]
