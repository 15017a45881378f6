"""Secrets in addresses and in what HTTP requests say: tokens in the query, passwords in front of the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mqttscope.redact.secrets import masked

REDACTED = "***"
_PASSWORD = re.compile(
    r"(?P<user>(?<![\w.~%+-])(?:[A-Za-z][A-Za-z0-9+.-]*://)?[\w.~%+-]*):(?!//)[^\s'\"<>]*@(?=[\w\[])"
)
"""A name and a password in front of a host, which may hold anything but blanks and quotes."""
_VALUE = re.compile(r"(?P<name>[?&;#][\w.~%\[\]-]{1,64})=[^\s&;#'\"<>]+")
"""One part of a query."""
_BARE_QUERY = re.compile(
    r"(?P<address>[A-Za-z][A-Za-z0-9+.-]*://[^\s?#'\"<>]*)(?P<mark>[?#])[^\s=&#'\"<>]+(?=[\s&#'\"<>]|$)"
)
"""A query without a name: all of it may be a token."""
_HOST = re.compile(r"(?:[\w-]{1,63}(?:\.[\w-]{1,63})*|\[[0-9A-Fa-f:.%]+\])?(?::\d{1,5})?")
_SUBPROTOCOL = re.compile(r"[\w.-]{0,16}")
_EXTENSION = re.compile(r"(?:permessage|x-webkit)-[\w-]{1,24}(?:;\s*[a-z_]{1,30}(?:=\"?\d{1,3}\"?)?)*")


def without_query_values(path: str) -> str:
    """The path of a request with asterisks for what its query says: brokers take tokens and passwords there.

    What has the form of a query counts as one, wherever it stands: nobody knows where a broken request has its ``?``.
    """
    path = re.sub(r"//[^/@]*@", f"//{REDACTED}@", path)
    path = re.sub(r"#.+", f"#{REDACTED}", path, flags=re.DOTALL)
    before, mark, query = path.partition("?")
    if "=" in before or ";" in before:
        before = re.sub(r"=[^/]*", f"={REDACTED}", re.sub(r";[^/]*", f";{REDACTED}", before))
    if not query:
        return f"{before}{mark}"
    parts = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        parts.append(f"{name}={REDACTED}" if equals else REDACTED)
    return f"{before}{mark}{'&'.join(parts)}"


def without_secrets(text: str) -> str:
    """A text without the passwords and tokens of the addresses in it."""
    if "@" in text:
        text = _PASSWORD.sub(lambda found: f"{found['user']}:{REDACTED}@", text)
    if "=" in text:
        text = _VALUE.sub(lambda found: f"{found['name']}={REDACTED}", text)
    if "://" in text:
        text = _BARE_QUERY.sub(lambda found: f"{found['address']}{found['mark']}{REDACTED}", text)
    return text


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


_SECRET_HEADER = re.compile(
    rb"((?:^|\n)(?:proxy-)?(?:authorization|set-cookie|cookie|x-[\w-]*(?:token|key|auth)[\w-]*)[ \t]*:[ \t]*)"
    rb"([^\r\n]+)",
    re.IGNORECASE,
)
_OFFERED = re.compile(rb"((?:^|\n)sec-websocket-protocol[ \t]*:)([^\r\n]+)", re.IGNORECASE)
_OTHER_NAME = re.compile(rb"[^\s,]+")
_REQUEST_QUERY = re.compile(rb"(?<=[=])[^&;\s]+|(?<=\?)[^=&;\s]+(?=[&;\s]|$)")


def without_http_secrets(head: bytes) -> bytes:
    """The beginning of an HTTP head, of the same length, with asterisks for what may be a token."""
    line, newline, headers = head.partition(b"\n")
    line = _REQUEST_QUERY.sub(_stars, line)
    headers = newline + headers
    headers = _SECRET_HEADER.sub(lambda found: found[1] + b"*" * len(found[2]), headers)
    return line + _OFFERED.sub(lambda found: found[1] + _OTHER_NAME.sub(_unless_mqtt, found[2]), headers)


def _stars(found: re.Match[bytes]) -> bytes:
    return b"*" * len(found[0])


def _unless_mqtt(found: re.Match[bytes]) -> bytes:
    name = found[0].lower()
    # The rest of a name may be still to come.
    return found[0] if name.startswith(b"mqtt") or b"mqtt".startswith(name) else b"*" * len(name)
