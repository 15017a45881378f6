"""The broker that a client of ours connects to, as people write it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, quote, unquote

from mqttscope.redact.addresses import without_query_values
from mqttscope.transport.address import PORTS, AddressError, shown, split_broker

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
        """Whether TLS is spoken with it."""
        return self.scheme in ("mqtts", "wss")

    @property
    def websocket(self) -> bool:
        """Whether MQTT goes inside WebSocket frames."""
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
