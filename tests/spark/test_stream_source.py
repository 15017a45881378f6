"""Captures that are followed while they are written, without Spark: what comes is what the finished files hold."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StringType, StructField, StructType

from mqttscope.capture.fingerprint import fingerprint_at
from mqttscope.lake.manifest import Manifest, write_manifest
from mqttscope.spark.source import MqttCapture, OptionError, StreamReader
from tests.capture.test_pcapng import enhanced, interface, section, statistics
from tests.spark.growth import PAST, Stream, batch_rows, comparable, put, reader
from tests.spark.samples import everything, fragmented, frames, pcap

SECOND = 1_000_000


def pcapng(data: list[bytes], *, seconds: int = 1_700_000_000) -> bytes:
    """A capture with a time for each frame, and drops at its end."""
    packets = (enhanced(raw, (seconds + number) * SECOND) for number, raw in enumerate(data))
    return section() + interface() + b"".join(packets) + statistics(received=9, interface_drops=2)


def notes(rows: list[dict[str, Any]], kind: str) -> list[tuple[Any, ...]]:
    return sorted((Path(row["capture"]).name, row["message"], row["frame"]) for row in rows if row["kind"] == kind)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Of the folder of the test."""
    return Stream(tmp_path)


def quieten(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (PAST, PAST))


def test_everything_that_may_lie_in_a_folder(stream: Stream, tmp_path: Path) -> None:
    everything(tmp_path)
    quieten(tmp_path)

    assert comparable(stream.all()) == comparable(batch_rows(tmp_path))
    assert len(stream.batches) == 1
    assert stream.rows(*stream.batches[0]) == stream.rows(*stream.batches[0])


def test_in_small_batches(tmp_path: Path) -> None:
    everything(tmp_path)
    quieten(tmp_path)
    stream = Stream(tmp_path, limit=5000)

    assert comparable(stream.all()) == comparable(batch_rows(tmp_path))
    assert len(stream.batches) > 5
    assert [row for start, end in stream.batches for row in stream.rows(start, end)]


@pytest.mark.long
@given(st.randoms(use_true_random=False), st.sampled_from([None, 300, 3000]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_growth_gives_the_rows_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, limit: int | None
) -> None:
    folder = tmp_path_factory.mktemp("growing")
    whole = {
        folder / "a_001.pcap": pcap(frames(20)),
        folder / "a_002.pcap": pcap(frames(30, port=50_001), seconds=1_700_000_100),
        folder / "b.pcapng": pcapng(fragmented(), seconds=1_700_000_010),
        folder / "usb.pcap": pcap(frames(9), network=189),
    }
    stream = Stream(folder, limit=limit)
    documents: list[dict[str, Any]] = []
    sizes = dict.fromkeys(whole, 0)
    for _ in range(chance.randrange(8)):
        for path, content in whole.items():
            sizes[path] = min(len(content), sizes[path] + chance.randrange(len(content)))
            put(path, content[: sizes[path]])
        documents += stream.step()
    for path, content in whole.items():
        put(path, content, quiet=True)
    documents += stream.all()

    assert comparable(documents) == comparable(batch_rows(folder))
    again = [row for start, end in stream.batches for row in stream.rows(start, end)]
    assert comparable(again) == comparable(documents)


def test_a_record_that_is_half_written_waits(stream: Stream, tmp_path: Path) -> None:
    content = pcap(frames(3))
    put(tmp_path / "a.pcap", content[:-1])

    assert [row["frame"] for row in stream.step() if row["kind"] == "segment"] == [1, 2]
    assert stream.step() == []
    put(tmp_path / "a.pcap", content)
    assert [(row["frame"], row["file"]) for row in stream.step() if row["kind"] == "segment"] == [(3, 0)]
    os.utime(tmp_path / "a.pcap", (PAST, PAST))
    assert notes(stream.step(), "read") == [("a.pcap", "complete", 3)]
    assert stream.step() == []


def test_a_half_record_at_the_end_is_told_once(stream: Stream, tmp_path: Path) -> None:
    content = pcap(frames(3))
    put(tmp_path / "a.pcap", content[:-1], quiet=True)

    rows = stream.step()
    assert notes(rows, "error") == [("a.pcap", "ends inside a frame record (149 of 150 bytes are there)", 2)]
    # It continues after all.
    put(tmp_path / "a.pcap", content)
    rows = stream.step()
    assert [row["frame"] for row in rows if row["kind"] == "segment"] == [3]
    assert notes(rows, "read") == [("a.pcap", "growing", 3)]


def test_a_set_that_rotates(stream: Stream, tmp_path: Path) -> None:
    put(tmp_path / "tap_00002.pcap", pcap(frames(4), seconds=1_700_000_100))
    put(tmp_path / "tap_00001.pcap", pcap(frames(3))[:-5])
    put(tmp_path / "other.pcap", pcap(frames(2), seconds=1_600_000_000))

    rows = stream.step()
    # The oldest comes first.
    assert sorted({(row["file"], Path(row["capture"]).name) for row in rows}) == [
        (0, "other.pcap"), (1, "tap_00001.pcap"), (2, "tap_00002.pcap"),
    ]  # fmt: skip
    # One that ends inside a record may not be complete, whatever came after it.
    assert notes(rows, "read") == [
        ("other.pcap", "growing", 2), ("tap_00001.pcap", "growing", 2), ("tap_00002.pcap", "growing", 4),
    ]  # fmt: skip
    put(tmp_path / "tap_00001.pcap", pcap(frames(3)))
    assert notes(stream.step(), "read") == [("tap_00001.pcap", "complete", 3)]


def test_what_goes_wrong_is_told(stream: Stream, tmp_path: Path) -> None:
    for name in ("gone", "replaced", "shrunk"):
        put(tmp_path / f"{name}.pcap", pcap(frames(30)))
    put(tmp_path / "done.pcap", pcap(frames(2)), quiet=True)
    stream.step()
    (tmp_path / "gone.pcap").unlink()
    (tmp_path / "replaced.pcap").write_bytes(pcap(frames(40, port=7)))
    os.truncate(tmp_path / "shrunk.pcap", 1000)
    (tmp_path / "done.pcap").write_bytes(pcap(frames(5, port=8)))

    rows = stream.step()
    size = len(pcap(frames(30)))
    assert notes(rows, "error") == [
        ("gone.pcap", "has gone before it was complete: the rest after frame 30 is not read", 30),
        ("replaced.pcap", "has been replaced before it was complete: the rest after frame 30 is not read", 30),
        ("shrunk.pcap", f"has shrunk from {size} to 1000 bytes: the rest after frame 30 is not read", 30),
    ]
    segments = [Path(row["capture"]).name for row in rows if row["kind"] == "segment"]
    assert (segments.count("replaced.pcap"), segments.count("done.pcap"), len(segments)) == (40, 5, 45)
    assert stream.step() == []


def test_what_has_gone_between_two_offsets_is_told(stream: Stream, tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap(frames(3)))
    put(tmp_path / "b.pcap", pcap(frames(30)))
    stream.step()
    (tmp_path / "a.pcap").unlink()
    (tmp_path / "b.pcap").write_bytes(pcap(frames(4)))

    rows = stream.rows(*stream.batches[0])
    errors = [row["message"] for row in sorted(rows, key=lambda row: row["file"]) if row["kind"] == "error"]
    assert errors[0] == "does not exist"
    assert errors[1].startswith("has changed: frame 30 ended at")


def test_names_that_change(stream: Stream, tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap(frames(30))[:-7])
    put(tmp_path / "a.pcap.1", pcap(frames(40), seconds=1_600_000_000), quiet=True)
    stream.step()
    (tmp_path / "a.pcap.1").rename(tmp_path / "a.pcap.2")
    (tmp_path / "a.pcap").rename(tmp_path / "a.pcap.1")
    put(tmp_path / "a.pcap.1", pcap(frames(30)))
    put(tmp_path / "a.pcap", pcap(frames(2), seconds=1_700_001_000))

    rows = stream.step()
    pairs = [(Path(row["capture"]).name, row["frame"]) for row in rows if row["kind"] == "segment"]
    assert sorted(pairs) == [("a.pcap", 1), ("a.pcap", 2), ("a.pcap.1", 30)]
    assert notes(rows, "error") == []


def test_compressed_captures_are_read_when_they_are_complete(stream: Stream, tmp_path: Path) -> None:
    packed = gzip.compress(pcap(frames(9)))
    put(tmp_path / "a.pcap.gz", packed[:40])
    put(tmp_path / "b.pcap", pcap(frames(3), seconds=1_600_000_000), quiet=True)

    assert {row["capture"] for row in stream.step()} == {str(tmp_path / "b.pcap")}
    put(tmp_path / "a.pcap.gz", packed, quiet=True)
    put(tmp_path / "b.pcap.gz", gzip.compress(pcap(frames(3), seconds=1_600_000_000)), quiet=True)
    rows = stream.step()
    assert len([row for row in rows if row["kind"] == "segment"]) == 9
    # What was compressed when it had been read is known.
    assert notes(rows, "read") == [("a.pcap.gz", "complete", 0), ("b.pcap.gz", "known", 0)]


def test_what_is_in_a_lake_is_known(tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    lake.mkdir()
    content = pcap(frames(9))
    put(folder / "a.pcap", content[:-50])
    put(folder / "b.pcap", pcap(frames(3), seconds=1_600_000_000))
    write_manifest(lake, Manifest(1, captures={fingerprint_at(folder / "a.pcap").digest: "elsewhere/a.pcap"}))
    stream = Stream(folder, lake=str(lake))

    rows = stream.step()
    assert notes(rows, "read") == [("a.pcap", "known", 8), ("b.pcap", "growing", 3)]
    assert len([row for row in rows if row["kind"] == "segment"]) == 3
    # What came since is read on.
    put(folder / "a.pcap", content)
    assert [row["frame"] for row in stream.step() if row["kind"] == "segment"] == [9]


def test_captures_of_the_same_time_keep_pace(tmp_path: Path) -> None:
    put(tmp_path / "a.pcap", pcap(frames(100, 5000)))
    put(tmp_path / "b.pcap", pcap(frames(100, 50)))
    stream = Stream(tmp_path, limit=50_000)

    rows = stream.step()
    behind = {Path(row["capture"]).name: row for row in rows if row["kind"] == "read"}
    assert behind["a.pcap"]["message"] == "behind"
    assert behind["a.pcap"]["count"] > 400_000
    # Nothing is known after this time.
    assert behind["a.pcap"]["timestamp_ns"] <= (1_700_000_000 + 12) * 10**9
    assert len([row for row in stream.all() if row["kind"] == "segment"]) + len(
        [row for row in rows if row["kind"] == "segment"]
    ) == 200  # fmt: skip


def test_frozen_for_a_run_that_ends(tmp_path: Path) -> None:
    content = pcap(frames(20))
    put(tmp_path / "a.pcap", content[:1000])
    stream_reader = reader(tmp_path)
    stream_reader.prepareForTriggerAvailableNow()
    put(tmp_path / "a.pcap", content)
    put(tmp_path / "b.pcap", content)

    start = stream_reader.initialOffset()
    end = stream_reader.latestOffset(start, ReadAllAvailable())
    assert [row[0:2] for row in end["growing"]] == [[0, str(tmp_path / "a.pcap")]]
    assert end["growing"][0][2][0] <= 1000
    assert stream_reader.latestOffset(end, ReadAllAvailable()) is end


def test_offsets_stay_small(stream: Stream, tmp_path: Path) -> None:
    for number in range(400):
        put(tmp_path / f"tap_{number:05d}.pcap", pcap(frames(3), seconds=1_700_000_000 + 10 * number), quiet=True)
    stream.step()

    assert len(stream.offset) < 400 * 60
    # What is removed is forgotten with the next batch.
    for number in range(300):
        (tmp_path / f"tap_{number:05d}.pcap").unlink()
    assert stream.step() == []
    put(tmp_path / "tap_00400.pcap", pcap(frames(3), seconds=1_700_005_000))
    stream.step()
    assert len(stream.offset) < 100 * 60 + 500


def test_options(tmp_path: Path) -> None:
    assert reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert reader(tmp_path, max_bytes="2k").getDefaultReadLimit() == ReadMaxBytes(2048)
    assert reader(f"file://{tmp_path}").sources == [str(tmp_path)]
    with pytest.raises(OptionError, match="s3://bucket is not a path: only captures on file systems can be followed"):
        reader("s3://bucket")
    with pytest.raises(OptionError, match="rows is 'measures', which a stream does not have"):
        reader(tmp_path, rows="measures")
    with pytest.raises(OptionError, match="quiet_seconds is 'long', which is not a number"):
        reader(tmp_path, quiet_seconds="long")
    with pytest.raises(OptionError, match="has no column topic"):
        StreamReader(StructType([StructField("topic", StringType())]), reader(tmp_path).options)
    with pytest.raises(ValueError, match="the offset has version 2, this program reads 1"):
        reader(tmp_path).partitions({"version": 2}, {"version": 2})
    assert json.dumps(reader(tmp_path).initialOffset())
    assert MqttCapture.name() == "mqttcapture"
