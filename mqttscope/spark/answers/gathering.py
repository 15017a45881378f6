"""Several questions in one job: their answers come as rows of one frame, each told by its name.

A job of Spark costs much the same however little it has to do, and reports ask many small questions of one table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import Percentiles, Ranked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Row = dict[str, Any]
R = TypeVar("R")
PERCENTILES = (0.5, 0.9, 0.99)
ACCURACY = 10_000
"""Percentiles are exact to this part of the number of values."""


class Gathering:
    """Questions that are asked together."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []
        self._answers: dict[str, list[Row]] = {}
        self._kept: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """A frame that several questions are asked of: it is computed once, and forgotten when they are answered."""
        self._kept.append(frame.persist())
        return self._kept[-1]

    def add(self, name: str, frame: DataFrame) -> None:
        """Ask for all rows of a frame, which are few."""
        self._answers[name] = []
        place = f.monotonically_increasing_id().alias("place")
        row = f.to_json(f.struct(*(f.col(f"`{one}`") for one in frame.columns)), {"ignoreNullFields": "false"})
        self._frames.append(frame.select(f.lit(name).alias("name"), place, row.alias("row")))

    def top(self, name: str, frame: DataFrame, order: Sequence[Column], limit: int) -> None:
        """Ask for the first rows of an order, and how many rows there are."""
        self.add(name, frame.orderBy(*order).limit(limit))
        self.add(f"{name}, all", frame.agg(f.count(f.lit(1)).alias("rows")))

    def collect(self) -> None:
        """Run the job."""
        found = reduce(lambda one, other: one.unionByName(other), self._frames).collect()
        for frame in self._kept:
            frame.unpersist()
        for name, _, row in sorted(found, key=lambda one: (one[0], one[1])):
            self._answers[name].append(json.loads(row))

    def rows(self, name: str) -> list[Row]:
        """The rows of an answer, in their order."""
        return self._answers[name]

    def row(self, name: str) -> Row:
        """The one row of an answer."""
        (found,) = self._answers[name]
        return found

    def ranked(self, name: str, make: Callable[[Row], R]) -> Ranked[R]:
        """An answer to `top`."""
        return Ranked([make(row) for row in self.rows(name)], self.row(f"{name}, all")["rows"])


def spread(value: Column | str) -> list[Column]:
    """The columns that `percentiles` makes percentiles of."""
    column = f.col(value) if isinstance(value, str) else value
    return [
        f.count(column).alias("measured"),
        f.percentile_approx(column, list(PERCENTILES), ACCURACY).alias("percentiles"),
        f.max(column).alias("maximum"),
    ]


def percentiles(row: Row) -> Percentiles:
    """Percentiles of a row that has the columns of `spread`."""
    p50, p90, p99 = row["percentiles"] or [None] * len(PERCENTILES)
    return Percentiles(row["measured"], p50, p90, p99, row["maximum"])


def count_where(condition: Column, name: str) -> Column:
    """How many rows a condition holds for; 0 where there is none."""
    return f.count(f.when(condition, 1)).alias(name)
