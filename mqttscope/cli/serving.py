"""One run of ``serve`` for connecting devices: report and exit code."""

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
"""Maximum time after a signal for the linter to catch up."""
COMPARE_S = 0.8
"""Maximum time after a signal for the comparison with the recording; writing its result takes more."""
MAX_COMPARED = 50_000
"""Maximum number of packets compared after a signal; a longer comparison would only delay the report."""


def run(args: ServeOptions) -> int:
    return ServeRun(args).execute()


class ServeRun(LiveRun):
    """One run with its options."""

    immediate = True

    def __init__(self, args: ServeOptions) -> None:
        super().__init__(args)
        self.args = args
        self.host, self.port = args.listening.address()
        self.tls = args.listening.context()
        if args.repeat and args.verify and args.duration is None:
            warn("--repeat with --verify keeps all packets in memory until the end")
        self.recorded: Recorded = read(
            args.captures, args.files,
            ProtocolOptions(ports=args.ports, dont_verify_checksums=args.dont_verify_checksums),
            args.recorded, ChangeOptions(),
        )  # fmt: skip
        self.pace = args.timing.read()
        self.interrupted = False
        self.interrupted_s = 0.0
        """Time of the signal, by `time.monotonic`."""
        self.uncompared = False
        self.options = self.record(args.listening.listen, "serving")
        self.serving = ServerRun(
            self.recorded.scripts,
            ConnectionMatcher(self.recorded.scripts, args.repeat),
            ServerOptions(
                speed=self.pace.speed,
                patience_ns=int(args.patience * 1e9),
                keep=args.verify,
            ),
            causal=self.pace.causal,
            keep_running=args.repeat,
            tls=self.tls,
            websocket=args.websocket,
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
            # Counted from the signal, so that delays on a busy machine do not add up.
            self.close_record(self._left_s(JUDGE_S) if self.interrupted else REST_S)
        # If the run ended by itself, a signal now must not cut the report.
        with reporting():
            outcome = ServedOutcome.from_run(self.serving, self.pace.text, self.recorded.changes)
            outcome.left_out.update(why for _, why in self.recorded.left_out)
            verification = self._verification(outcome) if self.args.verify else None
            self._report(outcome, verification)
        code = self._code(verification)
        return EXIT_FAILED if self.uncompared and code == EXIT_CLEAN else code

    def _verification(self, outcome: ServedOutcome) -> Verification | None:
        """Result of the comparison; ``None`` if a signal leaves no time for it."""
        if not self.interrupted:
            return outcome.verify()
        results: list[Verification] = []
        left_s = self._left_s(COMPARE_S)
        if left_s and outcome.received <= MAX_COMPARED:
            comparing = threading.Thread(target=lambda: results.append(outcome.verify()), daemon=True)
            comparing.start()
            comparing.join(left_s)
        if results:
            return results[0]
        self.uncompared = True
        warn(f"not compared: {outcome.received:,} received packets are too many for the time after a signal")
        return None

    def _left_s(self, limit_s: float) -> float:
        """Seconds left until a time after the signal."""
        return max(0.0, self.interrupted_s + limit_s - time.monotonic())

    async def _serve(self) -> None:
        serving, loop = self.serving, asyncio.get_running_loop()
        with endings(self._interrupted):
            try:
                with self.args.listening.refusing():
                    await serving.start(self.host, self.port)
                assert serving.server is not None
                # The protocol of this port is known, so that garbage is reported as such.
                self.options.ports.setdefault(serving.server.port, WEBSOCKET if self.args.websocket else MQTT)
                self._ready()
                if self.args.duration is not None:
                    loop.call_later(self.args.duration, serving.stop)
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
        self.args.listening.write_address(address)

    def _report(self, outcome: ServedOutcome, verification: Verification | None) -> None:
        """Write differences first: the user sees the end of a long output."""
        sink = self.sink()
        if self.args.run.form == "jsonl":
            if verification is not None:
                self.write_differences(verification)
            sink.write(orjson.dumps(served_document(outcome)) + b"\n")
        else:
            if verification is not None:
                text = ReplayText(sink, self.view)
                for difference in verification.differences:
                    text.feed(difference)
                text.close(verification)
            page = Page(self.view)
            write_served(page, outcome)
            sink.write(page.encoded().lstrip(b"\n") if verification is None else page.encoded())
        sink.flush()

    def _code(self, verification: Verification | None) -> int:
        recording, lint = self.recording, self.lint
        failed = self.recorded.truncated
        if recording is not None and lint is not None and not recording.failed:
            lint.tell_rules()
            # Unlinted traffic is not clean.
            failed |= recording.unjudged_bytes > 0 and not (lint.failing or self.args.run.judging.exit_zero)
        return self.code(
            verification, failed=failed, differs=verification is not None and bool(verification.differences)
        )
