"""Segments of captures folded into a lake: one pass over the rows, in which the executors write all tables.

Rows of segments and what the lake remembers of open flows are brought together by flow, sorted, and run through the
kernel.  Both directions and all captures of a flow are in one task, however large; rows stream, so that memory holds
what one flow remembers.

Rules that look beyond one connection need a second stage, in which the flows of a key are read together once more.  The
first stage says which flows these are (``flow_keys``).  Their rows are joined with that, brought together by key, and
run through the same dissector and the same linter; nothing that the first stage decoded is written down for it.
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

from mqttscope.dissect.clock_watch import Clock, ClockChange
from mqttscope.events import CaptureRemark
from mqttscope.lake.carried import Carried, Taken
from mqttscope.lake.files import LakeFiles, add_files, reading
from mqttscope.lake.kernel import KEY_STATE, ORDER, ORDER_BY_TIME, SEGMENT_COLUMNS, STATE_KIND, errors_of
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import EVENT_TABLES, FLOW_KEYS, STATE
from mqttscope.lake.writer import dropping_captures
from mqttscope.lint.failures import Failures
from mqttscope.net.frame import CaptureDrops, CaptureError
from mqttscope.spark import ingest_tasks
from mqttscope.spark.rows import COLUMNS, DROPS, READ, SUMMARY, notice_of
from mqttscope.spark.small_batch import remembers_much, small_batch
from mqttscope.spark.tables import kept, parquet_paths, run_all, union_all

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


NOTE_COLUMNS = ("message", "offset", "count", "notice")
"""Columns of rows that are no segments."""
LOOKED = ("kind", "capture", "timestamp_ns", "message", "count")
"""What is looked at of rows without a flow, before anything is done."""
_STATE_DDL = "flow binary, last_ns bigint, state binary"


@dataclass(slots=True)
class Folded:
    """What a fold did."""

    rows: dict[str, int] = field(default_factory=dict)
    """Rows that were added to each table."""
    open_flows: int = 0
    """Flows that continue."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures with segments from before the last one of earlier ingests."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Frames that hold no segment, by reason."""
    fragmented: list[int] = field(default_factory=list)
    """Captures with IP fragments, by their place in the order of reading; nothing else was done then."""
    read: list[dict[str, Any]] = field(default_factory=list)
    """How far a stream has read its captures: rows of the kind `READ`."""
    ends: list[int] = field(default_factory=list)
    """Times of the last segments of the captures, by their place in the order of reading."""
    errors: list[tuple[int, CaptureError]] = field(default_factory=list)
    """What is wrong with captures, with their places in the order of reading."""
    failures: list[Failures] = field(default_factory=list)
    """Rules that failed, in each task where some did."""


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
    clock: Clock | None = None,
) -> Folded:
    """Fold rows into the lake in ``root``, whose manifest is ``before``; ``after`` gets what was written.

    ``rows``: as `read_captures` gives them, best with ``rows="ingest"``: then each range tells the time of its last
    segment, which is the watermark that flows time out by.  Else ``watermark_ns`` says it, nanoseconds since the epoch.
    ``more``: captures will follow, so that flows stay open.  ``partitions``: into how many tasks the flows go.
    ``stops_at_fragments``: do nothing but name the captures that have IP fragments, where there are any.  ``by_time``:
    put captures that overlap in time into each other, instead of reading one after the other.  ``clock``: where the
    clock of the captures was set; ``None``: nobody has looked.

    Nothing counts before the caller has committed ``after`` (`lake.files.commit`); what a fold that fails leaves behind
    is taken away then.  Raises what Spark raises.
    """
    root, rows = root.resolve(), as_input(rows)
    dropping = frozenset(dropping_captures(root, before))
    if clock is None:
        clock = Clock((ClockChange(-1, 0, before.shift_ns),) if before.shift_ns else ())
    work = ingest_tasks.Work(
        str(root), after.generation, options, more, watermark_ns, before.last_ns, stops_at_fragments, dropping, by_time,
        clock,
    )  # fmt: skip
    with ExitStack() as held:
        if by_time:
            rows = kept(rows)
            held.callback(rows.unpersist)
        stages: Stages = OnExecutors(spark, rows, work, partitions, held)
        few = small_batch(rows, work) if by_time else None
        carried = carried_of(few or stages, work, before)
        if few is not None and (carried is not None or not remembers_much(before)):
            stages = few
        return run_stages(stages, carried, work, before, after)


def run_stages(
    stages: Stages, carried: Carried | None, work: ingest_tasks.Work, before: Manifest, after: Manifest
) -> Folded:
    """Run both stages of a fold; ``after`` gets what was written."""
    root = Path(work.root)
    with ExitStack() as held:
        if carried is not None:
            held.callback(carried.forget)
        reports = stages.flows(before.state_files if carried is None else carried.take_flows(), carried)
        done = Folded(fragmented=sorted({file for one in reports for file in one.fragmented}))
        if done.fragmented:
            return done
        after.open_files, after.state_files, after.scope_state_files = {}, [], []
        # Without any row there is no task.
        same = reports[0] if reports else ingest_tasks.TaskReport()
        wrong = found_wrong([note for one in reports for note in one.notes], same.noted(DROPS))
        done.errors = [(file, one) for file, one in wrong if isinstance(one, CaptureError)]
        steps = [change.step for change in work.clock.changes if change.step is not None]
        reports.append(write_errors(root, after.generation, [*(one for _, one in wrong), *steps]))
        after.shift_ns = work.clock.changes[-1].shift_ns if work.clock.changes else 0
        if work.options.widest() is not None:
            keys = [name for one in reports for name in one.files.get(FLOW_KEYS.name, ())]
            if carried is not None:
                carried.note_keys(_keys_in(root, keys), _now_ns(same.aside, work))
            found, after.scope_state_files = stages.keys(keys, before.scope_state_files, same.aside, carried)
            reports += found
            for name in keys:
                (root / name).unlink()
        if carried is not None:
            after.state_files, after.open_files = carried.state_files, carried.open_files()
            after.checksums |= carried.checksums
    for one in reports:
        take(one, after, done)
    done.open_flows = sum(one.rows.get(STATE.name, 0) for one in reports)
    done.open_flows += carried.others.num_rows if carried is not None else 0
    done.read, done.ends = same.noted(READ), list(ingest_tasks.ends_of(same.noted(SUMMARY)))
    for one in reports:
        done.skipped.update(one.skipped)
    done.out_of_order = sorted({name for one in reports for name in one.late})
    done.failures = [one.failures for one in reports if one.failures]
    times = [one.last_ns for one in reports if one.last_ns is not None]
    after.last_ns = max(times, default=before.last_ns)
    return done


def take(report: ingest_tasks.TaskReport, after: Manifest, done: Folded) -> None:
    """Put what a task wrote into the manifest."""
    add_files(after, report.files, report.checksums)
    for kind, rows in report.rows.items():
        if kind in EVENT_TABLES:
            done.rows[kind] = done.rows.get(kind, 0) + rows


def as_input(rows: DataFrame) -> DataFrame:
    """Rows of captures with the columns that tasks read."""
    from pyspark.sql import functions as f

    given = set(rows.columns)
    # Who has rows of another origin may know the time of each alone.
    clock = f.col("clock_ns") if "clock_ns" in given else f.col("timestamp_ns").alias("clock_ns")
    columns = [
        clock if name == "clock_ns" else f.col(name) if name in given else f.lit(None).cast(COLUMNS[name]).alias(name)
        for name in (*SEGMENT_COLUMNS, *NOTE_COLUMNS)
    ]
    return rows.select(*columns, f.lit(1).alias("kind_order"))


def carried_of(stages: Stages, work: ingest_tasks.Work, before: Manifest) -> Carried | None:
    """What a batch leaves as it is of what a lake remembers; ``None`` where it may concern everything."""
    if not (work.by_time and before.state_files):
        return None
    looked = stages.looked()
    of_flows = pc.is_valid(looked["flow"])
    found: list[dict[str, Any]] = looked.filter(pc.invert(of_flows)).to_pylist()
    if work.stops_at_fragments and any(row["kind"] == SUMMARY and row["count"] for row in found):
        return None
    if not work.dropping.issuperset(row["capture"] for row in found if row["kind"] == DROPS):
        # What is known of any connection of the capture may be less certain from now on.
        return None
    flows = frozenset(looked["flow"].filter(of_flows).to_pylist())
    return Carried.of(Path(work.root), before, work.generation, flows, _now_ns(found, work))


def _now_ns(aside: Iterable[dict[str, Any]], work: ingest_tasks.Work) -> int | None:
    return ingest_tasks.watermark(aside, work.watermark_ns)


def _keys_in(root: Path, names: Iterable[str]) -> set[str]:
    """The keys in files of ``flow_keys``."""
    found: set[str] = set()
    for name in names:
        with reading(root / name):
            found.update(pq.read_table(root / name, columns=["key"], partitioning=None)["key"].to_pylist())
    return found


class Stages(Protocol):
    """Where both stages of a fold run."""

    def looked(self) -> pa.Table:
        """The flows of the rows, each at least once, and of rows without a flow the columns `LOOKED`."""

    def flows(self, states: Sequence[str] | Taken, carried: Carried | None) -> list[ingest_tasks.TaskReport]:
        """Run the first stage.  ``states``: what the lake remembers of the flows."""

    def keys(
        self, keys: Sequence[str], known: Sequence[str], aside: Sequence[dict[str, Any]], carried: Carried | None
    ) -> tuple[list[ingest_tasks.TaskReport], list[str]]:
        """Run the second stage; returns the files too with what the lake remembers of keys and that stays as it is.

        ``keys``: files of ``flow_keys``.  ``known``: what the lake remembers of keys.  ``aside``: rows without a flow.
        """


@dataclass(slots=True)
class OnExecutors:
    """Spark runs them."""

    spark: SparkSession
    rows: DataFrame
    work: ingest_tasks.Work
    partitions: int
    held: ExitStack
    """What is given back after the fold."""

    def looked(self) -> pa.Table:
        """See `Stages`."""
        from pyspark.sql import functions as f

        aside = f.col("flow").isNull()
        shown = (f.when(aside, f.col(name)).alias(name) for name in LOOKED)
        # The tasks of a shuffle would cost more than the few rows that are left.
        return self.rows.select("flow", *shown).coalesce(1).distinct().toArrow()

    def flows(self, states: Sequence[str] | Taken, carried: Carried | None) -> list[ingest_tasks.TaskReport]:
        """See `Stages`."""
        rows = _with_states(self.spark, self.rows, Path(self.work.root), _files(states, carried))
        flows = by_flow(rows, self.partitions)
        self.rows = flows.sortWithinPartitions(*(ORDER_BY_TIME if self.work.by_time else ORDER))
        if self.work.options.widest() is not None:
            # The second stage reads them once more.
            self.rows = kept(self.rows)
            self.held.callback(self.rows.unpersist)
        return run_all(
            [self.rows.mapInArrow(partial(ingest_tasks.fold_flows, work=self.work), ingest_tasks.REPORT_DDL)]
        )

    def keys(
        self, keys: Sequence[str], known: Sequence[str], aside: Sequence[dict[str, Any]], carried: Carried | None
    ) -> tuple[list[ingest_tasks.TaskReport], list[str]]:
        """See `Stages`."""
        rows, root, keys, left = self.rows, Path(self.work.root), [*keys], list[str]()
        if carried is not None:
            named, others = carried.take_others()
            keys += carried.written(Taken(FLOW_KEYS.name, tables=[named]))
            rows = _with_states(self.spark, rows, root, others)
            taken, left = carried.take_keys()
            known = carried.written(taken)
        return cross_connection_stage(self.spark, rows, root, known, self.work, keys, aside, self.partitions), left


def _files(names: Sequence[str] | Taken, carried: Carried | None) -> list[str]:
    if isinstance(names, Taken):
        assert carried is not None
        return carried.written(names)
    return [*names]


def _with_states(spark: SparkSession, known: DataFrame, root: Path, files: Sequence[str]) -> DataFrame:
    """The rows, and before those of each flow what is remembered of it in these files."""
    from pyspark.sql import functions as f

    if not files:
        return known
    states = spark.read.schema(_STATE_DDL).parquet(*parquet_paths(root, files))
    return known.unionByName(_state_rows(states, STATE_KIND, 0, f.col("flow"), known.columns))


def _state_rows(states: DataFrame, kind: str, order: int, flow: Column, columns: Iterable[str]) -> DataFrame:
    """What is remembered, as rows that come before all others of a flow or a key."""
    from pyspark.sql import functions as f

    values = {"kind": f.lit(kind), "kind_order": f.lit(order), "flow": flow, "payload": f.col("state")}
    values |= {name: f.lit(0) for name in ("timestamp_ns", "clock_ns", "file", "frame")}
    return states.select(
        *(values.get(name, f.lit(None)).cast(COLUMNS.get(name, "int")).alias(name) for name in columns)
    )


def by_flow(rows: DataFrame, partitions: int) -> DataFrame:
    """The rows of each flow in one partition, and the summaries of all ranges and all drops in every partition.

    So every task knows the time of the last segment, and where frames were dropped, before it begins, without a pass
    over the captures for that.
    """
    from pyspark.sql import functions as f

    own = f.pmod(f.xxhash64("flow"), f.lit(partitions)).cast("int")
    everywhere = f.sequence(f.lit(0), f.lit(partitions - 1))
    places = f.when(f.col("kind").isin(SUMMARY, READ, DROPS), everywhere).otherwise(f.array(own))
    placed = rows.withColumn("place", f.explode(places))
    return placed.repartitionById(partitions, "place").drop("place")


def found_wrong(
    errors: Sequence[dict[str, Any]], drops: Sequence[dict[str, Any]]
) -> list[tuple[int, CaptureError | CaptureDrops]]:
    """What is wrong with captures, of rows of the data source; with the place of each in the order of reading.

    Once for each capture: every range of it says for itself what is wrong with all of it (a link type that is not
    supported).  But frames may be dropped again and again.
    """
    ordered = sorted(errors, key=_place, reverse=True)
    once = {(note["capture"], note["message"], note["offset"]): note for note in ordered}
    ordered = sorted([*once.values(), *drops], key=_place)
    return [(note["file"], told) for note in ordered if (told := _error(note)) is not None]


def write_errors(root: Path, generation: int, found: Sequence[CaptureRemark]) -> ingest_tasks.TaskReport:
    """Write what is wrong with captures into the table of errors."""
    with LakeFiles(root, generation) as files:
        if found:
            files.write("ingest_errors", errors_of(found))
    return ingest_tasks.TaskReport(files.names, files.rows, files.checksums)


def _place(note: dict[str, Any]) -> tuple[int, int]:
    return note["file"], note["frame"] or 0


def _error(note: dict[str, Any]) -> CaptureError | CaptureDrops | None:
    told = notice_of(
        note["kind"], note["capture"], note["message"], note["frame"], note["offset"], note["notice"], None
    )
    return told if isinstance(told, CaptureError | CaptureDrops) else None


_FLOW_KEYS_DDL = "flow binary, key string"
_STATES_DDL = "key string, state binary"


def cross_connection_stage(
    spark: SparkSession,
    rows: DataFrame,
    root: Path,
    known: Sequence[str],
    work: ingest_tasks.Work,
    keys: Sequence[str],
    aside: Sequence[dict[str, Any]],
    partitions: int,
) -> list[ingest_tasks.TaskReport]:
    """Run the rules that look beyond one connection; gives the reports of the tasks.

    ``rows``: the input of the first stage, what the lake remembers of flows included.  ``known``: files with what it
    remembers of keys.  ``keys``: files of ``flow_keys``.  ``aside``: rows that belong to no flow.
    """
    from pyspark.sql import functions as f

    parts = []
    if keys:
        found = spark.read.schema(_FLOW_KEYS_DDL).parquet(*parquet_paths(root, keys))
        parts.append(by_key(rows, found))
    if known:
        states = spark.read.schema(_STATES_DDL).parquet(*parquet_paths(root, known))
        key = f.encode("key", "utf-8")
        parts.append(_state_rows(states, KEY_STATE, -1, key, (*SEGMENT_COLUMNS, "kind_order")))
    reports: list[ingest_tasks.TaskReport] = []
    if parts:
        order = ORDER_BY_TIME if work.by_time else ORDER
        placed = reduce(union_all, parts).repartition(partitions, "flow").sortWithinPartitions(*order)
        task = partial(ingest_tasks.ingest_keys, work=work, asides=ingest_tasks.Asides.of(aside, work.watermark_ns))
        reports = run_all([placed.mapInArrow(task, ingest_tasks.REPORT_DDL)])
    return reports


def by_key(rows: DataFrame, flow_keys: DataFrame) -> DataFrame:
    """Rows of flows with their key in the column of the flow, once for each key that a flow has."""
    from pyspark.sql import functions as f

    keys = flow_keys.select("flow", "key").distinct()
    joined = rows.where(f.col("flow").isNotNull()).join(keys, "flow")
    columns = {"flow": f.encode("key", "utf-8").alias("flow")}
    return joined.select(*(columns.get(name, f.col(name)) for name in (*SEGMENT_COLUMNS, "kind_order")))
