"""Rules of session and broker scope over what a fold wrote down: the second stage, by key instead of by flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from mqttscope.lake.files import LakeFiles
from mqttscope.lake.manifest import LakeError, Manifest
from mqttscope.lake.scope_kernel import (
    ENDING_ORDER,
    EVENT_ORDER,
    KEYS,
    SCOPE_COLUMNS,
    STATE_ORDER,
    scope_kernel,
)
from mqttscope.lake.scope_kernel import SCOPE_ORDER as SCOPE_ORDER_BY_TIME
from mqttscope.lint.finding import Scope
from mqttscope.spark.ingest_tasks import REPORT_DDL, IngestFailedError, Report, Work, smaller, unpacked
from mqttscope.spark.tables import parquet_paths, run_all, union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCOPE_ORDER = ("key", "kind_order", "file", "emitted_ns", "frame", "connection_id", "event_in_connection")
"""What events are sorted by where captures are read one behind the other, also those that overlap in time."""
_EVENTS_DDL = (
    "connection_id string, server string, session string, emitted_ns bigint, file bigint, frame bigint, "
    "event_in_connection bigint, ending boolean, event binary"
)
_STATES_DDL = "scope string, key string, last_ns bigint, state binary"


def fold_scopes(
    spark: SparkSession, root: Path, before: Manifest, work: Work, events: Sequence[str], partitions: int
) -> list[Report]:
    """Run the rules of both scopes over files of ``scope_events`` and what the lake remembers; gives the reports.

    The files are taken away then: they are only for the way between the stages.
    """
    tasks = []
    for scope in KEYS:
        rows = _rows(spark, root, before, events, scope)
        if rows is not None and work.options.rules_by(scope):
            order = SCOPE_ORDER_BY_TIME if work.by_time else SCOPE_ORDER
            placed = rows.repartition(partitions, "key").sortWithinPartitions(*order)
            tasks.append(placed.mapInArrow(partial(fold_keys, scope=str(scope), work=work), REPORT_DDL))
    reports = run_all(tasks)
    for name in events:
        (root / name).unlink()
    return reports


def _rows(spark: SparkSession, root: Path, before: Manifest, events: Sequence[str], scope: Scope) -> DataFrame | None:
    """The rows of one scope as its kernel reads them; ``None`` where there are none."""
    from pyspark.sql import functions as f

    parts = []
    if events:
        key = f.col(KEYS[scope])
        order = f.when(f.col("ending"), ENDING_ORDER).otherwise(EVENT_ORDER)
        found = spark.read.schema(_EVENTS_DDL).parquet(*parquet_paths(root, events)).where(key.isNotNull())
        parts.append(found.select(key.alias("key"), order.alias("kind_order"), *SCOPE_COLUMNS[2:]))
    if before.scope_state_files:
        states = spark.read.schema(_STATES_DDL).parquet(*parquet_paths(root, before.scope_state_files))
        zeros = [f.lit(0).cast("bigint").alias(name) for name in ("file", "frame", "event_in_connection")]
        parts.append(
            states.where(f.col("scope") == str(scope)).select(
                "key", f.lit(STATE_ORDER).alias("kind_order"), f.col("last_ns").alias("emitted_ns"),
                *zeros, f.lit("").alias("connection_id"), f.col("state").alias("event"),
            )
        )  # fmt: skip
    return reduce(union_all, parts) if parts else None


def fold_keys(batches: Iterable[pa.RecordBatch], scope: str, work: Work) -> Iterator[pa.RecordBatch]:
    """Run the kernel of a scope over the sorted rows of whole keys."""
    with LakeFiles(work.root, work.generation) as files:
        made = scope_kernel(smaller(batches), Scope(scope), work.options, more=work.more)
        for kind, found in unpacked(_named(made, scope)):
            files.write(kind, found)
    yield Report(files.names, files.rows, files.checksums).dump()


def _named(made: Iterator[pa.RecordBatch], scope: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from made
    except LakeError as error:
        raise IngestFailedError(str(error)) from None
    except Exception as error:
        raise IngestFailedError(f"rules of {scope} scope: {type(error).__name__}: {error}") from error
