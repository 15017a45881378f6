"""``mqttscope pipeline watch``: captures into a lake while they are written, with a line for each batch."""

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
from mqttscope.cli.pipeline.common import RowOptions, SparkOptions, lake_option, size, warn_errors
from mqttscope.cli.spark_session import PipelineFailedError, packages_needed, session
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.spark.watch import Taken

_DAY_S = 86_400


@options
class WatchOptions:
    """The options of ``pipeline watch``."""

    sources: tuple[str, ...] = argument("DIR...", nargs=-1, required=True)
    lake: str = lake_option()
    rows: RowOptions = group(RowOptions)
    interval: float = option(
        READING, "--interval", type=click.FloatRange(0), default=10.0, metavar="SECONDS",
        help="Time from the start of one batch to that of the next. [default: 10]",
    )  # fmt: skip
    once: bool = option(READING, "--once", is_flag=True, help="Take in what the captures hold now, then stop.")
    max_bytes: int = option(
        READING, "--max-bytes", default="64m", value=64 << 20, callback=size, metavar="BYTES",
        help="Take in at most this much of the captures in one batch. [default: 64m]",
    )  # fmt: skip
    quiet_time: float = option(
        READING, "--quiet-time", type=click.FloatRange(0), default=60.0, metavar="SECONDS",
        help="Consider a capture complete when it has not changed for this long. [default: 60]",
    )  # fmt: skip
    spark: SparkOptions = group(SparkOptions)
    quiet: bool = option(OUTPUT, "--quiet", "-q", is_flag=True, help="Print no line for each batch.")


@make_command(
    WatchOptions,
    epilog="""\b
Examples:
  mqttscope pipeline watch captures --lake lake
  mqttscope pipeline watch '/captures/site-*' --lake lake --once --max-bytes 256m

The lake gets new frames every few seconds, also from a capture that is still being written, and from rotating sets.
Watching may be stopped and started again at any time: every frame is taken in once. A capture that has not changed
for the --quiet-time is complete; from then on 'pipeline ingest' knows it too. Exit code 3 when a capture
could not be read further, or a rule failed.
""",
)
def command(given: WatchOptions) -> int:
    """Follow captures while they are written, and keep a lake up to date.

    DIR is a folder of captures, a glob or a file. Ctrl-C stops after the current batch has been committed, SIGTERM
    within two seconds; the next watch continues where this one stopped.
    """
    return WatchRun(given).execute()


class WatchRun:
    """The command line, and what becomes of it."""

    def __init__(self, given: WatchOptions) -> None:
        from mqttscope.lint.failures import Failures

        self.given = given
        self.options = given.rows.lake("spark")
        refuse_on_spark(self.options.rules)
        self.errors = 0
        self.failures = Failures()
        self.failed: set[str] = set()
        """Codes of rules whose failure was reported."""

    def execute(self) -> int:
        """Watch until the end; returns the exit code."""
        given = self.given
        self._check()
        with packages_needed("watching needs", "spark"):
            from mqttscope.lake.commit import lake_lock
            from mqttscope.lake.manifest import LakeError, read_manifest
            from mqttscope.lake.writer import check_settings
            from mqttscope.spark.watch import watch
        with ErrorTranslation(PipelineFailedError, LakeError, text=printable_reason):
            # Before Spark starts, which takes a while.
            with lake_lock(given.lake):
                check_settings(read_manifest(Path(given.lake)), self.options, Path(given.lake))
            # After Spark, which has a handler of its own.
            with (
                session(given.spark.master, given.spark.configuration) as spark,
                leaving(lambda: f"stopped: {printable(given.lake)} is complete, and the next watch continues"),
                _signals() as over,
            ):
                if not given.quiet:
                    click.echo(self._begun(), err=True)
                watch(
                    spark, given.sources, given.lake, self.options, interval_s=given.interval, once=given.once,
                    max_bytes=given.max_bytes, quiet_seconds=given.quiet_time, tell=self._tell, note=warn, over=over,
                )  # fmt: skip
        return self.end()

    def end(self) -> int:
        """Report how often rules failed; returns the exit code."""
        warn_all(self.failures.told(self.options.rules))
        return EXIT_UNREADABLE if self.errors or self.failures else EXIT_CLEAN

    def _check(self) -> None:
        if self.given.spark.master is not None and self.given.spark.master.startswith("sc://"):
            raise PipelineFailedError("watch does not run over Spark Connect; take local[*] or spark://HOST:PORT")
        for source in self.given.sources:
            if "://" in source and not source.startswith("file:"):
                raise PipelineFailedError(
                    f"{source} is no path: only captures on file systems can be followed while they grow"
                )
            if not source.startswith("file:") and not os.path.lexists(source) and not glob.has_magic(source):
                raise PipelineFailedError(f"{source} does not exist")

    def _begun(self) -> str:
        """The line before the first batch, which may be long in coming."""
        what = printable(", ".join(self.given.sources))
        until = "what is there now" if self.given.once else f"every {self.given.interval:g} s, until Ctrl-C"
        return f"watching {what} for {printable(self.given.lake)}: {until}"

    def _tell(self, taken: Taken) -> None:
        self.errors += len(taken.errors)
        if not self.given.quiet:
            click.echo(line(taken, time.time()), err=True)
        warn_errors([describe(error) for error in taken.errors])
        for name in taken.late:
            warn(f"{name}: has segments from before the end of what the lake already holds")
        for one in taken.failures.errors:
            # Once for each rule: who watches for days would read the same again and again.
            if one.rule not in self.failed:
                self.failed.add(one.rule)
                warn(f"internal error in {one.rule}: {utf8(one.capture)}, frame {one.frame}: {one.error}")
        self.failures.add(taken.failures)


def line(taken: Taken, now_s: float) -> str:
    """The line about a batch; ``now_s``: seconds since the epoch."""
    rows = taken.rows
    parts = [counted(rows.get("packets", 0), "packet"), counted(rows.get("findings", 0), "new finding")]
    if taken.errors:
        parts.append(counted(len(taken.errors), "error") + " of captures")
    if taken.live:
        parts.append(counted(taken.open_flows, "flow") + " open")
    if taken.waiting:
        parts.append(f"{taken.waiting / 1e6:,.1f} MB waiting")
    if taken.live and taken.last_ns is not None:
        age = now_s - taken.last_ns / 1e9
        if 0 <= age <= _DAY_S:
            parts.append(f"newest frame {age:,.0f} s old")
    return f"batch {taken.batch}: {', '.join(parts)}"


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and SIGTERM; a second one ends the program as ever.

    Who sends SIGTERM waits for no long batch: what is not in by then is taken by the next watch.
    """
    over = threading.Event()

    def stop(number: int, frame: object) -> None:
        over.set()
        if number == signal.SIGTERM:
            limit_ending(number)
        for one, handler in before.items():
            signal.signal(one, handler)

    with handling(stop, (signal.SIGINT, signal.SIGTERM)) as before:
        yield over
