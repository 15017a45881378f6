"""Questions in SQL over the tables of a lake, and their answers as plain values."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mqttscope.errors import MqttscopeError
from mqttscope.spark.tables import make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


_RUNS = re.compile(r"\b(java_method|try_reflect|reflect)`?\s*(?:\(|/\*|--)|\busing\s*(?:r?['\"]|/\*|--)", re.I)
"""Functions that call Java, and what names a script; a comment in between hides nothing."""
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
_STRING = re.compile(_QUOTED, re.S)
_TOKEN = re.compile(_QUOTED + r"""|--(?:\\\n|[^\r\n])*|[^-'"`/]+|.""", re.S)
"""A string, a name in quotes, a comment up to the end of its line, or anything else."""
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
_NO_QUERY = "the statement does more than ask: only queries are answered"


class UnknownQueryError(MqttscopeError, ValueError):
    """A statement that does more than ask, or that Spark cannot parse."""


@dataclass(slots=True)
class Answer:
    """Columns with their types in SQL, and rows of plain values."""

    columns: list[tuple[str, str]]
    rows: Iterator[list[Any]]


def ask(spark: SparkSession, lake: str | os.PathLike[str], sql: str, limit: int | None = None) -> Answer:
    """Ask in SQL; tables are views of their names.  ``limit``: rows of the answer at most.

    Values are text, numbers, booleans, lists and objects; times are text in UTC, bytes objects with ``length`` and
    ``hex``, as in JSON Lines.  Raises what Spark raises, `LakeError` where there is no lake.
    """
    make_views(spark, lake)
    found = spark.sql(question(spark, sql))
    kinds = [one.dataType for one in found.schema]
    source = found.toLocalIterator() if limit is None else iter(found.limit(limit).collect())
    rows = ([plain(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in source)
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
        does_more = _COMMANDS.match(bare) or (is_query and _CHANGES.search(_STRING.sub(" ", bare)))
        raise UnknownQueryError(_NO_QUERY if does_more else _one_line_up(str(error))) from None
    except PySparkException:
        # What else is wrong with it is said when it is asked, with the right places.
        pass
    if not is_query:
        raise UnknownQueryError(_NO_QUERY)


def without_comments(sql: str) -> str:
    """A statement without its comments, which may be nested, and without space around it; hints stay."""
    kept, place = [], 0
    while place < len(sql):
        if sql.startswith("/*", place) and not sql.startswith("/*+", place):
            kept.append(" ")
            place = _behind_comment(sql, place)
            continue
        found = _TOKEN.match(sql, place)
        assert found is not None
        kept.append(" " if found[0].startswith("--") else found[0])
        place = found.end()
    return "".join(kept).strip()


def _behind_comment(sql: str, place: int) -> int:
    depth = 0
    for one in re.compile(r"/\*|\*/").finditer(sql, place):
        depth += 1 if one[0] == "/*" else -1
        if depth == 0:
            return one.end()
    return len(sql)


def _one_line_up(told: str) -> str:
    return re.sub(r"\bline (\d+)", lambda found: f"line {int(found[1]) - 1}", told)


def plain(value: Any, kind: DataType) -> Any:
    """A value of Spark as one of JSON."""
    from pyspark.sql import types as t

    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return {"length": len(value), "hex": bytes(value).hex()}
    if isinstance(kind, t.StructType):
        return {one.name: plain(part, one.dataType) for one, part in zip(kind, value, strict=True)}
    if isinstance(kind, t.ArrayType):
        return [plain(one, kind.elementType) for one in value]
    if isinstance(kind, t.MapType):
        return {str(plain(key, kind.keyType)): plain(one, kind.valueType) for key, one in value.items()}
    if isinstance(value, datetime):
        # Spark gives the time of this machine's zone without saying so.
        told = value.astimezone(UTC) if isinstance(kind, t.TimestampType) else value
        return told.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else _number(value)


def _number(value: Any) -> Any:
    """A decimal keeps its digits; other types, such as intervals and variants, become text."""
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)
    return str(value)
