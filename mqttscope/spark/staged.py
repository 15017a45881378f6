"""Long queries in stages: each common table expression that a query uses more than once becomes a stored result.

Spark replaces every use of a common table expression by its text.  Where such expressions use each other, the plan
doubles with each of them: a query of twenty exhausts the memory of the driver before it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY = 8
"""Least number of expressions of a query that is run in stages."""
_NAME = re.compile(r"\s*(?:with\s+|,\s*)(\w+)\s+as\s*\(", re.I)


@contextmanager
def staged(spark: SparkSession, query: str, prefix: str) -> Iterator[DataFrame]:
    """A context with the result of a query: make a view of it before the context ends.

    ``prefix`` begins the names of the temporary views of its stages; they are dropped then.
    """
    expressions, rest = divide(query)
    if len(expressions) < MANY:
        yield spark.sql(query)
        return
    stored: dict[str, str] = {}
    """Names of the stored expressions, with their views."""
    plain: dict[str, str] = {}
    """Texts of the other ones."""
    texts = [*expressions.values(), rest]
    for name, body in expressions.items():
        later = texts[texts.index(body) + 1 :]
        if sum(len(re.findall(rf"\b(?:from|join)\s+{name}\b", text, re.I)) for text in later) > 1:
            stored[name] = f"{prefix}_{name}"
            spark.sql(_with(body, plain, stored)).localCheckpoint(eager=False).createOrReplaceTempView(stored[name])
        else:
            plain[name] = body
    try:
        yield spark.sql(_with(rest, plain, stored))
    finally:
        for view in stored.values():
            spark.catalog.dropTempView(view)


def divide(query: str) -> tuple[dict[str, str], str]:
    """The common table expressions at the beginning of a query by name, and the query after them."""
    expressions: dict[str, str] = {}
    position = 0
    while (begin := _NAME.match(query, position)) is not None:
        end = _closing(query, begin.end())
        expressions[begin[1]] = query[begin.end() : end]
        position = end + 1
    return expressions, query[position:]


def _closing(query: str, position: int) -> int:
    """Position of the parenthesis that closes the one before ``position``; text in quotation marks is skipped."""
    depth, quoted = 1, False
    while True:
        character = query[position]
        if character == "'":
            quoted = not quoted
        elif not quoted:
            depth += (character == "(") - (character == ")")
        if not depth:
            return position
        position += 1


def _with(body: str, plain: dict[str, str], stored: dict[str, str]) -> str:
    """A query with the expressions that it uses, in their order."""
    used: dict[str, str] = {}
    for name in reversed(plain):
        if any(re.search(rf"\b{name}\b", text) for text in (body, *used.values())):
            used[name] = plain[name]
    views = {
        name: f"select * from {view}"
        for name, view in stored.items()
        if any(re.search(rf"\b{name}\b", text) for text in (body, *used.values()))
    }
    parts = [f"{name} as ({text})" for name, text in (*views.items(), *reversed(used.items()))]
    # A query with expressions of its own keeps them in parentheses.
    return f"with {', '.join(parts)} select * from ({body})" if parts else body
