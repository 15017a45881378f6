"""What a user's question in SQL may be, and the values of its answer, whatever engine gives it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from mqttscope.errors import MqttscopeError

NO_QUERY = "the statement does more than ask: only queries are answered"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
STRING = re.compile(_QUOTED, re.S)
_TOKEN = re.compile(_QUOTED + r"""|--(?:\\\n|[^\r\n])*|[^-'"`/]+|.""", re.S)
"""A string, a name in quotes, a comment up to the end of its line, or anything else."""


class UnknownQueryError(MqttscopeError, ValueError):
    """A statement that does more than ask, or that the engine cannot take or parse."""


@dataclass(slots=True)
class Answer:
    """Columns with their types in SQL, and rows of plain values."""

    columns: list[tuple[str, str]]
    rows: Iterator[list[Any]]


def without_comments(sql: str) -> str:
    """A statement without its comments, which may be nested, and without space around it; hints stay.

    `UnknownQueryError` for text that is no Unicode: engines cannot be given it.
    """
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise UnknownQueryError("the question is not UTF-8, or the locale is not (LC_ALL, PYTHONUTF8)") from None
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


def plain(value: Any) -> Any:
    """A value of Python as one of JSON.

    Times are text, those of a time zone in UTC; bytes are objects with ``length`` and ``hex``; a decimal keeps its
    digits; other types, such as intervals and variants, become text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return {"length": len(value), "hex": bytes(value).hex()}
    if isinstance(value, dict):
        return {str(plain(name)): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime):
        told = value if value.tzinfo is None else value.astimezone(UTC)
        return told.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)
    return str(value)
