"""Listens for clients, connects each to the broker, and ends in good order."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from mqttscope.proxy.pair import ProxiedConnection
from mqttscope.transport.link import reason
from mqttscope.transport.recording import GRACE_S, HURRY_S, REST_S, Recording
from mqttscope.transport.server import MAX_CONNECTIONS, Acceptor
from mqttscope.transport.sockets import AcknowledgmentPoller
from mqttscope.transport.target import BrokerUrl, shown
from mqttscope.transport.wire import Endpoint

CONNECT_TIMEOUT_S = 10.0
"""Timeout for the connection to the broker, TLS included."""
CLIENT_TIMEOUT_S = 30.0
"""Timeout for a client's CONNECT, and for the broker's answer."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Timeout for a client's TLS handshake."""
MAX_REPORTED = 20
"""Maximum number of connection problems reported one by one; further ones are counted."""
_DRAIN_S = 0.4
"""Time for connections to take their remaining bytes when the proxy ends."""
_LOOK_S = 0.02
"""Interval for checking at the end whether everything is judged."""


@dataclass(slots=True)
class Route:
    """Where the proxy listens and connects to, and its limits."""

    host: str
    """Host to listen on; empty for every address."""
    port: int
    upstream: BrokerUrl
    listen_tls: ssl.SSLContext | None = None
    upstream_tls: ssl.SSLContext | None = None
    max_connections: int = field(default_factory=lambda: MAX_CONNECTIONS)
    connect_timeout_s: float = field(default_factory=lambda: CONNECT_TIMEOUT_S)
    """Timeout for connecting to the broker; 0: unlimited."""
    client_timeout_s: float = field(default_factory=lambda: CLIENT_TIMEOUT_S)
    """Timeout for the client's first packet, and then for the broker's; 0: unlimited."""


class Relay(Acceptor):
    """Accepts clients and connects each to the broker.

    Call `start`, wait for `stopping`, then call `close`, all in one event loop.
    """

    def __init__(self, route: Route, recording: Recording, note: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(route.max_connections, self._report_problem)
        self.route = route
        self.recording = recording
        self.note = note
        self.reached = 0
        """Number of connections made to the broker."""
        self.unreached = 0
        """Number of connections to the broker that failed."""
        self.connecting = 0
        """Number of clients not yet connected to the broker."""
        self.served = 0
        """Total number of client connections."""
        self.stopping = asyncio.Event()
        self._hurried_s: float | None = None
        """Time of the signal that ended the run, by `time.monotonic`."""
        self._reported = 0
        self._pairs: set[ProxiedConnection] = set()
        self._rounds = AcknowledgmentPoller()
        self._closed = False

    @property
    def address(self) -> str:
        return shown(*self.addresses[0])

    async def start(self) -> None:
        """Start listening; raises :class:`OSError` if that is not possible."""
        loop = asyncio.get_running_loop()
        self.recording.start()
        loop.set_exception_handler(self._on_loop_error)
        await self.listen(self.route.host, self.route.port)

    def stop(self, *, hurry: bool = False) -> None:
        """Request the end; ``hurry`` shortens the wait for judging that lags."""
        if hurry and self._hurried_s is None:
            self._hurried_s = time.monotonic()
        self.stopping.set()

    async def close(self) -> None:
        """Stop listening, finish the record, then close the connections."""
        if self._closed:
            return
        self._closed = True
        self.stopping.set()
        await self._stop_listening()
        # Not the clients but the proxy ends these connections now: leave that out of the record.
        self._rounds.close()
        self.recording.sealed = True
        deadline = asyncio.get_running_loop().time() + REST_S
        while self.recording.busy and self._hurried_s is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_LOOK_S)
        self.recording.close(self._left_s(HURRY_S))
        pairs = list(self._pairs)
        for pair in pairs:
            pair.drop()
        drain_s = min(_DRAIN_S, self._left_s(HURRY_S + GRACE_S + _DRAIN_S))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(pair.gone.wait() for pair in pairs)), drain_s)
        for pair in pairs:
            pair.client.abort()
            pair.server.abort()
        await self._end_tasks()
        if self._reported > MAX_REPORTED:
            self.note(f"further problems with connections, not reported: {self._reported - MAX_REPORTED:,}")

    def _left_s(self, limit_s: float) -> float:
        """Remaining seconds of a limit; after a signal all limits count from it, so that they do not add up."""
        return limit_s if self._hurried_s is None else max(0.0, self._hurried_s + limit_s - time.monotonic())

    async def _serve(self, sock: socket.socket) -> None:
        self.connecting += 1
        loop = asyncio.get_running_loop()
        route, recording = self.route, self.recording
        connecting = True
        try:
            try:
                ends = Endpoint.of(sock.getpeername()), Endpoint.of(sock.getsockname())
            except OSError:
                sock.close()
                return
            pair = ProxiedConnection(
                recording.wire(*ends),
                recording,
                self._rounds.note,
                loop=loop,
                patience_s=route.client_timeout_s,
                note=self._report_problem,
            )
            timeout = None if route.listen_tls is None else HANDSHAKE_TIMEOUT_S
            try:
                await loop.connect_accepted_socket(
                    lambda: pair.client, sock, ssl=route.listen_tls, ssl_handshake_timeout=timeout
                )
            except (OSError, TimeoutError) as error:
                self._report_problem(f"{ends[0]}: TLS with the client failed: {reason(error)}")
                sock.close()
                return
            # Up to Python 3.11.2, a transport paused while its connection is made counts as paused but still reads.
            pair.client.read(True)
            pair.client.read(False)
            self._pairs.add(pair)
            self.served += 1
            await self._connect(pair, ends[0])
            connecting = False
            self.connecting -= 1
            await pair.gone.wait()
            self._pairs.discard(pair)
            self._rounds.forget(pair)
            self._report_refusal(pair, ends[0])
        finally:
            self.clients -= 1
            self.connecting -= connecting

    async def _connect(self, pair: ProxiedConnection, client: Endpoint) -> None:
        upstream, context = self.route.upstream, self.route.upstream_tls
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.route.connect_timeout_s or None):
                await loop.create_connection(
                    lambda: pair.server,
                    upstream.host,
                    upstream.port,
                    ssl=context,
                    server_hostname=upstream.host if context is not None else None,
                )
        except (OSError, TimeoutError, UnicodeError) as error:
            self.unreached += 1
            self._report_problem(f"{client}: cannot reach {upstream}: {reason(error)}")
            pair.refuse()
            return
        self.reached += 1
        pair.join()

    def _report_refusal(self, pair: ProxiedConnection, client: Endpoint) -> None:
        """Report why the broker ended TLS; a broker that sent no application data counts as not reached."""
        if pair.refused is None:
            return
        why = reason(pair.refused)
        if isinstance(pair.refused, ConnectionError):
            advice = " before it sent anything; if it wants a client certificate, give one with --cert"
        else:
            advice = "; give a client certificate with --cert" if "certificate required" in why else ""
        self._report_problem(f"{client}: {self.route.upstream} ended TLS: {why}{advice}")
        if not pair.wire.sent(False):
            self.reached -= 1
            self.unreached += 1

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Report errors that the event loop would print, except broken connections, which are expected."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            self._report_problem(f"internal error: {context.get('message')}: {error!r}")

    def _report_problem(self, text: str) -> None:
        self._reported += 1
        if self._reported <= MAX_REPORTED:
            self.note(text)
