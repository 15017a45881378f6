"""The side that makes connections: a link to a broker, or one sentence that says why there is none."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mqttscope.net.http_upgrade import SUBPROTOCOL
from mqttscope.transport.link import CLOSE_TIMEOUT_S, Link, Listener, link_error
from mqttscope.transport.recording import Recorder
from mqttscope.transport.target import Target
from mqttscope.transport.tls import upstream_context
from mqttscope.transport.websocket import KEY_BYTES, ClientHandshake, WebSocketError

CONNECT_TIMEOUT_S = 10.0
"""How long connecting may take unless said otherwise: names, TCP, TLS and WebSocket together."""
_MOMENT_S = 0.5
"""How long a broker that refuses a WebSocket has to close the connection."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class Address(NamedTuple):
    """What a host name was resolved to."""

    family: int
    name: tuple[Any, ...]
    """As sockets take it: IP address and port first."""

    @property
    def ip(self) -> str:
        """The IP address, for `target.loopback`."""
        return str(self.name[0])


async def resolve(target: Target) -> list[Address]:
    """The addresses of a broker, best first; `LinkError` when there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise link_error(error, target, timeout_s=0) from None
    return list(dict.fromkeys(Address(family, name) for family, _, _, _, name in found if family in _FAMILIES))


async def connect(
    target: Target,
    listener: Listener,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
    source: tuple[str, int] | None = None,
    recorder: Recorder | None = None,
    addresses: Sequence[Address] | None = None,
    subprotocol: str = SUBPROTOCOL,
) -> Link:
    """A link to a broker, ready for MQTT; `LinkError` says in one sentence why there is none.

    ``tls``: how to speak TLS with targets that want it, by default with the system's CAs.  ``server_name``: what the
    certificate has to be for, by default the target's host.  ``source``: local address and port to connect from.
    ``addresses``: what `resolve` said, for those who look at them first; they are tried in their order.
    ``subprotocol``: of WebSockets, ``mqtt`` or ``mqttv3.1``.
    """
    context = (tls or upstream_context()) if target.tls else None
    name = server_name or target.host
    loop = asyncio.get_running_loop()
    link: Link | None = None
    sock: socket.socket | None = None
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _connected(addresses or await resolve(target), source, timeout_s)
            handshake = None
            if target.websocket:
                handshake = ClientHandshake(target.authority, target.path, os.urandom(KEY_BYTES), (subprotocol,))
            link = Link(lambda _: listener, handshake, is_client=True, recorder=recorder)
            made = link
            await loop.create_connection(
                lambda: made,
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
    """End what will not be used; ``gently``: it is closing already, and may take a moment."""
    if link is None or not link.connected:
        sock.close()
        return
    if gently:
        with suppress(TimeoutError):
            await asyncio.wait_for(link.closed.wait(), _MOMENT_S)
    link.abort()
    await link.closed.wait()


async def _connected(addresses: Sequence[Address], source: tuple[str, int] | None, timeout_s: float) -> socket.socket:
    """A socket that is connected to the first address that answers; the error of the first one when none does."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for left, (family, name) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            if source is not None:
                sock.bind(source)
            # An address that swallows everything leaves time for the others.
            async with asyncio.timeout(timeout_s / left):
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
