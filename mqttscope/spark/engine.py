"""Spark as an engine for queries of a lake: the queries of `mqttscope.analysis`, and a user's SQL (`ask`).

The answers of a report part come as rows of one frame, each with its name: a Spark job costs much the same however
little it does, and reports run many small queries on one table.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as f

from mqttscope.analysis.answer import NO_QUERY, STRING, QueryAnswer, UnknownQueryError, plain, without_comments
from mqttscope.analysis.columns import table_names
from mqttscope.analysis.devices import KNOWN, known_captures
from mqttscope.analysis.dialects import SPARK
from mqttscope.analysis.joins import topic_matches
from mqttscope.analysis.questions import OF_LAKE, Row, labels
from mqttscope.analysis.shapes import LETTERS, MARK, PATTERN
from mqttscope.analysis.views import VIEWS, named_in
from mqttscope.lake.manifest import Manifest, folder_of, open_lake
from mqttscope.spark.staged import staged
from mqttscope.spark.tables import make_views, read, union_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


class SparkEngine:
    """A Spark session over one lake or several; `LakeError` if a lake does not exist or is damaged."""

    words = SPARK

    def __init__(
        self,
        spark: SparkSession,
        lake: str | os.PathLike[str],
        manifest: Manifest | None = None,
        others: Sequence[tuple[str, Manifest]] = (),
    ) -> None:
        self.spark = spark
        self._lakes = [(os.fspath(lake), manifest or open_lake(folder_of(lake))), *others]
        self.lake = ", ".join(name for name, _ in self._lakes)
        # The session may be the user's, with views of these names.
        self._prefix = f"mqttscope_{uuid4().hex[:8]}"
        self._views: list[str] = []

    def table(self, name: str) -> str:
        """A view of a table."""
        view = f"{self._prefix}_{name}"
        if view not in self._views:
            frames = [read(self.spark, lake, manifest, name) for lake, manifest in self._lakes]
            self._name(view, frames[0] if len(frames) == 1 else _with_lakes(frames, self._lakes, OF_LAKE))
        return view

    def view(self, query: str, *, cached: bool = False) -> str:
        """Relation with the rows of a query, until `answer`; with ``cached`` it is computed once."""
        name = f"{self._prefix}_{len(self._views)}"
        with staged(self.spark, query, name) as frame:
            return self._name(name, frame, cached=cached)

    def shapes(self, relation: str) -> str:
        """Relation of the distinct Client Identifiers of a relation and their shapes."""
        shape = f"regexp_replace(client_identifier, {SPARK.text(PATTERN)}, '{MARK}') as shape"
        named = f"select distinct client_identifier from {relation} where client_identifier is not null"
        return self.view(f"""
            with alone as (select client_identifier, {shape} from ({named})),
            counts as (select shape as counted, count(*) as names from alone group by shape),
            wider as (
                select counted as narrow, regexp_replace(counted, {SPARK.text(LETTERS)}, '{MARK}') as wide, names
                from counts
            ),
            larger as (
                select narrow, wide from wider join counts on wide = counts.counted where counts.names > wider.names
            )
            select client_identifier, coalesce(wide, shape) as shape from alone left join larger on shape = narrow
        """)

    def _name(self, view: str, frame: DataFrame, *, cached: bool = False) -> str:
        if cached:
            # Computed on first read; queries of it do not contain its query, which would be planned each time.
            frame = frame.localCheckpoint(eager=False)
        frame.createOrReplaceTempView(view)
        self._views.append(view)
        return view

    def answer(self, questions: Mapping[str, str]) -> dict[str, list[Row]]:
        """Rows of queries by name; discards all views."""
        try:
            frames = [_as_json(name, self.spark.sql(query)) for name, query in questions.items()]
            rows = reduce(lambda frame, other: frame.unionByName(other), frames).collect()
        finally:
            self.forget()
        answers: dict[str, list[Row]] = {name: [] for name in questions}
        for name, _, row in sorted(rows, key=lambda cells: (cells[0], cells[1])):
            answers[name].append(json.loads(row))
        return answers

    def forget(self) -> None:
        """Discard all views and their cached rows."""
        for view in self._views:
            self.spark.catalog.dropTempView(view)
        self._views.clear()

    def ask(self, sql: str, limit: int | None = None) -> QueryAnswer:
        return ask(self.spark, self._lakes[0][0], sql, limit, self._lakes)


def _with_lakes(
    frames: Sequence[DataFrame], lakes: Sequence[tuple[str, Manifest]], of_lake: Sequence[str] = ()
) -> DataFrame:
    """Frames of several lakes with a column ``lake``, and its name in front of the values of some columns."""
    named = []
    for label, frame in zip(labels([lake for lake, _ in lakes]), frames, strict=True):
        for column in set(of_lake) & set(frame.columns):
            frame = frame.withColumn(column, f.concat(f.lit(f"{label}: "), f.col(column)))
        named.append(frame.select(f.lit(label).alias("lake"), "*"))
    return reduce(union_all, named)


def _as_json(name: str, frame: DataFrame) -> DataFrame:
    place = f.monotonically_increasing_id().alias("place")
    row = f.to_json(f.struct(*(f.col(f"`{column}`") for column in frame.columns)), {"ignoreNullFields": "false"})
    return frame.select(f.lit(name).alias("name"), place, row.alias("row"))


_RUNS = re.compile(r"\b(java_method|try_reflect|reflect)`?\s*(?:\(|/\*|--)|\busing\s*(?:r?['\"]|/\*|--)", re.I)
"""Functions that call Java, and a clause that names a script; a comment in between hides nothing."""
_CHANGES = re.compile(r"\b(?:insert|update|delete|merge)\b", re.I)
_QUERIES = re.compile(r"\(|(?:select|with|values|from|table|map|reduce)\b", re.I)
"""Beginnings of queries."""
_COMMANDS = re.compile(
    r"(?:add|alter|analyze|begin|cache|call|clear|comment|create|declare|delete|drop|execute|export|grant|import|insert|"
    r"list|load|lock|merge|msck|open|optimize|refresh|repair|replace|reset|revoke|set|truncate|uncache|unlock|unset|"
    r"update|use)\b",
    re.I,
)
"""Beginnings of other statements of Spark."""


def ask(
    spark: SparkSession,
    lake: str | os.PathLike[str],
    sql: str,
    limit: int | None = None,
    lakes: Sequence[tuple[str, Manifest]] = (),
) -> QueryAnswer:
    """Run a query; each table is a view with its name.  ``limit``: maximum number of rows.

    Values are text, numbers, booleans, lists and objects; times are text in UTC, bytes objects with ``length`` and
    ``hex``, as in JSON Lines.  Raises Spark's errors, and `LakeError` if the lake does not exist.
    """
    lakes = lakes or [(os.fspath(lake), open_lake(folder_of(lake)))]
    views: dict[str, list[DataFrame]] = {}
    for name, manifest in lakes:
        make_views(spark, name, manifest)
        make_ready_views(spark, named_in(sql), manifest)
        for view in (*table_names(), *named_in(sql)) if len(lakes) > 1 else ():
            views.setdefault(view, []).append(spark.table(view))
    for view, frames in views.items():
        _with_lakes(frames, lakes).createOrReplaceTempView(view)
    frame = spark.sql(question(spark, sql))
    kinds = [field.dataType for field in frame.schema]
    source = frame.toLocalIterator() if limit is None else iter(frame.limit(limit).collect())
    rows = ([value_of(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in source)
    return QueryAnswer([(field.name, field.dataType.simpleString()) for field in frame.schema], rows)


def make_ready_views(spark: SparkSession, names: Iterable[str], manifest: Manifest) -> None:
    """Create ready-made views (`mqttscope.analysis.views`) and functions for SQL; the tables have views already."""
    spark.sql(
        "create or replace temporary function topic_matches(topic string, topic_filter string) returns boolean"
        f" return {topic_matches(SPARK, 'topic', 'topic_filter')}"
    )
    known = {KNOWN: known_captures(SPARK, manifest)}
    for name in names:
        ready = VIEWS[name]
        query = ready.query(SPARK, {table: table for table in ready.tables} | known)
        with staged(spark, query, f"{name}_{uuid4().hex[:8]}") as frame:
            columns = (f.col(key).alias(key, metadata={"comment": text}) for key, text in ready.columns.items())
            frame.select(*columns).createOrReplaceTempView(name)


def question(spark: SparkSession, sql: str) -> str:
    """The statement in a form that can only query; `UnknownQueryError` if it is not a query.  Nothing is executed.

    Spark's parser decides: ``describe query`` accepts no other statement.  Statements that show, describe or explain
    lose their comments, so that the text checked here is the text that Spark reads.
    """
    program = _RUNS.search(sql)
    if program is not None:
        raise UnknownQueryError(f"{(program[1] or 'using').lower()} runs a program, which a query must not do")
    bare = without_comments(sql)
    if re.match(r"(?:describe|desc|show)\b", bare, re.I):
        return bare
    explained = re.match(r"explain\b\s*(?:(?:extended|codegen|cost|formatted)\b)?", bare, re.I)
    if explained is not None:
        _check_query(spark, bare[explained.end() :])
        return bare
    _check_query(spark, sql)
    return sql


def _check_query(spark: SparkSession, sql: str) -> None:
    """Raise `UnknownQueryError` if Spark's parser does not accept a query."""
    from pyspark.errors import ParseException, PySparkException

    bare = without_comments(sql)
    # A word alone could be the name of a column to describe: `reset` is not a query.
    is_query = _QUERIES.match(bare)
    try:
        spark.sql(f"describe query\n{sql}")
    except ParseException as error:
        does_more = _COMMANDS.match(bare) or (is_query and _CHANGES.search(STRING.sub(" ", bare)))
        one_line_up = re.sub(r"\bline (\d+)", lambda match: f"line {int(match[1]) - 1}", str(error))
        raise UnknownQueryError(NO_QUERY if does_more else one_line_up) from None
    except PySparkException:
        # Other errors are reported when the query runs, with the right positions.
        pass
    if not is_query:
        raise UnknownQueryError(NO_QUERY)


def value_of(value: Any, kind: DataType) -> Any:
    """A Spark value as a JSON value (`mqttscope.analysis.answer.plain`)."""
    from pyspark.sql import types as t

    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return {field.name: value_of(part, field.dataType) for field, part in zip(kind, value, strict=True)}
    if isinstance(kind, t.ArrayType):
        return [value_of(element, kind.elementType) for element in value]
    if isinstance(kind, t.MapType):
        return {str(plain(key)): value_of(element, kind.valueType) for key, element in value.items()}
    # Spark returns the time in this machine's zone, without a zone.
    return plain(value.astimezone(UTC) if isinstance(kind, t.TimestampType) else value)
