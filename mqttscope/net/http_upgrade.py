"""Reads the HTTP/1.1 exchange that opens a WebSocket (RFC 6455 sections 1.3 and 4), passively.

`Handshake` takes the ordered bytes of both directions and returns the request, the response and every deviation as
values; the bytes after the exchange are left to ``websocket.WebSocket``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha1
from typing import Final

SUBPROTOCOL_NAME: Final = re.compile(r"mqtt(?:v?\d(?:\.\d){0,2})?", re.IGNORECASE)
"""Present and former names of the subprotocol in brokers and clients; any other name may be a token."""
SUBPROTOCOL: Final = "mqtt"
OLD_SUBPROTOCOL: Final = "mqttv3.1"
WINDOW_BITS: Final = ("8", "9", "10", "11", "12", "13", "14", "15")

Remark = tuple[str, str]
"""A `Problem.reason` and its `Problem.detail`."""

HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([^ \r\n]+) +HTTP/1\.(\d)[ \t]*\r?(?:\n|$)")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.(\d) (\d{3})(?: [^\r\n]*)?\r?(?:\n|$)")
_METHODS: Final = re.compile("[A-Z]{3,8}")
_NUMBER: Final = re.compile(r"\d{1,3}")
_PROTOCOL: Final = re.compile(r"h2c|HTTP/\d(?:\.\d)?|TLS/\d(?:\.\d)?|mqtt\w{0,5}", re.IGNORECASE)
EXTENSION: Final = re.compile(r"(?:permessage|x-webkit)-[\w-]{1,24}")
_PARAMETER: Final = re.compile(r"(?:client|server)_(?:no_context_takeover|max_window_bits)(?:=\d{1,3})?")
_KEY: Final = re.compile("[A-Za-z0-9+/]{21}[AQgw]==")


@dataclass(slots=True)
class Request:
    """The relevant parts of an upgrade request; ``extensions`` are the names offered, in lower case."""

    path: str = ""
    host: str = ""
    key: str | None = None
    subprotocols: list[str] = field(default_factory=list)
    extensions: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)


@dataclass(slots=True)
class Response:
    """The relevant parts of a response."""

    status: int
    accept: str | None
    subprotocol: str | None
    extensions: list[str]
    switches: bool
    """Status 101, and a switch to WebSocket."""
    body_length: int | None
    """``None`` without a usable Content-Length."""
    deflate: bool = False
    client_takeover: bool = True
    server_takeover: bool = True
    remarks: list[Remark] = field(default_factory=list)


def parse_request(head: bytes) -> Request | None:
    """Read the head of a request; ``None`` if its first line is not HTTP/1.x."""
    line = REQUEST_LINE.match(head)
    if line is None:
        return None
    headers = _headers(head)
    first = {name: values[0] for name, values in headers.items()}
    version, key = first.get("sec-websocket-version"), first.get("sec-websocket-key")
    is_key = key is None or _KEY.fullmatch(key)
    offered = _elements(headers, "sec-websocket-protocol")
    token = "subprotocol_old" if OLD_SUBPROTOCOL in offered else "subprotocol_foreign"
    checks = [
        (line[1] == b"GET", "request_not_get", f"the method is {quoted(_text(line[1]), _METHODS)}"),
        (line[3] != b"0", "http_version_old", "the request is HTTP/1.0"),
        *_tokens(headers, "request"),
        (version == "13", "websocket_version_wrong", f"Sec-WebSocket-Version is {quoted(version, _NUMBER)}"),
        (key is not None, "key_missing", "the request has no Sec-WebSocket-Key"),
        (is_key, "key_invalid", f"Sec-WebSocket-Key is not 16 bytes in base64: {quoted(key)}"),
        (offered, "subprotocol_not_offered", "the request offers no subprotocol"),
        (not offered or SUBPROTOCOL in offered, token, f"the request offers {list_quoted(offered)}"),
    ]
    remarks = [(reason, detail) for good, reason, detail in checks if not good]
    extensions = [element.split(";")[0].strip().lower() for element in _elements(headers, "sec-websocket-extensions")]
    return Request(_text(line[2]), first.get("host", ""), key, offered, extensions, remarks)


def parse_response(head: bytes) -> Response | None:
    """Read the head of a response; ``None`` if its first line is not HTTP/1.x."""
    line = _STATUS_LINE.match(head)
    if line is None:
        return None
    headers = _headers(head)
    first = {name: values[0] for name, values in headers.items()}
    status = int(line[2])
    body = first.get("content-length", "")
    if status < 200 or status in (204, 304):
        body = "0"
    known = body.isascii() and body.isdigit() and len(body) < 19 and "transfer-encoding" not in headers
    accept, subprotocol = first.get("sec-websocket-accept"), first.get("sec-websocket-protocol")
    extensions = _elements(headers, "sec-websocket-extensions")
    response = Response(status, accept, subprotocol, extensions, status == 101, int(body) if known else None)
    checks = _tokens(headers, "response")
    to = headers.get("upgrade")
    if status != 101:
        response.remarks.append(("not_upgraded", f"the server answers {status}"))
    elif to and not checks[0][0]:
        response.switches = False
        response.remarks.append(("not_upgraded", f"the server switches to {list_quoted(to, _PROTOCOL)}"))
    else:
        response.remarks += [(reason, detail) for good, reason, detail in checks if not good]
        _negotiate(response)
    return response


def _negotiate(response: Response) -> None:
    """Read the agreed permessage-deflate parameters (RFC 7692 section 7.1) into ``response``."""
    for element in response.extensions:
        name, *rest = (part.strip() for part in element.split(";"))
        if name.lower() != "permessage-deflate":
            response.remarks.append(("extension_unknown", f"the response uses {quoted(name, EXTENSION)}"))
            continue
        seen = set()
        bad = "it appears twice" if response.deflate else ""
        response.deflate = True
        for parameter in rest:
            word, _, value = (part.strip().strip('"') for part in parameter.partition("="))
            if word in seen:
                bad = f"{quoted(word, _PARAMETER)} appears twice"
            seen.add(word)
            if word in ("client_no_context_takeover", "server_no_context_takeover") and not value:
                response.client_takeover &= word[0] != "c"
                response.server_takeover &= word[0] != "s"
            elif word not in ("client_max_window_bits", "server_max_window_bits") or value not in WINDOW_BITS:
                bad = f"{quoted(parameter, _PARAMETER)} is not a parameter of a response"
        if bad:
            response.remarks.append(("deflate_parameters_invalid", f"permessage-deflate: {bad}"))


def _tokens(headers: dict[str, list[str]], what: str) -> list[tuple[object, str, str]]:
    upgrade = [token.lower().partition("/")[0] for token in _elements(headers, "upgrade")]
    connection = [token.lower() for token in _elements(headers, "connection")]
    return [
        ("websocket" in upgrade, "upgrade_header_missing", f"the {what} has no Upgrade: websocket"),
        ("upgrade" in connection, "connection_header_missing", f"the {what} has no Connection: Upgrade"),
    ]


def _headers(head: bytes) -> dict[str, list[str]]:
    """Header fields by lower-case name, in order; a folded line (RFC 9112 section 5.2) continues the one before."""
    fields: dict[str, list[str]] = {}
    values: list[str] | None = None
    for line in head.split(b"\n")[1:]:
        if line[:1] in (b" ", b"\t"):
            # The pieces stay separate (joining them one by one would be quadratic), which makes no difference in lists.
            if values is not None and line.strip():
                values.append(_text(line.strip()))
            continue
        name, colon, value = line.partition(b":")
        if colon:
            values = fields.setdefault(_text(name.strip()).lower(), [])
            values.append(_text(value.strip()))
    return fields


def quoted(value: str | None, known: re.Pattern[str] | None = None) -> str:
    """A value for a remark: a value of an unknown form may be a token, so only its length is shown."""
    if value is None:
        return "missing"
    return repr(value) if known is not None and known.fullmatch(value) else f"{len(value)} characters"


def list_quoted(values: list[str], known: re.Pattern[str] = SUBPROTOCOL_NAME) -> str:
    """Values of a list for a remark; values of an unknown form, which may be tokens, are only counted."""
    shown = [name for name in values if known.fullmatch(name)]
    others = len(values) - len(shown)
    return ", ".join([*shown, *([f"{others} other{'s' if others > 1 else ''}"] if others else [])]) or "none"


def _elements(headers: dict[str, list[str]], name: str) -> list[str]:
    """The elements of a comma-separated list field, which may be spread over several lines."""
    return [element.strip() for value in headers.get(name, ()) for element in value.split(",") if element.strip()]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


MAX_HEADER_BYTES: Final = 64 * 1024
"""Maximum length of an HTTP head, in bytes."""
MAX_EARLY_BYTES: Final = 4 * 1024
"""Maximum number of client bytes held after a request while its response is awaited."""

_STEP: Final = 4 * 1024


class WebSocketPhase(StrEnum):
    """Progress of one direction of a WebSocket."""

    HTTP = "http"
    """In a head of the HTTP exchange, or in its body."""
    HELD = "held"
    """After a request, before its response."""
    FRAMES = "frames"
    """The exchange is over."""
    SEARCHING = "searching"
    """Framing is lost; the next frame is searched for."""
    LOST = "lost"


HTTP, HELD, FRAMES, SEARCHING, LOST = WebSocketPhase

ACCEPT_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

_ACCEPT: Final = re.compile("[A-Za-z0-9+/]{27}=")
_UPGRADE_LINE: Final = re.compile(rb"\nupgrade[ \t]*:(?:[^\r\n]*[ \t,])?websocket[ \t,/\r\n]", re.IGNORECASE)


@dataclass(slots=True)
class Upgrade:
    """The answer to a request to switch to WebSocket, or the certainty that it is missing (``status`` is ``None``).

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
    """A protocol violation by an endpoint, or a limit of this reader.

    ``offset`` is the start of the head or frame in the stream of its direction, in bytes.  ``fatal``: framing is lost,
    and the following bytes are reported as ``LostBytes``.
    """

    from_client: bool
    reason: str
    detail: str
    offset: int
    fatal: bool


Note = Callable[[Upgrade | Problem], object]
"""Takes the events of an exchange in order."""


@dataclass(slots=True)
class HandshakeSide:
    """One direction until its frames begin."""

    from_client: bool
    phase: WebSocketPhase = HTTP
    offset: int = 0
    """Stream offset of the first byte of ``buffer``."""
    buffer: bytearray = field(default_factory=bytearray)
    """The start of a head; in the end, the bytes that the exchange did not use."""
    searched: int = 0
    body: int = 0  # bytes of a body that are still to come
    closed: bool = False

    def consume(self, length: int) -> bytes:
        """Remove ``length`` bytes from the front of the buffer."""
        used = bytes(self.buffer[:length])
        del self.buffer[:length]
        self.offset += length
        self.searched = 0
        return used


@dataclass(slots=True)
class Handshake:
    """The exchange of one connection; a direction in phase ``FRAMES`` or ``LOST`` gets no more bytes here."""

    client: HandshakeSide = field(default_factory=lambda: HandshakeSide(True))
    server: HandshakeSide = field(default_factory=lambda: HandshakeSide(False))
    request: Request | None = None  # the request that awaits its response
    request_offset: int = 0
    response: Response | None = None  # the response that switched protocols

    def feed(self, from_client: bool, data: bytes, note: Note) -> int:
        """Take bytes of one direction; returns how many belong to the exchange."""
        side = self.client if from_client else self.server
        at = 0
        while at < len(data) and side.phase in (HTTP, HELD):
            # In steps, since deleting from the front of a long buffer is slow.
            side.buffer += data[at : at + _STEP]
            at = min(at + _STEP, len(data))
            self._advance(note)
        return at

    def gap(self, from_client: bool, length: int, note: Note) -> None:
        """Take a gap of ``length`` bytes, which ends the reading of this direction."""
        side = self.client if from_client else self.server
        self._give_up(side, "gap_in_head", not_captured(length), note)
        self._advance(note)

    def close(self, from_client: bool, note: Note) -> None:
        """End a direction, which may be inside a head."""
        side = self.client if from_client else self.server
        side.closed = True
        if side.phase is HTTP and side.buffer:
            detail = f"the direction ended inside an HTTP head, at its byte {len(side.buffer)}"
            note(Problem(from_client, "truncated_head", detail, side.offset, False))
        self._advance(note)

    def _advance(self, note: Note) -> None:
        """Read heads until both directions need more bytes."""
        while True:
            if head := self._head(self.client, note):
                self._read_request(head, note)
            elif head := self._head(self.server, note):
                self._read_response(head, note)
            else:
                break
        mute = self.server.phase is LOST or self.server.closed or len(self.client.buffer) > MAX_EARLY_BYTES
        if self.client.phase is HELD and mute and self.request:
            self._report(None, note)
            self.request.remarks.clear()  # a late response does not repeat them
            self.client.phase = FRAMES

    def _read_request(self, head: bytes, note: Note) -> None:
        self.request_offset = self.client.offset - len(head)
        self.request = parse_request(head)
        if self.request is None:
            self._give_up(self.client, "not_http", "the first line is not a request of HTTP/1.x", note)
        else:
            self.client.phase = FRAMES if self.server.phase is FRAMES else HELD

    def _read_response(self, head: bytes, note: Note) -> None:
        response = parse_response(head)
        if response is None:
            self._give_up(self.server, "not_http", "the first line is not a status line of HTTP/1.x", note)
        elif response.status >= 200 or response.status == 101:
            self._report(response, note, self.server.offset - len(head))
            if response.switches:
                self.response = response
                self.server.phase = FRAMES
            elif response.status == 101:
                self.server.phase = self.client.phase = LOST
            elif response.body_length is None:
                detail = "Content-Length does not give the end of the response's body"
                self._give_up(self.server, "body_length_unknown", detail, note)
            else:
                self.server.body = response.body_length
            if self.client.phase is HELD:
                self.client.phase = FRAMES if response.switches else HTTP
            self.request = None

    def _head(self, side: HandshakeSide, note: Note) -> bytes:
        """Remove a complete head from the buffer; empty while it is incomplete."""
        if side.body:
            side.body -= len(side.consume(min(side.body, len(side.buffer))))
        if side.phase is not HTTP or not side.buffer:
            return b""
        start = bytes(side.buffer[:7])
        if not (start[:3].isalpha() and start[:3].isupper() if side.from_client else b"HTTP/1.".startswith(start)):
            self._give_up(side, "not_http", "the stream does not begin with an HTTP/1.x head", note)
            return b""
        match = HEAD_END.search(side.buffer, max(0, side.searched - 3))
        side.searched = len(side.buffer)
        if (match.end() if match else side.searched) > MAX_HEADER_BYTES:
            self._give_up(side, "header_too_long", f"an HTTP head is longer than {MAX_HEADER_BYTES} bytes", note)
            return b""
        return side.consume(match.end()) if match else b""

    def _report(self, response: Response | None, note: Note, offset: int = 0) -> None:
        upgrade, remarks = judge(self.request, response)
        note(upgrade)
        asked = len(self.request.remarks) if self.request else 1
        for number, (reason, detail) in enumerate(remarks):
            asking = number < asked
            fatal = reason == "not_upgraded" and response is not None and response.status == 101
            note(Problem(asking, reason, detail, self.request_offset if asking else offset, fatal))

    def _give_up(self, side: HandshakeSide, reason: str, detail: str, note: Note) -> None:
        note(Problem(side.from_client, reason, detail, side.offset, True))
        side.phase = LOST


def not_captured(length: int) -> str:
    """Number of missing bytes, in words."""
    return "1 byte was not captured" if length == 1 else f"{length} bytes were not captured"


def looks_like_upgrade(head: bytes) -> bool | None:
    """Whether a client's stream begins with a request to switch to WebSocket; ``None``: more bytes are needed."""
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
    """Combine request and response (``None``: not captured) into the event and the remarks listed in ``problems``."""
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
        remarks.append(("accept_wrong", f"Sec-WebSocket-Accept is {quoted(got, _ACCEPT)}, the key asks for {wanted!r}"))
    if selected is None:
        remarks.append(("subprotocol_missing", "the response selects no subprotocol"))
    elif selected not in known or (request and selected not in request.subprotocols):
        offered = list_quoted(request.subprotocols) if request else "unknown"
        remarks.append(("subprotocol_wrong", f"the response selects {list_quoted([selected])} (offered: {offered})"))
    for element in response.extensions:
        name = element.split(";")[0].strip().lower()
        if request and name not in request.extensions:
            detail = f"the response uses {quoted(name, EXTENSION)}, which was not offered"
            remarks.append(("extension_not_offered", detail))
    return remarks
