"""Ingests with Spark: the tables are those that are written in process, row by row; all or nothing."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mqttscope.analysis.fleet import add_overview
from mqttscope.analysis.local import LocalEngine
from mqttscope.analysis.questions import ReportSource
from mqttscope.capture.fingerprint import HEAD_BYTES, KnownFingerprints
from mqttscope.capture.locations import Location, NoCapturesError
from mqttscope.lake.commit import lake_lock
from mqttscope.lake.forget import forget, lift
from mqttscope.lake.manifest import LakeError, read_manifest
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import IngestResult, begin_generation, read_table, write_lake
from mqttscope.mqtt.view import utf8
from mqttscope.report.fleet.model import FleetReport, ReportQuery
from mqttscope.spark import dataframes
from mqttscope.spark import ingest as module
from mqttscope.spark.engine import SparkEngine
from mqttscope.spark.errors import SPARK_ERRORS, cause
from mqttscope.spark.ingest import CaptureIdentity, good_partitions, identify_captures, ingest, overlapping, tell_apart
from tests.capture.test_pcapng import enhanced, interface, statistics
from tests.conftest import ROOT
from tests.each import some
from tests.lake.fleet import content, segments, written
from tests.lake.parts import as_pcapng, moved
from tests.lake.reading import CAPTURES
from tests.spark.collection import CUT, DAMAGED, FRAGMENTED, collection, same_tables, tables, usual_options, wide
from tests.spark.folders import BEGIN_NS, as_pcap, frames_of, one_after_the_other
from tests.spark.troubled import troubled

FEW = ("v5-topic-alias-client", "planted-violations")


def files_of(lake: Path) -> set[str]:
    """Its files, but for those of the logs of tables."""
    files = {path.relative_to(lake).as_posix() for path in lake.rglob("*") if path.is_file()}
    return {name for name in files if "/_delta_log/" not in name}


def frames_in(lake: Path) -> list[int]:
    """The frames whose packets a lake has."""
    return sorted(read_table(lake, "packets")["frame"].to_pylist())


def files_of_versions(lake: Path) -> set[str]:
    """The files that some version of a table has, and those of the manifest."""
    texts = {"manifest.json", ".lock", *read_manifest(lake).all_files()}
    for name in TABLES:
        for version in range(DeltaTable(str(lake / name)).version() + 1):
            uris = DeltaTable(str(lake / name), version=version).file_uris()
            texts |= {f"{name}/{Path(uri).name}" for uri in uris}
    return texts


@pytest.mark.parametrize("every", some([8, 1]))
def test_tables_of_several_ingests_are_those_that_are_written_in_process(
    spark: SparkSession, tmp_path: Path, every: int
) -> None:
    """Committed captures, cut into small ranges; a damaged one, a truncated one, one in IP fragments."""
    names = [path.parent.name for path in CAPTURES]
    captures = collection(tmp_path / "captures", {*names[::every], FRAGMENTED, DAMAGED, CUT})
    middle = len(captures) // 2
    first, second = wide(tmp_path / "wide", middle)
    parts = [*captures[:middle], first], [second, *captures[middle:]]
    assert {FRAGMENTED, DAMAGED, CUT} <= {Path(name).stem for name in captures}
    lake_options = usual_options()
    ours, measure = tmp_path / "ours", tmp_path / "measure"
    for number, part in enumerate(parts):
        shuffled = random.Random(number).sample(part, len(part))
        done = ingest(spark, shuffled, ours, lake_options, split_bytes=4_000, partitions=2)
        wanted = write_lake(part, measure, lake_options)

        assert sorted(done.captures) == sorted(wanted.captures)
        assert (done.rows, done.open_flows) == (wanted.rows, wanted.open_flows)
        assert (done.known, done.faults, done.out_of_order) == ([], {}, [])
    same_tables(ours, measure)
    assert {row["scope"] for row in read_table(ours, "findings").to_pylist()} == {"connection", "session", "broker"}
    assert {Path(row["capture"]).stem for row in read_table(ours, "ingest_errors").to_pylist()} == {DAMAGED, CUT}

    # What is in already is not read again, under whatever name it comes.
    before = files_of(ours)
    captures += [first, second]
    (tmp_path / "copy").write_bytes(Path(captures[0]).read_bytes())
    again = ingest(spark, [*captures, f"{tmp_path}/copy", f"{tmp_path}/none.pcap"], ours, lake_options)
    assert (again.captures, len(again.known)) == ([], len(captures) + 1)
    assert again.faults == {f"{tmp_path}/none.pcap": "does not exist"}
    assert {Path(known_error.capture).stem for known_error in again.known_errors} == {DAMAGED, CUT}
    assert files_of(ours) == before == files_of_versions(ours)


@pytest.mark.long
def test_of_captures_that_have_grown_the_rest_is_read(spark: SparkSession, tmp_path: Path) -> None:
    before, growing, packed = (tmp_path / name for name in ("a.pcap", "b.pcapng", "b.pcapng.gz"))
    before.write_bytes(as_pcap(frames_of("planted-violations")))
    content = as_pcapng(one_after_the_other(["v5-qos", "v5-topic-alias-client", "session-taken-over"], BEGIN_NS))
    ours, measure, lake_options = tmp_path / "ours", tmp_path / "measure", usual_options()
    for size in (len(content) // 3, len(content) // 2, len(content)):
        growing.write_bytes(content[:size])
        captures = [str(before), str(growing)]
        if size == len(content):
            packed.write_bytes(gzip.compress(content))
            captures = [str(before), str(packed)]
        done = ingest(spark, captures, ours, lake_options, split_bytes=2_000, partitions=2)
        wanted = write_lake(captures, measure, lake_options)

        assert done.grown == wanted.grown == ([] if size < len(content) // 2 else captures[1:])
        assert (done.rows, done.out_of_order, done.overlapping) == (wanted.rows, [], [])
    same_tables(ours, measure)
    assert read_manifest(ours).begins == read_manifest(measure).begins
    write_lake([before, growing], tmp_path / "once", lake_options)
    assert frames_in(ours) == frames_in(tmp_path / "once")


@pytest.mark.long
def test_what_is_written_while_it_is_read_is_left_to_the_next_ingest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing, lake = tmp_path / "a.pcapng", tmp_path / "lake"
    content = as_pcapng(frames_of("v5-qos"))
    growing.write_bytes(content[: len(content) // 3])

    def grow(*arguments: Any, **named: Any) -> str:
        growing.write_bytes(content)
        return plan_captures(*arguments, **named)

    monkeypatch.setattr(module, "plan_captures", grow)
    plan_captures = dataframes.plan_captures
    rows = ingest(spark, [str(growing)], lake, usual_options(), split_bytes=1_000).rows
    assert ingest(spark, [str(growing)], lake, usual_options()).grown == [str(growing)]
    write_lake([growing], tmp_path / "once", usual_options())

    assert frames_in(lake) == frames_in(tmp_path / "once")
    assert rows["packets"] < len(frames_in(lake))


@pytest.mark.long
def test_what_is_rotated_in_between_is_left_to_the_next_ingest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, tap, rotated, lake = (tmp_path / name for name in ("a.pcap", "tap.pcap", "tap.1.pcap", "lake"))
    first.write_bytes(as_pcap(frames_of("planted-violations")))
    tap.write_bytes(as_pcap(frames_of("v5-qos")))

    def rotate(*arguments: Any, **named: Any) -> str:
        if not rotated.exists():
            tap.rename(rotated)
            tap.write_bytes(as_pcap(moved(frames_of("session-taken-over"), 1_795_300_000_000_000_000)))
        return plan_captures(*arguments, **named)

    plan_captures = dataframes.plan_captures
    monkeypatch.setattr(module, "plan_captures", rotate)
    done = ingest(spark, [str(first), str(tap)], lake, usual_options(), split_bytes=1_000)
    assert (done.captures, done.faults) == ([str(first)], {str(tap): "is another file since it was found"})
    again = ingest(spark, [str(first), str(tap), str(rotated)], lake, usual_options())
    assert (again.captures, again.out_of_order) == ([str(rotated), str(tap)], [])

    write_lake([first, rotated, tap], tmp_path / "once", usual_options())
    texts, wanted = tables(lake), tables(tmp_path / "once")
    assert len(texts.pop("ingest_errors")) == 1
    assert texts == {name: rows for name, rows in wanted.items() if name != "ingest_errors"}


@pytest.mark.long
def test_faulty_captures_have_rows_each_once(spark: SparkSession, tmp_path: Path) -> None:
    """Empty ones, copies of a damaged one, what is no file: as in process."""
    (damaged,) = collection(tmp_path / "in", [DAMAGED])
    (tmp_path / "in" / "copy.pcapng").write_bytes(Path(damaged).read_bytes())
    for name in ("empty-1.pcap", "empty-2\udcff.pcap"):
        (tmp_path / "in" / name).write_bytes(b"")
    os.mkfifo(tmp_path / "in" / "pipe.pcap")
    ours, measure, lake_options = tmp_path / "ours", tmp_path / "measure", usual_options()
    captures = [str(tmp_path / "in")]

    done = ingest(spark, captures, ours, lake_options)
    wanted = write_lake(
        [*done.captures, *done.known],
        measure,
        lake_options,
        faults={f"{tmp_path}/in/pipe.pcap": "is not a regular file"},
    )

    assert (done.rows, done.known_errors) == (wanted.rows, wanted.known_errors)
    assert done.rows["ingest_errors"] == 5
    same_tables(ours, measure)
    assert read_manifest(ours).faulty == read_manifest(measure).faulty
    before = files_of(ours)
    again = ingest(spark, captures, ours, lake_options)
    assert (again.captures, again.rows, len(again.known_errors)) == ([], {}, 4)
    assert files_of(ours) == before
    (tmp_path / "in" / "empty-3.pcap").write_bytes(b"")
    assert ingest(spark, captures, ours, lake_options).rows == {"ingest_errors": 1}
    assert read_manifest(ours).generation == 2


@pytest.mark.long
def test_captures_that_drop_frames_overlap_and_go_back_in_time(spark: SparkSession, tmp_path: Path) -> None:
    captures = troubled(tmp_path / "captures", 13, 4, overlap=True, jitter=True)
    lake_options = usual_options()
    for part in (captures[:2], captures[2:]):
        done = ingest(spark, part, tmp_path / "ours", lake_options, split_bytes=2_000, partitions=2)
        wanted = write_lake(part, tmp_path / "measure", lake_options)

        assert done.overlapping == wanted.overlapping == part[1:]
        assert done.out_of_order == wanted.out_of_order
    same_tables(tmp_path / "ours", tmp_path / "measure")
    events = {row["event"] for row in read_table(tmp_path / "ours", "ingest_errors").to_pylist()}
    assert events == {"capture_drops"}


def test_rules_that_fail_on_executors_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    """Rules that come from elsewhere, which a program has sent to the executors."""
    spark.sparkContext.addPyFile(str(ROOT / "tests" / "lake" / "failing.py"))
    lake_options = LakeOptions(rules=import_module("failing").FAILING)
    captures = collection(tmp_path / "captures", FEW)
    done = ingest(spark, captures, tmp_path / "ours", lake_options, partitions=2)
    wanted = write_lake(captures, tmp_path / "measure", lake_options)

    assert done.failures_told == wanted.failures_told
    assert [text.split()[0] for text in done.failures_told] == ["TST291", "TST292", "TST491"]
    assert failed(done) == failed(wanted)


def failed(done: IngestResult) -> list[tuple[str, str, int, str]]:
    """Which rules failed where, and why; without the place in their file, which lies elsewhere on executors."""
    rows = [
        (internal_error.rule, internal_error.capture, internal_error.frame, utf8(internal_error.error).split(" (")[0])
        for internal_error in done.internal_errors
    ]
    return sorted(rows)


@pytest.mark.long
def test_an_ingest_that_fails_leaves_the_lake_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Path
) -> None:
    text, other = collection(tmp_path / "captures", FEW)
    write_lake([text], lake, usual_options())
    before, files = tables(lake), files_of(lake)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_sums", stop)
        with pytest.raises(KeyboardInterrupt):
            ingest(spark, [other], lake, usual_options())
    assert tables(lake) == before
    assert files_of(lake) == files | {".lock"}

    # A full disk, a folder that cannot be written: the executor says it.
    (lake / "flow_keys").rmdir()
    (lake / "flow_keys").write_bytes(b"no folder")
    with pytest.raises(SPARK_ERRORS) as failed:
        ingest(spark, [other], lake, usual_options())
    assert cause(failed.value) == f"{lake} cannot be written: File exists"
    (lake / "flow_keys").unlink()
    assert tables(lake) == before
    assert read_manifest(lake).generation == 1

    (lake / "packets" / "0000000002-stray-0.parquet").write_bytes(b"of an ingest that was killed")
    ingest(spark, [other], lake, usual_options())
    write_lake([text, other], tmp_path / "whole", usual_options())
    same_tables(lake, tmp_path / "whole")
    assert files_of(lake) == files_of_versions(lake)


@pytest.mark.long
def test_captures_in_a_store(spark: SparkSession, bucket: tuple[Any, dict[str, str]], tmp_path: Path) -> None:
    client, settings = bucket
    captures = collection(tmp_path / "captures", FEW)
    for name in captures:
        client.put_object(Bucket="captures", Key=f"site/{Path(name).name}", Body=Path(name).read_bytes())

    # The workers of Spark were started without the credentials of this test.
    done = ingest(
        spark, ["s3://test:test@captures/site/"], tmp_path / "lake", usual_options(),
        settings=settings, split_bytes=3_000,
    )  # fmt: skip

    write_lake(captures, tmp_path / "measure", usual_options())
    assert len(done.captures) == 2
    placed = json.dumps(tables(tmp_path / "measure")).replace(str(tmp_path / "captures"), "s3://captures/site")
    assert tables(tmp_path / "lake") == {name: sorted(rows) for name, rows in json.loads(placed).items()}
    assert read_manifest(tmp_path / "lake").captures == {
        digest: name.replace(str(tmp_path / "captures"), "s3://captures/site")
        for digest, name in read_manifest(tmp_path / "measure").captures.items()
    }


def test_what_cannot_be_is_said_before_anything_is_done(spark: SparkSession, tmp_path: Path, lake: Path) -> None:
    (capture,) = collection(tmp_path, FEW[:1])
    with pytest.raises(NoCapturesError, match=r"none\.pcap does not exist"):
        ingest(spark, [f"{tmp_path}/none.pcap"], lake)
    assert not lake.exists()
    write_lake([capture], lake, usual_options())
    with pytest.raises(LakeError, match="other options"):
        ingest(spark, [capture], lake, usual_options(payload_limit=1))
    with lake_lock(lake), pytest.raises(LakeError, match="is being written by another ingest or watch"):
        ingest(spark, [capture], lake, usual_options())


def test_captures_that_overlap_are_named() -> None:
    captures = [Location(name, name, 1, first_ns) for name, first_ns in (("a", 0), ("b", 9), ("c", 20), ("d", 29))]

    assert overlapping(captures, [10, 30, 25]) == ["b", "c", "d"]
    assert overlapping(captures, [9, 20, 29]) == []
    assert overlapping(captures, []) == []
    # Without any frame there is nothing that could overlap.
    without = [Location(name, name, 1) for name in "ab"]
    assert overlapping([*without, captures[0]], [-1 << 63, -1 << 63, 9]) == []


def test_as_many_tasks_as_are_worth_while() -> None:
    assert [good_partitions(size << 20) for size in (0, 20, 200, 4_096, 65_536, 1 << 20)] == [1, 1, 12, 256, 256, 4096]


def test_the_next_generation_shares_nothing_with_the_one_before(tmp_path: Path) -> None:
    (capture,) = collection(tmp_path, FEW[:1])
    write_lake([capture], tmp_path / "lake")
    before = read_manifest(tmp_path / "lake")

    _, after = begin_generation(tmp_path, before, usual_options())
    after.files["packets"].append("new")
    after.captures["digest"] = "name"

    assert before == read_manifest(tmp_path / "lake")
    assert after.generation == 2


@pytest.mark.long
@pytest.mark.parametrize("order", [(2, 0, 1), (0, 2, 1)], ids=str)
def test_captures_that_come_late(order: tuple[int, ...], spark: SparkSession, tmp_path: Path) -> None:
    """Each packet is a row, and the tables are those that are written in process."""
    actual_segments = segments(5, 8)
    parts = written(actual_segments, tmp_path / "parts", 3)
    (whole,) = written(actual_segments, tmp_path / "whole", 1)
    lake_options, ours, measure = usual_options(), tmp_path / "ours", tmp_path / "measure"
    for number in order:
        done = ingest(spark, [str(parts[number])], ours, lake_options, partitions=2)
        wanted = write_lake([parts[number]], measure, lake_options)
        assert (done.out_of_order, done.open_flows) == (wanted.out_of_order, wanted.open_flows)

    same_tables(ours, measure)
    write_lake([whole], tmp_path / "lake", lake_options)
    assert Counter(map(content, read_table(ours, "packets").to_pylist())) == Counter(
        map(content, read_table(tmp_path / "lake", "packets").to_pylist())
    )
    assert any(read_table(ours, "connections").column("late").to_pylist())


@pytest.mark.long
def test_a_capture_with_counts_and_times_that_need_more_than_64_bits(spark: SparkSession, tmp_path: Path) -> None:
    """It is a row, and so is everything else of the collection."""
    path = tmp_path / "a.pcapng"
    high = (1 << 64) - 1
    frames = frames_of("v5-qos")
    last = enhanced(frames[-1].data, (1 << 63) - 1)
    path.write_bytes(as_pcapng(frames) + interface() + last + statistics(interface_drops=high, system_drops=high))
    other = tmp_path / "b.pcapng"
    other.write_bytes(as_pcapng(frames_of("planted-violations")))
    ours, measure, lake_options = tmp_path / "ours", tmp_path / "measure", usual_options()
    for _ in range(2):
        ingest(spark, [str(path), str(other)], ours, lake_options)
        write_lake([path, other], measure, lake_options)
    same_tables(ours, measure)
    (result,) = [row for row in read_table(ours, "ingest_errors").to_pylist() if row["event"] == "capture_drops"]
    assert result["dropped"] == (1 << 63) - 1
    for engine in (SparkEngine(spark, ours), LocalEngine(ours)):
        report = FleetReport(str(ours), ReportQuery())
        add_overview(report, ReportSource(engine, report.asked))
        assert report.trust.dropped == (1 << 63) - 1


def locations(folder: Path) -> list[Location]:
    for name in "abc":
        (folder / name).write_bytes(name.encode() * 3_000_000)
    (folder / "copy").write_bytes((folder / "b").read_bytes())
    new_locations = [Location(name, str(folder / name), 3_000_000) for name in ("a", "b", "copy", "none", "c")]
    return [*new_locations, Location("faulty", "faulty", fault="is a directory without captures")]


def test_executors_read_what_is_much(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actual_locations = locations(tmp_path)[:-1]
    digest = sha256(b"b" * 1_000_000).hexdigest()
    known = KnownFingerprints.from_manifest({digest: [1_000_000, crc32(b"b" * HEAD_BYTES)]})
    here = identify_captures(spark, actual_locations, {}, known)
    monkeypatch.setattr(module, "HERE_BYTES", 1)
    monkeypatch.setattr(module, "TASK_BYTES", 4_000_000)

    assert identify_captures(spark, actual_locations, {}, known) == here
    of_a = sha256(b"a" * 3_000_000).hexdigest()
    assert here[0] == CaptureIdentity(of_a, of_a, 3_000_000, crc32(b"a" * HEAD_BYTES))
    assert here[3] == CaptureIdentity(fault="does not exist")


def test_what_is_new_known_and_faulty(tmp_path: Path) -> None:
    known = sha256(b"c" * 3_000_000).hexdigest()
    # Few bytes on this machine need no session.
    selection = tell_apart(None, locations(tmp_path), {known: "c"}, {})  # type: ignore[arg-type]

    assert [location.name for location in selection.fresh.values()] == ["a", "b"]
    assert [name for name, _ in selection.known] == ["copy", "c"]
    assert selection.known[1][1] == known
    assert selection.faults == {"faulty": "is a directory without captures", "none": "does not exist"}


def test_a_lake_is_rebuilt_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    parts = written(segments(6, 9), tmp_path / "parts", 3)
    for part in reversed(parts):
        write_lake([part], tmp_path / "lake", usual_options())
    write_lake(parts, tmp_path / "once", usual_options())
    assert tables(tmp_path / "lake") != tables(tmp_path / "once")
    with pytest.raises(LakeError, match="cannot be found with the content of the ingest"):
        ingest(spark, [str(part) for part in parts[1:]], tmp_path / "lake", usual_options(), rebuild=True)
    assert read_manifest(tmp_path / "lake").generation == 3

    done = ingest(spark, list(map(str, parts)), tmp_path / "lake", usual_options(), rebuild=True)
    assert (done.captures, done.known) == (list(map(str, parts)), [])
    same_tables(tmp_path / "lake", tmp_path / "once")
    # Spark writes memories of rules about one flow in rows of their own.
    for lake in ("lake", "once"):
        forget(tmp_path / lake, ["c1"], key_file=str(tmp_path / "key"))
    same_tables(tmp_path / "lake", tmp_path / "once")
    lift(tmp_path / "lake", [])
    ingest(spark, [str(parts[0])], tmp_path / "lake", usual_options(), rebuild=True, without_missing=True)
    assert list(read_manifest(tmp_path / "lake").captures.values()) == [str(parts[0])]
