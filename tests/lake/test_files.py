"""Files of a lake under names of their own, merged where they are small; one lock, one manifest; faulty captures."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.lake import files as module
from mqttscope.lake import manifest as retiring
from mqttscope.lake.files import (
    MERGED,
    LakeFiles,
    add_errors,
    add_files,
    commit,
    known_errors,
    lake_lock,
    merge_small,
    remember_errors,
    rows_of,
)
from mqttscope.lake.manifest import LakeError, Manifest, check_files, read_manifest, write_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.net.frame import CaptureError
from tests.cli.running import environment
from tests.conftest import EXHAUSTIVE
from tests.lake.reading import options
from tests.lake.test_writer import SEVERAL, cut, same, tables_of


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": list(range(start, start + count))})


def test_rows_are_gathered_and_files_end_after_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_FILE", 10)
    monkeypatch.setattr(module, "GROUP_ROWS", 6)
    with LakeFiles(tmp_path, 7) as files:
        for start in range(0, 21, 3):
            files.write("packets", rows(3, start))
        files.write("open/packets", rows(1))

    assert files.rows == {"packets": 21, "open/packets": 1}
    assert [pq.read_metadata(tmp_path / name).num_rows for name in files.names["packets"]] == [12, 9]
    assert pq.read_metadata(tmp_path / files.names["packets"][0]).num_row_groups == 2
    assert pq.read_table([tmp_path / name for name in files.names["packets"]])["number"].to_pylist() == list(range(21))
    assert files.names["packets"][0].startswith("packets/0000000007-")
    assert files.names["open/packets"][0].startswith("open/0000000007-packets-")


def test_attempts_write_different_files(tmp_path: Path) -> None:
    with LakeFiles(tmp_path, 1) as one, LakeFiles(tmp_path, 1) as other:
        one.write("packets", rows(1))
        other.write("packets", rows(1))

    assert one.names != other.names


def test_a_task_that_fails_takes_its_files_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_FILE", 2)
    files = LakeFiles(tmp_path, 1)

    def fail() -> None:
        with files:
            files.write("packets", rows(3))
            files.write("packets", rows(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(files.names["packets"]) == 2
    assert list(tmp_path.rglob("*.parquet")) == []


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    script = "import sys; from mqttscope.lake.files import lake_lock\nwith lake_lock(sys.argv[1]): print('got it')"
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
    (tmp_path / "packets" / "stray.parquet").write_bytes(b"")
    commit(tmp_path, before, after)
    assert read_manifest(tmp_path) == after
    assert [path.name for path in tmp_path.glob("*/*")] == [Path(files.names["packets"][0]).name]

    write_manifest(tmp_path, replace(after, generation=2))
    with pytest.raises(LakeError, match="was changed by another ingest"):
        commit(tmp_path, after, replace(after, generation=2, group="ours"))
    assert read_manifest(tmp_path).group == ""


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can get longer than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 2, 100])
def test_a_full_disk_is_that_of_the_lake(size: int, tmp_path: Path) -> None:
    def write() -> None:
        with full_disk(size), LakeFiles(tmp_path, 1) as files:
            files.write("packets", rows(1000))

    with pytest.raises(LakeError, match=f"^{tmp_path} cannot be written: File too large"):
        write()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_manifest_says_sizes_and_rows(tmp_path: Path) -> None:
    with LakeFiles(tmp_path, 1) as files:
        files.write("packets", rows(3))
    (name,) = files.names["packets"]
    commit(tmp_path, Manifest(), Manifest(1, files={"packets": [name]}))

    found = read_manifest(tmp_path)
    assert (found.sizes, found.rows) == ({name: (tmp_path / name).stat().st_size}, {name: 3})
    (tmp_path / name).write_bytes(b"PAR1 and no more")
    with pytest.raises(LakeError, match=f"{name} cannot be read: the lake is damaged"):
        rows_of(tmp_path / name)


def test_a_lake_is_not_made_among_other_things(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(LakeError, match=r"is no lake, and not empty \(it holds photo.jpg\)"), lake_lock(tmp_path):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["photo.jpg"]
    # What an ingest left that was killed is no hindrance.
    (tmp_path / "photo.jpg").rename(tmp_path / "packets")
    with lake_lock(tmp_path):
        pass
    (tmp_path / "photo.jpg").touch()
    write_manifest(tmp_path, Manifest(1))
    with lake_lock(tmp_path):
        pass


DENIED = "cannot be opened: Permission denied"


def errors(lake: Path) -> list[tuple[str, str]]:
    return [(Path(row["capture"]).name, row["message"]) for row in read_table(lake, "ingest_errors").to_pylist()]


def files_of(lake: Path) -> dict[str, bytes]:
    return {path.relative_to(lake).as_posix(): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def test_copies_of_faulty_captures_have_rows_and_are_told_again(tmp_path: Path) -> None:
    lake, cut = tmp_path / "lake", SEVERAL[0].read_bytes()[:-10]
    names = [tmp_path / name for name in ("empty-1", "empty-2", "cut-1", "cut-2", "good-1", "good-2")]
    for name, content in zip(names, (b"", b"", cut, cut, *[SEVERAL[1].read_bytes()] * 2), strict=True):
        name.write_bytes(content)

    done = write_lake(names[:-1], lake)

    (what,) = {message for name, message in errors(lake) if name == "cut-1"}
    assert sorted(errors(lake)) == [("cut-1", what), ("cut-2", what), ("empty-1", "is empty"), ("empty-2", "is empty")]
    assert done.rows["ingest_errors"] == 4
    assert [Path(name).name for name in done.known] == ["empty-2", "cut-2"]
    (one,) = [error for error in done.known_errors if error.capture == str(names[3])]
    assert (one.message, one.frames > 0, one.offset is not None) == (what, True, True)
    before = files_of(lake)

    again = write_lake(names, lake)
    assert [(Path(error.capture).name, error.message) for error in again.known_errors] == [
        ("empty-1", "is empty"), ("empty-2", "is empty"), ("cut-1", what), ("cut-2", what)
    ]  # fmt: skip
    assert (again.captures, again.rows, files_of(lake)) == ([], {}, before)

    # Another one, when nothing else is new.
    others = tables_of(lake) | {"ingest_errors": list[Any]()}
    (tmp_path / "empty-3").write_bytes(b"")
    assert write_lake([tmp_path / "empty-3", names[0]], lake).rows == {"ingest_errors": 1}
    assert sorted(errors(lake))[-1] == ("empty-3", "is empty")
    assert tables_of(lake) | {"ingest_errors": []} == others


def test_a_capture_that_is_whole_by_now_is_not_blamed(tmp_path: Path) -> None:
    capture, lake = tmp_path / "a.pcapng", tmp_path / "lake"
    capture.write_bytes(b"")
    write_lake([capture], lake)
    capture.write_bytes(SEVERAL[0].read_bytes())

    assert write_lake([capture], lake).known_errors == []
    assert write_lake([capture], lake).known_errors == []
    # The table is a log.
    assert errors(lake) == [("a.pcapng", "is empty")]


def test_what_cannot_be_opened_has_a_row_and_what_is_not_there_has_none(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    faults = {"b\udcff.pcap": DENIED, "typo.pcap": "does not exist", "x*": "matches no file"}
    faults |= {"in": "is a directory without captures"}

    assert write_lake([SEVERAL[1]], lake, faults=faults).rows["ingest_errors"] == 1
    before = files_of(lake)
    assert errors(lake) == [("b\\xff.pcap", DENIED)]
    assert write_lake([SEVERAL[1]], lake, faults=faults).rows == {}
    assert files_of(lake) == before
    write_lake([SEVERAL[1]], lake, faults={"c.pcap": DENIED})
    assert sorted(errors(lake)) == [("b\\xff.pcap", DENIED), ("c.pcap", DENIED)]
    write_lake([SEVERAL[0]], lake)
    assert read_manifest(lake).generation == 3


def test_only_rows_of_one_generation_count(tmp_path: Path) -> None:
    after = Manifest(1)
    assert add_errors(tmp_path, after, [CaptureError("a", "was bad", 7, 2)]) == 1
    after.generation = 2
    assert add_errors(tmp_path, after, [CaptureError("b", "is bad", 5, 1), CaptureError("a", "was bad", 9, 9)]) == 1

    remember_errors(tmp_path, after, {"11": "a", "22": "b", "33": "c"})
    assert after.faulty == {"22": [["is bad", 5, 1]]}
    assert known_errors(after, [("x", "22"), ("y", "33")]) == [CaptureError("x", "is bad", 5, 1)]


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


def test_tables_are_those_of_one_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGED", 2)
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
