"""Questions in Spark SQL over the tables of a lake, and their answers as plain values."""

from __future__ import annotations

import os
import re
from datetime import UTC
from typing import TYPE_CHECKING, Any

from mqttscope.analysis.answer import NO_QUERY, STRING, Answer, UnknownQueryError, plain, without_comments
from mqttscope.spark.tables import make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


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
    found = spark.sql(question(spark, sql))
    kinds = [one.dataType for one in found.schema]
    source = found.toLocalIterator() if limit is None else iter(found.limit(limit).collect())
    rows = ([value_of(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in source)
    return Answer([(one.name, one.dataType.simpleString()) for one in found.schema], rows)


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
        raise UnknownQueryError(NO_QUERY if does_more else _one_line_up(str(error))) from None
    except PySparkException:
        # What else is wrong with it is said when it is asked, with the right places.
        pass
    if not is_query:
        raise UnknownQueryError(NO_QUERY)


def _one_line_up(told: str) -> str:
    return re.sub(r"\bline (\d+)", lambda found: f"line {int(found[1]) - 1}", told)


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
