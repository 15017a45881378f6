"""Rows in order, also more of them than memory should hold.

Rows are collected up to a limit, sorted, and written to a file of a temporary folder: a run.  In the end all runs are
read side by side and the least row is taken each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from heapq import merge
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from mqttscope.lake.files import writing

RUN_BYTES = 64 << 20
"""Bytes of rows that are kept in memory."""
READ_ROWS = 512
"""Rows of each run that are in memory while they are read, and of a batch that comes out."""


class Sorter:
    """Takes batches of one schema in any order; gives the rows in the order of some columns.

    Use it with ``with``: then nothing is left on the disk.
    """

    def __init__(self, schema: pa.Schema, order: Sequence[str]) -> None:
        self.schema = schema
        self.runs: list[Path] = []
        self._order = list(order)
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Sorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, found: pa.RecordBatch) -> None:
        """Take rows."""
        self._waiting.append(found)
        self._size += found.nbytes
        if self._size >= RUN_BYTES:
            self._spill()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order; nothing may be added any more."""
        if not self.runs:
            yield from self._sorted().to_batches(max_chunksize=READ_ROWS)
            return
        self._spill()
        places = [self.schema.get_field_index(name) for name in self._order]
        rows: list[tuple[Any, ...]] = []
        for row in merge(*map(_rows, self.runs), key=itemgetter(*places)):
            rows.append(row)
            if len(rows) == READ_ROWS:
                yield self._batch(rows)
                rows = []
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [pa.array(one, field.type) for one, field in zip(zip(*rows, strict=True), self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _sorted(self) -> pa.Table:
        table = pa.Table.from_batches(self._waiting, schema=self.schema)
        self._waiting, self._size = [], 0
        return table.sort_by([(name, "ascending") for name in self._order])

    def _spill(self) -> None:
        """Write what is in memory to the disk."""
        if not self._waiting:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mqttscope-")
        path = Path(self._folder.name) / f"{len(self.runs)}.arrow"
        rows = self._sorted()
        with writing(path), pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self.schema) as writer:
            writer.write_table(rows, max_chunksize=READ_ROWS)
        self.runs.append(path)


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for found in reader:
            yield from zip(*(column.to_pylist() for column in found.columns), strict=True)
