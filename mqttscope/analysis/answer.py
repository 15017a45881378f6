"""SQL queries that a user may write, and the values of their answers, for any engine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from mqttscope.errors import MqttscopeError

NO_QUERY = "the statement is not a query; only queries are answered"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
STRING = re.compile(_QUOTED, re.S)
_TOKEN = re.compile(_QUOTED + r"""|--(?:\\\n|[^\r\n])*|[^-'"`/]+|.""", re.S)
"""A string, a name in quotes, a comment up to the end of its line, or anything else."""


class UnknownQueryError(MqttscopeError, ValueError):
    """A statement that is not a query, or that the engine cannot parse or run."""


@dataclass(slots=True)
class QueryAnswer:
    """Columns with their SQL types, and rows of plain values."""

    columns: list[tuple[str, str]]
    rows: Iterator[list[Any]]


def without_comments(sql: str) -> str:
    """A statement without comments, which may be nested, and without space around it; hints stay.

    Raises `UnknownQueryError` if the text cannot be encoded as UTF-8, which engines require.
    """
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UnknownQueryError("the question is not UTF-8, or the locale is not (LC_ALL, PYTHONUTF8)") from None
    parts, place = [], 0
    while place < len(sql):
        if sql.startswith("/*", place) and not sql.startswith("/*+", place):
            parts.append(" ")
            place = _behind_comment(sql, place)
            continue
        token = _TOKEN.match(sql, place)
        assert token is not None
        parts.append(" " if token[0].startswith("--") else token[0])
        place = token.end()
    return "".join(parts).strip()


def _behind_comment(sql: str, place: int) -> int:
    depth = 0
    for delimiter in re.compile(r"/\*|\*/").finditer(sql, place):
        depth += 1 if delimiter[0] == "/*" else -1
        if depth == 0:
            return delimiter.end()
    return len(sql)


def plain(value: Any) -> Any:
    """A Python value as a JSON value.

    Times are text, in UTC if they have a time zone; bytes are objects with ``length`` and ``hex``; a decimal keeps its
    digits; other types, such as intervals and variants, become text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return {"length": len(value), "hex": bytes(value).hex()}
    if isinstance(value, dict):
        return {str(plain(name)): plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, datetime):
        timestamp = value if value.tzinfo is None else value.astimezone(UTC)
        return timestamp.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)
    return str(value)
