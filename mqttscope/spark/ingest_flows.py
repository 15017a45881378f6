"""Segments of captures folded into a lake: one pass over the rows, with all tables written by the executors.

Rows of segments and the lake's memories of open flows are grouped by flow, sorted, and run through the
kernel.  Both directions and all captures of a flow are in one task, however large; rows stream, so that memory holds
only the state of one flow.

Rules that look beyond one connection need a second stage, which reads the flows of a key together once more.  The
first stage lists these flows (``flow_keys``).  Their rows are joined with the list, grouped by key, and
run through the same dissector and linter; nothing that the first stage decoded is written down for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqttscope.dissect.clock_watch import CaptureClock, ClockChange
from mqttscope.events import CaptureRemark
from mqttscope.lake.carried import RowExtract, StateDivision
from mqttscope.lake.files import LakeFiles, add_files, reading
from mqttscope.lake.kernel import KEY_STATE, ORDER, ORDER_BY_TIME, SEGMENT_COLUMNS, STATE_KIND, errors_of
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES, FLOW_KEYS, STATE
from mqttscope.lake.writer import dropping_captures
from mqttscope.lint.failures import RuleFailures
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.spark import ingest_tasks
from mqttscope.spark.rows import COLUMNS, DROPS, READ, SUMMARY, notice_of
from mqttscope.spark.small_batch import remembers_much, small_batch
from mqttscope.spark.tables import parquet_paths, persisted, run_all, union_all

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


NOTE_COLUMNS = ("message", "offset", "count", "notice")
"""Columns of rows that are not segments."""
EXAMINED_COLUMNS = ("kind", "capture", "timestamp_ns", "message", "count")
"""Columns of rows without a flow that are examined before the fold."""
_STATE_DDL = "flow binary, last_ns bigint, state binary"


@dataclass(slots=True)
class FoldResult:
    """Result of a fold."""

    rows: dict[str, int] = field(default_factory=dict)
    """Rows added to each table."""
    open_flows: int = 0
    """Number of flows that continue."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures with segments from before the last one of earlier ingests."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Frames without a segment, by reason."""
    fragmented: list[int] = field(default_factory=list)
    """Captures with IP fragments, by place in the order of reading; nothing else was done then."""
    read: list[dict[str, Any]] = field(default_factory=list)
    """How far a stream has read its captures: rows of the kind `READ`."""
    ends: list[int] = field(default_factory=list)
    """Times of the last segments of the captures, by place in the order of reading."""
    errors: list[tuple[int, CaptureError]] = field(default_factory=list)
    """Errors of captures, with their places in the order of reading."""
    failures: list[RuleFailures] = field(default_factory=list)
    """Failed rules, for each task with failures."""


def fold(
    spark: SparkSession,
    rows: DataFrame,
    root: Path,
    before: Manifest,
    after: Manifest,
    options: LakeOptions,
    *,
    more: bool = True,
    watermark_ns: int | None = None,
    partitions: int = 1,
    stops_at_fragments: bool = False,
    by_time: bool = False,
    clock: CaptureClock | None = None,
) -> FoldResult:
    """Fold rows into the lake in ``root`` with the manifest ``before``; ``after`` gets the written files.

    ``rows``: from `read_captures`, best with ``rows="ingest"``: then each range reports the time of its last segment,
    and the latest is the watermark for timeouts.  Otherwise ``watermark_ns`` is used, nanoseconds since the epoch.
    ``more``: captures will follow, so that flows stay open.  ``partitions``: number of tasks for the flows.
    ``stops_at_fragments``: only list the captures with IP fragments, if there are any.  ``by_time``: merge captures
    that overlap in time instead of reading one after the other.  ``clock``: steps of the captures' clock; ``None``: not
    examined.

    Nothing is in force before the caller has committed ``after`` (`lake.files.commit`); the commit removes files of a
    failed fold.  Raises Spark's errors.
    """
    root, rows = root.resolve(), as_input(rows)
    dropping = frozenset(dropping_captures(root, before))
    if clock is None:
        clock = CaptureClock((ClockChange(-1, 0, before.shift_ns),) if before.shift_ns else ())
    work = ingest_tasks.FoldSettings(
        str(root), after.generation, options, more, watermark_ns, before.last_ns, stops_at_fragments, dropping, by_time,
        clock,
    )  # fmt: skip
    with ExitStack() as held:
        if by_time:
            rows = persisted(rows)
            held.callback(rows.unpersist)
        stages: Stages = ExecutorStages(spark, rows, work, partitions, held)
        few = small_batch(rows, work) if by_time else None
        carried = divide_state(few or stages, work, before)
        if few is not None and (carried is not None or not remembers_much(before)):
            stages = few
        return run_stages(stages, carried, work, before, after)


def run_stages(
    stages: Stages, carried: StateDivision | None, work: ingest_tasks.FoldSettings, before: Manifest, after: Manifest
) -> FoldResult:
    """Run both stages of a fold; ``after`` gets the written files."""
    root = Path(work.root)
    with ExitStack() as held:
        if carried is not None:
            held.callback(carried.delete_files)
        reports = stages.flows(before.state_files if carried is None else carried.take_flows(), carried)
        done = FoldResult(fragmented=sorted({file for report in reports for file in report.fragmented}))
        if done.fragmented:
            return done
        after.open_files, after.state_files, after.scope_state_files = {}, [], []
        # Without rows, no task has run.
        same = reports[0] if reports else ingest_tasks.TaskReport()
        wrong = capture_errors([note for report in reports for note in report.notes], same.rows_of_kind(DROPS))
        done.errors = [(file, error) for file, error in wrong if isinstance(error, CaptureError)]
        steps = [change.step for change in work.clock.changes if change.step is not None]
        reports.append(write_errors(root, after.generation, [*(error for _, error in wrong), *steps]))
        after.shift_ns = work.clock.changes[-1].shift_ns if work.clock.changes else 0
        if work.options.widest() is not None:
            keys = [name for report in reports for name in report.files.get(FLOW_KEYS.name, ())]
            if carried is not None:
                carried.note_keys(_keys_in(root, keys), _now_ns(same.aside, work))
            key_reports, after.scope_state_files = stages.keys(keys, before.scope_state_files, same.aside, carried)
            reports += key_reports
            for name in keys:
                (root / name).unlink()
        if carried is not None:
            after.state_files, after.open_files = carried.state_files, carried.open_files()
            after.checksums |= carried.checksums
    for report in reports:
        add_report(report, after, done)
    done.open_flows = sum(report.rows.get(STATE.name, 0) for report in reports)
    done.open_flows += carried.others.num_rows if carried is not None else 0
    done.read, done.ends = same.rows_of_kind(READ), list(ingest_tasks.ends_of(same.rows_of_kind(SUMMARY)))
    for report in reports:
        done.skipped.update(report.skipped)
    done.out_of_order = sorted({name for report in reports for name in report.late})
    done.failures = [report.failures for report in reports if report.failures]
    times = [report.last_ns for report in reports if report.last_ns is not None]
    after.last_ns = max(times, default=before.last_ns)
    return done


def add_report(report: ingest_tasks.TaskReport, after: Manifest, done: FoldResult) -> None:
    """Add the files of a task to the manifest."""
    add_files(after, report.files, report.checksums)
    for kind, rows in report.rows.items():
        if kind in EVENT_TABLES:
            done.rows[kind] = done.rows.get(kind, 0) + rows


def as_input(rows: DataFrame) -> DataFrame:
    """Rows of captures with the columns that tasks read."""
    from pyspark.sql import functions as f

    names = set(rows.columns)
    # Rows from elsewhere may have only a time each.
    clock = f.col("clock_ns") if "clock_ns" in names else f.col("timestamp_ns").alias("clock_ns")
    columns = [
        clock if name == "clock_ns" else f.col(name) if name in names else f.lit(None).cast(COLUMNS[name]).alias(name)
        for name in (*SEGMENT_COLUMNS, *NOTE_COLUMNS)
    ]
    return rows.select(*columns, f.lit(1).alias("kind_order"))


def divide_state(stages: Stages, work: ingest_tasks.FoldSettings, before: Manifest) -> StateDivision | None:
    """The division of a lake's memory for a batch; ``None`` if the batch may concern everything."""
    if not (work.by_time and before.state_files):
        return None
    looked = stages.examined_rows()
    of_flows = pc.is_valid(looked["flow"])
    aside: list[dict[str, Any]] = looked.filter(pc.invert(of_flows)).to_pylist()
    if work.stops_at_fragments and any(row["kind"] == SUMMARY and row["count"] for row in aside):
        return None
    if not work.dropping.issuperset(row["capture"] for row in aside if row["kind"] == DROPS):
        # From now on anything known about a connection of the capture may be less certain.
        return None
    flows = frozenset(looked["flow"].filter(of_flows).to_pylist())
    return StateDivision.divide(Path(work.root), before, work.generation, flows, _now_ns(aside, work))


def _now_ns(aside: Iterable[dict[str, Any]], work: ingest_tasks.FoldSettings) -> int | None:
    return ingest_tasks.watermark(aside, work.watermark_ns)


def _keys_in(root: Path, names: Iterable[str]) -> set[str]:
    keys: set[str] = set()
    for name in names:
        with reading(root / name):
            keys.update(pq.read_table(root / name, columns=["key"], partitioning=None)["key"].to_pylist())
    return keys


class Stages(Protocol):
    """Runs both stages of a fold."""

    def examined_rows(self) -> pa.Table:
        """The flows of the rows, each at least once, and the columns `EXAMINED_COLUMNS` of rows without a flow."""

    def flows(self, states: Sequence[str] | RowExtract, carried: StateDivision | None) -> list[ingest_tasks.TaskReport]:
        """Run the first stage.  ``states``: the lake's memories of the flows."""

    def keys(
        self, keys: Sequence[str], known: Sequence[str], aside: Sequence[dict[str, Any]], carried: StateDivision | None
    ) -> tuple[list[ingest_tasks.TaskReport], list[str]]:
        """Run the second stage; return the reports, and the files with unchanged memories of keys.

        ``keys``: files of ``flow_keys``.  ``known``: the lake's memories of keys.  ``aside``: rows without a flow.
        """


@dataclass(slots=True)
class ExecutorStages:
    """Runs both stages on Spark's executors."""

    spark: SparkSession
    rows: DataFrame
    work: ingest_tasks.FoldSettings
    partitions: int
    held: ExitStack
    """Resources to release after the fold."""

    def examined_rows(self) -> pa.Table:
        """See `Stages`."""
        from pyspark.sql import functions as f

        aside = f.col("flow").isNull()
        shown = (f.when(aside, f.col(name)).alias(name) for name in EXAMINED_COLUMNS)
        # The tasks of a shuffle would cost more than the few remaining rows.
        return self.rows.select("flow", *shown).coalesce(1).distinct().toArrow()

    def flows(self, states: Sequence[str] | RowExtract, carried: StateDivision | None) -> list[ingest_tasks.TaskReport]:
        """See `Stages`."""
        rows = _with_states(self.spark, self.rows, Path(self.work.root), _files(states, carried))
        flows = by_flow(rows, self.partitions)
        self.rows = flows.sortWithinPartitions(*(ORDER_BY_TIME if self.work.by_time else ORDER))
        if self.work.options.widest() is not None:
            # The second stage reads them once more.
            self.rows = persisted(self.rows)
            self.held.callback(self.rows.unpersist)
        return run_all(
            [self.rows.mapInArrow(partial(ingest_tasks.fold_flows, work=self.work), ingest_tasks.REPORT_DDL)]
        )

    def keys(
        self, keys: Sequence[str], known: Sequence[str], aside: Sequence[dict[str, Any]], carried: StateDivision | None
    ) -> tuple[list[ingest_tasks.TaskReport], list[str]]:
        """See `Stages`."""
        rows, root, keys, left = self.rows, Path(self.work.root), [*keys], list[str]()
        if carried is not None:
            named, others = carried.take_others()
            keys += carried.write_rows(RowExtract(FLOW_KEYS.name, tables=[named]))
            rows = _with_states(self.spark, rows, root, others)
            extract, left = carried.take_keys()
            known = carried.write_rows(extract)
        return cross_connection_stage(self.spark, rows, root, known, self.work, keys, aside, self.partitions), left


def _files(names: Sequence[str] | RowExtract, carried: StateDivision | None) -> list[str]:
    if isinstance(names, RowExtract):
        assert carried is not None
        return carried.write_rows(names)
    return [*names]


def _with_states(spark: SparkSession, known: DataFrame, root: Path, files: Sequence[str]) -> DataFrame:
    """The rows, with the memory of each flow from these files before them."""
    from pyspark.sql import functions as f

    if not files:
        return known
    states = spark.read.schema(_STATE_DDL).parquet(*parquet_paths(root, files))
    return known.unionByName(_state_rows(states, STATE_KIND, 0, f.col("flow"), known.columns))


def _state_rows(states: DataFrame, kind: str, order: int, flow: Column, columns: Iterable[str]) -> DataFrame:
    """Memories as rows that come before all others of a flow or a key."""
    from pyspark.sql import functions as f

    values = {"kind": f.lit(kind), "kind_order": f.lit(order), "flow": flow, "payload": f.col("state")}
    values |= {name: f.lit(0) for name in ("timestamp_ns", "clock_ns", "file", "frame")}
    return states.select(
        *(values.get(name, f.lit(None)).cast(COLUMNS.get(name, "int")).alias(name) for name in columns)
    )


def by_flow(rows: DataFrame, partitions: int) -> DataFrame:
    """The rows of each flow in one partition, and the summaries of all ranges and all drops in every partition.

    So every task has the time of the last segment and the places of dropped frames before it begins, without a pass
    over the captures.
    """
    from pyspark.sql import functions as f

    own = f.pmod(f.xxhash64("flow"), f.lit(partitions)).cast("int")
    everywhere = f.sequence(f.lit(0), f.lit(partitions - 1))
    places = f.when(f.col("kind").isin(SUMMARY, READ, DROPS), everywhere).otherwise(f.array(own))
    placed = rows.withColumn("place", f.explode(places))
    return placed.repartitionById(partitions, "place").drop("place")


def capture_errors(
    errors: Sequence[dict[str, Any]], drops: Sequence[dict[str, Any]]
) -> list[tuple[int, CaptureError | CaptureDrops]]:
    """Errors and drops of captures from rows of the data source, with the place of each in the order of reading.

    Each error appears once per capture: every range reports a fault of the whole capture (an unsupported link type).
    But frames may be dropped again and again.
    """
    ordered = sorted(errors, key=_place, reverse=True)
    once = {(note["capture"], note["message"], note["offset"]): note for note in ordered}
    ordered = sorted([*once.values(), *drops], key=_place)
    return [(note["file"], error) for note in ordered if (error := _error(note)) is not None]


def write_errors(root: Path, generation: int, remarks: Sequence[CaptureRemark]) -> ingest_tasks.TaskReport:
    """Write errors of captures into the table of errors."""
    with LakeFiles(root, generation) as files:
        if remarks:
            files.write("ingest_errors", errors_of(remarks))
    return ingest_tasks.TaskReport(files.names, files.rows, files.checksums)


def _place(note: dict[str, Any]) -> tuple[int, int]:
    return note["file"], note["frame"] or 0


def _error(note: dict[str, Any]) -> CaptureError | CaptureDrops | None:
    notice = notice_of(
        note["kind"], note["capture"], note["message"], note["frame"], note["offset"], note["notice"], None
    )
    return notice if isinstance(notice, CaptureError | CaptureDrops) else None


_FLOW_KEYS_DDL = "flow binary, key string"
_STATES_DDL = "key string, state binary"


def cross_connection_stage(
    spark: SparkSession,
    rows: DataFrame,
    root: Path,
    known: Sequence[str],
    work: ingest_tasks.FoldSettings,
    keys: Sequence[str],
    aside: Sequence[dict[str, Any]],
    partitions: int,
) -> list[ingest_tasks.TaskReport]:
    """Run the rules that look beyond one connection; return the reports of the tasks.

    ``rows``: the input of the first stage, the lake's memories of flows included.  ``known``: files with the memories
    of keys.  ``keys``: files of ``flow_keys``.  ``aside``: rows without a flow.
    """
    from pyspark.sql import functions as f

    parts = []
    if keys:
        flow_keys = spark.read.schema(_FLOW_KEYS_DDL).parquet(*parquet_paths(root, keys))
        parts.append(by_key(rows, flow_keys))
    if known:
        states = spark.read.schema(_STATES_DDL).parquet(*parquet_paths(root, known))
        key = f.encode("key", "utf-8")
        parts.append(_state_rows(states, KEY_STATE, -1, key, (*SEGMENT_COLUMNS, "kind_order")))
    reports: list[ingest_tasks.TaskReport] = []
    if parts:
        order = ORDER_BY_TIME if work.by_time else ORDER
        placed = reduce(union_all, parts).repartition(partitions, "flow").sortWithinPartitions(*order)
        notices = ingest_tasks.SharedNotices.of(aside, work.watermark_ns)
        task = partial(ingest_tasks.ingest_keys, work=work, asides=notices)
        reports = run_all([placed.mapInArrow(task, ingest_tasks.REPORT_DDL)])
    return reports


def by_key(rows: DataFrame, flow_keys: DataFrame) -> DataFrame:
    """Rows of flows with their key in the column of the flow, once for each key of a flow."""
    from pyspark.sql import functions as f

    keys = flow_keys.select("flow", "key").distinct()
    joined = rows.where(f.col("flow").isNotNull()).join(keys, "flow")
    columns = {"flow": f.encode("key", "utf-8").alias("flow")}
    return joined.select(*(columns.get(name, f.col(name)) for name in (*SEGMENT_COLUMNS, "kind_order")))
