"""Divides the memory of a lake into rows that a batch changes and rows that it leaves as they are.

A batch concerns the flows of its segments, and flows with a timeout that has come: each row of ``state`` has the time
until which nothing happens (``due_ns``).  All other flows stay unchanged, with their memories and the rows of their
open connections.  Keys of wide rules are divided alike: a batch concerns the keys of its flows, and keys that a rule
asks about at a time that has come.

Files have few rows (`ROWS`), so that a row is removed by writing its file again without it.  Flows that are active in
one batch mostly are in the next, and have a small file of their own by then.  So a batch writes as much as it concerns,
however many connections are open.  Small files are merged when there are many of them (`MANY`).  Readers of a lake
notice nothing: a row is in one file of its generation, and replaced files stay until a manifest without them is in
force (`lake.commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqttscope.lake.files import LakeFiles, reading
from mqttscope.lake.manifest import Manifest
from mqttscope.lake.schemas import FINDINGS, FLOW_KEYS, INTERNAL, OPEN, SCOPE_STATE, STATE, TABLES

ROWS = 1_024
"""Maximum number of rows per file of open state, if batches follow each other."""
MANY = 16
"""Maximum number of files with less than half as many rows; more are merged."""
MOST_CONCERNED = 0.5
"""Share of the open flows in a batch that makes dividing them pointless."""
_INDEX = ("flow", "due_ns", "keys", "connections")
_KEYS = ("key", "due_ns")
_CONNECTION = "connection"
_SCHEMAS = {schema.name: schema.arrow() for schema in (*TABLES.values(), *INTERNAL)}


@dataclass(slots=True)
class RowExtract:
    """Rows that a batch takes out of files: whole files, and rows of other files."""

    kind: str
    names: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)


@dataclass(slots=True)
class StateDivision:
    """The memory of a lake, divided into what a batch concerns and the rest."""

    root: Path
    before: Manifest
    generation: int
    concerned: pa.Table
    """Rows of ``state``, without the state itself, of the flows that the batch concerns."""
    others: pa.Table
    """The rows of the other flows."""
    files: list[str] = field(default_factory=list)
    """Files for the batch alone: no manifest names them."""
    state_files: list[str] = field(default_factory=list)
    """Files with the state of the other flows."""
    keys: frozenset[str] = frozenset()
    """The keys that the batch concerns (`take_keys`)."""
    checksums: dict[str, int] = field(default_factory=dict)
    """CRC-32 of each written file."""

    @classmethod
    def divide(
        cls, root: Path, before: Manifest, generation: int, flows: Collection[bytes], now_ns: int | None
    ) -> StateDivision | None:
        """Divide flows; ``None`` if the batch concerns half of them or more, since dividing does not pay then.

        ``flows``: flows with segments in the batch.  ``now_ns``: capture time at the end of the batch.  `LakeError` if
        a file cannot be read.
        """
        index = _indexes(root, before.state_files, STATE.name, _INDEX)
        chosen = pc.or_(_in(index["flow"], flows, pa.binary()), _is_due(index, now_ns))
        chosen = pc.or_(chosen, pc.is_null(index["connections"]))
        concerned = index.filter(chosen)
        if concerned.num_rows >= index.num_rows * MOST_CONCERNED:
            return None
        return cls(root, before, generation, concerned, index.filter(pc.invert(chosen)))

    def take_flows(self) -> RowExtract:
        """Take the state of flows that the batch concerns."""
        known = pa.array(self.concerned["flow"].unique().to_pylist(), pa.binary())

        def is_taken(rows: pa.Table) -> pa.Array:
            return pc.is_in(rows["flow"], value_set=known)

        self.state_files, extract = self._without(STATE.name, self.before.state_files, _INDEX, is_taken)
        return extract

    def note_keys(self, flow_keys: Iterable[str], now_ns: int | None) -> None:
        """Set the keys that the batch concerns.  ``flow_keys``: present keys of its flows."""
        index = _indexes(self.root, self.before.scope_state_files, SCOPE_STATE.name, _KEYS)
        due = index.filter(_is_due(index, now_ns))["key"].unique().to_pylist()
        self.keys = frozenset([*flow_keys, *due, *_flat(self.concerned["keys"])])

    def take_keys(self) -> tuple[RowExtract, list[str]]:
        """Take the memories of rules for these keys.

        Returns these rows, and the files with the memories for other keys.
        """
        known = pa.array(sorted(self.keys), pa.string())

        def is_taken(rows: pa.Table) -> pa.Array:
            return pc.is_in(rows["key"], value_set=known)

        names = self.before.scope_state_files
        remaining, extract = self._without(SCOPE_STATE.name, names, _KEYS, is_taken)
        return extract, remaining

    def replace_parts(self, replaced: Iterable[Mapping[str, Sequence[int]]]) -> list[str]:
        """Remove rows of ``scope_state``, by file and place; return the files with the remaining rows."""
        places: dict[str, list[int]] = {}
        for rows_of_file in replaced:
            for name, rows in rows_of_file.items():
                places.setdefault(name, []).extend(rows)
        names = self.before.scope_state_files
        removed = {name: pa.array(rows, pa.int64()) for name, rows in places.items()}

        def is_taken(rows: pa.Table, name: str) -> pa.Array:
            numbers = pa.array(range(rows.num_rows), pa.int64())
            return pc.is_in(numbers, value_set=removed.get(name, pa.array([], pa.int64())))

        return self._divided(SCOPE_STATE.name, names, _KEYS, is_taken)[0]

    def take_others(self) -> tuple[pa.Table, list[str]]:
        """The other flows that are judged by a key that the batch concerns.

        Returns their rows of ``flow_keys`` with these keys, and the files with their state and others.
        """
        pairs = [
            (flow, key)
            for flow, keys in zip(self.others["flow"].to_pylist(), self.others["keys"].to_pylist(), strict=True)
            for key in keys or ()
            if key in self.keys
        ]
        if not pairs:
            return _SCHEMAS[FLOW_KEYS.name].empty_table(), []
        flows, keys = zip(*pairs, strict=True)
        named = pa.Table.from_arrays(
            [pa.array(flows, pa.binary()), pa.array(keys, pa.string())], schema=_SCHEMAS[FLOW_KEYS.name]
        )
        wanted = frozenset(flows)
        return named, [
            name
            for name in self.state_files
            if not wanted.isdisjoint(index_of(self.root, name, STATE.name, _INDEX)["flow"].to_pylist())
        ]

    def open_files(self) -> dict[str, list[str]]:
        """Files with the rows of connections that the batch does not concern, by table."""
        own = pa.array(_flat(self.concerned["connections"]), pa.string())
        judged = [*zip(self.others["connections"].to_pylist(), self.others["keys"].to_pylist(), strict=True)]
        wide = [identifier for ids, keys in judged if not self.keys.isdisjoint(keys or ()) for identifier in ids or ()]
        together = pa.array([*own.to_pylist(), *wide], pa.string())

        def is_own(rows: pa.Table) -> pa.Array:
            return pc.is_in(rows["connection_id"], value_set=own)

        def is_finding_of(rows: pa.Table) -> pa.Array:
            narrow = pc.equal(rows["scope"], _CONNECTION)
            return pc.if_else(narrow, is_own(rows), pc.is_in(rows["connection_id"], value_set=together))

        remaining = {}
        for table, names in self.before.open_files.items():
            if table == FINDINGS.name:
                left, _ = self._without(OPEN + table, names, ("connection_id", "scope"), is_finding_of)
            else:
                left, _ = self._without(OPEN + table, names, ("connection_id",), is_own)
            remaining[table] = left
        return remaining

    def write_rows(self, extract: RowExtract) -> list[str]:
        """Files with extracted rows, for the batch alone."""
        with LakeFiles(self.root, self.generation, ROWS) as files:
            for record_batch in (batch for table in extract.tables for batch in table.to_batches()):
                files.write(extract.kind, record_batch)
        written = files.names.get(extract.kind, [])
        self.files += written
        return extract.names + written

    def rows(self, extract: RowExtract, columns: tuple[str, ...]) -> pa.Table:
        rows = read_rows(self.root, extract.names, extract.kind, columns)
        return pa.concat_tables([rows, *(table.select(columns) for table in extract.tables)])

    def delete_files(self) -> None:
        for name in self.files:
            (self.root / name).unlink(missing_ok=True)

    def _without(
        self, kind: str, names: Iterable[str], columns: tuple[str, ...], is_taken: Callable[[pa.Table], pa.Array]
    ) -> tuple[list[str], RowExtract]:
        """Files with the rows that are not taken, and the rows that are; ``is_taken`` decides by these columns."""
        return self._divided(kind, names, columns, lambda rows, _: is_taken(rows))

    def _divided(
        self,
        kind: str,
        names: Iterable[str],
        columns: tuple[str, ...],
        is_taken: Callable[[pa.Table, str], pa.Array],
    ) -> tuple[list[str], RowExtract]:
        """Files with the rows that are not taken, and the rows that are; ``is_taken`` gets the file's name too.

        Files stay unchanged if no row or every row is taken, unless there are many small ones.
        """
        table, names = kind.removeprefix(OPEN), list(names)
        small = [name for name in names if self.before.rows.get(name, ROWS) * 2 < ROWS]
        merged = frozenset(small if len(small) > MANY else ())
        left: list[str] = []
        extract = RowExtract(table)
        with LakeFiles(self.root, self.generation, ROWS) as rest:
            for name in names:
                mask = is_taken(index_of(self.root, name, table, columns), name)
                if name not in merged and not pc.any(mask).as_py():
                    left.append(name)
                    continue
                if pc.all(mask).as_py():
                    extract.names.append(name)
                    continue
                rows = _rows(self.root, name, table, _SCHEMAS[table].names)
                if kind == table:
                    extract.tables.append(rows.filter(mask))
                for record_batch in rows.filter(pc.invert(mask)).to_batches():
                    rest.write(kind, record_batch)
        self.checksums |= rest.checksums
        return left + rest.names.get(kind, []), extract


@lru_cache(maxsize=2_048)
def index_of(root: Path, name: str, table: str, columns: tuple[str, ...]) -> pa.Table:
    """A few columns of a file, cached for the next batch: a file is never written again under its name."""
    return _rows(root, name, table, columns)


def _indexes(root: Path, names: Iterable[str], table: str, columns: tuple[str, ...]) -> pa.Table:
    schema = pa.schema([_SCHEMAS[table].field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *(index_of(root, name, table, columns) for name in names)])


def read_rows(root: Path, names: Iterable[str], table: str, columns: tuple[str, ...]) -> pa.Table:
    """Columns of files of a table; `LakeError` if a file cannot be read."""
    schema = pa.schema([_SCHEMAS[table].field(column) for column in columns])
    return pa.concat_tables([schema.empty_table(), *(_rows(root, name, table, columns) for name in names)])


def _rows(root: Path, name: str, table: str, columns: Iterable[str]) -> pa.Table:
    """Columns of a file of a table; columns that a file of an earlier release lacks are null."""
    schema = pa.schema([_SCHEMAS[table].field(column) for column in columns])
    with reading(root / name):
        file = pq.ParquetFile(root / name, page_checksum_verification=True)
        known = [column for column in schema.names if column in file.schema_arrow.names]
        rows = file.read(columns=known, use_threads=False)
    arrays = [
        rows[key].cast(schema.field(key).type) if key in known else pa.nulls(rows.num_rows, schema.field(key).type)
        for key in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _in(column: pa.ChunkedArray, values: Collection[bytes], kind: pa.DataType) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(sorted(values), kind))


def _is_due(index: pa.Table, now_ns: int | None) -> pa.ChunkedArray:
    due = index["due_ns"]
    passed = pc.less_equal(due, pa.scalar(now_ns, pa.int64())) if now_ns is not None else pc.less(due, due)
    return pc.fill_null(passed, True)


def _flat(lists: pa.ChunkedArray) -> list[str]:
    return sorted({text for some in lists.to_pylist() for text in some or ()})
