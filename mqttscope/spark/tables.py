"""The tables of a lake as data frames.

Frames follow the manifest of the lake, open connections included, and have all columns of `mqttscope.lake.schemas`
whatever files there are.  They also work in sessions of Spark Connect, if the server sees the folder too.

`run_all` and `persisted` serve the jobs that write a lake: reports of the executors, and rows that are computed once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from mqttscope.lake.manifest import LakeError, Manifest, folder_of, open_lake
from mqttscope.spark.ingest_tasks import TaskReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

    Lake = str | os.PathLike[str]

VERIFY = "parquet.page.verify-checksum.enabled"
"""Parquet's setting for comparing pages with their checksums."""
_GLOB = str.maketrans({character: f"\\{character}" for character in "{}[]*?\\"})


@cache
def schema(name: str) -> StructType:
    """Columns of a table in Spark's types; `LakeError` if the table does not exist."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from mqttscope.lake import schemas

    if name not in schemas.TABLES:
        raise LakeError(f"table {name!r} does not exist; tables: {', '.join(schemas.TABLES)}")
    columns = from_arrow_schema(schemas.TABLES[name].arrow().remove_metadata())
    for field, column in zip(columns, schemas.TABLES[name].columns, strict=True):
        # Shown by `describe`.
        field.metadata = {"comment": column.meaning} if column.meaning else {}
    return columns


def table(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """A table of a lake by its name, open connections included.

    Without files it is empty and has all columns.  Raises `LakeError` if the lake or the table does not exist.
    """
    return read(spark, lake, open_lake(folder_of(lake)), name)


def read(spark: SparkSession, lake: Lake, manifest: Manifest, name: str) -> DataFrame:
    """A table with the files of a manifest that was read before: several tables then belong to one generation."""
    columns = schema(name)
    files = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    if not files:
        from pyspark.sql import functions as f

        # A frame of no Python rows would start Python workers for nothing.
        return spark.range(0).select(
            *(f.lit(None).cast(column.dataType).alias(column.name, metadata=column.metadata) for column in columns)
        )
    old = renamed(name) if manifest.schema == 1 else {}
    if old:
        columns = type(columns)([_named(field, old.get(field.name, field.name)) for field in columns])
    frame = spark.read.option(VERIFY, "true").schema(columns).parquet(*parquet_paths(folder_of(lake), files))
    return frame.withColumnsRenamed({then: today for today, then in old.items()}) if old else frame


def renamed(name: str) -> dict[str, str]:
    """Names of renamed columns in version 1 of the schemas, by present name."""
    from mqttscope.lake.schemas import RENAMED

    return RENAMED.get(name, {})


def _named(field: StructField, name: str) -> StructField:
    return type(field)(name, field.dataType, field.nullable, field.metadata)


def make_views(spark: SparkSession, lake: Lake, manifest: Manifest) -> None:
    """Create temporary views of the lake's tables in the session, for SQL."""
    from mqttscope.lake.schemas import TABLES

    for name in TABLES:
        read(spark, lake, manifest, name).createOrReplaceTempView(name)


def parquet_paths(root: Path, names: Iterable[str]) -> list[str]:
    """Files of a lake as paths for Spark: on the file system, with patterns escaped."""
    return [f"file:{str(root.resolve() / name).translate(_GLOB)}" for name in names]


def persisted(frame: DataFrame) -> DataFrame:
    """Rows that are computed once and stored on the disks of the executors; `unpersist` them afterwards."""
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)


def run_all(tasks: Sequence[DataFrame]) -> list[TaskReport]:
    """Run data frames of reports in one job and collect the reports."""
    return [TaskReport.load(row["report"]) for row in reduce(union_all, tasks).collect()] if tasks else []


def union_all(frame: DataFrame, other: DataFrame) -> DataFrame:
    return frame.unionByName(other)
