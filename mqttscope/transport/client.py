"""Connects to brokers: returns a `Link`, or raises `LinkError` with the reason in one sentence."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.net.http_upgrade import OLD_SUBPROTOCOL, SUBPROTOCOL
from mqttscope.transport.link import CLOSE_TIMEOUT_S, Link, Listener, link_error
from mqttscope.transport.recording import LinkRecorder
from mqttscope.transport.target import BrokerUrl
from mqttscope.transport.tls import upstream_context
from mqttscope.transport.websocket import KEY_BYTES, ClientHandshake, WebSocketError

CONNECT_TIMEOUT_S = 10.0
"""Default timeout for connecting: name resolution, TCP, TLS and WebSocket together."""
_MOMENT_S = 0.5
"""Time for a broker that refuses a WebSocket to close the connection."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class Address(NamedTuple):
    """One address that a host name resolved to."""

    family: int
    name: tuple[Any, ...]
    """Socket address: IP address and port first."""

    @property
    def ip(self) -> str:
        return str(self.name[0])


async def resolve(target: BrokerUrl) -> list[Address]:
    """The addresses of a broker, best first; raises `LinkError` if the host name cannot be resolved."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise link_error(error, target, timeout_s=0) from None
    return list(dict.fromkeys(Address(family, name) for family, _, _, _, name in addresses if family in _FAMILIES))


@dataclass(slots=True)
class BrokerConnector:
    """Opens connections to one broker."""

    target: BrokerUrl
    tls: ssl.SSLContext | None = None
    """TLS context for brokers that need TLS; by default with the system's CAs."""
    server_name: str | None = None
    """Name that the certificate must be valid for; by default the target's host."""
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    addresses: Sequence[Address] | None = None
    """Result of `resolve`, for callers that check it first; tried in order."""

    async def open(
        self,
        listener: Listener,
        version: ProtocolVersion,
        *,
        timeout_s: float | None = None,
        recorder: LinkRecorder | None = None,
    ) -> Link:
        """Open a link that is ready for MQTT of this version, or raise `LinkError`."""
        target, timeout_s = self.target, timeout_s or self.connect_timeout_s
        context = (self.tls or upstream_context()) if target.tls else None
        name = self.server_name or target.host
        link: Link | None = None
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(timeout_s):
                sock = await _connected(self.addresses or await resolve(target), timeout_s)
                handshake = None
                if target.websocket:
                    subprotocol = OLD_SUBPROTOCOL if version == ProtocolVersion.V3_1 else SUBPROTOCOL
                    handshake = ClientHandshake(target.authority, target.path, os.urandom(KEY_BYTES), (subprotocol,))
                link = Link(lambda _: listener, handshake, is_client=True, recorder=recorder)
                protocol = link
                await asyncio.get_running_loop().create_connection(
                    lambda: protocol,
                    sock=sock,
                    ssl=context,
                    server_hostname=name if context is not None else None,
                    ssl_shutdown_timeout=CLOSE_TIMEOUT_S if context is not None else None,
                )
                await link.opened
        except BaseException as error:
            if sock is not None:
                await _drop(link, sock, gently=isinstance(error, WebSocketError))
            if isinstance(error, OSError | UnicodeError | WebSocketError):
                raise link_error(error, target, timeout_s=timeout_s, server_name=name) from None
            raise
        return link


async def _drop(link: Link | None, sock: socket.socket, *, gently: bool) -> None:
    """Close an unused connection; ``gently`` first waits up to `_MOMENT_S` for it to close by itself."""
    if link is None or not link.connected:
        sock.close()
        return
    try:
        if gently:
            with suppress(TimeoutError):
                await asyncio.wait_for(link.closed.wait(), _MOMENT_S)
    finally:
        link.abort()
        await link.closed.wait()


async def _connected(addresses: Sequence[Address], timeout_s: float) -> socket.socket:
    """A socket connected to the first address that answers; raises the first error if no address answers."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for remaining, (family, name) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # An address that never answers must leave time for the others.
            async with asyncio.timeout(timeout_s / remaining):
                await loop.sock_connect(sock, name)
        except OSError as error:
            sock.close()
            problem = problem or error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    assert problem is not None
    raise problem
