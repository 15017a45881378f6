"""Files of a lake under names of their own, one lock, one manifest."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.lake import files as module
from mqttscope.lake.files import LakeFiles, commit, lake_lock, rows_of
from mqttscope.lake.manifest import LakeError, Manifest, read_manifest, write_manifest
from tests.cli.running import environment


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
