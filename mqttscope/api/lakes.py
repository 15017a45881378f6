"""A lake as a program or a notebook reads it: tables and views as Arrow, pandas, Polars and DuckDB.

``mqttscope.lake.open`` gives a `Lake`, which is one generation of the lake: what an ingest commits meanwhile is seen by
who opens it again.  Nothing is loaded before it is asked for: tables need pyarrow, views and SQL duckdb.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from mqttscope import arguments
from mqttscope.analysis.columns import columns_of, table_names
from mqttscope.api.errors import optional_package
from mqttscope.errors import ArgumentError
from mqttscope.lake.manifest import LakeError, open_lake
from mqttscope.lake.store import StorePath, place

if TYPE_CHECKING:
    import os

    import pandas
    import polars
    import pyarrow
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from mqttscope.analysis.local import LocalEngine

    Path = str | os.PathLike[str]


class Relation:
    """The rows of a table, of a view or of an answer, in the form that is asked for.  Nothing is read before that."""

    def __init__(self, lake: Lake, name: str | None, query: str) -> None:
        self._lake = lake
        self._name = name
        self._query = query

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order."""
        if self._is_table:
            return [one.name for one in columns_of(str(self._name))]
        return list(self.to_duckdb().columns)

    @property
    def _is_table(self) -> bool:
        return self._name in table_names()

    def to_arrow(self, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """All rows as a `pyarrow.Table`; ``columns``: only these, in this order.

        `MissingPackageError` without pyarrow, `ArgumentError` for a column that there is not.
        """
        optional_package("pyarrow", extra="lake")
        if self._is_table:
            self._known(columns)
            return self._lake._table(str(self._name), columns)
        made = self.to_duckdb() if columns is None else self._chosen(columns)
        with self._lake._answering():
            table: pyarrow.Table = made.to_arrow_table()
        return table

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """`to_arrow` as a `pandas.DataFrame`; `MissingPackageError` without pandas."""
        optional_package("pandas")
        return self.to_arrow(columns).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """`to_arrow` as a `polars.DataFrame`; `MissingPackageError` without polars."""
        package = optional_package("polars")
        made: polars.DataFrame = package.from_arrow(self.to_arrow(columns))
        return made

    def to_duckdb(self) -> DuckDBPyRelation:
        """A relation of `Lake.duckdb`, which reads only what is asked of it; `MissingPackageError` without duckdb."""
        return self._lake._relation(self._name, self._query)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as dictionaries, in the order of the query; a table has none."""
        return iter(self.to_arrow().to_pylist())

    def __len__(self) -> int:
        """How many rows there are."""
        with self._lake._answering():
            (row,) = self.to_duckdb().count("*").fetchall()
        return int(row[0])

    def _chosen(self, columns: Sequence[str]) -> DuckDBPyRelation:
        self._known(columns)
        chosen: DuckDBPyRelation = self.to_duckdb().project(", ".join(_quoted(one) for one in columns))
        return chosen

    def _known(self, columns: Sequence[str] | None) -> None:
        if isinstance(columns, str):
            raise ArgumentError(f"columns are a list, as [{columns!r}]")
        if columns is not None and not isinstance(columns, Sequence):
            raise ArgumentError(f"columns is {columns!r}: it is a list of names of columns")
        known = set(self.columns) if columns is not None else set()
        for one in columns or ():
            if one not in known:
                raise ArgumentError(f"there is no column {one!r}; there are {', '.join(self.columns)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _NamedRelation(property):
    """A table or a view of a lake as an attribute of its name."""

    def __init__(self, text: str) -> None:
        def relation(lake: Lake) -> Relation:
            return lake[self._name]

        super().__init__(relation, doc=text)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    if TYPE_CHECKING:

        def __get__(self, lake: Any, owner: type | None = None, /) -> Relation: ...  # type: ignore[override]


class Lake:
    """One generation of a lake; leave it as a context, or `close` it.  `open` makes it."""

    def __init__(self, path: Path, generation: int | None, settings: Mapping[str, str]) -> None:
        self._place = place(path, settings)
        self.path: str = str(self._place)
        if isinstance(self._place, StorePath):
            optional_package("pyarrow", extra="lake")
        self._manifest = open_lake(self._place)
        if generation is not None and generation != self._manifest.generation:
            optional_package("deltalake", extra="lake")
            from mqttscope.lake.delta import earlier

            self._manifest = earlier(self._place, self._manifest, generation)
        self._engine: LocalEngine | None = None
        self._closed = False

    @property
    def generation(self) -> int:
        """Which one it is: how many ingests there were."""
        return self._manifest.generation

    @property
    def tables(self) -> list[str]:
        """Names of the tables (docs/lake.md)."""
        return table_names()

    @property
    def views(self) -> list[str]:
        """Names of the views that are ready (docs/lake.md)."""
        from mqttscope.analysis.views import VIEWS

        return list(VIEWS)

    def __getitem__(self, name: str) -> Relation:
        """A table or a view by its name; `ArgumentError` where there is none."""
        if name not in self.tables and name not in self.views:
            raise ArgumentError(f"there is no table or view {name!r}; there are {', '.join(self.tables + self.views)}")
        return Relation(self, name, f"select * from {name}")

    packets = _NamedRelation("MQTT Control Packets, also those that break the layout.")
    messages = _NamedRelation("Application Messages: a PUBLISH with its whole QoS exchange.")
    connections = _NamedRelation("Network Connections.")
    sessions = _NamedRelation("MQTT Sessions.")
    findings = _NamedRelation("What the rules found.")
    topics = _NamedRelation("Topics of each server.")
    clients = _NamedRelation("Client Identifiers on each server.")
    gaps = _NamedRelation("Bytes that the captures do not have, or that belong to no packet.")
    ingest_errors = _NamedRelation("What is wrong with captures.")
    session_activity = _NamedRelation("View: what each MQTT Session did.")
    deliveries = _NamedRelation("View: messages of servers, each with its publication and the time in between.")
    retained_messages = _NamedRelation("View: the retained message of each topic at the end.")
    reconnect_storms = _NamedRelation("View: minutes in which clients connect far more often than usual.")
    top_talkers = _NamedRelation("View: who sends and receives how much.")
    payload_sizes = _NamedRelation("View: how long payloads are, by topic.")

    def sql(self, query: str) -> Relation:
        """The answer to a query in the SQL of DuckDB, which knows tables and views by their names.

        `ArgumentError` for what is no query, or a wrong one.
        """
        arguments.text("query", query, "a query in SQL")
        engine = self._asked()
        from mqttscope.analysis.query import prepare

        with self._answering():
            prepare(engine, query)
            # What is wrong with it is said here, and not where its rows are asked for.
            engine.connection.sql(query)
        return Relation(self, None, query)

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """The connection that answers, with all tables and views; ``register`` gives it data frames to join with.

        It reads no files but those of the lake.
        """
        engine = self._asked()
        with self._answering():
            engine.make_views()
            engine.make_views(self.views)
        return engine.connection

    def close(self) -> None:
        """Forget what was loaded, temporary files too; relations of it answer no longer."""
        self._closed = True
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> None:
        if self._closed:
            raise LakeError(f"{self.path} is closed: open it again")

    def _asked(self) -> LocalEngine:
        self._opened()
        if self._engine is None:
            optional_package("duckdb", extra="lake")
            from mqttscope.analysis.local import LocalEngine

            self._engine = LocalEngine(self._place, self._manifest)
        return self._engine

    def _table(self, name: str, columns: Sequence[str] | None) -> pyarrow.Table:
        from mqttscope.lake.writer import read_table

        self._opened()
        return read_table(self._place, name, columns, manifest=self._manifest)

    def _relation(self, name: str | None, query: str) -> DuckDBPyRelation:
        engine = self._asked()
        with self._answering():
            if name is not None:
                engine.check([name] if name in self.tables else [])
                engine.make_views([name])
            return engine.connection.sql(query)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """`ArgumentError` for a query that is wrong, `LakeError` where it is the lake."""
        import duckdb

        from mqttscope.analysis.answer import UnknownQueryError
        from mqttscope.analysis.query import is_of_query, sentence

        try:
            yield
        except UnknownQueryError as error:
            raise ArgumentError(str(error)) from None
        except duckdb.Error as error:
            raise (ArgumentError if is_of_query(error) else LakeError)(sentence(error)) from None


def open(  # noqa: A001 - mqttscope.lake.open reads as gzip.open does
    path: Path, *, generation: int | None = None, settings: Mapping[str, str] | None = None
) -> Lake:
    """Open a lake to read it; see docs/library.md.

    ``path``: its folder, or its place in a store: ``s3://bucket/lake``.  ``generation``: an earlier one, as long as its
    files are there (a day, unless the tables say otherwise); the latest if it is not said.  ``settings``: of the store,
    such as ``region``, ``endpoint_override`` and ``scheme``.  What is read is that generation, whatever is committed
    meanwhile.

    `LakeError` where there is no lake, it is damaged, or the generation is not kept.
    """
    arguments.path("path", path, "a folder, or a place in a store")
    if generation is not None:
        arguments.whole("generation", generation)
    return Lake(path, generation, arguments.settings("settings", settings))


__all__ = ["Lake", "LakeError", "Relation", "open"]
