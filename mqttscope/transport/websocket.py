"""WebSocket endpoints: opening handshake and frames of both roles (RFC 6455, MQTT 5.0 section 6).

No I/O, no clock and no random numbers here: bytes go in and out, keys and masks come from the caller.  Heads and
frames are parsed by the code that reads captures (``mqttscope.net``).  What that code only remarks on ends the
connection here.  No extension is offered or accepted.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from mqttscope.errors import MqttscopeError
from mqttscope.net import http_upgrade, websocket

MAX_FRAME_BYTES = 268_435_460
"""Maximum payload of a received frame: the length of the longest MQTT packet."""
KEY_BYTES = 16
"""Random bytes of a Sec-WebSocket-Key (RFC 6455 section 4.1)."""

NORMAL, PROTOCOL_ERROR, UNSUPPORTED, TOO_BIG = 1000, 1002, 1003, 1009
"""Status codes of close frames (RFC 6455 section 7.4.1)."""

_CODES = {"text_frame": UNSUPPORTED, "length_too_large": TOO_BIG}
_TOLERABLE = {"subprotocol_old"}


class WebSocketError(MqttscopeError):
    """The other side did not open a usable WebSocket; the message gives the reason and calls that side "it"."""


class _HeadCollector:
    """Collects the head of one HTTP message."""

    def __init__(self, may_begin: Callable[[bytes], bool]) -> None:
        self.may_begin = may_begin
        self.buffer = bytearray()
        self.searched = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Take bytes; returns the head and the bytes after it once complete, or raises `WebSocketError`."""
        self.buffer += data
        if self.buffer and not self.may_begin(bytes(self.buffer[:7])):
            raise WebSocketError("it does not speak HTTP")
        end = http_upgrade.HEAD_END.search(self.buffer, max(0, self.searched - 3))
        self.searched = len(self.buffer)
        if (end.end() if end else self.searched) > http_upgrade.MAX_HEADER_BYTES:
            raise WebSocketError(f"its HTTP head is longer than {http_upgrade.MAX_HEADER_BYTES:,} bytes")
        return None if end is None else (bytes(self.buffer[: end.end()]), bytes(self.buffer[end.end() :]))


def _begins_answer(start: bytes) -> bool:
    return b"HTTP/1.".startswith(start)


def _begins_request(start: bytes) -> bool:
    # No MQTT packet and no record of TLS begins with three capital letters.
    return start[:3].isalpha() and start[:3].isupper()


class ClientHandshake:
    """The client's side of the opening handshake (RFC 6455 section 4.1): send ``request``, then `feed` the answer.

    ``authority``: host and port for the Host field; ``path``: path with query; ``key``: 16 random bytes.
    ``subprotocols`` are offered in this order: ``mqtt``, or ``mqttv3.1`` for brokers that support only that one.
    """

    def __init__(
        self, authority: str, path: str, key: bytes, subprotocols: Sequence[str] = (http_upgrade.SUBPROTOCOL,)
    ) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {authority}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {b64encode(key).decode()}",
            f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}",
            "Sec-WebSocket-Version: 13",
        )
        self.request = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
        """Bytes to send."""
        self.subprotocol: str | None = None
        """Subprotocol that the server chose; `None` until then."""
        self._path = path.partition("?")[0]
        self._head = _HeadCollector(_begins_answer)

    def feed(self, data: bytes) -> bytes | None:
        """Take bytes of the server: returns `None` while its answer is incomplete, then the bytes after it (frames).

        `WebSocketError` if the server does not switch protocols, or not as requested.
        """
        complete = self._head.feed(data)
        if complete is None:
            return None
        head, rest = complete
        response = http_upgrade.parse_response(head)
        if response is None:
            raise WebSocketError("it does not speak HTTP")
        if response.status != HTTPStatus.SWITCHING_PROTOCOLS:
            raise WebSocketError(f"it answers {_status(response.status)} to the request for {self._path}")
        request = http_upgrade.parse_request(self.request)
        assert request is not None
        # The first remarks are about our own request.
        remarks = http_upgrade.judge(request, response)[1][len(request.remarks) :]
        if remarks:
            raise WebSocketError(_clean("; ".join(dict.fromkeys(detail for _, detail in remarks))))
        self.subprotocol = response.subprotocol
        return rest


class ServerHandshake:
    """The server's side of the opening handshake (RFC 6455 section 4.2): `feed` the request, then send ``answer``."""

    def __init__(self) -> None:
        self.answer = b""
        """Response to send: a protocol switch, or a refusal; empty while the request is incomplete."""
        self.request: http_upgrade.Request | None = None
        """The client's request."""
        self.subprotocol: str | None = None
        """Chosen subprotocol; `None` without a protocol switch."""
        self.refused = ""
        """Reason for refusing the client; the connection ends after ``answer``."""
        self._head = _HeadCollector(_begins_request)

    def feed(self, data: bytes) -> bytes | None:
        """Take bytes of the client: returns `None` until its request is complete, then the bytes after it (frames)."""
        try:
            complete = self._head.feed(data)
        except WebSocketError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return b""
        if complete is None:
            return None
        head, rest = complete
        request = self.request = http_upgrade.parse_request(head)
        if request is None:
            self._refuse(HTTPStatus.BAD_REQUEST, "its first line is not a request of HTTP/1.x")
            return b""
        wrong = {reason: detail for reason, detail in request.remarks if reason not in _TOLERABLE}
        if not request.host:
            wrong["host_missing"] = "the request has no Host"
        if wrong:
            # RFC 6455 section 4.4: a client that requests another version gets the supported one.
            old = set(wrong) == {"websocket_version_wrong"}
            self._refuse(HTTPStatus.UPGRADE_REQUIRED if old else HTTPStatus.BAD_REQUEST, "; ".join(wrong.values()))
            return b""
        assert request.key is not None
        self.subprotocol = (
            http_upgrade.SUBPROTOCOL
            if http_upgrade.SUBPROTOCOL in request.subprotocols
            else http_upgrade.OLD_SUBPROTOCOL
        )
        self.answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {http_upgrade.accept_for(request.key)}\r\n"
            f"Sec-WebSocket-Protocol: {self.subprotocol}\r\n\r\n"
        ).encode()
        return rest

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.refused = _clean(why)
        body = f"{self.refused}\n".encode()
        self.answer = (
            f"HTTP/1.1 {_status(status)}\r\nConnection: close\r\nSec-WebSocket-Version: 13\r\n"
            f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body


def frame(payload: bytes, opcode: int = websocket.BINARY, mask: bytes | None = None) -> bytes:
    """One unfragmented frame (RFC 6455 section 5.2), its length in the shortest form.

    ``mask``: four unpredictable bytes for frames of clients, `None` for frames of servers.
    """
    size = len(payload)
    bit = 0x80 if mask is not None else 0
    if size < 126:
        head = bytes((0x80 | opcode, bit | size))
    elif size < 0x10000:
        head = bytes((0x80 | opcode, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, bit | 127)) + size.to_bytes(8, "big")
    if mask is None:
        return head + payload
    if len(mask) != 4:
        raise ValueError(f"a mask has 4 bytes, not {len(mask)}")
    return head + mask + websocket.unmask(payload, mask)


@dataclass(slots=True)
class WebSocketInput:
    """Contents of received bytes."""

    data: bytes = b""
    """Application bytes, in order."""
    answer: bytes = b""
    """Bytes to send back: pongs, and the close frame that ends this side too."""
    ended: str = ""
    """``fin`` when the other side sent its close frame, ``failed`` when it broke the protocol; once."""
    detail: str = ""
    """Reason for the end, in words."""
    controls: list[websocket.ControlFrame] = field(default_factory=list)
    """Control frames received."""


class Framing:
    """Both directions of a WebSocket after its opening handshake.

    ``is_client``: role of this side.  ``random_bytes``: returns a number of unpredictable bytes, for the masks of a
    client's frames (RFC 6455 section 5.3).  A received frame longer than `MAX_FRAME_BYTES` is a failure.
    """

    def __init__(self, is_client: bool, random_bytes: Callable[[int], bytes]) -> None:
        self.is_client = is_client
        self.closed = False
        """Whether this side has sent its close frame: it sends nothing more."""
        self.ended = False
        """Whether the other side has ended: its close frame came, or it broke the protocol."""
        self._random_bytes = random_bytes
        self._side = websocket.WebSocketSide(not is_client, http_upgrade.FRAMES)

    def send(self, data: bytes) -> bytes:
        """A binary frame with these bytes; empty after the close frame."""
        return b"" if self.closed else self._frame(data, websocket.BINARY)

    def close(self, code: int | None = NORMAL, reason: str = "") -> bytes:
        """The close frame (RFC 6455 section 5.5.1), without payload if ``code`` is `None`; empty when called again."""
        if self.closed:
            return b""
        self.closed = True
        # Cut at a character boundary.
        text = reason.encode()[: websocket.MAX_CONTROL_BYTES - 2].decode(errors="ignore").encode()
        return self._frame(b"" if code is None else code.to_bytes(2, "big") + text, websocket.CLOSE)

    def receive(self, data: bytes) -> WebSocketInput:
        """Take bytes of the other side; bytes after its end are ignored."""
        received = WebSocketInput()
        if self.ended:
            return received
        events: list[websocket.WebSocketEvent] = []
        websocket.read(self._side, data, events)
        parts: list[bytes] = []
        length = 0
        for event in events:
            if isinstance(event, websocket.MessageData):
                parts.append(event.data)
                length = len(event.data)
                if event.frame_end and length <= MAX_FRAME_BYTES:
                    length = 0
            elif isinstance(event, websocket.ControlFrame):
                self._control(event, received)
            elif isinstance(event, http_upgrade.Problem):
                self._fail(_CODES.get(event.reason, PROTOCOL_ERROR), event.detail, received)
            if self.ended or length > MAX_FRAME_BYTES:
                break
        if not self.ended:
            # The rest of a frame that began in these bytes; an earlier frame was measured when it began.
            length += self._side.remaining if self._side.in_frame else 0
            if length > MAX_FRAME_BYTES:
                problem = f"a frame of {length:,} bytes is longer than the limit of {MAX_FRAME_BYTES:,}"
                self._fail(TOO_BIG, problem, received)
        received.data = parts[0] if len(parts) == 1 else b"".join(parts)
        return received

    def _control(self, control: websocket.ControlFrame, received: WebSocketInput) -> None:
        received.controls.append(control)
        if control.opcode == websocket.PING:
            if not self.closed:
                received.answer += self._frame(control.payload, websocket.PONG)
        elif control.opcode == websocket.CLOSE:
            self.ended = True
            received.ended = "fin"
            received.detail = "close frame" if control.code is None else f"close frame {control.code}"
            if control.reason:
                received.detail += f": {_clean(control.reason)}"
            received.answer += self.close(PROTOCOL_ERROR if self._is_bad(control) else control.code)

    @staticmethod
    def _is_bad(control: websocket.ControlFrame) -> bool:
        """Whether a close frame has a status that no endpoint may send (RFC 6455 section 7.4)."""
        code = control.code
        if code is None:
            return bool(control.payload)
        return code in (1004, 1005, 1006) or not (1000 <= code <= 1014 or 3000 <= code <= 4999)

    def _fail(self, code: int, detail: str, received: WebSocketInput) -> None:
        """End the connection as in RFC 6455 section 7.1.7."""
        self.ended = True
        received.ended, received.detail = "failed", detail
        received.answer += self.close(code)

    def _frame(self, payload: bytes, opcode: int) -> bytes:
        return frame(payload, opcode, self._random_bytes(4) if self.is_client else None)


def _clean(text: str) -> str:
    """The text without surrogates, which stand for undecodable bytes."""
    return text.encode("utf-8", "replace").decode()


def _status(status: int) -> str:
    """Status code with its phrase: ``404 Not Found``."""
    try:
        return f"{int(status)} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
