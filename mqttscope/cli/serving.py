"""One run of ``serve``: captures in, devices that connect, a report and the exit code out."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import orjson

from mqttscope.api.recorded import Recorded
from mqttscope.cli.live_options import ChangeOptions, ServeOptions
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FAILED, endings, limit_ending, reporting
from mqttscope.cli.options import ProtocolOptions
from mqttscope.cli.output import warn
from mqttscope.cli.recorded import LiveRun, read
from mqttscope.dissect.options import MQTT, WEBSOCKET
from mqttscope.replay.drivers.serve import HURRIED_CLOSE_S, ServerRun
from mqttscope.replay.server import ConnectionMatcher, ServerOptions
from mqttscope.replay.verify.difference import Verification
from mqttscope.report.page import Page
from mqttscope.report.replay.summary import ServedOutcome, served_document, write_served
from mqttscope.report.replay.text import ReplayText
from mqttscope.transport.recording import HURRY_S, REST_S, SWITCH_S
from mqttscope.transport.target import shown

JUDGE_S = HURRIED_CLOSE_S + HURRY_S
"""Time after a signal from which on judging that lags is not waited for."""
COMPARE_S = 0.8
"""So long after a signal the comparison with the recording may end; what is found has to be written too."""
MAX_COMPARED = 50_000
"""Packets that are compared at all then: a comparison that cannot end in time only takes it from the report."""


def run(given: ServeOptions) -> int:
    return ServeRun(given).execute()


class ServeRun(LiveRun):
    """One run with its options."""

    immediate = True

    def __init__(self, given: ServeOptions) -> None:
        super().__init__(given)
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
        self.pace = given.timing.read()
        self.interrupted = False
        self.interrupted_s = 0.0
        """When a signal came, by `time.monotonic`."""
        self.uncompared = False
        self.options = self.record(given.listening.listen, "serving")
        self.serving = ServerRun(
            self.recorded.scripts,
            ConnectionMatcher(self.recorded.scripts, given.repeat),
            ServerOptions(
                speed=self.pace.speed,
                patience_ns=int(given.patience * 1e9),
                keep=given.verify,
            ),
            causal=self.pace.causal,
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
            # Counted from the signal: what a busy machine needs before this must not add to it.
            self.close_record(self._left_s(JUDGE_S) if self.interrupted else REST_S)
        # It may have ended by itself: a signal that comes now is no reason to report half.
        with reporting():
            outcome = ServedOutcome.of(self.serving, self.pace.text, self.recorded.changes)
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
                with self.given.listening.refusing():
                    await serving.start(self.host, self.port)
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
        self.given.listening.write_address(address)

    def _report(self, outcome: ServedOutcome, found: Verification | None) -> None:
        """Differences first: the end of a long output is what is seen."""
        sink = self.sink()
        if self.given.run.form == "jsonl":
            if found is not None:
                self.write_differences(found)
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
        recording, lint = self.recording, self.lint
        failed = self.recorded.truncated
        if recording is not None and lint is not None and not recording.failed:
            lint.tell_rules()
            # Clean is only what was looked at.
            failed |= recording.unjudged_bytes > 0 and not (lint.failing or self.given.run.judging.exit_zero)
        return self.code(found, failed=failed, differs=found is not None and bool(found.differences))
