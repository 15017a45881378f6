"""Secrets in what HTTP requests and transports say: tokens in the path and its query, and in headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mqttscope.mqtt.view import text
from mqttscope.net.http_upgrade import SUBPROTOCOL_NAME
from mqttscope.redact.addresses import REDACTED, spans_in_path, without_query_values
from mqttscope.redact.secrets import masked

_HOST = re.compile(r"(?:[\w-]{1,63}(?:\.[\w-]{1,63})*|\[[0-9A-Fa-f:.%]+\])?(?::\d{1,5})?")
_SUBPROTOCOL = re.compile(rf"{SUBPROTOCOL_NAME.pattern}|(?!mqtt)[\w.-]{{0,16}}", re.IGNORECASE)
_EXTENSION = re.compile(r"(?:permessage|x-webkit)-[\w-]{1,24}(?:;\s*[a-z_]{1,30}(?:=\"?\d{1,3}\"?)?)*")


def public_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a transport, without what may be a token: the query of a request, and names that are none."""
    shown = dict(details)
    path, host, chosen, extensions = (shown.get(name) for name in ("path", "host", "subprotocol", "extensions"))
    if isinstance(path, str):
        shown["path"] = masked(without_query_values(path))
    if isinstance(host, str) and not _HOST.fullmatch(host):
        shown["host"] = REDACTED
    if isinstance(chosen, str) and not _SUBPROTOCOL.fullmatch(chosen):
        shown["subprotocol"] = REDACTED
    if isinstance(extensions, list):
        shown["extensions"] = [one if _EXTENSION.fullmatch(one) else REDACTED for one in extensions]
    inside = shown.get("websocket")
    if isinstance(inside, Mapping):
        shown["websocket"] = public_details(inside)
    return shown


def transport_view(details: Mapping[str, Any], *, decrypted: bool, show_secrets: bool = False) -> dict[str, Any]:
    """What is known of a transport as plain JSON values, but for what every transport has: counters, PROXY header."""
    shown = {name: value for name, value in details.items() if name not in ("tcp", "proxy")}
    if not show_secrets:
        shown = public_details(shown)
    if decrypted:
        shown["decrypted"] = True
    return {name: _plain(value) for name, value in shown.items()}


def _plain(value: Any) -> Any:
    """A value of the wire: its text may not be UTF-8."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


_SECRET_HEADER = re.compile(
    rb"((?:^|\n)(?:proxy-)?(?:authorization|set-cookie|cookie|x-[\w-]*(?:token|key|auth)[\w-]*)[ \t]*:[ \t]*)"
    rb"([^\r\n]+)",
    re.IGNORECASE,
)
_OFFERED = re.compile(rb"((?:^|\n)sec-websocket-protocol[ \t]*:)([^\r\n]+)", re.IGNORECASE)
_OTHER_NAME = re.compile(rb"[^\s,]+")
_METHOD_OR_VERSION = re.compile(rb"GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|HTTP/\d\.\d")
_STATUS_LINE = re.compile(rb"HTTP/\d\.\d [1-5]\d\d(?: |\r?\Z)")
_WORD = re.compile(rb"\S+")


def without_http_secrets(head: bytes) -> bytes:
    """The beginning of an HTTP head, of the same length, with asterisks for what may be a token."""
    line, newline, headers = head.partition(b"\n")
    if not _STATUS_LINE.match(line):
        line = _WORD.sub(lambda found: _starred(found[0], cut=not newline and found.end() == len(line)), line)
    headers = newline + headers
    headers = _SECRET_HEADER.sub(lambda found: found[1] + b"*" * len(found[2]), headers)
    return line + _OFFERED.sub(lambda found: found[1] + _OTHER_NAME.sub(_unless_mqtt, found[2]), headers)


def _starred(word: bytes, *, cut: bool) -> bytes:
    """A word of the request line; after one that is ``cut`` there may be the ``@`` of a password."""
    if _METHOD_OR_VERSION.fullmatch(word):
        return word
    shown = bytearray(word)
    # One character for each byte: what is not ASCII is no delimiter.
    for start, end in spans_in_path(word.decode("latin-1") + ("@" if cut else "")):
        end = min(end, len(word))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def _unless_mqtt(found: re.Match[bytes]) -> bytes:
    name = found[0].lower()
    # The rest of a name may be still to come.
    return found[0] if name.startswith(b"mqtt") or b"mqtt".startswith(name) else b"*" * len(name)
