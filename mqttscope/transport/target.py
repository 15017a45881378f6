"""Parses listening addresses and broker URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, quote, unquote, urlsplit

from mqttscope.errors import MqttscopeError
from mqttscope.secrets.addresses import without_query_values, without_secrets

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""URL schemes of brokers, with their default ports."""

_PORT = re.compile(r"(?P<before>://(?:\[[^]/]*\]|[^/?#:\[]*)):(?!\d{1,5}(?:[/?#]|$))[^/?#]*")


class AddressError(MqttscopeError, ValueError):
    """An invalid address; the message gives the reason."""


def shown(host: str, port: int) -> str:
    """Host and port: ``192.0.2.1:1883``, ``[2001:db8::1]:1883``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listen(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; IPv6 addresses in brackets, ``*`` for every address, port 0 for any free port."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise AddressError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:1884")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressError(f"{text!r}: an IPv6 address goes into brackets, such as [::1]:1884")
    if not host:
        raise AddressError(f"{text!r} has no host; *{text} listens on every address, 127.0.0.1{text} only on this host")
    if not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise AddressError(f"{port!r} is not a port (0 to 65535, 0 for any free one)")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise AddressError(f"{host!r} is not a host name: {error}") from None
    return ("" if host == "*" else host), int(port)


def split_broker(text: str) -> tuple[str, SplitResult, int]:
    """Scheme, parts and port of a broker's URL (RFC 3986); raises `AddressError` if it is invalid.

    No error message repeats a user name or a password.
    """
    public = _public(text)
    scheme, separator, _ = text.partition("://")
    if not separator:
        raise AddressError(f"{public!r} is not a URL; mqtt://{public} is one")
    scheme = scheme.lower()
    if scheme not in PORTS:
        raise AddressError(f"{public.partition('://')[0]}:// is not one of {', '.join(f'{name}://' for name in PORTS)}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        # Python's message may repeat the text before the host, and an invalid port may be a password.
        public = _PORT.sub(r"\g<before>:***", public)
        is_harmless = str(error).startswith(("Port out of range", "Invalid IPv6"))
        raise AddressError(f"{public!r}: {error if is_harmless else 'host and port cannot be read'}") from None
    if not parts.hostname:
        raise AddressError(f"{public!r} has no host")
    if port == 0:
        raise AddressError("no broker can be reached at port 0")
    return scheme, parts, port or PORTS[scheme]


def parse_upstream(text: str) -> BrokerUrl:
    """The broker behind a proxy: ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` with a host and perhaps a port."""
    scheme, parts, port = split_broker(text)
    if parts.username is not None or parts.password is not None:
        raise AddressError("user name and password come from the clients, not from the upstream URL")
    _refuse_path(parts, websocket=scheme in ("ws", "wss"))
    assert parts.hostname is not None
    return BrokerUrl(scheme, parts.hostname, port)


def _public(text: str) -> str:
    """A URL without the text before the host, and without possible tokens after it."""
    before, at, after = text.rpartition("@")
    scheme, separator, rest = before.partition("://") if at else text.partition("://")
    rest = after if at else rest if separator else text
    # Without a scheme it is read as a URL, which it may be meant to be.
    shown = without_secrets(f"mqtt://{rest}").removeprefix("mqtt://")
    return f"{scheme}://{shown}" if separator else shown


def _refuse_path(parts: SplitResult, *, websocket: bool) -> None:
    """Refuse a path or query, which the proxy cannot apply: clients choose the WebSocket path."""
    if parts.query or parts.fragment or parts.path not in ("", "/"):
        why = "clients choose the WebSocket path themselves" if websocket else "MQTT has no paths"
        raise AddressError(f"{_public(parts.geturl())!r} has more than a host and a port: {why}")


DEFAULT_PATH = "/mqtt"
"""Default WebSocket path of brokers; the specification names no path."""

_UNQUOTED = "/:@!$&'()*+,;=~%?"
"""Characters left unquoted in a path with its query: RFC 3986 sections 3.3 and 3.4, and percent-encoded ones."""


@dataclass(slots=True, frozen=True)
class BrokerUrl:
    """A broker's address, and the user name to connect with."""

    scheme: str
    host: str
    port: int
    user_name: str | None = None
    """User name of the URL, decoded; passwords are never part of it."""
    path: str = ""
    """Path and query of the WebSocket request, as sent; empty without WebSocket."""

    @property
    def tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def authority(self) -> str:
        """Host and port for HTTP's Host field (RFC 9110 section 7.2); a default port is left out."""
        if self.port != PORTS[self.scheme]:
            return shown(self.host, self.port)
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        """A URL for people, without a query and other possible secrets."""
        path = without_query_values(self.path.partition("?")[0])
        return f"{self.scheme}://{shown(self.host, self.port)}{path}"


def parse_broker(text: str) -> BrokerUrl:
    """A `BrokerUrl` from ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` with ``[user@]host[:port]``.

    WebSocket URLs may have a path (default ``/mqtt``) and a query.  Everything else, passwords included, raises
    `AddressError`, which never repeats a password.
    """
    scheme, parts, port = split_broker(text)
    if parts.password is not None:
        raise AddressError("a password does not belong in a URL; secrets come from the environment or a file")
    websocket = scheme in ("ws", "wss")
    if parts.fragment:
        raise AddressError("the URL of a broker has no fragment (#...)")
    if not websocket and (parts.path not in ("", "/") or parts.query):
        raise AddressError(f"{scheme}:// takes a host and a port: MQTT has no paths; ws:// and wss:// have")
    assert parts.hostname is not None
    path = _path(parts) if websocket else ""
    return BrokerUrl(scheme, parts.hostname, port, unquote(parts.username) if parts.username else None, path)


def _path(parts: SplitResult) -> str:
    """Request target: path and query without a fragment (RFC 6455 section 3)."""
    path = parts.path or DEFAULT_PATH
    if parts.query:
        path += f"?{parts.query}"
    if re.search(r"[\x00-\x20\x7f]", path):
        raise AddressError("a WebSocket path must not contain spaces or control characters")
    return quote(path, safe=_UNQUOTED)


def loopback(addresses: Iterable[str]) -> bool:
    """Whether connections to all of these IP addresses stay on this host; false for an empty list.

    Connections to the loopback interface do, and so do connections to the unspecified addresses (``0.0.0.0``, ``::``).
    Takes resolved addresses, since a name does not show where it leads.  Raises :class:`ValueError` for anything that
    is not an IP address.
    """
    parsed = [ip_address(address.partition("%")[0]) for address in addresses]
    return bool(parsed) and all(_is_own(address) for address in parsed)


def _is_own(address: IPv4Address | IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    embedded = mapped or address
    return embedded.is_loopback or embedded.is_unspecified
