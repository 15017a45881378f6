"""One run of ``replay`` against a live broker: report and exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click
import orjson

from mqttscope import arguments
from mqttscope.api.recorded import Recorded
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.live_options import PASSWORD_VARIABLE, ReplayOptions, target_of
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE, endings, reporting
from mqttscope.cli.options import ProtocolOptions
from mqttscope.cli.output import Progress, warn_all
from mqttscope.cli.recorded import LiveRun, read
from mqttscope.dissect.options import MQTT, WEBSOCKET
from mqttscope.errors import ArgumentError
from mqttscope.replay.client import ClientOptions
from mqttscope.replay.drivers.run import BrokerTarget, ReplayPlan, ReplayRunner, make_plan
from mqttscope.replay.script import Script
from mqttscope.replay.verify.latency import run_latencies
from mqttscope.report.page import Page
from mqttscope.report.replay import summary
from mqttscope.report.replay.text import ReplayText
from mqttscope.report.when import duration
from mqttscope.system import allow_descriptors
from mqttscope.transport.client import resolve
from mqttscope.transport.link import LinkError
from mqttscope.transport.recording import HURRY_S, REST_S
from mqttscope.transport.target import BrokerUrl, loopback

_SPARE_DESCRIPTORS = 64
MAX_COMPARED_WHEN_STOPPED = 50_000
"""Maximum number of packets compared after a replay was stopped, so that the user does not have to wait."""


def run(args: ReplayOptions) -> int:
    """Run a replay with the options of the command; returns the exit code."""
    command = ReplayCommand(args)
    if args.dry_run:
        return command.tell_plan()
    return command.execute()


class ReplayCommand(LiveRun):
    """One run with its options."""

    def __init__(self, args: ReplayOptions) -> None:
        super().__init__(args)
        self.args = args
        self.target = target_of(args.broker, "--broker")
        gap = None if args.max_gap is None else int(args.max_gap * 1e9)
        self.pace = replace(args.timing.read(), max_gap_ns=gap, rate=args.rate)
        self.goal = _goal(args, self.target)
        self.manner = ClientOptions(
            faithful=args.faithful, user_name=args.connect.user or self.target.user_name,
            password=args.connect.password(),
        )  # fmt: skip
        if args.faithful and (self.manner.user_name, self.manner.password) != (None, None):
            raise click.UsageError("--faithful sends the recorded credentials; omit --user and the password")
        with ErrorTranslation(click.UsageError, ArgumentError):
            arguments.credentials(self.manner.user_name, self.manner.password)
        self.recorded: Recorded = read(
            args.captures, args.files, ProtocolOptions(ports=args.ports), args.recorded, args.changes,
            credentials=bool(args.connect.user or args.connect.password_file),
        )  # fmt: skip
        hides = self.recorded.hides_password
        if hides and (self.manner.password is None or args.faithful) and not args.dry_run:
            how = "--faithful would send asterisks" if args.faithful else "give one with --password-file or in"
            more = "" if args.faithful else f" ${PASSWORD_VARIABLE}"
            raise click.UsageError(f"{hides} hides the recorded password: {how}{more}")
        self.plan: ReplayPlan = make_plan(self.recorded.scripts)
        self._begun_ns: int | None = None

    def tell_plan(self) -> int:
        """Print the plan of ``--dry-run``."""
        scripts, length = self.recorded.scripts, self._replay().context.timeline.length_ns
        head = {"broker": str(self.target), "pace": self.pace.text, "length_ns": length}
        if self.args.run.form == "jsonl":
            document = summary.plan_document(self.plan, scripts, changes=self.recorded.changes, **head)  # type: ignore[arg-type]
            data = orjson.dumps(document) + b"\n"
        else:
            page = Page(self.view)
            summary.write_plan(page, self.plan, scripts, changes=self.recorded.changes, **head)  # type: ignore[arg-type]
            data = page.encoded()
        sink = self.sink()
        sink.write(data)
        sink.flush()
        return EXIT_UNREADABLE if self.recorded.truncated else EXIT_CLEAN

    def execute(self) -> int:
        """Ask for consent if needed, replay, report."""
        self._agree()
        # Each connection needs a descriptor.
        allow_descriptors(len(self.recorded.scripts) + _SPARE_DESCRIPTORS)
        options = self.record(str(self.target), "replaying")
        options.ports.setdefault(self.target.port, WEBSOCKET if self.target.websocket else MQTT)
        outcome = summary.ReplayOutcome(str(self.target), self.pace.text, changes=self.recorded.changes)
        outcome.left_out.update(why for _, why in self.recorded.left_out)
        try:
            replay = self._replay()
            asyncio.run(self._run(replay))
            self._begun_ns = replay.started_ns
            with reporting():
                self._take(outcome, replay)
        finally:
            self.close_record(HURRY_S if outcome.stopped else REST_S)
        with reporting():
            self._report(outcome, self.sink())
        verification = outcome.verification
        # --verify reports missing packets of the broker as differences.
        short = outcome.short and verification is None
        failed = bool(outcome.failures or outcome.stopped or self.recorded.truncated or short)
        return self.code(verification, failed=failed, differs=verification is not None and bool(verification.counting))

    def _replay(self) -> ReplayRunner:
        return ReplayRunner(
            self.recorded.scripts,
            self.goal,
            self.pace,
            self.manner,
            patience_s=self.args.patience,
            recording=self.recording,
            unreachable=self.recorded.unreachable,
            watch=_progress(),
        )

    async def _run(self, replay: ReplayRunner) -> None:
        with endings(lambda _: replay.stop()):
            await replay.run()
        if replay.watch is not None:
            replay.watch(None)

    def _take(self, outcome: summary.ReplayOutcome, replay: ReplayRunner) -> None:
        recorded, live, skipped = outcome.add_replay(replay)
        if self.args.verify and not self._too_much(outcome, recorded, live):
            outcome.verification = summary.compare(replay, recorded, live, skipped, self.recorded.alterations)

    def _too_much(self, outcome: summary.ReplayOutcome, recorded: list[Script], live: list[Script | None]) -> bool:
        """Whether a comparison would take too long after the replay was stopped; notes the reason in the outcome."""
        packets = sum(len(script.entries) for script in (*recorded, *live) if script is not None)
        if not outcome.stopped or packets <= MAX_COMPARED_WHEN_STOPPED:
            return False
        outcome.not_compared = f"the replay was stopped, and comparing {packets:,} packets would take a while"
        return True

    def _report(self, outcome: summary.ReplayOutcome, sink: Any) -> None:
        """Write differences first: the user sees the end of a long output."""
        verification = outcome.verification
        live = {} if outcome.not_compared else run_latencies(script for script in outcome.live if script is not None)
        recorded = run_latencies(outcome.recorded) if live else {}
        if self.args.run.form == "jsonl":
            if verification is not None:
                self.write_differences(verification)
            sink.write(summary.latency_lines(recorded, live))
            sink.write(orjson.dumps(summary.summary_document(outcome)) + b"\n")
        else:
            if verification is not None:
                begun = min((script.opened_ns for script in outcome.recorded), default=None)
                text = ReplayText(sink, self.view, recorded_ns=begun, live_ns=self._begun_ns)
                text.feed_all(verification)
                text.close(verification, stopped=outcome.stopped)
            sink.write(summary.render_latency(recorded, live, self.view))
            page = Page(self.view)
            page.line([""])
            summary.write_summary(page, outcome)
            sink.write(page.encoded())
        sink.flush()

    def _agree(self) -> None:
        """Ask for consent before sending to another host; print side effects on others in any case."""
        with ErrorTranslation(CommandFailedError, LinkError):
            addresses = asyncio.run(resolve(self.target))
        # Connect to exactly the addresses checked here.
        self.goal.addresses = addresses
        if loopback(address.ip for address in addresses):
            return
        warn_all(self.plan.warnings)
        if self.args.yes:
            return
        scripts = self.recorded.scripts
        question = f"Send {sum(self.plan.packets.values()):,} packets of {len(scripts):,} connections to {self.target}?"
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError(f"{self.target} is another host: add --yes to allow sending to it")
        if not click.confirm(question, err=True):
            raise CommandFailedError("nothing was sent")


def _goal(args: ReplayOptions, target: BrokerUrl) -> BrokerTarget:
    connect = args.connect
    connect.tls.refuse_plain(target, "a broker", server_name=connect.server_name)
    return BrokerTarget(
        target, connect.tls.context(target), connect.server_name, connect.connect_timeout, ports=dict(args.ports_map)
    )


def _progress() -> Callable[[ReplayRunner | None], None] | None:
    """Callback that shows the progress of the replay on a terminal; ``None`` clears the line."""
    progress = Progress()

    def show_progress(replay: ReplayRunner | None) -> None:
        if replay is None:
            progress.clear()
        elif replay.context.clock.since_start_ns() > 1e9:
            ended = sum(driver.finished.is_set() for driver in replay.drivers)
            now = duration(replay.context.clock.since_start_ns())
            connections = f"{ended:,} of {len(replay.drivers):,} connections over"
            progress.show(f"{connections}, {replay.context.sent:,} packets sent, {now}")

    return show_progress if progress.enabled else None
