"""What jobs that write a lake have in common: reports from the executors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from mqttscope.spark.fold_tasks import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_all(tasks: Sequence[DataFrame]) -> list[Report]:
    """Run data frames of reports in one job and gather what they say."""
    return [Report.load(row["report"]) for row in reduce(union_all, tasks).collect()] if tasks else []


def union_all(one: DataFrame, other: DataFrame) -> DataFrame:
    """The rows of both."""
    return one.unionByName(other)
