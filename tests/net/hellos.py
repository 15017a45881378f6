"""TLS records and hellos, byte by byte."""

from __future__ import annotations


def vector(size: int, *items: bytes) -> bytes:
    joined = b"".join(items)
    return len(joined).to_bytes(size, "big") + joined


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + vector(2, data)


def record(content_type: int, payload: bytes, version: int = 0x0303) -> bytes:
    return bytes([content_type]) + version.to_bytes(2, "big") + vector(2, payload)


def message(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + vector(3, body)


def client_hello(*extensions: bytes, session_id: bytes = b"", version: int = 0x0303) -> bytes:
    body = version.to_bytes(2, "big") + bytes(32) + vector(1, session_id)
    body += vector(2, b"\x13\x02\xc0\x30") + vector(1, b"\0")
    return message(1, body + (vector(2, *extensions) if extensions else b""))


def server_hello(*extensions: bytes, session_id: bytes = b"", random: bytes = bytes(32), suite: int = 0xC030) -> bytes:
    body = b"\x03\x03" + random + vector(1, session_id) + suite.to_bytes(2, "big") + b"\0"
    return message(2, body + (vector(2, *extensions) if extensions else b""))


def element(tag: int, *parts: bytes) -> bytes:
    """An element of DER."""
    joined = b"".join(parts)
    size = len(joined)
    return bytes([tag]) + (bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")) + joined


def certificate(first: str, last: str) -> bytes:
    """An X.509 certificate that is valid between these times, as UTCTime or GeneralizedTime, without a true key."""
    times = [element(0x17 if len(text) <= 13 else 0x18, text.encode("latin-1")) for text in (first, last)]
    version, serial, name = element(0xA0, b"\2\1\2"), element(2, b"\1"), element(0x30, bytes(130))
    signed = element(0x30, version, serial, element(0x30, b"\5\0"), name, element(0x30, *times), name)
    return element(0x30, signed, element(3, bytes(64)))


def chain(*certificates: bytes) -> bytes:
    """A Certificate message of TLS 1.2."""
    return message(11, vector(3, *(vector(3, row) for row in certificates)))


SNI = extension(0, vector(2, b"\0" + vector(2, b"broker.example")))
ALPN_OFFER = extension(16, vector(2, vector(1, b"mqtt"), vector(1, b"x-amzn-mqtt-ca")))
VERSIONS = extension(43, vector(1, b"\x5a\x5a\x03\x04\x03\x03"))
