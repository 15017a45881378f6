"""What every answer needs: the tables of a lake, the selection of their rows, and several questions in one job.

A selection is by time, client, server, topic and rule.  The answers of a job come as rows of one frame, each told by
its name: a job of Spark costs much the same however little it has to do, and reports ask many small questions of one
table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as f

from mqttscope.report.fleet.model import Asked, Percentiles, Ranked
from mqttscope.spark.joins import topic_matches
from mqttscope.spark.tables import read

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from mqttscope.lake.manifest import Manifest


class Selection:
    """Conditions of what was asked for.

    A condition on what a table does not have holds for all of its rows: a connection has no topic.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def rows(self, frame: DataFrame) -> DataFrame:
        """Rows of packets, messages, findings or gaps, each of which has one time."""
        return self.clients(self.since(self.history(frame)))

    def history(self, frame: DataFrame) -> DataFrame:
        """The same without the beginning of the time, and of all clients: what an answer may depend on."""
        asked = self.asked
        conditions = [
            *_any(_like(f.col("server"), one) for one in asked.server),
            *(_any(topic_matches(f.col("topic"), one) for one in asked.topic) if "topic" in frame.columns else ()),
        ]
        if asked.until_ns is not None:
            conditions.append(f.col("timestamp_ns") < asked.until_ns)
        return _where(frame, conditions)

    def since(self, frame: DataFrame, column: str = "timestamp_ns") -> DataFrame:
        """Not before the time that was asked for."""
        since = self.asked.since_ns
        return frame if since is None else frame.where(f.col(column) >= since)

    def clients(self, frame: DataFrame, *columns: str) -> DataFrame:
        """Of the clients that were asked for, one of whom stands in one of the columns."""
        names = columns or ("client_identifier",)
        return _where(frame, _any(_like(f.col(name), one) for one in self.asked.client for name in names))

    def connections(self, frame: DataFrame) -> DataFrame:
        """Connections that were there in the time."""
        asked = self.asked
        conditions = _any(_like(f.col("server"), one) for one in asked.server)
        if asked.until_ns is not None:
            conditions.append(f.col("timestamp_ns") < asked.until_ns)
        if asked.since_ns is not None:
            conditions.append(f.coalesce(f.col("closed_ns"), f.lit(asked.since_ns)) >= asked.since_ns)
        return self.clients(_where(frame, conditions))

    def findings(self, frame: DataFrame) -> DataFrame:
        """Findings of the rules that were asked for."""
        rules = (f.col("rule").startswith(one.upper()) | (f.col("slug") == one.lower()) for one in self.asked.rule)
        return _where(self.rows(frame), _any(rules))


def _where(frame: DataFrame, conditions: Iterable[Column]) -> DataFrame:
    for one in conditions:
        frame = frame.where(one)
    return frame


def _any(conditions: Iterable[Column]) -> list[Column]:
    """One condition: that any of these holds; none where there are none."""
    found = [f.coalesce(one, f.lit(False)) for one in conditions]
    return [reduce(lambda one, other: one | other, found)] if found else []


def _like(column: Column, pattern: str) -> Column:
    """Whether a column fits a pattern in which ``*`` stands for any characters and ``?`` for one."""
    if not re.search(r"[*?]", pattern):
        return column == pattern
    return column.rlike(f"(?s)^{''.join(_JAVA.get(char) or _quoted(char) for char in pattern)}\\z")


_JAVA = {"*": ".*", "?": "."}


def _quoted(char: str) -> str:
    return char if char.isalnum() else f"\\x{{{ord(char):x}}}"


def units_since_1970(unit_ns: int) -> Column:
    """How many full units lie between 1970 and ``timestamp_ns``, which has more digits than a double."""
    from pyspark.sql import functions as f

    return f.expr(f"timestamp_ns div {unit_ns}L - if(timestamp_ns % {unit_ns}L < 0, 1L, 0L)")


@dataclass(slots=True)
class Frames:
    """Data frames of one lake."""

    spark: SparkSession
    lake: str | os.PathLike[str]
    manifest: Manifest
    selection: Selection

    def packets(self) -> DataFrame:
        """All packets."""
        return self._table("packets")

    def messages(self) -> DataFrame:
        """All messages."""
        return self._table("messages")

    def connections(self) -> DataFrame:
        """All connections."""
        return self._table("connections")

    def findings(self) -> DataFrame:
        """All findings."""
        return self._table("findings")

    def gaps(self) -> DataFrame:
        """All gaps and unparsed bytes."""
        return self._table("gaps")

    def ingest_errors(self) -> DataFrame:
        """All that is wrong with captures."""
        return self._table("ingest_errors")

    def _table(self, name: str) -> DataFrame:
        return read(self.spark, self.lake, self.manifest, name)


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
