"""Reads and writes the files of a lake, which several processes write under names of their own.

Executors write Parquet files into the folders of the tables and report their names; a commit (`lake.commit`) makes them
part of the tables.  A task that fails and runs again writes other names, so nothing is ever in the lake twice.

Some captures are in the lake without rows: a capture that cannot be opened has no content to identify it,
and a copy of another capture is not read again.  `remember_errors` and `add_errors` write their rows in the table of
errors, once each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.capture.write import make_folder, opener, shared_like
from mqttscope.lake.manifest import Errors, LakeError, Manifest, checksum_of, is_of
from mqttscope.lake.rows import error_row
from mqttscope.lake.schemas import DISTINCT, EVENT_TABLES, OPEN, RISING, SCOPE_STATE, STATE
from mqttscope.lake.state import StateError
from mqttscope.lake.store import Lake, Place, StorePath, opened, place
from mqttscope.lake.tables import batch
from mqttscope.mqtt.view import utf8
from mqttscope.net.frame import CaptureError

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

ROWS_PER_FILE = 1_000_000
GROUP_ROWS = 65_536
GROUP_BYTES = 16 << 20
"""Maximum number of rows and bytes of a row group, which is written at once."""


def dataset(paths: Iterable[Place], schema: pa.Schema) -> Dataset:
    """Parquet files as one table; columns that a file lacks are null."""
    # Loads pandas if it is installed: half a second, which executors and queries can avoid.
    import pyarrow.dataset as ds

    places = list(paths)
    for first in places[:1]:
        if isinstance(first, StorePath):
            # Their checksums have not been compared.
            checking = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            form = ds.ParquetFileFormat(default_fragment_scan_options=checking)
            store = first.store
            names = [store.path(path.key) for path in places if isinstance(path, StorePath)]
            return ds.dataset(names, schema=schema, format=form, filesystem=store.system)
    return ds.dataset(list(map(str, places)), schema=schema, format="parquet")


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and its pending rows."""

    writer: pq.ParquetWriter
    file: _ChecksummedFile
    path: str
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0


class _ChecksummedFile:
    """A file that is written sequentially, with the checksum of its content."""

    def __init__(self, path: Place) -> None:
        self.file: Any
        if isinstance(path, StorePath):
            self.file = path.open_output()
        else:
            self.file = open(path, "xb", opener=opener)  # noqa: SIM115 - open as long as rows come
        self._is_local = not isinstance(path, StorePath)
        self.checksum = 0

    @property
    def closed(self) -> bool:
        return bool(self.file.closed)

    def write(self, data: Any) -> int:
        self.checksum = crc32(data, self.checksum)
        return int(self.file.write(data))

    def flush(self) -> None:
        self.file.flush()

    def tell(self) -> int:
        return int(self.file.tell())

    def sync(self) -> None:
        """Sync it to the disk; a store does that on closing."""
        self.file.flush()
        if self._is_local:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


class LakeFiles:
    """The Parquet files that one task writes; `LakeError` if they cannot be written.

    On an error they are deleted.
    """

    def __init__(self, root: Lake, generation: int, rows_of_open: int = ROWS_PER_FILE) -> None:
        """``rows_of_open``: maximum number of rows in a file of open state."""
        self.names: dict[str, list[str]] = {}
        """Paths relative to the lake, by kind: a table, ``open/`` and a table, or an internal table."""
        self.rows: dict[str, int] = {}
        """Rows by kind."""
        self.checksums: dict[str, int] = {}
        """CRC-32 of each complete file."""
        self._root = place(root)
        self._generation = generation
        self._rows_of_open = rows_of_open
        self._token = uuid4().hex[:12]
        self._parts: dict[str, _OpenFile] = {}

    def write(self, kind: str, rows: pa.RecordBatch) -> None:
        """Add rows to the file of a kind."""
        is_open = kind in (STATE.name, SCOPE_STATE.name) or kind.startswith(OPEN)
        most = self._rows_of_open if is_open else ROWS_PER_FILE
        with writing(self._root):
            while rows.num_rows > (room := most - (self._parts[kind].rows if kind in self._parts else 0)) and is_open:
                self._write(kind, rows.slice(0, room), most)
                rows = rows.slice(room)
            self._write(kind, rows, most)

    def _write(self, kind: str, rows: pa.RecordBatch, most: int) -> None:
        part = self._parts.get(kind) or self._begin(kind, rows.schema)
        part.waiting.append(rows)
        part.waiting_rows += rows.num_rows
        part.waiting_bytes += rows.nbytes
        part.rows += rows.num_rows
        self.rows[kind] = self.rows.get(kind, 0) + rows.num_rows
        if part.waiting_rows >= GROUP_ROWS or part.waiting_bytes >= GROUP_BYTES:
            part.flush()
        if part.rows >= most:
            self._end(kind)

    def adopt(self, names: Mapping[str, list[str]], rows: Mapping[str, int], checksums: Mapping[str, int]) -> None:
        """Take over files that another process has written for this task: on an error they are deleted too."""
        for kind, more in names.items():
            self.names.setdefault(kind, []).extend(more)
            self.rows[kind] = self.rows.get(kind, 0) + rows[kind]
        self.checksums |= checksums

    def __enter__(self) -> LakeFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._remove()
            return
        try:
            with writing(self._root):
                for name in list(self._parts):
                    self._end(name)
        except BaseException:
            # The disk is full, for example.
            self._remove()
            raise

    def _remove(self) -> None:
        for part in self._parts.values():
            # The writer would still write its footer, the file its buffer.
            for output in (part.writer, part.file):
                with suppress(OSError, pa.ArrowException):
                    output.close()
        for name in (name for names in self.names.values() for name in names):
            with suppress(OSError):
                (self._root / name).unlink()

    def _begin(self, kind: str, schema: pa.Schema) -> _OpenFile:
        names = self.names.setdefault(kind, [])
        table = kind.removeprefix(OPEN)
        number = f"open-{len(names)}" if table != kind else len(names)
        path = f"{table}/{self._generation:010d}-{self._token}-{number}.parquet"
        # Executors have no lock, which would set the mode.
        with shared_like(self._root) if isinstance(self._root, Path) else nullcontext():
            if isinstance(self._root, Path):
                make_folder((self._root / path).parent)
            file = _ChecksummedFile(self._root / path)
        names.append(path)
        try:
            writer = pq.ParquetWriter(
                file, schema, compression="zstd", write_page_checksum=True, **_encoding(schema.remove_metadata())
            )
        except BaseException:
            file.close()
            raise
        begun = self._parts[kind] = _OpenFile(writer, file, path)
        return begun

    def _end(self, kind: str) -> None:
        part = self._parts[kind]
        part.flush()
        part.writer.close()
        part.file.sync()
        part.file.close()
        self.checksums[part.path] = part.file.checksum
        del self._parts[kind]


@cache
def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """How the columns of a table are encoded: a dictionary for recurring values, differences for rising numbers.

    By default Parquet makes a dictionary for everything, and gives up if it becomes too large.  The schema must have no
    metadata, which makes it unhashable in pyarrow 18.
    """
    return {
        "use_dictionary": [
            path for field in schema if field.name not in RISING | DISTINCT for path in _leaves(field.type, field.name)
        ],
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in schema if field.name in RISING},
    }


def _leaves(kind: pa.DataType, path: str) -> list[str]:
    """The Parquet paths of the values of a column."""
    if pa.types.is_struct(kind):
        return [leaf for at in range(kind.num_fields) for leaf in _leaves(kind[at].type, f"{path}.{kind[at].name}")]
    if pa.types.is_list(kind):
        return _leaves(kind.value_type, f"{path}.list.element")
    return [path]


def add_files(manifest: Manifest, files: Mapping[str, list[str]], checksums: Mapping[str, int] | None = None) -> None:
    """Add written files to a manifest, by kind, except files that no later ingest needs."""
    manifest.checksums |= checksums or {}
    for kind, names in files.items():
        table = kind.removeprefix(OPEN)
        if kind == STATE.name:
            manifest.state_files += names
        elif kind == SCOPE_STATE.name:
            manifest.scope_state_files += names
        elif table != kind:
            manifest.open_files.setdefault(table, []).extend(names)
        elif kind in EVENT_TABLES:
            manifest.files.setdefault(kind, []).extend(names)


@contextmanager
def writing(root: Place) -> Iterator[None]:
    """Raise `LakeError` for errors of a lake's disk: errors of open files do not name the file."""
    try:
        yield
    except OSError as error:
        raise LakeError(f"{root} cannot be written: {error.strerror or str(error).partition(chr(10))[0]}") from None


@contextmanager
def reading(path: Place) -> Iterator[None]:
    """Raise `LakeError` with the name of a lake's file if its content cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException, StateError) as error:
        why = str(error).strip().split("\n")[0]
        raise LakeError(f"{path} cannot be read: the lake is damaged ({why})") from None


def rows_of(path: Place) -> int:
    """Number of rows of a Parquet file; `LakeError` if it is not one."""
    with reading(path):
        return int(pq.read_metadata(opened(path)).num_rows)


def measure_files(root: Place, manifest: Manifest) -> None:
    """Set sizes, row counts and checksums of a manifest's files; known ones stay."""
    sizes, rows, checksums = manifest.sizes, manifest.rows, manifest.checksums
    names = sorted(manifest.all_files())
    manifest.sizes = {name: sizes[name] if name in sizes else (root / name).stat().st_size for name in names}
    manifest.rows = {name: rows[name] if name in rows else rows_of(root / name) for name in names}
    manifest.checksums = {name: checksums[name] if name in checksums else checksum_of(root / name) for name in names}


def rows_in_order(root: Place, names: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in order, with the present columns: files of an earlier release may have fewer."""
    for name in names:
        with reading(root / name):
            source = dataset([root / name], schema)
            yield from source.to_batches(batch_size=GROUP_ROWS, batch_readahead=1, use_threads=False)


_ERRORS = "ingest_errors"
_ERROR_COLUMNS = ("capture", "event", "message", "offset", "frames")


def remember_errors(root: Place, after: Manifest, captures: Mapping[str, str]) -> None:
    """Note the errors of captures in a manifest, from the table of errors; ``captures``: names by digest.

    Only rows written with this manifest are used: earlier rows are of other files with these names.
    """
    files = [name for name in after.files.get(_ERRORS, ()) if is_of(name, after.generation)] if captures else []
    by_name: dict[str, Errors] = {}
    for row in _errors(root, files):
        by_name.setdefault(row["capture"], []).append([row["message"], row["offset"], row["frames"]])
    for digest, name in captures.items():
        if utf8(name) in by_name:
            after.faulty[digest] = by_name[utf8(name)]


def known_errors(manifest: Manifest, known: Iterable[tuple[str, str]]) -> list[CaptureError]:
    """The errors of captures that a lake has, from pairs of a name and a digest."""
    return [
        CaptureError(name, message, offset, frames)
        for name, digest in known
        for message, offset, frames in manifest.faulty.get(digest, ())
    ]


def add_errors(root: Place, after: Manifest, errors: Iterable[CaptureError]) -> int:
    """Write rows for errors of captures that the table lacks; return their number."""
    wanted = {(utf8(error.capture), utf8(error.message)): error for error in errors}
    if not wanted:
        return 0
    for row in _errors(root, after.files.get(_ERRORS, ())):
        wanted.pop((row["capture"], row["message"]), None)
    if wanted:
        with LakeFiles(root, after.generation) as files:
            files.write(_ERRORS, batch(_ERRORS, [error_row(error) for error in wanted.values()]))
        add_files(after, files.names)
    return len(wanted)


def _errors(root: Place, names: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in names:
        with reading(root / name):
            rows += pq.read_table(opened(root / name), columns=list(_ERROR_COLUMNS), partitioning=None).to_pylist()
    return [row for row in rows if row["event"] == "capture_error"]
