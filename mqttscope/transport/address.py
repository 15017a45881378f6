"""Where to listen and where to connect to, as people write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from mqttscope.redact.addresses import without_secrets

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Schemes of brokers' URLs, with their ports."""


_PORT = re.compile(r"(?P<before>://(?:\[[^]/]*\]|[^/?#:\[]*)):(?!\d{1,5}(?:[/?#]|$))[^/?#]*")


class AddressError(ValueError):
    """An address that cannot be meant; the text says why."""


@dataclass(slots=True, frozen=True)
class Upstream:
    """The broker behind the proxy."""

    scheme: str
    host: str
    port: int

    @property
    def tls(self) -> bool:
        """Whether the proxy speaks TLS with it."""
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        """Whether clients are said to speak WebSocket, which the proxy passes on unread."""
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        return f"{self.scheme}://{shown(self.host, self.port)}"


def shown(host: str, port: int) -> str:
    """``192.0.2.1:1883``, ``[2001:db8::1]:1883``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``; IPv6 addresses in brackets, ``*`` for every address, port 0 for any free one."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise AddressError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:1884")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{text!r}: an IPv6 address goes into brackets, such as [::1]:1884")
    if not host:
        raise AddressError(f"{text!r} names no host; *{text} listens on every address, 127.0.0.1{text} on this host's")
    if not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise AddressError(f"{port!r} is not a port (0 to 65535, 0 for any free one)")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise AddressError(f"{host!r} is no name of a host: {error}") from None
    return ("" if host == "*" else host), int(port)


def split_broker(text: str) -> tuple[str, SplitResult, int]:
    """Scheme, parts and port of a broker's URL (RFC 3986); `AddressError` where these cannot be meant.

    No error repeats a user name or a password.
    """
    said = _public(text)
    scheme, separator, _ = text.partition("://")
    if not separator:
        raise AddressError(f"{said!r} is not a URL; mqtt://{said} is one")
    scheme = scheme.lower()
    if scheme not in PORTS:
        raise AddressError(f"{said.partition('://')[0]}:// is not one of {', '.join(f'{one}://' for one in PORTS)}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        # What Python says of it may hold what stands before the host, and a port that is none may be a password.
        said = _PORT.sub(r"\g<before>:***", said)
        told = str(error)
        why = told if told.startswith(("Port out of range", "Invalid IPv6")) else "host and port cannot be read"
        raise AddressError(f"{said!r}: {why}") from None
    if not parts.hostname:
        raise AddressError(f"{said!r} names no host")
    if port == 0:
        raise AddressError("nobody can be reached at port 0")
    return scheme, parts, port or PORTS[scheme]


def parse_upstream(text: str) -> Upstream:
    """``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` with a host and perhaps a port."""
    scheme, parts, port = split_broker(text)
    if parts.username is not None or parts.password is not None:
        raise AddressError("user name and password come from the clients, not from the upstream URL")
    _no_more(parts, websocket=scheme in ("ws", "wss"))
    assert parts.hostname is not None
    return Upstream(scheme, parts.hostname, port)


def _public(text: str) -> str:
    """What may be shown of a URL: not what stands before the host, nor what may be a token behind it."""
    before, at, after = text.rpartition("@")
    scheme, separator, rest = before.partition("://") if at else text.partition("://")
    rest = after if at else rest if separator else text
    # Without a scheme it is read as the URL that it may be meant as.
    shown = without_secrets(f"mqtt://{rest}").removeprefix("mqtt://")
    return f"{scheme}://{shown}" if separator else shown


def _no_more(parts: SplitResult, *, websocket: bool) -> None:
    """Refuse what a proxy could not do: the path of a WebSocket is the clients' word."""
    if parts.query or parts.fragment or parts.path not in ("", "/"):
        why = "clients name the path of a WebSocket themselves" if websocket else "MQTT has no paths"
        raise AddressError(f"{_public(parts.geturl())!r} has more than a host and a port: {why}")
