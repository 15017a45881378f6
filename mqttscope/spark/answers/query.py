"""Questions in SQL over the tables of a lake, and their answers as plain values."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mqttscope.spark.tables import make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


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
    found = spark.sql(sql)
    kinds = [one.dataType for one in found.schema]
    source = found.toLocalIterator() if limit is None else iter(found.limit(limit).collect())
    rows = ([plain(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in source)
    return Answer([(one.name, one.dataType.simpleString()) for one in found.schema], rows)


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
    """A decimal keeps its digits; whatever else there is, intervals and variants, is told as text."""
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)
    return str(value)
