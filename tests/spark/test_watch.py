"""Captures into a lake while they are written, with Spark."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import tools

tools.package("pyspark")

from mqttscope.lake.carried import Carried
from mqttscope.lake.commit import lake_lock
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.lint.finding import Scope
from mqttscope.spark import ingest_flows
from mqttscope.spark import watch as module
from mqttscope.spark.ingest import ingest
from mqttscope.spark.session import running_session
from mqttscope.spark.watch import Taken, Watcher, watch
from tests.bench.quiet import Crowd
from tests.conftest import ROOT
from tests.lake.reading import options
from tests.spark.cluster import SMALL, needs_spark
from tests.spark.collection import usual_options
from tests.spark.folders import BEGIN_NS, as_pcap, as_pcapng, frames_of, moved, one_after_the_other, parts, rotated
from tests.spark.growth import PAST, put
from tests.spark.samples import fragmented, frames, pcap
from tests.spark.troubled import troubled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables(lake: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, read_table(lake, name).to_pylist())) for name in TABLES}


def once(spark: SparkSession, folder: Path, lake: Path, **given: Any) -> list[Taken]:
    """Take in what is there; returns the batches."""
    told: list[Taken] = []
    watch(spark, [str(folder)], lake, given.pop("options", options()), once=True, tell=told.append, **given)
    return told


@pytest.mark.long
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


@pytest.mark.long
def test_captures_that_are_compressed_before_they_are_read_to_their_ends(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    whole = rotated(folder)
    for path, content in whole.items():
        if path.name < "dev_00002" or "tap_00000" < path.name < "tap_00003":
            put(path, content[: len(content) * 2 // 3] if path.name.startswith("tap_00002") else content)
    once(spark, folder, lake)
    for path, content in whole.items():
        path.unlink(missing_ok=True)
        put(path.with_name(f"{path.name}.gz"), gzip.compress(content), quiet=True)
    taken = once(spark, folder, lake)
    for path, content in whole.items():
        put(path, content)
    write_lake(sorted(whole), tmp_path / "one", options())

    assert [error for one in taken for error in one.errors] == []
    found = {name: sorted(row.replace(".gz'", "'") for row in rows) for name, rows in tables(lake).items()}
    assert found == tables(tmp_path / "one")
    assert ingest(spark, [str(folder)], lake, options()).captures == []


@pytest.mark.long
def test_drops_count_from_their_place_on_in_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    # One in which nothing after the silence says that the clock was set: a stream does not look for that.
    captures = troubled(folder, 3)
    for name in captures:
        put(Path(name), Path(name).read_bytes(), quiet=True)

    assert len(once(spark, folder, lake, options=usual_options(), max_bytes=2_500)) > 2

    write_lake(captures, tmp_path / "one", usual_options())
    assert tables(lake) == tables(tmp_path / "one")
    assert {row["event"] for row in read_table(lake, "ingest_errors").to_pylist()} == {"capture_drops"}
    assert "heuristic" in set(read_table(lake, "findings").to_pydict()["confidence"])


@pytest.mark.long
def test_rules_that_fail_are_reported_with_their_batch(spark: SparkSession, tmp_path: Path) -> None:
    spark.sparkContext.addPyFile(str(ROOT / "tests" / "lake" / "failing.py"))
    given, folder = LakeOptions(rules=import_module("failing").FAILING), tmp_path / "in"
    folder.mkdir()
    source = ROOT / "captures" / "v5-qos" / "capture.pcapng"
    put(folder / "a.pcapng", source.read_bytes(), quiet=True)
    (taken,) = once(spark, folder, tmp_path / "lake", options=given)
    wanted = write_lake([source], tmp_path / "one", given)

    assert taken.failures.told(given.rules) == wanted.failures_told != []
    assert {one.capture for one in taken.failures.errors} == {str(folder / "a.pcapng")}
    # What was taken is not linted again.
    assert once(spark, folder, tmp_path / "lake", options=given) == []


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


@pytest.mark.long
def test_a_checkpoint_of_another_lake_would_lose_captures(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    put(folder / "a.pcapng", as_pcapng(frames_of("session-taken-over")))
    assert len(once(spark, folder, lake)) == 1
    for one in lake.iterdir():
        if one.is_dir() and one.name != "stream":
            shutil.rmtree(one)
    (lake / "manifest.json").unlink()
    with pytest.raises(LakeError, match="is of another lake; remove it to read all captures from the beginning"):
        once(spark, folder, lake)


@pytest.mark.long
def test_a_quiet_batch_reads_and_writes_what_it_concerns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    divided: list[tuple[int, int]] = []

    class Noted(Carried):
        def take_flows(self) -> Any:
            divided.append((self.concerned.num_rows, self.others.num_rows))
            return super().take_flows()

    monkeypatch.setattr(ingest_flows, "Carried", Noted)
    without = replace(options(), rules=tuple(rule for rule in options().rules if rule.scope is not Scope.BROKER))
    with (folder / "tap.pcapng").open("wb") as file:
        crowd = Crowd(file, 40)
        told = once(spark, folder, lake, options=without)
        crowd.ping(3)
        told += once(spark, folder, lake, options=without)
        before = read_manifest(lake)
        crowd.ping(3)
        told += once(spark, folder, lake, options=without)
    after = read_manifest(lake)
    new = set(after.state_files) - set(before.state_files)

    assert divided == [(3, 37), (3, 37)]
    assert [one.open_flows for one in told] == [40, 40, 40]
    assert [after.rows[name] for name in new] == [3]
    assert sum(after.rows[name] for name in after.open_files["connections"]) == 40
    assert len(set(after.open_files["connections"]) - set(before.open_files["connections"])) == 1
    assert {one.parent.name for one in lake.glob("*/*.parquet")}.isdisjoint({"flow_keys"})
    write_lake([folder / "tap.pcapng"], tmp_path / "one", without)
    assert tables(lake) == tables(tmp_path / "one")
    # Whoever reads a lake in process continues with the same.
    (folder / "later.pcapng").write_bytes(as_pcapng(frames_of("session-taken-over")))
    for one in (lake, tmp_path / "one"):
        write_lake([folder / "later.pcapng"], one, without)
    assert tables(lake) == tables(tmp_path / "one")


@pytest.mark.long
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
    found, wanted = tables(lake), tables(tmp_path / "one")
    # What was delivered is not kept between two batches, so that data which differs is not noticed when it comes again.
    for rows in (found, wanted):
        rows["connections"] = [re.sub(r"(['\"]overlaps['\"]): ?\d+", r"\1", str(row)) for row in rows["connections"]]
    assert found == wanted
    assert read_manifest(lake).last_ns == read_manifest(tmp_path / "one").last_ns
    assert len(list(lake.glob("stream/*/fragments-*"))) == 1
    assert running_session() is spark


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("packed", [False, True])
def test_of_what_was_ingested_while_it_grew_the_rest_is_read(packed: bool, spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    growing, compressed = folder / "a.pcapng", folder / "a.pcapng.gz"
    content = as_pcapng(one_after_the_other(["v5-qos", "v5-topic-alias-client", "session-taken-over"], BEGIN_NS))
    put(growing, content[: len(content) // 3])
    write_lake([growing], lake, options())
    if packed:
        growing.unlink()
        put(compressed, gzip.compress(content), quiet=True)
    else:
        put(growing, content[: len(content) // 2])
        once(spark, folder, lake)
        put(growing, content, quiet=True)
    once(spark, folder, lake)
    put(growing, content)
    write_lake([growing], tmp_path / "one", options())

    found, wanted = tables(lake), tables(tmp_path / "one")
    # What ended inside a record has said so.
    assert (len(found.pop("ingest_errors")), wanted.pop("ingest_errors")) == (1, [])
    assert {name: sorted(row.replace(".gz'", "'") for row in rows) for name, rows in found.items()} == wanted
    assert write_lake([growing], lake, options()).captures == []


@pytest.mark.long
def test_what_an_ingest_read_in_between_is_not_read_again(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    growing = folder / "a.pcapng"
    # Flows that have ended by then would be other ones when they came again.
    content = as_pcapng(one_after_the_other(["v5-qos", "session-taken-over"], BEGIN_NS))
    content += as_pcapng(moved(frames_of("v5-flow-control"), BEGIN_NS + 4 * 3600 * 1_000_000_000))
    for size in (len(content) // 3, len(content) // 2, len(content)):
        put(growing, content[:size])
        if size == len(content) // 2:
            assert write_lake([growing], lake, options()).captures == [str(growing)]
        else:
            once(spark, folder, lake)
    write_lake([growing], tmp_path / "one", options())

    frames = [sorted(read_table(one, "packets")["frame"].to_pylist()) for one in (lake, tmp_path / "one")]
    assert frames[0] == frames[1]


@pytest.mark.long
def test_how_much_of_a_capture_is_in_the_lake_is_known_in_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    content = as_pcapng(one_after_the_other(["v5-qos", "session-taken-over"], BEGIN_NS))
    content += as_pcapng(moved(frames_of("v5-flow-control"), BEGIN_NS + 4 * 3600 * 1_000_000_000))
    put(folder / "a.pcapng", content[: len(content) // 2])
    write_lake([folder / "a.pcapng"], lake, options())
    (folder / "a.pcapng").unlink()
    put(folder / "a.pcapng.gz", gzip.compress(content), quiet=True)
    put(folder / "0.pcap", as_pcap(moved(frames_of("planted-violations"), BEGIN_NS - 3600 * 1_000_000_000)), quiet=True)
    # The other one is older, and comes first.
    assert len(once(spark, folder, lake, max_bytes=1_000)) > 1
    write_lake([folder / "a.pcapng.gz"], tmp_path / "one", options())

    rows = [read_table(one, "packets").to_pylist() for one in (lake, tmp_path / "one")]
    frames = [sorted(row["frame"] for row in some if "a.pcapng" in row["capture"]) for some in rows]
    assert frames[0] == frames[1]


@pytest.mark.long
def test_what_was_watched_is_known_to_an_ingest_and_what_cannot_be_read_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    put(folder / "b\udcff.pcapng", as_pcapng(frames_of("v5-qos")), quiet=True)
    put(folder / "text.pcap", b"text", quiet=True)
    put(folder / "cut.pcap", as_pcap(frames_of("ipv6"))[:-5], quiet=True)
    os.mkfifo(folder / "pipe.pcap")
    (batch,) = once(spark, folder, lake)

    errors = {Path(row["capture"]).name: row["message"] for row in read_table(lake, "ingest_errors").to_pylist()}
    assert batch.rows["ingest_errors"] == len(errors) == 3
    assert errors["pipe.pcap"] == "is no regular file"
    assert once(spark, folder, lake) == []
    assert {row["capture"] for row in read_table(lake, "packets").to_pylist()} == {
        f"{folder}/b\\xff.pcapng", f"{folder}/cut.pcap"
    }  # fmt: skip

    done = ingest(spark, [str(folder)], lake, options())
    assert (done.captures, len(done.known), done.rows) == ([], 3, {})
    assert {(Path(one.capture).name, one.message) for one in done.known_errors} == {
        (name, message) for name, message in errors.items() if name != "pipe.pcap"
    }


@pytest.mark.long
def test_what_is_not_there_yet_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """Folders without captures, then with a faulty one, then with another one of that name, then compressed ones."""
    folder, lake = tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    assert [one.rows for one in once(spark, folder, lake)] in ([], [{}])
    content = as_pcap(frames_of("ipv6"))
    put(folder / "a.pcap", content[:-5], quiet=True)
    (first,) = once(spark, folder, lake)
    assert [Path(one.capture).name for one in first.errors] == ["a.pcap"]

    put(folder / "copy.pcap", content[:-5], quiet=True)
    (second,) = once(spark, folder, lake)
    assert [(Path(one.capture).name, one.message) for one in second.errors] == [("copy.pcap", first.errors[0].message)]
    (folder / "a.pcap").unlink()
    put(folder / "a.pcap", as_pcap(moved(frames_of("v5-qos"), 1_795_300_000_000_000_000)), quiet=True)
    (third,) = once(spark, folder, lake)
    assert third.rows["packets"] > 10
    assert read_table(lake, "ingest_errors").num_rows == 2

    # A tool rotates and compresses.
    (folder / "a.pcap.1.gz").write_bytes(gzip.compress((folder / "a.pcap").read_bytes()))
    (folder / "a.pcap").unlink()
    (fourth,) = once(spark, folder, lake, quiet_seconds=0)
    assert fourth.rows.get("packets", 0) == 0
    done = ingest(spark, [str(folder)], lake, options())
    assert (done.captures, done.rows) == ([], {})
    assert [(Path(one.capture).name, one.message) for one in done.known_errors] == [
        ("copy.pcap", first.errors[0].message)
    ]


@pytest.mark.long
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
    with pytest.raises(LakeError, match=r"was written with other options: --payload-limit was \d+ and is 7;"):
        once(spark, folder, lake, options=LakeOptions(payload_limit=7))


class Clock:
    """Two times for each worker that is started: before and after."""

    def __init__(self, *seconds: float) -> None:
        self.times = [at for took in seconds for at in (1_000.0, 1_000.0 + took)]

    def monotonic(self) -> float:
        return self.times.pop(0)


def test_a_worker_is_waited_for_until_it_starts_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    clock = Clock(31.0, module.WORKER_START_S, module.WORKER_START_S - 0.001, 1.0)
    monkeypatch.setattr(module, "time", clock)
    module.await_worker("true", threading.Event(), notes.append)

    assert len(clock.times) == 2
    assert notes == ["too busy to start a Python worker within 10 s: waiting until this machine is not"]
    # A worker that is at fault is not waited for: the stream says why.
    monkeypatch.setattr(module, "time", Clock(1.0, 99.0))
    module.await_worker("false", threading.Event(), notes.append)
    module.await_worker("/nowhere/python", threading.Event(), notes.append)
    assert len(notes) == 1


def test_waiting_for_a_worker_ends_when_the_watch_does(tmp_path: Path) -> None:
    python, started = tmp_path / "python", tmp_path / "python.pid"
    python.write_text('#!/bin/sh\necho $$ > "$0.new"\nmv "$0.new" "$0.pid"\nexec sleep 600\n')
    python.chmod(0o700)
    over = threading.Event()
    waiting = threading.Thread(target=module.await_worker, args=(str(python), over, print))
    waiting.start()
    while not started.exists():
        time.sleep(0.01)
    over.set()
    waiting.join()

    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.long
def test_a_stream_starts_again_once_workers_start_in_time(tmp_path: Path) -> None:
    """Three workers are too slow, and one restart is allowed: the watch starts a stream only after a worker in time."""
    needs_spark()
    # Spark finds no data sources by itself where the path of its Python has a blank.
    python, folder, lake = tmp_path / "slow python", tmp_path / "in", tmp_path / "lake"
    folder.mkdir()
    put(folder / "a.pcapng", as_pcapng(frames_of("session-taken-over")))
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in *python_streaming_source_runner*)\n'
        "    for slow in 1 2 3; do\n"
        f'        mkdir "$0.$slow" 2>/dev/null && sleep {module.WORKER_START_S + 1} && break\n'
        "    done;;\n"
        "esac\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o700)
    script = "from mqttscope.spark import watch; watch.RESTARTS = 1; from mqttscope.cli import run; run()"
    words = ["pipeline", "watch", str(folder), "--lake", str(lake), "--once", "--conf", "spark.driver.memory=700m"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--conf", f"spark.driver.extraJavaOptions={SMALL}"],
        env=os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("too busy to start a Python worker within 10 s") == 1, done.stderr
    assert len(list(tmp_path.glob("slow python.?"))) == 3
    write_lake([folder / "a.pcapng"], tmp_path / "one", options())
    assert read_table(lake, "packets").num_rows == read_table(tmp_path / "one", "packets").num_rows > 0
