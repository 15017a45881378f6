"""What a batch leaves as it is of what a lake remembers, so that it reads and writes what changes alone.

A batch concerns the flows that it has segments of, and those to which something happens because time has passed: each
row of ``state`` says before which time nothing does (``due_ns``).  All others stay as they are: what they remember,
and the rows that say what is known so far of their connections.  The same holds for the keys of rules of wide scopes:
a batch concerns those of its flows, and those that a rule asks about at a time that has come.

Files have few rows (`ROWS`), so that a row is taken out of a file by writing the file once more without it.  Flows that
speak in one batch mostly do in the next, and lie in a small file of their own by then: what a batch writes depends on
what it concerns, and not on how many connections are open.  Small files are merged when there are many of them
(`MANY`).  Nothing of this is seen by who reads a lake: a row is in one file of its generation, and files that are
replaced stay until the manifest that misses them counts (`lake.commit`).
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
"""So many rows has a file of what is still open, at most, where batches follow each other."""
MANY = 16
"""Files with less than half as many rows are merged when there are more of them."""
MOST_CONCERNED = 0.5
"""Where a batch concerns this share of the open flows, it is not worth while to divide them."""
_INDEX = ("flow", "due_ns", "keys", "connections")
_KEYS = ("key", "due_ns")
_CONNECTION = "connection"
_SCHEMAS = {name: one.arrow() for name, one in TABLES.items()} | {one.name: one.arrow() for one in INTERNAL}


@dataclass(slots=True)
class Taken:
    """Rows that a batch takes out of files: the files of which it takes all, and what it takes of others."""

    kind: str
    names: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)


@dataclass(slots=True)
class Carried:
    """The division of what a lake remembers into what a batch concerns and what it does not."""

    root: Path
    before: Manifest
    generation: int
    concerned: pa.Table
    """Rows of ``state``, without the state itself, of the flows that the batch concerns."""
    others: pa.Table
    """Those of the other flows."""
    files: list[str] = field(default_factory=list)
    """Files that were written to be read by the batch alone: nothing names them afterwards."""
    state_files: list[str] = field(default_factory=list)
    """Files with the state of the others."""
    keys: frozenset[str] = frozenset()
    """The keys that the batch concerns (`take_keys`)."""
    checksums: dict[str, int] = field(default_factory=dict)
    """Of the files that were written."""

    @classmethod
    def of(
        cls, root: Path, before: Manifest, generation: int, flows: Collection[bytes], now_ns: int | None
    ) -> Carried | None:
        """Divide flows; ``None`` where that does not pay, as a batch concerns half of them or more.

        ``flows``: those with segments in the batch.  ``now_ns``: how far time has come with it.  `LakeError` where a
        file cannot be read.
        """
        index = _indexes(root, before.state_files, STATE.name, _INDEX)
        chosen = pc.or_(_in(index["flow"], flows, pa.binary()), _is_due(index, now_ns))
        chosen = pc.or_(chosen, pc.is_null(index["connections"]))
        concerned = index.filter(chosen)
        if concerned.num_rows >= index.num_rows * MOST_CONCERNED:
            return None
        return cls(root, before, generation, concerned, index.filter(pc.invert(chosen)))

    def take_flows(self) -> Taken:
        """Take the state of flows that the batch concerns."""
        known = pa.array(self.concerned["flow"].unique().to_pylist(), pa.binary())

        def is_taken(rows: pa.Table) -> pa.Array:
            return pc.is_in(rows["flow"], value_set=known)

        self.state_files, taken = self._without(STATE.name, self.before.state_files, _INDEX, is_taken)
        return taken

    def note_keys(self, found: Iterable[str], now_ns: int | None) -> None:
        """Know the keys that the batch concerns.  ``found``: those of its flows as they are now."""
        index = _indexes(self.root, self.before.scope_state_files, SCOPE_STATE.name, _KEYS)
        due = index.filter(_is_due(index, now_ns))["key"].unique().to_pylist()
        self.keys = frozenset([*found, *due, *_flat(self.concerned["keys"])])

    def take_keys(self) -> tuple[Taken, list[str]]:
        """Take what rules remember of these keys.

        Returns that, and the files with what they remember of others.
        """
        known = pa.array(sorted(self.keys), pa.string())

        def is_taken(rows: pa.Table) -> pa.Array:
            return pc.is_in(rows["key"], value_set=known)

        names = self.before.scope_state_files
        kept, taken = self._without(SCOPE_STATE.name, names, _KEYS, is_taken)
        return taken, kept

    def replace_parts(self, replaced: Iterable[Mapping[str, Sequence[int]]]) -> list[str]:
        """Leave out rows of ``scope_state``, by their files and places; returns the files with the others."""
        places: dict[str, list[int]] = {}
        for one in replaced:
            for name, rows in one.items():
                places.setdefault(name, []).extend(rows)
        names = self.before.scope_state_files
        taken = {name: pa.array(rows, pa.int64()) for name, rows in places.items()}

        def is_taken(rows: pa.Table, name: str) -> pa.Array:
            numbers = pa.array(range(rows.num_rows), pa.int64())
            return pc.is_in(numbers, value_set=taken.get(name, pa.array([], pa.int64())))

        return self._divided(SCOPE_STATE.name, names, _KEYS, is_taken)[0]

    def take_others(self) -> tuple[pa.Table, list[str]]:
        """The other flows that are judged by a key that the batch concerns.

        Returns rows of ``flow_keys`` that name them with these keys, and files that hold their state, and of others.
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
        """The files with the rows of connections that the batch does not concern, table by table."""
        own = pa.array(_flat(self.concerned["connections"]), pa.string())
        judged = [*zip(self.others["connections"].to_pylist(), self.others["keys"].to_pylist(), strict=True)]
        wide = [one for ids, keys in judged if not self.keys.isdisjoint(keys or ()) for one in ids or ()]
        together = pa.array([*own.to_pylist(), *wide], pa.string())

        def is_own(rows: pa.Table) -> pa.Array:
            return pc.is_in(rows["connection_id"], value_set=own)

        def is_finding_of(rows: pa.Table) -> pa.Array:
            narrow = pc.equal(rows["scope"], _CONNECTION)
            return pc.if_else(narrow, is_own(rows), pc.is_in(rows["connection_id"], value_set=together))

        found = {}
        for table, names in self.before.open_files.items():
            if table == FINDINGS.name:
                left, _ = self._without(OPEN + table, names, ("connection_id", "scope"), is_finding_of)
            else:
                left, _ = self._without(OPEN + table, names, ("connection_id",), is_own)
            found[table] = left
        return found

    def written(self, taken: Taken) -> list[str]:
        """Files with rows that were taken, for the batch alone."""
        with LakeFiles(self.root, self.generation, ROWS) as files:
            for one in (batch for table in taken.tables for batch in table.to_batches()):
                files.write(taken.kind, one)
        made = files.names.get(taken.kind, [])
        self.files += made
        return taken.names + made

    def rows(self, taken: Taken, columns: tuple[str, ...]) -> pa.Table:
        found = read_rows(self.root, taken.names, taken.kind, columns)
        return pa.concat_tables([found, *(one.select(columns) for one in taken.tables)])

    def forget(self) -> None:
        for name in self.files:
            (self.root / name).unlink(missing_ok=True)

    def _without(
        self, kind: str, names: Iterable[str], columns: tuple[str, ...], is_taken: Callable[[pa.Table], pa.Array]
    ) -> tuple[list[str], Taken]:
        """Files with the rows that are not taken, and the others; ``is_taken`` decides by these columns."""
        return self._divided(kind, names, columns, lambda rows, _: is_taken(rows))

    def _divided(
        self,
        kind: str,
        names: Iterable[str],
        columns: tuple[str, ...],
        is_taken: Callable[[pa.Table, str], pa.Array],
    ) -> tuple[list[str], Taken]:
        """The same; ``is_taken`` knows the file.

        Files of which nothing is taken stay, unless there are many small ones,
        and so do those of which everything is.
        """
        table, names = kind.removeprefix(OPEN), list(names)
        small = [name for name in names if self.before.rows.get(name, ROWS) * 2 < ROWS]
        merged = frozenset(small if len(small) > MANY else ())
        left: list[str] = []
        taken = Taken(table)
        with LakeFiles(self.root, self.generation, ROWS) as rest:
            for name in names:
                mask = is_taken(index_of(self.root, name, table, columns), name)
                if name not in merged and not pc.any(mask).as_py():
                    left.append(name)
                    continue
                if pc.all(mask).as_py():
                    taken.names.append(name)
                    continue
                rows = _rows(self.root, name, table, _SCHEMAS[table].names)
                if kind == table:
                    taken.tables.append(rows.filter(mask))
                for one in rows.filter(pc.invert(mask)).to_batches():
                    rest.write(kind, one)
        self.checksums |= rest.checksums
        return left + rest.names.get(kind, []), taken


@lru_cache(maxsize=2_048)
def index_of(root: Path, name: str, table: str, columns: tuple[str, ...]) -> pa.Table:
    """A few columns of a file, kept for the next batch: what has a name is never written again."""
    return _rows(root, name, table, columns)


def _indexes(root: Path, names: Iterable[str], table: str, columns: tuple[str, ...]) -> pa.Table:
    schema = pa.schema([_SCHEMAS[table].field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *(index_of(root, name, table, columns) for name in names)])


def read_rows(root: Path, names: Iterable[str], table: str, columns: tuple[str, ...]) -> pa.Table:
    """Columns of files of a table, as they are needed here; `LakeError` where a file cannot be read."""
    schema = pa.schema([_SCHEMAS[table].field(one) for one in columns])
    return pa.concat_tables([schema.empty_table(), *(_rows(root, name, table, columns) for name in names)])


def _rows(root: Path, name: str, table: str, columns: Iterable[str]) -> pa.Table:
    """Columns of a file of a table; those that a file of an earlier release does not have are null."""
    schema = pa.schema([_SCHEMAS[table].field(one) for one in columns])
    with reading(root / name):
        file = pq.ParquetFile(root / name, page_checksum_verification=True)
        known = [one for one in schema.names if one in file.schema_arrow.names]
        rows = file.read(columns=known, use_threads=False)
    arrays = [
        rows[one].cast(schema.field(one).type) if one in known else pa.nulls(rows.num_rows, schema.field(one).type)
        for one in schema.names
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _in(column: pa.ChunkedArray, values: Collection[bytes], kind: pa.DataType) -> pa.ChunkedArray:
    return pc.is_in(column, value_set=pa.array(sorted(values), kind))


def _is_due(index: pa.Table, now_ns: int | None) -> pa.ChunkedArray:
    due = index["due_ns"]
    passed = pc.less_equal(due, pa.scalar(now_ns, pa.int64())) if now_ns is not None else pc.less(due, due)
    return pc.fill_null(passed, True)


def _flat(lists: pa.ChunkedArray) -> list[str]:
    return sorted({one for some in lists.to_pylist() for one in some or ()})
