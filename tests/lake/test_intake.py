"""Both ways of frames into the rows of an ingest end in the same rows, and in the same notes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqttscope.capture import open_capture
from mqttscope.capture.files import CapturePortion
from mqttscope.capture.fingerprint import head_crc
from mqttscope.cli.second_process import second_process
from mqttscope.lake import intake as reading
from mqttscope.lake.intake import Intake
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.tables import Collector
from mqttscope.lake.writer import read_table, write_lake
from tests.bench.generate import generate
from tests.each import each
from tests.lake.parts import cut
from tests.lake.reading import CAPTURES, Row, options, read_segments
from tests.lake.test_writer import SEVERAL


def open_slowly(names: list[str], *, parts: dict[str, CapturePortion], direct: object) -> Any:
    """Frames of captures, none of which is offered to the fast path."""
    return open_capture(names, parts=parts)


def part(path: Path) -> CapturePortion:
    with path.open("rb") as file:
        size = path.stat().st_size
        return CapturePortion(0, size, head_crc(file, size))


def read(paths: list[Path], last_ns: int | None = None) -> tuple[Intake, list[tuple[str, Row]]]:
    rows: list[tuple[str, Row]] = []

    def write(name: str, batch: pa.RecordBatch) -> None:
        rows.extend((name, row) for row in batch.to_pylist())

    lake_options = options()
    intake = Intake(Collector(lake_options, rules=lake_options.rules), write, last_ns)
    intake.read([str(path) for path in paths], {str(path): part(path) for path in paths})
    intake.flush(everything=True)
    return intake, rows


def notes(intake: Intake) -> Any:
    return intake.segments, intake.now_ns, intake.last_ns, intake.skipped, intake.out_of_order, intake.overlapping


@each("path", CAPTURES[::4], ids=lambda path: path.parent.name)
def test_frames_come_either_way(path: Path) -> None:
    fast, rows = read([path])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "open_capture", open_slowly)
        slow, wanted = read([path])

    assert rows == wanted
    assert notes(fast) == notes(slow)
    assert fast.segments == len(read_segments(path))


def test_most_frames_of_a_large_capture_come_the_fast_way(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    generate(path, 3_000, devices=20)
    latest = max(read_segment.timestamp_ns for read_segment in read_segments(path))
    intake, _ = read([path], latest)

    assert intake.segments == len(read_segments(path)) > 2 * intake._segments
    assert (intake.now_ns, intake.last_ns, intake.out_of_order) == (latest, latest, {str(path)})
    assert read([path], latest + 5)[0].last_ns == latest + 5


def content(lake: Path) -> dict[str, list[Row]]:
    """All rows of a lake in their order, and what is remembered for the next ingest."""
    manifest = read_manifest(lake)
    remembered = [*manifest.state_files, *manifest.scope_state_files]
    rest = [row for name in remembered for row in pq.read_table(lake / name, partitioning=None).to_pylist()]
    return {name: read_table(lake, name).to_pylist() for name in TABLES} | {"remembered": rest}


@pytest.mark.long
def test_two_processes_make_the_tables_of_one(tmp_path: Path) -> None:
    large = tmp_path / "large" / "capture.pcapng"
    large.parent.mkdir()
    generate(large, 2_000, devices=40)
    # The last ingest brings what is between the two before it.
    steps: list[list[Path]] = [[], [], []]
    for path in (*SEVERAL, large):
        for at, piece in zip((0, 2, 1), cut(path, tmp_path, 3), strict=False):
            steps[at].append(piece)
    for step in steps:
        for way in ("one", "two"):
            write_lake(step, tmp_path / way, options(), second_process=second_process if way == "two" else None)
        documents, two = content(tmp_path / "one"), content(tmp_path / "two")
        assert two == documents
        assert all(documents[name] for name in ("messages", "findings", "remembered"))
    assert len(documents["packets"]) > 1_000
    assert any(row["late"] for row in documents["connections"])


def test_one_process_reads_again_where_two_have_not_read_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Intake, "_what_was_read", lambda _: (os.getpid(),))
        done = write_lake([SEVERAL[0]], lake, options(), second_process=second_process)
    write_lake([SEVERAL[0]], tmp_path / "other", options())

    assert done.captures == [str(SEVERAL[0])]
    assert content(lake) == content(tmp_path / "other")
    assert {str(path.relative_to(lake)) for path in lake.glob("*/*.parquet")} == read_manifest(lake).all_files()


def test_nothing_is_left_of_two_processes_of_which_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getpid()

    def failing(there: bool) -> Callable[..., None]:
        def flush(self: Intake, *, everything: bool = False) -> None:
            usual(self, everything=everything)
            if (os.getpid() != here) is there and everything:
                raise LakeError(f"{tmp_path} is full")

        return flush

    usual = Intake.flush
    for there in (True, False):
        lake = tmp_path / str(there)
        monkeypatch.setattr(Intake, "flush", failing(there))
        with pytest.raises(LakeError, match="is full"):
            write_lake([SEVERAL[0]], lake, options(), second_process=second_process)
        assert list(lake.rglob("*.parquet")) == []
        assert read_manifest(lake).generation == 0
    assert os.getpid() == here
