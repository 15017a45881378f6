"""``mqttscope pipeline ingest``: captures into a lake; which engine, progress, summary, exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import orjson

from mqttscope.cli import advice
from mqttscope.cli.command import LAKE, OTHER, OUTPUT, READING, SPARK, argument, group, make_command, option, options
from mqttscope.cli.main import EXIT_CLEAN, EXIT_UNREADABLE, printable
from mqttscope.cli.options import LARGE_BYTES, MOST_JOBS
from mqttscope.cli.output import Output, describe, warn, warn_all
from mqttscope.cli.own_rules import refuse_on_spark
from mqttscope.cli.pipeline.common import RowOptions, SparkOptions, lake_option, pairs, warn_errors
from mqttscope.cli.spark_session import PipelineFailedError, for_captures, packages_needed, session, task_progress
from mqttscope.mqtt.view import text, utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.segment import not_read
from mqttscope.report.documents import CAPTURE_ERROR, SCHEMA
from mqttscope.stats.as_json import TAPS
from mqttscope.system import can_fork, processors

if TYPE_CHECKING:
    from mqttscope.capture.locations import Location
    from mqttscope.lake.store import Place
    from mqttscope.lake.summary import Summary
    from mqttscope.lake.writer import Ingested

IN_PROCESS_BYTES = 256 << 20
"""Captures with no more bytes together are decoded sooner than Spark is started on most machines."""
EVERY_SEGMENTS = 5_000
FAILURES_TOLD = 3
"""Failures of rules that are shown one by one."""
NAMED = 3
"""A line names at most this many captures; of more it gives the number."""


@options
class IngestOptions:
    """The options of ``pipeline ingest``."""

    sources: tuple[str, ...] = argument("SRC...", nargs=-1, required=True)
    lake: str = lake_option(stores=True)
    single_writer: bool = option(
        LAKE, "--single-writer", is_flag=True,
        help="Nobody else writes this lake in a store; needed where the store has no conditional writes.",
    )  # fmt: skip
    rows: RowOptions = group(RowOptions)
    settings: dict[str, str] = option(
        READING, "--fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the store of captures and lake, such as region=eu-central-1; may be repeated.",
    )  # fmt: skip
    lake_settings: dict[str, str] = option(
        LAKE, "--lake-fs", multiple=True, callback=pairs, value={}, metavar="KEY=VALUE",
        help="Setting of the store of the lake, in place of those of --fs, where captures are in another store; may be "
        "repeated.",
    )  # fmt: skip
    deduplicate: bool = option(
        READING, "--deduplicate", is_flag=True,
        help="The captures are those of several taps: read each frame once, and report what each tap lost. In process.",
    )  # fmt: skip
    engine: str = option(
        SPARK, "--engine", type=click.Choice(("auto", "local", "spark")), default="auto",
        help="Where to decode; local is this process, without Java. [default: auto, local for less than 256 MiB]",
    )  # fmt: skip
    spark: SparkOptions = group(SparkOptions)
    jobs: int | None = option(
        OTHER, "--jobs", type=click.IntRange(1, MOST_JOBS), metavar="N",
        help="Work with this many processes, of which two find work; the tables are the same. [default: the "
        f"processors, for captures of more than {LARGE_BYTES >> 20} MB that are decoded here]",
    )  # fmt: skip
    form: str = option(
        OUTPUT, "--format", type=click.Choice(("text", "json")), default="text", show_default=True,
        help="Format of the summary.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.in_store:
            if self.engine == "spark" or self.on_spark:
                raise click.UsageError(f"Spark writes no lake in a store, and {self.lake} is one: --engine local does")
        elif self.single_writer:
            raise click.UsageError("--single-writer is for a lake in a store")
        elif self.lake_settings:
            raise click.UsageError("--lake-fs is for a lake in a store")
        if self.deduplicate and (self.engine == "spark" or self.on_spark):
            raise click.UsageError("--deduplicate compares frames in one process, without Spark: --engine local")
        if self.jobs is not None and (self.engine == "spark" or self.on_spark):
            raise click.UsageError("--jobs is for what is decoded here; Spark takes --master, such as local[4]")
        if self.engine == "local" and self.on_spark:
            raise click.UsageError("--engine local takes no --master and no --conf")

    @property
    def in_store(self) -> bool:
        from mqttscope.lake.store import is_store

        return is_store(self.lake)

    @property
    def on_spark(self) -> bool:
        return self.spark.master is not None or bool(self.spark.configuration)


@make_command(
    IngestOptions,
    epilog="""\b
Examples:
  mqttscope pipeline ingest 'captures/*.pcapng' --lake lake --payload-limit 1024
  mqttscope pipeline ingest s3://bucket/a/ --fs region=eu-central-1 --lake /shared/lake --group a
  mqttscope pipeline ingest s3://bucket/b/ --lake s3://bucket/lake --fs region=eu-central-1
  mqttscope pipeline ingest /captures --lake lake --master 'local[4]' --conf spark.driver.memory=4g

Any engine that reads Delta can read a lake; docs/lake.md lists the columns. Exit code 3 when a
capture could not be read to its end, a rule failed, or nothing could be done.
""",
)
def command(given: IngestOptions) -> int:
    """Take captures into a lake: decode and lint them, and write all tables.

    SRC is a file, a glob, a directory, or a URI such as s3://bucket/folder/. Captures already in the lake are skipped.
    A connection may span several ingests.
    """
    return IngestRun(given).execute()


class IngestRun:
    """The command line, and what becomes of it."""

    def __init__(self, given: IngestOptions) -> None:
        self.given = given
        self.options = given.rows.lake()
        self.options.deduplicate = given.deduplicate

    def execute(self) -> int:
        """Ingest and report what was done; returns the exit code."""
        from mqttscope.cli.sharing import ShareFailedError

        with packages_needed("tables need", "lake"):
            from mqttscope.capture.locations import NoCapturesError, find
            from mqttscope.lake.manifest import LakeError, read_manifest
            from mqttscope.lake.shared_commit import require_single_writer
            from mqttscope.lake.store import StorePath, place
            from mqttscope.lake.summary import summarize
        settings = self.given.lake_settings or self.given.settings
        root = place(self.given.lake, settings, single_writer=self.given.single_writer)
        try:
            if isinstance(root, StorePath):
                require_single_writer(root)
            before = read_manifest(root)
            found = find(self.given.sources, self.given.settings, before.objects)
            faults = {one.name: one.fault for one in found if one.fault is not None}
            done = self._in_process(root, found, faults) if self._stays_here(found) else self._with_spark(found)
            summary = summarize(root, before, done)
        except (LakeError, NoCapturesError) as error:
            raise PipelineFailedError(printable(str(error))) from None
        except ShareFailedError:
            warn(f"{self.given.lake} is unchanged")
            raise
        except KeyboardInterrupt:
            warn(f"stopped: {self.given.lake} is unchanged")
            raise
        faults |= getattr(done, "faults", {})
        # What cannot be opened is reported from what was found now, whether there is a row for it already or not.
        told = {(utf8(name), utf8(fault)) for name, fault in faults.items()}
        summary.errors = [one for one in summary.errors if (one.capture, one.message) not in told]
        self._warn(summary, faults)
        self._show(summary, faults)
        doubtful = faults or summary.errors or done.known_errors or done.internal_errors
        return EXIT_UNREADABLE if doubtful else EXIT_CLEAN

    def _stays_here(self, found: Sequence[Location]) -> bool:
        if self.given.engine != "auto":
            return self.given.engine == "local"
        if self.given.on_spark:
            return False
        if self.given.in_store or self.given.jobs is not None or self.given.deduplicate:
            return True
        return sum(one.size for one in found) <= IN_PROCESS_BYTES

    def _in_process(self, root: Place, found: Sequence[Location], faults: dict[str, str]) -> Ingested:
        from mqttscope.cli.sharing import beside
        from mqttscope.lake.writer import write_lake

        captures = [one for one in found if one.fault is None]
        with task_progress("segments") as show:
            shown = 0

            def count(seen: int) -> None:
                nonlocal shown
                if seen - shown >= EVERY_SEGMENTS:
                    shown = seen
                    show(seen, None)

            return write_lake(
                captures, root, self.options, settings=self.given.settings, faults=faults, progress=count,
                beside=beside if self._in_two(captures) else None,
            )  # fmt: skip

    def _in_two(self, captures: Sequence[Location]) -> bool:
        """Whether two processes work."""
        if self.given.in_store or any(one.is_remote for one in captures) or not can_fork():
            # What talks to a store has threads, which a copy of the process would not have.
            return False
        size = sum(one.size for one in captures)
        jobs = self.given.jobs
        return jobs > 1 if jobs is not None else processors() > 1 and size >= LARGE_BYTES

    def _with_spark(self, found: Sequence[Location]) -> Ingested:
        refuse_on_spark(self.options.rules)
        with packages_needed("Spark needs", "spark"):
            from mqttscope.spark.ingest import ingest
            from mqttscope.spark.session import followed
        fitting = for_captures(sum(one.size for one in found))
        with (
            session(self.given.spark.master, self.given.spark.configuration, fitting) as spark,
            task_progress() as show,
            followed(spark, show),
        ):
            return ingest(spark, found, self.given.lake, self.options, settings=self.given.settings)

    def _warn(self, summary: Summary, faults: dict[str, str]) -> None:
        for name, fault in faults.items():
            warn(f"{utf8(name)}: {fault}")
        told = {(one.capture, one.message) for one in summary.errors}
        again = [one for one in summary.done.known_errors if (utf8(one.capture), one.message) not in told]
        lines = [describe(one) for one in summary.errors] + [
            f"{describe(one)}, which the lake already has" for one in again
        ]
        warn_errors(lines)
        if summary.more_errors:
            warn(f"{counted(summary.more_errors, 'more error')} of captures: see the table ingest_errors")
        warn_all(advice.counted_of_connections(summary.of_connections))
        warn_all(() if summary.done.taps is None else summary.done.taps.told())
        unread = advice.unread_sentence(summary.done.skipped, offer=advice.OFFER_ELSEWHERE)
        if unread is not None:
            warn(unread)
        for failure in summary.done.internal_errors[:FAILURES_TOLD]:
            warn(f"internal error in {failure.rule}: {utf8(failure.capture)}, frame {failure.frame}: {failure.error}")
        warn_all(summary.done.failures_told)
        _warn_each(
            summary.done.out_of_order,
            "begin{s} before the end of what the lake already holds; where connections do not fit together, "
            "their part in {them} has rows of its own (connections.late)",
        )
        if summary.late:
            was = "was" if summary.late == 1 else "were"
            warn(f"{counted(summary.late, 'connection')} that came late {was} judged alone, by no rule of wider scope")
        _warn_each(
            summary.done.overlapping,
            "overlap{s} in time with an earlier capture and {are} read after it; mergecap joins them, "
            "--deduplicate those of several taps",
        )

    def _show(self, summary: Summary, faults: dict[str, str]) -> None:
        if self.given.form == "json":
            data = orjson.dumps(_as_json(self.given.lake, summary, faults)) + b"\n"
        else:
            lines = _as_text(self.given.lake, summary, payloads=self.options.payload_limit > 0)
            data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        Output().write_all(data)


def _warn_each(names: Sequence[str], what: str) -> None:
    """Report captures by their names where they are few, else their number."""
    if len(names) <= NAMED:
        for name in map(utf8, names):
            warn(f"{name}: {what.format(s='s', them='it', are='is')}")
    else:
        first = ", ".join(map(utf8, names[:NAMED]))
        told = what.format(s="", them="them", are="are")
        warn(f"{len(names):,} captures {told} ({first} and {len(names) - NAMED:,} more)")


def _as_json(lake: str, summary: Summary, faults: dict[str, str]) -> dict[str, Any]:
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
        "not_read": not_read(done.skipped),
        **({} if done.taps is None else {"taps": TAPS.view(done.taps)}),
        "of_connections": asdict(summary.of_connections),
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


def _as_text(lake: str, summary: Summary, *, payloads: bool) -> Iterator[str]:
    done = summary.done
    grown = f" ({len(done.grown):,} from where it ended before)" if done.grown else ""
    known = f", {len(done.known):,} known already" if done.known else ""
    yield f"{lake}: {counted(len(done.captures), 'capture')} read{grown}{known}"
    if not done.captures:
        return
    for name, rows in (*summary.rows.items(), *summary.sums.items()):
        yield f"  {name:<16}{rows:>14,}"
    if summary.rows.get("messages") and not payloads:
        yield "  of payloads only the length and SHA-256; --payload-limit BYTES keeps more"
    if summary.open_connections:
        theirs = ", ".join(f"{name} {rows:,}" for name, rows in summary.open_rows.items() if name != "connections")
        still = counted(summary.open_connections, "connection")
        yield f"  {still} still open; of these rows theirs: {theirs or 'none'}"
    if summary.findings:
        yield "  new findings: " + ", ".join(f"{count:,} {severity}" for severity, count in summary.findings.items())
