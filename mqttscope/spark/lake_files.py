"""Files of a lake as several processes write them: Parquet under names of their own, one lock, one manifest.

Executors write files beside those that count and say how they are called; the driver puts the names into the manifest.
A task that fails and runs again writes other names, so that nothing is ever in twice.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.lake.manifest import LakeError, Manifest, read_manifest, remove_strays, sync_folder, write_manifest
from mqttscope.lake.writer import ROWS_PER_FILE

LOCK = ".lock"
GROUP_ROWS = 65_536
GROUP_BYTES = 8 << 20
"""So many rows or bytes of a table are written at a time, as one row group."""


@dataclass(slots=True)
class _Part:
    """A file that is being written, and rows that are not in it yet."""

    writer: pq.ParquetWriter
    file: Any
    path: str
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0

    def flush(self) -> None:
        """Write what waits."""
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0


class LakeFiles:
    """The Parquet files that one task writes.  On an error they are taken away again."""

    def __init__(self, root: str | os.PathLike[str], generation: int) -> None:
        self.names: dict[str, list[str]] = {}
        """Paths relative to the lake, by kind: a table, ``open/`` and a table, or something internal."""
        self.rows: dict[str, int] = {}
        """Rows by kind."""
        self._root = Path(root)
        self._generation = generation
        self._token = uuid4().hex[:12]
        self._parts: dict[str, _Part] = {}

    def write(self, kind: str, found: pa.RecordBatch) -> None:
        """Add rows to the file of a kind."""
        part = self._parts.get(kind) or self._begin(kind, found.schema)
        part.waiting.append(found)
        part.waiting_rows += found.num_rows
        part.waiting_bytes += found.nbytes
        part.rows += found.num_rows
        self.rows[kind] = self.rows.get(kind, 0) + found.num_rows
        if part.waiting_rows >= GROUP_ROWS or part.waiting_bytes >= GROUP_BYTES:
            part.flush()
        if part.rows >= ROWS_PER_FILE:
            self._end(kind)

    def __enter__(self) -> LakeFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            for name in list(self._parts):
                self._end(name)
            return
        for part in self._parts.values():
            # The writer would still write its footer.
            with suppress(OSError, pa.ArrowException):
                part.writer.close()
            part.file.close()
        for name in (name for names in self.names.values() for name in names):
            with suppress(OSError):
                (self._root / name).unlink()

    def _begin(self, kind: str, schema: pa.Schema) -> _Part:
        names = self.names.setdefault(kind, [])
        folder, _, table = kind.rpartition("/")
        middle = f"{table}-{self._token}" if folder else self._token
        path = f"{folder or kind}/{self._generation:010d}-{middle}-{len(names)}.parquet"
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        file = (self._root / path).open("xb")
        names.append(path)
        begun = self._parts[kind] = _Part(pq.ParquetWriter(file, schema, compression="zstd"), file, path)
        return begun

    def _end(self, kind: str) -> None:
        part = self._parts[kind]
        part.flush()
        part.writer.close()
        part.file.flush()
        os.fsync(part.file.fileno())
        part.file.close()
        del self._parts[kind]


@contextmanager
def lake_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Be the only one who writes a lake; `LakeError` where somebody else does.

    The lock ends with the process, however that ends.  Where the system has no such locks, `commit` is what notices.
    """
    root = Path(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / LOCK).open("ab")
    except OSError as error:
        raise LakeError(f"{root} cannot be written: {error.strerror or error}") from None
    with file:
        try:
            locks = importlib.import_module("fcntl")
        except ImportError:
            locks = None
        if locks is not None:
            try:
                locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
            except BlockingIOError:
                raise LakeError(f"{root} is being written by another ingest or watch") from None
            except OSError:
                pass  # a file system without locks
        yield


def commit(root: Path, before: Manifest, after: Manifest) -> None:
    """Make what was written count, in one step; `LakeError` where another ingest was faster.

    Files that belong to no finished ingest are taken away.
    """
    for folder in sorted({name.partition("/")[0] for name in after.all_files()}):
        sync_folder(root / folder)
    if read_manifest(root).generation != before.generation:
        raise LakeError(f"{root} was changed by another ingest in the meantime; run this one again")
    write_manifest(root, after)
    remove_strays(root, after)
