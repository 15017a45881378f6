"""Adopts what other programs did to the tables of a lake: files that they merged, and connections that they deleted.

Each changed table may have only rows that it had.  The rows of a connection are in all tables, or gone from all of
them.  The rows of open connections are all there, since the memories of the lake continue them.  Anything else is left
alone, and `delta.check` refuses it.

The rows are copied into files of the lake, with the rows of open connections apart:

1. Each changed table gets these files in one transaction, in place of the files of the other program.
2. The manifest is replaced.

Before the second step readers of mqttscope see the lake as it was, and other readers see equal rows before and after
the first.  If the process is killed in between, the next writer adopts the tables once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.errors import MqttscopeError
from mqttscope.lake import delta
from mqttscope.lake.aggregates import SUMS, write_sums
from mqttscope.lake.files import LakeFiles, add_files, measure_files, rows_in_order, writing
from mqttscope.lake.manifest import LakeError, Manifest, check_content, read_manifest, write_manifest
from mqttscope.lake.schemas import EVENT_TABLES, OPEN, TABLES
from mqttscope.system import sync_folder

_ID = "connection_id"


class _InconsistentError(MqttscopeError):
    """A change that cannot be adopted."""


def adopt_changes(root: Path) -> None:
    """Adopt the changes of other programs if all tables agree; otherwise leave everything as it is."""
    before = read_manifest(root)
    try:
        changed = delta.changed_tables(root, before)
        if not changed:
            return
        after = _adopted(root, before, changed)
    except (_InconsistentError, LakeError, FileNotFoundError):
        return
    with writing(root):
        for folder in sorted({name.rpartition("/")[0] for name in after.all_files()}):
            sync_folder(root / folder)
        after.versions = delta.replace_files(root, before, after, changed)
        write_manifest(root, after)


def _adopted(root: Path, before: Manifest, changed: dict[str, delta.ChangedTable]) -> Manifest:
    """The next manifest, with its files written."""
    after = before.following()
    deleted: set[str] = set()
    with LakeFiles(root, before.generation) as written:
        for table in EVENT_TABLES:
            if table in changed:
                deleted |= _copy_rows(root, before, after, table, changed[table].files, written)
        if deleted:
            _check_all_gone(root, before, changed, deleted)
    add_files(after, written.names, written.checksums)
    if deleted or not changed.keys().isdisjoint(SUMS):
        write_sums(root, after, before.generation)
    measure_files(root, after)
    return after


def _copy_rows(
    root: Path, before: Manifest, after: Manifest, table: str, there: frozenset[str], written: LakeFiles
) -> set[str]:
    """Copy the rows of the other program's files of a table; returns the connections of the rows that are gone."""
    gone, left = {}, {}
    for kind, known in ((table, before.files), (OPEN + table, before.open_files)):
        names = known.get(table, [])
        gone[kind] = [name for name in names if name not in there]
        left[kind] = [name for name in names if name in there]
    check_content(root, before, [name for names in gone.values() for name in names])
    rows = {kind: Counter(digest for digest, _ in _rows(root, names, table)) for kind, names in gone.items()}
    new = sorted(there - set(left[table]) - set(left[OPEN + table]))
    for record_batch in rows_in_order(root, new, TABLES[table].arrow()):
        kinds = [_kind_of(rows, digest) for digest in _digests(record_batch)]
        for kind in rows:
            chosen = record_batch.filter(pa.array([own == kind for own in kinds], pa.bool_()))
            if chosen.num_rows:
                written.write(kind, chosen)
    if rows[OPEN + table].total():
        raise _InconsistentError("rows of open connections are gone")
    after.files[table], after.open_files[table] = left[table], left[OPEN + table]
    return {number for digest, number in _rows(root, gone[table], table) if number and rows[table][digest] > 0}


def _kind_of(rows: dict[str, Counter[bytes]], digest: bytes) -> str:
    """The kind of a row that was in the table; counts it."""
    for kind, known in rows.items():
        if known[digest] > 0:
            known[digest] -= 1
            return kind
    raise _InconsistentError("the table has a row that it did not have")


def _check_all_gone(
    root: Path, before: Manifest, changed: dict[str, delta.ChangedTable], deleted: Iterable[str]
) -> None:
    """Raise `_InconsistentError` if a table still has rows of deleted connections."""
    ids = pa.array(sorted(deleted), pa.string())
    for table in EVENT_TABLES:
        schema = TABLES[table].arrow()
        names = before.files.get(table, []) + before.open_files.get(table, [])
        there = sorted(changed[table].files) if table in changed else names
        for record_batch in rows_in_order(root, there, schema) if _ID in schema.names else ():
            if pc.any(pc.is_in(record_batch.column(_ID), value_set=ids)).as_py():
                raise _InconsistentError(f"{table} still has rows of a deleted connection")


def _rows(root: Path, names: Iterable[str], table: str) -> Iterator[tuple[bytes, str | None]]:
    """Digest and connection of each row of files."""
    schema = TABLES[table].arrow()
    for record_batch in rows_in_order(root, names, schema):
        numbers = record_batch.column(_ID).to_pylist() if _ID in schema.names else [None] * record_batch.num_rows
        yield from zip(_digests(record_batch), numbers, strict=True)


def _digests(record_batch: pa.RecordBatch) -> Iterator[bytes]:
    for row in record_batch.to_pylist():
        yield blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
