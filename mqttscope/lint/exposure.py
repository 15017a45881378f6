"""Who can read a connection on its way."""

from __future__ import annotations

from ipaddress import ip_address

from mqttscope.session.connection import Connection


def is_plain(connection: Connection) -> bool:
    """Whether its packets crossed the wire as they are, and not inside TLS that was decrypted for us."""
    return connection.transport in ("tcp", "websocket")


def is_loopback(endpoint: str) -> bool:
    """Whether an endpoint (``127.0.0.1:1883``, ``[::1]:1883``) is the host itself."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)
