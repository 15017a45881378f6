"""The data source by itself: options, columns, filters.  With Spark: test_dataframes.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from mqttscope.spark.plan import MEASURES_DDL, plan, write_plan
from mqttscope.spark.rows import DDL, KINDS
from mqttscope.spark.scan import RowFilter
from mqttscope.spark.source import CaptureReader, MqttCapture, OptionError, SourceOptions, TaskGroup
from tests.spark.expected import all_of
from tests.spark.samples import frames, pcap

COLUMNS = StructType(
    [StructField("kind", StringType()), StructField("frame", LongType()), StructField("capture", StringType())]
)


def reader(schema: StructType = COLUMNS, **options: str) -> Any:
    return MqttCapture({name.replace("__", "."): value for name, value in options.items()}).reader(schema)


def read(each: Any) -> list[dict[str, Any]]:
    return [row for partition in each.partitions() for row in all_of(each.read(partition))]


def test_options() -> None:
    options = SourceOptions.of(
        {
            "paths": '["a", "b*"]', "SPLIT_BYTES": "16 MB", "rows": "Notes", "ports": "1883, 8883", "start_ns": "5",
            "pushdown": "TRUE", "fs.region": "eu", "plan": "[]",
        }
    )  # fmt: skip

    assert options.sources == ["a", "b*"]
    assert options.split_bytes == 16 << 20
    assert options.wanted == RowFilter(frozenset(KINDS) - {"segment", "fragment"}, frozenset([1883, 8883]), 5, None)
    assert (options.pushdown, options.settings, options.plan) == (True, {"region": "eu"}, "[]")
    assert SourceOptions.of({"path": "a"}).split_bytes is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "1"}, "mqttcapture has no option split; it has path, paths, split_bytes"),
        ({"split_bytes": "much"}, "split_bytes is 'much'; write 67108864 or 64m"),
        ({"rows": "some"}, "rows is 'some'; it is one of all, segments, fragments, notes, ingest, watch, measures"),
        ({"ports": "mqtt"}, "ports is 'mqtt', which is not a number"),
        ({"pushdown": "1"}, "pushdown is '1'; it is true or false"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        MqttCapture(options).schema()


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("topic", StringType()), "mqttcapture has no column topic; it has kind, file, capture"),
        (StructField("flags", LongType()), "column flags is int, not bigint"),
        (StructField("flags", IntegerType()), "column kind, which separates segments from other rows, is missing"),
    ],
)
def test_wrong_columns_are_named(field: StructField, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        reader(StructType([field]), path="a")


def test_schemas() -> None:
    assert MqttCapture({}).schema() == DDL
    assert MqttCapture({"rows": "measures"}).schema() == MEASURES_DDL
    assert MqttCapture.name() == "mqttcapture"


def test_rows_of_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(pcap(frames(3)))
    flags = StructType([StructField("payload", BinaryType()), StructField("flags", IntegerType())])

    assert read(reader(path=str(tmp_path)))[2] == {"kind": "segment", "frame": 3, "capture": f"{tmp_path}/a"}
    assert [row["flags"] for row in read(reader(flags, path=str(tmp_path), rows="segments"))] == [16, 16, 16]
    assert read(reader(path=str(tmp_path), rows="notes")) == []


def test_a_plan_goes_before_paths(tmp_path: Path) -> None:
    from mqttscope.capture.locations import find

    (tmp_path / "a").write_bytes(pcap(frames(3)))
    (tmp_path / "b").write_bytes(pcap(frames(4)))
    text = write_plan(plan(find([f"{tmp_path}/b"]), {}, 1 << 20))

    assert len(read(reader(paths=json.dumps([f"{tmp_path}/a"]), plan=text))) == 4
    assert [partition.tasks for partition in reader(plan="[]").partitions()] == [[]]


def test_only_who_may_push_has_the_method() -> None:
    """Spark refuses every query otherwise."""
    assert CaptureReader.pushFilters is CaptureReader.__mro__[1].pushFilters  # type: ignore[attr-defined]
    assert type(reader(path="a")) is CaptureReader
    assert type(reader(path="a", pushdown="true")) is not CaptureReader


def test_filters_leave_out_captures_kinds_and_times(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(pcap([*frames(5), b"junk"]))
    start = 1_700_000_000_000_000_000

    def pushed(*filters: Any) -> list[dict[str, Any]]:
        each = reader(path=str(tmp_path), pushdown="true")
        assert list(each.pushFilters(list(filters))) == list(filters)
        return read(each)

    assert len(pushed()) == 18
    assert {row["capture"][-1] for row in pushed(In(("capture",), (f"{tmp_path}/a", f"{tmp_path}/b")))} == {"a", "b"}
    assert pushed(EqualTo(("capture",), "none")) == []
    assert {row["kind"] for row in pushed(EqualTo(("kind",), "skipped"))} == {"skipped"}
    segments = EqualTo(("kind",), "segment")
    times = [GreaterThan(("timestamp_ns",), start + 10**9), LessThanOrEqual(("timestamp_ns",), start + 4 * 10**9)]
    assert {row["frame"] for row in pushed(segments, *times)} == {2, 3, 4}
    assert {row["frame"] for row in pushed(segments, EqualTo(("timestamp_ns",), start))} == {1}
    more = [GreaterThanOrEqual(("timestamp_ns",), start + 3 * 10**9), LessThan(("timestamp_ns",), start + 10**12)]
    assert {row["frame"] for row in pushed(segments, *more, *times[:1])} == {4, 5}
    assert len(pushed(EqualTo(("flags",), 7))) == 18


def test_measures_are_rows_too(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(pcap(frames(3)))
    each = reader(
        StructType([StructField("file", IntegerType()), StructField("size", LongType())]),
        path=str(tmp_path),
        rows="measures",
    )

    (partition,) = each.partitions()
    assert isinstance(partition, TaskGroup)
    assert partition.tasks[0].split is not None


def test_spark_finds_the_source_by_the_name_of_a_module() -> None:
    import pyspark_mqttscope

    assert pyspark_mqttscope.DefaultSource is MqttCapture
