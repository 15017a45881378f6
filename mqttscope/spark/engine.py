"""Spark as what answers the questions of `mqttscope.analysis` about a lake.

The answers of a part come as rows of one frame, each told by its name: a job of Spark costs much the same however
little it has to do, and reports ask many small questions of one table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import functions as f

from mqttscope.analysis.answer import Answer
from mqttscope.analysis.dialects import SparkWords
from mqttscope.analysis.questions import Row
from mqttscope.lake.manifest import Manifest, open_lake
from mqttscope.spark.joins import shape_of
from mqttscope.spark.tables import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkEngine:
    """A session of Spark over one lake; `LakeError` where there is no lake, or it is damaged."""

    words = SparkWords()

    def __init__(self, spark: SparkSession, lake: str | os.PathLike[str], manifest: Manifest | None = None) -> None:
        self.spark = spark
        self.lake = os.fspath(lake)
        self.manifest = manifest or open_lake(lake)
        # The session may be the user's, with views of these names.
        self._prefix = f"mqttscope_{uuid4().hex[:8]}"
        self._views: list[str] = []

    def table(self, name: str) -> str:
        """A view of a table."""
        view = f"{self._prefix}_{name}"
        if view not in self._views:
            self._name(view, read(self.spark, self.lake, self.manifest, name))
        return view

    def view(self, query: str, *, kept: bool = False) -> str:
        """A relation for the rows of a query, until they are forgotten; ``kept``: it is computed once."""
        return self._name(f"{self._prefix}_{len(self._views)}", self.spark.sql(query), kept=kept)

    def shapes(self, relation: str) -> str:
        """A relation of the different Client Identifiers of a relation, and their shapes."""
        names = self.spark.sql(f"select distinct client_identifier from {relation} where client_identifier is not null")
        made = names.withColumn("shape", shape_of(f.col("client_identifier")))
        return self._name(f"{self._prefix}_{len(self._views)}", made)

    def _name(self, view: str, frame: DataFrame, *, kept: bool = False) -> str:
        if kept:
            # Computed when it is first read; queries of it do not contain its query, which would be planned each time.
            frame = frame.localCheckpoint(eager=False)
        frame.createOrReplaceTempView(view)
        self._views.append(view)
        return view

    def answer(self, questions: Mapping[str, str]) -> dict[str, list[Row]]:
        """The rows of queries by their names; forgets all views."""
        try:
            frames = [_as_json(name, self.spark.sql(query)) for name, query in questions.items()]
            found = reduce(lambda one, other: one.unionByName(other), frames).collect()
        finally:
            self.forget()
        answers: dict[str, list[Row]] = {name: [] for name in questions}
        for name, _, row in sorted(found, key=lambda one: (one[0], one[1])):
            answers[name].append(json.loads(row))
        return answers

    def forget(self) -> None:
        """Forget all views; what was computed once goes with them."""
        for view in self._views:
            self.spark.catalog.dropTempView(view)
        self._views.clear()

    def ask(self, sql: str, limit: int | None = None) -> Answer:
        """Ask what a user wrote (`mqttscope.spark.query`)."""
        from mqttscope.spark.query import ask

        return ask(self.spark, self.lake, sql, limit)


def _as_json(name: str, frame: DataFrame) -> DataFrame:
    place = f.monotonically_increasing_id().alias("place")
    row = f.to_json(f.struct(*(f.col(f"`{one}`") for one in frame.columns)), {"ignoreNullFields": "false"})
    return frame.select(f.lit(name).alias("name"), place, row.alias("row"))
