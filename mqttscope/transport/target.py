"""Parses addresses as people write them: where to listen, the broker of a proxy, and the broker that we connect to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, quote, unquote, urlsplit

from mqttscope.errors import MqttscopeError
from mqttscope.secrets.addresses import without_query_values, without_secrets

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Schemes of brokers' URLs, with their ports."""

_PORT = re.compile(r"(?P<before>://(?:\[[^]/]*\]|[^/?#:\[]*)):(?!\d{1,5}(?:[/?#]|$))[^/?#]*")


class AddressError(MqttscopeError, ValueError):
    """An address that cannot be meant; the text says why."""


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


def parse_upstream(text: str) -> Target:
    """The broker behind a proxy: ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` with a host and perhaps a port."""
    scheme, parts, port = split_broker(text)
    if parts.username is not None or parts.password is not None:
        raise AddressError("user name and password come from the clients, not from the upstream URL")
    _no_more(parts, websocket=scheme in ("ws", "wss"))
    assert parts.hostname is not None
    return Target(scheme, parts.hostname, port)


def _public(text: str) -> str:
    """What may be shown of a URL: not what stands before the host, nor what may be a token after it."""
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


DEFAULT_PATH = "/mqtt"
"""Where brokers take WebSockets unless they are told otherwise; the specification names no path."""

_UNQUOTED = "/:@!$&'()*+,;=~%?"
"""What stays as it is in a path with its query: RFC 3986 section 3.3 and 3.4, and what is percent-encoded already."""


@dataclass(slots=True, frozen=True)
class Target:
    """A broker, and as whom to speak with it."""

    scheme: str
    host: str
    port: int
    user_name: str | None = None
    """Of the URL, decoded; passwords never stand there."""
    path: str = ""
    """Path and query of the WebSocket's request as they are sent; empty without WebSocket."""

    @property
    def tls(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    @property
    def authority(self) -> str:
        """Host and port as HTTP's Host names them (RFC 9110 section 7.2): the usual port is left out."""
        if self.port != PORTS[self.scheme]:
            return shown(self.host, self.port)
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        """A URL for people: without a query, where some brokers want secrets to be, nor what else may be one."""
        path = without_query_values(self.path.partition("?")[0])
        return f"{self.scheme}://{shown(self.host, self.port)}{path}"


def parse_broker(text: str) -> Target:
    """A `Target` from ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` with ``[user@]host[:port]``.

    URLs of WebSockets may have a path, ``/mqtt`` without one, and a query.  `AddressError` says what is wrong with
    anything else, passwords among it, and repeats none of them.
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
    return Target(scheme, parts.hostname, port, unquote(parts.username) if parts.username else None, path)


def _path(parts: SplitResult) -> str:
    """What the request line names (RFC 6455 section 3: path and query, no fragment)."""
    path = parts.path or DEFAULT_PATH
    if parts.query:
        path += f"?{parts.query}"
    if re.search(r"[\x00-\x20\x7f]", path):
        raise AddressError("the path of a WebSocket holds neither spaces nor control characters")
    return quote(path, safe=_UNQUOTED)


def loopback(addresses: Iterable[str]) -> bool:
    """Whether connections to all of these IP addresses stay on this host; not when there are none.

    Those to the loopback interface do, and those to the unspecified addresses (``0.0.0.0``, ``::``), which lead there.
    Takes addresses that names were resolved to, since a name says nothing of where it leads.  :class:`ValueError` for
    what is no IP address.
    """
    found = [ip_address(address.partition("%")[0]) for address in addresses]
    return bool(found) and all(_own(address) for address in found)


def _own(address: IPv4Address | IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    found = mapped or address
    return found.is_loopback or found.is_unspecified
