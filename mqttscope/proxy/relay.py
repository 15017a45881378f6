"""Listening, connecting, and ending in good order."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from mqttscope.proxy.pair import Pair
from mqttscope.transport.link import reason
from mqttscope.transport.recording import GRACE_S, HURRY_S, REST_S, Recording
from mqttscope.transport.server import MAX_CONNECTIONS, Acceptor
from mqttscope.transport.sockets import Rounds
from mqttscope.transport.target import Target, shown
from mqttscope.transport.wire import Endpoint

CONNECT_TIMEOUT_S = 10.0
"""How long the broker may take to accept a connection, TLS included."""
CLIENT_TIMEOUT_S = 30.0
"""How long a client may take for its CONNECT, and the broker for its answer."""
HANDSHAKE_TIMEOUT_S = 10.0
"""How long a client may take for TLS."""
MAX_SAID = 20
"""Troubles of connections that are told one by one; further ones are counted."""
_DRAIN_S = 0.4
"""How long connections have to take what is still for them when the proxy ends."""
_LOOK_S = 0.02
"""How often the end looks whether everything is judged."""


@dataclass(slots=True)
class Route:
    """From where to where."""

    host: str
    """Empty for every address."""
    port: int
    upstream: Target
    listen_tls: ssl.SSLContext | None = None
    upstream_tls: ssl.SSLContext | None = None
    max_connections: int = field(default_factory=lambda: MAX_CONNECTIONS)
    connect_timeout_s: float = field(default_factory=lambda: CONNECT_TIMEOUT_S)
    """For the broker to accept a connection; 0 is no limit."""
    client_timeout_s: float = field(default_factory=lambda: CLIENT_TIMEOUT_S)
    """For the first packet of the client, and then for that of the broker; 0 is no limit."""


class Relay(Acceptor):
    """Takes clients and connects each with the broker.

    `start`, wait for `stopping`, `close`; all in one event loop.
    """

    def __init__(self, route: Route, recording: Recording, note: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(route.max_connections, self._say)
        self.route = route
        self.recording = recording
        self.note = note
        self.reached = 0
        """Connections to the broker that were made."""
        self.unreached = 0
        """Connections to the broker that could not be made."""
        self.connecting = 0
        """Clients that are not connected with the broker yet."""
        self.served = 0
        """Connections of clients ever."""
        self.stopping = asyncio.Event()
        self._hurried_s: float | None = None
        """When a signal asked for the end, by `time.monotonic`."""
        self._said = 0
        self._pairs: set[Pair] = set()
        self._rounds = Rounds()
        self._closed = False

    @property
    def address(self) -> str:
        return shown(*self.addresses[0])

    async def start(self) -> None:
        """Listen; :class:`OSError` where that is not possible."""
        loop = asyncio.get_running_loop()
        self.recording.start()
        loop.set_exception_handler(self._trouble)
        await self._listen(self.route.host, self.route.port)

    def stop(self, *, hurry: bool = False) -> None:
        """Ask to end; in a ``hurry`` judging that lags is not waited for."""
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
        # That connections end now is not their doing, so it is no part of the record.
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
        if self._said > MAX_SAID:
            self.note(f"further problems with connections, not reported: {self._said - MAX_SAID:,}")

    def _left_s(self, limit_s: float) -> float:
        """What is left of a limit; after a signal it counts from there, so that limits do not add up."""
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
            pair = Pair(
                recording.wire(*ends),
                recording,
                self._rounds.note,
                loop=loop,
                patience_s=route.client_timeout_s,
                note=self._say,
            )
            timeout = None if route.listen_tls is None else HANDSHAKE_TIMEOUT_S
            try:
                await loop.connect_accepted_socket(
                    lambda: pair.client, sock, ssl=route.listen_tls, ssl_handshake_timeout=timeout
                )
            except (OSError, TimeoutError) as error:
                self._say(f"{ends[0]}: TLS with the client failed: {reason(error)}")
                sock.close()
                return
            # To Python 3.11.2, a pause while the connection is made is one already, and yet it reads.
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
            self._tell_refusal(pair, ends[0])
        finally:
            self.clients -= 1
            self.connecting -= connecting

    async def _connect(self, pair: Pair, client: Endpoint) -> None:
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
            self._say(f"{client}: cannot reach {upstream}: {reason(error)}")
            pair.refuse()
            return
        self.reached += 1
        pair.join()

    def _tell_refusal(self, pair: Pair, client: Endpoint) -> None:
        """Say why the broker ended TLS; one that said nothing at all was not reached."""
        if pair.refused is None:
            return
        why = reason(pair.refused)
        if isinstance(pair.refused, ConnectionError):
            advice = " before it said anything; if it wants one, --cert shows it a client certificate"
        else:
            advice = "; --cert shows it a client certificate" if "certificate required" in why else ""
        self._say(f"{client}: {self.route.upstream} ended TLS: {why}{advice}")
        if not pair.wire.sent(False):
            self.reached -= 1
            self.unreached += 1

    def _trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """What the event loop would print: connections that break are no news, anything else is a bug."""
        error = context.get("exception")
        if not isinstance(error, OSError):
            self._say(f"internal error: {context.get('message')}: {error!r}")

    def _say(self, text: str) -> None:
        self._said += 1
        if self._said <= MAX_SAID:
            self.note(text)
