"""Files of a lake under names of their own; faulty captures."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqttscope.capture.write import make_folder
from mqttscope.lake import files as module
from mqttscope.lake.files import LakeFiles, add_errors, known_errors, remember_errors
from mqttscope.lake.manifest import LakeError, Manifest, read_manifest
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.net.frame import CaptureError
from tests.lake.reading import CAPTURES, options, tables_of
from tests.lake.test_writer import SEVERAL


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
    assert files.names["open/packets"][0].startswith("packets/0000000007-")
    assert files.names["open/packets"][0].endswith("-open-0.parquet")


def test_attempts_write_different_files(tmp_path: Path) -> None:
    with LakeFiles(tmp_path, 1) as lake_files, LakeFiles(tmp_path, 1) as other:
        lake_files.write("packets", rows(1))
        other.write("packets", rows(1))

    assert lake_files.names != other.names


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
    (capture_error,) = [error for error in done.known_errors if error.capture == str(names[3])]
    assert (capture_error.message, capture_error.frames > 0, capture_error.offset is not None) == (what, True, True)
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


def test_what_cannot_be_opened_has_a_row_and_what_is_not_there_has_none(lake: Path) -> None:
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


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs modes of files")
@pytest.mark.parametrize(("mode", "of_files", "of_folders"), [
    (0o2775, 0o660, 0o770), (0o2750, 0o640, 0o750), (0o775, 0o600, 0o700), (0o700, 0o600, 0o700),
])  # fmt: skip
def test_a_lake_is_for_the_group_of_its_folder(mode: int, of_files: int, of_folders: int, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(mode)
    write_lake([CAPTURES[0]], lake, options())
    folders = {path.stat().st_mode & 0o777 for path in lake.rglob("*") if path.is_dir()}
    assert folders == {of_folders}
    assert {path.stat().st_mode & 0o777 for path in lake.rglob("*") if path.is_file()} == {of_files}
    make_folder(tmp_path / "others" / "own")
    assert (tmp_path / "others" / "own").stat().st_mode & 0o777 == 0o700
