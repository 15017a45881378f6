"""Lints captures with Spark; findings, order and numbers equal the result of ``lint`` in process.

`judge` runs all rules.  Its tasks take sorted rows and return findings: `lint_flows` runs the rules for one connection,
`lint_keys` the rules that look beyond one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqttscope.capture.locations import Location
from mqttscope.dissect.clock_watch import NO_CLOCK, CaptureClock
from mqttscope.events import ClockStep
from mqttscope.lake.finding_collector import FindingCollector, FindingRow, MarkRow, Sums
from mqttscope.lake.kernel import ORDER, read_rows, run_flows
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import FLOW_KEYS
from mqttscope.lake.state import dump, load
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import FindingSelection
from mqttscope.net.frame import CaptureDrops, CaptureNotice
from mqttscope.spark import ingest_tasks
from mqttscope.spark.clock_steps import find_clock
from mqttscope.spark.dataframes import plan_captures
from mqttscope.spark.ingest import IngestReader, good_partitions
from mqttscope.spark.ingest_flows import as_input, by_flow, by_key
from mqttscope.spark.rows import DROPS, ERROR, SKIPPED, SUMMARY, notice_of
from mqttscope.spark.tables import persisted, union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENT = ("connection_id", "event_in_connection")
_MARKED = (*_EVENT, "emitted_ns", "file", "frame")


@dataclass(slots=True)
class LintResult:
    """Result of linting captures; ``findings`` can be iterated once."""

    findings: Iterator[Finding]
    sums: Sums = field(default_factory=Sums)
    notices: list[CaptureNotice | ClockStep] = field(default_factory=list)
    """The notices of the captures and the steps of their clock, in the order of reading."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Frames without a segment, by reason."""
    skipped_by_capture: dict[tuple[str, str], int] = field(default_factory=dict)
    """Frames without a segment, by capture and reason."""


def judge(
    spark: SparkSession,
    captures: Sequence[Location],
    options: LakeOptions,
    *,
    split_bytes: int | None = None,
    settings: dict[str, str] | None = None,
    selection: FindingSelection[Any] | None = None,
) -> LintResult:
    """Run all rules of ``options`` over captures, in the given order; raises Spark's errors.

    ``selection``: findings to keep; its filter must not use numbers of the run.

    Findings come one by one from the executors, so that the driver need not hold all of them.
    """
    known = settings or {}
    plan = plan_captures(spark, captures, split_bytes=split_bytes, settings=known)
    reading = IngestReader(spark, plan, split_bytes, (), known)
    partitions = good_partitions(sum(capture.size for capture in captures))
    clock = find_clock(spark, captures, known)
    work = SparkLintSettings(options, stops_at_fragments=True, selection=selection, clock=clock)
    rows = reading.rows("ingest", plan)
    grouped = _by_flow(rows, work, partitions)
    flows = _flows(grouped, work)
    notes, aside, fragmented = _notes(flows)
    if fragmented:
        flows.unpersist()
        grouped.unpersist()
        whole = union_all(rows, reading.fragments_of(fragmented))
        grouped = _by_flow(whole, work, partitions)
        flows = _flows(grouped, replace(work, stops_at_fragments=False))
        notes, aside, _ = _notes(flows)
    keys = [_keys(grouped, flows, aside, work, partitions)] if options.widest() is not None else []
    every = reduce(union_all, [flows, *keys])
    wanted = () if selection is None else selection.connections
    chosen = every if selection is None else reduce(union_all, [flows, *(_selected(frame, flows) for frame in keys)])
    done = LintResult(_findings(chosen, [grouped, flows, *keys], flows, wanted))
    for row in every.where(f"kind = '{SUMS}'").select("data").collect():
        done.sums.add(load(bytes(row["data"])))
    for row in _of(wanted, flows.where(f"kind = '{TALLY}'"), flows).select("data").collect() if wanted else ():
        done.sums.take_chosen(*load(bytes(row["data"])))
    # A step is named by the frame after it, a notice by the frames before it.
    steps = [((change.file, change.frame, 0), change.step) for change in clock.changes if change.step is not None]
    noted: list[tuple[tuple[int, int, int], Any]] = [((note["file"], note["frame"] or 0, 1), note) for note in notes]
    for _, notice in sorted([*steps, *noted], key=itemgetter(0)):
        if isinstance(notice, ClockStep):
            done.notices.append(notice)
        else:
            _take(notice, done)
    return done


def _by_flow(rows: DataFrame, work: SparkLintSettings, partitions: int) -> DataFrame:
    """The rows of each flow together; computed once if both stages read them."""
    ordered = by_flow(as_input(rows), partitions).sortWithinPartitions(*ORDER)
    return ordered if work.options.widest() is None else persisted(ordered)


def _flows(rows: DataFrame, work: SparkLintSettings) -> DataFrame:
    return persisted(rows.mapInArrow(partial(lint_flows, work=work), LINT_DDL))


def _keys(
    rows: DataFrame, flows: DataFrame, aside: list[dict[str, Any]], work: SparkLintSettings, partitions: int
) -> DataFrame:
    keyed = by_key(rows, flows.where(f"kind = '{KEY}'"))
    ordered = keyed.repartition(partitions, "flow").sortWithinPartitions(*ORDER)
    task = partial(lint_keys, work=work, asides=ingest_tasks.SharedNotices.of(aside))
    return persisted(ordered.mapInArrow(task, LINT_DDL))


def _notes(flows: DataFrame) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]]:
    """The notices of the captures, the notices that every task gets, and the captures with IP fragments."""
    notes: list[dict[str, Any]] = []
    aside: list[dict[str, Any]] = []
    fragmented: set[int] = set()
    for row in flows.where(f"kind = '{NOTES}'").select("data").collect():
        own_notes, aside, files = load(bytes(row["data"]))
        notes += own_notes
        fragmented.update(files)
    return notes + [row for row in aside if row["kind"] == DROPS], aside, sorted(fragmented)


def _take(note: dict[str, Any], done: LintResult) -> None:
    if note["kind"] == SKIPPED:
        key, count = (note["capture"], note["message"]), note["count"] or 0
        done.skipped[note["message"]] = done.skipped.get(note["message"], 0) + count
        done.skipped_by_capture[key] = done.skipped_by_capture.get(key, 0) + count
        return
    notice = notice_of(
        note["kind"], note["capture"], note["message"], note["frame"], note["offset"], note["notice"], None
    )
    # Every range of a capture reports a fault of the whole capture, but frames may be dropped again and again.
    if notice is not None and (isinstance(notice, CaptureDrops) or notice not in done.notices):
        done.notices.append(notice)


def _selected(judged: DataFrame, flows: DataFrame) -> DataFrame:
    """Findings of wide rules about selected events, at the place where the selection is known."""
    marks = flows.where(f"kind = '{MARK}'").select(*_MARKED)
    findings = judged.where(f"kind = '{FOUND}'").drop(*(name for name in _MARKED if name not in _EVENT))
    return findings.join(marks, list(_EVENT)).select(*judged.columns)


def _of(wanted: tuple[int, ...], rows: DataFrame, flows: DataFrame) -> DataFrame:
    """Rows of the connections with these numbers."""
    from pyspark.sql import functions as f

    connections = _counted(flows.where(f"kind = '{SEEN}'")).where(f.col("count").isin(*wanted))
    return rows.join(connections.select("connection_id"), "connection_id", "left_semi")


def _findings(
    every: DataFrame, held: Sequence[DataFrame], flows: DataFrame, wanted: tuple[int, ...]
) -> Iterator[Finding]:
    """Findings in the order of one run, with the run's numbers of connections and packets.

    ``held``: frames to release afterwards.
    """
    from pyspark.sql import functions as f

    findings = every.where(f"kind = '{FOUND}'")
    if wanted:
        findings = _of(wanted, findings, flows)
    connections = _counted(flows.where(f"kind = '{SEEN}'")).select("connection_id", "count")
    with_findings = connections.join(findings.select("connection_id").distinct(), "connection_id")
    joined = findings.join(with_findings, "connection_id")
    ordered = joined.orderBy("file", "emitted_ns", "frame", "count", "event_in_connection", "rule", "number")
    named = findings.select(f.explode("packets").alias("one")).select("one.*").distinct()
    packets = _counted(flows.where(f"kind = '{PACKET}'")).select(
        f.col("at_frame").alias("frame"), "timestamp_ns", "number", "capture", "count"
    )
    try:
        numbers = _PacketNumbers(named.join(packets, named.columns).collect())
        for row in ordered.select("count", "data").toLocalIterator():
            yield _numbered(load(bytes(row["data"])), row["count"], numbers)
    finally:
        for frame in held:
            with suppress(Exception):
                frame.unpersist()


def _counted(rows: DataFrame) -> DataFrame:
    """Rows with their number in the order of reading, ``count``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.orderBy("file", "emitted_ns", "frame", "connection_id", "number")
    return rows.withColumn("count", f.row_number().over(order) - 1)


class _PacketNumbers:
    """Numbers of packets over all connections, by frame, time and number in the connection."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._known: dict[tuple[int, int, int], dict[str, int]] = {}
        for row in rows:
            place = row["frame"], row["timestamp_ns"], row["number"]
            self._known.setdefault(place, {})[row["capture"]] = row["count"]

    def of(self, capture: str, frame: int, timestamp_ns: int, number: int) -> int:
        """The number of a packet; if captures repeat each other, preferably in this capture."""
        by_capture = self._known.get((frame, timestamp_ns, number))
        if not by_capture:
            return number
        return by_capture.get(capture, next(iter(by_capture.values())))


def _numbered(finding: Finding, connection: int, numbers: _PacketNumbers) -> Finding:
    """A finding with packet numbers over all connections, as in `lint`."""
    finding.connection = connection
    if finding.packet is not None:
        finding.packet = numbers.of(finding.capture, finding.frame, finding.timestamp_ns, finding.packet)
    finding.related = tuple(
        replace(other, packet=numbers.of(finding.capture, other.frame, other.timestamp_ns, other.packet))
        for other in finding.related
    )
    return finding


FOUND, KEY, SEEN, PACKET, SUMS, NOTES = "found", "key", "seen", "packet", "sums", "notes"
"""Kinds of rows: a finding, the key of a flow, a connection, a packet, counts, notices of captures."""
MARK, TALLY = "mark", "tally"
"""Kinds of rows with a selection: a selected event, selected counts of a connection."""
_PACKET = pa.struct([("frame", pa.int64()), ("timestamp_ns", pa.int64()), ("number", pa.int64())])
_COLUMNS = (
    ("kind", "string", pa.string()), ("connection_id", "string", pa.string()), ("flow", "binary", pa.binary()),
    ("key", "string", pa.string()), ("emitted_ns", "bigint", pa.int64()), ("file", "bigint", pa.int64()),
    ("frame", "bigint", pa.int64()), ("event_in_connection", "bigint", pa.int64()), ("rule", "string", pa.string()),
    ("number", "bigint", pa.int64()), ("timestamp_ns", "bigint", pa.int64()), ("at_frame", "bigint", pa.int64()),
    ("capture", "string", pa.string()),
    ("packets", "array<struct<frame:bigint,timestamp_ns:bigint,number:bigint>>", pa.list_(_PACKET)),
    ("data", "binary", pa.binary()),
)  # fmt: skip
LINT_DDL = ", ".join(f"{name} {kind}" for name, kind, _ in _COLUMNS)
_SCHEMA = pa.schema([(name, kind) for name, _, kind in _COLUMNS])
_NAMES = {
    FOUND: FindingRow._fields,
    PACKET: ("emitted_ns", "file", "frame", "number", "at_frame", "timestamp_ns", "capture"),
    SEEN: ("connection_id", "emitted_ns", "file", "frame"),
    KEY: ("flow", "key"),
    MARK: MarkRow._fields,
    TALLY: ("connection_id", "data"),
    SUMS: ("data",),
    NOTES: ("data",),
}
_FLUSH = 1_024


@dataclass(slots=True)
class SparkLintSettings:
    """Settings of every task.  Plain data."""

    options: LakeOptions
    stops_at_fragments: bool = False
    """Only report the captures with IP fragments, if there are any."""
    selection: FindingSelection[Any] | None = None
    """Findings to keep."""
    clock: CaptureClock = NO_CLOCK
    """Steps of the captures' clock."""


def lint_flows(batches: Iterable[pa.RecordBatch], work: SparkLintSettings) -> Iterator[pa.RecordBatch]:
    """Run the narrow rules over the sorted rows of complete flows; rows without a flow come first."""
    aside, rest = ingest_tasks.split_aside(batches)
    summaries = [row for row in aside if row["kind"] == SUMMARY]
    notes = [{name: row[name] for name in ingest_tasks.NOTE} for row in aside if row["kind"] in (ERROR, SKIPPED)]
    known = [
        {name: row[name] for name in (*ingest_tasks.NOTE, "timestamp_ns")}
        for row in aside
        if row["kind"] in (SUMMARY, DROPS)
    ]
    fragmented = sorted({row["file"] for row in summaries if row["count"]})
    yield _batch(NOTES, [(dump((notes, known, fragmented)),)])
    if fragmented and work.stops_at_fragments:
        # Spark reuses workers only if they were read to the end.
        for _ in rest:
            pass
        return
    judge = FindingCollector(work.options, work.clock.ends or ingest_tasks.ends_of(summaries), work.selection)
    judge.note_drops((), ingest_tasks.first_drops(aside))
    assert judge.linter is not None
    judge.linter.end_ns = ingest_tasks.ends_by_capture(summaries).get
    notices = ingest_tasks.SharedNotices.of(aside)
    with ingest_tasks.collecting_seldom():
        for _, rows in groupby(
            read_rows(ingest_tasks.clocked(ingest_tasks.split_batches(rest), summaries)), key=attrgetter("flow")
        ):
            run = run_flows(
                rows, work.options, judge, [], watermark_ns=notices.watermark_ns, parts=False, clock=work.clock
            )
            for _ in run:
                judge.waiting = 0
                yield from _batches(judge, _FLUSH)
    yield from _batches(judge, 1)
    judge.sums.take_linter(judge.linter, quality=True)
    yield _batch(SUMS, [(dump(judge.sums),)])


def _batches(judge: FindingCollector, least: int) -> Iterator[pa.RecordBatch]:
    if len(judge.finding_rows) >= least:
        yield _batch(FOUND, judge.finding_rows)
        judge.finding_rows = []
    if len(judge.connection_rows) >= least:
        yield _batch(SEEN, judge.connection_rows)
        judge.connection_rows = []
    if len(judge.marks) >= least:
        yield _batch(MARK, judge.marks)
        judge.marks = []
    if len(judge.tallies) >= least:
        yield _batch(TALLY, judge.tallies)
        judge.tallies = []
    if len(judge.packets) >= least:
        yield _batch(PACKET, judge.packets)
        judge.packets = []
    if len(judge.rows[FLOW_KEYS.name]) >= least:
        yield _batch(KEY, judge.rows[FLOW_KEYS.name])
        judge.rows[FLOW_KEYS.name] = []


def lint_keys(
    batches: Iterable[pa.RecordBatch], work: SparkLintSettings, asides: ingest_tasks.SharedNotices
) -> Iterator[pa.RecordBatch]:
    """Run the rules that look beyond one connection over the sorted rows of all flows of some keys."""
    sums = Sums()
    # Rules of wide scope may depend on narrow rules, which run here again; `lint_flows` has reported their failures.
    narrow = {rule.code for rule in work.options.narrow_rules()}
    with ingest_tasks.collecting_seldom():
        for key, rows in groupby(
            read_rows(ingest_tasks.clocked(ingest_tasks.split_batches(batches), asides.summaries)),
            key=attrgetter("flow"),
        ):
            judge = FindingCollector(work.options, work.clock.ends or asides.ends, key=key.decode())
            judge.note_drops((), asides.drops)
            run = run_flows(
                rows,
                work.options,
                judge,
                [],
                watermark_ns=asides.watermark_ns,
                parts=False,
                clock=work.clock,
            )
            for _ in run:
                judge.waiting = 0
                if len(judge.finding_rows) >= _FLUSH:
                    yield _batch(FOUND, judge.finding_rows)
                    judge.finding_rows = []
            if judge.finding_rows:
                yield _batch(FOUND, judge.finding_rows)
            assert judge.linter is not None
            sums.take_linter(judge.linter, quality=False, but=narrow)
    yield _batch(SUMS, [(dump(sums),)])


def _batch(kind: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    names = _NAMES[kind]
    values = dict(zip(names, zip(*rows, strict=True), strict=True))
    arrays = []
    for column in _SCHEMA:
        if column.name == "kind":
            arrays.append(pa.repeat(kind, len(rows)))
        elif column.name in values:
            arrays.append(pa.array(values[column.name], column.type))
        else:
            arrays.append(pa.nulls(len(rows), column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
