"""Commits of a lake: one lock, a transaction of each table, and one manifest that says what belongs together.

A commit has three steps, each of which leaves the lake whole wherever the process is killed:

1. The files are on the disk.  The manifest that is to come is written beside the one that counts (`PENDING`).
2. Each table takes in what that names, in one transaction of Delta (`lake.delta`).
3. The manifest is replaced.

Before the first step is done nothing has happened.  After it the next one who takes the lock completes the commit: a
table that has the files already is left alone.  So every row is in its table once, however often this breaks off.

Each batch of a watch and each hourly ingest writes small files of every table, which `merge_small` merges.  Only
files with about as many rows are merged, and only when there are many of them, so that a row is rewritten a few times
at most, however many batches there are, and a commit writes no more than `MERGED` times `SMALL_BYTES` of each table.
Sizes in bytes would merge more often: the overhead of a small Parquet file is larger than its rows.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from mqttscope.capture.write import make_folder, opener
from mqttscope.lake import delta, shared_commit
from mqttscope.lake import manifest as manifests
from mqttscope.lake.files import GROUP_ROWS, LakeFiles, dataset, reading, rows_of, writing
from mqttscope.lake.manifest import NAME, PENDING, LakeError, Manifest, read_manifest, remove_strays, write_manifest
from mqttscope.lake.schemas import EVENT_TABLES, FLOW_KEYS, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.store import Lake, Place, StorePath, place
from mqttscope.system import lock, sync_folder

LOCK = ".lock"
STREAM = "stream"
"""Folder of what streams that are watched remember."""
_INTERNAL = (STATE.name, SCOPE_STATE.name, FLOW_KEYS.name)
_OURS = {
    LOCK,
    STREAM,
    *TABLES,
    *_INTERNAL,
    *(one + new for one in (NAME, PENDING) for new in ("", ".new")),
}
"""What an ingest makes in the folder of a lake."""
VACUUMED = 64
"""Number of commits between two removals of the files that no reader needs any more."""


@contextmanager
def lake_lock(folder: Lake) -> Iterator[None]:
    """Hold the lock of a lake while it is written, and complete a commit that broke off.

    `LakeError` where another process writes it, or the folder is no lake.  The lock ends with the process, however that
    ends.  Where the system has no such locks, `commit` is what notices; and so it is in a store.
    """
    root = place(folder)
    if isinstance(root, StorePath):
        shared_commit.begin(root)
        yield
        return
    delta.require(root)
    with writing(root):
        make_folder(root)
        _refuse_others(root)
        file = open(root / LOCK, "ab", opener=opener)  # noqa: SIM115 - closed with the lock
    with file:
        if not lock(file.fileno()):
            raise LakeError(f"{root} is being written by another ingest or watch")
        try:
            complete(root)
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
    if not (root / PENDING).exists() and any((root / name / delta.LOG).exists() for name in TABLES):
        raise LakeError(f"{root} holds the tables of a lake, but not its {NAME}: a new lake needs a folder of its own")


def commit(root: Place, before: Manifest, after: Manifest) -> None:
    """Make what was written count; `LakeError` where another ingest was faster, or it cannot be written."""
    with writing(root):
        measure_files(root, after)
    if isinstance(root, StorePath):
        shared_commit.commit(root, before, after)
        _tidy(root, after)
        return
    with writing(root):
        for folder in sorted({name.rpartition("/")[0] for name in after.all_files()}):
            sync_folder(root / folder)
        if read_manifest(root).generation != before.generation or (root / PENDING).exists():
            raise LakeError(f"{root} was changed by another ingest in the meantime; run this one again")
        tables = delta.open_tables(root, before, after)
        write_manifest(root, after, PENDING)
        _publish(root, before, after, tables)


def complete(root: Path) -> None:
    """Complete a commit that broke off after all of its files were written; one that is complete is forgotten."""
    with writing(root):
        if not (root / PENDING).exists():
            return
        before, pending = read_manifest(root), read_manifest(root, PENDING)
        if pending.generation == before.generation + 1:
            _publish(root, before, pending, delta.open_tables(root, before, pending, again=True))
        else:
            (root / PENDING).unlink()


def _publish(root: Path, before: Manifest, after: Manifest, tables: delta.Tables) -> None:
    """Give all tables what a manifest names, then make that the one that counts; what was done is not repeated."""
    after.versions = delta.publish(root, before, after, tables)
    write_manifest(root, after)
    (root / PENDING).unlink(missing_ok=True)
    _tidy(root, after)


def _tidy(root: Place, after: Manifest) -> None:
    """Take away what nobody needs any more."""
    remove_strays(root, after)
    if after.generation % VACUUMED == 0:
        # Not before: what an ingest has written is in no table yet, and may be older than what a vacuum spares.
        with suppress(LakeError):
            # What cannot be taken away now is taken away later; the commit is complete.
            delta.vacuum(root)


def measure_files(root: Place, manifest: Manifest) -> None:
    """Put sizes, rows and checksums of its files into a manifest; those that it has stay."""
    sizes, rows, checksums = manifest.sizes, manifest.rows, manifest.checksums
    names = sorted(manifest.all_files())
    manifest.sizes = {name: sizes[name] if name in sizes else (root / name).stat().st_size for name in names}
    manifest.rows = {name: rows[name] if name in rows else rows_of(root / name) for name in names}
    manifest.checksums = {
        name: checksums[name] if name in checksums else manifests.checksum_of(root / name) for name in names
    }


MERGED = 16
"""So many files with about as many rows become one."""
SMALL_BYTES = 4 << 20
"""Files that are larger stay as they are."""
_ROWS_BITS = 4
"""Files have about as many rows where one has less than 16 times as many as the other."""


def merge_small(root: Place, before: Manifest, after: Manifest) -> None:
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
            manifests.check_content(root, before, chosen)
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


def _rows(root: Place, names: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in their order, with the columns of today: files of an earlier release may have fewer."""
    for name in names:
        with reading(root / name):
            source = dataset([root / name], schema)
            yield from source.to_batches(batch_size=GROUP_ROWS, batch_readahead=1, use_threads=False)
