"""Many small files of a lake become few, and nothing else changes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.lake import files
from mqttscope.lake import manifest as retiring
from mqttscope.lake.files import MERGED, LakeFiles, add_files, commit, merge_small
from mqttscope.lake.manifest import LakeError, Manifest, check_files, read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import write_lake
from tests.conftest import EXHAUSTIVE
from tests.lake.reading import options
from tests.lake.test_writer import SEVERAL, cut, same, tables_of

SCHEMA = TABLES["packets"].arrow()


def batch(values: list[int], schema: pa.Schema) -> pa.RecordBatch:
    """Packets that have a number and nothing else."""
    columns = [values if one.name == "stream_offset" else [None] * len(values) for one in schema]
    arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def ingest(root: Path, values: list[int], schema: pa.Schema = SCHEMA) -> None:
    """What an ingest does of it all: a file, then a commit."""
    before = read_manifest(root)
    after = replace(
        before, generation=before.generation + 1, files={name: list(names) for name, names in before.files.items()}
    )
    with LakeFiles(root, after.generation) as files:
        files.write("packets", batch(values, schema))
    add_files(after, files.names)
    merge_small(root, before, after)
    commit(root, before, after)


def numbers(root: Path) -> list[int]:
    names = read_manifest(root).files["packets"]
    return [one for name in names for one in pq.read_table(root / name)["stream_offset"].to_pylist()]


def test_files_stay_few_and_rows_are_written_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    write = LakeFiles.write

    def count(files: LakeFiles, kind: str, found: pa.RecordBatch) -> None:
        nonlocal written
        written += found.num_rows
        write(files, kind, found)

    monkeypatch.setattr(LakeFiles, "write", count)
    monkeypatch.setattr(retiring, "RETIRED_S", 0.0)
    noise = random.Random(1)
    wanted: list[int] = []
    most = 0
    for _ in range(300 if EXHAUSTIVE else 120):
        values = [noise.getrandbits(62) for _ in range(100)]
        wanted += values
        ingest(tmp_path, values)
        most = max(most, len(read_manifest(tmp_path).files["packets"]))

    assert sorted(numbers(tmp_path)) == sorted(wanted)
    assert most <= 3 * MERGED
    assert written <= 4 * len(wanted)
    assert len(list(tmp_path.rglob("*.parquet"))) == len(read_manifest(tmp_path).files["packets"])
    check_files(tmp_path, read_manifest(tmp_path))


def test_merged_files_stand_where_the_first_of_them_stood(tmp_path: Path) -> None:
    for number in range(MERGED + 1):
        ingest(tmp_path, [number])

    found = read_manifest(tmp_path)
    assert numbers(tmp_path) == list(range(MERGED + 1))
    # Numbered as the last ingest that has rows in it, so that the rows of this one can be told.
    assert [name[8:18] for name in found.files["packets"]] == ["0000000016", "0000000017"]
    assert len(found.retired) == MERGED
    assert all((tmp_path / name).exists() for name in found.retired)


def test_files_of_an_earlier_release_get_the_columns_of_today(tmp_path: Path) -> None:
    fewer = pa.schema([one for one in SCHEMA if one.name != "capture"])
    for number in range(MERGED + 1):
        ingest(tmp_path, [number], fewer if number % 2 else SCHEMA)

    merged, last = read_manifest(tmp_path).files["packets"]
    assert pq.read_schema(tmp_path / merged) == pq.read_schema(tmp_path / last)
    assert numbers(tmp_path) == list(range(MERGED + 1))


def test_large_files_and_new_ones_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SMALL_BYTES", 1)
    for number in range(MERGED + 2):
        ingest(tmp_path, [number])
    assert len(read_manifest(tmp_path).files["packets"]) == MERGED + 2

    after = read_manifest(tmp_path)
    monkeypatch.undo()
    merge_small(tmp_path, replace(after, files={}), after)
    assert len(after.files["packets"]) == MERGED + 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for number in range(MERGED):
        ingest(tmp_path, [number])
    before = read_manifest(tmp_path)
    broken = tmp_path / before.files["packets"][3]
    broken.write_bytes(bytes(broken.stat().st_size))
    there = set(tmp_path.rglob("*"))

    with pytest.raises(LakeError, match=rf"^{broken} is not what was written .its checksum"):
        merge_small(tmp_path, before, read_manifest(tmp_path))
    assert set(tmp_path.rglob("*")) == there


def test_tables_are_those_of_one_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MERGED", 2)
    merged = 0
    for path in SEVERAL:
        parts = cut(path, tmp_path, 6)
        lake, whole = tmp_path / "steps" / path.parent.name, tmp_path / "whole" / path.parent.name
        for part in parts:
            before: Manifest = read_manifest(lake)
            write_lake([part], lake, options())
            merged += len(before.table_files() & set(read_manifest(lake).retired))
        write_lake(parts, whole, options())
        same(tables_of(lake), tables_of(whole))
    assert merged
