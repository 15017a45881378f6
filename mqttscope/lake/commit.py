"""Commits of a lake: one lock, a transaction of each table, and one manifest that lists what belongs together.

A commit has three steps; each leaves the lake whole if the process is killed:

1. The files are on disk.  The next manifest is written beside the present one (`PENDING`).
2. Each table adds the files of the next manifest in one Delta transaction (`lake.delta`).
3. The manifest is replaced.

Before the end of the first step nothing has happened.  After it the next holder of the lock completes the commit, and
leaves a table alone that has the files already.  So every row is in its table once, however often a commit is aborted.

Each batch of a watch and each hourly ingest writes small files of every table, which `merge_small` merges.  It merges
only files of similar row counts, and only when there are many, so that a row is rewritten a few times at most however
many batches there are, and a commit writes no more than `MERGED` times `SMALL_BYTES` of each table.
Sizes in bytes would merge more often: the overhead of a small Parquet file is larger than its rows.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mqttscope.capture.write import make_folder, opener, shared_like
from mqttscope.lake import delta, shared_commit
from mqttscope.lake import manifest as manifests
from mqttscope.lake.adoption import adopt_changes
from mqttscope.lake.files import LakeFiles, measure_files, rows_in_order, writing
from mqttscope.lake.manifest import NAME, PENDING, LakeError, Manifest, read_manifest, remove_strays, write_manifest
from mqttscope.lake.schemas import EVENT_TABLES, FLOW_KEYS, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.store import Lake, Place, StorePath, place
from mqttscope.system import lock, sync_folder

LOCK = ".lock"
STREAM = "stream"
"""Folder with the state of watched streams."""
_INTERNAL = (STATE.name, SCOPE_STATE.name, FLOW_KEYS.name)
_OURS = {
    LOCK,
    STREAM,
    *TABLES,
    *_INTERNAL,
    *(file + suffix for file in (NAME, PENDING) for suffix in ("", ".new")),
}
"""Names that an ingest makes in the folder of a lake."""
COMMIT_BYTES = 256 << 10
"""Free space that a commit needs for logs and manifests."""
VACUUMED = 64
"""Number of commits between two removals of files that no reader needs."""


@contextmanager
def lake_lock(folder: Lake) -> Iterator[None]:
    """Hold the lock of a lake while it is written, and complete an aborted commit.

    `LakeError` if another process writes the lake, or the folder is not a lake.  The lock ends with the process,
    however the process ends.  On systems without such locks, and in object stores, `commit` detects a conflict.
    """
    root = place(folder)
    if isinstance(root, StorePath):
        shared_commit.begin(root)
        yield
        return
    delta.require(root)
    with shared_like(root):
        yield from _hold_lock(root)


def _hold_lock(root: Path) -> Iterator[None]:
    with writing(root):
        make_folder(root)
        _refuse_others(root)
        file = open(root / LOCK, "ab", opener=opener)  # noqa: SIM115 - closed with the lock
    with file:
        if not lock(file.fileno()):
            raise LakeError(f"{root} is being written by another ingest or watch")
        try:
            complete(root)
            adopt_changes(root)
            yield
        finally:
            with suppress(OSError):
                # Remove the new folder if it stayed empty.
                if os.listdir(root) == [LOCK]:
                    (root / LOCK).unlink()
                    root.rmdir()


def _refuse_others(root: Path) -> None:
    if (root / NAME).exists():
        return
    others = sorted(set(os.listdir(root)) - _OURS)
    if others:
        raise LakeError(
            f"{root} is not a lake, and not empty (it holds {others[0]}): a new lake needs a folder of its own"
        )
    if not (root / PENDING).exists() and any((root / name / delta.LOG).exists() for name in TABLES):
        raise LakeError(f"{root} holds the tables of a lake, but not its {NAME}: a new lake needs a folder of its own")


def commit(root: Place, before: Manifest, after: Manifest) -> None:
    """Put the written files in force; `LakeError` if another ingest was faster, or the lake cannot be written."""
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
        if shutil.disk_usage(root).free < COMMIT_BYTES:
            # Once the manifest is pending, the commit can only be completed, which needs more space.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_manifest(root, after, PENDING)
        _publish(root, before, after, tables)


def complete(root: Path) -> None:
    """Complete a commit that was aborted after its files were written; delete the record of a complete one."""
    with writing(root):
        if not (root / PENDING).exists():
            return
        before, pending = read_manifest(root), read_manifest(root, PENDING)
        if pending.generation == before.generation + 1:
            _publish(root, before, pending, delta.open_tables(root, before, pending, again=True))
        else:
            (root / PENDING).unlink()


def _publish(root: Path, before: Manifest, after: Manifest, tables: delta.Tables) -> None:
    """Add the files of a manifest to all tables, then put the manifest in force; skips what was done before."""
    after.versions = delta.publish(root, before, after, tables)
    write_manifest(root, after)
    (root / PENDING).unlink(missing_ok=True)
    _tidy(root, after)


def _tidy(root: Place, after: Manifest) -> None:
    remove_strays(root, after)
    if after.generation % VACUUMED == 0:
        # Not earlier: an ingest's files are in no table yet, and may be older than the files that a vacuum spares.
        with suppress(LakeError):
            # Files that cannot be removed now are removed later; the commit is complete.
            delta.vacuum(root)


MERGED = 16
"""Number of files with similar row counts that are merged into one."""
SMALL_BYTES = 4 << 20
"""Maximum size of files that are merged."""
_ROWS_BITS = 4
"""Row counts are similar if their bit lengths, divided by this, are equal: within a factor of 16."""


def merge_small(root: Place, before: Manifest, after: Manifest) -> None:
    """Merge small files of earlier ingests, table by table, and put the merged files into the next manifest.

    ``before``: the present manifest; files outside it are left alone.  `LakeError` if a file cannot be read or written.
    Nothing is deleted here: the merged files are the ones that ``after`` lacks.
    """
    # Named after the last ingest with rows in them, so that rows of the next ingest can be distinguished.
    with LakeFiles(root, before.generation) as files:
        for table in EVENT_TABLES:
            names = after.files.get(table, [])
            known = set(before.files.get(table, ()))
            chosen = _files_to_merge((name for name in names if name in known), before)
            if not chosen:
                continue
            manifests.check_content(root, before, chosen)
            for record_batch in rows_in_order(root, chosen, TABLES[table].arrow()):
                files.write(table, record_batch)
            first = names.index(chosen[0])
            names[first:first] = files.names[table]
            after.files[table] = [name for name in names if name not in chosen]


def _files_to_merge(names: Iterable[str], before: Manifest) -> list[str]:
    """The first `MERGED` files of the smallest row count with enough files; empty if there are too few."""
    alike: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        rows = before.rows.get(name)
        if rows is not None and before.sizes.get(name, SMALL_BYTES) < SMALL_BYTES:
            alike[rows.bit_length() // _ROWS_BITS].append(name)
    return next((alike[tier][:MERGED] for tier in sorted(alike) if len(alike[tier]) >= MERGED), [])
