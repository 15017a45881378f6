"""Findings of captures with Spark, exactly those of ``lint`` in process, in its order and with its numbers.

What the tasks of ``lint --engine spark`` do: sorted rows in, findings out, and what wider scopes and sums need.
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
from mqttscope.lake.finding_collector import Judge, Sums, found_row
from mqttscope.lake.kernel import ORDER, read_rows, run_flow
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.scope_kernel import EVENT_ORDER, KEYS, SCOPE_COLUMNS
from mqttscope.lake.scopes import ScopeRun
from mqttscope.lake.state import dump, load
from mqttscope.lint.finding import Finding, Scope
from mqttscope.lint.selection import Selection
from mqttscope.net.frame import CaptureDrops, CaptureNotice
from mqttscope.spark.cross_connection_stage import SCOPE_ORDER
from mqttscope.spark.dataframes import plan_captures
from mqttscope.spark.ingest import Reading, good_partitions
from mqttscope.spark.ingest_flows import as_input, by_flow
from mqttscope.spark.ingest_tasks import NOTE, asides, clocked, ends_of, first_drops, smaller
from mqttscope.spark.rows import DROPS, ERROR, SKIPPED, SUMMARY, notice_of
from mqttscope.spark.tables import union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOUND, SCOPE, SEEN, PACKET, SUMS, NOTES = "found", "scope", "seen", "packet", "sums", "notes"
"""Kinds of rows: a finding, an event for rules of wider scope, a connection, a packet, counts, what captures say."""
MARK, TALLY = "mark", "tally"
"""The same where only some findings are wanted: an event that is selected, what is selected of a connection."""
_PACKET = pa.struct([("frame", pa.int64()), ("timestamp_ns", pa.int64()), ("number", pa.int64())])
_COLUMNS = (
    ("kind", "string", pa.string()), ("connection_id", "string", pa.string()), ("server", "string", pa.string()),
    ("session", "string", pa.string()), ("emitted_ns", "bigint", pa.int64()), ("file", "bigint", pa.int64()),
    ("frame", "bigint", pa.int64()), ("event_in_connection", "bigint", pa.int64()), ("rule", "string", pa.string()),
    ("number", "bigint", pa.int64()), ("timestamp_ns", "bigint", pa.int64()), ("at_frame", "bigint", pa.int64()),
    ("capture", "string", pa.string()),
    ("packets", "array<struct<frame:bigint,timestamp_ns:bigint,number:bigint>>", pa.list_(_PACKET)),
    ("data", "binary", pa.binary()),
)  # fmt: skip
LINT_DDL = ", ".join(f"{name} {kind}" for name, kind, _ in _COLUMNS)
_SCHEMA = pa.schema([(name, kind) for name, _, kind in _COLUMNS])
_NAMES = {
    FOUND: ("connection_id", "emitted_ns", "file", "frame", "event_in_connection", "rule", "number", "packets", "data"),
    PACKET: ("emitted_ns", "file", "frame", "number", "at_frame", "timestamp_ns", "capture"),
    SEEN: ("connection_id", "emitted_ns", "file", "frame"),
    SCOPE: ("connection_id", "server", "session", "emitted_ns", "file", "frame", "event_in_connection", None, "data"),
    MARK: ("connection_id", "emitted_ns", "file", "frame", "event_in_connection"),
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
    """Only say which captures have IP fragments, where there are any."""
    selection: Selection[Any] | None = None
    """Of which findings are wanted alone."""


def lint_flows(batches: Iterable[pa.RecordBatch], work: Judging) -> Iterator[pa.RecordBatch]:
    """Run the narrow rules over the sorted rows of whole flows; what belongs to no flow comes first."""
    aside, rest = asides(batches)
    summaries = [row for row in aside if row["kind"] == SUMMARY]
    notes = [{name: row[name] for name in NOTE} for row in aside if row["kind"] in (ERROR, SKIPPED)]
    drops = [{name: row[name] for name in NOTE} for row in aside if row["kind"] == DROPS]
    fragmented = sorted({row["file"] for row in summaries if row["count"]})
    yield _batch(NOTES, [(dump((notes, drops, fragmented)),)])
    if fragmented and work.stops_at_fragments:
        # Workers of Spark are used again only where they were read to the end.
        for _ in rest:
            pass
        return
    last_ns = max((row["timestamp_ns"] for row in summaries if row["timestamp_ns"] is not None), default=None)
    judge = Judge(work.options, ends_of(summaries), work.selection)
    judge.note_drops((), first_drops(aside))
    for _, rows in groupby(read_rows(clocked(smaller(rest), summaries)), key=attrgetter("flow")):
        for _ in run_flow(rows, work.options, judge, [], watermark_ns=last_ns, parts=False):
            judge.waiting = 0
            yield from _made(judge, _FLUSH)
    yield from _made(judge, 1)
    assert judge.linter is not None
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
    rows = judge.scope_events()
    if rows:
        yield _batch(SCOPE, rows)


def lint_keys(batches: Iterable[pa.RecordBatch], scope: str, work: Judging) -> Iterator[pa.RecordBatch]:
    """Run the rules of a wider scope over the sorted rows of whole keys."""
    sums, found = Sums(), list[Any]()
    rules = work.options.rules_by(Scope(scope))
    for _, rows in groupby(_read(batches), key=itemgetter(0)):
        run = ScopeRun(rules)
        for _, _, *place, connection_id, event, data in rows:
            for one in run.feed(connection_id, data):
                found.append(found_row(connection_id, tuple(place), event, one.finding, one.number))
            if len(found) >= _FLUSH:
                yield _batch(FOUND, found)
                found = []
        sums.take_linter(run.linter, quality=False)
    if found:
        yield _batch(FOUND, found)
    yield _batch(SUMS, [(dump(sums),)])


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for one in smaller(batches):
        yield from zip(*(one.column(name).to_pylist() for name in SCOPE_COLUMNS), strict=True)


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


_EVENT = ("connection_id", "event_in_connection")
_MARKED = (*_EVENT, "emitted_ns", "file", "frame")


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
    work = Judging(
        replace(options, scope_events=options.has_wide_rules()), stops_at_fragments=True, selection=selection
    )
    rows = reading.rows("ingest", plan)
    flows = _flows(rows, work, partitions)
    notes, fragmented = _notes(flows)
    if fragmented:
        flows.unpersist()
        whole = union_all(rows, reading.fragments_of(fragmented))
        flows = _flows(whole, replace(work, stops_at_fragments=False), partitions)
        notes, _ = _notes(flows)
    keys = [
        _keys(flows, str(scope), column, work, partitions) for scope, column in KEYS.items() if options.rules_by(scope)
    ]
    every = reduce(union_all, [flows, *keys])
    wanted = () if selection is None else selection.connections
    found = every if selection is None else reduce(union_all, [flows, *(_selected(one, flows) for one in keys)])
    done = Judged(_findings(found, flows, keys, wanted))
    for row in every.where(f"kind = '{SUMS}'").select("data").collect():
        done.sums.add(load(bytes(row["data"])))
    for row in _of(wanted, flows.where(f"kind = '{TALLY}'"), flows).select("data").collect() if wanted else ():
        done.sums.take_chosen(*load(bytes(row["data"])))
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
    drops: list[dict[str, Any]] = []
    fragmented: set[int] = set()
    for row in flows.where(f"kind = '{NOTES}'").select("data").collect():
        told, drops, files = load(bytes(row["data"]))
        notes += told
        fragmented.update(files)
    # Every task says all drops.
    return notes + drops, sorted(fragmented)


def _take(note: dict[str, Any], done: Judged) -> None:
    if note["kind"] == SKIPPED:
        done.skipped[note["message"]] = done.skipped.get(note["message"], 0) + (note["count"] or 0)
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


def _findings(every: DataFrame, flows: DataFrame, keys: list[DataFrame], wanted: tuple[int, ...]) -> Iterator[Finding]:
    """Findings in the order of one run, with the numbers that it gives to connections and packets."""
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
        for one in (flows, *keys):
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
