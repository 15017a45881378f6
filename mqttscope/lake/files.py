"""Reads and writes the files of a lake while several processes do, under names of their own.

Executors write Parquet files into the folders of the tables and report their names; a commit (`lake.commit`) makes them
part of the tables.  A task that fails and runs again writes other names, so nothing is ever in the lake twice.

Some captures are in the lake although their rows are not: one that cannot be opened has no content to be recognised by,
and one with the same bytes as another is not read again.  `remember_errors` and `add_errors` give each of them its rows
in the table of errors once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.capture.write import make_folder, opener
from mqttscope.lake.manifest import Errors, LakeError, Manifest, is_of
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
"""So many rows or bytes of a table are written at a time, as one row group."""


def dataset(paths: Iterable[Place], schema: pa.Schema) -> Dataset:
    """Parquet files as one table; columns that a file does not have are null."""
    # Loads pandas where that is installed: half a second, which executors and questions need not wait for.
    import pyarrow.dataset as ds

    found = list(paths)
    for one in found[:1]:
        if isinstance(one, StorePath):
            # Nobody has compared their checksums.
            checking = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
            form = ds.ParquetFileFormat(default_fragment_scan_options=checking)
            store = one.store
            names = [store.path(path.key) for path in found if isinstance(path, StorePath)]
            return ds.dataset(names, schema=schema, format=form, filesystem=store.system)
    return ds.dataset(list(map(str, found)), schema=schema, format="parquet")


@dataclass(slots=True)
class _Part:
    """A file that is being written, and rows that are not in it yet."""

    writer: pq.ParquetWriter
    file: _Summed
    path: str
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0


class _Summed:
    """A file that is written from its beginning to its end, and the checksum of what was written."""

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
        """Bring it to the disk; a store does that when it is closed."""
        self.file.flush()
        if self._is_local:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


class LakeFiles:
    """The Parquet files that one task writes; `LakeError` where that cannot be.

    On an error they are taken away again.
    """

    def __init__(self, root: Lake, generation: int, rows_of_open: int = ROWS_PER_FILE) -> None:
        """``rows_of_open``: the most rows that a file of what is still open has."""
        self.names: dict[str, list[str]] = {}
        """Paths relative to the lake, by kind: a table, ``open/`` and a table, or something internal."""
        self.rows: dict[str, int] = {}
        """Rows by kind."""
        self.checksums: dict[str, int] = {}
        """CRC-32 of each file that is complete."""
        self._root = place(root)
        self._generation = generation
        self._rows_of_open = rows_of_open
        self._token = uuid4().hex[:12]
        self._parts: dict[str, _Part] = {}

    def write(self, kind: str, found: pa.RecordBatch) -> None:
        """Add rows to the file of a kind."""
        is_open = kind in (STATE.name, SCOPE_STATE.name) or kind.startswith(OPEN)
        most = self._rows_of_open if is_open else ROWS_PER_FILE
        with writing(self._root):
            while found.num_rows > (room := most - (self._parts[kind].rows if kind in self._parts else 0)) and is_open:
                self._write(kind, found.slice(0, room), most)
                found = found.slice(room)
            self._write(kind, found, most)

    def _write(self, kind: str, found: pa.RecordBatch, most: int) -> None:
        part = self._parts.get(kind) or self._begin(kind, found.schema)
        part.waiting.append(found)
        part.waiting_rows += found.num_rows
        part.waiting_bytes += found.nbytes
        part.rows += found.num_rows
        self.rows[kind] = self.rows.get(kind, 0) + found.num_rows
        if part.waiting_rows >= GROUP_ROWS or part.waiting_bytes >= GROUP_BYTES:
            part.flush()
        if part.rows >= most:
            self._end(kind)

    def adopt(self, names: Mapping[str, list[str]], rows: Mapping[str, int], checksums: Mapping[str, int]) -> None:
        """Have files that another process has written for this task: on an error they are taken away with its own."""
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
            # The writer would still write its footer, the file what it holds back.
            for one in (part.writer, part.file):
                with suppress(OSError, pa.ArrowException):
                    one.close()
        for name in (name for names in self.names.values() for name in names):
            with suppress(OSError):
                (self._root / name).unlink()

    def _begin(self, kind: str, schema: pa.Schema) -> _Part:
        names = self.names.setdefault(kind, [])
        table = kind.removeprefix(OPEN)
        number = f"open-{len(names)}" if table != kind else len(names)
        path = f"{table}/{self._generation:010d}-{self._token}-{number}.parquet"
        if isinstance(self._root, Path):
            make_folder((self._root / path).parent)
        file = _Summed(self._root / path)
        names.append(path)
        try:
            writer = pq.ParquetWriter(
                file, schema, compression="zstd", write_page_checksum=True, **_encoding(schema.remove_metadata())
            )
        except BaseException:
            file.close()
            raise
        begun = self._parts[kind] = _Part(writer, file, path)
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
    """How the columns of a table are encoded: a dictionary for what recurs, differences for what rises.

    By default Parquet makes a dictionary for everything, and gives up where that becomes too large.  The schema
    has no metadata: with that it has no hash in pyarrow 18.
    """
    return {
        "use_dictionary": [
            path for one in schema if one.name not in RISING | DISTINCT for path in _leaves(one.type, one.name)
        ],
        "column_encoding": {one.name: "DELTA_BINARY_PACKED" for one in schema if one.name in RISING},
    }


def _leaves(kind: pa.DataType, path: str) -> list[str]:
    """The paths by which Parquet knows what holds the values of a column."""
    if pa.types.is_struct(kind):
        return [one for at in range(kind.num_fields) for one in _leaves(kind[at].type, f"{path}.{kind[at].name}")]
    if pa.types.is_list(kind):
        return _leaves(kind.value_type, f"{path}.list.element")
    return [path]


def add_files(manifest: Manifest, files: Mapping[str, list[str]], checksums: Mapping[str, int] | None = None) -> None:
    """Put files that were written into a manifest, by their kinds; those that are kept for no later ingest are not."""
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
    """`LakeError` for what goes wrong with the disk of a lake: errors of open files do not name the file."""
    try:
        yield
    except OSError as error:
        raise LakeError(f"{root} cannot be written: {error.strerror or error}") from None


@contextmanager
def reading(path: Place) -> Iterator[None]:
    """`LakeError` that names a file of a lake where its content cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException, StateError) as error:
        why = str(error).strip().split("\n")[0]
        raise LakeError(f"{path} cannot be read: the lake is damaged ({why})") from None


def rows_of(path: Place) -> int:
    """Rows of a Parquet file; `LakeError` where it is none."""
    with reading(path):
        return int(pq.read_metadata(opened(path)).num_rows)


_ERRORS = "ingest_errors"
_ERROR_COLUMNS = ("capture", "event", "message", "offset", "frames")


def remember_errors(root: Place, after: Manifest, captures: Mapping[str, str]) -> None:
    """Note in a manifest what the table of errors holds about captures, whose names are given by their digests.

    Only what has been written with this manifest counts: earlier rows are of other files that had these names.
    """
    files = [name for name in after.files.get(_ERRORS, ()) if is_of(name, after.generation)] if captures else []
    found: dict[str, Errors] = {}
    for row in _errors(root, files):
        found.setdefault(row["capture"], []).append([row["message"], row["offset"], row["frames"]])
    for digest, name in captures.items():
        if utf8(name) in found:
            after.faulty[digest] = found[utf8(name)]


def known_errors(manifest: Manifest, known: Iterable[tuple[str, str]]) -> list[CaptureError]:
    """What is wrong with captures that a lake has: pairs of a name and a digest."""
    return [
        CaptureError(name, message, offset, frames)
        for name, digest in known
        for message, offset, frames in manifest.faulty.get(digest, ())
    ]


def add_errors(root: Place, after: Manifest, errors: Iterable[CaptureError]) -> int:
    """Write rows for errors of captures that the table does not have yet; returns how many."""
    wanted = {(utf8(one.capture), utf8(one.message)): one for one in errors}
    if not wanted:
        return 0
    for row in _errors(root, after.files.get(_ERRORS, ())):
        wanted.pop((row["capture"], row["message"]), None)
    if wanted:
        with LakeFiles(root, after.generation) as files:
            files.write(_ERRORS, batch(_ERRORS, [error_row(one) for one in wanted.values()]))
        add_files(after, files.names)
    return len(wanted)


def _errors(root: Place, names: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in names:
        with reading(root / name):
            rows += pq.read_table(opened(root / name), columns=list(_ERROR_COLUMNS), partitioning=None).to_pylist()
    return [row for row in rows if row["event"] == "capture_error"]
