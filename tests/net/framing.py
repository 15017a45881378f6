"""WebSocket connections as endpoints make them, and what was read of one in short."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from mqttscope.net.http_upgrade import Problem, Upgrade, accept_for
from mqttscope.net.websocket import ControlFrame, LostBytes, MessageData, MessageGap, WebSocket, WebSocketEvent
from tests.packets import octets
from tests.tables import steps

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


def merged(events: list[WebSocketEvent]) -> list[WebSocketEvent]:
    """Events with neighbouring data joined, so that they do not depend on the chunking."""
    out: list[WebSocketEvent] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(last, MessageData) and isinstance(event, MessageData) and not last.frame_end:
            out[-1] = MessageData(last.from_client, last.data + event.data, last.opcode, last.text, event.frame_end)
        elif isinstance(last, LostBytes) and isinstance(event, LostBytes):
            out[-1] = LostBytes(last.from_client, last.length + event.length)
        else:
            out.append(event)
    return out


def readable(data: bytes) -> str:
    """Bytes as text, or in hexadecimal; no bytes as ``-``, and one byte many times as ``x*99``."""
    if not data:
        return "-"
    if len(data) > 9 and data == data[:1] * len(data):
        return f"{readable(data[:1])}*{len(data)}"
    return data.decode() if data.isascii() and data.decode().isprintable() and b" " not in data else f"0x{data.hex()}"


def render(event: WebSocketEvent, bases: dict[bool, int]) -> str:
    """An event in words; offsets are those behind the HTTP heads."""
    if isinstance(event, Upgrade):
        return f"upgrade {event.status} {' '.join(event.problems)}".strip()
    side = ">" if event.from_client else "<"
    if isinstance(event, Problem):
        return f"{side} {event.reason} {event.offset - bases[event.from_client]}{' fatal' if event.fatal else ''}"
    if isinstance(event, LostBytes):
        return f"{side} lost {event.length}"
    if isinstance(event, MessageGap):
        return f"{side} gap {event.length}"
    if isinstance(event, ControlFrame):
        code = (
            ""
            if event.code is None
            else f" {event.code} {readable((event.reason or '').encode(errors='surrogateescape'))}"
        )
        missing = f" and {event.missing} missing" if event.missing else ""
        return f"{side} control {event.opcode} {readable(event.payload)}{code}{missing}"
    kind = {0: "continued ", 1: "text ", 2: ""}[event.opcode] + ("in text " if event.text and not event.opcode else "")
    return f"{side} {kind}{readable(event.data)}{'' if event.frame_end else ' ...'}"


HEADS = {
    "request": request(),
    "response": response(),
    "refusal": b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
}


def made(side: bool, words: list[str]) -> bytes:
    """The bytes of one step: ``raw`` octets, a head, or a frame, masked if it is the client's."""
    kind, *rest = words
    if kind in HEADS:
        return HEADS[kind]
    if kind == "raw":
        return octets(" ".join(rest))
    options = dict(word.split("=") for word in rest if "=" in word)
    text, _, times = rest[0].partition("*")
    data = bytes.fromhex(text[2:]) if text.startswith("0x") else text.replace("-", "").encode()
    key = options.get("key", "77787960" if side else "none")
    length = bytes.fromhex(options["length"]) if "length" in options else None
    return frame(
        data * int(times or 1),
        int(options.get("first", "82"), 16),
        None if key == "none" else bytes.fromhex(key),
        length,
    )


BEGINNINGS: dict[str, Callable[[], WebSocket]] = {
    "http": WebSocket, "opened": opened, "deflate": lambda: opened(""), "joined": WebSocket.joined,
}  # fmt: skip


def said(setting: str, story: list[str], size: int = 1 << 20) -> list[str]:
    """Events of a connection, in words, for steps such as ``< frame ab first=81 & raw 8902``, ``> gap 3``."""
    websocket = BEGINNINGS[setting]()
    bases = {side.from_client: side.offset for side in (websocket.client, websocket.server)}
    events: list[WebSocketEvent] = []
    for step in story:
        side = step[0] == ">"
        if step[2:] == "close":
            events += websocket.close(side)
        elif step.startswith("gap", 2):
            events += websocket.gap(side, int(step[6:]))
        else:
            data = b"".join(made(side, part.split()) for part in step[2:].split(" & "))
            for at in range(0, len(data), size):
                events += websocket.feed(side, data[at : at + size])
    return [render(event, bases) for event in merged(events)]


DIALOGUE = (str, steps, steps)
"""The columns of a table of dialogues: how a connection begins, steps, and what is read."""
