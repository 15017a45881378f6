"""The data source ``mqttcapture``: ``spark.read.format("mqttcapture").load(path)``.

=============  ====================================================================================================
option         meaning
=============  ====================================================================================================
path, paths    paths, globs, directories, URIs to read (``load`` passes them)
split_bytes    length of ranges (``64m``, ``8388608``); by default a sixteenth of all bytes, 8 to 64 MiB
rows           ``all``, ``segments`` (nothing else), ``notes`` (neither segments nor fragments),
               ``fragments``, ``ingest``, ``watch`` (the rows for a lake), or ``measures``: the rows for a plan
ports          only segments from or to these ports: ``1883,8883``
start_ns,      only frames of this time: nanoseconds since the epoch, the end is not part of it
end_ns
pushdown       ``true``: filters of the query reach the reader; needs ``spark.sql.python.filterPushdown.enabled``
plan           precomputed ranges from ``plan.write_plan``
fs.NAME        a setting for the file system of a URI, as in pyarrow's URIs: ``fs.region``
=============  ====================================================================================================

Spark registers it by itself if mqttscope is installed: see ``pyspark_mqttscope``.

As a stream, ``spark.readStream.format("mqttcapture").load(folder)``, it gives these rows, and one of kind ``read``
for each capture that was read (`StreamReader`).  Besides ``rows``, ``ports``, ``start_ns`` and ``end_ns`` a stream has
these options:

=============  ====================================================================================================
option         meaning
=============  ====================================================================================================
max_bytes      approximate maximum number of capture bytes per batch: ``64m``; by default all present bytes
quiet_seconds  an unchanged capture is complete after this time; 60 by default
lake           a lake; data of captures that it has already is skipped
=============  ====================================================================================================
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from mqttscope.capture.fingerprint import KnownFingerprints, fingerprint_of, resume_offset
from mqttscope.capture.locations import find, local_path
from mqttscope.errors import MqttscopeError
from mqttscope.lake.manifest import NAME, read_manifest
from mqttscope.spark.follower import QUIET_SECONDS, CaptureFollower, Offset, tasks
from mqttscope.spark.plan import MEASURES_DDL, SMALLEST_TASK, Task, good_size, measured, pack, plan, read_plan, splits
from mqttscope.spark.rows import COLUMNS, DDL, DROPS, ERROR, FRAGMENT, KINDS, READ, SEGMENT, SKIPPED, SUMMARY, Batches
from mqttscope.spark.scan import RowFilter, scan

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "mqttcapture"
ROWS = {
    "all": frozenset(KINDS),
    "segments": frozenset([SEGMENT]),
    "fragments": frozenset([FRAGMENT]),
    "notes": frozenset(KINDS) - {SEGMENT, FRAGMENT},
    "ingest": frozenset([SEGMENT, ERROR, DROPS, SKIPPED, SUMMARY]),
    "watch": frozenset([SEGMENT, FRAGMENT, ERROR, DROPS, SUMMARY, READ]),
    "measures": frozenset[str](),
}
OPTIONS = (
    "path", "paths", "split_bytes", "rows", "ports", "start_ns", "end_ns", "pushdown", "plan", "max_bytes",
    "quiet_seconds", "lake",
)  # fmt: skip
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class OptionError(MqttscopeError, ValueError):
    """An option, or a requested column, is invalid."""


@dataclass(slots=True)
class SourceOptions:
    """The options of the data source, checked."""

    sources: list[str]
    split_bytes: int | None
    rows: str
    wanted: RowFilter
    pushdown: bool
    plan: str | None
    settings: dict[str, str]
    max_bytes: int | None
    quiet_seconds: float
    lake: str | None

    @classmethod
    def of(cls, raw: Mapping[str, str]) -> SourceOptions:
        """Check the options that Spark passes; `OptionError` names the fault."""
        options = {name.lower(): value for name, value in raw.items()}
        settings = {name[3:]: value for name, value in options.items() if name.startswith("fs.")}
        unknown = [name for name in options if name not in OPTIONS and not name.startswith("fs.")]
        if unknown:
            raise OptionError(f"{FORMAT} has no option {unknown[0]}; it has {', '.join(OPTIONS)} and fs.NAME")
        sources = json.loads(options["paths"]) if "paths" in options else []
        if "path" in options:
            sources.insert(0, options["path"])
        split_bytes, max_bytes = (_size(options, name) for name in ("split_bytes", "max_bytes"))
        rows = options.get("rows", "all").lower()
        if rows not in ROWS:
            raise OptionError(f"rows is {rows!r}; it is one of {', '.join(ROWS)}")
        pushdown = options.get("pushdown", "false").lower()
        if pushdown not in ("true", "false"):
            raise OptionError(f"pushdown is {pushdown!r}; it is true or false")
        ports = _integers(options, "ports")
        start_ns, end_ns = (next(iter(_integers(options, name)), None) for name in ("start_ns", "end_ns"))
        return cls(
            sources,
            split_bytes,
            rows,
            RowFilter(ROWS[rows], frozenset(ports), start_ns, end_ns),
            pushdown == "true",
            options.get("plan"),
            settings,
            max_bytes,
            _seconds(options, "quiet_seconds", QUIET_SECONDS),
            options.get("lake"),
        )


def _size(options: Mapping[str, str], name: str) -> int | None:
    size = re.fullmatch(r"(\d+)\s*([kmg]?)b?", options.get(name, "0").strip().lower())
    if size is None:
        raise OptionError(f"{name} is {options[name]!r}; write 67108864 or 64m")
    return int(size[1]) * _UNITS[size[2]] or None


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(options.get(name, default))
    except ValueError:
        raise OptionError(f"{name} is {options[name]!r}, which is not a number") from None


def _integers(options: Mapping[str, str], name: str) -> list[int]:
    try:
        return [int(number) for number in options.get(name, "").split(",") if number.strip()]
    except ValueError:
        raise OptionError(f"{name} is {options[name]!r}, which is not a number") from None


def check_columns(schema: StructType, rows: str) -> None:
    """Raise `OptionError` for unknown columns, or if rows of these kinds need others."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise OptionError(f"{FORMAT} has no column {field.name}; it has {', '.join(COLUMNS)}")
        expected = COLUMNS[field.name]
        if not expected.startswith("struct") and field.dataType.simpleString() != expected:
            raise OptionError(f"column {field.name} is {expected}, not {field.dataType.simpleString()}")
    if rows == "all" and "kind" not in schema.fieldNames():
        raise OptionError("column kind, which separates segments from other rows, is missing; add it, or option rows")


@dataclass
class TaskGroup(datasource.InputPartition):
    """The work of one task of Spark."""

    tasks: list[Task]


class MqttCapture(datasource.DataSource):
    """Captures as rows: see ``docs/spark.md``."""

    @classmethod
    def name(cls) -> str:
        """The name to write after ``format``."""
        return FORMAT

    def schema(self) -> str:
        return MEASURES_DDL if SourceOptions.of(self.options).rows == "measures" else DDL

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        options = SourceOptions.of(self.options)
        return (_PushingCaptureReader if options.pushdown else CaptureReader)(schema, options)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader that follows captures while they are written."""
        from mqttscope.spark.source import StreamReader

        return StreamReader(schema, SourceOptions.of(self.options))


class CaptureReader(datasource.DataSourceReader):
    """Finds the captures and cuts them, on the driver; reads ranges, on the executors."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self.options = options
        self.wanted = options.wanted
        self.captures: frozenset[str] | None = None
        """Names of the captures to read; ``None``: all."""
        self._schema = schema
        if options.rows == "measures":
            return
        check_columns(schema, options.rows)

    def partitions(self) -> list[datasource.InputPartition]:
        """Ranges of captures, small ones together."""
        options = self.options
        planned = None if options.plan is None else read_plan(options.plan)
        locations = find(options.sources, options.settings) if planned is None else [part.location for part in planned]
        size = options.split_bytes or good_size(locations)
        if options.rows == "measures":
            todo = splits(locations, options.settings, size)
            return [TaskGroup(tasks) for tasks in pack(todo, max(size, SMALLEST_TASK))]
        if planned is None:
            planned = plan(locations, options.settings, size)
        read = [self.captures is None or capture.location.name in self.captures for capture in planned]
        tasks = [task for file, capture in enumerate(planned) if read[file] for task in capture.tasks(file)]
        packed = pack(tasks, max(size, SMALLEST_TASK))
        # Spark rejects an empty list of partitions.
        return [TaskGroup(tasks) for tasks in packed] or [TaskGroup([])]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        import pyarrow as pa

        assert isinstance(partition, TaskGroup)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if self.options.rows == "measures":
            rows = [measured(task, self.options.settings) for task in partition.tasks]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            return
        batches = Batches(schema)
        for task in partition.tasks:
            yield from scan(task, batches, self.wanted, self.options.settings)


class _PushingCaptureReader(CaptureReader):
    """Applies filters.  Spark refuses every query of a class with this method if it does not push filters."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterator[datasource.Filter]:  # noqa: N802 - Spark's name
        """Leave out rows early that the filters exclude; Spark applies all of them again."""
        for pushed in filters:
            self._take(pushed)
            yield pushed

    def _take(self, pushed: Any) -> None:
        name = pushed.attribute[0] if getattr(pushed, "attribute", ()) else ""
        if isinstance(pushed, datasource.EqualTo | datasource.In) and name in ("kind", "capture"):
            values = frozenset([pushed.value] if isinstance(pushed, datasource.EqualTo) else pushed.value)
            if name == "kind":
                self.wanted = replace(self.wanted, kinds=self.wanted.kinds & values)
            else:
                self.captures = values if self.captures is None else self.captures & values
        elif name == "timestamp_ns" and isinstance(
            pushed,
            datasource.EqualTo
            | datasource.GreaterThan
            | datasource.GreaterThanOrEqual
            | datasource.LessThan
            | datasource.LessThanOrEqual,
        ):
            start, end = self.wanted.start_ns, self.wanted.end_ns
            if isinstance(pushed, datasource.EqualTo | datasource.GreaterThan | datasource.GreaterThanOrEqual):
                start = pushed.value if start is None else max(start, pushed.value)
            if isinstance(pushed, datasource.EqualTo | datasource.LessThan | datasource.LessThanOrEqual):
                end = pushed.value + 1 if end is None else min(end, pushed.value + 1)
            self.wanted = replace(self.wanted, start_ns=start, end_ns=end)


class StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows captures on the driver, and reads new data on the executors, which have to see the folder too."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        if options.rows == "measures":
            raise OptionError("rows is 'measures', which a stream does not have")
        check_columns(schema, options.rows)
        self.options = options
        self.sources: list[str] = []
        for source in options.sources:
            path = local_path(source)
            if path is None:
                raise OptionError(f"{source} is not a path: only captures on file systems can be followed as they grow")
            self.sources.append(path)
        self._schema = schema
        self._follower: CaptureFollower | None = None

    @property
    def follower(self) -> CaptureFollower:
        """Looks at the captures on the driver; executors do not need it."""
        if self._follower is None:
            known = None if self.options.lake is None else _LakeCaptures(Path(self.options.lake))
            self._follower = CaptureFollower(self.sources, self.options.quiet_seconds, known)
        return self._follower

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return Offset().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        limit = self.options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Leave later data to the next run."""
        self.follower.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        before = Offset.of(start)
        end = self.follower.step(before, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
        return start if end is before else end.as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[datasource.InputPartition]:
        """New data of each capture; small parts together."""
        return [TaskGroup(some) for some in pack(tasks(Offset.of(start), Offset.of(end)), SMALLEST_TASK)]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, TaskGroup)
        batches = Batches(to_arrow_schema(self._schema, timezone="UTC"))
        for task in partition.tasks:
            yield from scan(task, batches, self.options.wanted, {})


class _LakeCaptures:
    """The part of a capture that is in a lake already."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._looked: os.stat_result | None = None
        self._digests: frozenset[str] = frozenset()
        self._begins = KnownFingerprints()

    def __call__(self, name: str) -> int | None:
        try:
            status = os.stat(self._lake / NAME)
        except OSError:
            return 0
        last = self._looked
        if last is None or (status.st_ino, status.st_mtime_ns) != (last.st_ino, last.st_mtime_ns):
            manifest = read_manifest(self._lake)
            self._looked, self._digests = status, frozenset(manifest.captures)
            self._begins = KnownFingerprints.from_manifest(manifest.begins, manifest.captures)
        try:
            with open(name, "rb", buffering=0) as file:
                content = fingerprint_of(file, self._begins)
                return None if content.digest in self._digests else resume_offset(file, content)[0]
        except OSError:
            return 0
