"""The tasks of a fold: sorted rows in, Parquet files of a lake written, one report out.

A task writes its files itself and reports only their names, so that rows of tables never go back through Spark.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.dissect.clock_watch import NO_CLOCK, CaptureClock
from mqttscope.errors import MqttscopeError
from mqttscope.lake import carried
from mqttscope.lake.files import ROWS_PER_FILE, LakeFiles
from mqttscope.lake.kernel import SEGMENT, cross_kernel, kernel
from mqttscope.lake.key_parts import KeyParts
from mqttscope.lake.keys import Drop
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import INTERNAL, OPEN, TABLES
from mqttscope.lint.failures import RuleFailures
from mqttscope.spark.follower import BEHIND
from mqttscope.spark.rows import DROPS, ERROR, READ, SKIPPED, SUMMARY
from mqttscope.spark.scan import NEVER

REPORT_DDL = "report string"
"""The one column that a task returns."""
ROWS_AT_A_TIME = 2_048
"""Maximum number of rows converted to Python values together: batches of Spark may have 64 MiB."""
SELDOM = (500_000, 20, 50)
"""Thresholds of the garbage collector while flows are read, as on the command line."""
NOTE = ("kind", "file", "capture", "frame", "message", "offset", "count", "notice")
"""Columns of the notices of a capture."""
_SCHEMAS = {schema.name: schema.arrow() for schema in (*TABLES.values(), *INTERNAL)}


class IngestFailedError(MqttscopeError):
    """A program error during decoding, or a file that cannot be written; the message names the place."""


@dataclass(slots=True)
class FoldSettings:
    """Settings of every task of a fold.  Plain data."""

    root: str
    """Path of the lake for all executors."""
    generation: int
    options: LakeOptions
    more: bool = True
    watermark_ns: int | None = None
    """Time of the last segment of all flows, if the rows have no summaries."""
    before_ns: int | None = None
    """Time of the last segment of earlier ingests."""
    stops_at_fragments: bool = False
    """Do nothing if summaries report IP fragments."""
    dropping: frozenset[str] = frozenset()
    """Captures of earlier ingests that report dropped frames."""
    by_time: bool = False
    """Captures are merged by time."""
    clock: CaptureClock = NO_CLOCK
    """Steps of the captures' clock."""


@dataclass(slots=True)
class TaskReport:
    """Result of a task."""

    files: dict[str, list[str]] = field(default_factory=dict)
    """Paths relative to the lake, by kind (`LakeFiles.names`)."""
    rows: dict[str, int] = field(default_factory=dict)
    checksums: dict[str, int] = field(default_factory=dict)
    """CRC-32 of each file."""
    notes: list[dict[str, Any]] = field(default_factory=list)
    """The notices of the captures: rows of the data source."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Frames without a segment, by reason."""
    aside: list[dict[str, Any]] = field(default_factory=list)
    """Rows without a flow that every task has: summaries of ranges, drops, positions of a stream."""
    last_ns: int | None = None
    late: list[str] = field(default_factory=list)
    """Captures with segments from before the last one of earlier ingests."""
    fragmented: list[int] = field(default_factory=list)
    """Captures with IP fragments, by place in the order of reading, if that was a reason to stop."""
    failures: RuleFailures = field(default_factory=RuleFailures)
    """Failed rules."""

    def dump(self) -> pa.RecordBatch:
        """The report as the row for the driver."""
        return pa.RecordBatch.from_pydict({"report": [orjson.dumps(asdict(self)).decode()]})

    def rows_of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Shared rows of one kind."""
        return [row for row in self.aside if row["kind"] == kind]

    @classmethod
    def load(cls, text: str) -> TaskReport:
        """The report from such a row."""
        values = orjson.loads(text)
        return cls(**values | {"failures": RuleFailures.loaded(values["failures"])})


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Run the garbage collector seldom: by default a worker goes over all open connections again and again."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def files_of(work: FoldSettings) -> LakeFiles:
    """The files that a task writes: small files of open state if batches follow each other."""
    return LakeFiles(work.root, work.generation, carried.ROWS if work.by_time else ROWS_PER_FILE)


def fold_flows(batches: Iterable[pa.RecordBatch], work: FoldSettings) -> Iterator[pa.RecordBatch]:
    """Run the kernel over the sorted rows of complete flows; rows without a flow come first."""
    report = TaskReport()
    aside, rest = split_aside(batches)
    summaries = [row for row in aside if row["kind"] == SUMMARY]
    report.notes = [{name: row[name] for name in NOTE} for row in aside if row["kind"] == ERROR]
    for row in aside:
        if row["kind"] == SKIPPED:
            report.skipped[row["message"]] = report.skipped.get(row["message"], 0) + (row["count"] or 0)
    known = (SUMMARY, READ, DROPS)
    report.aside = [{name: row[name] for name in (*NOTE, "timestamp_ns")} for row in aside if row["kind"] in known]
    report.fragmented = sorted({row["file"] for row in summaries if row["count"]})
    if report.fragmented and work.stops_at_fragments:
        # Spark reuses workers only if they were read to the end.
        for _ in rest:
            pass
        yield report.dump()
        return
    report.fragmented = []
    times = [row["timestamp_ns"] for row in summaries if row["timestamp_ns"] is not None]
    times += [time_ns for time_ns in (work.watermark_ns,) if time_ns is not None]
    times += [time_ns for time_ns in (work.before_ns if times else None,) if time_ns is not None]
    report.last_ns = max(times, default=None)
    watermark_ns = watermark(aside, work.watermark_ns)
    look = _SegmentObserver(work, report)
    with collecting_seldom(), files_of(work) as files:
        table_rows = kernel(
            clocked(look.observed(rest), summaries), work.options, more=work.more, watermark_ns=watermark_ns,
            dropping=work.dropping, drops=first_drops(aside), ends=() if work.by_time else ends_of(summaries),
            clock=work.clock, failures=report.failures,
        )  # fmt: skip
        for kind, record_batch in unpacked(look.checked(table_rows)):
            files.write(kind, record_batch)
    report.files, report.rows, report.checksums = files.names, files.rows, files.checksums
    yield report.dump()


def watermark(aside: Iterable[Mapping[str, Any]], known_ns: int | None = None) -> int | None:
    """Time of the last segment of all flows, from rows without a flow; ``known_ns``: used if these lack it."""
    times = [row["timestamp_ns"] for row in aside if row["kind"] == SUMMARY and row["timestamp_ns"] is not None]
    # Flows time out by data that is read now: late data is not idle because newer captures came before.
    read_ns = max([*times, *(time_ns for time_ns in (known_ns,) if time_ns is not None)], default=None)
    # A capture that lags behind the others has flows that continue, whatever the others show.
    behind = [row["timestamp_ns"] for row in aside if row["kind"] == READ and row["message"] == BEHIND]
    return None if read_ns is None else min([read_ns, *filter(None, behind)])


def split_aside(batches: Iterable[pa.RecordBatch]) -> tuple[list[dict[str, Any]], Iterator[pa.RecordBatch]]:
    """The rows without a flow, which sort first, and the others."""
    aside: list[dict[str, Any]] = []
    rest = iter(batches)
    for record_batch in rest:
        count = record_batch.column("flow").null_count
        aside += record_batch.slice(0, count).to_pylist()
        if count < record_batch.num_rows:
            return aside, chain([record_batch.slice(count)], rest)
    return aside, rest


def first_drops(aside: Iterable[Mapping[str, Any]]) -> dict[str, Drop]:
    """The place where each capture first reports dropped frames, by name, from rows without a flow."""
    drops: list[Mapping[str, Any]] = []
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in aside:
        if row["kind"] == DROPS:
            drops.append(row)
        elif row["kind"] == SUMMARY and row["frame"] is not None and row["timestamp_ns"] is not None:
            ranges.setdefault(row["file"], []).append((row["frame"], row["timestamp_ns"]))
    first: dict[str, Drop] = {}
    for row in sorted(drops, key=itemgetter("file", "frame")):
        known = ranges.get(row["file"], [])
        # The row has the value for its own range: the latest segment may be after the notice.
        own = max((begin for begin, _ in known if begin <= row["frame"]), default=0)
        times = [last_ns for begin, last_ns in known if begin < own] + [row["timestamp_ns"]]
        last_ns = max((time_ns for time_ns in times if time_ns is not None), default=None)
        first.setdefault(row["capture"], Drop(row["file"], row["frame"], last_ns))
    return first


def clocked(batches: Iterable[pa.RecordBatch], summaries: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Rows with the latest time in the complete capture as ``clock_ns``, not in their range alone."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in summaries:
        if row["frame"] is not None:
            ranges.setdefault(row["file"], []).append(
                (row["frame"], NEVER if row["timestamp_ns"] is None else row["timestamp_ns"])
            )
    cut = {}
    for file, bounds in ranges.items():
        begins, ends = zip(*sorted(bounds), strict=True)
        if len(begins) > 1:
            cut[file] = begins, list(accumulate(ends, max, initial=NEVER))
    for record_batch in batches:
        if cut:
            column = record_batch.schema.get_field_index("clock_ns")
            values = [record_batch.column(name).to_pylist() for name in ("file", "frame", "clock_ns")]
            clock = pa.array([_clock(cut.get(file), frame, now) for file, frame, now in zip(*values, strict=True)])
            yield record_batch.set_column(column, "clock_ns", clock)
        else:
            yield record_batch


def _clock(ranges: tuple[tuple[int, ...], list[int]] | None, frame: int, clock_ns: int) -> int:
    return clock_ns if ranges is None else max(clock_ns, ranges[1][bisect_left(ranges[0], frame) - 1])


def ends_of(summaries: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    """Times of the last segments of captures, by place in the order of reading."""
    ends: dict[int, int] = {}
    for row in summaries:
        if row["timestamp_ns"] is not None:
            ends[row["file"]] = max(row["timestamp_ns"], ends.get(row["file"], row["timestamp_ns"]))
    return tuple(ends.get(file, NEVER) for file in range(max(ends, default=-1) + 1))


def ends_by_capture(summaries: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Times of the last segments of captures, by name."""
    ends: dict[str, int] = {}
    for row in summaries:
        if row["timestamp_ns"] is not None:
            ends[row["capture"]] = max(row["timestamp_ns"], ends.get(row["capture"], row["timestamp_ns"]))
    return ends


def split_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at most `ROWS_AT_A_TIME`."""
    for record_batch in batches:
        for start in range(0, record_batch.num_rows, ROWS_AT_A_TIME):
            yield record_batch.slice(start, ROWS_AT_A_TIME)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Batches of a kernel as batches of their tables, with the exact schemas."""
    for record_batch in batches:
        kind: str = record_batch.column("kind")[0].as_py()
        table = kind.removeprefix(OPEN)
        yield kind, pa.RecordBatch.from_arrays(record_batch.column(table).flatten(), schema=_SCHEMAS[table])


class _SegmentObserver:
    """Observes segments on their way into the kernel."""

    def __init__(self, work: FoldSettings, report: TaskReport) -> None:
        self._before_ns = work.before_ns
        self._report = report
        self._place = "before the first segment"

    def observed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass everything on in smaller batches."""
        for piece in split_batches(batches):
            self._note(piece)
            yield piece

    def _note(self, piece: pa.RecordBatch) -> None:
        segments = piece.filter(pc.equal(piece.column("kind"), SEGMENT))
        if not segments.num_rows:
            return
        first: Mapping[str, Any] = segments.slice(0, 1).select(["capture", "frame"]).to_pylist()[0]
        self._place = f"{first['capture']}, from frame {first['frame']} on"
        times = segments.column("timestamp_ns")
        report = self._report
        report.last_ns = max(pc.max(times).as_py(), -1 << 63 if report.last_ns is None else report.last_ns)
        if self._before_ns is not None:
            late = segments.column("capture").filter(pc.less(times, self._before_ns))
            report.late = sorted({*report.late, *late.unique().to_pylist()})

    def checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on the kernel's batches; `IngestFailedError` names the place in the captures where it failed."""
        while True:
            try:
                record_batch = next(batches)
            except StopIteration:
                return
            except LakeError as error:
                raise IngestFailedError(str(error)) from None
            except Exception as error:
                raise IngestFailedError(f"{self._place}: {type(error).__name__}: {error}") from error
            yield record_batch


@dataclass(slots=True)
class SharedNotices:
    """The notices of captures that every task needs.  Plain data."""

    summaries: list[dict[str, Any]] = field(default_factory=list)
    ends: tuple[int, ...] = ()
    """Times of the last segments of the captures."""
    drops: dict[str, Drop] = field(default_factory=dict)
    watermark_ns: int | None = None

    @classmethod
    def of(cls, aside: Sequence[dict[str, Any]], watermark_ns: int | None = None) -> SharedNotices:
        """Notices from the rows without a flow; ``watermark_ns``: used if these have no summary."""
        summaries = [row for row in aside if row["kind"] == SUMMARY]
        return cls(summaries, ends_of(summaries), first_drops(aside), watermark(aside, watermark_ns))


def ingest_keys(
    batches: Iterable[pa.RecordBatch],
    work: FoldSettings,
    asides: SharedNotices,
    elsewhere: Callable[[str], KeyParts | None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run the kernel over the sorted rows of all flows of some keys; ``elsewhere``: see `cross_kernel`."""
    failures = RuleFailures()
    with collecting_seldom(), files_of(work) as files:
        table_rows = cross_kernel(
            clocked(split_batches(batches), asides.summaries), work.options, more=work.more,
            watermark_ns=asides.watermark_ns, dropping=work.dropping, drops=asides.drops,
            ends=() if work.by_time else asides.ends, clock=work.clock, elsewhere=elsewhere, failures=failures,
        )  # fmt: skip
        for kind, record_batch in unpacked(_named(table_rows)):
            files.write(kind, record_batch)
    yield TaskReport(files.names, files.rows, files.checksums, failures=failures).dump()


def _named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except LakeError as error:
        raise IngestFailedError(str(error)) from None
    except Exception as error:
        raise IngestFailedError(f"rules across connections: {type(error).__name__}: {error}") from error
