"""The data source ``mqttcapture`` as a stream: ``spark.readStream.format("mqttcapture").load(folder)``.

Rows are those of the batch source, and one of kind ``read`` for each capture that was read (`steps`).  Options beside
``rows``, ``ports``, ``start_ns`` and ``end_ns``:

=============  ====================================================================================================
option         meaning
=============  ====================================================================================================
max_bytes      about how many bytes of captures a batch has: ``64m``; by default all that is there
quiet_seconds  a capture that has not changed for so long is complete; 60 by default
lake           a lake: what it has of captures already is passed over
=============  ====================================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from mqttscope.lake.contents import Known, behind, content_of
from mqttscope.lake.manifest import NAME, read_manifest
from mqttscope.spark.following import Follower
from mqttscope.spark.locations import local_path
from mqttscope.spark.offsets import Offset
from mqttscope.spark.plan import SMALLEST_TASK, pack
from mqttscope.spark.rows import Batches
from mqttscope.spark.scan import scan
from mqttscope.spark.source import BadOption, Options, Tasks, check_columns
from mqttscope.spark.steps import tasks

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows captures on the driver, reads what is new of them on the executors, which have to see the same folder."""

    def __init__(self, schema: StructType, options: Options) -> None:
        if options.rows == "measures":
            raise BadOption("rows is 'measures', which a stream has none of")
        check_columns(schema, options.rows)
        self.options = options
        self.sources: list[str] = []
        for source in options.sources:
            path = local_path(source)
            if path is None:
                raise BadOption(f"{source} is no path: only captures on file systems can be followed while they grow")
            self.sources.append(path)
        self._schema = schema
        self._follower: Follower | None = None

    @property
    def follower(self) -> Follower:
        """What looks at the captures; the executors need none."""
        if self._follower is None:
            known = None if self.options.lake is None else _Lake(Path(self.options.lake))
            self._follower = Follower(self.sources, self.options.quiet_seconds, known)
        return self._follower

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing is read."""
        return Offset().written()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a batch has."""
        limit = self.options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What comes later is left to the next run."""
        self.follower.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far can be read now."""
        before = Offset.of(start)
        end = self.follower.step(before, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
        return start if end is before else end.written()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What is new of each capture; small parts together."""
        return [Tasks(some) for some in pack(tasks(Offset.of(start), Offset.of(end)), SMALLEST_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        assert isinstance(partition, Tasks)
        batches = Batches(to_arrow_schema(self._schema, timezone="UTC"))
        for task in partition.tasks:
            yield from scan(task, batches, self.options.wanted, {})


class _Lake:
    """How much of a capture is in a lake already."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._looked: os.stat_result | None = None
        self._digests: frozenset[str] = frozenset()
        self._begins = Known()

    def __call__(self, name: str) -> int | None:
        try:
            told = os.stat(self._lake / NAME)
        except OSError:
            return 0
        if self._looked is None or (told.st_ino, told.st_mtime_ns) != (self._looked.st_ino, self._looked.st_mtime_ns):
            manifest = read_manifest(self._lake)
            self._looked, self._digests = told, frozenset(manifest.captures)
            self._begins = Known.of(manifest.begins, manifest.captures)
        try:
            with open(name, "rb", buffering=0) as file:
                content = content_of(file, self._begins)
                return None if content.digest in self._digests else behind(file, content)[0]
        except OSError:
            return 0
