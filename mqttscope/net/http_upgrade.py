"""The HTTP/1.1 exchange that opens a WebSocket (RFC 6455 sections 1.3 and 4), read passively.

Ordered bytes of both directions come in; what was asked, what was answered and every deviation go out as values.  The
bytes behind the exchange are left to ``websocket.WebSocket``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha1

from mqttscope.net.http_head import (
    EXTENSION,
    HEAD_END,
    OLD_SUBPROTOCOL,
    REQUEST_LINE,
    SUBPROTOCOL,
    Remark,
    Request,
    Response,
    listed,
    parse_request,
    parse_response,
    told,
)

MAX_HEADER_BYTES = 64 * 1024
"""Longest HTTP head that is collected, in bytes."""
MAX_EARLY_BYTES = 4 * 1024
"""Client bytes that are held behind a request while its response is awaited."""

HTTP, HELD, FRAMES, LOST = "http", "held", "frames", "lost"
"""Phases of one direction: in a head (or its body), behind a request without response yet, done, given up."""
_STEP = 4 * 1024

ACCEPT_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

HTTP_REASONS = (
    "not_http header_too_long request_not_get http_version_old upgrade_header_missing connection_header_missing "
    "websocket_version_wrong key_missing key_invalid request_not_seen response_not_seen not_upgraded gap_in_head "
    "truncated_head body_length_unknown accept_missing accept_wrong subprotocol_not_offered subprotocol_old "
    "subprotocol_foreign subprotocol_missing subprotocol_wrong extension_not_offered extension_unknown "
    "deflate_parameters_invalid"
)
"""Every ``Problem.reason`` of the HTTP exchange, separated by spaces."""

_ACCEPT = re.compile("[A-Za-z0-9+/]{27}=")
_UPGRADE_LINE = re.compile(rb"\nupgrade[ \t]*:(?:[^\r\n]*[ \t,])?websocket[ \t,/\r\n]", re.IGNORECASE)


@dataclass(slots=True)
class Upgrade:
    """The answer to a request to switch to WebSocket has been seen, or is known to be missing (``status`` is ``None``).

    ``request_path`` and ``host`` are empty when the request was not captured.  ``accepted``: the server switched.
    ``extensions`` are the server's, with parameters.  ``problems``: the reasons of the ``Problem`` events that follow.
    """

    request_path: str
    host: str
    subprotocols_offered: list[str]
    subprotocol: str | None
    accepted: bool
    status: int | None
    extensions: list[str]
    problems: list[str]


@dataclass(slots=True)
class Problem:
    """Something an endpoint must not do, or a limit of what can be read.

    ``reason`` is one of ``HTTP_REASONS`` or ``websocket_frames.FRAME_REASONS``; ``offset`` is where the head or frame
    begins in the stream of its direction, in bytes.  ``fatal``: framing is lost, what follows comes as ``Lost``.
    """

    from_client: bool
    reason: str
    detail: str
    offset: int
    fatal: bool


@dataclass(slots=True)
class Opening:
    """One direction until its frames begin."""

    from_client: bool
    phase: str = HTTP
    offset: int = 0
    """Position in the stream of the first byte of ``buffer``."""
    buffer: bytearray = field(default_factory=bytearray)
    """The start of a head; in the end, the bytes that the exchange did not use."""
    searched: int = 0
    body: int = 0  # bytes of a body that are still to come
    closed: bool = False

    def use(self, length: int) -> bytes:
        """Take ``length`` bytes off the buffer."""
        used = bytes(self.buffer[:length])
        del self.buffer[:length]
        self.offset += length
        self.searched = 0
        return used


@dataclass(slots=True)
class Handshake:
    """The exchange of one connection; a direction whose phase is ``FRAMES`` or ``LOST`` gets no more bytes here."""

    max_header_bytes: int = MAX_HEADER_BYTES
    max_early_bytes: int = MAX_EARLY_BYTES
    client: Opening = field(default_factory=lambda: Opening(True))
    server: Opening = field(default_factory=lambda: Opening(False))
    request: Request | None = None  # the one that waits for its response
    request_offset: int = 0
    response: Response | None = None  # the one that switched protocols

    def feed(self, from_client: bool, data: bytes, out: list[Upgrade | Problem]) -> int:
        """Take bytes of one direction; returns how many were taken, the others lie behind the exchange."""
        side = self.client if from_client else self.server
        at = 0
        while at < len(data) and side.phase in (HTTP, HELD):
            # Taken in steps, for deleting from the front of a long buffer would be slow.
            side.buffer += data[at : at + _STEP]
            at = min(at + _STEP, len(data))
            self._advance(out)
        return at

    def gap(self, from_client: bool, length: int, out: list[Upgrade | Problem]) -> None:
        """Say that ``length`` bytes were not captured: the direction is given up."""
        side = self.client if from_client else self.server
        self._give_up(side, "gap_in_head", not_captured(length), out)
        self._advance(out)

    def close(self, from_client: bool, out: list[Upgrade | Problem]) -> None:
        """Say that a direction ended."""
        side = self.client if from_client else self.server
        side.closed = True
        if side.phase == HTTP and side.buffer:
            detail = f"the direction ended inside an HTTP head, at its byte {len(side.buffer)}"
            out.append(Problem(from_client, "truncated_head", detail, side.offset, False))
        self._advance(out)

    def _advance(self, out: list[Upgrade | Problem]) -> None:
        """Read heads until both directions need more bytes."""
        while self._read_request(out) or self._read_response(out):
            pass
        mute = self.server.phase == LOST or self.server.closed or len(self.client.buffer) > self.max_early_bytes
        if self.client.phase == HELD and mute and self.request:
            self._report(None, out)
            self.request.remarks.clear()  # a response that comes after all does not repeat them
            self.client.phase = FRAMES

    def _read_request(self, out: list[Upgrade | Problem]) -> bool:
        head = self._head(self.client, out)
        if not head:
            return False
        self.request_offset = self.client.offset - len(head)
        self.request = parse_request(head)
        if self.request is None:
            self._give_up(self.client, "not_http", "the first line is not a request of HTTP/1.x", out)
        else:
            self.client.phase = FRAMES if self.server.phase == FRAMES else HELD
        return True

    def _read_response(self, out: list[Upgrade | Problem]) -> bool:
        head = self._head(self.server, out)
        if not head:
            return False
        response = parse_response(head)
        if response is None:
            self._give_up(self.server, "not_http", "the first line is not a status line of HTTP/1.x", out)
        elif response.status >= 200 or response.status == 101:
            self._report(response, out, self.server.offset - len(head))
            if response.switches:
                self.response = response
                self.server.phase = FRAMES
            elif response.status == 101:
                self.server.phase = self.client.phase = LOST
            elif response.body_length is None:
                detail = "the end of the response's body is not told by Content-Length"
                self._give_up(self.server, "body_length_unknown", detail, out)
            else:
                self.server.body = response.body_length
            if self.client.phase == HELD:
                self.client.phase = FRAMES if response.switches else HTTP
            self.request = None
        return True

    def _head(self, side: Opening, out: list[Upgrade | Problem]) -> bytes:
        """Take a complete head off the buffer; empty when there is none."""
        if side.body:
            side.body -= len(side.use(min(side.body, len(side.buffer))))
        if side.phase != HTTP or not side.buffer:
            return b""
        start = bytes(side.buffer[:7])
        if not (start[:3].isalpha() and start[:3].isupper() if side.from_client else b"HTTP/1.".startswith(start)):
            self._give_up(side, "not_http", "the stream does not begin with an HTTP/1.x head", out)
            return b""
        found = HEAD_END.search(side.buffer, max(0, side.searched - 3))
        side.searched = len(side.buffer)
        if (found.end() if found else side.searched) > self.max_header_bytes:
            self._give_up(side, "header_too_long", f"an HTTP head is longer than {self.max_header_bytes} bytes", out)
            return b""
        return side.use(found.end()) if found else b""

    def _report(self, response: Response | None, out: list[Upgrade | Problem], offset: int = 0) -> None:
        upgrade, remarks = judge(self.request, response)
        out.append(upgrade)
        asked = len(self.request.remarks) if self.request else 1
        for number, (reason, detail) in enumerate(remarks):
            asking = number < asked
            fatal = reason == "not_upgraded" and response is not None and response.status == 101
            out.append(Problem(asking, reason, detail, self.request_offset if asking else offset, fatal))

    def _give_up(self, side: Opening, reason: str, detail: str, out: list[Upgrade | Problem]) -> None:
        out.append(Problem(side.from_client, reason, detail, side.offset, True))
        side.phase = LOST


def not_captured(length: int) -> str:
    """How many bytes the capture does not have, in words."""
    return "1 byte was not captured" if length == 1 else f"{length} bytes were not captured"


def looks_like_upgrade(head: bytes) -> bool | None:
    """Whether a client's stream, from its first byte, begins with a request to switch to WebSocket.

    ``None``: more bytes are needed (never for more than ``MAX_HEADER_BYTES``).  Time is linear in ``head``.
    """
    if head[:4] != b"GET "[: len(head)]:
        return False
    line = head.find(b"\n", 0, MAX_HEADER_BYTES)
    if line < 0:
        return None if len(head) <= MAX_HEADER_BYTES else False
    request = REQUEST_LINE.match(head)
    if request is None or request[3] == b"0":
        return False
    end = HEAD_END.search(head, line - 1, MAX_HEADER_BYTES)
    if _UPGRADE_LINE.search(head, line, end.end() if end else MAX_HEADER_BYTES):
        return True
    return False if end or len(head) > MAX_HEADER_BYTES else None


def judge(request: Request | None, response: Response | None) -> tuple[Upgrade, list[Remark]]:
    """Put both halves together (``None``: not captured): the event and the remarks behind its ``problems``."""
    asked = request or Request(remarks=[("request_not_seen", "the capture has no upgrade request")])
    remarks = list(asked.remarks)
    upgrade = Upgrade(asked.path, asked.host, list(asked.subprotocols), None, False, None, [], [])
    if response is None:
        remarks.append(("response_not_seen", "the capture has no response to the request; frames are assumed"))
    else:
        remarks += response.remarks
        if response.switches:
            remarks += _compare(request, response)
        upgrade.subprotocol, upgrade.extensions = response.subprotocol, list(response.extensions)
        upgrade.accepted, upgrade.status = response.switches, response.status
    upgrade.problems = [reason for reason, _ in remarks]
    return upgrade, remarks


def accept_for(key: str) -> str:
    """The Sec-WebSocket-Accept value that answers a Sec-WebSocket-Key (RFC 6455 section 4.2.2)."""
    digest = sha1(key.encode("utf-8", "surrogateescape") + ACCEPT_GUID, usedforsecurity=False).digest()
    return b64encode(digest).decode("ascii")


def _compare(request: Request | None, response: Response) -> list[Remark]:
    got, wanted = response.accept, accept_for(request.key) if request and request.key is not None else None
    selected, known = response.subprotocol, (SUBPROTOCOL, OLD_SUBPROTOCOL)
    remarks = []
    if got is None:
        remarks.append(("accept_missing", "the response has no Sec-WebSocket-Accept"))
    elif wanted is not None and got != wanted:
        remarks.append(("accept_wrong", f"Sec-WebSocket-Accept is {told(got, _ACCEPT)}, the key asks for {wanted!r}"))
    if selected is None:
        remarks.append(("subprotocol_missing", "the response selects no subprotocol"))
    elif selected not in known or (request and selected not in request.subprotocols):
        offered = listed(request.subprotocols) if request else "unknown"
        remarks.append(("subprotocol_wrong", f"the response selects {listed([selected])} (offered: {offered})"))
    for element in response.extensions:
        name = element.split(";")[0].strip().lower()
        if request and name not in request.extensions:
            remarks.append(
                ("extension_not_offered", f"the response uses {told(name, EXTENSION)}, which was not offered")
            )
    return remarks
