"""Lakes for programs and notebooks: tables and views as Arrow, pandas, Polars and DuckDB.

``mqttscope.lake.open`` returns a `Lake`, which is one generation of the lake: to see later ingests, open it again.
Packages are imported when needed: pyarrow for tables, duckdb for views and SQL.
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
    """Rows of a table, a view or a query, in several forms.  Rows are read only on conversion."""

    def __init__(self, lake: Lake, name: str | None, query: str) -> None:
        self._lake = lake
        self._name = name
        self._query = query

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        if self._is_table:
            return [column.name for column in columns_of(str(self._name))]
        return list(self.to_duckdb().columns)

    @property
    def _is_table(self) -> bool:
        # Tables of several lakes have a column more, which DuckDB adds.
        return self._name in table_names() and not self._lake._others

    def to_arrow(self, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """All rows as a `pyarrow.Table`; ``columns``: only these, in this order.

        `MissingPackageError` without pyarrow, `ArgumentError` for an unknown column.
        """
        optional_package("pyarrow", extra="lake")
        if self._is_table:
            self._known(columns)
            return self._lake._table(str(self._name), columns)
        relation = self.to_duckdb() if columns is None else self._select_columns(columns)
        with self._lake._answering():
            table: pyarrow.Table = relation.to_arrow_table()
        return table

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """`to_arrow` as a `pandas.DataFrame`; `MissingPackageError` without pandas."""
        optional_package("pandas")
        return self.to_arrow(columns).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """`to_arrow` as a `polars.DataFrame`; `MissingPackageError` without polars."""
        package = optional_package("polars")
        frame: polars.DataFrame = package.from_arrow(self.to_arrow(columns))
        return frame

    def to_duckdb(self) -> DuckDBPyRelation:
        """A lazy relation of `Lake.duckdb`; `MissingPackageError` without duckdb."""
        return self._lake._relation(self._name, self._query)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows as dictionaries, in the order of the query; the rows of a table have no defined order."""
        return iter(self.to_arrow().to_pylist())

    def __len__(self) -> int:
        """Number of rows."""
        with self._lake._answering():
            (row,) = self.to_duckdb().count("*").fetchall()
        return int(row[0])

    def _select_columns(self, columns: Sequence[str]) -> DuckDBPyRelation:
        self._known(columns)
        chosen: DuckDBPyRelation = self.to_duckdb().project(", ".join(_quoted(column) for column in columns))
        return chosen

    def _known(self, columns: Sequence[str] | None) -> None:
        if isinstance(columns, str):
            raise ArgumentError(f"columns are a list, as [{columns!r}]")
        if columns is not None and not isinstance(columns, Sequence):
            raise ArgumentError(f"columns must be a list of column names, not {columns!r}")
        known = set(self.columns) if columns is not None else set()
        for column in columns or ():
            if column not in known:
                raise ArgumentError(f"column {column!r} does not exist; the columns are {', '.join(self.columns)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _NamedRelation(property):
    """An attribute with the name of a table or view of a lake."""

    def __init__(self, text: str) -> None:
        def relation(lake: Lake) -> Relation:
            return lake[self._name]

        super().__init__(relation, doc=text)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    if TYPE_CHECKING:

        def __get__(self, lake: Any, owner: type | None = None, /) -> Relation: ...  # type: ignore[override]


class Lake:
    """One generation of a lake, from `open`; a context manager that closes it."""

    def __init__(self, paths: Sequence[Path], generation: int | None, settings: Mapping[str, str]) -> None:
        self._place, *others = (place(path, settings) for path in paths)
        self.path: str = ", ".join(map(str, (self._place, *others)))
        if any(isinstance(each, StorePath) for each in (self._place, *others)):
            optional_package("pyarrow", extra="lake")
        self._manifest = open_lake(self._place)
        self._others = [(each, open_lake(each)) for each in others]
        if generation is not None and generation != self._manifest.generation:
            optional_package("deltalake", extra="lake")
            from mqttscope.lake.delta import earlier

            self._manifest = earlier(self._place, self._manifest, generation)
        self._engine: LocalEngine | None = None
        self._closed = False

    @property
    def generation(self) -> int:
        """Number of the generation: ingests up to and including it."""
        return self._manifest.generation

    @property
    def tables(self) -> list[str]:
        """Names of the tables (docs/lake.md)."""
        return table_names()

    @property
    def views(self) -> list[str]:
        """Names of the built-in views (docs/lake.md)."""
        from mqttscope.analysis.views import VIEWS

        return list(VIEWS)

    def __getitem__(self, name: str) -> Relation:
        """A table or a view by name; `ArgumentError` for an unknown name."""
        if name not in self.tables and name not in self.views:
            raise ArgumentError(f"table or view {name!r} does not exist; use {', '.join(self.tables + self.views)}")
        return Relation(self, name, f"select * from {name}")

    packets = _NamedRelation("MQTT Control Packets, including malformed ones.")
    messages = _NamedRelation("Application Messages: a PUBLISH with its whole QoS exchange.")
    connections = _NamedRelation("Network Connections.")
    sessions = _NamedRelation("MQTT Sessions.")
    findings = _NamedRelation("Findings of the rules.")
    topics = _NamedRelation("Topics of each server.")
    clients = _NamedRelation("Client Identifiers on each server.")
    gaps = _NamedRelation("Bytes that the captures lack, or that belong to no packet.")
    ingest_errors = _NamedRelation("Errors of captures.")
    sparkplug_metrics = _NamedRelation("Metrics of Sparkplug B.")
    session_activity = _NamedRelation("View: activity of each MQTT Session.")
    deliveries = _NamedRelation("View: messages from servers, each with its publication and latency.")
    retained_messages = _NamedRelation("View: the final retained message of each topic.")
    reconnect_storms = _NamedRelation("View: minutes with far more CONNECT packets than usual.")
    top_talkers = _NamedRelation("View: traffic of each client.")
    payload_sizes = _NamedRelation("View: payload lengths by topic and day.")
    subscriptions = _NamedRelation("View: subscriptions over all connections of a session.")
    undelivered = _NamedRelation("View: messages that did not reach a subscriber, with the reason.")
    takeovers = _NamedRelation("View: connections that were open when their client connected again.")
    connect_refusals = _NamedRelation("View: CONNECT packets that servers refused.")
    pings = _NamedRelation("View: PINGREQ packets with the time until the PINGRESP.")
    devices = _NamedRelation("View: Client Identifiers with their last packet and usual period.")
    sparkplug_nodes = _NamedRelation("View: edge nodes of Sparkplug.")
    sparkplug_gaps = _NamedRelation("View: gaps in the sequence numbers of Sparkplug.")
    captures = _NamedRelation("View: ingested captures.")

    def sql(self, query: str) -> Relation:
        """Result of a query in the SQL of DuckDB, with tables and views by name.

        `ArgumentError` for an invalid query.
        """
        arguments.text("query", query, "a query in SQL")
        engine = self._asked()
        from mqttscope.analysis.query import prepare

        with self._answering():
            prepare(engine, query)
            # Report errors of the query here, not when its rows are read.
            engine.connection.sql(query)
        return Relation(self, None, query)

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """The DuckDB connection, with all tables and views; ``register`` adds data frames to join with.

        It can only read files of the lake.
        """
        engine = self._asked()
        with self._answering():
            engine.make_views()
            engine.make_views(self.views)
        return engine.connection

    def close(self) -> None:
        """Free memory and temporary files; relations of this lake become unusable."""
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

            self._engine = LocalEngine(self._place, self._manifest, others=self._others)
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
        """Translate errors: `ArgumentError` for an invalid query, `LakeError` for an unreadable lake."""
        import duckdb

        from mqttscope.analysis.answer import UnknownQueryError
        from mqttscope.analysis.query import is_query_error, sentence

        try:
            yield
        except UnknownQueryError as error:
            raise ArgumentError(str(error)) from None
        except duckdb.Error as error:
            raise (ArgumentError if is_query_error(error) else LakeError)(sentence(error)) from None


def open(  # noqa: A001 - mqttscope.lake.open, like gzip.open
    path: Path | Sequence[Path], *, generation: int | None = None, settings: Mapping[str, str] | None = None
) -> Lake:
    """Open a lake to read it, or several together; see docs/library.md.

    ``path``: its folder, or its URL in an object store: ``s3://bucket/lake``.  With a list of several, all tables and
    views have a first column ``lake``.  ``generation``: an earlier one, which
    exists as long as its files (one day, unless the tables have another setting); the latest by default.
    ``settings``: for the object store, such as ``region``, ``endpoint_override`` and ``scheme``.  Later commits do
    not affect an open lake.

    `LakeError` if the lake does not exist or is damaged, or if the generation no longer exists.
    """
    paths: list[Any] = list(path) if isinstance(path, list | tuple) else [path]
    for each in paths:
        arguments.path("path", each, "a folder, or a URL in an object store")
    if not paths or len(set(map(str, paths))) < len(paths):
        raise ArgumentError("path must name one lake or more, each once")
    if generation is not None:
        arguments.whole("generation", generation)
        if len(paths) > 1:
            raise ArgumentError("a generation is of one lake")
    return Lake(paths, generation, arguments.settings("settings", settings))


__all__ = ["Lake", "LakeError", "Relation", "open"]
