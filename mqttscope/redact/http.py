"""Redacts HTTP heads: replaces everything about users, hosts and programs, in unchanged length.

Everything that opens a WebSocket stays: methods, versions, status codes, the fields that RFC 6455 needs, and words such
as ``mqtt`` in a path.  Everything else becomes text of equal form.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from mqttscope.net.http_upgrade import EXTENSION, SUBPROTOCOL_NAME
from mqttscope.redact.addresses import IPV4_TEXT, Addresses
from mqttscope.redact.kinds import Value
from mqttscope.redact.packets import PacketRedactor
from mqttscope.redact.pseudonyms import Pseudonyms

_REQUEST: Final = re.compile(rb"([A-Z]{3,8})( +)([^ \r\n]*)(.*)", re.DOTALL)
_VERSION: Final = re.compile(rb" +HTTP/\d\.\d[ \t]*\r?\n?")
_STATUS: Final = re.compile(rb"(HTTP/\d\.\d \d{3})( ?)([^\r\n]*)(\r?\n?)", re.DOTALL)
_PHRASES: Final = frozenset(status.phrase.encode().lower() for status in HTTPStatus)
_PATH_WORD: Final = re.compile(
    rb"(?<![A-Za-z0-9])(?:mqtt|mqtts|ws|wss|websocket|websockets|socket)(?![A-Za-z0-9])", re.IGNORECASE
)
_NAMES: Final = frozenset(
    b"host origin cookie set-cookie authorization www-authenticate proxy-authorization user-agent server date upgrade "
    b"connection content-length content-type transfer-encoding cache-control pragma accept accept-encoding "
    b"accept-language x-forwarded-for x-forwarded-proto x-forwarded-host x-real-ip via forwarded referer etag "
    b"last-modified expires location keep-alive sec-websocket-key sec-websocket-accept sec-websocket-version "
    b"sec-websocket-protocol sec-websocket-extensions sec-fetch-dest sec-fetch-mode sec-fetch-site vary age "
    b"access-control-allow-origin x-powered-by x-request-id x-api-key x-auth-token dnt".split()
)
"""Common names of fields, which stay."""
_KEPT: Final = {
    b"upgrade": re.compile(rb"[\w/.,\s-]{0,64}"),
    b"connection": re.compile(rb"(?:upgrade|keep-alive|close|[,\s])*", re.IGNORECASE),
    b"content-length": re.compile(rb"\d{0,20}"),
    b"transfer-encoding": re.compile(rb"(?:chunked|gzip|deflate|identity|[,\s])*", re.IGNORECASE),
    b"sec-websocket-key": re.compile(rb"[A-Za-z0-9+/]{21}[AQgw]=="),
    b"sec-websocket-accept": re.compile(rb"[A-Za-z0-9+/]{27}="),
    b"sec-websocket-version": re.compile(rb"\d{1,3}"),
}
"""Fields with values that stay if they match the pattern."""
_TOKEN: Final = re.compile(rb"[^\s,]+")
_PARAMETERS: Final = re.compile(
    EXTENSION.pattern
    + r"(?:\s*;\s*(?:client|server)_(?:no_context_takeover|max_window_bits)(?:\s*=\s*\"?\d{1,3}\"?)?)*"
)
HEAD: Final = re.compile(rb"(?:[A-Z]{3,8} |HTTP/1\.)")


class HeadRedactor:
    """Replaces values in HTTP heads."""

    def __init__(self, names: Pseudonyms, addresses: Addresses, packets: PacketRedactor) -> None:
        self._names = names
        self._addresses = addresses
        self._value = packets.value

    def replaced(self, head: bytes) -> bytes:
        """The redacted head, in unchanged length, from its first line to the empty line."""
        first, *lines = head.splitlines(keepends=True) or [b""]
        lines_made = [self._first(first)]
        for line in lines:
            if line[:1] in (b" ", b"\t") and line.strip():
                lines_made.append(self._header(line))
                continue
            name, colon, value = line.partition(b":")
            if not colon:
                lines_made.append(line if not line.strip() else self._header(line))
                continue
            lines_made.append(self._field(name, colon, value))
        return b"".join(lines_made)

    def host(self, raw: bytes) -> bytes:
        """The replacement of a host name; equal labels stay equal."""
        return self._value(Value.HOST_NAMES, raw, self._host)

    def _host(self, raw: bytes) -> bytes:
        host, colon, port = raw.rpartition(b":")
        if not colon or not port.isdigit():
            host, colon, port = raw, b"", b""
        if IPV4_TEXT.fullmatch(host):
            return self._addresses.text(host) + colon + port
        return b".".join(self._names.text(label, b"host") for label in host.split(b".")) + colon + port

    def _header(self, raw: bytes) -> bytes:
        return self._value(Value.HTTP_HEADERS, raw, lambda text: self._names.text(text, b"http"))

    def _first(self, line: bytes) -> bytes:
        status = _STATUS.fullmatch(line)
        if status is not None:
            phrase = status[3] if status[3].lower() in _PHRASES else self._header(status[3])
            return status[1] + status[2] + phrase + status[4]
        request = _REQUEST.fullmatch(line)
        if request is None:
            return self._header(line)
        rest = request[4] if _VERSION.fullmatch(request[4]) else self._header(request[4])
        return request[1] + request[2] + self._target(request[3]) + rest

    def _target(self, raw: bytes) -> bytes:
        """The replacement of a path; common words stay."""
        path, mark, query = raw.partition(b"?")
        parts, at = [], 0
        for word in _PATH_WORD.finditer(path):
            parts += [self._header(path[at : word.start()]), word[0]]
            at = word.end()
        return b"".join((*parts, self._header(path[at:]), mark, self._header(query)))

    def _field(self, name: bytes, colon: bytes, value: bytes) -> bytes:
        word = name.strip().lower()
        body = value.strip()
        start = value.index(body) if body else len(value)
        around = value[:start], value[start + len(body) :]
        known = _KEPT.get(word)
        if known is not None and known.fullmatch(body):
            new = body
        elif word == b"host":
            new = self.host(body)
        elif word == b"origin":
            scheme, slashes, host = body.partition(b"://")
            new = scheme + slashes + self.host(host) if slashes else self._header(body)
        elif word == b"sec-websocket-protocol":
            new = _TOKEN.sub(self._subprotocol, body)
        elif word == b"sec-websocket-extensions":
            new = b",".join(self._extension(extension) for extension in body.split(b","))
        else:
            new = self._header(body)
        if word not in _NAMES:
            name = self._header(name)
        return name + colon + around[0] + new + around[1]

    def _subprotocol(self, hit: re.Match[bytes]) -> bytes:
        return hit[0] if SUBPROTOCOL_NAME.fullmatch(hit[0].decode("latin-1")) else self._header(hit[0])

    def _extension(self, raw: bytes) -> bytes:
        return raw if _PARAMETERS.fullmatch(raw.decode("latin-1").strip()) else self._header(raw)
