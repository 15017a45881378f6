"""Captures whose clock was set: what Spark finds and writes is what one process does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqttscope.capture.locations import find
from mqttscope.dissect.clock_watch import CaptureClock
from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.spark import clock_steps
from mqttscope.spark.clock_steps import find_clock
from mqttscope.spark.ingest import ingest
from tests.cli.running import capture
from tests.conftest import ROOT
from tests.lake.parts import cut
from tests.spark.collection import same_tables, usual_options
from tests.spark.test_linting import Same
from tests.spark.test_linting import same as same

FIELD = ROOT / "tests" / "data" / "captures" / "field"
NAMES = ("clock-set-back", "clock-set-forward")


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_the_same(same: Same, name: str) -> None:
    assert "the clock was set" in same(FIELD / f"{name}.pcap", "--format", "json", "--select", "ALL").err


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_the_same(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Also if the flows continue in the next ingest."""
    folder = tmp_path / name
    folder.mkdir()
    source = folder / "capture.pcap"
    source.write_bytes((FIELD / f"{name}.pcap").read_bytes())
    parts = [str(path) for path in cut(source, tmp_path, 2, seed=4)]
    if name == "clock-set-back":
        parts = [str(source)]  # its parts would be read in the order of their first frames
    ours, measure, lake_options = tmp_path / "ours", tmp_path / "measure", usual_options()
    for part in parts:
        ingest(spark, [part], ours, lake_options, split_bytes=1_000, partitions=2)
        write_lake([part], measure, lake_options)

    assert "clock_step" in read_table(ours, "ingest_errors")["event"].to_pylist()
    assert read_manifest(ours).shift_ns == read_manifest(measure).shift_ns != 0
    same_tables(ours, measure)


def test_executors_find_what_one_process_does(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = find([str(capture("v5-qos")), *(str(FIELD / f"{name}.pcap") for name in NAMES)])
    here = find_clock(spark, captures, {})
    monkeypatch.setattr(clock_steps, "HERE_BYTES", 0)

    assert [change.step is not None for change in here.changes].count(True) == 2
    assert find_clock(spark, captures, {}) == here
    assert find_clock(spark, find([str(capture("v5-qos"))]), {}) == CaptureClock()


def test_what_was_set_before_stays_in_effect(spark: SparkSession) -> None:
    captures = find([str(capture("v5-qos"))])
    clock = find_clock(spark, captures, {}, shift_ns=7_000_000_000, last_ns=0)

    assert [change.shift_ns for change in clock.changes] == [7_000_000_000]
    assert len(clock.ends) == 1
