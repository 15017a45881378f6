"""Captures into a lake while they are written, with Spark."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")

from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.spark import watch as module
from mqttscope.spark.ingest import ingest
from mqttscope.spark.lake_files import lake_lock
from mqttscope.spark.watch import Taken, Watcher, watch
from tests.lake.reading import options
from tests.spark.folders import as_pcap, as_pcapng, frames_of, moved, parts, rotated
from tests.spark.growth import PAST, put
from tests.spark.samples import fragmented, frames, pcap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables(lake: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, read_table(lake, name).to_pylist())) for name in TABLES}


def once(spark: SparkSession, folder: Path, lake: Path, **given: Any) -> list[Taken]:
    """Take in what is there; returns the batches."""
    told: list[Taken] = []
    watch(spark, [str(folder)], lake, given.pop("options", options()), once=True, tell=told.append, **given)
    return told


def test_captures_that_grow_and_rotate(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    whole = rotated(folder)
    for path, content in whole.items():
        if path.name < "dev_00002" or "tap_00000" < path.name < "tap_00003":
            put(path, content[: len(content) * 2 // 3] if path.name.startswith("tap_00002") else content)
    first = once(spark, folder, lake)
    for path, content in whole.items():
        put(path, content, quiet=True)
    second = once(spark, folder, lake, max_bytes=15_000)

    assert [one.batch for one in (*first, *second)] == list(range(len(first) + len(second)))
    assert len(second) > 1
    assert second[0].waiting > 0
    assert second[-1].waiting == 0
    write_lake(sorted(folder.iterdir()), tmp_path / "one", options())
    expected = tables(tmp_path / "one")
    assert tables(lake) == expected
    # They are complete, so that they are known now.
    assert ingest(spark, [str(folder)], lake, options()).captures == []
    assert once(spark, folder, lake) == []
    assert tables(lake) == expected


def test_a_batch_that_comes_again_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    put(folder / "a.pcapng", as_pcapng(frames_of("session-taken-over")))
    taken: list[bool] = []

    class Twice(Watcher):
        def take(self, batch: DataFrame, number: int) -> None:
            super().take(batch, number)
            before = tables(self._root), read_manifest(self._root)
            super().take(batch, number)
            taken.append(before == (tables(self._root), read_manifest(self._root)))

    monkeypatch.setattr(module, "Watcher", Twice)
    assert len(once(spark, folder, lake)) == 1
    assert taken == [True]
    # A checkpoint of another lake would lose captures.
    (lake / "manifest.json").unlink()
    with pytest.raises(LakeError, match="is of another lake; remove it to read all captures from the beginning"):
        once(spark, folder, lake)


def test_fragments_that_come_in_different_batches(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    content = pcap(fragmented())
    put(folder / "a.pcap", content[:450])
    once(spark, folder, lake)
    (waiting,) = read_manifest(lake).streams.values()
    assert (lake / waiting["fragments"]).exists()
    put(folder / "a.pcap", content, quiet=True)
    once(spark, folder, lake)

    write_lake([folder / "a.pcap"], tmp_path / "one", options())
    assert tables(lake) == tables(tmp_path / "one")
    assert read_manifest(lake).last_ns == read_manifest(tmp_path / "one").last_ns
    assert len(list(lake.glob("stream/*/fragments-*"))) == 1


def test_what_was_ingested_is_known_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    found = frames_of("planted-violations")
    some, rest = parts(found, 2)
    put(folder / "a_1.pcap", as_pcap(some))
    write_lake([folder / "a_1.pcap"], lake, options())
    put(folder / "a_2.pcap", as_pcap(rest), quiet=True)
    put(folder / "usb.pcap", pcap(frames(9), network=189), quiet=True)
    (batch,) = once(spark, folder, lake)

    assert batch.rows["ingest_errors"] == 1
    os.utime(folder / "a_1.pcap", (PAST, PAST))
    write_lake(sorted(folder.iterdir()), tmp_path / "one", options())
    assert tables(lake) == tables(tmp_path / "one")


def test_it_ends_when_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    put(folder / "a.pcapng", as_pcapng(frames_of("v5-qos")))
    over, told = threading.Event(), list[Taken]()

    def tell(taken: Taken) -> None:
        told.append(taken)
        if len(told) == 2:
            over.set()
        # Another capture comes while it runs.
        put(folder / "b.pcapng", as_pcapng(moved(frames_of("ipv6"), 1_795_300_000_000_000_000)))

    watch(spark, [str(folder)], lake, options(), interval_s=0.1, tell=tell, over=over)
    assert len(told) == 2
    assert not spark.streams.active
    assert {Path(row["capture"]).name for row in read_table(lake, "packets").to_pylist()} == {"a.pcapng", "b.pcapng"}
    assert read_table(lake, "topics").num_rows > 2


def test_what_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    with lake_lock(lake), pytest.raises(LakeError, match="is being written by another ingest or watch"):
        once(spark, folder, lake)
    put(folder / "a.pcap", pcap(frames(3)))
    write_lake([folder / "a.pcap"], lake, options())
    with pytest.raises(LakeError, match="was written with other options, rules or schemas; take another folder"):
        once(spark, folder, lake, options=LakeOptions(payload_limit=7))
