"""One run of ``replay``: captures in, a live broker in between, a report and the exit code out."""

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
from mqttscope.replay.drivers.run import BrokerTarget, Plan, Replay, make_plan
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
from mqttscope.transport.target import Target, loopback

_SPARE_DESCRIPTORS = 64
MAX_COMPARED_WHEN_STOPPED = 50_000
"""Packets that are compared after a replay was stopped: the user who stops it does not want to wait."""


def run(given: ReplayOptions) -> int:
    """Run a replay with the options of the command; returns the exit code."""
    found = ReplayCommand(given)
    if given.dry_run:
        return found.tell_plan()
    return found.execute()


class ReplayCommand(LiveRun):
    """One run with its options."""

    def __init__(self, given: ReplayOptions) -> None:
        super().__init__(given)
        self.given = given
        self.target = target_of(given.broker, "--broker")
        gap = None if given.max_gap is None else int(given.max_gap * 1e9)
        self.pace = replace(given.timing.read(), max_gap_ns=gap, rate=given.rate)
        self.goal = _goal(given, self.target)
        self.manner = ClientOptions(
            faithful=given.faithful,
            user_name=given.connect.user or self.target.user_name,
            password=given.connect.password(),
        )
        if given.faithful and (self.manner.user_name, self.manner.password) != (None, None):
            raise click.UsageError("--faithful sends the recorded credentials; leave out --user and the password")
        with ErrorTranslation(click.UsageError, ArgumentError):
            arguments.credentials(self.manner.user_name, self.manner.password)
        self.recorded: Recorded = read(
            given.captures, given.files, ProtocolOptions(ports=given.ports), given.recorded, given.changes,
            credentials=bool(given.connect.user or given.connect.password_file),
        )  # fmt: skip
        hides = self.recorded.hides_password
        if hides and (self.manner.password is None or given.faithful) and not given.dry_run:
            how = "--faithful would send asterisks" if given.faithful else "give one with --password-file or in"
            more = "" if given.faithful else f" ${PASSWORD_VARIABLE}"
            raise click.UsageError(f"{hides} hides the recorded password: {how}{more}")
        self.plan: Plan = make_plan(self.recorded.scripts)
        self._begun_ns: int | None = None

    def tell_plan(self) -> int:
        """``--dry-run``."""
        scripts, length = self.recorded.scripts, self._replay().context.timeline.length_ns
        told = {"broker": str(self.target), "pace": self.pace.text, "length_ns": length}
        if self.given.run.form == "jsonl":
            document = summary.plan_document(self.plan, scripts, changes=self.recorded.changes, **told)  # type: ignore[arg-type]
            data = orjson.dumps(document) + b"\n"
        else:
            page = Page(self.view)
            summary.write_plan(page, self.plan, scripts, changes=self.recorded.changes, **told)  # type: ignore[arg-type]
            data = page.encoded()
        sink = self.sink()
        sink.write(data)
        sink.flush()
        return EXIT_UNREADABLE if self.recorded.truncated else EXIT_CLEAN

    def execute(self) -> int:
        """Ask where it matters, replay, report."""
        self._agree()
        # Each connection takes a descriptor.
        allow_descriptors(len(self.recorded.scripts) + _SPARE_DESCRIPTORS)
        options = self.record(str(self.target), "replaying")
        options.ports.setdefault(self.target.port, WEBSOCKET if self.target.websocket else MQTT)
        outcome = summary.Outcome(str(self.target), self.pace.text, changes=self.recorded.changes)
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
        found = outcome.verification
        # With --verify it is compared, and is a difference where it is the broker's.
        short = outcome.short and found is None
        failed = bool(outcome.failures or outcome.stopped or self.recorded.truncated or short)
        return self.code(found, failed=failed, differs=found is not None and bool(found.counting))

    def _replay(self) -> Replay:
        return Replay(
            self.recorded.scripts,
            self.goal,
            self.pace,
            self.manner,
            patience_s=self.given.patience,
            recording=self.recording,
            unreachable=self.recorded.unreachable,
            watch=_progress(),
        )

    async def _run(self, replay: Replay) -> None:
        with endings(lambda _: replay.stop()):
            await replay.run()
        if replay.watch is not None:
            replay.watch(None)

    def _take(self, outcome: summary.Outcome, replay: Replay) -> None:
        recorded, live, skipped = outcome.take(replay)
        if self.given.verify and not self._too_much(outcome, recorded, live):
            outcome.verification = summary.compare(replay, recorded, live, skipped, self.recorded.alterations)

    def _too_much(self, outcome: summary.Outcome, recorded: list[Script], live: list[Script | None]) -> bool:
        """Whether a comparison would take too long after the replay was stopped; reports it."""
        packets = sum(len(one.entries) for one in (*recorded, *live) if one is not None)
        if not outcome.stopped or packets <= MAX_COMPARED_WHEN_STOPPED:
            return False
        outcome.not_compared = f"the replay was stopped, and {packets:,} packets would take a while"
        return True

    def _report(self, outcome: summary.Outcome, sink: Any) -> None:
        """Differences first: the end of a long output is what is seen."""
        found = outcome.verification
        live = {} if outcome.not_compared else run_latencies(one for one in outcome.live if one is not None)
        recorded = run_latencies(outcome.recorded) if live else {}
        if self.given.run.form == "jsonl":
            if found is not None:
                self.write_differences(found)
            sink.write(summary.latency_lines(recorded, live))
            sink.write(orjson.dumps(summary.summary_document(outcome)) + b"\n")
        else:
            if found is not None:
                begun = min((script.opened_ns for script in outcome.recorded), default=None)
                text = ReplayText(sink, self.view, recorded_ns=begun, live_ns=self._begun_ns)
                text.feed_all(found)
                text.close(found, stopped=outcome.stopped)
            sink.write(summary.render_latency(recorded, live, self.view))
            page = Page(self.view)
            page.line([""])
            summary.write_summary(page, outcome)
            sink.write(page.encoded())
        sink.flush()

    def _agree(self) -> None:
        """Nothing is sent to another host without consent; what others will notice is printed in any case."""
        with ErrorTranslation(CommandFailedError, LinkError):
            addresses = asyncio.run(resolve(self.target))
        # Those that were looked at are those that are connected to.
        self.goal.addresses = addresses
        if loopback(address.ip for address in addresses):
            return
        warn_all(self.plan.warnings)
        if self.given.yes:
            return
        scripts = self.recorded.scripts
        question = f"Send {sum(self.plan.packets.values()):,} packets of {len(scripts):,} connections to {self.target}?"
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError(f"{self.target} is another host: --yes allows sending to it")
        if not click.confirm(question, err=True):
            raise CommandFailedError("nothing was sent")


def _goal(given: ReplayOptions, target: Target) -> BrokerTarget:
    connect = given.connect
    connect.tls.refuse_plain(target, "a broker", server_name=connect.server_name)
    return BrokerTarget(
        target, connect.tls.context(target), connect.server_name, connect.connect_timeout, ports=dict(given.ports_map)
    )


def _progress() -> Callable[[Replay | None], None] | None:
    """Shows on a terminal how far the replay is; ``None`` clears the line."""
    progress = Progress()

    def tell(replay: Replay | None) -> None:
        if replay is None:
            progress.clear()
        elif replay.context.clock.since_start_ns() > 1e9:
            ended = sum(one.finished.is_set() for one in replay.drivers)
            now = duration(replay.context.clock.since_start_ns())
            connections = f"{ended:,} of {len(replay.drivers):,} connections over"
            progress.show(f"{connections}, {replay.context.sent:,} packets sent, {now}")

    return tell if progress.enabled else None
