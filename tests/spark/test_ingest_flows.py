"""The reports of the tasks of a fold, and its second stage; the tasks: test_ingest_tasks.py, all: test_ingest.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from mqttscope.lake.kernel import SEGMENT_COLUMNS, cross_kernel
from mqttscope.lake.keys import Drop
from mqttscope.lake.manifest import LakeError, Manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.spark import ingest_flows
from mqttscope.spark.ingest_tasks import IngestFailedError, SharedNotices, TaskReport, ingest_keys
from mqttscope.spark.rows import DROPS, ERROR, SUMMARY
from mqttscope.spark.tables import parquet_paths
from tests.lake.reading import batches_of, by_kernel, ordered
from tests.lake.telling import BOTH
from tests.spark.ingest_rows import INPUT, ROWS, aside, folded, work


def test_the_columns_of_the_input() -> None:
    assert tuple(INPUT.names) == (*SEGMENT_COLUMNS, *ingest_flows.NOTE_COLUMNS)


def test_notes_come_back_and_become_rows(tmp_path: Path) -> None:
    link = "link type 189 is not supported"
    report = folded(
        work(tmp_path),
        aside(ERROR, message=link, frame=40), aside(ERROR, message=link, frame=0),
        aside(ERROR, message="ends early", frame=80, offset=900),
        *[aside(DROPS, message="dropped", count=3, frame=7, notice='{"interface":0,"received":9,"dropped":3}')] * 2,
        aside("skipped", message="not_ip", count=2),
    )  # fmt: skip
    assert (len(report.notes), len(report.rows_of_kind(DROPS))) == (3, 2)

    written = ingest_flows.write_errors(
        tmp_path, 3, [notice for _, notice in ingest_flows.capture_errors(report.notes, report.rows_of_kind(DROPS))]
    )

    (name,) = written.files["ingest_errors"]
    rows = pq.read_table(tmp_path / name).to_pylist()
    assert [(row["event"], row["message"], row["frames"], row["dropped"]) for row in rows] == [
        ("capture_error", link, 0, None),
        *[("capture_drops", "interface 0 dropped 3 frames", None, 3)] * 2,
        ("capture_error", "ends early", 80, None),
    ]
    assert ingest_flows.capture_errors([], []) == []
    assert ingest_flows.write_errors(tmp_path, 3, []) == TaskReport()


def test_what_was_written_goes_into_the_manifest() -> None:
    after, done = Manifest(files={"packets": ["old"]}), ingest_flows.FoldResult()
    kinds = ("packets", "open/packets", "state", "scope_state", "flow_keys")
    ingest_flows.add_report(TaskReport({kind: [f"{kind}/new"] for kind in kinds}, dict.fromkeys(kinds, 5)), after, done)

    assert after.files == {"packets": ["old", "packets/new"]}
    assert after.open_files == {"packets": ["open/packets/new"]}
    assert (after.state_files, after.scope_state_files) == (["state/new"], ["scope_state/new"])
    assert done.rows == {"packets": 5}


def test_paths_are_no_patterns(tmp_path: Path) -> None:
    assert parquet_paths(tmp_path / "a[1] {b}", ["packets/x.parquet"]) == [
        f"file:{tmp_path}/a\\[1\\] \\{{b\\}}/packets/x.parquet"
    ]


def test_rules_across_connections_that_fail_are_named(tmp_path: Path) -> None:
    rows = [pa.RecordBatch.from_pydict({"flow": [b"k"], "kind_order": [0]})]

    with pytest.raises(IngestFailedError, match="rules across connections: KeyError"):
        list(ingest_keys(rows, work(tmp_path), SharedNotices()))


def of_a_key() -> list[tuple[Any, ...]]:
    """The segments of a capture under the key that the rules give them."""
    (key,) = {row["key"] for row in by_kernel(ROWS, LakeOptions(rules=BOTH))["flow_keys"]}
    return [(row[0], key.encode(), *row[2:]) for row in ROWS]


def test_the_task_writes_what_the_kernel_finds(tmp_path: Path) -> None:
    rows = of_a_key()
    fold_settings = work(tmp_path, options=LakeOptions(rules=BOTH), more=False)
    wanted = by_kernel(rows, fold_settings.options, cross_kernel)
    assert wanted["findings"]

    (batch,) = ingest_keys(batches_of(rows), fold_settings, SharedNotices())
    report = TaskReport.load(batch.to_pylist()[0]["report"])
    assert report.rows == {kind: len(documents) for kind, documents in wanted.items()}
    for kind, names in report.files.items():
        written = [row for name in names for row in pq.read_table(tmp_path / name).to_pylist()]
        assert ordered({kind: written}) == ordered({kind: wanted[kind]})


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "findings").write_bytes(b"no folder")

    with pytest.raises(LakeError, match="cannot be written"):
        list(
            ingest_keys(
                batches_of(of_a_key()), work(tmp_path, options=LakeOptions(rules=BOTH), more=False), SharedNotices()
            )
        )


def test_what_every_task_needs_is_taken_from_the_rows_without_a_flow() -> None:
    def row(kind: str, **values: Any) -> dict[str, Any]:
        return {"kind": kind, "file": 0, "frame": 0, "timestamp_ns": None, "message": None, "capture": "a"} | values

    summaries = [
        row(SUMMARY, timestamp_ns=5),
        row(SUMMARY, frame=2, timestamp_ns=8),
        row(SUMMARY, file=1, timestamp_ns=9),
    ]
    shared_notices = SharedNotices.of([row(ERROR), *summaries, row(DROPS, frame=3)])

    assert shared_notices == SharedNotices(summaries, (8, 9), {"a": Drop(0, 3, 5)}, 9)
    assert SharedNotices.of([], 7) == SharedNotices(watermark_ns=7)


def test_rows_come_once_for_each_key_of_their_flow(spark: SparkSession) -> None:
    names = [*SEGMENT_COLUMNS, "kind_order"]
    values: dict[str, Any] = dict.fromkeys(names) | {"kind": "segment", "kind_order": 1}
    rows = spark.createDataFrame(
        [tuple((values | each)[name] for name in names) for each in (
            {"flow": b"one", "frame": 1}, {"flow": b"one", "frame": 2}, {"flow": b"two", "frame": 3},
            {"flow": b"lonely", "frame": 4}, {"flow": None, "frame": 5},
        )],
        ", ".join(f"{name} {KINDS.get(name, 'string')}" for name in names),
    )  # fmt: skip
    keys = spark.createDataFrame([("one", "a"), ("one", "b ü"), ("one", "a"), ("two", "a")], "flow string, key string")
    frame = ingest_flows.by_key(rows, keys.selectExpr("encode(flow, 'utf-8') as flow", "key"))

    assert frame.columns == names
    assert sorted((bytes(row["flow"]).decode(), row["frame"], row["kind_order"]) for row in frame.collect()) == [
        ("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("b ü", 1, 1), ("b ü", 2, 1),
    ]  # fmt: skip


KINDS = {"flow": "binary", "frame": "bigint", "kind_order": "int"}
