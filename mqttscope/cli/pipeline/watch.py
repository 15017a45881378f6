"""``mqttscope pipeline watch``: ingest captures while they are being written, with a line for each batch."""

from __future__ import annotations

import glob
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqttscope.cli.command import OUTPUT, READING, argument, group, make_command, option, options
from mqttscope.cli.errors import ErrorTranslation, printable_reason
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE, handling, leaving, limit_ending, printable
from mqttscope.cli.output import describe, warn, warn_all
from mqttscope.cli.own_rules import refuse_on_spark
from mqttscope.cli.pipeline.common import RowOptions, SparkOptions, byte_count, lake_option, warn_errors
from mqttscope.cli.spark_session import PipelineFailedError, packages_needed, session
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.spark.watch import BatchReport

_DAY_S = 86_400


@options
class WatchOptions:
    """The options of ``pipeline watch``."""

    sources: tuple[str, ...] = argument("DIR...", nargs=-1, required=True)
    lake: str = lake_option()
    rows: RowOptions = group(RowOptions)
    interval: float = option(
        READING, "--interval", type=click.FloatRange(0), default=10.0, metavar="SECONDS",
        help="Interval between the starts of two batches. [default: 10]",
    )  # fmt: skip
    once: bool = option(READING, "--once", is_flag=True, help="Ingest the current contents of the captures, then exit.")
    max_bytes: int = option(
        READING, "--max-bytes", default="64m", value=64 << 20, callback=byte_count, metavar="BYTES",
        help="Maximum bytes of captures per batch. [default: 64m]",
    )  # fmt: skip
    quiet_time: float = option(
        READING, "--quiet-time", type=click.FloatRange(0), default=60.0, metavar="SECONDS",
        help="Consider a capture complete after this time without a change. [default: 60]",
    )  # fmt: skip
    spark: SparkOptions = group(SparkOptions)
    quiet: bool = option(OUTPUT, "--quiet", "-q", is_flag=True, help="Do not print a line for each batch.")


@make_command(
    WatchOptions,
    epilog="""\b
Examples:
  mqttscope pipeline watch captures --lake lake
  mqttscope pipeline watch '/captures/site-*' --lake lake --once --max-bytes 256m

The lake gets new frames every few seconds, also from a capture that is still being written, and from rotating sets.
Watching may be stopped and restarted at any time: every frame is ingested exactly once. A capture that has not changed
for the --quiet-time is complete; from then on 'pipeline ingest' skips it too. Exit code 3 when a capture could not be
read further, or a rule failed.
""",
)
def command(args: WatchOptions) -> int:
    """Follow captures while they are written, and keep a lake up to date.

    DIR is a folder of captures, a glob or a file. Ctrl-C stops after the current batch has been committed, SIGTERM
    within two seconds; the next watch continues where this one stopped.
    """
    return WatchRun(args).execute()


class WatchRun:
    """One run of ``pipeline watch``."""

    def __init__(self, args: WatchOptions) -> None:
        from mqttscope.lint.failures import RuleFailures

        self.args = args
        self.options = args.rows.lake("spark")
        refuse_on_spark(self.options.rules)
        self.errors = 0
        self.failures = RuleFailures()
        self.failed: set[str] = set()
        """Codes of rules with a reported failure."""

    def execute(self) -> int:
        """Watch until the end; returns the exit code."""
        args = self.args
        self._check()
        with packages_needed("watching needs", "spark"):
            from mqttscope.lake.commit import lake_lock
            from mqttscope.lake.manifest import LakeError, read_manifest
            from mqttscope.lake.writer import check_settings
            from mqttscope.spark.watch import watch
        with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
            # Check before Spark starts, which is slow.
            with lake_lock(args.lake):
                check_settings(read_manifest(Path(args.lake)), self.options, Path(args.lake))
            # After Spark, which installs its own handler.
            with (
                session(args.spark.master, args.spark.configuration) as spark,
                leaving(lambda: f"stopped: {printable(args.lake)} is complete, and the next watch continues"),
                _signals() as over,
            ):
                if not args.quiet:
                    click.echo(self._begun(), err=True)
                watch(
                    spark, args.sources, args.lake, self.options, interval_s=args.interval, once=args.once,
                    max_bytes=args.max_bytes, quiet_seconds=args.quiet_time, tell=self._print_batch, note=warn,
                    over=over,
                )  # fmt: skip
        return self.end()

    def end(self) -> int:
        """Report the number of rule failures; returns the exit code."""
        warn_all(self.failures.sentences(self.options.rules))
        return EXIT_UNREADABLE if self.errors or self.failures else EXIT_CLEAN

    def _check(self) -> None:
        if self.args.spark.master is not None and self.args.spark.master.startswith("sc://"):
            raise PipelineFailedError("watch does not support Spark Connect; use local[*] or spark://HOST:PORT")
        for source in self.args.sources:
            if "://" in source and not source.startswith("file:"):
                raise PipelineFailedError(
                    f"{source} is not a path: only captures on file systems can be followed while they grow"
                )
            if not source.startswith("file:") and not os.path.lexists(source) and not glob.has_magic(source):
                raise PipelineFailedError(f"{source} does not exist")

    def _begun(self) -> str:
        """Line before the first batch, which may take a while."""
        what = printable(", ".join(self.args.sources))
        until = "current contents only" if self.args.once else f"every {self.args.interval:g} s, until Ctrl-C"
        return f"watching {what} for {printable(self.args.lake)}: {until}"

    def _print_batch(self, batch: BatchReport) -> None:
        self.errors += len(batch.errors)
        if not self.args.quiet:
            click.echo(line(batch, time.time()), err=True)
        warn_errors([describe(error) for error in batch.errors])
        for name in batch.late:
            warn(f"{name}: has segments from before the end of the captures already in the lake")
        for failure in batch.failures.errors:
            # Once per rule: a failing rule would repeat its message for days.
            if failure.rule not in self.failed:
                self.failed.add(failure.rule)
                warn(
                    f"internal error in {failure.rule}: {utf8(failure.capture)}, frame {failure.frame}: {failure.error}"
                )
        self.failures.add(batch.failures)


def line(batch: BatchReport, now_s: float) -> str:
    """Line about a batch; ``now_s``: seconds since the epoch."""
    rows = batch.rows
    parts = [counted(rows.get("packets", 0), "packet"), counted(rows.get("findings", 0), "new finding")]
    if batch.errors:
        parts.append(counted(len(batch.errors), "error") + " of captures")
    if batch.live:
        parts.append(counted(batch.open_flows, "flow") + " open")
    if batch.waiting:
        parts.append(f"{batch.waiting / 1e6:,.1f} MB waiting")
    if batch.live and batch.last_ns is not None:
        age = now_s - batch.last_ns / 1e9
        if 0 <= age <= _DAY_S:
            parts.append(f"newest frame {age:,.0f} s old")
    return f"batch {batch.batch}: {', '.join(parts)}"


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second signal ends the program as usual.

    SIGTERM also limits the time for the current batch; the next watch ingests the rest.
    """
    over = threading.Event()

    def stop(number: int, frame: object) -> None:
        over.set()
        if number == signal.SIGTERM:
            limit_ending(number)
        for previous, handler in before.items():
            signal.signal(previous, handler)

    with handling(stop, (signal.SIGINT, signal.SIGTERM)) as before:
        yield over
