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
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mqttscope.lake.carried import StateDivision
from mqttscope.lake.commit import lake_lock
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.writer import IngestResult, read_table, write_lake
from mqttscope.lint.finding import Scope
from mqttscope.spark import ingest_flows
from mqttscope.spark import watch as module
from mqttscope.spark.ingest import ingest
from mqttscope.spark.session import running_session
from mqttscope.spark.watch import BatchReport, Watcher, watch
from tests.bench.quiet import Crowd
from tests.conftest import ROOT
from tests.lake.parts import as_pcapng, moved
from tests.lake.reading import options
from tests.spark.cluster import SMALL, needs_spark
from tests.spark.collection import tables, usual_options
from tests.spark.folders import BEGIN_NS, as_pcap, frames_of, in_pieces, one_after_the_other, rotated
from tests.spark.growth import PAST, put
from tests.spark.samples import fragmented, frames, pcap
from tests.spark.troubled import troubled


class Site:
    """A folder of captures, and the lake that is made of it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.folder, self.lake = root / "in", root / "lake"
        self.folder.mkdir()

    def put(self, name: str, content: bytes, *, quiet: bool = False) -> Path:
        """Write a capture, or continue to write it."""
        put(self.folder / name, content, quiet=quiet)
        return self.folder / name

    def once(self, lake_options: LakeOptions | None = None, **more: Any) -> list[BatchReport]:
        """Take in what is there; returns the batches."""
        reports: list[BatchReport] = []
        watch(
            self.spark, [str(self.folder)], self.lake, lake_options or options(), once=True, tell=reports.append, **more
        )
        return reports

    def ingest(self) -> IngestResult:
        """Read what is there and is not known, without a stream."""
        return ingest(self.spark, [str(self.folder)], self.lake, options())

    def in_process(self, *captures: Path, lake_options: LakeOptions | None = None) -> dict[str, list[str]]:
        """The rows of a lake that is made in process of captures, or of all that are there."""
        write_lake(sorted(captures or self.folder.iterdir()), self.root / "one", lake_options or options())
        return tables(self.root / "one")

    def is_as_in_process(self, *captures: Path, lake_options: LakeOptions | None = None) -> bool:
        """Whether a watch has made the rows of a lake that is made in process."""
        return tables(self.lake) == self.in_process(*captures, lake_options=lake_options)


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


ROTATED = ["v5-qos", "v5-topic-alias-client", "session-taken-over"]


def with_a_late_part(names: list[str]) -> bytes:
    """Captures one after the other, and another one hours later: what ended before would be new if it came again."""
    late = as_pcapng(moved(frames_of("v5-flow-control"), BEGIN_NS + 4 * 3600 * 1_000_000_000))
    return as_pcapng(one_after_the_other(names, BEGIN_NS)) + late


def begin_to_rotate(site: Site) -> dict[Path, bytes]:
    """Watch when some files of taps that rotate are there, and one of them in part; returns all of them."""
    whole = rotated(site.folder)
    for path, content in whole.items():
        if path.name < "dev_00002" or "tap_00000" < path.name < "tap_00003":
            put(path, content[: len(content) * 2 // 3] if path.name.startswith("tap_00002") else content)
    return whole


@pytest.mark.long
def test_captures_that_grow_and_rotate(site: Site) -> None:
    whole = begin_to_rotate(site)
    first = site.once()
    for path, content in whole.items():
        put(path, content, quiet=True)
    second = site.once(max_bytes=15_000)

    assert [report.batch for report in (*first, *second)] == list(range(len(first) + len(second)))
    assert len(second) > 1
    assert second[0].waiting > 0
    assert second[-1].waiting == 0
    assert site.is_as_in_process()
    # They are complete, so that they are known now.
    assert site.ingest().captures == []
    assert site.once() == []
    assert tables(site.lake) == tables(site.root / "one")


@pytest.mark.long
def test_captures_that_are_compressed_before_they_are_read_to_their_ends(site: Site) -> None:
    whole = begin_to_rotate(site)
    site.once()
    for path, content in whole.items():
        path.unlink(missing_ok=True)
        put(path.with_name(f"{path.name}.gz"), gzip.compress(content), quiet=True)
    reports = site.once()
    for path, content in whole.items():
        put(path, content)

    assert [error for report in reports for error in report.errors] == []
    texts = {name: sorted(row.replace(".gz'", "'") for row in rows) for name, rows in tables(site.lake).items()}
    assert texts == site.in_process(*whole)
    assert site.ingest().captures == []


@pytest.mark.long
def test_drops_count_from_their_place_on_in_every_batch(site: Site) -> None:
    # One in which nothing after the silence says that the clock was set: a stream does not look for that.
    for name in troubled(site.folder, 3):
        put(Path(name), Path(name).read_bytes(), quiet=True)

    assert len(site.once(usual_options(), max_bytes=2_500)) > 2

    assert site.is_as_in_process(lake_options=usual_options())
    assert {row["event"] for row in read_table(site.lake, "ingest_errors").to_pylist()} == {"capture_drops"}
    assert "heuristic" in set(read_table(site.lake, "findings").to_pydict()["confidence"])


@pytest.mark.long
def test_rules_that_fail_are_reported_with_their_batch(spark: SparkSession, site: Site) -> None:
    spark.sparkContext.addPyFile(str(ROOT / "tests" / "lake" / "failing.py"))
    lake_options = LakeOptions(rules=import_module("failing").FAILING)
    source = ROOT / "captures" / "v5-qos" / "capture.pcapng"
    path = site.put("a.pcapng", source.read_bytes(), quiet=True)
    (report,) = site.once(lake_options)
    wanted = write_lake([source], site.root / "one", lake_options)

    assert report.failures.sentences(lake_options.rules) == wanted.failures_told != []
    assert {error.capture for error in report.failures.errors} == {str(path)}
    # What was taken is not linted again.
    assert site.once(lake_options) == []


def test_a_batch_that_comes_again_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put("a.pcapng", as_pcapng(frames_of("session-taken-over")))
    result: list[bool] = []

    class Twice(Watcher):
        def ingest_batch(self, batch: DataFrame, number: int) -> None:
            super().ingest_batch(batch, number)
            before = tables(self._root), read_manifest(self._root)
            super().ingest_batch(batch, number)
            result.append(before == (tables(self._root), read_manifest(self._root)))

    monkeypatch.setattr(module, "Watcher", Twice)
    assert len(site.once()) == 1
    assert result == [True]


@pytest.mark.long
def test_a_checkpoint_of_another_lake_would_lose_captures(site: Site) -> None:
    site.put("a.pcapng", as_pcapng(frames_of("session-taken-over")))
    assert len(site.once()) == 1
    for path in site.lake.iterdir():
        if path.is_dir() and path.name != "stream":
            shutil.rmtree(path)
    (site.lake / "manifest.json").unlink()
    with pytest.raises(LakeError, match="belongs to another lake; remove it to read all captures from the beginning"):
        site.once()


@pytest.mark.long
def test_a_quiet_batch_reads_and_writes_what_it_concerns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, divided = site.lake, list[tuple[int, int]]()

    class Noted(StateDivision):
        def take_flows(self) -> Any:
            divided.append((self.concerned.num_rows, self.others.num_rows))
            return super().take_flows()

    monkeypatch.setattr(ingest_flows, "StateDivision", Noted)
    without = replace(options(), rules=tuple(rule for rule in options().rules if rule.scope is not Scope.BROKER))
    with (site.folder / "tap.pcapng").open("wb") as file:
        crowd = Crowd(file, 40)
        reports = site.once(without)
        crowd.ping(3)
        reports += site.once(without)
        before = read_manifest(lake)
        crowd.ping(3)
        reports += site.once(without)
    after = read_manifest(lake)
    new = set(after.state_files) - set(before.state_files)

    assert divided == [(3, 37), (3, 37)]
    assert [report.open_flows for report in reports] == [40, 40, 40]
    assert [after.rows[name] for name in new] == [3]
    assert sum(after.rows[name] for name in after.open_files["connections"]) == 40
    assert len(set(after.open_files["connections"]) - set(before.open_files["connections"])) == 1
    assert {path.parent.name for path in lake.glob("*/*.parquet")}.isdisjoint({"flow_keys"})
    assert site.is_as_in_process(lake_options=without)
    # Whoever reads a lake in process continues with the same.
    later = site.put("later.pcapng", as_pcapng(frames_of("session-taken-over")))
    write_lake([later], lake, without)
    assert site.is_as_in_process(later, lake_options=without)


@pytest.mark.long
def test_fragments_that_come_in_different_batches(spark: SparkSession, site: Site) -> None:
    content = pcap(fragmented())
    site.put("a.pcap", content[:450])
    site.once()
    (waiting,) = read_manifest(site.lake).streams.values()
    assert (site.lake / waiting["fragments"]).exists()
    site.put("a.pcap", content, quiet=True)
    site.once()

    texts, wanted = tables(site.lake), site.in_process()
    # What was delivered is not kept between two batches, so that data which differs is not noticed when it comes again.
    for rows in (texts, wanted):
        rows["connections"] = [re.sub(r"(['\"]overlaps['\"]): ?\d+", r"\1", str(row)) for row in rows["connections"]]
    assert texts == wanted
    assert read_manifest(site.lake).last_ns == read_manifest(site.root / "one").last_ns
    assert len(list(site.lake.glob("stream/*/fragments-*"))) == 1
    assert running_session() is spark


@pytest.mark.long
def test_what_was_ingested_is_known_and_goes_on(site: Site) -> None:
    some, rest = in_pieces(frames_of("planted-violations"), 2)
    first = site.put("a_1.pcap", as_pcap(some))
    write_lake([first], site.lake, options())
    site.put("a_2.pcap", as_pcap(rest), quiet=True)
    site.put("usb.pcap", pcap(frames(9), network=189), quiet=True)
    (batch,) = site.once()

    assert batch.rows["ingest_errors"] == 1
    os.utime(first, (PAST, PAST))
    assert site.is_as_in_process()


@pytest.mark.long
@pytest.mark.parametrize("packed", [False, True])
def test_of_what_was_ingested_while_it_grew_the_rest_is_read(packed: bool, site: Site) -> None:
    content = as_pcapng(one_after_the_other(ROTATED, BEGIN_NS))
    growing = site.put("a.pcapng", content[: len(content) // 3])
    write_lake([growing], site.lake, options())
    if packed:
        growing.unlink()
        site.put("a.pcapng.gz", gzip.compress(content), quiet=True)
    else:
        put(growing, content[: len(content) // 2])
        site.once()
        put(growing, content, quiet=True)
    site.once()
    put(growing, content)

    texts, wanted = tables(site.lake), site.in_process(growing)
    # What ended inside a record has said so.
    assert (len(texts.pop("ingest_errors")), wanted.pop("ingest_errors")) == (1, [])
    assert {name: sorted(row.replace(".gz'", "'") for row in rows) for name, rows in texts.items()} == wanted
    assert write_lake([growing], site.lake, options()).captures == []


def frames_in(lake: Path) -> list[int]:
    """The frames of a capture whose packets a lake has."""
    rows = read_table(lake, "packets").to_pylist()
    return sorted(row["frame"] for row in rows if "a.pcapng" in row["capture"])


@pytest.mark.long
def test_what_an_ingest_read_in_between_is_not_read_again(site: Site) -> None:
    content = with_a_late_part(["v5-qos", "session-taken-over"])
    for size in (len(content) // 3, len(content) // 2, len(content)):
        growing = site.put("a.pcapng", content[:size])
        if size == len(content) // 2:
            assert write_lake([growing], site.lake, options()).captures == [str(growing)]
        else:
            site.once()
    site.in_process()

    assert frames_in(site.lake) == frames_in(site.root / "one") != []


@pytest.mark.long
def test_how_much_of_a_capture_is_in_the_lake_is_known_in_every_batch(site: Site) -> None:
    content = with_a_late_part(["v5-qos", "session-taken-over"])
    growing = site.put("a.pcapng", content[: len(content) // 2])
    write_lake([growing], site.lake, options())
    growing.unlink()
    packed = site.put("a.pcapng.gz", gzip.compress(content), quiet=True)
    older = moved(frames_of("planted-violations"), BEGIN_NS - 3600 * 1_000_000_000)
    site.put("0.pcap", as_pcap(older), quiet=True)
    # The other one is older, and comes first.
    assert len(site.once(max_bytes=1_000)) > 1
    site.in_process(packed)

    assert frames_in(site.lake) == frames_in(site.root / "one") != []


@pytest.mark.long
def test_what_was_watched_is_known_to_an_ingest_and_what_cannot_be_read_is_said(site: Site) -> None:
    site.put("b\udcff.pcapng", as_pcapng(frames_of("v5-qos")), quiet=True)
    site.put("text.pcap", b"text", quiet=True)
    site.put("cut.pcap", as_pcap(frames_of("ipv6"))[:-5], quiet=True)
    os.mkfifo(site.folder / "pipe.pcap")
    (batch,) = site.once()

    errors = {Path(row["capture"]).name: row["message"] for row in read_table(site.lake, "ingest_errors").to_pylist()}
    assert batch.rows["ingest_errors"] == len(errors) == 3
    assert errors["pipe.pcap"] == "is not a regular file"
    assert site.once() == []
    assert {row["capture"] for row in read_table(site.lake, "packets").to_pylist()} == {
        f"{site.folder}/b\\xff.pcapng", f"{site.folder}/cut.pcap"
    }  # fmt: skip

    done = site.ingest()
    assert (done.captures, len(done.known), done.rows) == ([], 3, {})
    assert {(Path(known_error.capture).name, known_error.message) for known_error in done.known_errors} == {
        (name, message) for name, message in errors.items() if name != "pipe.pcap"
    }


@pytest.mark.long
def test_what_is_not_there_yet_is_waited_for(site: Site) -> None:
    """Folders without captures, then with a faulty one, then with another one of that name, then compressed ones."""
    assert [report.rows for report in site.once()] in ([], [{}])
    content = as_pcap(frames_of("ipv6"))
    path = site.put("a.pcap", content[:-5], quiet=True)
    (first,) = site.once()
    assert [Path(error.capture).name for error in first.errors] == ["a.pcap"]

    site.put("copy.pcap", content[:-5], quiet=True)
    (second,) = site.once()
    assert [(Path(error.capture).name, error.message) for error in second.errors] == [
        ("copy.pcap", first.errors[0].message)
    ]
    path.unlink()
    put(path, as_pcap(moved(frames_of("v5-qos"), 1_795_300_000_000_000_000)), quiet=True)
    (third,) = site.once()
    assert third.rows["packets"] > 10
    assert read_table(site.lake, "ingest_errors").num_rows == 2

    # A tool rotates and compresses.
    (site.folder / "a.pcap.1.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    (fourth,) = site.once(quiet_seconds=0)
    assert fourth.rows.get("packets", 0) == 0
    done = site.ingest()
    assert (done.captures, done.rows) == ([], {})
    assert [(Path(known_error.capture).name, known_error.message) for known_error in done.known_errors] == [
        ("copy.pcap", first.errors[0].message)
    ]


@pytest.mark.long
def test_it_ends_when_it_is_told_to(spark: SparkSession, site: Site) -> None:
    site.put("a.pcapng", as_pcapng(frames_of("v5-qos")))
    over, reports = threading.Event(), list[BatchReport]()

    def tell(report: BatchReport) -> None:
        reports.append(report)
        if len(reports) == 2:
            over.set()
        # Another capture comes while it runs.
        site.put("b.pcapng", as_pcapng(moved(frames_of("ipv6"), 1_795_300_000_000_000_000)))

    watch(spark, [str(site.folder)], site.lake, options(), interval_s=0.1, tell=tell, over=over)
    assert len(reports) == 2
    assert not spark.streams.active
    captures = {Path(row["capture"]).name for row in read_table(site.lake, "packets").to_pylist()}
    assert captures == {"a.pcapng", "b.pcapng"}
    assert read_table(site.lake, "topics").num_rows > 2


def test_what_cannot_be(site: Site) -> None:
    with lake_lock(site.lake), pytest.raises(LakeError, match="is being written by another ingest or watch"):
        site.once()
    write_lake([site.put("a.pcap", pcap(frames(3)))], site.lake, options())
    with pytest.raises(LakeError, match=r"was written with other options: --payload-limit was \d+ and is 7;"):
        site.once(LakeOptions(payload_limit=7))


class Clock:
    """Two times for each worker that is started: before and after."""

    def __init__(self, *seconds: float) -> None:
        self.times = [at for took in seconds for at in (1_000.0, 1_000.0 + took)]

    def monotonic(self) -> float:
        return self.times.pop(0)


def test_a_worker_is_waited_for_until_it_starts_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    clock = Clock(31.0, module.READY_S, module.READY_S - 0.001, 1.0)
    monkeypatch.setattr(module, "time", clock)
    module.await_worker("true", threading.Event(), notes.append)

    assert len(clock.times) == 2
    assert notes == ["too busy to start a Python worker within 10 s: waiting until the machine has time"]
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
