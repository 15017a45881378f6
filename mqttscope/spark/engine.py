"""Spark as what answers questions about a lake: those of `mqttscope.analysis`, and SQL that a user wrote (`ask`).

The answers of a part come as rows of one frame, each told by its name: a job of Spark costs much the same however
little it has to do, and reports ask many small questions of one table.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as f

from mqttscope.analysis.answer import NO_QUERY, STRING, Answer, UnknownQueryError, plain, without_comments
from mqttscope.analysis.dialects import SPARK
from mqttscope.analysis.questions import Row
from mqttscope.analysis.shapes import MARK, PATTERN
from mqttscope.analysis.views import VIEWS, named_in
from mqttscope.lake.manifest import Manifest, folder_of, open_lake
from mqttscope.spark.tables import make_views, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


class SparkEngine:
    """A session of Spark over one lake; `LakeError` where there is no lake, or it is damaged."""

    words = SPARK

    def __init__(self, spark: SparkSession, lake: str | os.PathLike[str], manifest: Manifest | None = None) -> None:
        self.spark = spark
        self.lake = os.fspath(lake)
        self.manifest = manifest or open_lake(folder_of(lake))
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
        shape = f"regexp_replace(client_identifier, {SPARK.text(PATTERN)}, '{MARK}') as shape"
        named = f"select distinct client_identifier from {relation} where client_identifier is not null"
        return self.view(f"select client_identifier, {shape} from ({named})")

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
        return ask(self.spark, self.lake, sql, limit)


def _as_json(name: str, frame: DataFrame) -> DataFrame:
    place = f.monotonically_increasing_id().alias("place")
    row = f.to_json(f.struct(*(f.col(f"`{one}`") for one in frame.columns)), {"ignoreNullFields": "false"})
    return frame.select(f.lit(name).alias("name"), place, row.alias("row"))


_RUNS = re.compile(r"\b(java_method|try_reflect|reflect)`?\s*(?:\(|/\*|--)|\busing\s*(?:r?['\"]|/\*|--)", re.I)
"""Functions that call Java, and what names a script; a comment in between hides nothing."""
_CHANGES = re.compile(r"\b(?:insert|update|delete|merge)\b", re.I)
_QUERIES = re.compile(r"\(|(?:select|with|values|from|table|map|reduce)\b", re.I)
"""With what a query begins."""
_COMMANDS = re.compile(
    r"(?:add|alter|analyze|begin|cache|call|clear|comment|create|declare|delete|drop|execute|export|grant|import|insert|"
    r"list|load|lock|merge|msck|open|optimize|refresh|repair|replace|reset|revoke|set|truncate|uncache|unlock|unset|"
    r"update|use)\b",
    re.I,
)
"""With what other statements begin that Spark knows."""


def ask(spark: SparkSession, lake: str | os.PathLike[str], sql: str, limit: int | None = None) -> Answer:
    """Ask in SQL; tables are views of their names.  ``limit``: rows of the answer at most.

    Values are text, numbers, booleans, lists and objects; times are text in UTC, bytes objects with ``length`` and
    ``hex``, as in JSON Lines.  Raises what Spark raises, `LakeError` where there is no lake.
    """
    make_views(spark, lake)
    make_ready_views(spark, named_in(sql))
    found = spark.sql(question(spark, sql))
    kinds = [one.dataType for one in found.schema]
    source = found.toLocalIterator() if limit is None else iter(found.limit(limit).collect())
    rows = ([value_of(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in source)
    return Answer([(one.name, one.dataType.simpleString()) for one in found.schema], rows)


def make_ready_views(spark: SparkSession, names: Iterable[str]) -> None:
    """Name views that are ready (`mqttscope.analysis.views`) for SQL; the tables have their names already."""
    for name in names:
        ready = VIEWS[name]
        found = spark.sql(ready.query(SPARK, {one: one for one in ready.tables}))
        columns = (f.col(one).alias(one, metadata={"comment": told}) for one, told in ready.columns.items())
        found.select(*columns).createOrReplaceTempView(name)


def question(spark: SparkSession, sql: str) -> str:
    """The statement, in a form that does no more than ask; `UnknownQueryError` without one.  Nothing is executed.

    Whether it is a query says Spark's parser: what only describes the columns of one takes no other statement.  What
    shows, describes and explains has its comments taken away, so that what is looked at here is what Spark reads.
    """
    program = _RUNS.search(sql)
    if program is not None:
        raise UnknownQueryError(f"{(program[1] or 'using').lower()} runs a program, which a question does not")
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
    """`UnknownQueryError` for what Spark's parser does not take for a query."""
    from pyspark.errors import ParseException, PySparkException

    bare = without_comments(sql)
    # A word alone could be the name of a column to describe: `reset` is no query.
    is_query = _QUERIES.match(bare)
    try:
        spark.sql(f"describe query\n{sql}")
    except ParseException as error:
        does_more = _COMMANDS.match(bare) or (is_query and _CHANGES.search(STRING.sub(" ", bare)))
        one_line_up = re.sub(r"\bline (\d+)", lambda found: f"line {int(found[1]) - 1}", str(error))
        raise UnknownQueryError(NO_QUERY if does_more else one_line_up) from None
    except PySparkException:
        # What else is wrong with it is said when it is asked, with the right places.
        pass
    if not is_query:
        raise UnknownQueryError(NO_QUERY)


def value_of(value: Any, kind: DataType) -> Any:
    """A value of Spark as one of JSON (`mqttscope.analysis.answer.plain`)."""
    from pyspark.sql import types as t

    if value is None:
        return None
    if isinstance(kind, t.StructType):
        return {one.name: value_of(part, one.dataType) for one, part in zip(kind, value, strict=True)}
    if isinstance(kind, t.ArrayType):
        return [value_of(one, kind.elementType) for one in value]
    if isinstance(kind, t.MapType):
        return {str(plain(key)): value_of(one, kind.valueType) for key, one in value.items()}
    # Spark gives the time of this machine's zone without saying so.
    return plain(value.astimezone(UTC) if isinstance(kind, t.TimestampType) else value)
