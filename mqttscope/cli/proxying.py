"""One run of the proxy: a relay, its reports and the exit code."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import click

from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.linting import LintRun, print_lint_messages
from mqttscope.cli.linting_settings import resolve
from mqttscope.cli.live_options import ProxyOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS, endings, limit_ending
from mqttscope.cli.output import Output, make_view, warn
from mqttscope.cli.reading import CommandReading
from mqttscope.dissect import Dissector, Options
from mqttscope.dissect.options import MQTT, WEBSOCKET
from mqttscope.events import ConnectionOpened, Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.lint.finding import Finding
from mqttscope.metrics.monitor import LiveMonitor
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops
from mqttscope.proxy.relay import Relay, Route
from mqttscope.report.text import TextLines
from mqttscope.secrets.findings import HidingOptions
from mqttscope.transport.recording import SWITCH_S, Recording
from mqttscope.transport.target import AddressError, BrokerUrl, parse_upstream

MAX_UNWRITTEN_BYTES = 4 * 1024 * 1024
"""Maximum bytes of output that wait for their reader; then packet lines are dropped and counted, while findings and
linting wait."""
FLUSH_S = 2.0
"""Time that the reader of the output gets at the end of a run,"""
FLUSH_HURRY_S = 0.3
"""and at its end by a signal."""
_LOOK_S = 0.01
TIME_S = 1.0
"""Interval between two updates of the time in live metrics."""
HUMAN = ("full", "concise")


class BackgroundOutput:
    """Standard output written by a thread, so that a slow or stopped reader does not delay clients."""

    def __init__(self, output: Output) -> None:
        self.left_out = 0
        """Number of dropped writes."""
        self._output = output
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued_bytes = self._done = 0
        self._gone = False
        self._patience_s: float | None = None
        """Timeout for a reader that accepts nothing; `None` during the run."""
        self._thread = threading.Thread(target=self._run, name="standard output", daemon=True)
        self._thread.start()

    @property
    def _full(self) -> bool:
        return self._queued_bytes - self._done > MAX_UNWRITTEN_BYTES

    def write(self, data: bytes, /) -> None:
        """Queue bytes; waits if the queue is full."""
        self._wait(lambda: not self._full)
        if self._full:
            self.left_out += 1
            return
        self._queued_bytes += len(data)
        self._queue.put(data)

    def offer(self, data: bytes, /) -> None:
        """Queue bytes, or drop them if the queue is full."""
        if self._full:
            self.left_out += 1
        else:
            self.write(data)

    def end(self, patience_s: float = FLUSH_S) -> None:
        """Limit the wait for a reader that accepts nothing, because the run ends."""
        self._patience_s = patience_s

    def close(self) -> None:
        """Wait for the reader within the timeout."""
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
                    # Without a reader, keep forwarding for the clients.
                    self._gone = True
            self._done += len(data)


def run(args: ProxyOptions) -> int:
    """Run the proxy with the options of the command; returns the exit code."""
    host, port = args.listening.address()
    with ErrorTranslation(click.UsageError, AddressError):
        upstream = parse_upstream(args.upstream)
    route = Route(host, port, upstream, max_connections=args.max_connections)
    if args.connect_timeout is not None:
        route.connect_timeout_s = route.client_timeout_s = args.connect_timeout
    args.tls.refuse_plain(upstream, "an upstream")
    route.listen_tls = args.listening.context()
    route.upstream_tls = args.tls.context(upstream)
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(ProxyRun(args, upstream).execute(route))


class ProxyRun:
    """One run: linter, packet lines and limits."""

    def __init__(self, args: ProxyOptions, upstream: BrokerUrl) -> None:
        self.args = args
        self.packets = 0
        self.too_large = 0
        """Number of packets above --max-packet."""
        self.hurried = False
        """Whether a signal ended the run."""
        self.sealed = 0
        """Number of connections with TLS between client and broker."""
        self.relay: Relay | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.sink: BackgroundOutput | None = None
        self.run: LintRun | None = None
        self.lines: TextLines | None = None
        settings = None
        if args.lint:
            settings = resolve(args.judging, form=args.form, outputs=args.outputs)
            if args.show and settings.output is None and settings.format not in HUMAN:
                raise click.UsageError(f"--show would mix packets with --format {settings.format}; add --output FILE")
        if args.show or (settings is not None and settings.output is None):
            self.sink = BackgroundOutput(Output(immediate=True))
        capture = args.write or args.listening.listen
        if settings is not None:
            self.run = LintRun(settings, CommandReading((capture,)), colour=args.colour, sink=self.sink)
        if args.show and self.sink is not None:
            view = make_view(colour=args.colour, payload="auto", payload_limit=256)
            self.lines = TextLines(SimpleNamespace(write=self.sink.offer), view)
        self.monitor: LiveMonitor | None = None
        if args.metrics.serve is not None:
            linted = () if settings is None else {rule.code for rule in settings.rules}
            hiding = None if settings is None else HidingOptions(settings.secret_length)
            self.monitor = LiveMonitor(capture, linted=linted, hiding=hiding)
            if self.run is not None:
                self.run.heard = self.monitor.finding
        self.options = Options()
        self.spoken = WEBSOCKET if upstream.websocket else MQTT
        self.dissector = Dissector(self.options) if self.run is None else self.run.dissector
        if self.run is not None:
            self.options = self.run.settings.options
        self.options.max_packet_bytes = args.max_packet
        with ErrorTranslation(CommandFailedError, OSError, before=f"cannot write {args.write}: "):
            self.recording = Recording(
                capture, path=args.write, dissector=self.dissector, listener=self.hear, note=warn,
                watch=(lambda _: None) if self.monitor is None else self.monitor.segment,
            )  # fmt: skip

    def hear(self, event: Event) -> None:
        """Handle one event of the traffic, in the thread of the linter."""
        if isinstance(event, PacketEvent | MalformedEvent):
            self.packets += 1
        elif isinstance(event, ConnectionOpened):
            self.sealed += event.connection.transport == "tls"
        elif isinstance(event, UnparsedEvent) and event.unparsed.reason == "too_large":
            self._too_large(event)
        if self.lines is not None and not isinstance(event, CaptureDrops):
            self.lines.feed(event)
        findings: Sequence[Finding] = () if self.run is None else self.run.feed(event)
        if self.monitor is not None:
            self.monitor.feed(event, findings)
        if self.args.stop_on_finding and self.run is not None and self.run.failing:
            self._stop()

    def _too_large(self, event: UnparsedEvent) -> None:
        self.too_large += 1
        if self.too_large == 1:
            warn(
                f"{event.connection.client}: a packet of {event.unparsed.length:,} bytes was forwarded but not"
                f" linted: --max-packet is {self.options.max_packet_bytes:,}"
            )

    def _stop(self) -> None:
        if self.loop is not None and self.relay is not None:
            with suppress(RuntimeError):  # the loop has just ended
                self.loop.call_soon_threadsafe(self.relay.stop)

    async def execute(self, route: Route) -> int:
        """Forward until something ends the run; returns the exit code."""
        self.loop, self.relay = asyncio.get_running_loop(), Relay(route, self.recording, warn)
        with endings(self._interrupted), self.args.metrics.serving(self.monitor):
            timer = asyncio.create_task(self._pass_time())
            try:
                return await self._forward(self.relay, route)
            finally:
                timer.cancel()

    async def _pass_time(self) -> None:
        """Advance the live metrics, each time after all traffic before was judged."""
        while self.monitor is not None:
            # In the thread of the linter, which feeds them.
            judged = self.recording.ask(partial(self._advance, self.monitor, self.recording.now()))
            await asyncio.sleep(TIME_S)
            await asyncio.wrap_future(judged)

    def _advance(self, monitor: LiveMonitor, now_ns: int) -> None:
        monitor.facts.frames = self.recording.frames
        monitor.pass_time(now_ns, now_ns, lag_ns=self.recording.now() - now_ns)

    async def _forward(self, relay: Relay, route: Route) -> int:
        listened = False
        try:
            with self.args.listening.refusing():
                await relay.start()
            listened = True
            # The protocol of this port is known, so that garbage is reported as such.
            self.options.ports.setdefault(relay.addresses[0][1], self.spoken)
            self._ready(relay)
            if self.args.duration is not None:
                asyncio.get_running_loop().call_later(self.args.duration, relay.stop)
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
        self.args.listening.write_address(relay.address)

    def _close(self, *, reports: bool) -> None:
        """Close the output; without ``reports`` the proxy never listened, and no report is written."""
        if self.lines is not None:
            self.lines.close()
        try:
            if self.run is not None and reports:
                self.run.close()
        finally:
            if self.sink is not None:
                self.sink.close()

    def _code(self, relay: Relay) -> int:
        """Report the run; returns the exit code."""
        recording, run = self.recording, self.run
        sentence = f"{counted(relay.served, 'connection')}, {counted(self.packets, 'packet')}"
        if recording.path is not None and recording.write_error is None:
            sentence += f"; {counted(recording.frames, 'frame')} in {recording.path}"
        if relay.refused:
            sentence += f"; {counted(relay.refused, 'client')} beyond --max-connections closed"
        if self.sink is not None and self.sink.left_out:
            sentence += f"; {counted(self.sink.left_out, 'line')} dropped, because their reader was too slow"
        warn(sentence)
        if self.sealed:
            warn(
                f"{counted(self.sealed, 'connection')} passed with unread TLS inside; --listen-cert terminates TLS here"
            )
        if self.too_large > 1:
            warn(f"{counted(self.too_large, 'packet')} above --max-packet forwarded but not linted")
        unjudged = recording.unjudged_bytes
        print_lint_messages(recording, hint=unjudged > 0)
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
                # Unlinted traffic is not clean.
                return EXIT_FAILED
        return EXIT_CLEAN
