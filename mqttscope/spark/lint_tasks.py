"""What the tasks of ``lint --engine spark`` do: sorted rows in, findings out, and what wider scopes and sums need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from mqttscope.lake.judging import Judge, Sums, found_row
from mqttscope.lake.kernel import read_rows, run_flow
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.scope_kernel import SCOPE_COLUMNS
from mqttscope.lake.scopes import ScopeRun
from mqttscope.lake.state import dump
from mqttscope.lint.rule import Scope
from mqttscope.lint.selection import Selection
from mqttscope.spark.fold_tasks import NOTE, asides, clocked, ends_of, first_drops, smaller
from mqttscope.spark.rows import DROPS, ERROR, SKIPPED, SUMMARY

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
