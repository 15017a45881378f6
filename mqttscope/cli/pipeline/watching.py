"""One run of ``pipeline watch``: what is wrong before it begins, a line for each batch, how it ends."""

from __future__ import annotations

import glob
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqttscope.cli.ending import leaving, limit_ending
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE, printable
from mqttscope.cli.output import describe, warn
from mqttscope.cli.pipeline.common import EXTRA, PipelineFailedError, session, warn_errors
from mqttscope.lake.options import LakeOptions
from mqttscope.mqtt.wire import counted

if TYPE_CHECKING:
    from mqttscope.spark.watch import Taken

_DAY_S = 86_400


@dataclass(slots=True)
class Run:
    """The command line, and what becomes of it."""

    sources: Sequence[str]
    lake: str
    options: LakeOptions
    master: str | None
    configuration: dict[str, str]
    interval: float
    once: bool
    max_bytes: int
    quiet_time: float
    quiet: bool
    errors: int = 0

    def execute(self) -> int:
        """Watch until the end; returns the exit code."""
        self._check()
        try:
            from mqttscope.lake.files import lake_lock
            from mqttscope.lake.manifest import LakeError, read_manifest
            from mqttscope.lake.writer import check_settings
            from mqttscope.spark.watch import watch
        except ImportError as error:
            raise PipelineFailedError(f"watching needs what is not installed ({error}): {EXTRA}") from None
        try:
            # Before Spark starts, which takes a while.
            with lake_lock(self.lake):
                check_settings(read_manifest(Path(self.lake)), self.options, Path(self.lake))
            # Behind Spark, which has a handler of its own.
            with (
                session(self.master, self.configuration) as spark,
                leaving(lambda: f"stopped: {printable(self.lake)} is whole, and the next watch continues"),
                _signals() as over,
            ):
                if not self.quiet:
                    click.echo(self._begun(), err=True)
                watch(
                    spark, self.sources, self.lake, self.options, interval_s=self.interval, once=self.once,
                    max_bytes=self.max_bytes, quiet_seconds=self.quiet_time, tell=self._tell, over=over,
                )  # fmt: skip
        except LakeError as error:
            raise PipelineFailedError(printable(str(error))) from None
        return EXIT_UNREADABLE if self.errors else EXIT_CLEAN

    def _check(self) -> None:
        if self.master is not None and self.master.startswith("sc://"):
            raise PipelineFailedError("watch does not run over Spark Connect; take local[*] or spark://HOST:PORT")
        for source in self.sources:
            if "://" in source and not source.startswith("file:"):
                raise PipelineFailedError(
                    f"{source} is no path: only captures on file systems can be followed while they grow"
                )
            if not source.startswith("file:") and not os.path.lexists(source) and not glob.has_magic(source):
                raise PipelineFailedError(f"{source} does not exist")

    def _begun(self) -> str:
        """What is said before the first batch, which may be long in coming."""
        what = printable(", ".join(self.sources))
        until = "what is there now" if self.once else f"every {self.interval:g} s, until Ctrl-C"
        return f"watching {what} for {printable(self.lake)}: {until}"

    def _tell(self, taken: Taken) -> None:
        self.errors += len(taken.errors)
        if not self.quiet:
            click.echo(line(taken, time.time()), err=True)
        warn_errors([describe(error) for error in taken.errors])
        for name in taken.late:
            warn(f"{name}: has segments from before the end of what was in the lake")


def line(taken: Taken, now_s: float) -> str:
    """What is said of a batch; ``now_s``: seconds since the epoch."""
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
        if 0 <= age < _DAY_S:
            parts.append(f"newest frame {age:,.0f} s old")
    return f"batch {taken.batch}: {', '.join(parts)}"


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and SIGTERM; a second one ends the program as ever.

    Who sends SIGTERM waits for no long batch: what is not in by then is taken by the next watch.
    """
    over = threading.Event()
    before: dict[int, Any] = {}

    def stop(number: int, frame: object) -> None:
        over.set()
        if number == signal.SIGTERM:
            limit_ending(number)
        for one, handler in before.items():
            signal.signal(one, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.getsignal(number)
        signal.signal(number, stop)
    try:
        yield over
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
