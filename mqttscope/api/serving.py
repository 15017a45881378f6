"""A stand-in for a broker: it plays the server half of recorded connections to a device under test.

    with mqttscope.StandIn("a.pcapng") as broker:
        ...  # let the device connect to broker.port
        broker.wait(10)
    print(broker.served.differences)

`AsyncStandIn` is the same inside a running event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Self

from mqttscope import arguments
from mqttscope.api.captures import Path, Ports, Source
from mqttscope.api.recorded import RECORDED, Wanted, read_moment, read_pace, read_recorded
from mqttscope.errors import InvalidStateError
from mqttscope.net.frame import CaptureError
from mqttscope.replay.drivers.serve import ServerRun
from mqttscope.replay.server import ConnectionMatcher, ServerOptions
from mqttscope.report.base import View
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.summary import ServedOutcome, served_document
from mqttscope.transport.target import parse_listen, shown
from mqttscope.transport.tls import listen_context

ANSWER_S = 30.0
"""How long the thread of a stand-in may take to begin and to end."""
LOOK_S = 0.005
"""So often it is looked whether everything has been played."""


@dataclass(slots=True, frozen=True)
class Served:
    """What a stand-in did, and what the devices did otherwise than the recorded clients."""

    recorded: int
    """Recorded connections that could be played."""
    played: int
    """Connections of devices that were given one of them."""
    sent: int
    """MQTT packets that were sent."""
    received: int
    """MQTT packets that came."""
    complete: bool
    """Whether every recorded connection was played to its end."""
    differences: list[dict[str, Any]]
    """What devices did otherwise: the lines ``difference`` of ``mqttscope serve --verify --format jsonl``, without
    secrets (docs/serve.md)."""
    errors: list[CaptureError]
    """What of the captures could not be read."""
    _document: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the line ``serve`` of ``mqttscope serve --format jsonl``."""
        return dict(self._document)


class _Recording:
    """The recorded connections of a stand-in, and what devices made of them."""

    def __init__(
        self,
        *captures: Path,
        listen: str = "127.0.0.1:0",
        pace: str | float = RECORDED,
        repeat: bool = False,
        patience: float = 5.0,
        clients: Iterable[str] = (),
        start: str | None = None,
        end: str | None = None,
        filter: str | None = None,  # noqa: A002 - the word of the option
        keys: Path | None = None,
        ports: Ports = (),
        version: str | None = None,
        listen_cert: str | None = None,
        listen_key: str | None = None,
        websocket: bool = False,
    ) -> None:
        self._host, self._wanted_port = parse_listen(
            arguments.text("listen", listen, "HOST:PORT, such as 127.0.0.1:1884")
        )
        self._pace = read_pace(pace)
        arguments.flag("repeat", repeat)
        arguments.flag("websocket", websocket)
        patience_ns = int(arguments.seconds("patience", patience) * 1e9)
        arguments.tls_pair("listen_cert", "listen_key", (listen_cert, listen_key))
        tls = None if listen_cert is None else listen_context(listen_cert, listen_key)
        source = Source(captures, filter=filter, keys=keys, ports=ports, version=version)
        wanted = Wanted(
            clients=arguments.texts("clients", clients, "globs of Client Identifiers"),
            start=read_moment("start", start),
            end=read_moment("end", end),
        )
        self._recorded = read_recorded(source, wanted)
        self._errors = source.errors
        self._schemes = ("wss" if tls else "ws") if websocket else ("mqtts" if tls else "mqtt")
        self.notes: list[str] = []
        """What happened with connections that the recording does not have, in words; after 1,000, their number."""
        self._serving = ServerRun(
            self._recorded.scripts,
            ConnectionMatcher(self._recorded.scripts, repeat),
            ServerOptions(speed=self._pace.speed, patience_ns=patience_ns),
            causal=self._pace.causal,
            keep_running=True,
            tls=tls,
            websocket=websocket,
            note=self.notes.append,
        )
        self._address = ""
        self._port = 0
        self._served: Served | None = None

    @property
    def address(self) -> str:
        """Where devices connect: ``127.0.0.1:41234``; `InvalidStateError` before the start."""
        if not self._address:
            raise InvalidStateError("the stand-in was not started: devices cannot connect yet")
        return self._address

    @property
    def port(self) -> int:
        """The port of it; `InvalidStateError` before the start."""
        return self._port if self.address else 0

    @property
    def url(self) -> str:
        """Where devices connect, as a URL; `InvalidStateError` before the start."""
        return f"{self._schemes}://{self.address}"

    @property
    def complete(self) -> bool:
        """Whether every recorded connection has been played to its end."""
        return self._serving.complete

    @property
    def served(self) -> Served:
        """What devices did, once it is closed; `InvalidStateError` before."""
        if self._served is None:
            why = "still runs" if self._address else "was not started"
            raise InvalidStateError(f"the stand-in {why}: what devices did is known once it is closed")
        return self._served

    async def _listen(self) -> None:
        await self._serving.start(self._host, self._wanted_port)
        server = self._serving.server
        assert server is not None
        self._port = server.port
        self._address = shown(self._host or server.addresses[0][0], server.port)

    def _finish(self) -> None:
        """Compare, when everything has ended."""
        outcome = ServedOutcome.of(self._serving, self._pace.text, self._recorded.changes)
        outcome.left_out.update(why for _, why in self._recorded.left_out)
        found = outcome.verify()
        writer = ReplayJson(BytesIO(), View())
        self._served = Served(
            outcome.recorded, outcome.played, outcome.sent, outcome.received, outcome.complete,
            [writer.difference(one) for one in found.counting], self._errors, served_document(outcome),
        )  # fmt: skip


class StandIn(_Recording):
    """A stand-in for a broker, in a thread of its own; a context manager that runs while its body does.

    ``captures``, ``filter``, ``keys``, ``ports`` and ``version`` are as for `open`.  ``listen``: ``HOST:PORT``, any
    free port of this host unless given.  ``pace``, ``clients``, ``start`` and ``end`` are as for `Replay`.
    ``repeat``: start over with a client whose connections have all been played.
    ``patience``: seconds to wait for a late device before the next delivery.  ``listen_cert`` and ``listen_key``: speak
    TLS with devices.  ``websocket``: speak WebSocket with devices.

    The constructor reads the captures.  `AddressError` for an address that cannot be meant, `NothingRecordedError`
    where no connection can be played, `ArgumentError` for values that are none of those above, and :class:`OSError`
    from `start` when it cannot listen.  `InvalidStateError` from what needs a start before it, and from a second one.
    """

    _thread: threading.Thread | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        if self._thread is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Listen; returns once devices can connect."""
        if self._thread is not None:
            raise InvalidStateError("a stand-in runs only once")
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(started)), name="mqttscope stand-in", daemon=True
        )
        self._thread.start()
        try:
            started.result(ANSWER_S)
        except TimeoutError:
            if started.done():
                raise
            # It ends at once when it begins after all.
            self._serving.stop()
            raise TimeoutError(f"the stand-in has not begun after {ANSWER_S:g} s") from None
        except BaseException:
            self._thread.join(ANSWER_S)
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every recorded connection has been played to its end; returns whether that is so.

        ``timeout``: seconds, ``None`` for as long as it takes.
        """
        limit = arguments.patience("timeout", timeout)
        end = None if limit is None else time.monotonic() + limit
        while not self.complete and self._thread is not None and self._thread.is_alive():
            if end is not None and time.monotonic() >= end:
                break
            time.sleep(LOOK_S)
        return self.complete

    def close(self) -> None:
        """End all connections and listen no more; then `served` says what devices did."""
        thread, loop = self._thread, self._loop
        if thread is None:
            raise InvalidStateError("the stand-in was not started")
        if loop is not None and thread.is_alive():
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(self._serving.stop)
        thread.join(ANSWER_S)
        if thread.is_alive():
            raise TimeoutError(f"the stand-in has not ended after {ANSWER_S:g} s")
        if self._served is None:
            self._finish()

    def finish(self, timeout: float = 10.0) -> Served:
        """`wait`, then `close`; returns what devices did.  ``timeout``: seconds."""
        self.wait(arguments.patience("timeout", timeout))
        self.close()
        return self.served

    async def _run(self, started: Future[None]) -> None:
        try:
            await self._listen()
        except BaseException as error:
            await self._serving.close()
            started.set_exception(error)
            return
        self._loop = asyncio.get_running_loop()
        started.set_result(None)
        try:
            await self._serving.stopping.wait()
        finally:
            await self._serving.close()


class AsyncStandIn(_Recording):
    """The same in the running event loop, as an asynchronous context manager; the arguments are those of `StandIn`."""

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until every recorded connection has been played to its end; returns whether that is so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(arguments.patience("timeout", timeout)):
                while not self.complete:
                    await asyncio.sleep(LOOK_S)
        return self.complete

    async def close(self) -> None:
        """End all connections and listen no more; then `served` says what devices did."""
        await self._serving.close()
        if self._served is None:
            self._finish()

    async def finish(self, timeout: float = 10.0) -> Served:
        """`wait`, then `close`; returns what devices did.  ``timeout``: seconds."""
        await self.wait(arguments.patience("timeout", timeout))
        await self.close()
        return self.served
