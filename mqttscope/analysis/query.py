"""Questions in the SQL of DuckDB over the tables of a lake; what goes wrong, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

import duckdb

from mqttscope.analysis.answer import NO_QUERY, Answer, UnknownQueryError, plain, without_comments
from mqttscope.analysis.columns import columns_of, table_names
from mqttscope.analysis.views import VIEWS, named_in

_DESCRIBED = re.compile(r"(?:describe|desc)\s+(?:table\s+)?(\w+)\s*;?", re.I)
_EXPLAIN = re.compile(r"explain\b\s*(?:analyze\b)?\s*(?:\((?:\s*\w+(?:\s+\w+)?\s*,?)*\)(?=\s*\w))?", re.I)
_BROKEN = re.compile(r"(?:'files_(\w+)' failed|arrow_scan: get_next failed\(\)): \w+: ([^\n]*)")
"""What DuckDB says where pyarrow cannot read a table of a store (`mqttscope.analysis.local`); 1.4 names no table."""
_PIECE = 1_000
"""Rows that are fetched at a time."""


class Tables(Protocol):
    """A connection that has the tables of a lake (`mqttscope.analysis.local`)."""

    connection: duckdb.DuckDBPyConnection

    def check(self, names: Iterable[str]) -> None:
        """`LakeError` where the files of tables are not what was written."""
        ...

    def make_views(self, names: Iterable[str] | None = None) -> None:
        """Name tables for SQL, and views that are ready; all tables if it is not said which."""
        ...


def is_of_query(error: BaseException) -> bool:
    """Whether it is the query that is wrong, and not the files or the machine that it was run on."""
    wrong = duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError, duckdb.PermissionException
    return isinstance(error, wrong) and _BROKEN.search(str(error)) is None


def ask(engine: Tables, sql: str, limit: int | None = None) -> Answer:
    """Ask in SQL; tables are views of their names.  ``limit``: rows of the answer at most.

    Values are text, numbers, booleans, lists and objects; times are text in UTC, bytes objects with ``length`` and
    ``hex``, as in JSON Lines.  Types have the names that Spark gives them.  `UnknownQueryError` for what is no
    query; raises what DuckDB raises.
    """
    bare = without_comments(sql)
    described = _DESCRIBED.fullmatch(bare)
    if described is not None and described[1].lower() in (*table_names(), *VIEWS):
        return _described(engine, described[1].lower(), limit)
    explained = prepare(engine, sql)
    done = engine.connection.execute(sql)
    if explained:
        lines = (line for row in done.fetchall() for line in str(row[-1]).splitlines())
        return Answer([("plan", "string")], ([line] for line in islice(lines, limit)))
    columns = [(one[0], type_name(one[1])) for one in done.description or ()]
    return Answer(columns, _rows(done, limit))


def prepare(engine: Tables, sql: str) -> bool:
    """Name what a query may ask of; returns whether it is to be explained.  `UnknownQueryError` without a query."""
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
    """`UnknownQueryError` for what is not one query.  Nothing is executed."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UnknownQueryError("there is no statement" if not statements else "only one statement is answered")
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise UnknownQueryError(NO_QUERY)


def _tables(sql: str) -> list[str]:
    """Tables of the lake that a query names; all of them where DuckDB cannot tell."""
    with duckdb.connect() as empty:
        try:
            named = empty.get_table_names(sql)
        except duckdb.Error:
            return table_names()
    return [name for name in table_names() if name in {one.lower() for one in named}]


def _rows(done: duckdb.DuckDBPyConnection, limit: int | None) -> Iterator[list[Any]]:
    left = limit
    while left is None or left > 0:
        found = done.fetchmany(_PIECE if left is None else min(_PIECE, left))
        if not found:
            return
        for row in found:
            yield [plain(value) for value in row]
        if left is not None:
            left -= len(found)


def _described(engine: Tables, name: str, limit: int | None) -> Answer:
    """The columns of a table or a view with their meanings, which DuckDB does not show."""
    names = [(one, "string") for one in ("col_name", "data_type", "comment")]
    found: list[tuple[str, Any, str]]
    if name in VIEWS:
        engine.make_views([name])
        done = engine.connection.execute(f"select * from {name} limit 0")
        found = [(one[0], one[1], VIEWS[name].columns[one[0]]) for one in done.description or ()]
    else:
        with duckdb.connect() as empty:
            found = [(one.name, empty.sqltype(one.type), one.meaning) for one in columns_of(name)]
    rows = ([column, type_name(kind), meaning or None] for column, kind, meaning in found[:limit])
    return Answer(names, rows)


_NAMES = {
    "varchar": "string", "blob": "binary", "integer": "int", "timestamp": "timestamp_ntz", "hugeint": "decimal(38,0)",
    "timestamp with time zone": "timestamp", '"null"': "void",
}  # fmt: skip


def type_name(kind: Any) -> str:
    """A type of DuckDB by the name that Spark has for it, so that an answer does not tell which engine gave it."""
    if kind.id == "list":
        return f"array<{type_name(kind.children[0][1])}>"
    if kind.id == "map":
        return f"map<{','.join(type_name(one) for _, one in kind.children)}>"
    if kind.id == "struct":
        return f"struct<{','.join(f'{name}:{type_name(one)}' for name, one in kind.children)}>"
    told = str(kind).lower()
    return _NAMES.get(told, told)


def sentence(error: BaseException) -> str:
    """DuckDB's message about an error without the name of its kind, in one line, with the place in the query."""
    told = str(error).strip()
    broken = _BROKEN.search(told)
    if broken is not None:
        table = f"the table {broken[1]}" if broken[1] else "a table"
        return f"{table} cannot be read: the lake is damaged, or its store cannot be reached ({broken[2]})"
    if isinstance(error, duckdb.PermissionException):
        return "a question reads the tables of the lake alone, and no file by its name"
    head, _, drawn = told.partition("\n\nLINE ")
    lines = [line.strip() for line in head.splitlines() if line.strip()] or ["DuckDB failed without a word"]
    first = re.sub(r"^[A-Z][\w ]*? Error: ", "", lines[0]).rstrip(" !.")
    hints = [re.sub(r"[!?.]+$", "", line) for line in lines[1:] if re.match(r"Did you mean|Candidate bindings", line)]
    place = re.match(r"(\d+):", drawn)
    where = [f"line {place[1]}"] if place else []
    extra = "; ".join([*where, *(f"{one[0].lower()}{one[1:]}" for one in hints)])
    return first + (f" ({extra})" if extra else "")
