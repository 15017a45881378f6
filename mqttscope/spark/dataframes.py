"""Captures as data frames, and the reassembly of IP fragments among their rows.

A fragment has no ports, so it belongs to no flow before its datagram is complete; and its datagram depends on
earlier fragments, in any range and any capture.  So fragments are separate rows, and one task reassembles
all of them, in the order of the captures.  They are rare; reading them costs a second pass over the captures, so it is
done on demand only.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqttscope.capture.locations import Location
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.segment import INCOMPLETE_FRAGMENTS, Fragment, NotSegment, Segment
from mqttscope.spark.distribute import ship
from mqttscope.spark.plan import CapturePlan, good_size, plan, settled, write_plan
from mqttscope.spark.rows import BATCH_ROWS, COLUMNS, DDL, FRAGMENT, SKIPPED, SUMMARY, Batches, NoticeRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mqttscope.spark.source import CaptureReader


ORDER = ("file", "frame")
"""Columns that sort rows in the reading order of ``inspect``."""


def read_captures(
    spark: SparkSession,
    sources: str | Sequence[str],
    *,
    columns: Iterable[str] | None = None,
    rows: str = "all",
    split_bytes: int | None = None,
    ports: Iterable[int] = (),
    settings: dict[str, str] | None = None,
    measure: bool | None = None,
    plan: str | None = None,
) -> DataFrame:
    """Rows of captures (``rows.COLUMNS``): segments, fragments and notices.

    ``columns``: only these, which is faster.  ``rows``, ``split_bytes``, ``ports``: options of the data source.
    ``settings``: for the file systems of URIs.  ``measure``: the executors find the ranges, in a job that runs at once,
    instead of the driver when the rows are requested; ``None``: they do for URIs.  ``plan``: a plan from
    `plan_captures` to read instead of ``sources``.
    """
    from mqttscope.spark.source import FORMAT

    ship(spark)
    named = [sources] if isinstance(sources, str) else list(sources)
    options = {"rows": rows, "split_bytes": str(split_bytes or 0), "ports": ",".join(map(str, ports))}
    options |= {f"fs.{name}": value for name, value in (settings or {}).items()}
    if plan is not None:
        return _planned(spark, options | {"plan": plan}, columns)
    reader = spark.read.format(FORMAT).options(**options)
    if measure or (measure is None and any("://" in name and not name.startswith("file:") for name in named)):
        measures = spark.read.format(FORMAT).options(**(options | {"rows": "measures"})).load(named).collect()
        reader = reader.option("plan", write_plan(settled(row.asDict() for row in measures)))
    if columns is not None:
        reader = reader.schema(_ddl(columns))
    return reader.load(named)


def _ddl(columns: Iterable[str]) -> str:
    wanted = set(columns)
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if name in wanted)


def _planned(spark: SparkSession, options: Mapping[str, str], columns: Iterable[str] | None) -> DataFrame:
    """The rows of a plan, with the reader of the data source but without Spark's part of it.

    Spark starts several Python processes, each importing everything, to ask a data source for its schema, its
    partitions and its reader.  All of that is known here.
    """
    from mqttscope.spark.source import CaptureReader, SourceOptions

    ddl = DDL if columns is None else _ddl(columns)
    reader = CaptureReader(spark.createDataFrame([], ddl).schema, SourceOptions.of(options))
    parts = reader.partitions()
    # Each task gets its own part, not the plan of all.
    reader.options = replace(reader.options, plan=None)
    rows = [(number, bytearray(pickle.dumps(part))) for number, part in enumerate(parts)]
    task_rows = spark.createDataFrame(rows, "task int, part binary").repartitionById(len(parts), "task")
    return task_rows.mapInArrow(partial(_read, reader=reader), ddl)


def _read(batches: Iterable[pa.RecordBatch], reader: CaptureReader) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for part in batch.column("part").to_pylist():
            yield from reader.read(pickle.loads(part))


def plan_captures(
    spark: SparkSession,
    locations: Sequence[Location],
    *,
    split_bytes: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    """The ranges of captures: local captures are walked through here, remote ones are measured by the executors.

    The order of ``locations`` is the order of reading.
    """
    from mqttscope.spark.source import FORMAT

    ship(spark)
    known = dict(settings or {})
    size = split_bytes or good_size(locations)
    remote = [
        location for location in locations if location.is_remote and location.fault is None and not location.behind
    ]
    if not any(location.size > size for location in remote):
        return write_plan(plan(locations, known, size))
    asked = write_plan([CapturePlan(location) for location in remote])
    options = {"rows": "measures", "plan": asked, "split_bytes": str(size)}
    options |= {f"fs.{name}": value for name, value in known.items()}
    far = iter(settled(row.asDict() for row in spark.read.format(FORMAT).options(**options).load().collect()))
    near = iter(plan([location for location in locations if location not in remote], known, size))
    return write_plan([next(far) if location in remote else next(near) for location in locations])


def ingest_notes(rows: DataFrame) -> DataFrame:
    """Notices of the captures, once for each capture, from rows of `read_captures`.

    Notices that every range of a capture repeats (skipped frames, unsupported link types) are added up.
    """
    from pyspark.sql import functions as f

    notes = rows.where(~f.col("kind").isin("segment", "fragment"))
    return notes.groupBy("kind", "file", "capture", "message", "notice", "payload", "offset").agg(
        f.min("frame").alias("frame"), f.sum("count").alias("count")
    )


def assemble(fragments: DataFrame, *, summary: bool = False) -> DataFrame:
    """Rows of the segments in fragments, from the rows of ``read_captures(..., rows="fragments")`` with all columns.

    A datagram without TCP is counted as ``skipped``; an incomplete one gives nothing.
    ``summary``: add a row of that kind with the time of the last segment.
    """
    ordered = fragments.where(fragments["kind"] == FRAGMENT).repartition(1).sortWithinPartitions("file", "frame")
    return ordered.select(*COLUMNS).mapInArrow(partial(assembled, summary=summary), DDL)


def assembled(
    batches: Iterable[pa.RecordBatch], *, summary: bool = False, table: FragmentTable | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of the segments in sorted batches of fragments.  ``table``: incomplete datagrams, before and afterwards.

    With ``summary`` and without a ``table`` nothing comes later, so that incomplete fragments are counted as skipped,
    too.
    """
    is_last = summary and table is None
    table = table or FragmentTable()
    files: dict[str, int] = {}
    builder: Batches | None = None
    segments: list[Segment] = []
    clock: list[int] = []
    last = -1, ""
    skipped: Counter[str] = Counter()
    last_ns: int | None = None
    for batch in batches:
        builder = builder or Batches(batch.schema)
        for row in batch.to_pylist():
            if (row["file"], row["capture"]) != last:
                yield from _flush(builder, segments, clock, skipped, *last)
                segments, clock, skipped, last = [], [], Counter(), (row["file"], row["capture"])
                files[row["capture"]] = row["file"]
            item = table.feed(_fragment(row))
            if isinstance(item, Segment):
                segments.append(item)
                clock.append(row["clock_ns"])
                last_ns = item.timestamp_ns if last_ns is None else max(last_ns, item.timestamp_ns)
                if len(segments) == BATCH_ROWS:
                    yield builder.segments(segments, last[0], clock)
                    segments, clock = [], []
            elif isinstance(item, NotSegment):
                skipped[item.reason] += 1
    if builder is not None:
        yield from _flush(builder, segments, clock, skipped, *last)
        for capture, count in table.incomplete_by_capture().items() if is_last else ():
            yield from builder.notes([NoticeRow(SKIPPED, INCOMPLETE_FRAGMENTS, count=count)], files[capture], capture)
        if summary:
            yield from builder.notes([NoticeRow(SUMMARY, "", count=0, timestamp_ns=last_ns)], *last)


def _flush(
    builder: Batches, segments: list[Segment], clock: list[int], skipped: Counter[str], file: int, capture: str
) -> Iterator[pa.RecordBatch]:
    if segments:
        yield builder.segments(segments, file, clock)
    yield from builder.notes(
        (NoticeRow(SKIPPED, reason, count=count) for reason, count in skipped.items()), file, capture
    )


def _fragment(row: dict[str, Any]) -> Fragment:
    parts = row["fragment"]
    return Fragment(
        row["direction"],
        data=row["payload"],
        missing=row["missing"],
        frame=row["frame"],
        timestamp_ns=row["timestamp_ns"],
        capture=row["capture"],
        **parts,
    )
