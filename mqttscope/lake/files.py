"""Reads and writes the files of a lake while several processes do: unique names, one lock, one manifest.

Executors write Parquet files beside those that count and report their names; the driver commits the names to the
manifest.  A task that fails and runs again writes other names, so nothing is ever in the lake twice.

Each batch of a watch and each hourly ingest writes small files of every table, which `merge_small` merges.  Only
files with about as many rows are merged, and only when there are many of them, so that a row is rewritten a few times
at most, however many batches there are, and a commit writes no more than `MERGED` times `SMALL_BYTES` of each table.
Sizes in bytes would merge more often: the overhead of a small Parquet file is larger than its rows.

Some captures are in the lake although their rows are not: one that cannot be opened has no content to be recognised by,
and one with the same bytes as another is not read again.  `remember_errors` and `add_errors` give each of them its rows
in the table of errors once.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mqttscope.capture.write import lock, make_folder, opener
from mqttscope.lake.manifest import (
    NAME,
    Errors,
    LakeError,
    Manifest,
    check_content,
    checksum_of,
    read_manifest,
    remove_strays,
    sync_folder,
    write_manifest,
)
from mqttscope.lake.rows import error_row
from mqttscope.lake.schemas import EVENT_TABLES, FLOW_KEYS, OPEN, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.state import StateError
from mqttscope.lake.tables import batch
from mqttscope.mqtt.view import utf8
from mqttscope.net.frame import CaptureError

LOCK = ".lock"
ROWS_PER_FILE = 1_000_000
GROUP_ROWS = 65_536
GROUP_BYTES = 8 << 20
"""So many rows or bytes of a table are written at a time, as one row group."""
STREAM = "stream"
"""Folder of what streams that are watched remember."""
_INTERNAL = (STATE.name, SCOPE_STATE.name, FLOW_KEYS.name)
_OURS = {LOCK, NAME, f"{NAME}.new", STREAM, OPEN.rstrip("/"), *TABLES, *_INTERNAL}
"""What an ingest makes in the folder of a lake."""


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
        """Write what waits."""
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0


class _Summed:
    """A file that is written from its beginning to its end, and the checksum of what was written."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "xb", opener=opener)  # noqa: SIM115 - open as long as rows come
        self.checksum = 0

    @property
    def closed(self) -> bool:
        """As of any file."""
        return self.file.closed

    def write(self, data: Any) -> int:
        """Write all of it."""
        self.checksum = crc32(data, self.checksum)
        return self.file.write(data)

    def flush(self) -> None:
        """As of any file."""
        self.file.flush()

    def tell(self) -> int:
        """As of any file."""
        return self.file.tell()

    def close(self) -> None:
        """As of any file."""
        self.file.close()


class LakeFiles:
    """The Parquet files that one task writes; `LakeError` where that cannot be.

    On an error they are taken away again.
    """

    def __init__(self, root: str | os.PathLike[str], generation: int) -> None:
        self.names: dict[str, list[str]] = {}
        """Paths relative to the lake, by kind: a table, ``open/`` and a table, or something internal."""
        self.rows: dict[str, int] = {}
        """Rows by kind."""
        self.checksums: dict[str, int] = {}
        """CRC-32 of each file that is complete."""
        self._root = Path(root)
        self._generation = generation
        self._token = uuid4().hex[:12]
        self._parts: dict[str, _Part] = {}

    def write(self, kind: str, found: pa.RecordBatch) -> None:
        """Add rows to the file of a kind."""
        with writing(self._root):
            self._write(kind, found)

    def _write(self, kind: str, found: pa.RecordBatch) -> None:
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
        folder, _, table = kind.rpartition("/")
        middle = f"{table}-{self._token}" if folder else self._token
        path = f"{folder or kind}/{self._generation:010d}-{middle}-{len(names)}.parquet"
        make_folder((self._root / path).parent)
        file = _Summed(self._root / path)
        names.append(path)
        try:
            writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
        except BaseException:
            file.close()
            raise
        begun = self._parts[kind] = _Part(writer, file, path)
        return begun

    def _end(self, kind: str) -> None:
        part = self._parts[kind]
        part.flush()
        part.writer.close()
        part.file.flush()
        os.fsync(part.file.file.fileno())
        part.file.close()
        self.checksums[part.path] = part.file.checksum
        del self._parts[kind]


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
def writing(root: Path) -> Iterator[None]:
    """`LakeError` for what goes wrong with the disk of a lake: errors of open files do not name the file."""
    try:
        yield
    except OSError as error:
        raise LakeError(f"{root} cannot be written: {error.strerror or error}") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """`LakeError` that names a file of a lake where its content cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException, StateError) as error:
        why = str(error).strip().split("\n")[0]
        raise LakeError(f"{path} cannot be read: the lake is damaged ({why})") from None


@contextmanager
def lake_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of a lake while it is written; `LakeError` where another process does, or the folder is no lake.

    The lock ends with the process, however that ends.  Where the system has no such locks, `commit` is what notices.
    """
    root = Path(folder)
    with writing(root):
        make_folder(root)
        _refuse_others(root)
        file = open(root / LOCK, "ab", opener=opener)  # noqa: SIM115 - closed with the lock
    with file:
        if not lock(file.fileno()):
            raise LakeError(f"{root} is being written by another ingest or watch")
        try:
            yield
        finally:
            with suppress(OSError):
                # A folder that nothing came into is not left behind.
                if os.listdir(root) == [LOCK]:
                    (root / LOCK).unlink()
                    root.rmdir()


def _refuse_others(root: Path) -> None:
    """A lake is not made among other things: its folders could be theirs."""
    if (root / NAME).exists():
        return
    others = sorted(set(os.listdir(root)) - _OURS)
    if others:
        raise LakeError(
            f"{root} is no lake, and not empty (it holds {others[0]}): a new lake needs a folder of its own"
        )


def measure_files(root: Path, manifest: Manifest) -> None:
    """Put sizes, rows and checksums of its files into a manifest; those that it has stay."""
    sizes, rows, checksums = manifest.sizes, manifest.rows, manifest.checksums
    names = sorted(manifest.all_files())
    manifest.sizes = {name: sizes[name] if name in sizes else (root / name).stat().st_size for name in names}
    manifest.rows = {name: rows[name] if name in rows else rows_of(root / name) for name in names}
    manifest.checksums = {name: checksums[name] if name in checksums else checksum_of(root / name) for name in names}


def rows_of(path: Path) -> int:
    """Rows of a Parquet file; `LakeError` where it is none."""
    with reading(path):
        return int(pq.read_metadata(path).num_rows)


def commit(root: Path, before: Manifest, after: Manifest) -> None:
    """Make what was written count, in one step; `LakeError` where another ingest was faster, or it cannot be written.

    Files that belong to no finished ingest are taken away, files that were replaced `RETIRED_S` seconds later.
    """
    with writing(root):
        measure_files(root, after)
        after.retire(before)
        for folder in sorted({name.partition("/")[0] for name in after.all_files()}):
            sync_folder(root / folder)
        if read_manifest(root).generation != before.generation:
            raise LakeError(f"{root} was changed by another ingest in the meantime; run this one again")
        write_manifest(root, after)
        remove_strays(root, after)


MERGED = 16
"""So many files with about as many rows become one."""
SMALL_BYTES = 4 << 20
"""Files that are larger stay as they are."""
_ROWS_BITS = 4
"""Files have about as many rows where one has less than 16 times as many as the other."""


def merge_small(root: Path, before: Manifest, after: Manifest) -> None:
    """Merge small files of earlier ingests, table by table, and name the new ones in the manifest that is to come.

    ``before``: the manifest that counts; files that it does not name are left alone.  `LakeError` where a file cannot
    be read or written.  Nothing is taken away here: the files that were merged are those that ``after`` misses.
    """
    # Named after the last ingest that has rows in them, so that what the next one adds can be told apart.
    with LakeFiles(root, before.generation) as files:
        for table in EVENT_TABLES:
            names = after.files.get(table, [])
            known = set(before.files.get(table, ()))
            chosen = _chosen((name for name in names if name in known), before)
            if not chosen:
                continue
            check_content(root, before, chosen)
            for found in _rows(root, chosen, TABLES[table].arrow()):
                files.write(table, found)
            first = names.index(chosen[0])
            names[first:first] = files.names[table]
            after.files[table] = [name for name in names if name not in chosen]


def _chosen(names: Iterable[str], before: Manifest) -> list[str]:
    """The first files with the fewest rows that there are enough of; none where there are not."""
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        rows = before.rows.get(name)
        if rows is not None and before.sizes.get(name, SMALL_BYTES) < SMALL_BYTES:
            alike[rows.bit_length() // _ROWS_BITS].append(name)
    return next((alike[tier][:MERGED] for tier in sorted(alike) if len(alike[tier]) >= MERGED), [])


def _rows(root: Path, names: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in their order, with the columns of today: files of an earlier release may have fewer."""
    for name in names:
        with reading(root / name):
            source = ds.dataset(str(root / name), schema=schema, format="parquet")
            yield from source.to_batches(batch_size=GROUP_ROWS, batch_readahead=1, use_threads=False)


_ERRORS = "ingest_errors"
_ERROR_COLUMNS = ("capture", "event", "message", "offset", "frames")


def remember_errors(root: Path, after: Manifest, captures: Mapping[str, str]) -> None:
    """Note in a manifest what the table of errors holds about captures, whose names are given by their digests.

    Only what has been written with this manifest counts: earlier rows are of other files that had these names.
    """
    begins = f"{_ERRORS}/{after.generation:010d}-"
    files = [name for name in after.files.get(_ERRORS, ()) if name.startswith(begins)] if captures else []
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


def add_errors(root: Path, after: Manifest, errors: Iterable[CaptureError]) -> int:
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


def _errors(root: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in names:
        with reading(root / name):
            rows += pq.read_table(root / name, columns=list(_ERROR_COLUMNS), partitioning=None).to_pylist()
    return [row for row in rows if row["event"] == "capture_error"]
