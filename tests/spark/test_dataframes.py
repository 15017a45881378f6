"""Captures as data frames: the rows are those read in process, however files are cut; fragments are put together."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession

from mqttscope.capture import open_capture
from mqttscope.capture.ranges import boundaries, measure, read_head, split
from mqttscope.dissect import segments
from mqttscope.net.segment import Segment
from mqttscope.spark import dataframes as module
from mqttscope.spark.dataframes import assemble, assembled, ingest_notes, read_captures
from mqttscope.spark.rows import COLUMNS, Batches
from mqttscope.spark.scan import RowFilter, scan
from tests.capture.test_pcap import pcap_file
from tests.conftest import ROOT
from tests.spark.expected import all_of, in_process, of_rows, segment_of_row
from tests.spark.samples import everything, fragmented, frames, pcap
from tests.spark.test_scan import SCHEMA, tasks

LOOKED_UP = pytest.mark.skipif(
    " " in sys.executable, reason="Spark does not look for data sources where the path of its Python has a blank"
)

CAPTURES = [str(ROOT / "captures" / "*" / "capture.pcap*")]


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


@pytest.mark.long
def test_all_captures_of_the_project(spark: SparkSession) -> None:
    expected = in_process(CAPTURES)

    assert of_rows(collected(read_captures(spark, CAPTURES))) == expected
    assert of_rows(collected(read_captures(spark, CAPTURES[0], split_bytes=5000, measure=True))) == expected
    # The order in which sources are named does not matter, only their times.
    turned = sorted((str(path) for path in ROOT.glob("captures/*/capture.pcap*")), reverse=True)
    assert sorted(map(repr, of_rows(collected(read_captures(spark, turned)))[0])) == sorted(map(repr, expected[0]))


@pytest.mark.long
def test_whatever_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    sources = everything(tmp_path)
    rows = read_captures(spark, sources, split_bytes=4000)

    assert of_rows(collected(rows)) == in_process(sources)
    notes = {(row["capture"].rpartition("/")[2], row["kind"]): row for row in collected(ingest_notes(rows))}
    assert notes["usb.pcap", "skipped"]["count"] == 40
    assert notes["usb.pcap", "error"]["frame"] == 0
    assert notes["cut.pcap", "error"]["offset"] == 24 + 199 * 150
    assert notes["a.pcapng", "drops"]["count"] == 3
    assert notes["damaged.pcap", "unsplit"]["offset"] <= 7974
    assert set(read_captures(spark, sources, columns=["kind", "frame"]).columns) == {"kind", "frame"}


@pytest.mark.long
def test_fragments(spark: SparkSession, tmp_path: Path) -> None:
    everything(tmp_path)

    documents = collected(assemble(read_captures(spark, f"{tmp_path}/*", rows="fragments")))

    assert [(row["kind"], row["frame"], row["message"]) for row in documents] == [
        ("segment", 9, None),
        ("skipped", None, "not_tcp"),
    ]
    assert documents[0]["flow"] is not None
    assert list(documents[0]) == list(COLUMNS)


def test_a_payload_that_is_a_capture_costs_a_task_and_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Chains of records, longer than the guess asks for, in records of nearly the full length."""
    inner = pcap_file([(1_700_000_000, number, b"i" * 30) for number in range(5600)])[24:]
    data = [*frames(300), *([inner[:260_000]] * 12), *frames(300)]
    path = tmp_path / "hostile.pcap"
    path.write_bytes(pcap_file([(1_700_000_000, number, raw) for number, raw in enumerate(data)], snap_length=262_144))
    with path.open("rb") as file:
        actual_boundaries = boundaries(read_head(file))
        assert actual_boundaries is not None
        size = path.stat().st_size
        assert any(
            measure(file, actual_boundaries, word, size).fault for word in split(actual_boundaries, size, 300_000)
        )

    rows = collected(read_captures(spark, str(path), split_bytes=300_000, measure=True))

    assert of_rows(rows) == in_process([str(path)])


def test_paths_relative_to_the_directory_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Its processes run somewhere else than this one and the source tree."""
    (tmp_path / "a b.pcap").write_bytes(pcap(frames(10)))

    rows = collected(
        read_captures(spark, f"file://{tmp_path}/a%20b.pcap", rows="segments", columns=["frame", "capture"])
    )

    assert [row["frame"] for row in rows] == list(range(1, 11))
    assert {row["capture"] for row in rows} == {f"{tmp_path}/a b.pcap"}


def test_nothing_that_matches_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=r"NoCapturesError: .*/none\* matches no file"):
        read_captures(spark, f"{tmp_path}/none*").collect()


@LOOKED_UP
@pytest.mark.long
def test_filters_are_pushed(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(pcap(frames(10)))
    rows = spark.read.format("mqttcapture").option("pushdown", "true").load(str(tmp_path))

    frame = rows.where(f"capture = '{tmp_path}/b' and kind = 'segment' and timestamp_ns >= 1700000005000000000")

    assert {(row["capture"][-1], row["frame"]) for row in collected(frame)} == {
        ("b", number) for number in range(6, 11)
    }
    assert rows.where("length(payload) > 0").count() == 20


@LOOKED_UP
def test_sql(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(pcap(frames(10)))
    spark.sql(f"create or replace temporary view seen using mqttcapture options (path '{tmp_path}', rows 'segments')")

    assert spark.sql("select count(*), count(distinct flow) from seen").collect()[0][:] == (10, 1)


@pytest.mark.long
def test_captures_in_a_store(spark: SparkSession, bucket: tuple[Any, dict[str, str]], tmp_path: Path) -> None:
    client, settings = bucket
    content = pcap(frames(3000, 1000))
    client.put_object(Bucket="captures", Key="rotated/2.pcap", Body=content)
    client.put_object(Bucket="captures", Key="rotated/1.pcap", Body=pcap(frames(5), seconds=1_600_000_000))
    # The workers of Spark were started without the credentials of this test.
    uri = "s3a://test:test@captures/rotated/*.pcap"
    (tmp_path / "2.pcap").write_bytes(content)

    rows = collected(read_captures(spark, uri, split_bytes=1 << 20, settings=settings))

    actual_row = of_rows([row for row in rows if row["file"] == 1])
    whole = in_process([str(tmp_path / "2.pcap")])
    assert [(segment.frame, segment.payload) for segment in actual_row[0]] == [
        (segment.frame, segment.payload) for segment in whole[0]
    ]
    # Names are for tables, so that they hold no secrets.
    assert {row["capture"] for row in rows if row["file"] == 0} == {"s3a://captures/rotated/1.pcap"}
    assert len(rows) == 3005
    assert actual_row[1:] == ([], [], {})


@pytest.mark.parametrize("split_bytes", [150, 1 << 20])
def test_fragments_of_several_ranges_and_captures_make_the_segments(tmp_path: Path, split_bytes: int) -> None:
    data = fragmented()
    (tmp_path / "a.pcap").write_bytes(pcap([*data, *data[:4]]))
    (tmp_path / "b.pcap").write_bytes(pcap(data[4:], seconds=1_700_000_013))
    sources = [str(tmp_path)]
    whole = [segment for segment in segments(open_capture(sources)) if isinstance(segment, Segment)]
    batches = Batches(SCHEMA)
    parts = [
        batch
        for task in tasks(sources, split_bytes)
        for batch in scan(task, batches, RowFilter(frozenset(["fragment"])), {})
    ]
    direct = [
        row
        for task in tasks(sources, split_bytes)
        for row in all_of(scan(task, batches, RowFilter(frozenset(["segment"])), {}))
    ]

    with patch.object(module, "BATCH_ROWS", 1):
        documents = list(all_of(assembled(parts)))

    actual_segments = [segment_of_row(row) for row in [*direct, *documents] if row["kind"] == "segment"]
    assert len(actual_segments) == len(direct) + 2
    assert sorted(actual_segments, key=lambda segment: (segment.capture, segment.frame)) == whole
    assert [(row["message"], row["count"]) for row in documents if row["kind"] == "skipped"] == [
        ("not_tcp", 1),
        ("not_tcp", 1),
    ]
    assert list(assembled([])) == []
