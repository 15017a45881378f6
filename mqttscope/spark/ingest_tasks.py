"""What the tasks of a fold do: sorted rows in, Parquet files of a lake written, one report out.

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

from mqttscope.dissect.clock_watch import NO_CLOCK, Clock
from mqttscope.errors import MqttscopeError
from mqttscope.lake import carried
from mqttscope.lake.files import ROWS_PER_FILE, LakeFiles
from mqttscope.lake.kernel import SEGMENT, cross_kernel, kernel
from mqttscope.lake.key_parts import KeyParts
from mqttscope.lake.keys import Drop
from mqttscope.lake.manifest import LakeError
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import INTERNAL, OPEN, TABLES
from mqttscope.lint.failures import Failures
from mqttscope.spark.follower import BEHIND
from mqttscope.spark.rows import DROPS, ERROR, READ, SKIPPED, SUMMARY
from mqttscope.spark.scan import NEVER

REPORT_DDL = "report string"
"""The one column that a task gives back."""
ROWS_AT_A_TIME = 2_048
"""Rows that are made Python values together: batches of Spark may hold 64 MiB."""
SELDOM = (500_000, 20, 50)
"""Thresholds of the garbage collector while flows are read, those of the command line."""
NOTE = ("kind", "file", "capture", "frame", "message", "offset", "count", "notice")
"""Columns of the notices of a capture."""
_SCHEMAS = {name: one.arrow() for name, one in TABLES.items()} | {one.name: one.arrow() for one in INTERNAL}


class IngestFailedError(MqttscopeError):
    """A program error while segments were decoded, or a file that cannot be written; the text names the place."""


@dataclass(slots=True)
class Work:
    """What every task of a fold knows.  Plain data."""

    root: str
    """The lake, as all executors see it."""
    generation: int
    options: LakeOptions
    more: bool = True
    watermark_ns: int | None = None
    """Time of the last segment of all flows, where the rows have no summaries."""
    before_ns: int | None = None
    """Time of the last segment of earlier ingests."""
    stops_at_fragments: bool = False
    """Do nothing where summaries report IP fragments."""
    dropping: frozenset[str] = frozenset()
    """Captures of earlier ingests that report dropped frames."""
    by_time: bool = False
    """Captures are put into each other by time."""
    clock: Clock = NO_CLOCK
    """Where the clock of the captures was set."""


@dataclass(slots=True)
class TaskReport:
    """What a task did."""

    files: dict[str, list[str]] = field(default_factory=dict)
    """Paths relative to the lake, by kind (`LakeFiles.names`)."""
    rows: dict[str, int] = field(default_factory=dict)
    checksums: dict[str, int] = field(default_factory=dict)
    """CRC-32 of each file."""
    notes: list[dict[str, Any]] = field(default_factory=list)
    """The notices of the captures: rows of the data source."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Frames that hold no segment, by reason."""
    aside: list[dict[str, Any]] = field(default_factory=list)
    """What belongs to no flow and is known to every task: summaries of ranges, drops, how far a stream has read."""
    last_ns: int | None = None
    late: list[str] = field(default_factory=list)
    """Captures with segments from before the last one of earlier ingests."""
    fragmented: list[int] = field(default_factory=list)
    """Captures with IP fragments, by their place in the order of reading, where that was a reason to stop."""
    failures: Failures = field(default_factory=Failures)
    """Rules that failed."""

    def dump(self) -> pa.RecordBatch:
        """The report as the row that goes to the driver."""
        return pa.RecordBatch.from_pydict({"report": [orjson.dumps(asdict(self)).decode()]})

    def noted(self, kind: str) -> list[dict[str, Any]]:
        """Of what every task knows the rows of a kind."""
        return [row for row in self.aside if row["kind"] == kind]

    @classmethod
    def load(cls, text: str) -> TaskReport:
        """The report of such a row."""
        values = orjson.loads(text)
        return cls(**values | {"failures": Failures.loaded(values["failures"])})


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for cycles seldom: by default a worker goes over all connections that are open again and again."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def files_of(work: Work) -> LakeFiles:
    """The files that a task writes: small ones of what is open where one batch follows the other."""
    return LakeFiles(work.root, work.generation, carried.ROWS if work.by_time else ROWS_PER_FILE)


def fold_flows(batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    """Run the kernel over the sorted rows of complete flows; what belongs to no flow comes first."""
    report = TaskReport()
    aside, rest = asides(batches)
    summaries = [row for row in aside if row["kind"] == SUMMARY]
    report.notes = [{name: row[name] for name in NOTE} for row in aside if row["kind"] == ERROR]
    for row in aside:
        if row["kind"] == SKIPPED:
            report.skipped[row["message"]] = report.skipped.get(row["message"], 0) + (row["count"] or 0)
    known = (SUMMARY, READ, DROPS)
    report.aside = [{name: row[name] for name in (*NOTE, "timestamp_ns")} for row in aside if row["kind"] in known]
    report.fragmented = sorted({row["file"] for row in summaries if row["count"]})
    if report.fragmented and work.stops_at_fragments:
        # Workers of Spark are used again only where they were read to the end.
        for _ in rest:
            pass
        yield report.dump()
        return
    report.fragmented = []
    times = [row["timestamp_ns"] for row in summaries if row["timestamp_ns"] is not None]
    times += [one for one in (work.watermark_ns,) if one is not None]
    times += [one for one in (work.before_ns if times else None,) if one is not None]
    report.last_ns = max(times, default=None)
    watermark_ns = watermark(aside, work.watermark_ns)
    look = _Look(work, report)
    with collecting_seldom(), files_of(work) as files:
        made = kernel(
            clocked(look.through(rest), summaries), work.options, more=work.more, watermark_ns=watermark_ns,
            dropping=work.dropping, drops=first_drops(aside), ends=() if work.by_time else ends_of(summaries),
            clock=work.clock, failures=report.failures,
        )  # fmt: skip
        for kind, found in unpacked(look.named(made)):
            files.write(kind, found)
    report.files, report.rows, report.checksums = files.names, files.rows, files.checksums
    yield report.dump()


def watermark(aside: Iterable[Mapping[str, Any]], known_ns: int | None = None) -> int | None:
    """The time of the last segment of all flows, of rows without a flow; ``known_ns``: where these do not have it."""
    times = [row["timestamp_ns"] for row in aside if row["kind"] == SUMMARY and row["timestamp_ns"] is not None]
    # Flows time out by what is read now: what came late is not idle because newer captures came before.
    read_ns = max([*times, *(one for one in (known_ns,) if one is not None)], default=None)
    # A capture that lags behind the others has flows that continue, whatever these say.
    behind = [row["timestamp_ns"] for row in aside if row["kind"] == READ and row["message"] == BEHIND]
    return None if read_ns is None else min([read_ns, *filter(None, behind)])


def asides(batches: Iterable[pa.RecordBatch]) -> tuple[list[dict[str, Any]], Iterator[pa.RecordBatch]]:
    """The rows without a flow, which sort first, and the others."""
    found: list[dict[str, Any]] = []
    rest = iter(batches)
    for one in rest:
        count = one.column("flow").null_count
        found += one.slice(0, count).to_pylist()
        if count < one.num_rows:
            return found, chain([one.slice(count)], rest)
    return found, rest


def first_drops(aside: Iterable[Mapping[str, Any]]) -> dict[str, Drop]:
    """Where each capture first reports dropped frames, by its name: of rows without a flow."""
    drops: list[Mapping[str, Any]] = []
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in aside:
        if row["kind"] == DROPS:
            drops.append(row)
        elif row["kind"] == SUMMARY and row["frame"] is not None and row["timestamp_ns"] is not None:
            ranges.setdefault(row["file"], []).append((row["frame"], row["timestamp_ns"]))
    found: dict[str, Drop] = {}
    for row in sorted(drops, key=itemgetter("file", "frame")):
        known = ranges.get(row["file"], [])
        # Of its own range the row says it: the latest one may lie after the notice.
        own = max((begin for begin, _ in known if begin <= row["frame"]), default=0)
        times = [last_ns for begin, last_ns in known if begin < own] + [row["timestamp_ns"]]
        last_ns = max((one for one in times if one is not None), default=None)
        found.setdefault(row["capture"], Drop(row["file"], row["frame"], last_ns))
    return found


def clocked(batches: Iterable[pa.RecordBatch], summaries: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Rows whose ``clock_ns`` is the latest time so far in the complete capture, not in their range alone."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for row in summaries:
        if row["frame"] is not None:
            ranges.setdefault(row["file"], []).append(
                (row["frame"], NEVER if row["timestamp_ns"] is None else row["timestamp_ns"])
            )
    cut = {}
    for file, found in ranges.items():
        begins, ends = zip(*sorted(found), strict=True)
        if len(begins) > 1:
            cut[file] = begins, list(accumulate(ends, max, initial=NEVER))
    for one in batches:
        if cut:
            column = one.schema.get_field_index("clock_ns")
            values = [one.column(name).to_pylist() for name in ("file", "frame", "clock_ns")]
            clock = pa.array([_clock(cut.get(file), frame, now) for file, frame, now in zip(*values, strict=True)])
            yield one.set_column(column, "clock_ns", clock)
        else:
            yield one


def _clock(ranges: tuple[tuple[int, ...], list[int]] | None, frame: int, clock_ns: int) -> int:
    return clock_ns if ranges is None else max(clock_ns, ranges[1][bisect_left(ranges[0], frame) - 1])


def ends_of(summaries: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    """Times of the last segments of captures, by their place in the order of reading."""
    ends: dict[int, int] = {}
    for row in summaries:
        if row["timestamp_ns"] is not None:
            ends[row["file"]] = max(row["timestamp_ns"], ends.get(row["file"], row["timestamp_ns"]))
    return tuple(ends.get(file, NEVER) for file in range(max(ends, default=-1) + 1))


def ends_by_capture(summaries: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Times of the last segments of captures, by their names."""
    ends: dict[str, int] = {}
    for row in summaries:
        if row["timestamp_ns"] is not None:
            ends[row["capture"]] = max(row["timestamp_ns"], ends.get(row["capture"], row["timestamp_ns"]))
    return ends


def smaller(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most `ROWS_AT_A_TIME`."""
    for one in batches:
        for start in range(0, one.num_rows, ROWS_AT_A_TIME):
            yield one.slice(start, ROWS_AT_A_TIME)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Batches of a kernel as batches of their tables, with the exact schemas."""
    for one in batches:
        kind: str = one.column("kind")[0].as_py()
        table = kind.removeprefix(OPEN)
        yield kind, pa.RecordBatch.from_arrays(one.column(table).flatten(), schema=_SCHEMAS[table])


class _Look:
    """Looks at segments on their way into the kernel."""

    def __init__(self, work: Work, report: TaskReport) -> None:
        self._before_ns = work.before_ns
        self._report = report
        self._place = "before the first segment"

    def through(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass everything on in smaller batches."""
        for piece in smaller(batches):
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

    def named(self, made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on what the kernel makes; `IngestFailedError` names the place in the captures where it failed."""
        while True:
            try:
                found = next(made)
            except StopIteration:
                return
            except LakeError as error:
                raise IngestFailedError(str(error)) from None
            except Exception as error:
                raise IngestFailedError(f"{self._place}: {type(error).__name__}: {error}") from error
            yield found


@dataclass(slots=True)
class Asides:
    """The notices of captures, which every task needs.  Plain data."""

    summaries: list[dict[str, Any]] = field(default_factory=list)
    ends: tuple[int, ...] = ()
    """Times of the last segments of the captures."""
    drops: dict[str, Drop] = field(default_factory=dict)
    watermark_ns: int | None = None

    @classmethod
    def of(cls, aside: Sequence[dict[str, Any]], watermark_ns: int | None = None) -> Asides:
        """Those of the rows without a flow; ``watermark_ns``: where these have no summary."""
        summaries = [row for row in aside if row["kind"] == SUMMARY]
        return cls(summaries, ends_of(summaries), first_drops(aside), watermark(aside, watermark_ns))


def ingest_keys(
    batches: Iterable[pa.RecordBatch],
    work: Work,
    asides: Asides,
    elsewhere: Callable[[str], KeyParts | None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run the kernel over the sorted rows of all flows of some keys; ``elsewhere``: see `cross_kernel`."""
    failures = Failures()
    with collecting_seldom(), files_of(work) as files:
        made = cross_kernel(
            clocked(smaller(batches), asides.summaries), work.options, more=work.more,
            watermark_ns=asides.watermark_ns, dropping=work.dropping, drops=asides.drops,
            ends=() if work.by_time else asides.ends, clock=work.clock, elsewhere=elsewhere, failures=failures,
        )  # fmt: skip
        for kind, found in unpacked(_named(made)):
            files.write(kind, found)
    yield TaskReport(files.names, files.rows, files.checksums, failures=failures).dump()


def _named(made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from made
    except LakeError as error:
        raise IngestFailedError(str(error)) from None
    except Exception as error:
        raise IngestFailedError(f"rules across connections: {type(error).__name__}: {error}") from error
