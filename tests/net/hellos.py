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


SNI = extension(0, vector(2, b"\0" + vector(2, b"broker.example")))
ALPN_OFFER = extension(16, vector(2, vector(1, b"mqtt"), vector(1, b"x-amzn-mqtt-ca")))
VERSIONS = extension(43, vector(1, b"\x5a\x5a\x03\x04\x03\x03"))
