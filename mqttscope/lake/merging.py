"""Small files of a lake become larger ones: each batch of a watch, each hourly ingest writes some of every table.

Files with about as many rows are merged when there are many of them, so that a row is written again a few times at
most, however many batches there are, and a commit writes no more than `MERGED` times `SMALL_BYTES` of each table.
By bytes it would be more often: what stands around the rows of a small file is more than the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from mqttscope.lake.files import GROUP_ROWS, LakeFiles, reading
from mqttscope.lake.manifest import Manifest, check_content
from mqttscope.lake.schemas import EVENT_TABLES, TABLES

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
