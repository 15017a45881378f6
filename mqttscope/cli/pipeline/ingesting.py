"""Runs of ``pipeline ingest`` and ``rebuild``: choice of the engine, progress, summary, exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import orjson

from mqttscope.cli import advice
from mqttscope.cli.command import OTHER, OUTPUT, READING, SPARK, argument, group, option, options
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE, printable
from mqttscope.cli.output import Output, describe, warn, warn_all
from mqttscope.cli.own_rules import refuse_on_spark
from mqttscope.cli.pipeline.common import (
    RowOptions,
    SparkOptions,
    lake_option,
    lake_store_option,
    single_writer_option,
    store_option,
    warn_errors,
)
from mqttscope.cli.spark_session import PipelineFailedError, for_captures, packages_needed, session, task_progress
from mqttscope.mqtt.view import text, utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import notable_reasons
from mqttscope.report.documents import CAPTURE_ERROR, SCHEMA
from mqttscope.stats.as_json import TAPS
from mqttscope.system import can_fork, processors

if TYPE_CHECKING:
    from mqttscope.capture.locations import Location
    from mqttscope.lake.manifest import Manifest
    from mqttscope.lake.store import Place
    from mqttscope.lake.summary import IngestSummary
    from mqttscope.lake.writer import IngestResult

LARGE_BYTES = 32 << 20
"""Minimum total size of captures for two processes by default."""
IN_PROCESS_BYTES = 256 << 20
"""Default maximum total size of captures for the local engine; Spark would take longer to start than to decode."""
EVERY_SEGMENTS = 5_000
FAILURES_TOLD = 3
"""Maximum number of rule failures that are reported one by one."""
NAMED = 3
"""Maximum number of capture names in one line; the rest are counted."""


def engine_option() -> Any:
    """The option that chooses where captures are decoded."""
    return option(
        SPARK, "--engine", type=click.Choice(("auto", "local", "spark")), default="auto",
        help="Where to decode; local is this process, without Java. [default: auto, local for less than 256 MiB]",
    )  # fmt: skip


@options
class IngestOptions:
    """The options of ``pipeline ingest``."""

    sources: tuple[str, ...] = argument("SRC...", nargs=-1, required=True)
    lake: str = lake_option(stores=True)
    single_writer: bool = single_writer_option()
    rows: RowOptions = group(RowOptions)
    settings: dict[str, str] = store_option()
    lake_settings: dict[str, str] = lake_store_option()
    deduplicate: bool = option(
        READING, "--deduplicate", is_flag=True,
        help="The captures come from several taps: read each frame once, report the loss of each tap. Without Spark.",
    )  # fmt: skip
    engine: str = engine_option()
    spark: SparkOptions = group(SparkOptions)
    jobs: int | None = option(
        OTHER, "--jobs", type=click.IntRange(1), metavar="N",
        help="Maximum number of processes; no more than two are used. The tables do not depend on it. "
        f"[default: one per processor, for captures of more than {LARGE_BYTES >> 20} MB without Spark, else 1]",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")), default="text", show_default=True,
        help="Format of the summary.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.in_store:
            if self.engine == "spark" or self.on_spark:
                raise click.UsageError(f"Spark cannot write a lake in an object store, {self.lake}: use --engine local")
        elif self.single_writer:
            raise click.UsageError("--single-writer is for a lake in an object store")
        elif self.lake_settings:
            raise click.UsageError("--lake-fs is for a lake in an object store")
        if self.deduplicate and (self.engine == "spark" or self.on_spark):
            raise click.UsageError("--deduplicate compares frames in one process, without Spark: --engine local")
        if self.jobs is not None and (self.engine == "spark" or self.on_spark):
            raise click.UsageError("--jobs is for decoding without Spark; for Spark use --master, such as local[4]")
        if self.engine == "local" and self.on_spark:
            raise click.UsageError("--engine local cannot be combined with --master or --conf")

    @property
    def in_store(self) -> bool:
        from mqttscope.lake.store import is_store

        return is_store(self.lake)

    @property
    def on_spark(self) -> bool:
        return self.spark.master is not None or bool(self.spark.configuration)


class IngestRun:
    """One run of ``pipeline ingest``."""

    def __init__(self, args: IngestOptions) -> None:
        self.args = args
        self.options = args.rows.lake()
        self.options.deduplicate = args.deduplicate
        self.more: dict[str, Any] = {}
        """Further arguments of `write_lake` and of `spark.ingest.ingest`."""

    def execute(self) -> int:
        """Ingest and print a summary; returns the exit code."""
        from mqttscope.cli.second_process import SecondProcessLostError

        with packages_needed("tables need", "lake"):
            from mqttscope.capture.locations import NoCapturesError, find
            from mqttscope.lake.manifest import LakeError, read_manifest
            from mqttscope.lake.shared_commit import require_single_writer
            from mqttscope.lake.store import StorePath, place
            from mqttscope.lake.summary import summarize
        settings = self.args.lake_settings or self.args.settings
        root = place(self.args.lake, settings, single_writer=self.args.single_writer)
        try:
            if isinstance(root, StorePath):
                require_single_writer(root)
            before = read_manifest(root)
            captures = find(self.sources(before), self.args.settings, self.known_objects(before))
            faults = {capture.name: capture.fault for capture in captures if capture.fault is not None}
            done = (
                self._in_process(root, captures, faults) if self._stays_here(captures) else self._with_spark(captures)
            )
            summary = summarize(root, before, done)
        except (LakeError, NoCapturesError) as error:
            raise PipelineFailedError(printable(str(error))) from None
        except SecondProcessLostError:
            warn(f"{self.args.lake} is unchanged")
            raise
        except KeyboardInterrupt:
            warn(f"stopped: {self.args.lake} is unchanged")
            raise
        faults |= getattr(done, "faults", {})
        # Unreadable captures are reported once, even if the lake already has a row for the error.
        reported = {(utf8(name), utf8(fault)) for name, fault in faults.items()}
        summary.errors = [error for error in summary.errors if (error.capture, error.message) not in reported]
        self._warn(summary, faults)
        self._show(summary, faults)
        doubtful = faults or summary.errors or done.known_errors or done.internal_errors
        return EXIT_UNREADABLE if doubtful else EXIT_CLEAN

    def sources(self, before: Manifest) -> Sequence[str]:
        """Names of the captures to read, or of their folders."""
        return self.args.sources

    def known_objects(self, before: Manifest) -> Mapping[str, Sequence[Any]]:
        """Objects in stores that need not be read again."""
        return before.objects

    def _stays_here(self, captures: Sequence[Location]) -> bool:
        if self.args.engine != "auto":
            return self.args.engine == "local"
        if self.args.on_spark:
            return False
        if self.args.in_store or self.args.jobs is not None or self.args.deduplicate:
            return True
        return sum(capture.size for capture in captures) <= IN_PROCESS_BYTES

    def _in_process(self, root: Place, located: Sequence[Location], faults: dict[str, str]) -> IngestResult:
        from mqttscope.cli.second_process import second_process
        from mqttscope.lake.writer import write_lake

        captures = [capture for capture in located if capture.fault is None]
        with task_progress("segments") as show:
            shown = 0

            def count(seen: int) -> None:
                nonlocal shown
                if seen - shown >= EVERY_SEGMENTS:
                    shown = seen
                    show(seen, None)

            return write_lake(
                captures, root, self.options, settings=self.args.settings, faults=faults, progress=count,
                second_process=second_process if self._in_two(captures) else None, **self.more,
            )  # fmt: skip

    def _in_two(self, captures: Sequence[Location]) -> bool:
        """Whether to use two processes."""
        if self.args.in_store or any(capture.is_remote for capture in captures) or not can_fork():
            # Clients of object stores use threads, which a forked process lacks.
            return False
        size = sum(capture.size for capture in captures)
        jobs = self.args.jobs
        return jobs > 1 if jobs is not None else processors() > 1 and size >= LARGE_BYTES

    def _with_spark(self, captures: Sequence[Location]) -> IngestResult:
        refuse_on_spark(self.options.rules)
        with packages_needed("Spark needs", "spark"):
            from mqttscope.spark.ingest import ingest
            from mqttscope.spark.session import followed
        fitting = for_captures(sum(capture.size for capture in captures))
        with (
            session(self.args.spark.master, self.args.spark.configuration, fitting) as spark, task_progress() as show,
            followed(spark, show),
        ):  # fmt: skip
            return ingest(spark, captures, self.args.lake, self.options, settings=self.args.settings, **self.more)

    def _warn(self, summary: IngestSummary, faults: dict[str, str]) -> None:
        for name, fault in faults.items():
            warn(f"{utf8(name)}: {fault}")
        reported = {(error.capture, error.message) for error in summary.errors}
        again = [error for error in summary.done.known_errors if (utf8(error.capture), error.message) not in reported]
        lines = [describe(error) for error in summary.errors] + [
            f"{describe(error)} (the lake already contains this error)" for error in again
        ]
        warn_errors(lines)
        if summary.more_errors:
            warn(f"{counted(summary.more_errors, 'more error')} of captures: see the table ingest_errors")
        warn_all(advice.counted_of_connections(summary.connection_counts))
        warn_all(() if summary.done.taps is None else summary.done.taps.sentences())
        unread = advice.unread_sentence(summary.done.skipped, offer=advice.OFFER_ELSEWHERE)
        if unread is not None:
            warn(unread)
        for failure in summary.done.internal_errors[:FAILURES_TOLD]:
            warn(f"internal error in {failure.rule}: {utf8(failure.capture)}, frame {failure.frame}: {failure.error}")
        warn_all(summary.done.failures_told)
        if summary.done.ended:
            ended = counted(summary.done.ended, "open connection")
            warn(
                f"another version of mqttscope wrote the memories of this lake: {ended} ended with the captures up to "
                "now; 'mqttscope pipeline rebuild' reads all captures again"
            )
        if summary.done.waiting_rules:
            names = ", ".join(summary.done.waiting_rules[:NAMED])
            more = (
                f" and {len(summary.done.waiting_rules) - NAMED:,} more" if summary.done.waiting_rules[NAMED:] else ""
            )
            warn(
                f"new rules that compare connections were not used, since they need the captures of earlier ingests: "
                f"{names}{more}; 'mqttscope pipeline relint' applies them"
            )
        _warn_each(
            summary.done.out_of_order,
            "start{s} before the end of the captures already in the lake; connections that do not fit together "
            "get separate rows for their part in {them} (connections.late)",
        )
        if summary.late:
            was = "was" if summary.late == 1 else "were"
            warn(
                f"{counted(summary.late, 'late connection')} {was} linted without rules that compare connections; "
                "'mqttscope pipeline rebuild' reads all captures in the order of time"
            )
        _warn_each(
            summary.done.overlapping,
            "overlap{s} in time with an earlier capture and {are} read after it; mergecap joins them, "
            "or --deduplicate for captures of several taps",
        )

    def _show(self, summary: IngestSummary, faults: dict[str, str]) -> None:
        if self.args.form == "json":
            data = orjson.dumps(_as_json(self.args.lake, summary, faults)) + b"\n"
        else:
            lines = _as_text(self.args.lake, summary, payloads=self.options.payload_limit > 0)
            data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        Output().write_all(data)


def _warn_each(names: Sequence[str], what: str) -> None:
    """Report up to `NAMED` captures by name, and the number of the rest."""
    if len(names) <= NAMED:
        for name in map(utf8, names):
            warn(f"{name}: {what.format(s='s', them='it', are='is')}")
    else:
        first = ", ".join(map(utf8, names[:NAMED]))
        sentence = what.format(s="", them="them", are="are")
        warn(f"{len(names):,} captures {sentence} ({first} and {len(names) - NAMED:,} more)")


def _as_json(lake: str, summary: IngestSummary, faults: dict[str, str]) -> dict[str, Any]:
    from mqttscope.report.findings.json import FAILURE

    done = summary.done
    return {
        "schema": SCHEMA,
        "lake": text(lake),
        "generation": summary.generation,
        "captures": [text(name) for name in done.captures],
        "grown": [text(name) for name in done.grown],
        "known": [text(name) for name in done.known],
        "unreadable": [{"capture": text(name), "message": fault} for name, fault in faults.items()],
        "out_of_order": [text(name) for name in done.out_of_order],
        "overlapping": [text(name) for name in done.overlapping],
        "not_read": notable_reasons(done.skipped),
        **({} if done.taps is None else {"taps": TAPS.view(done.taps)}),
        "of_connections": asdict(summary.connection_counts),
        "late_connections": summary.late,
        "rows": summary.rows,
        "open_rows": summary.open_rows,
        "sums": summary.sums,
        "open_connections": summary.open_connections,
        "findings": summary.findings,
        "errors": [CAPTURE_ERROR.view(error) for error in summary.errors],
        "known_errors": [CAPTURE_ERROR.view(error) for error in done.known_errors],
        "internal_errors": [FAILURE.view(failure) for failure in done.internal_errors],
    }


def _as_text(lake: str, summary: IngestSummary, *, payloads: bool) -> Iterator[str]:
    done = summary.done
    grown = f" ({len(done.grown):,} continued from its previous end)" if done.grown else ""
    known = f", {len(done.known):,} already in the lake" if done.known else ""
    yield f"{lake}: {counted(len(done.captures), 'capture')} read{grown}{known}"
    if not done.captures:
        return
    for name, rows in (*summary.rows.items(), *summary.sums.items()):
        yield f"  {name:<16}{rows:>14,}"
    if summary.rows.get("messages") and not payloads:
        yield "  payloads only as length and digest; --payload-limit BYTES keeps their bytes"
    if summary.open_connections:
        theirs = ", ".join(f"{name} {rows:,}" for name, rows in summary.open_rows.items() if name != "connections")
        still = counted(summary.open_connections, "connection")
        yield f"  {still} still open, with these rows: {theirs or 'none'}"
    if summary.findings:
        yield "  new findings: " + ", ".join(f"{count:,} {severity}" for severity, count in summary.findings.items())
