"""One run of ``serve``: captures in, devices that connect, a report and the exit code out."""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
import time
from typing import Any

import click
import orjson

from mqttscope.api.recorded import Recorded
from mqttscope.capture.write import write_file
from mqttscope.cli.linting import LintRun
from mqttscope.cli.live_options import ChangeOptions, ServeOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS, endings, limit_ending, reporting
from mqttscope.cli.options import ProtocolOptions
from mqttscope.cli.output import FileSink, Output, warn
from mqttscope.cli.recorded import limit_findings, prepare_record, read
from mqttscope.dissect import Options
from mqttscope.dissect.options import MQTT, WEBSOCKET
from mqttscope.errors import MqttscopeError
from mqttscope.replay.drivers.serve import HURRIED_CLOSE_S, ServerRun
from mqttscope.replay.server import ConnectionMatcher, ServerOptions
from mqttscope.replay.verify.difference import Verification
from mqttscope.report.page import Page
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.summary import ServedOutcome, served_document, write_served
from mqttscope.report.replay.text import ReplayText
from mqttscope.transport.link import reason
from mqttscope.transport.recording import HURRY_S, REST_S, SWITCH_S, Recording
from mqttscope.transport.target import shown

JUDGE_S = HURRIED_CLOSE_S + HURRY_S
"""Time after a signal from which on judging that lags is not waited for."""
COMPARE_S = 0.8
"""So long after a signal the comparison with the recording may end; what is found has to be written too."""
MAX_COMPARED = 50_000
"""Packets that are compared at all then: a comparison that cannot end in time only takes it from the report."""


class CannotServeError(MqttscopeError, click.ClickException):
    """It cannot listen or write what it needs to."""

    exit_code = EXIT_FAILED


def run(given: ServeOptions) -> int:
    """Serve with the options of the command; returns the exit code."""
    return ServeRun(given).execute()


class ServeRun:
    """One run with its options."""

    def __init__(self, given: ServeOptions) -> None:
        self.given = given
        self.host, self.port = given.listening.address()
        self.tls = given.listening.context()
        if given.repeat and given.verify and given.duration is None:
            warn("--repeat keeps what it has to compare in memory until the end")
        self.recorded: Recorded = read(
            given.captures, given.files,
            ProtocolOptions(ports=given.ports, dont_verify_checksums=given.dont_verify_checksums),
            given.recorded, ChangeOptions(),
        )  # fmt: skip
        self.view = given.run.view()
        self.sink: Any = None
        self.lint: LintRun | None = None
        self.recording: Recording | None = None
        self.options = Options()
        self.interrupted = False
        self.interrupted_s = 0.0
        """When a signal came, by `time.monotonic`."""
        self.uncompared = False
        self._prepare_record()
        self.serving = ServerRun(
            self.recorded.scripts,
            ConnectionMatcher(self.recorded.scripts, given.repeat),
            ServerOptions(
                speed=given.timing.speed,
                patience_ns=int(given.patience * 1e9),
                keep=given.verify,
            ),
            causal=given.timing.causal,
            keep_running=given.repeat,
            tls=self.tls,
            websocket=given.websocket,
            recording=self.recording,
            note=warn,
        )
        self.options.max_packet_bytes = self.serving.max_packet_bytes

    def execute(self) -> int:
        """Serve, report; returns the exit code."""
        sys.setswitchinterval(SWITCH_S)
        try:
            asyncio.run(self._serve())
        finally:
            if self.recording is not None:
                # Counted from the signal: what a busy machine needs before this must not add to it.
                self.recording.close(self._left_s(JUDGE_S) if self.interrupted else REST_S)
                for sentence in self.recording.told():
                    more = f"; mqttscope lint {self.recording.path} judges all" if self.recording.path else ""
                    warn(sentence + more)
            if self.lint is not None:
                self.lint.close()
        # It may have ended by itself: a signal that comes now is no reason to report half.
        with reporting():
            outcome = ServedOutcome.of(self.serving, self.given.timing.text, self.recorded.changes)
            outcome.left_out.update(why for _, why in self.recorded.left_out)
            found = self._verified(outcome) if self.given.verify else None
            self._report(outcome, found)
        code = self._code(found)
        return EXIT_FAILED if self.uncompared and code == EXIT_CLEAN else code

    def _verified(self, outcome: ServedOutcome) -> Verification | None:
        """What the comparison found; ``None`` where a signal leaves no time for it: then the report is the rest."""
        if not self.interrupted:
            return outcome.verify()
        found: list[Verification] = []
        left_s = self._left_s(COMPARE_S)
        if left_s and outcome.received <= MAX_COMPARED:
            comparing = threading.Thread(target=lambda: found.append(outcome.verify()), daemon=True)
            comparing.start()
            comparing.join(left_s)
        if found:
            return found[0]
        self.uncompared = True
        warn(f"not compared: {outcome.received:,} packets came, too many for the time after a signal")
        return None

    def _left_s(self, limit_s: float) -> float:
        """Seconds until a time after the signal."""
        return max(0.0, self.interrupted_s + limit_s - time.monotonic())

    async def _serve(self) -> None:
        serving, loop = self.serving, asyncio.get_running_loop()
        with endings(self._interrupted):
            try:
                try:
                    await serving.start(self.host, self.port)
                except OSError as error:
                    why = _why(error, self.host, self.port)
                    raise CannotServeError(f"cannot listen on {self.given.listening.listen}: {why}") from None
                assert serving.server is not None
                # What is spoken here is known, so that garbage is reported as such.
                self.options.ports.setdefault(serving.server.port, WEBSOCKET if self.given.websocket else MQTT)
                self._ready()
                if self.given.duration is not None:
                    loop.call_later(self.given.duration, serving.stop)
                await serving.stopping.wait()
            finally:
                await serving.close()

    def _interrupted(self, number: int) -> None:
        self.interrupted, self.interrupted_s = True, time.monotonic()
        self.serving.stop(hurry=True)
        limit_ending(number, EXIT_FAILED)

    def _ready(self) -> None:
        server = self.serving.server
        assert server is not None
        address = shown(self.host or server.addresses[0][0], server.port)
        count = len(self.recorded.scripts)
        warn(f"listening on {address}; {count:,} recorded connection{'s' if count != 1 else ''} to play")
        path = self.given.listening.ready_file
        if path is None:
            return
        # Whoever waits for the file finds the address in it.
        try:
            write_file(path, f"{address}\n".encode())
        except OSError as error:
            raise CannotServeError(f"cannot write {path}: {error.strerror or error}") from None

    def _report(self, outcome: ServedOutcome, found: Verification | None) -> None:
        """Differences first: the end of a long output is what is seen."""
        sink = self._output()
        if self.given.run.form == "jsonl":
            if found is not None:
                differences = ReplayJson(sink, self.view)
                for difference in found.differences:
                    differences.feed(difference)
                differences.close(found)
            sink.write(orjson.dumps(served_document(outcome)) + b"\n")
        else:
            if found is not None:
                text = ReplayText(sink, self.view)
                for difference in found.differences:
                    text.feed(difference)
                text.close(found)
            page = Page(self.view)
            write_served(page, outcome)
            sink.write(page.encoded().lstrip(b"\n") if found is None else page.encoded())
        sink.flush()

    def _code(self, found: Verification | None) -> int:
        recording = self.recording
        if recording is not None and (recording.write_error is not None or recording.judge_error is not None):
            return EXIT_FAILED
        if self.lint is not None:
            self.lint.tell_rules()
            if self.lint.linter.internal_errors:
                return EXIT_FAILED
            unjudged = recording is not None and recording.unjudged_bytes > 0
            if unjudged and not (self.lint.failing or self.given.run.judging.exit_zero):
                # Clean is only what was looked at.
                return EXIT_FAILED
        if self.recorded.truncated:
            return EXIT_FAILED
        if found is not None and found.nothing:
            warn(found.nothing)
            return EXIT_FAILED
        if self.given.run.judging.exit_zero or (self.lint is not None and self.lint.settings.exit_zero):
            return EXIT_CLEAN
        differs = found is not None and bool(found.differences)
        return EXIT_FINDINGS if differs or (self.lint is not None and self.lint.failing) else EXIT_CLEAN

    def _output(self) -> Any:
        """Where the report goes, opened once."""
        if self.sink is None:
            path = self.given.run.output
            self.sink = Output(immediate=True) if path is None else FileSink(path)
        return self.sink

    def _prepare_record(self) -> None:
        """What passes goes into a file and to the linter, where that is asked for."""
        self.lint, self.recording, self.options = prepare_record(
            self.given.run, self.given.captures, self.given.listening.listen, self.options, self._output, "serving"
        )
        if self.lint is not None:
            limit_findings(self.lint, self.given.run, self._output())


def _why(error: OSError, host: str, port: int) -> str:
    """Why it cannot listen, and what may help."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use"
    if error.errno == errno.EACCES:
        return f"no permission for port {port}; ports from 1024 on need none"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{shown(host, port)} is not an address of this host"
    return reason(error)
