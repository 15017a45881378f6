"""DuckDB in this process: the tables of a lake as views, and nothing else of this machine.

Views follow the manifest of the lake, open connections included, and have all columns of `mqttscope.lake.schemas`
whatever files there are.  The files of the lake are all that SQL can read; it writes nowhere but in a folder for what
does not fit into memory, which goes away with the engine.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from mqttscope.analysis.answer import Answer
from mqttscope.analysis.columns import columns_of, table_names
from mqttscope.analysis.dialects import DUCKDB, MACROS
from mqttscope.analysis.query import ask
from mqttscope.analysis.questions import Row
from mqttscope.analysis.shapes import shape
from mqttscope.analysis.views import VIEWS
from mqttscope.lake.manifest import CHECKED_BYTES, LakeError, Manifest, check_tables, open_lake
from mqttscope.lake.store import Lake, StorePath, place

MEMORY = 1 << 30
"""Bytes of memory for rows, unless it is said otherwise; what needs more goes to a folder of temporary files."""


class LocalEngine:
    """DuckDB over one lake; `LakeError` where there is no lake, or it is damaged.  Leave it as a context."""

    words = DUCKDB

    def __init__(self, lake: Lake, manifest: Manifest | None = None, *, memory: int = MEMORY) -> None:
        self.place = place(lake)
        self.lake = str(self.place)
        self.manifest = manifest or open_lake(lake)
        self.scratch = tempfile.mkdtemp(prefix="mqttscope-duckdb-")
        try:
            self.connection = duckdb.connect()
            self._confine(memory)
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise
        self._tables: set[str] = set()
        self._checked: set[str] = set()
        self._macros: set[str] = set()
        self._made: list[tuple[str, str]] = []

    def _confine(self, memory: int) -> None:
        # Those of a store come through pyarrow.
        files = [] if isinstance(self.place, StorePath) else self._paths(sorted(self.manifest.table_files()))
        with suppress(duckdb.InvalidInputException):
            # In a notebook that lacks what would draw it, it cannot even be switched off.
            self.connection.execute("set enable_progress_bar = false")
        for setting, value in {
            "memory_limit": f"'{memory}B'",
            "temp_directory": _text(self.scratch),
            "TimeZone": "'UTC'",
            "parquet_metadata_cache": "true",
            # Names of tables are no variables of Python, functions are not fetched from the network, and files are
            # those of the lake.
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
        """Take the temporary files away; for a process that is ended in the middle of a query."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def check(self, names: Iterable[str]) -> None:
        """Compare files of tables with their checksums; `LakeError` names one that differs.

        Those of small lakes were compared when the lake was opened.
        """
        wanted = set(names) - self._checked
        if wanted and sum(self.manifest.sizes.get(one, 0) for one in self.manifest.table_files()) > CHECKED_BYTES:
            check_tables(self.place, self.manifest, wanted, most=sys.maxsize)
        self._checked |= wanted

    def make_views(self, names: Iterable[str] | None = None) -> None:
        """Name tables for SQL, and views that are ready; all tables if it is not said which."""
        for name in table_names() if names is None else names:
            if name in self._tables:
                continue
            ready = VIEWS.get(name)
            if ready is None:
                made = self._rows(name)
            else:
                self.check(ready.tables)
                self.make_views(ready.tables)
                made = ready.query(self.words, {one: one for one in ready.tables})
                # No others: what a user asks in the same statement keeps its meaning.
                self._make_macros(used=made)
            self.connection.execute(f"create temp view {name} as {made}")
            self._tables.add(name)

    def _make_macros(self, used: str | None = None) -> None:
        """Give functions of Spark their names; ``used``: only those that this query calls."""
        for macro in MACROS:
            called = macro.partition("(")[0]
            if called not in self._macros and (used is None or re.search(rf"\b{called}\(", used)):
                self.connection.execute(f"create temp macro {macro}")
                self._macros.add(called)

    def _rows(self, name: str) -> str:
        columns = {one.name: one.type for one in columns_of(name)}
        files = (*self.manifest.files.get(name, ()), *self.manifest.open_files.get(name, ()))
        if not files:
            return f"select {', '.join(_column((), one, one, kind) for one, kind in columns.items())} where false"
        if isinstance(self.place, StorePath):
            return self._fetched(name, files)
        paths = ", ".join(map(_text, self._paths(files)))
        source = f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
        with _reading(self.lake):
            found = {row[0] for row in self.connection.execute(f"describe select * from {source}").fetchall()}
        old = _renamed(name) if self.manifest.schema == 1 else {}
        told = [_column(found, old.get(one, one), one, kind) for one, kind in columns.items()]
        return f"select {', '.join(told)} from {source}"

    def _paths(self, names: Iterable[str]) -> list[str]:
        return [str(Path(self.lake).resolve() / one) for one in names]

    def _fetched(self, name: str, files: Iterable[str]) -> str:
        """Rows of a store: pyarrow fetches what a query asks for."""
        from mqttscope.lake.files import dataset
        from mqttscope.lake.schemas import TABLES

        source = f"files_{name}"
        with _reading(self.lake):
            self.connection.register(source, dataset([self.place / one for one in files], TABLES[name].arrow()))
        told = [_column((one.name,), one.name, one.name, one.type) for one in columns_of(name)]
        return f"select {', '.join(told)} from {source}"

    def table(self, name: str) -> str:
        """The view of a table."""
        self._make_macros()
        self.check([name])
        self.make_views([name])
        return name

    def view(self, query: str, *, kept: bool = False) -> str:
        """A relation for the rows of a query, until they are forgotten; ``kept``: it is computed once."""
        return self._make("table" if kept else "view", query)

    def _make(self, kind: str, query: str, *values: Any) -> str:
        name = f"part_{len(self._made)}"
        self.connection.execute(f"create temp {kind} {name} as {query}", values)
        self._made.append((kind, name))
        return name

    def shapes(self, relation: str) -> str:
        """Shapes are made in Python: DuckDB has no regular expressions that look around."""
        query = f"select distinct client_identifier from {relation} where client_identifier is not null"
        names = [row[0] for row in self.connection.execute(query).fetchall()]
        made = "select cast(unnest(?) as varchar) as client_identifier, cast(unnest(?) as varchar) as shape"
        return self._make("table", made, names, list(map(shape, names)))

    def answer(self, questions: Mapping[str, str]) -> dict[str, list[Row]]:
        """The rows of queries by their names; forgets all views."""
        found = {name: self.rows(query) for name, query in questions.items()}
        for kind, name in reversed(self._made):
            self.connection.execute(f"drop {kind} {name}")
        self._made.clear()
        return found

    def ask(self, sql: str, limit: int | None = None) -> Answer:
        """Ask what a user wrote (`mqttscope.analysis.query`)."""
        return ask(self, sql, limit)

    def rows(self, query: str) -> list[Row]:
        done = self.connection.execute(query)
        names = [one[0] for one in done.description or ()]
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


def _column(found: Collection[str], name: str, today: str, kind: str) -> str:
    """A column of files as it is today: those of an earlier release may lack it, or some of what is in it."""
    return f"cast({_quoted(name) if name in found else 'null'} as {kind}) as {_quoted(today)}"


def _quoted(name: str) -> str:
    return f'"{name}"'
