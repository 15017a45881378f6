"""WebSocket connections as endpoints make them, and what was read of one in short."""

from __future__ import annotations

import zlib

from mqttscope.net.http_upgrade import Problem, Upgrade, accept_for
from mqttscope.net.websocket import MessageData, WebSocket, WebSocketEvent

CLIENT, SERVER = True, False
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
FLUSH = b"\x00\x00\xff\xff"
_HTTP_REASONS = (
    "not_http header_too_long request_not_get http_version_old upgrade_header_missing connection_header_missing "
    "websocket_version_wrong key_missing key_invalid request_not_seen response_not_seen not_upgraded gap_in_head "
    "truncated_head body_length_unknown accept_missing accept_wrong subprotocol_not_offered subprotocol_old "
    "subprotocol_foreign subprotocol_missing subprotocol_wrong extension_not_offered extension_unknown "
    "deflate_parameters_invalid"
)
HTTP_REASONS = frozenset(_HTTP_REASONS.split())
"""Every ``Problem.reason`` of the HTTP exchange."""
_FRAME_REASONS = (
    "unmasked_client_frame masked_server_frame reserved_bits reserved_opcode fragmented_control_frame control_too_long "
    "continuation_without_start message_interrupted text_frame length_not_minimal length_too_large "
    "close_payload_invalid data_after_close deflate_assumed inflate_error gap_in_framing gap_in_compressed_message "
    "resynchronised truncated_frame"
)
FRAME_REASONS = frozenset(_FRAME_REASONS.split())
"""Every ``Problem.reason`` of frames and gaps."""


def request(extra: str = "") -> bytes:
    return (
        "GET /mqtt HTTP/1.1\r\nHost: broker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n{extra}\r\n"
    ).encode()


def response(extra: str = "") -> bytes:
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept_for(KEY)}\r\nSec-WebSocket-Protocol: mqtt\r\n{extra}\r\n"
    ).encode()


def opened(parameters: str | None = None) -> WebSocket:
    """A connection after a good exchange, with permessage-deflate when there are parameters."""
    extension = "" if parameters is None else "Sec-WebSocket-Extensions: permessage-deflate"
    websocket = WebSocket()
    websocket.feed(CLIENT, request(extension and f"{extension}\r\n"))
    (upgrade,) = websocket.feed(SERVER, response(extension and f"{extension}{parameters}\r\n"))
    assert isinstance(upgrade, Upgrade)
    assert upgrade.problems == []
    return websocket


def frame(payload: bytes, first: int = 0x82, key: bytes | None = None, length: bytes | None = None) -> bytes:
    """A frame with its first byte as given; masked with ``key``, and with a lying or long ``length`` field."""
    size = len(payload)
    if length is None:
        if size < 126:
            length = bytes([size])
        elif size < 65536:
            length = b"\x7e" + size.to_bytes(2, "big")
        else:
            length = b"\x7f" + size.to_bytes(8, "big")
    if key is None:
        return bytes([first]) + length + payload
    masked = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    return bytes([first, length[0] | 0x80]) + length[1:] + key + masked


def application(events: list[WebSocketEvent], from_client: bool) -> bytes:
    return b"".join(e.data for e in events if isinstance(e, MessageData) and e.from_client is from_client)


def problems(events: list[WebSocketEvent]) -> list[tuple[str, int, bool]]:
    return [(e.reason, e.offset, e.fatal) for e in events if isinstance(e, Problem)]


def reasons(events: list[WebSocketEvent]) -> list[str]:
    return [e.reason for e in events if isinstance(e, Problem)]


def deflate(messages: list[bytes], takeover: bool = True) -> list[bytes]:
    """permessage-deflate payloads as a sender makes them (RFC 7692 section 7.2.1)."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    out = []
    for message in messages:
        if not takeover:
            compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
        raw = compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert raw.endswith(FLUSH)
        out.append(raw[:-4])
    return out
