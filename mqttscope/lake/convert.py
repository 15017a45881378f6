"""Converts a lake of an earlier release, with tables of Parquet files alone, to Delta tables.

Files stay in place; files of open connections, which had a folder of their own, get a second name in the folder
of their table.  Files with renamed columns are written again.  Until the commit the lake is unchanged.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from mqttscope.capture.write import make_folder
from mqttscope.lake import manifest as manifests
from mqttscope.lake.commit import commit, lake_lock
from mqttscope.lake.files import GROUP_ROWS, LakeFiles, add_files, dataset, reading, writing
from mqttscope.lake.manifest import LakeError, Manifest, check_files, check_tables, read_manifest, remove_strays
from mqttscope.lake.schemas import OPEN, RENAMED, TABLES
from mqttscope.lake.store import Lake


def convert_lake(folder: Lake) -> bool:
    """Make the tables of a lake Delta tables; return whether they were converted.

    `LakeError` if the lake does not exist, its files are damaged, or it cannot be written.
    """
    root = manifests.folder_of(folder)
    if not root.is_dir():
        raise LakeError(f"{root} does not exist")
    with lake_lock(root):
        before = read_manifest(root)
        if not before.generation:
            raise LakeError(f"{root} is not a lake")
        if before.versions:
            return False
        check_files(root, before)
        check_tables(root, before)
        remove_strays(root, before)
        after = replace(before.following(), open_files={})
        _name_open_files(root, before, after)
        if before.schema == 1:
            _rename_columns(root, before, after)
        commit(root, before, after)
    return True


def _name_open_files(root: Path, before: Manifest, after: Manifest) -> None:
    """Put the files of open connections into the folders of their tables."""
    token = uuid4().hex[:12]
    with writing(root):
        for table, names in before.open_files.items():
            make_folder(root / table)
            for number, name in enumerate(names):
                new = f"{table}/{after.generation:010d}-{token}-open-{number}.parquet"
                try:
                    os.link(root / name, root / new)
                except OSError:
                    # The file system has no hard links.
                    shutil.copy2(root / name, root / new)
                after.open_files.setdefault(table, []).append(new)
                for known in (after.sizes, after.rows, after.checksums):
                    if name in known:
                        known[new] = known[name]


def _rename_columns(root: Path, before: Manifest, after: Manifest) -> None:
    """Write files again if their columns had other names in the first version of the schemas."""
    with LakeFiles(root, after.generation) as files:
        for table, names in RENAMED.items():
            for kind, known in ((table, before.files), (OPEN + table, before.open_files)):
                for name in known.get(table, ()):
                    for record_batch in _renamed(root / name, table, names):
                        files.write(kind, record_batch)
            after.files.pop(table, None)
            after.open_files.pop(table, None)
    add_files(after, files.names, files.checksums)


def _renamed(path: Path, table: str, names: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file under the present column names."""
    today = TABLES[table].arrow()
    then = pa.schema([column.with_name(names.get(column.name, column.name)) for column in today])
    with reading(path):
        source = dataset([path], then)
        for record_batch in source.to_batches(batch_size=GROUP_ROWS, batch_readahead=1, use_threads=False):
            yield pa.RecordBatch.from_arrays(record_batch.columns, schema=today)
