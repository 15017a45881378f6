"""The two heads of the HTTP/1.1 exchange that opens a WebSocket, read one at a time (RFC 6455 sections 4.1, 4.2.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SUBPROTOCOL_NAME = re.compile(r"mqtt(?:v?\d(?:\.\d){0,2})?", re.IGNORECASE)
"""Names that brokers and clients use for it, or have used; any other one may be a token."""
SUBPROTOCOL = "mqtt"
OLD_SUBPROTOCOL = "mqttv3.1"
WINDOW_BITS = ("8", "9", "10", "11", "12", "13", "14", "15")

Remark = tuple[str, str]
"""A reason of ``http_upgrade.HTTP_REASONS`` and what is wrong here."""

HEAD_END = re.compile(rb"\r?\n\r?\n")
REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([^ \r\n]+) +HTTP/1\.(\d)[ \t]*\r?(?:\n|$)")
_STATUS_LINE = re.compile(rb"HTTP/1\.(\d) (\d{3})(?: [^\r\n]*)?\r?(?:\n|$)")
_METHODS = re.compile("[A-Z]{3,8}")
_NUMBER = re.compile(r"\d{1,3}")
_PROTOCOL = re.compile(r"h2c|HTTP/\d(?:\.\d)?|TLS/\d(?:\.\d)?|mqtt\w{0,5}", re.IGNORECASE)
EXTENSION = re.compile(r"(?:permessage|x-webkit)-[\w-]{1,24}")
_PARAMETER = re.compile(r"(?:client|server)_(?:no_context_takeover|max_window_bits)(?:=\d{1,3})?")
_KEY = re.compile("[A-Za-z0-9+/]{21}[AQgw]==")


@dataclass(slots=True)
class Request:
    """What is kept of an upgrade request; ``extensions`` are the names offered, in lower case."""

    path: str = ""
    host: str = ""
    key: str | None = None
    subprotocols: list[str] = field(default_factory=list)
    extensions: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)


@dataclass(slots=True)
class Response:
    """What is kept of a response.

    ``switches``: status 101, and not to another protocol than WebSocket; ``deflate``: permessage-deflate was agreed;
    ``body_length``: bytes of body behind the head, ``None`` when Content-Length does not tell.
    """

    status: int
    accept: str | None
    subprotocol: str | None
    extensions: list[str]
    switches: bool
    body_length: int | None
    deflate: bool = False
    client_takeover: bool = True
    server_takeover: bool = True
    remarks: list[Remark] = field(default_factory=list)


def parse_request(head: bytes) -> Request | None:
    """Read the head of a request; ``None`` when its first line is not one of HTTP/1.x."""
    line = REQUEST_LINE.match(head)
    if line is None:
        return None
    headers = _headers(head)
    version, key = _first(headers, "sec-websocket-version"), _first(headers, "sec-websocket-key")
    offered = _elements(headers, "sec-websocket-protocol")
    token = "subprotocol_old" if OLD_SUBPROTOCOL in offered else "subprotocol_foreign"
    checks = [
        (line[1] == b"GET", "request_not_get", f"the method is {told(_text(line[1]), _METHODS)}"),
        (line[3] != b"0", "http_version_old", "the request is HTTP/1.0"),
        *_tokens(headers, "request"),
        (version == "13", "websocket_version_wrong", f"Sec-WebSocket-Version is {told(version, _NUMBER)}"),
        (key is not None, "key_missing", "the request has no Sec-WebSocket-Key"),
        (
            key is None or _KEY.fullmatch(key),
            "key_invalid",
            f"Sec-WebSocket-Key is not 16 bytes in base64: {told(key)}",
        ),
        (offered, "subprotocol_not_offered", "the request offers no subprotocol"),
        (not offered or SUBPROTOCOL in offered, token, f"the request offers {listed(offered)}"),
    ]
    remarks = [(reason, detail) for good, reason, detail in checks if not good]
    extensions = [element.split(";")[0].strip().lower() for element in _elements(headers, "sec-websocket-extensions")]
    return Request(_text(line[2]), _first(headers, "host") or "", key, offered, extensions, remarks)


def parse_response(head: bytes) -> Response | None:
    """Read the head of a response; ``None`` when its first line is not one of HTTP/1.x."""
    line = _STATUS_LINE.match(head)
    if line is None:
        return None
    headers = _headers(head)
    status = int(line[2])
    body = _first(headers, "content-length") or ""
    if status < 200 or status in (204, 304):
        body = "0"
    known = body.isascii() and body.isdigit() and len(body) < 19 and "transfer-encoding" not in headers
    response = Response(
        status,
        _first(headers, "sec-websocket-accept"),
        _first(headers, "sec-websocket-protocol"),
        _elements(headers, "sec-websocket-extensions"),
        status == 101,
        int(body) if known else None,
    )
    checks = _tokens(headers, "response")
    to = headers.get("upgrade")
    if status != 101:
        response.remarks.append(("not_upgraded", f"the server answers {status}"))
    elif to and not checks[0][0]:
        response.switches = False
        response.remarks.append(("not_upgraded", f"the server switches to {listed(to, _PROTOCOL)}"))
    else:
        response.remarks += [(reason, detail) for good, reason, detail in checks if not good]
        _negotiate(response)
    return response


def _negotiate(response: Response) -> None:
    """Read the agreed permessage-deflate parameters (RFC 7692 section 7.1) into ``response``."""
    for element in response.extensions:
        name, *rest = (part.strip() for part in element.split(";"))
        if name.lower() != "permessage-deflate":
            response.remarks.append(("extension_unknown", f"the response uses {told(name, EXTENSION)}"))
            continue
        seen = set()
        bad = "it is there twice" if response.deflate else ""
        response.deflate = True
        for parameter in rest:
            word, _, value = (part.strip().strip('"') for part in parameter.partition("="))
            if word in seen:
                bad = f"{told(word, _PARAMETER)} is there twice"
            seen.add(word)
            if word in ("client_no_context_takeover", "server_no_context_takeover") and not value:
                response.client_takeover &= word[0] != "c"
                response.server_takeover &= word[0] != "s"
            elif word not in ("client_max_window_bits", "server_max_window_bits") or value not in WINDOW_BITS:
                bad = f"{told(parameter, _PARAMETER)} is not a parameter of a response"
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
            # The pieces stay apart (joining them one by one would be quadratic), which is the same for lists.
            if values is not None and line.strip():
                values.append(_text(line.strip()))
            continue
        name, colon, value = line.partition(b":")
        if colon:
            values = fields.setdefault(_text(name.strip()).lower(), [])
            values.append(_text(value.strip()))
    return fields


def told(value: str | None, known: re.Pattern[str] | None = None) -> str:
    """A value for a remark: what is not of a known form may be a token, so only its length is said."""
    if value is None:
        return "missing"
    return repr(value) if known is not None and known.fullmatch(value) else f"{len(value)} characters"


def listed(values: list[str], known: re.Pattern[str] = SUBPROTOCOL_NAME) -> str:
    """Values of a list for a remark; those that are not of a known form, which may be tokens, are counted."""
    shown = [one for one in values if known.fullmatch(one)]
    others = len(values) - len(shown)
    return ", ".join([*shown, *([f"{others} other{'s' if others > 1 else ''}"] if others else [])]) or "none"


def _first(headers: dict[str, list[str]], name: str) -> str | None:
    values = headers.get(name)
    return values[0] if values else None


def _elements(headers: dict[str, list[str]], name: str) -> list[str]:
    """The elements of a comma-separated list field, which may be spread over several lines."""
    return [element.strip() for value in headers.get(name, ()) for element in value.split(",") if element.strip()]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
