"""DuckDB in this process: the tables of a lake as views, without access to anything else on this machine.

Views follow the manifest of the lake, open connections included, and have all columns of `mqttscope.lake.schemas`
whatever files there are.  SQL can read only the files of the lake.  DuckDB writes only to a temporary folder for rows
that exceed its memory; the folder is removed with the engine.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from mqttscope.analysis.answer import QueryAnswer
from mqttscope.analysis.columns import columns_of, table_names
from mqttscope.analysis.devices import KNOWN, known_captures
from mqttscope.analysis.dialects import DUCKDB, MACROS
from mqttscope.analysis.joins import topic_matches
from mqttscope.analysis.query import ask
from mqttscope.analysis.questions import OF_LAKE, Row, labels
from mqttscope.analysis.shapes import shapes
from mqttscope.analysis.views import VIEWS
from mqttscope.lake.manifest import CHECKED_BYTES, LakeError, Manifest, check_tables, open_lake
from mqttscope.lake.store import Lake, StorePath, place

MEMORY = 1 << 30
"""Default memory for rows, in bytes; more rows go to a folder of temporary files."""


class LakeRelations:
    """The files of one lake as relations of DuckDB."""

    def __init__(self, lake: Lake, manifest: Manifest | None = None) -> None:
        self.place = place(lake)
        self.lake = str(self.place)
        self.manifest = manifest or open_lake(lake)
        self._checked: set[str] = set()

    def check(self, names: Iterable[str]) -> None:
        """Compare files of tables with their checksums; `LakeError` names a file that differs.

        The files of a small lake were compared when the lake was opened.
        """
        wanted = set(names) - self._checked
        if wanted and sum(self.manifest.sizes.get(path, 0) for path in self.manifest.table_files()) > CHECKED_BYTES:
            check_tables(self.place, self.manifest, wanted, most=sys.maxsize)
        self._checked |= wanted

    def allowed(self) -> list[str]:
        """Paths of the files that queries may read; files of an object store are read through pyarrow."""
        return [] if isinstance(self.place, StorePath) else self._paths(sorted(self.manifest.table_files()))

    def rows(self, connection: duckdb.DuckDBPyConnection, name: str, prefix: str = "") -> str:
        """Query for the rows of a table."""
        columns = {column.name: column.type for column in columns_of(name)}
        files = (*self.manifest.files.get(name, ()), *self.manifest.open_files.get(name, ()))
        if not files:
            empty = (_column((), column, column, kind) for column, kind in columns.items())
            return f"select {', '.join(empty)} where false"
        if isinstance(self.place, StorePath):
            return self._fetched(connection, name, files, prefix)
        paths = ", ".join(map(_text, self._paths(files)))
        source = f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
        with _reading(self.lake):
            present = {row[0] for row in connection.execute(f"describe select * from {source}").fetchall()}
        old = _renamed(name) if self.manifest.schema == 1 else {}
        selected = [_column(present, old.get(column, column), column, kind) for column, kind in columns.items()]
        return f"select {', '.join(selected)} from {source}"

    def _paths(self, names: Iterable[str]) -> list[str]:
        return [str(Path(self.lake).resolve() / name) for name in names]

    def _fetched(self, connection: duckdb.DuckDBPyConnection, name: str, files: Iterable[str], prefix: str) -> str:
        """Rows in an object store: pyarrow fetches what a query reads."""
        from mqttscope.lake.files import dataset
        from mqttscope.lake.schemas import TABLES

        source = f"{prefix}files_{name}"
        with _reading(self.lake):
            connection.register(source, dataset([self.place / file for file in files], TABLES[name].arrow()))
        selected = [_column((column.name,), column.name, column.name, column.type) for column in columns_of(name)]
        return f"select {', '.join(selected)} from {source}"


class LocalEngine:
    """DuckDB over one lake or several, a context manager; `LakeError` if a lake does not exist or is damaged.

    Tables and views of several lakes have a first column ``lake``; each view is computed lake by lake.
    """

    words = DUCKDB

    def __init__(
        self,
        lake: Lake,
        manifest: Manifest | None = None,
        *,
        memory: int = MEMORY,
        others: Sequence[tuple[Lake, Manifest | None]] = (),
    ) -> None:
        self._lakes = [LakeRelations(lake, manifest), *(LakeRelations(*other) for other in others)]
        self.lake = ", ".join(each.lake for each in self._lakes)
        self.labels = labels([each.lake for each in self._lakes])
        self.scratch = tempfile.mkdtemp(prefix="mqttscope-duckdb-")
        try:
            self.connection = duckdb.connect()
            self._confine(memory)
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise
        self._tables: set[str] = set()
        self._macros: set[str] = set()
        self._relations: list[tuple[str, str]] = []

    def _confine(self, memory: int) -> None:
        files = [path for each in self._lakes for path in each.allowed()]
        with suppress(duckdb.InvalidInputException):
            # A notebook without the widgets to draw it cannot even switch it off.
            self.connection.execute("set enable_progress_bar = false")
        for setting, value in {
            "memory_limit": f"'{memory}B'",
            "temp_directory": _text(self.scratch),
            "TimeZone": "'UTC'",
            "parquet_metadata_cache": "true",
            # SQL reads no Python variables, fetches no functions from the network, and opens only files of the lake.
            "python_enable_replacements": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allowed_paths": f"[{', '.join(map(_text, files))}]",
            "enable_external_access": "false",
            "lock_configuration": "true",
        }.items():
            self.connection.execute(f"set {setting} = {value}")

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()
        self.remove_scratch()

    def remove_scratch(self) -> None:
        """Remove the temporary files; for a process that ends during a query."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def check(self, names: Iterable[str]) -> None:
        """Compare files of tables with their checksums; `LakeError` names a file that differs."""
        names = list(names)
        for each in self._lakes:
            each.check(names)

    def make_views(self, names: Iterable[str] | None = None) -> None:
        """Create views of these tables or ready-made views for SQL; without names, of all tables."""
        if "topic_matches" not in self._macros:
            self._macros.add("topic_matches")
            matches = topic_matches(self.words, "topic", "topic_filter")
            self.connection.execute(f"create temp macro topic_matches(topic, topic_filter) as {matches}")
        for name in table_names() if names is None else names:
            if name in self._tables:
                continue
            ready = VIEWS.get(name)
            if ready is not None:
                self.check(ready.tables)
                self.make_views(ready.tables)
            parts = []
            for number, each in enumerate(self._lakes):
                prefix = f"lake_{number}_" if len(self._lakes) > 1 else ""
                if ready is None:
                    query = each.rows(self.connection, name, prefix)
                else:
                    known = {KNOWN: known_captures(self.words, each.manifest)}
                    query = ready.query(self.words, {table: f"{prefix}{table}" for table in ready.tables} | known)
                    # Only the macros that it calls: a user's functions in the query keep their meaning.
                    self._make_macros(used=query)
                self.connection.execute(f"create temp view {prefix}{name} as {query}")
                parts.append(f"select {_text(self.labels[number])} as lake, * from {prefix}{name}")
            if len(parts) > 1:
                self.connection.execute(f"create temp view {name} as {' union all '.join(parts)}")
            self._tables.add(name)

    def _make_macros(self, used: str | None = None) -> None:
        """Define Spark's functions; ``used``: only the functions that this query calls."""
        for macro in MACROS:
            called = macro.partition("(")[0]
            if called not in self._macros and (used is None or re.search(rf"\b{called}\(", used)):
                self.connection.execute(f"create temp macro {macro}")
                self._macros.add(called)

    def table(self, name: str) -> str:
        """The view of a table."""
        self._make_macros()
        self.check([name])
        self.make_views([name])
        if len(self._lakes) == 1:
            return name
        # A server is one of its lake: sites may use the same addresses.
        of_lake = [column.name for column in columns_of(name) if column.name in OF_LAKE]
        named = ", ".join(f"concat(lake, ': ', {column}) as {column}" for column in of_lake)
        return f"(select * replace ({named}) from {name})"

    def view(self, query: str, *, cached: bool = False) -> str:
        """Relation with the rows of a query, until `answer`; with ``cached`` it is computed once."""
        return self._make("table" if cached else "view", query)

    def _make(self, kind: str, query: str, *values: Any) -> str:
        name = f"part_{len(self._relations)}"
        self.connection.execute(f"create temp {kind} {name} as {query}", values)
        self._relations.append((kind, name))
        return name

    def shapes(self, relation: str) -> str:
        """Shapes are computed in Python: DuckDB's regular expressions cannot look around."""
        query = f"select distinct client_identifier from {relation} where client_identifier is not null"
        names = [row[0] for row in self.connection.execute(query).fetchall()]
        rows = "select cast(unnest(?) as varchar) as client_identifier, cast(unnest(?) as varchar) as shape"
        return self._make("table", rows, names, shapes(names))

    def answer(self, questions: Mapping[str, str]) -> dict[str, list[Row]]:
        """Rows of queries by name; discards all views."""
        answers = {name: self.rows(query) for name, query in questions.items()}
        for kind, name in reversed(self._relations):
            self.connection.execute(f"drop {kind} {name}")
        self._relations.clear()
        return answers

    def ask(self, sql: str, limit: int | None = None) -> QueryAnswer:
        """Run a user's query (`mqttscope.analysis.query`)."""
        return ask(self, sql, limit)

    def rows(self, query: str) -> list[Row]:
        done = self.connection.execute(query)
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


@contextmanager
def _reading(lake: str) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, OSError) as error:
        why = str(error).strip().split("\n")[0]
        raise LakeError(f"{lake} cannot be read: the lake is damaged ({why})") from None


def _renamed(name: str) -> Mapping[str, str]:
    from mqttscope.lake.schemas import RENAMED

    return RENAMED.get(name, {})


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _column(present: Collection[str], name: str, today: str, kind: str) -> str:
    """A column of the files under its present name and type; files of earlier releases may lack it or a part of it."""
    return f"cast({_quoted(name) if name in present else 'null'} as {kind}) as {_quoted(today)}"


def _quoted(name: str) -> str:
    return f'"{name}"'
