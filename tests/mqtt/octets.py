"""An encoder of the MQTT data types that shares nothing with the one under test."""

from __future__ import annotations

import struct


def string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">H", len(raw)) + raw


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def block(*properties: bytes) -> bytes:
    """A property block of properties that are already bytes."""
    body = b"".join(properties)
    return varint(len(body)) + body


def framed(first: int, *body: bytes) -> bytes:
    """A packet with this first byte and the right Remaining Length."""
    whole = b"".join(body)
    return bytes([first]) + varint(len(whole)) + whole
