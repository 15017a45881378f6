"""HTTP heads as they should be, with changes."""

from __future__ import annotations

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
REQUEST_FIELDS = {
    "Host": "broker.example",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Protocol": "mqtt",
    "Sec-WebSocket-Version": "13",
}
RESPONSE_FIELDS = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    "Sec-WebSocket-Protocol": "mqtt",
}


def head(first: str, fields: dict[str, str], changes: dict[str, str | None] | None = None) -> bytes:
    merged: dict[str, str | None] = {**fields, **(changes or {})}
    lines = [first, *(f"{name}: {value}" for name, value in merged.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode()


def request(changes: dict[str, str | None] | None = None, first: str = "GET /mqtt HTTP/1.1") -> bytes:
    return head(first, REQUEST_FIELDS, changes)


def response(changes: dict[str, str | None] | None = None, first: str = "HTTP/1.1 101 Switching Protocols") -> bytes:
    return head(first, RESPONSE_FIELDS, changes)
