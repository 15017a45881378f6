"""One run of ``pipeline ingest``: which engine, progress, summary, exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE
from mqttscope.cli.output import Output, describe, warn
from mqttscope.cli.pipeline.common import EXTRA, Failed, session
from mqttscope.lake.options import LakeOptions
from mqttscope.mqtt.view import text
from mqttscope.mqtt.wire import counted
from mqttscope.report.jsonl import SCHEMA

if TYPE_CHECKING:
    from mqttscope.lake.writer import Ingested
    from mqttscope.spark.locations import Location
    from mqttscope.spark.summary import Summary

IN_PROCESS_BYTES = 256 << 20
"""Captures with fewer bytes together are decoded sooner than Spark is started on most machines."""
TOLD = 10
"""Errors that are told one by one."""
EVERY_SEGMENTS = 5_000


@dataclass(slots=True)
class Run:
    """The command line, and what becomes of it."""

    sources: Sequence[str]
    lake: str
    options: LakeOptions
    engine: str
    master: str | None
    configuration: dict[str, str]
    settings: dict[str, str]
    split_size: int | None
    format: str
    quiet: bool

    def execute(self) -> int:
        """Ingest, tell what was done; returns the exit code."""
        if self.engine == "local":
            if any("://" in one and not one.startswith("file:") for one in self.sources):
                raise click.UsageError("--engine local reads no URIs; take --engine spark")
            if self.master is not None or self.configuration:
                raise click.UsageError("--engine local takes no --master and no --conf")
        try:
            from mqttscope.lake.manifest import LakeError, read_manifest
            from mqttscope.spark.locations import NoCaptures, find
            from mqttscope.spark.summary import summarize
        except ImportError as error:
            raise Failed(f"tables need what is not installed ({error}): {EXTRA}") from None
        root = Path(self.lake)
        try:
            before = read_manifest(root)
            found = find(self.sources, self.settings)
            done = self._in_process(root, found) if self._stays_here(found) else self._with_spark(root, found)
            summary = summarize(root, before, done)
        except (LakeError, NoCaptures) as error:
            raise Failed(str(error)) from None
        faults = {one.name: one.fault for one in found if one.fault is not None}
        faults |= getattr(done, "faults", {})
        self._warn(summary, faults)
        self._show(summary, faults)
        return EXIT_UNREADABLE if faults or summary.errors else EXIT_CLEAN

    def _stays_here(self, found: Sequence[Location]) -> bool:
        if self.engine != "auto":
            return self.engine == "local"
        if self.master is not None or self.configuration or self.split_size is not None:
            return False
        return not any(one.is_remote for one in found) and sum(one.size for one in found) < IN_PROCESS_BYTES

    def _in_process(self, root: Path, found: Sequence[Location]) -> Ingested:
        from mqttscope.lake.writer import write_lake
        from mqttscope.spark.lake_files import lake_lock

        names = [one.name for one in found if one.fault is None]
        with lake_lock(root), self._progress("segments") as show:
            seen = 0

            def count(_: object) -> None:
                nonlocal seen
                seen += 1
                if seen % EVERY_SEGMENTS == 0:
                    show(seen, None)

            return write_lake(names, root, self.options, progress=count)

    def _with_spark(self, root: Path, found: Sequence[Location]) -> Ingested:
        try:
            from mqttscope.spark.ingest import ingest
            from mqttscope.spark.progress import followed
        except ImportError as error:
            raise Failed(f"Spark needs what is not installed ({error}): {EXTRA}") from None
        with session(self.master, self.configuration) as spark, self._progress("tasks") as show, followed(spark, show):
            return ingest(
                spark, found, root, self.options, split_bytes=self.split_size, settings=self.settings
            )  # fmt: skip

    @contextmanager
    def _progress(self, what: str) -> Iterator[Callable[[int, int | None], None]]:
        """Shows how much of how much is done, on a terminal."""
        if self.quiet or sys.stderr is None or not sys.stderr.isatty():
            yield lambda done, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,}"), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    def _warn(self, summary: Summary, faults: dict[str, str]) -> None:
        for name, fault in faults.items():
            warn(f"{name}: {fault}")
        for error in summary.errors[:TOLD]:
            warn(describe(error))
        if len(summary.errors) > TOLD:
            warn(f"{len(summary.errors) - TOLD:,} more errors are in the table ingest_errors")
        for name in summary.done.out_of_order:
            warn(f"{name}: begins before the end of what was in the lake; connections that both have are not joined")

    def _show(self, summary: Summary, faults: dict[str, str]) -> None:
        if self.format == "text" and self.quiet:
            return
        sink = Output()
        if self.format == "json":
            sink.write(orjson.dumps(_as_json(self.lake, summary, faults)) + b"\n")
        else:
            sink.write(
                "".join(f"{line}\n" for line in _as_text(self.lake, summary)).encode("utf-8", "backslashreplace")
            )
        sink.flush()


def _as_json(lake: str, summary: Summary, faults: dict[str, str]) -> dict[str, Any]:
    done = summary.done
    return {
        "schema": SCHEMA,
        "lake": text(lake),
        "generation": summary.generation,
        "captures": [text(name) for name in done.captures],
        "known": [text(name) for name in done.known],
        "unreadable": [{"capture": text(name), "message": fault} for name, fault in faults.items()],
        "out_of_order": [text(name) for name in done.out_of_order],
        "rows": done.rows,
        "sums": summary.sums,
        "open_connections": summary.open_connections,
        "findings": summary.findings,
        "errors": [
            {"capture": error.capture, "message": error.message, "offset": error.offset, "frames": error.frames}
            for error in summary.errors
        ],
    }


def _as_text(lake: str, summary: Summary) -> Iterator[str]:
    done = summary.done
    known = f", {len(done.known):,} known already" if done.known else ""
    yield f"{lake}: {counted(len(done.captures), 'capture')} read{known}"
    if not done.captures:
        return
    for name, rows in (*done.rows.items(), *summary.sums.items()):
        yield f"  {name:<16}{rows:>14,}"
    if summary.open_connections:
        yield f"  {counted(summary.open_connections, 'connection')} still open"
    if summary.findings:
        yield "  findings: " + ", ".join(f"{count:,} {severity}" for severity, count in summary.findings.items())
