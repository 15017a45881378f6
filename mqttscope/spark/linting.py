"""Findings of captures with Spark, exactly those of ``lint`` in process, in its order and with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from mqttscope.lake.judging import Sums
from mqttscope.lake.kernel import ORDER
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.scope_kernel import EVENT_ORDER, KEYS, SCOPE_COLUMNS, SCOPE_ORDER
from mqttscope.lake.state import load
from mqttscope.lint.finding import Finding
from mqttscope.net.frame import CaptureNotice
from mqttscope.spark.fold import as_input, by_flow
from mqttscope.spark.ingest import Reading, good_partitions
from mqttscope.spark.jobs import union_all
from mqttscope.spark.lint_tasks import FOUND, LINT_DDL, NOTES, SCOPE, SEEN, SUMS, Judging, lint_flows, lint_keys
from mqttscope.spark.locations import Location
from mqttscope.spark.reading import plan_captures
from mqttscope.spark.rows import SKIPPED, notice_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class Judged:
    """What captures were found to be; ``findings`` can be gone through once."""

    findings: Iterator[Finding]
    sums: Sums = field(default_factory=Sums)
    notices: list[CaptureNotice] = field(default_factory=list)
    """What the captures say beside their frames, in the order of reading."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Frames that hold no segment, by reason."""


def judge(
    spark: SparkSession,
    captures: Sequence[Location],
    options: LakeOptions,
    *,
    split_bytes: int | None = None,
    settings: dict[str, str] | None = None,
) -> Judged:
    """Run all rules of ``options`` over captures, in the order given; raises what Spark raises.

    Findings come one by one from the executors, so that the driver need not hold all of them.
    """
    known = settings or {}
    plan = plan_captures(spark, captures, split_bytes=split_bytes, settings=known)
    reading = Reading(spark, plan, split_bytes, (), known)
    partitions = good_partitions(sum(one.size for one in captures))
    work = Judging(replace(options, scope_events=True), stops_at_fragments=True)
    rows = reading.rows("ingest", plan)
    flows = _flows(rows, work, partitions)
    notes, fragmented = _notes(flows)
    if fragmented:
        flows.unpersist()
        whole = union_all(rows, reading.fragments_of(fragmented))
        flows = _flows(whole, replace(work, stops_at_fragments=False), partitions)
        notes, _ = _notes(flows)
    keys = [_keys(flows, str(scope), column, work, partitions) for scope, column in KEYS.items()]
    every = reduce(union_all, [flows, *keys])
    done = Judged(_findings(every, flows, keys))
    for row in every.where(f"kind = '{SUMS}'").select("data").collect():
        done.sums.add(load(bytes(row["data"])))
    for note in sorted(notes, key=lambda one: (one["file"], one["frame"] or 0)):
        _take(note, done)
    return done


def _flows(rows: DataFrame, work: Judging, partitions: int) -> DataFrame:
    """What the narrow rules find, computed once."""
    sorted_rows = by_flow(as_input(rows), partitions).sortWithinPartitions(*ORDER)
    return _kept(sorted_rows.mapInArrow(partial(lint_flows, work=work), LINT_DDL))


def _keys(flows: DataFrame, scope: str, column: str, work: Judging, partitions: int) -> DataFrame:
    """What the rules of a wider scope find, computed once."""
    from pyspark.sql import functions as f

    events = flows.where((f.col("kind") == SCOPE) & f.col(column).isNotNull())
    values = {"key": f.col(column), "kind_order": f.lit(EVENT_ORDER), "event": f.col("data")}
    rows = events.select(*(values.get(name, f.col(name)).alias(name) for name in SCOPE_COLUMNS))
    ordered = rows.repartition(partitions, "key").sortWithinPartitions(*SCOPE_ORDER)
    return _kept(ordered.mapInArrow(partial(lint_keys, scope=scope, work=work), LINT_DDL))


def _kept(made: DataFrame) -> DataFrame:
    from pyspark import StorageLevel

    return made.persist(StorageLevel.DISK_ONLY)


def _notes(flows: DataFrame) -> tuple[list[dict[str, Any]], list[int]]:
    """What the captures say, and which of them have IP fragments."""
    notes: list[dict[str, Any]] = []
    fragmented: set[int] = set()
    for row in flows.where(f"kind = '{NOTES}'").select("data").collect():
        told, files = load(bytes(row["data"]))
        notes += told
        fragmented.update(files)
    return notes, sorted(fragmented)


def _take(note: dict[str, Any], done: Judged) -> None:
    if note["kind"] == SKIPPED:
        done.skipped[note["message"]] = done.skipped.get(note["message"], 0) + (note["count"] or 0)
        return
    notice = notice_of(
        note["kind"], note["capture"], note["message"], note["frame"], note["offset"], note["notice"], None
    )
    # Every range of a capture says for itself what is wrong with all of it.
    if notice is not None and notice not in done.notices:
        done.notices.append(notice)


def _findings(every: DataFrame, flows: DataFrame, keys: list[DataFrame]) -> Iterator[Finding]:
    """Findings in the order of one run, with the numbers that it gives to connections."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = ("emitted_ns", "file", "frame", "connection_id")
    found = every.where(f"kind = '{FOUND}'")
    concerned = found.select("connection_id").distinct()
    numbered = flows.where(f"kind = '{SEEN}'").select(
        "connection_id", (f.row_number().over(Window.orderBy(*place)) - 1).alias("connection")
    )
    joined = found.join(numbered.join(concerned, "connection_id"), "connection_id")
    ordered = joined.orderBy(
        "emitted_ns", "file", "frame", "connection", "event_in_connection", "rule", "number"
    ).select("connection", "data")
    try:
        for row in ordered.toLocalIterator():
            finding: Finding = load(bytes(row["data"]))
            finding.connection = row["connection"]
            yield finding
    finally:
        for one in (flows, *keys):
            with suppress(Exception):
                one.unpersist()
