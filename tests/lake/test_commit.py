"""One lock, one transaction of each table, one manifest; small files are merged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from mqttscope.lake import commit as module
from mqttscope.lake import delta
from mqttscope.lake.commit import MERGED, commit, complete, lake_lock, merge_small
from mqttscope.lake.files import LakeFiles, add_files, measure_files, rows_of
from mqttscope.lake.manifest import (
    NAME,
    PENDING,
    LakeError,
    Manifest,
    check_files,
    read_manifest,
    remove_strays,
    write_manifest,
)
from mqttscope.lake.schemas import EVENT_TABLES, TABLES
from mqttscope.lake.writer import write_lake
from tests.cli.running import environment
from tests.conftest import EXHAUSTIVE
from tests.lake.parts import cut
from tests.lake.reading import all_rows, options, tables_of
from tests.lake.test_files import rows
from tests.lake.test_writer import SEVERAL, same


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    script = "import sys; from mqttscope.lake.commit import lake_lock\nwith lake_lock(sys.argv[1]): print('got it')"
    words = [sys.executable, "-c", script, str(tmp_path / "lake")]
    with lake_lock(tmp_path / "lake"):
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60, check=False)
        assert done.returncode == 1
        assert "is being written by another ingest or watch" in done.stderr
    with lake_lock(tmp_path / "lake"):
        pass


def test_a_lake_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LakeError, match="cannot be written: "), lake_lock(tmp_path / "file" / "lake"):
        pass


def test_who_comes_second_does_not_win(tmp_path: Path) -> None:
    before = Manifest()
    with LakeFiles(tmp_path, 1) as files:
        files.write("packets", rows(1))
    after = replace(before, generation=1, files=files.names)
    (tmp_path / "packets" / "0000000002-stray-0.parquet").write_bytes(b"")
    commit(tmp_path, before, after)
    assert read_manifest(tmp_path) == after
    assert [path.name for path in tmp_path.glob("*/*.parquet")] == [Path(files.names["packets"][0]).name]
    assert after.versions == dict.fromkeys(TABLES, 0)

    write_manifest(tmp_path, replace(after, generation=2))
    with pytest.raises(LakeError, match="was changed by another ingest"):
        commit(tmp_path, after, replace(after, generation=2, group="ours"))
    assert read_manifest(tmp_path).group == ""


def test_a_manifest_says_sizes_and_rows(tmp_path: Path) -> None:
    with LakeFiles(tmp_path, 1) as files:
        files.write("packets", rows(3))
    (name,) = files.names["packets"]
    commit(tmp_path, Manifest(), Manifest(1, files={"packets": [name]}))

    manifest = read_manifest(tmp_path)
    assert (manifest.sizes, manifest.rows) == ({name: (tmp_path / name).stat().st_size}, {name: 3})
    (tmp_path / name).write_bytes(b"PAR1 and no more")
    with pytest.raises(LakeError, match=f"{name} cannot be read: the lake is damaged"):
        rows_of(tmp_path / name)


def test_a_lake_is_not_made_among_other_things(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(LakeError, match=r"is not a lake, and not empty \(it holds photo.jpg\)"), lake_lock(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]
    # What an ingest left that was killed is no hindrance.
    (tmp_path / "photo.jpg").unlink()
    (tmp_path / "packets").mkdir()
    with lake_lock(tmp_path):
        pass
    (tmp_path / "packets" / delta.LOG).mkdir()
    with pytest.raises(LakeError, match=r"holds the tables of a lake, but not its manifest.json"), lake_lock(tmp_path):
        pass
    (tmp_path / "photo.jpg").touch()
    write_manifest(tmp_path, Manifest(1))
    with lake_lock(tmp_path):
        pass


SCHEMA = TABLES["packets"].arrow()


def batch(values: list[int], schema: pa.Schema) -> pa.RecordBatch:
    """Packets that have a number and nothing else."""
    columns = [values if each.name == "stream_offset" else [None] * len(values) for each in schema]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
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
    return [each for name in names for each in pq.read_table(root / name)["stream_offset"].to_pylist()]


@pytest.mark.long
def test_files_stay_few_and_rows_are_written_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    write = LakeFiles.write

    def count(files: LakeFiles, kind: str, actual_batch: pa.RecordBatch) -> None:
        nonlocal written
        written += actual_batch.num_rows
        write(files, kind, actual_batch)

    monkeypatch.setattr(LakeFiles, "write", count)
    noise = random.Random(1)
    wanted: list[int] = []
    most = 0
    for _ in range(300 if EXHAUSTIVE else 50):
        values = [noise.getrandbits(62) for _ in range(100)]
        wanted += values
        ingest(tmp_path, values)
        most = max(most, len(read_manifest(tmp_path).files["packets"]))

    assert sorted(numbers(tmp_path)) == sorted(wanted)
    assert most <= 3 * MERGED
    assert written <= 4 * len(wanted)
    table = DeltaTable(str(tmp_path / "packets"))
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert {path.name for path in (tmp_path / "packets").glob("*.parquet")} == {
        Path(name).name for name in read_manifest(tmp_path).files["packets"]
    }
    assert sorted(table.to_pyarrow_table(columns=["stream_offset"])["stream_offset"].to_pylist()) == sorted(wanted)
    check_files(tmp_path, read_manifest(tmp_path))


@pytest.mark.long
def test_merged_files_stand_where_the_first_of_them_stood(tmp_path: Path) -> None:
    for number in range(MERGED + 1):
        ingest(tmp_path, [number])

    manifest = read_manifest(tmp_path)
    assert numbers(tmp_path) == list(range(MERGED + 1))
    # Numbered as the last ingest that has rows in it, so that the rows of this one can be told.
    assert [name[8:18] for name in manifest.files["packets"]] == ["0000000016", "0000000017"]
    # Who began to read before finds what was merged.
    before = DeltaTable(str(tmp_path / "packets"), version=manifest.versions["packets"] - 1)
    assert sorted(before.to_pyarrow_table()["stream_offset"].to_pylist()) == list(range(MERGED))


@pytest.mark.long
def test_files_of_an_earlier_release_get_the_columns_of_today(tmp_path: Path) -> None:
    fewer = pa.schema([each for each in SCHEMA if each.name != "capture"])
    for number in range(MERGED + 1):
        ingest(tmp_path, [number], fewer if number % 2 else SCHEMA)

    merged, last = read_manifest(tmp_path).files["packets"]
    assert pq.read_schema(tmp_path / merged) == pq.read_schema(tmp_path / last)
    assert numbers(tmp_path) == list(range(MERGED + 1))


def test_large_files_and_new_ones_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL_BYTES", 1)
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


@pytest.mark.long
def test_tables_are_those_of_one_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGED", 2)
    merged = 0
    for path in SEVERAL[::2]:
        parts = cut(path, tmp_path, 5)
        lake, whole = tmp_path / "steps" / path.parent.name, tmp_path / "whole" / path.parent.name
        for part in parts:
            before: Manifest = read_manifest(lake)
            write_lake([part], lake, options())
            merged += any(
                set(names) - set(read_manifest(lake).files[name])
                for name, names in before.files.items()
                if name in EVENT_TABLES
            )
        write_lake(parts, whole, options())
        same(tables_of(lake), tables_of(whole))
    assert merged


def changed(root: Path) -> tuple[Manifest, Manifest]:
    """A lake of one ingest, and what a second one would commit: new rows, and others instead of those of open ones."""
    ingest(root, [1, 2])
    first = read_manifest(root)
    opened = replace(first, generation=2, files=dict(first.files), open_files={})
    with LakeFiles(root, 2) as files:
        files.write("open/packets", batch([7], SCHEMA))
    add_files(opened, files.names)
    commit(root, first, opened)
    before = read_manifest(root)
    after = replace(before, generation=3, files=dict(before.files), open_files={})
    with LakeFiles(root, 3) as files:
        files.write("packets", batch([3], SCHEMA))
        files.write("open/packets", batch([8], SCHEMA))
    after.files["packets"] = [*before.files["packets"], *files.names["packets"]]
    after.open_files = {"packets": files.names["open/packets"]}
    return before, after


def in_table(root: Path) -> list[int]:
    """What everyone else reads."""
    return sorted(DeltaTable(str(root / "packets")).to_pyarrow_table()["stream_offset"].to_pylist())


class KilledError(Exception):
    pass


@pytest.mark.parametrize("moment", ["before", "tables", "manifest", "end"])
def test_a_commit_that_breaks_off_is_completed_or_has_not_begun(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = changed(tmp_path)
    write = write_manifest

    def write_until(folder: Path, manifest: Manifest, name: str = NAME) -> None:
        if name == {"before": PENDING, "manifest": NAME}.get(moment):
            raise KilledError
        write(folder, manifest, name)
        if name == {"tables": PENDING, "end": NAME}.get(moment):
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_manifest", write_until)
        with pytest.raises(KilledError):
            commit(tmp_path, before, after)

    # What was read before the kill is read after it, and nothing of the ingest is taken for a stray.
    assert read_manifest(tmp_path).generation == (3 if moment == "end" else 2)
    assert in_table(tmp_path) == ([1, 2, 3, 8] if moment in ("manifest", "end") else [1, 2, 7])
    if moment != "before":
        assert remove_strays(tmp_path, before) == []
    for _ in range(2):
        with lake_lock(tmp_path):
            pass
        done = moment != "before"
        assert read_manifest(tmp_path).generation == (3 if done else 2)
        assert in_table(tmp_path) == ([1, 2, 3, 8] if done else [1, 2, 7])
        assert not (tmp_path / PENDING).exists()
        assert DeltaTable(str(tmp_path / "packets")).version() == (2 if done else 1)
    if moment == "before":
        commit(tmp_path, before, after)
        assert in_table(tmp_path) == [1, 2, 3, 8]


def test_nobody_commits_over_a_commit_that_broke_off(tmp_path: Path) -> None:
    before, after = changed(tmp_path)
    write_manifest(tmp_path, after, PENDING)

    with pytest.raises(LakeError, match="was changed by another ingest"):
        commit(tmp_path, before, after)
    # One that is complete is of no use.
    (tmp_path / PENDING).unlink()
    commit(tmp_path, before, after)
    write_manifest(tmp_path, before, PENDING)
    complete(tmp_path)
    assert (read_manifest(tmp_path).generation, (tmp_path / PENDING).exists()) == (3, False)


def test_two_that_commit_the_same_generation(tmp_path: Path) -> None:
    """As where a file system has no locks."""
    before, after = changed(tmp_path)
    other = replace(after, files=dict(after.files), open_files={})
    with LakeFiles(tmp_path, 3) as files:
        files.write("packets", batch([4], SCHEMA))
    other.files["packets"] = [*before.files["packets"], *files.names["packets"]]
    measure_files(tmp_path, other)
    tables = delta.open_tables(tmp_path, before, other)
    commit(tmp_path, before, after)

    with pytest.raises(LakeError, match="was changed by another program in the meantime"):
        delta.publish(tmp_path, before, other, tables)
    with pytest.raises(LakeError, match="was changed by another ingest in the meantime"):
        delta.publish(tmp_path, before, other, delta.open_tables(tmp_path, before, other, again=True))
    assert in_table(tmp_path) == [1, 2, 3, 8]


def test_files_that_nobody_needs_are_taken_away_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VACUUMED", 2)
    seen: list[Path] = []
    monkeypatch.setattr(delta, "vacuum", seen.append)
    for number in range(5):
        ingest(tmp_path, [number])
    assert seen == [tmp_path] * 2

    def fail(_: Path) -> None:
        raise LakeError("no")

    # The commit is complete all the same.
    monkeypatch.setattr(delta, "vacuum", fail)
    ingest(tmp_path, [5])
    assert numbers(tmp_path) == in_table(tmp_path) == list(range(6))


def killed_anywhere(lakes: str, step: int, *words: str) -> list[dict[str, Any]]:
    """What became of ingests that were killed, which `tests.lake.kill_ingest` says; each was run again."""
    program = [sys.executable, "-m", "tests.lake.kill_ingest", lakes, "1" if EXHAUSTIVE else str(step), *words]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    documents: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert {document["generation"] for document in documents} == {2}
    # Places before the manifest to come was written, and after it.
    assert {document["pending"] for document in documents if document["read"] == 1} == {False, True}
    return documents


@pytest.mark.long
def test_an_ingest_that_is_killed_anywhere(tmp_path: Path) -> None:
    """SIGKILL at places all over an ingest: before, between and after the transactions of the tables."""
    parts = cut(SEVERAL[0], tmp_path, 2)
    documents = killed_anywhere(str(tmp_path), 9, *map(str, parts))
    steps = []
    for part in parts:
        write_lake([part], tmp_path / "lake", options())
        steps.append(all_rows(tmp_path / "lake"))
    for document in documents:
        assert document["before"] == steps[document["read"] - 1]
        assert document["after"] == document["in_tables"] == steps[1]


def test_a_commit_does_not_begin_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = changed(tmp_path)
    monkeypatch.setattr(module, "COMMIT_BYTES", 1 << 62)
    with pytest.raises(LakeError, match="cannot be written: No space left on device"):
        commit(tmp_path, before, after)
    assert (read_manifest(tmp_path), (tmp_path / PENDING).exists()) == (before, False)
