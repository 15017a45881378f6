"""The tables of a lake as data frames.

Frames follow the manifest of the lake, open connections included, and have all columns of `mqttscope.lake.schemas`
whatever files there are.  They also work in sessions of Spark Connect, where the server sees the same folder.

`run_all` and `kept` serve the jobs that write a lake: reports of the executors, and rows that are computed once.
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
"""The setting of Parquet by which pages are compared with their checksums."""
_GLOB = str.maketrans({one: f"\\{one}" for one in "{}[]*?\\"})


@cache
def schema(name: str) -> StructType:
    """Columns of a table as Spark has them; `LakeError` where there is no such table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from mqttscope.lake import schemas

    if name not in schemas.TABLES:
        raise LakeError(f"there is no table {name!r}; there are {', '.join(schemas.TABLES)}")
    found = from_arrow_schema(schemas.TABLES[name].arrow().remove_metadata())
    for field, column in zip(found, schemas.TABLES[name].columns, strict=True):
        # What `describe` shows.
        field.metadata = {"comment": column.meaning} if column.meaning else {}
    return found


def table(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """A table of a lake by its name, what is still open included.

    Without files it is empty and has all columns.  Raises `LakeError` where there is no lake or no such table.
    """
    return read(spark, lake, open_lake(folder_of(lake)), name)


def read(spark: SparkSession, lake: Lake, manifest: Manifest, name: str) -> DataFrame:
    """A table as a manifest that was read before names its files: several of them belong to one generation."""
    columns = schema(name)
    files = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    if not files:
        from pyspark.sql import functions as f

        # A frame of no Python rows would start Python workers for nothing.
        return spark.range(0).select(
            *(f.lit(None).cast(one.dataType).alias(one.name, metadata=one.metadata) for one in columns)
        )
    old = renamed(name) if manifest.schema == 1 else {}
    if old:
        columns = type(columns)([_named(one, old.get(one.name, one.name)) for one in columns])
    found = spark.read.option(VERIFY, "true").schema(columns).parquet(*parquet_paths(folder_of(lake), files))
    return found.withColumnsRenamed({then: today for today, then in old.items()}) if old else found


def renamed(name: str) -> dict[str, str]:
    """How columns of a table were called in version 1 of the schemas, by their names of today."""
    from mqttscope.lake.schemas import RENAMED

    return RENAMED.get(name, {})


def _named(field: StructField, name: str) -> StructField:
    return type(field)(name, field.dataType, field.nullable, field.metadata)


def make_views(spark: SparkSession, lake: Lake) -> None:
    """Name tables of a lake for SQL, as temporary views of the session."""
    from mqttscope.lake.schemas import TABLES

    manifest = open_lake(folder_of(lake))
    for name in TABLES:
        read(spark, lake, manifest, name).createOrReplaceTempView(name)


def parquet_paths(root: Path, names: Iterable[str]) -> list[str]:
    """Files of a lake as Spark takes them: on the file system, and nothing in them is a pattern."""
    return [f"file:{str(root.resolve() / name).translate(_GLOB)}" for name in names]


def kept(made: DataFrame) -> DataFrame:
    """Rows that are computed once and then lie on the disks of the executors; `unpersist` them afterwards."""
    from pyspark import StorageLevel

    return made.persist(StorageLevel.DISK_ONLY)


def run_all(tasks: Sequence[DataFrame]) -> list[TaskReport]:
    """Run data frames of reports in one job and gather the reports."""
    return [TaskReport.load(row["report"]) for row in reduce(union_all, tasks).collect()] if tasks else []


def union_all(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)
