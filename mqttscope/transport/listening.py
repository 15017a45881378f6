"""Sockets that listen, and the clients that come."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

BACKLOG = 256
_BUSY_S = 0.2
"""How long to wait when the system has no descriptor for another connection."""
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets for all addresses of a host, an empty name for every address; :class:`OSError` where none can be had.

    With port 0 all of them get the same free port.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    problem: OSError | None = None
    for family, _, _, _, name in dict.fromkeys(found):
        # With port 0 the others get the port of the first.
        wanted = (name[0], listening[0].getsockname()[1] if listening else port, *name[2:])
        try:
            listening.append(_listening(family, wanted))
        except OSError as error:
            problem = problem or error
            # A host without IPv6 may still have a name for ::1; and a free port need not be free for both.
            if error.errno in _NOT_HERE or (listening and not port):
                continue
            for sock in listening:
                sock.close()
            raise
    if problem is not None and not listening:
        raise problem
    return listening


async def accept(listening: socket.socket, take: Callable[[socket.socket], None], note: Callable[[str], None]) -> None:
    """Give every client that connects to ``take``, until this is cancelled or the socket is closed.

    ``note`` gets a sentence when the system has no room for another connection.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, _ = await loop.sock_accept(listening)
        except OSError as error:
            if listening.fileno() < 0:
                return
            if error.errno in _EXHAUSTED:
                note(f"cannot accept: {error.strerror}; clients wait")
                await asyncio.sleep(_BUSY_S)
            continue
        take(sock)


def _listening(family: int, name: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # IPv4 has a socket of its own where both are meant.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(name)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
