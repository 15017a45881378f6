"""Rules that look beyond one connection: the second stage, in which the flows of a key are read together once more.

The first stage says which flows these are (``flow_keys``).  Their rows are joined with that, brought together by key,
and run through the same dissector and the same linter; nothing that the first stage decoded is written down for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mqttscope.lake.files import LakeFiles
from mqttscope.lake.kernel import KEY_STATE, ORDER, ORDER_BY_TIME, SEGMENT_COLUMNS, cross_kernel
from mqttscope.lake.keys import Drop
from mqttscope.lake.manifest import LakeError, Manifest
from mqttscope.spark.ingest_tasks import (
    REPORT_DDL,
    IngestFailedError,
    TaskReport,
    Work,
    clocked,
    ends_of,
    first_drops,
    smaller,
    unpacked,
    watermark,
)
from mqttscope.spark.rows import COLUMNS, SUMMARY
from mqttscope.spark.tables import parquet_paths, run_all, union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FLOW_KEYS_DDL = "flow binary, key string"
_STATES_DDL = "key string, state binary"


@dataclass(slots=True)
class Asides:
    """What captures say beside their segments, which every task needs.  Plain data."""

    summaries: list[dict[str, Any]] = field(default_factory=list)
    ends: tuple[int, ...] = ()
    """Times of the last segments of the captures."""
    drops: dict[str, Drop] = field(default_factory=dict)
    watermark_ns: int | None = None

    @classmethod
    def of(cls, aside: Sequence[dict[str, Any]], watermark_ns: int | None = None) -> Asides:
        """Those of the rows without a flow; ``watermark_ns``: where these do not say it."""
        summaries = [row for row in aside if row["kind"] == SUMMARY]
        return cls(summaries, ends_of(summaries), first_drops(aside), watermark(aside, watermark_ns))


def cross_connection_stage(
    spark: SparkSession,
    rows: DataFrame,
    root: Path,
    before: Manifest,
    work: Work,
    keys: Sequence[str],
    aside: Sequence[dict[str, Any]],
    partitions: int,
) -> list[TaskReport]:
    """Run the rules that look beyond one connection; gives the reports of the tasks.

    ``rows``: the input of the first stage, what the lake remembers of flows included.  ``keys``: files of
    ``flow_keys``, which are removed afterwards.  ``aside``: rows that belong to no flow.
    """
    parts = []
    if keys:
        found = spark.read.schema(_FLOW_KEYS_DDL).parquet(*parquet_paths(root, keys))
        parts.append(by_key(rows, found))
    if before.scope_state_files:
        parts.append(_key_states(spark, root, before))
    reports: list[TaskReport] = []
    if parts:
        order = ORDER_BY_TIME if work.by_time else ORDER
        placed = reduce(union_all, parts).repartition(partitions, "flow").sortWithinPartitions(*order)
        task = partial(ingest_keys, work=work, asides=Asides.of(aside, work.watermark_ns))
        reports = run_all([placed.mapInArrow(task, REPORT_DDL)])
    for name in keys:
        (root / name).unlink()
    return reports


def by_key(rows: DataFrame, flow_keys: DataFrame) -> DataFrame:
    """Rows of flows with their key in the column of the flow, once for each key that a flow has."""
    from pyspark.sql import functions as f

    keys = flow_keys.select("flow", "key").distinct()
    joined = rows.where(f.col("flow").isNotNull()).join(keys, "flow")
    columns = {"flow": f.encode("key", "utf-8").alias("flow")}
    return joined.select(*(columns.get(name, f.col(name)) for name in (*SEGMENT_COLUMNS, "kind_order")))


def _key_states(spark: SparkSession, root: Path, before: Manifest) -> DataFrame:
    """What rules remember of keys, as rows that come before all others of a key."""
    from pyspark.sql import functions as f

    states = spark.read.schema(_STATES_DDL).parquet(*parquet_paths(root, before.scope_state_files))
    values = {"kind": f.lit(KEY_STATE), "flow": f.encode("key", "utf-8"), "payload": f.col("state")}
    values |= {name: f.lit(0) for name in ("timestamp_ns", "clock_ns", "file", "frame")}
    values["kind_order"] = f.lit(-1)
    return states.select(
        *(
            values.get(name, f.lit(None)).cast(COLUMNS.get(name, "int")).alias(name)
            for name in (*SEGMENT_COLUMNS, "kind_order")
        )
    )


def ingest_keys(batches: Iterable[pa.RecordBatch], work: Work, asides: Asides) -> Iterator[pa.RecordBatch]:
    """Run the kernel over the sorted rows of all flows of some keys."""
    with LakeFiles(work.root, work.generation) as files:
        made = cross_kernel(
            clocked(smaller(batches), asides.summaries), work.options, more=work.more,
            watermark_ns=asides.watermark_ns, dropping=work.dropping, drops=asides.drops,
            ends=() if work.by_time else asides.ends,
        )  # fmt: skip
        for kind, found in unpacked(_named(made)):
            files.write(kind, found)
    yield TaskReport(files.names, files.rows, files.checksums).dump()


def _named(made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from made
    except LakeError as error:
        raise IngestFailedError(str(error)) from None
    except Exception as error:
        raise IngestFailedError(f"rules across connections: {type(error).__name__}: {error}") from error
