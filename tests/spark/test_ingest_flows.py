"""What becomes of the reports of the tasks of a fold; the tasks: test_ingest_tasks.py, with Spark: test_ingest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

import pyarrow.parquet as pq

from mqttscope.lake.kernel import SEGMENT_COLUMNS
from mqttscope.lake.manifest import Manifest
from mqttscope.spark.ingest_flows import NOTE_COLUMNS, Folded, found_wrong, take, write_errors
from mqttscope.spark.ingest_tasks import TaskReport
from mqttscope.spark.rows import DROPS, ERROR
from mqttscope.spark.tables import parquet_paths
from tests.spark.ingest_rows import INPUT, aside, folded, work


def test_the_columns_of_the_input() -> None:
    assert tuple(INPUT.names) == (*SEGMENT_COLUMNS, *NOTE_COLUMNS)


def test_notes_come_back_and_become_rows(tmp_path: Path) -> None:
    link = "link type 189 is not supported"
    report = folded(
        work(tmp_path),
        aside(ERROR, message=link, frame=40), aside(ERROR, message=link, frame=0),
        aside(ERROR, message="ends early", frame=80, offset=900),
        *[aside(DROPS, message="dropped", count=3, frame=7, notice='{"interface":0,"received":9,"dropped":3}')] * 2,
        aside("skipped", message="not_ip", count=2),
    )  # fmt: skip
    assert (len(report.notes), len(report.noted(DROPS))) == (3, 2)

    written = write_errors(tmp_path, 3, [one for _, one in found_wrong(report.notes, report.noted(DROPS))])

    (name,) = written.files["ingest_errors"]
    rows = pq.read_table(tmp_path / name).to_pylist()
    assert [(row["event"], row["message"], row["frames"], row["dropped"]) for row in rows] == [
        ("capture_error", link, 0, None),
        *[("capture_drops", "interface 0 dropped 3 frames", None, 3)] * 2,
        ("capture_error", "ends early", 80, None),
    ]
    assert found_wrong([], []) == []
    assert write_errors(tmp_path, 3, []) == TaskReport()


def test_what_was_written_goes_into_the_manifest() -> None:
    after, done = Manifest(files={"packets": ["old"]}), Folded()
    kinds = ("packets", "open/packets", "state", "scope_state", "flow_keys")
    take(TaskReport({kind: [f"{kind}/new"] for kind in kinds}, dict.fromkeys(kinds, 5)), after, done)

    assert after.files == {"packets": ["old", "packets/new"]}
    assert after.open_files == {"packets": ["open/packets/new"]}
    assert (after.state_files, after.scope_state_files) == (["state/new"], ["scope_state/new"])
    assert done.rows == {"packets": 5}


def test_paths_are_no_patterns(tmp_path: Path) -> None:
    assert parquet_paths(tmp_path / "a[1] {b}", ["packets/x.parquet"]) == [
        f"file:{tmp_path}/a\\[1\\] \\{{b\\}}/packets/x.parquet"
    ]
