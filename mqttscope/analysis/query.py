"""Queries in DuckDB's SQL over the tables of a lake, and their errors in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

import duckdb

from mqttscope.analysis.answer import NO_QUERY, QueryAnswer, UnknownQueryError, plain, without_comments
from mqttscope.analysis.columns import columns_of, table_names
from mqttscope.analysis.views import VIEWS, named_in

_DESCRIBED = re.compile(r"(?:describe|desc)\s+(?:table\s+)?(\w+)\s*;?", re.I)
_EXPLAIN = re.compile(r"explain\b\s*(?:analyze\b)?\s*(?:\((?:\s*\w+(?:\s+\w+)?\s*,?)*\)(?=\s*\w))?", re.I)
_BROKEN = re.compile(r"(?:'files_(\w+)' failed|arrow_scan: get_next failed\(\)): \w+: ([^\n]*)")
"""DuckDB's error when pyarrow cannot read a table of an object store; DuckDB 1.4 does not name the table."""
_PIECE = 1_000
"""Number of rows fetched at a time."""


class QueryTables(Protocol):
    """A connection to the tables of a lake (`mqttscope.analysis.local`)."""

    connection: duckdb.DuckDBPyConnection
    labels: list[str]
    """Names of the lakes; with several, rows have a column ``lake``."""

    def check(self, names: Iterable[str]) -> None:
        """Raise `LakeError` if files of these tables differ from what was written."""
        ...

    def make_views(self, names: Iterable[str] | None = None) -> None:
        """Create views of these tables or ready-made views for SQL; without names, of all tables."""
        ...


def is_query_error(error: BaseException) -> bool:
    """Whether the query is wrong, not the files or the machine."""
    wrong = duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.PermissionException
    return isinstance(error, wrong) and _BROKEN.search(str(error)) is None


def ask(engine: QueryTables, sql: str, limit: int | None = None) -> QueryAnswer:
    """Run a query; each table is a view with its name.  ``limit``: maximum number of rows.

    Values are text, numbers, booleans, lists and objects; times are text in UTC, bytes objects with ``length`` and
    ``hex``, as in JSON Lines.  Types have Spark's names.  Raises DuckDB's errors, and `UnknownQueryError` for a
    statement that is not a query.
    """
    bare = without_comments(sql)
    described = _DESCRIBED.fullmatch(bare)
    if described is not None and described[1].lower() in (*table_names(), *VIEWS):
        return _described(engine, described[1].lower(), limit)
    explained = prepare(engine, sql)
    done = engine.connection.execute(sql)
    if explained:
        lines = (line for row in done.fetchall() for line in str(row[-1]).splitlines())
        return QueryAnswer([("plan", "string")], ([line] for line in islice(lines, limit)))
    columns = [(column[0], type_name(column[1])) for column in done.description or ()]
    return QueryAnswer(columns, _rows(done, limit))


def prepare(engine: QueryTables, sql: str) -> bool:
    """Create the views of a query; return whether to explain it.  `UnknownQueryError` if it is not a query."""
    bare = without_comments(sql)
    _check(engine.connection, sql)
    explained = _EXPLAIN.match(bare)
    if explained is not None:
        _check(engine.connection, bare[explained.end() :])
    engine.check(_tables(sql))
    engine.make_views()
    engine.make_views(named_in(bare))
    return explained is not None


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise `UnknownQueryError` unless the text is one query.  Nothing is executed."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UnknownQueryError("the query is empty" if not statements else "only one statement is answered")
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise UnknownQueryError(NO_QUERY)


def _tables(sql: str) -> list[str]:
    """QueryTables of the lake that a query names; all tables if DuckDB cannot parse it."""
    with duckdb.connect() as empty:
        try:
            named = empty.get_table_names(sql)
        except duckdb.Error:
            return table_names()
    return [name for name in table_names() if name in {reference.lower() for reference in named}]


def _rows(done: duckdb.DuckDBPyConnection, limit: int | None) -> Iterator[list[Any]]:
    left = limit
    while left is None or left > 0:
        batch = done.fetchmany(_PIECE if left is None else min(_PIECE, left))
        if not batch:
            return
        for row in batch:
            yield [plain(value) for value in row]
        if left is not None:
            left -= len(batch)


def _described(engine: QueryTables, name: str, limit: int | None) -> QueryAnswer:
    """The columns of a table or a view with their meanings, which DuckDB does not show."""
    names = [(title, "string") for title in ("col_name", "data_type", "comment")]
    described: list[tuple[str, Any, str]]
    if name in VIEWS or len(engine.labels) > 1:
        engine.make_views([name])
        done = engine.connection.execute(f"select * from {name} limit 0")
        of_table = {column.name: column.meaning for column in columns_of(name)} if name not in VIEWS else {}
        meanings = {"lake": "name of the lake", **of_table, **(VIEWS[name].columns if name in VIEWS else {})}
        described = [(column[0], column[1], meanings[column[0]]) for column in done.description or ()]
    else:
        with duckdb.connect() as empty:
            described = [(column.name, empty.sqltype(column.type), column.meaning) for column in columns_of(name)]
    rows = ([column, type_name(kind), meaning or None] for column, kind, meaning in described[:limit])
    return QueryAnswer(names, rows)


_NAMES = {
    "varchar": "string", "blob": "binary", "integer": "int", "timestamp": "timestamp_ntz", "hugeint": "decimal(38,0)",
    "timestamp with time zone": "timestamp", '"null"': "void",
}  # fmt: skip


def type_name(kind: Any) -> str:
    """Spark's name of a DuckDB type, so that answers do not depend on the engine."""
    if kind.id == "list":
        return f"array<{type_name(kind.children[0][1])}>"
    if kind.id == "map":
        return f"map<{','.join(type_name(child) for _, child in kind.children)}>"
    if kind.id == "struct":
        return f"struct<{','.join(f'{name}:{type_name(child)}' for name, child in kind.children)}>"
    duckdb_name = str(kind).lower()
    return _NAMES.get(duckdb_name, duckdb_name)


def sentence(error: BaseException) -> str:
    """DuckDB's error message in one line, without the kind of error, with the position in the query."""
    text = str(error).strip()
    broken = _BROKEN.search(text)
    if broken is not None:
        table = f"the table {broken[1]}" if broken[1] else "a table"
        return f"{table} cannot be read: the lake is damaged, or its store cannot be reached ({broken[2]})"
    if isinstance(error, duckdb.PermissionException):
        return "a query can read only the tables of the lake, not files"
    head, _, drawn = text.partition("\n\nLINE ")
    lines = [line.strip() for line in head.splitlines() if line.strip()] or ["DuckDB failed without a message"]
    first = re.sub(r"^[A-Z][\w ]*? Error: ", "", lines[0]).rstrip(" !.")
    hints = [re.sub(r"[!?.]+$", "", line) for line in lines[1:] if re.match(r"Did you mean|Candidate bindings", line)]
    place = re.match(r"(\d+):", drawn)
    where = [f"line {place[1]}"] if place else []
    extra = "; ".join([*where, *(f"{hint[0].lower()}{hint[1:]}" for hint in hints)])
    return first + (f" ({extra})" if extra else "")
