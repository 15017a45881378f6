"""Lints captures with Spark: the findings are exactly those of ``lint`` in process, in its order and with its numbers.

`judge` runs all rules.  Its tasks take sorted rows and give findings: `lint_flows` runs the rules that look at one
connection, `lint_keys` those that look beyond one.
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
from mqttscope.dissect.clock_watch import NO_CLOCK, Clock
from mqttscope.events import ClockStep
from mqttscope.lake.finding_collector import FoundRow, Judge, MarkRow, Sums
from mqttscope.lake.kernel import ORDER, read_rows, run_flows
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import FLOW_KEYS
from mqttscope.lake.state import dump, load
from mqttscope.lint.finding import Finding
from mqttscope.lint.gate import Selection
from mqttscope.net.frame import CaptureDrops, CaptureNotice
from mqttscope.spark import ingest_tasks
from mqttscope.spark.clock_steps import find_clock
from mqttscope.spark.dataframes import plan_captures
from mqttscope.spark.ingest import Reading, good_partitions
from mqttscope.spark.ingest_flows import as_input, by_flow, by_key
from mqttscope.spark.rows import DROPS, ERROR, SKIPPED, SUMMARY, notice_of
from mqttscope.spark.tables import kept, union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENT = ("connection_id", "event_in_connection")
_MARKED = (*_EVENT, "emitted_ns", "file", "frame")


@dataclass(slots=True)
class Judged:
    """What captures were found to be; ``findings`` can be gone through once."""

    findings: Iterator[Finding]
    sums: Sums = field(default_factory=Sums)
    notices: list[CaptureNotice | ClockStep] = field(default_factory=list)
    """The notices of the captures and where their clock was set, in the order of reading."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Frames that hold no segment, by reason."""
    skipped_by_capture: dict[tuple[str, str], int] = field(default_factory=dict)
    """The same by capture and reason."""


def judge(
    spark: SparkSession,
    captures: Sequence[Location],
    options: LakeOptions,
    *,
    split_bytes: int | None = None,
    settings: dict[str, str] | None = None,
    selection: Selection[Any] | None = None,
) -> Judged:
    """Run all rules of ``options`` over captures, in the order given; raises what Spark raises.

    ``selection``: of which findings are wanted alone; its filter must not ask for numbers of the run.

    Findings come one by one from the executors, so that the driver need not hold all of them.
    """
    known = settings or {}
    plan = plan_captures(spark, captures, split_bytes=split_bytes, settings=known)
    reading = Reading(spark, plan, split_bytes, (), known)
    partitions = good_partitions(sum(one.size for one in captures))
    clock = find_clock(spark, captures, known)
    work = Judging(options, stops_at_fragments=True, selection=selection, clock=clock)
    rows = reading.rows("ingest", plan)
    given = _by_flow(rows, work, partitions)
    flows = _flows(given, work)
    notes, aside, fragmented = _notes(flows)
    if fragmented:
        flows.unpersist()
        given.unpersist()
        whole = union_all(rows, reading.fragments_of(fragmented))
        given = _by_flow(whole, work, partitions)
        flows = _flows(given, replace(work, stops_at_fragments=False))
        notes, aside, _ = _notes(flows)
    keys = [_keys(given, flows, aside, work, partitions)] if options.widest() is not None else []
    every = reduce(union_all, [flows, *keys])
    wanted = () if selection is None else selection.connections
    found = every if selection is None else reduce(union_all, [flows, *(_selected(one, flows) for one in keys)])
    done = Judged(_findings(found, [given, flows, *keys], flows, wanted))
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


def _by_flow(rows: DataFrame, work: Judging, partitions: int) -> DataFrame:
    """The rows of each flow together; where both stages read them, computed once."""
    ordered = by_flow(as_input(rows), partitions).sortWithinPartitions(*ORDER)
    return ordered if work.options.widest() is None else kept(ordered)


def _flows(rows: DataFrame, work: Judging) -> DataFrame:
    """What the rules of one connection find, computed once."""
    return kept(rows.mapInArrow(partial(lint_flows, work=work), LINT_DDL))


def _keys(rows: DataFrame, flows: DataFrame, aside: list[dict[str, Any]], work: Judging, partitions: int) -> DataFrame:
    """What the other rules find, computed once."""
    found = by_key(rows, flows.where(f"kind = '{KEY}'"))
    ordered = found.repartition(partitions, "flow").sortWithinPartitions(*ORDER)
    return kept(ordered.mapInArrow(partial(lint_keys, work=work, asides=ingest_tasks.Asides.of(aside)), LINT_DDL))


def _notes(flows: DataFrame) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]]:
    """The notices of the captures, what every task gets of them, and which captures have IP fragments."""
    notes: list[dict[str, Any]] = []
    aside: list[dict[str, Any]] = []
    fragmented: set[int] = set()
    for row in flows.where(f"kind = '{NOTES}'").select("data").collect():
        told, aside, files = load(bytes(row["data"]))
        notes += told
        fragmented.update(files)
    return notes + [row for row in aside if row["kind"] == DROPS], aside, sorted(fragmented)


def _take(note: dict[str, Any], done: Judged) -> None:
    if note["kind"] == SKIPPED:
        key, count = (note["capture"], note["message"]), note["count"] or 0
        done.skipped[note["message"]] = done.skipped.get(note["message"], 0) + count
        done.skipped_by_capture[key] = done.skipped_by_capture.get(key, 0) + count
        return
    notice = notice_of(
        note["kind"], note["capture"], note["message"], note["frame"], note["offset"], note["notice"], None
    )
    # Every range of a capture says for itself what is wrong with all of it, but frames may be dropped again and again.
    if notice is not None and (isinstance(notice, CaptureDrops) or notice not in done.notices):
        done.notices.append(notice)


def _selected(judged: DataFrame, flows: DataFrame) -> DataFrame:
    """Of the findings of rules of wider scope those whose events are selected, at the place where that is known."""
    marks = flows.where(f"kind = '{MARK}'").select(*_MARKED)
    found = judged.where(f"kind = '{FOUND}'").drop(*(name for name in _MARKED if name not in _EVENT))
    return found.join(marks, list(_EVENT)).select(*judged.columns)


def _of(wanted: tuple[int, ...], rows: DataFrame, flows: DataFrame) -> DataFrame:
    """Rows of some connections, by their numbers."""
    from pyspark.sql import functions as f

    connections = _counted(flows.where(f"kind = '{SEEN}'")).where(f.col("count").isin(*wanted))
    return rows.join(connections.select("connection_id"), "connection_id", "left_semi")


def _findings(
    every: DataFrame, held: Sequence[DataFrame], flows: DataFrame, wanted: tuple[int, ...]
) -> Iterator[Finding]:
    """Findings in the order of one run, with the numbers that it gives to connections and packets.

    ``held``: what is let go of afterwards.
    """
    from pyspark.sql import functions as f

    found = every.where(f"kind = '{FOUND}'")
    if wanted:
        found = _of(wanted, found, flows)
    connections = _counted(flows.where(f"kind = '{SEEN}'")).select("connection_id", "count")
    joined = found.join(connections.join(found.select("connection_id").distinct(), "connection_id"), "connection_id")
    ordered = joined.orderBy("file", "emitted_ns", "frame", "count", "event_in_connection", "rule", "number")
    named = found.select(f.explode("packets").alias("one")).select("one.*").distinct()
    packets = _counted(flows.where(f"kind = '{PACKET}'")).select(
        f.col("at_frame").alias("frame"), "timestamp_ns", "number", "capture", "count"
    )
    try:
        numbers = _Numbers(named.join(packets, named.columns).collect())
        for row in ordered.select("count", "data").toLocalIterator():
            yield _numbered(load(bytes(row["data"])), row["count"], numbers)
    finally:
        for one in held:
            with suppress(Exception):
                one.unpersist()


def _counted(rows: DataFrame) -> DataFrame:
    """Rows with their number in the order of reading, ``count``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.orderBy("file", "emitted_ns", "frame", "connection_id", "number")
    return rows.withColumn("count", f.row_number().over(order) - 1)


class _Numbers:
    """Numbers of packets over all connections, by frame, time and number in the connection."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._known: dict[tuple[int, int, int], dict[str, int]] = {}
        for row in rows:
            place = row["frame"], row["timestamp_ns"], row["number"]
            self._known.setdefault(place, {})[row["capture"]] = row["count"]

    def of(self, capture: str, frame: int, timestamp_ns: int, number: int) -> int:
        """The number of a packet; where captures repeat each other that of the same capture, if it is there."""
        found = self._known.get((frame, timestamp_ns, number))
        if not found:
            return number
        return found.get(capture, next(iter(found.values())))


def _numbered(finding: Finding, connection: int, numbers: _Numbers) -> Finding:
    """A finding whose packets are counted over all connections, as `lint` does."""
    finding.connection = connection
    if finding.packet is not None:
        finding.packet = numbers.of(finding.capture, finding.frame, finding.timestamp_ns, finding.packet)
    finding.related = tuple(
        replace(one, packet=numbers.of(finding.capture, one.frame, one.timestamp_ns, one.packet))
        for one in finding.related
    )
    return finding


FOUND, KEY, SEEN, PACKET, SUMS, NOTES = "found", "key", "seen", "packet", "sums", "notes"
"""Kinds of rows: a finding, the key of a flow, a connection, a packet, counts, notices of captures."""
MARK, TALLY = "mark", "tally"
"""The same where only some findings are wanted: an event that is selected, what is selected of a connection."""
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
    FOUND: FoundRow._fields,
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
class Judging:
    """What every task knows.  Plain data."""

    options: LakeOptions
    stops_at_fragments: bool = False
    """Only report which captures have IP fragments, where there are any."""
    selection: Selection[Any] | None = None
    """Of which findings are wanted alone."""
    clock: Clock = NO_CLOCK
    """Where the clock of the captures was set."""


def lint_flows(batches: Iterable[pa.RecordBatch], work: Judging) -> Iterator[pa.RecordBatch]:
    """Run the narrow rules over the sorted rows of complete flows; what belongs to no flow comes first."""
    aside, rest = ingest_tasks.asides(batches)
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
        # Workers of Spark are used again only where they were read to the end.
        for _ in rest:
            pass
        return
    judge = Judge(work.options, work.clock.ends or ingest_tasks.ends_of(summaries), work.selection)
    judge.note_drops((), ingest_tasks.first_drops(aside))
    assert judge.linter is not None
    judge.linter.end_ns = ingest_tasks.ends_by_capture(summaries).get
    said = ingest_tasks.Asides.of(aside)
    with ingest_tasks.collecting_seldom():
        for _, rows in groupby(
            read_rows(ingest_tasks.clocked(ingest_tasks.smaller(rest), summaries)), key=attrgetter("flow")
        ):
            run = run_flows(
                rows, work.options, judge, [], watermark_ns=said.watermark_ns, parts=False, clock=work.clock
            )
            for _ in run:
                judge.waiting = 0
                yield from _made(judge, _FLUSH)
    yield from _made(judge, 1)
    judge.sums.take_linter(judge.linter, quality=True)
    yield _batch(SUMS, [(dump(judge.sums),)])


def _made(judge: Judge, least: int) -> Iterator[pa.RecordBatch]:
    if len(judge.found) >= least:
        yield _batch(FOUND, judge.found)
        judge.found = []
    if len(judge.seen) >= least:
        yield _batch(SEEN, judge.seen)
        judge.seen = []
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
    batches: Iterable[pa.RecordBatch], work: Judging, asides: ingest_tasks.Asides
) -> Iterator[pa.RecordBatch]:
    """Run the rules that look beyond one connection over the sorted rows of all flows of some keys."""
    sums = Sums()
    # Rules of wide scopes may have them run here as well, and `lint_flows` has reported these.
    narrow = {rule.code for rule in work.options.narrow_rules()}
    with ingest_tasks.collecting_seldom():
        for key, rows in groupby(
            read_rows(ingest_tasks.clocked(ingest_tasks.smaller(batches), asides.summaries)),
            key=attrgetter("flow"),
        ):
            judge = Judge(work.options, work.clock.ends or asides.ends, key=key.decode())
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
                if len(judge.found) >= _FLUSH:
                    yield _batch(FOUND, judge.found)
                    judge.found = []
            if judge.found:
                yield _batch(FOUND, judge.found)
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
