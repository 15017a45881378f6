"""One run of the proxy: options in, a relay at work, reports and the exit code out."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import click

from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.linting import LintRun, tell_judging
from mqttscope.cli.linting_settings import resolve
from mqttscope.cli.live_options import ProxyOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS, endings, limit_ending
from mqttscope.cli.output import Output, make_view, warn
from mqttscope.cli.reading import Reading
from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.options import MQTT, WEBSOCKET
from mqttscope.events import ConnectionOpened, Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops
from mqttscope.proxy.relay import Relay, Route
from mqttscope.report.text import TextLines
from mqttscope.transport.recording import SWITCH_S, Recording
from mqttscope.transport.target import AddressError, Target, parse_upstream

MAX_UNWRITTEN_BYTES = 4 * 1024 * 1024
"""Of output that is not read; further lines of packets are left out and counted; findings wait, and with them the
judging."""
FLUSH_S = 2.0
"""How long the end waits for a reader,"""
FLUSH_HURRY_S = 0.3
"""and where a signal has ended the run."""
_LOOK_S = 0.01
HUMAN = ("full", "concise")


class Background:
    """Standard output written by a thread: a slow or stopped reader does not hold up any client."""

    def __init__(self, output: Output) -> None:
        self.left_out = 0
        """Writes that were not waited for."""
        self._output = output
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._given = self._done = 0
        self._gone = False
        self._patience_s: float | None = None
        """How long a reader that takes nothing is waited for; `None` while the run lasts."""
        self._thread = threading.Thread(target=self._run, name="standard output", daemon=True)
        self._thread.start()

    @property
    def _full(self) -> bool:
        return self._given - self._done > MAX_UNWRITTEN_BYTES

    def write(self, data: bytes, /) -> None:
        """Have it written; waits where too much waits already."""
        self._wait(lambda: not self._full)
        if self._full:
            self.left_out += 1
            return
        self._given += len(data)
        self._queue.put(data)

    def offer(self, data: bytes, /) -> None:
        """Have it written unless too much waits already."""
        if self._full:
            self.left_out += 1
        else:
            self.write(data)

    def end(self, patience_s: float = FLUSH_S) -> None:
        """The run ends: a reader that takes nothing is not waited for any longer than this."""
        self._patience_s = patience_s

    def close(self) -> None:
        """Wait for the reader, but not forever."""
        if self._patience_s is None:
            self.end()
        self._queue.put(None)
        self._wait(lambda: not self._thread.is_alive())

    def _wait(self, over: Callable[[], bool]) -> None:
        done, since = self._done, time.monotonic()
        while not over():
            time.sleep(_LOOK_S)
            if self._done != done:
                done, since = self._done, time.monotonic()
            elif self._patience_s is not None and time.monotonic() - since > self._patience_s:
                return

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            if not self._gone:
                try:
                    self._output.write(data)
                except (OSError, click.ClickException):
                    # Nobody reads: the clients need the proxy all the same.
                    self._gone = True
            self._done += len(data)


def run(given: ProxyOptions) -> int:
    """Run the proxy with the options of the command; returns the exit code."""
    host, port = given.listening.address()
    with ErrorTranslation(click.UsageError, AddressError):
        upstream = parse_upstream(given.upstream)
    route = Route(host, port, upstream, max_connections=given.max_connections)
    if given.connect_timeout is not None:
        route.connect_timeout_s = route.client_timeout_s = given.connect_timeout
    given.tls.refuse_plain(upstream, "an upstream")
    route.listen_tls = given.listening.context()
    route.upstream_tls = given.tls.context(upstream)
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(ProxyRun(given, upstream).execute(route))


class ProxyRun:
    """The linter, the lines and the limits of one run."""

    def __init__(self, given: ProxyOptions, upstream: Target) -> None:
        self.given = given
        self.packets = 0
        self.too_large = 0
        """Packets above --max-packet."""
        self.hurried = False
        """A signal has ended the run."""
        self.sealed = 0
        """Connections that speak TLS with the broker."""
        self.relay: Relay | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.sink: Background | None = None
        self.run: LintRun | None = None
        self.lines: TextLines | None = None
        settings = None
        if given.lint:
            settings = resolve(given.judging, form=given.form, outputs=given.outputs)
            if given.show and settings.output is None and settings.format not in HUMAN:
                raise click.UsageError(f"--show would write between --format {settings.format}; add --output FILE")
        if given.show or (settings is not None and settings.output is None):
            self.sink = Background(Output(immediate=True))
        capture = given.write or given.listening.listen
        if settings is not None:
            self.run = LintRun(settings, Reading((capture,)), colour=given.colour, sink=self.sink)
        if given.show and self.sink is not None:
            view = make_view(colour=given.colour, payload="auto", payload_limit=256)
            self.lines = TextLines(SimpleNamespace(write=self.sink.offer), view)
        self.options = Options()
        self.spoken = WEBSOCKET if upstream.websocket else MQTT
        self.dissector = Dissector(self.options) if self.run is None else self.run.dissector
        if self.run is not None:
            self.options = self.run.settings.options
        self.options.max_packet_bytes = given.max_packet
        with ErrorTranslation(CommandFailedError, OSError, before=f"cannot write {given.write}: "):
            self.recording = Recording(
                capture, path=given.write, dissector=self.dissector, listener=self.hear, note=warn
            )

    def hear(self, event: Event) -> None:
        """One event of the traffic; in the thread that judges."""
        if isinstance(event, PacketEvent | MalformedEvent):
            self.packets += 1
        elif isinstance(event, ConnectionOpened):
            self.sealed += event.connection.transport == "tls"
        elif isinstance(event, UnparsedEvent) and event.unparsed.reason == "too_large":
            self._too_large(event)
        if self.lines is not None and not isinstance(event, CaptureDrops):
            self.lines.feed(event)
        if self.run is not None:
            self.run.feed(event)
        if self.given.stop_on_finding and self.run is not None and self.run.failing:
            self._stop()

    def _too_large(self, event: UnparsedEvent) -> None:
        self.too_large += 1
        if self.too_large == 1:
            warn(
                f"{event.connection.client}: a packet of {event.unparsed.length:,} bytes was forwarded but not"
                f" judged: --max-packet is {self.options.max_packet_bytes:,}"
            )

    def _stop(self) -> None:
        if self.loop is not None and self.relay is not None:
            with suppress(RuntimeError):  # it has just ended
                self.loop.call_soon_threadsafe(self.relay.stop)

    async def execute(self, route: Route) -> int:
        self.loop, self.relay = asyncio.get_running_loop(), Relay(route, self.recording, warn)
        with endings(self._interrupted):
            return await self._forward(self.relay, route)

    async def _forward(self, relay: Relay, route: Route) -> int:
        listened = False
        try:
            with self.given.listening.refusing():
                await relay.start()
            listened = True
            # What is spoken here is known, so that garbage is reported as such.
            self.options.ports.setdefault(relay.addresses[0][1], self.spoken)
            self._ready(relay)
            if self.given.duration is not None:
                asyncio.get_running_loop().call_later(self.given.duration, relay.stop)
            await relay.stopping.wait()
        finally:
            if self.sink is not None:
                self.sink.end(FLUSH_HURRY_S if self.hurried else FLUSH_S)
            await relay.close()
            self._close(reports=listened)
        return self._code(relay)

    def _interrupted(self, number: int) -> None:
        assert self.relay is not None
        self.hurried = True
        if self.sink is not None:
            self.sink.end(FLUSH_HURRY_S)
        self.relay.stop(hurry=True)
        limit_ending(number, EXIT_FAILED)

    def _ready(self, relay: Relay) -> None:
        warn(f"listening on {relay.address} for {relay.route.upstream}")
        self.given.listening.write_address(relay.address)

    def _close(self, *, reports: bool) -> None:
        """End the output; without ``reports`` nothing was there to report of, and so nothing is clean."""
        if self.lines is not None:
            self.lines.close()
        try:
            if self.run is not None and reports:
                self.run.close()
        finally:
            if self.sink is not None:
                self.sink.close()

    def _code(self, relay: Relay) -> int:
        """Report the run, and return the exit code."""
        recording, run = self.recording, self.run
        told = f"{counted(relay.served, 'connection')}, {counted(self.packets, 'packet')}"
        if recording.path is not None and recording.write_error is None:
            told += f"; {counted(recording.frames, 'frame')} in {recording.path}"
        if relay.refused:
            told += f"; {counted(relay.refused, 'client')} beyond --max-connections closed"
        if self.sink is not None and self.sink.left_out:
            told += f"; {counted(self.sink.left_out, 'line')} left out because nobody read them"
        warn(told)
        if self.sealed:
            warn(f"{counted(self.sealed, 'connection')} passed with TLS inside, unread; --listen-cert ends TLS here")
        if self.too_large > 1:
            warn(f"{counted(self.too_large, 'packet')} above --max-packet forwarded but not judged")
        unjudged = recording.unjudged_bytes
        tell_judging(recording, hint=unjudged > 0)
        if run is not None:
            run.tell_rules()
        if relay.unreached and not relay.reached:
            warn(f"{relay.route.upstream} was never reached")
            return EXIT_FAILED
        if recording.failed or (run is not None and run.linter.internal_errors):
            return EXIT_FAILED
        if run is not None:
            if run.failing and not run.settings.exit_zero:
                return EXIT_FINDINGS
            if unjudged:
                # Clean is only what was looked at.
                return EXIT_FAILED
        return EXIT_CLEAN
