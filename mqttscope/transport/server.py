"""Accepts connections: listening sockets, and a link for each client."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress

from mqttscope.transport.link import CLOSE_TIMEOUT_S, Link, Listener, reason
from mqttscope.transport.recording import LinkRecorder
from mqttscope.transport.websocket import ServerHandshake, WebSocketError
from mqttscope.transport.wire import Endpoint

MAX_CONNECTIONS = 1_000
"""Default maximum number of clients at the same time; further ones are closed at once."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Timeout for a client's TLS and WebSocket handshakes."""
BACKLOG = 256
_BUSY_S = 0.2
"""Pause when the system has no descriptor left for another connection."""
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Factory = Callable[[Link], Listener]
"""Called with the link of a client that is ready for MQTT; returns the link's listener."""


class Acceptor(ABC):
    """Listening sockets, and a task for each client."""

    def __init__(self, max_connections: int, report: Callable[[str], None]) -> None:
        self.addresses: list[tuple[str, int]] = []
        """Addresses of the listening sockets."""
        self.clients = 0
        """Number of connected clients."""
        self.refused = 0
        """Number of clients closed because the limit was reached."""
        self._max_connections = max_connections
        self._report = report
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> None:
        """Listen on an address; empty ``host``: all addresses, port 0: any free port.  Raises :class:`OSError`."""
        self._sockets = await listen(host, port)
        self.addresses = [sock.getsockname()[:2] for sock in self._sockets]
        self._accepting = [self._spawn(accept(sock, self._accept, self._report)) for sock in self._sockets]

    async def _stop_listening(self) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for sock in self._sockets:
            sock.close()

    async def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Sockets are closed one turn of the event loop after an abort.
        await asyncio.sleep(0)

    def _accept(self, sock: socket.socket) -> None:
        if self.clients >= self._max_connections:
            self.refused += 1
            self._report(f"a client was closed: there are {self._max_connections:,} connections already")
            sock.close()
            return
        self.clients += 1
        self._spawn(self._serve(sock))

    @abstractmethod
    async def _serve(self, sock: socket.socket) -> None:
        """Serve one client from its first byte to its end."""

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(f"internal error: {type(error).__name__}: {error}")


class Server(Acceptor):
    """A server of links: ``factory`` gets each client's link once it is ready for MQTT."""

    def __init__(
        self,
        factory: Factory,
        *,
        tls: ssl.SSLContext | None = None,
        websocket: bool = False,
        recorder: LinkRecorder | None = None,
        max_connections: int = MAX_CONNECTIONS,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``note`` gets a sentence for each client that was not served."""
        super().__init__(max_connections, note)
        self.links: set[Link] = set()
        """Links of clients that are ready for MQTT."""
        self._factory = factory
        self._tls = tls
        self._websocket = websocket
        self._recorder = recorder

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    async def close(self, within_s: float = CLOSE_TIMEOUT_S) -> None:
        """Stop listening and close all links in good order; links that do not close in time are reset."""
        await self._stop_listening()
        links = list(self.links)
        for link in links:
            link.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(link.closed.wait() for link in links)), within_s)
        for link in links:
            link.abort()
        await self._end_tasks()

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        link: Link | None = None
        try:
            client = Endpoint.of(sock.getpeername())
            handshake = ServerHandshake() if self._websocket else None
            link = Link(self._factory, handshake, is_client=False, recorder=self._recorder)
            protocol = link
            timeout = None if self._tls is None else CLOSE_TIMEOUT_S
            try:
                async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                    await loop.connect_accepted_socket(
                        lambda: protocol, sock, ssl=self._tls, ssl_shutdown_timeout=timeout
                    )
                    await link.opened
            except WebSocketError as error:
                self._report(f"{client}: no WebSocket with the client: {error}")
                await link.closed.wait()
                return
            except (OSError, TimeoutError) as error:
                self._report(f"{client}: the client was not served: {reason(error)}")
                return
            self.links.add(link)
            await link.closed.wait()
        except OSError:  # the client has gone already
            return
        finally:
            self.clients -= 1
            if link is not None:
                self.links.discard(link)
                link.abort()
            sock.close()


async def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of a host; an empty name means all addresses.  Raises :class:`OSError`.

    Port 0 gives all of them the same free port.
    """
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    problem: OSError | None = None
    for family, _, _, _, name in dict.fromkeys(addresses):
        # For port 0, the other sockets get the port of the first one.
        name_with_port = (name[0], listening[0].getsockname()[1] if listening else port, *name[2:])
        try:
            listening.append(_listening(family, name_with_port))
        except OSError as error:
            problem = problem or error
            # A host without IPv6 may still resolve to ::1, and a free port may be in use in the other family.
            if error.errno in _NOT_HERE or (listening and not port):
                continue
            for sock in listening:
                sock.close()
            raise
    if problem is not None and not listening:
        raise problem
    return listening


async def accept(listening: socket.socket, take: Callable[[socket.socket], None], note: Callable[[str], None]) -> None:
    """Pass each client that connects to ``take``, until this is cancelled or the socket is closed.

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
            # IPv4 gets its own socket.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(name)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
