"""What jobs that write a lake have in common: reports from the executors, and files of the lake for Spark to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from mqttscope.spark.fold_tasks import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GLOB = str.maketrans({one: f"\\{one}" for one in "{}[]*?\\"})


def run_all(tasks: Sequence[DataFrame]) -> list[Report]:
    """Run data frames of reports in one job and gather what they say."""
    return [Report.load(row["report"]) for row in reduce(union_all, tasks).collect()] if tasks else []


def union_all(one: DataFrame, other: DataFrame) -> DataFrame:
    """The rows of both."""
    return one.unionByName(other)


def parquet_paths(root: Path, names: Iterable[str]) -> list[str]:
    """Files of a lake as Spark takes them: on the file system, and nothing in them is a pattern."""
    return [f"file:{str(root.resolve() / name).translate(_GLOB)}" for name in names]
