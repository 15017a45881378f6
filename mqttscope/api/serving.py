"""A stand-in for a broker, which plays the server side of recorded connections to a device under test.

    with mqttscope.StandIn("a.pcapng") as broker:
        ...  # let the device connect to broker.port
        broker.wait(10)
    print(broker.served.differences)

`AsyncStandIn` is for use inside a running event loop.
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
from mqttscope.api.captures import CaptureSelection, Path, Ports
from mqttscope.api.recorded import RECORDED, RecordedSelection, read_moment, read_pace, read_recorded
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
"""Timeout for the start and the end of the thread of a stand-in."""
LOOK_S = 0.005
"""Interval of checks whether everything has been played."""


@dataclass(slots=True, frozen=True)
class Served:
    """Result of a stand-in, with differences between the devices and the recorded clients."""

    recorded: int
    """Number of recorded connections that could be played."""
    played: int
    """Number of device connections that got a recorded connection."""
    sent: int
    """Number of MQTT packets sent."""
    received: int
    """Number of MQTT packets received."""
    complete: bool
    """Whether every recorded connection was played to its end."""
    differences: list[dict[str, Any]]
    """Differences of the devices: the lines ``difference`` of ``mqttscope serve --verify --format jsonl``, without
    secrets (docs/serve.md)."""
    errors: list[CaptureError]
    """Errors of captures."""
    _document: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the line ``serve`` of ``mqttscope serve --format jsonl``."""
        return dict(self._document)


class _StandInRecording:
    """Recorded connections of a stand-in, and the result of playing them."""

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
        filter: str | None = None,  # noqa: A002 - name of the option
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
        source = CaptureSelection(captures, filter=filter, keys=keys, ports=ports, version=version)
        wanted = RecordedSelection(
            clients=arguments.texts("clients", clients, "globs of Client Identifiers"),
            start=read_moment("start", start),
            end=read_moment("end", end),
        )
        self._recorded = read_recorded(source, wanted)
        self._errors = source.errors
        self._schemes = ("wss" if tls else "ws") if websocket else ("mqtts" if tls else "mqtt")
        self.notes: list[str] = []
        """Sentences about connections that the recording lacks; beyond 1,000 only their number."""
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
        """Address for devices: ``127.0.0.1:41234``; `InvalidStateError` before the start."""
        if not self._address:
            raise InvalidStateError("the stand-in was not started, so devices cannot connect yet")
        return self._address

    @property
    def port(self) -> int:
        """Port for devices; `InvalidStateError` before the start."""
        return self._port if self.address else 0

    @property
    def url(self) -> str:
        """URL for devices; `InvalidStateError` before the start."""
        return f"{self._schemes}://{self.address}"

    @property
    def complete(self) -> bool:
        """Whether every recorded connection has been played to its end."""
        return self._serving.complete

    @property
    def served(self) -> Served:
        """Result after `close`; `InvalidStateError` before."""
        if self._served is None:
            why = "still runs" if self._address else "was not started"
            raise InvalidStateError(f"the stand-in {why}: its result is available after close()")
        return self._served

    async def _listen(self) -> None:
        await self._serving.start(self._host, self._wanted_port)
        server = self._serving.server
        assert server is not None
        self._port = server.port
        self._address = shown(self._host or server.addresses[0][0], server.port)

    def _finish(self) -> None:
        """Compare devices and recording after the end."""
        outcome = ServedOutcome.from_run(self._serving, self._pace.text, self._recorded.changes)
        outcome.left_out.update(why for _, why in self._recorded.left_out)
        verification = outcome.verify()
        writer = ReplayJson(BytesIO(), View())
        self._served = Served(
            outcome.recorded, outcome.played, outcome.sent, outcome.received, outcome.complete,
            list(map(writer.difference, verification.counting)), self._errors, served_document(outcome),
        )  # fmt: skip


class StandIn(_StandInRecording):
    """A stand-in for a broker in a separate thread; a context manager that runs during its body.

    ``captures``, ``filter``, ``keys``, ``ports`` and ``version`` are as for `open`.  ``listen``: ``HOST:PORT``, by
    default any free port of this host.  ``pace``, ``clients``, ``start`` and ``end`` are as for `Replay`.
    ``repeat``: start over when all connections of a client have been played.
    ``patience``: seconds to wait for a late device before a delivery.  ``listen_cert`` and ``listen_key``: use TLS
    with devices.  ``websocket``: use WebSocket with devices.

    The constructor reads the captures.  `AddressError` for an invalid address, `NothingRecordedError` if no
    connection can be played, `ArgumentError` for other invalid values, and :class:`OSError` from `start` if it
    cannot listen.  `InvalidStateError` from methods that need a start before them, and from a second start.
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
        """Start listening; returns once devices can connect."""
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
            # If it still starts later, it ends at once.
            self._serving.stop()
            raise TimeoutError(f"the stand-in did not start within {ANSWER_S:g} s") from None
        except BaseException:
            self._thread.join(ANSWER_S)
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every recorded connection has been played to its end; returns false after a timeout.

        ``timeout``: seconds, ``None`` for no limit.
        """
        limit = arguments.patience("timeout", timeout)
        end = None if limit is None else time.monotonic() + limit
        while not self.complete and self._thread is not None and self._thread.is_alive():
            if end is not None and time.monotonic() >= end:
                break
            time.sleep(LOOK_S)
        return self.complete

    def close(self) -> None:
        """End all connections and stop listening; then `served` has the result."""
        thread, loop = self._thread, self._loop
        if thread is None:
            raise InvalidStateError("the stand-in was not started")
        if loop is not None and thread.is_alive():
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._serving.stop)
        thread.join(ANSWER_S)
        if thread.is_alive():
            raise TimeoutError(f"the stand-in did not end within {ANSWER_S:g} s")
        if self._served is None:
            self._finish()

    def finish(self, timeout: float = 10.0) -> Served:
        """`wait`, then `close`; returns the result.  ``timeout``: seconds."""
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


class AsyncStandIn(_StandInRecording):
    """`StandIn` inside a running event loop, as an asynchronous context manager with the same arguments."""

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until every recorded connection has been played to its end; returns false after a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(arguments.patience("timeout", timeout)):
                while not self.complete:
                    await asyncio.sleep(LOOK_S)
        return self.complete

    async def close(self) -> None:
        """End all connections and stop listening; then `served` has the result."""
        await self._serving.close()
        if self._served is None:
            self._finish()

    async def finish(self, timeout: float = 10.0) -> Served:
        """`wait`, then `close`; returns the result.  ``timeout``: seconds."""
        await self.wait(arguments.patience("timeout", timeout))
        await self.close()
        return self.served
