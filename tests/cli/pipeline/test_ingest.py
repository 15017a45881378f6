"""``mqttscope pipeline ingest``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import tools

tools.package("pyarrow")

from mqttscope.capture import PcapngWriter, locations
from mqttscope.installation import extra_command
from mqttscope.lake.commit import lake_lock
from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.schemas import EVENT_TABLES
from mqttscope.lake.writer import read_table, write_lake
from tests.bench.generate import generate
from tests.capture.doubled import recorded, two_taps, write
from tests.cli.running import capture, command, environment, invoke
from tests.lake.fleet import segments, written
from tests.net.octets import frame, gtp, ip4
from tests.spark.cluster import SMALL
from tests.spark.collection import CUT, collection, tables, usual_options, wide
from tests.spark.troubled import troubled

NAMES = ("planted-violations", "v5-topic-alias-client")
KEPT = ("--payload-limit", "64", "--no-config")
"""The options of `usual_options`."""


@pytest.mark.parametrize(("word", "extra"), [("ingest", "lake"), ("watch", "spark")])
def test_what_is_missing_is_said(word: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("mqttscope.lake.", "mqttscope.spark."))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("msgspec", "pyarrow", "deltalake", "duckdb", "pyspark"):
        monkeypatch.setitem(sys.modules, name, None)
    done = invoke("pipeline", word, capture("v5-qos"), "--lake", tmp_path / "lake")

    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "need a package that is not installed (" in done.err
    assert extra_command(extra) in done.err


def test_small_inputs_are_written_in_process(tmp_path: Path) -> None:
    captures = collection(tmp_path / "captures", NAMES)
    lake = tmp_path / "lake"

    done = invoke("pipeline", "ingest", f"{tmp_path}/captures/*", "--lake", lake, *KEPT)

    write_lake(captures, tmp_path / "measure", usual_options())
    assert tables(lake) == tables(tmp_path / "measure")
    lines = done.out.decode().splitlines()
    assert (done.code, done.err, lines[0]) == (0, "", f"{lake}: 2 captures read")
    counts = dict(line.split() for line in lines[1:] if len(line.split()) == 2)
    assert int(counts["packets"]) == read_table(lake, "packets").num_rows
    assert int(counts["topics"]) == read_table(lake, "topics").num_rows
    assert lines[-1].startswith("  new findings: ")

    again = invoke("pipeline", "ingest", *captures, "--lake", lake, *KEPT)
    assert again.out.decode() == f"{lake}: 0 captures read, 2 already in the lake\n"


def test_the_summary_as_json(tmp_path: Path) -> None:
    (capture,) = collection(tmp_path / "captures", [CUT])
    none = tmp_path / "none.pcap"

    done = invoke("pipeline", "ingest", capture, none, "--lake", tmp_path / "lake", "--format", "json", *KEPT)

    document = done.document
    (error,) = document["errors"]
    assert done.code == 3
    assert (
        document["schema"],
        document["generation"],
        document["captures"],
        document["known"],
    ) == (1, 1, [capture], [])
    assert document["unreadable"] == [{"capture": str(none), "message": "does not exist"}]
    assert error["capture"] == capture
    assert set(document["rows"]) >= {"packets", "connections"}
    assert f"mqttscope: {none}: does not exist\n" in done.err
    assert f"mqttscope: {capture}: {error['message']}" in done.err


def test_a_capture_that_vanishes_costs_nothing_but_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = collection(tmp_path / "captures", NAMES)

    def find_and_remove(*arguments: Any) -> list[locations.Location]:
        actual_locations = find(*arguments)
        os.unlink(captures[0])
        return actual_locations

    find = locations.find
    monkeypatch.setattr(locations, "find", find_and_remove)
    done = invoke("pipeline", "ingest", *captures, "--lake", tmp_path / "lake", "--format", "json", *KEPT)

    document = done.document
    why = "does not exist since it was found"
    assert (done.code, done.err) == (3, f"mqttscope: {captures[0]}: {why}\n")
    assert document["captures"] == [captures[1]]
    assert document["unreadable"] == [{"capture": captures[0], "message": why}]
    rows = read_table(tmp_path / "lake", "ingest_errors").to_pylist()
    assert [(row["capture"], row["message"]) for row in rows] == [(captures[0], why)]


def test_captures_that_have_grown_are_counted(tmp_path: Path) -> None:
    capture, lake = tmp_path / "a.pcapng", tmp_path / "lake"
    content = Path(collection(tmp_path / "captures", NAMES[:1])[0]).read_bytes()
    capture.write_bytes(content[: len(content) // 2])
    invoke("pipeline", "ingest", capture, "--lake", lake, *KEPT)
    capture.write_bytes(content[:-5])
    done = invoke("pipeline", "ingest", capture, "--lake", lake, "--format", "json", *KEPT)
    document = done.document
    assert (document["captures"], document["grown"]) == ([str(capture)], [str(capture)])

    capture.write_bytes(content)
    done = invoke("pipeline", "ingest", capture, "--lake", lake, *KEPT)
    assert done.out.decode().splitlines()[0] == f"{lake}: 1 capture read (1 continued from its previous end)"
    assert (done.code, done.err) == (0, "")


def test_faulty_captures_are_told_each_time(tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", tmp_path / "lake"
    (capture,) = collection(folder, [CUT])
    for name in ("b\udcff.pcap", "c.pcap"):
        (folder / name).write_bytes(b"")
    os.mkfifo(folder / "pipe.pcap")

    first = invoke("pipeline", "ingest", folder, "--lake", lake, *KEPT)
    again = invoke("pipeline", "ingest", folder, "--lake", lake, *KEPT)
    result = invoke("pipeline", "ingest", folder, "--lake", lake, *KEPT, "--format", "json")

    rows = {Path(row["capture"]).name: row["message"] for row in read_table(lake, "ingest_errors").to_pylist()}
    assert rows == {
        "b\\xff.pcap": "is empty", "c.pcap": "is empty", "pipe.pcap": "is not a regular file",
        f"{CUT}.pcapng": rows[f"{CUT}.pcapng"],
    }  # fmt: skip
    lines = [line.removeprefix(f"mqttscope: {folder}/") for line in first.err.splitlines()]
    assert [lines[0], *sorted(lines[1:])[:2]] == [
        "pipe.pcap: is not a regular file", "b\\xff.pcap: is empty", "c.pcap: is empty"
    ]  # fmt: skip
    assert sorted(lines)[-1].startswith(f"{CUT}.pcapng: {rows[f'{CUT}.pcapng']} at offset ")
    repeated = [line.removeprefix(f"mqttscope: {folder}/") for line in again.err.splitlines()]
    assert [repeated[0], *sorted(repeated[1:])] == [
        lines[0],
        *(f"{line} (the lake already contains this error)" for line in sorted(lines[1:])),
    ]
    assert (first.code, again.code, result.code) == (3, 3, 3)
    assert again.out.decode() == f"{lake}: 0 captures read, 3 already in the lake\n"
    document = json.loads(result.out)
    assert (document["errors"], document["captures"]) == ([], [])
    assert document["unreadable"] == [{"capture": f"{folder}/pipe.pcap", "message": "is not a regular file"}]
    assert {"capture": capture, "message": rows[f"{CUT}.pcapng"]}.items() <= max(
        document["known_errors"], key=lambda row: row["frames"]
    ).items()


def test_captures_that_come_too_late_are_named(tmp_path: Path) -> None:
    early, late = collection(tmp_path / "captures", NAMES)
    invoke("pipeline", "ingest", late, "--lake", tmp_path / "lake")

    done = invoke("pipeline", "ingest", early, "--lake", tmp_path / "lake")

    assert (done.code, done.err.count("starts before the end of the captures already in the lake")) == (0, 1)


def test_connections_that_come_late_are_counted(tmp_path: Path) -> None:
    """No rule of wider scope sees them: they come out of order."""
    early, late = written(segments(9, 12), tmp_path / "captures", 2)
    invoke("pipeline", "ingest", late, "--lake", tmp_path / "lake")
    done = invoke("pipeline", "ingest", early, "--lake", tmp_path / "lake", "--format", "json")

    rows = read_table(tmp_path / "lake", "connections").column("late").to_pylist()
    assert done.document["late_connections"] == sum(rows) > 1
    assert f"{sum(rows)} late connections were linted without rules that compare connections" in done.err


@pytest.mark.parametrize(("count", "parts"), [(5, 2), (9, 6)], ids=["one", "many"])
def test_captures_that_overlap_are_named(count: int, parts: int, tmp_path: Path) -> None:
    names = troubled(tmp_path / "captures", count, parts, overlap=True)
    done = invoke("pipeline", "ingest", *reversed(names), "--lake", tmp_path / "lake", "--format", "json")
    named = done.document["overlapping"]

    if parts == 2:
        assert named == [names[1]]
        assert f"mqttscope: {named[0]}: overlaps in time with an earlier capture and is read after it" in done.err
    else:
        assert len(named) > 3
        text = f"mqttscope: {len(named)} captures overlap in time with an earlier capture and are read after it"
        assert text in done.err
        assert f"{named[2]} and {len(named) - 3} more)" in done.err
        assert named[3] not in done.err


def unread(folder: Path) -> list[str]:
    """Captures with what `inspect` says a line of: frames that are not read, copies, one direction alone."""
    skipped = folder / "skipped.pcapng"
    with skipped.open("wb") as file:
        out = PcapngWriter(file)
        for number in range(3):
            out.write(frame(ip4(gtp(ip4(b"", 6), 0x50), 17), 228, number=number + 1))
    names = "duplicated", "client-side-only", "retransmission-with-new-data"
    return [str(skipped), *(str(capture(name)) for name in names)]


def test_what_inspect_says_of_connections_and_frames_is_said_of_an_ingest(tmp_path: Path) -> None:
    names = unread(tmp_path)
    wanted = [line for name in names for line in invoke("inspect", name).err.splitlines()]
    done = invoke("pipeline", "ingest", *names, "--lake", tmp_path / "lake", "--engine", "local", "--format", "json")
    document = done.document

    assert document["not_read"] == {"gtp_u_version_2": 3}
    assert "not read: 3 frames of GTP-U version 2" in done.err
    for name in ("captured twice", "one direction only", "were repeated with different content"):
        assert any(name in line for line in wanted) is (name in done.err), name
    assert document["of_connections"]["copied_segments"] > 0
    assert document["of_connections"]["one_sided"] > 0


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_spark_says_the_same(tmp_path: Path) -> None:
    names = unread(tmp_path)
    here, there = (
        invoke("pipeline", "ingest", *names, "--lake", tmp_path / engine, "--engine", engine)
        for engine in ("local", "spark")
    )

    assert "not read: 3 frames of GTP-U version 2" in here.err
    assert (there.code, there.err) == (here.code, here.err)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--conf", "a"), 2, "'--conf': the value is not of the form KEY=VALUE"),
        (("--select", "NIX"), 2, "NIX"),
        (("none.pcap",), 3, "none.pcap does not exist"),
        (("--lake-fs", "region=x"), 2, "--lake-fs is for a lake in an object store"),
        (("--engine", "local", "--master", "local[2]"), 2, "--engine local cannot be combined with --master"),
        (("--engine", "local", "--conf", "spark.a=b"), 2, "--engine local cannot be combined with --master or --conf"),
        (("/dev/zero",), 3, "/dev/zero is not a regular file"),
        (("--jobs", "2", "--engine", "spark"), 2, "--jobs is for decoding without Spark; for Spark use --master"),
        (("--jobs", "2", "--master", "local[1]"), 2, "--jobs is for decoding without Spark"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words: tuple[str, ...], code: int, expected: str, tmp_path: Path) -> None:
    source = () if words[0] in ("none.pcap", "/dev/zero") else collection(tmp_path / "captures", NAMES[:1])

    done = invoke("pipeline", "ingest", *source, "--lake", tmp_path / "lake", *words)

    assert (done.code, done.out) == (code, b"")
    assert expected in done.err.splitlines()[-1]
    assert not (tmp_path / "lake").exists()


def test_a_lake_of_other_settings_and_one_that_is_written(tmp_path: Path) -> None:
    (capture,) = collection(tmp_path / "captures", NAMES[:1])
    lake = tmp_path / "lake"
    invoke("pipeline", "ingest", capture, "--lake", lake)

    other = invoke("pipeline", "ingest", capture, "--lake", lake, "--group", "b")
    assert (other.code, other.err) == (3, f"mqttscope: {lake} holds captures of the group '', not of 'b'\n")
    with lake_lock(lake):
        busy = invoke("pipeline", "ingest", capture, "--lake", lake)
    assert (busy.code, busy.err) == (3, f"mqttscope: {lake} is being written by another ingest or watch\n")


def test_the_summary_says_what_the_tables_have(tmp_path: Path) -> None:
    (begun, _), lake = wide(tmp_path / "wide", 3), tmp_path / "lake"

    document = invoke("pipeline", "ingest", begun, "--lake", lake, "--format", "json", *KEPT).document
    left_text, not_kept = (
        invoke("pipeline", "ingest", begun, "--lake", tmp_path / f"lake{number}", *words).text
        for number, words in enumerate((KEPT, ("--no-config",)))
    )

    assert document["rows"] == {name: rows for name in EVENT_TABLES if (rows := read_table(lake, name).num_rows)}
    assert 0 < document["open_rows"]["connections"] == document["open_connections"] <= document["rows"]["connections"]
    theirs = "".join(f", {name} {rows}" for name, rows in document["open_rows"].items() if name != "connections")
    assert f" still open, with these rows: {theirs[2:] or 'none'}\n" in left_text
    text = "  payloads only as length and digest; --payload-limit BYTES keeps their bytes\n"
    assert (text in left_text, text in not_kept) == (False, True)
    assert all(read_table(tmp_path / name, "messages").num_rows for name in ("lake0", "lake1"))


def test_a_damaged_lake_is_not_gone_on_with(tmp_path: Path) -> None:
    text, other = collection(tmp_path / "captures", NAMES)
    lake = tmp_path / "lake"
    invoke("pipeline", "ingest", text, "--lake", lake)
    before = (lake / "manifest.json").read_bytes()
    (packets,) = (lake / "packets").glob("*.parquet")
    os.truncate(packets, 100)

    for words in (("ingest", other), ("sql", "select 1"), ("report",), ("watch", tmp_path)):
        done = invoke("pipeline", *words, "--lake", lake)
        assert (done.code, done.out) == (3, b"")
        assert done.err.startswith(f"mqttscope: {packets} has 100 bytes and should have ")
    assert (lake / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    "words", [("ingest", "a.pcap"), ("watch", "."), ("sql", "select 1"), ("report",), ("convert",)]
)
@pytest.mark.parametrize(("lake", "expected"), [("https://host/lake", " a lake"), ("\udcff2", "is not UTF-8")])
def test_names_that_no_lake_can_have(
    words: tuple[str, ...], lake: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = invoke("pipeline", *words, "--lake", lake)

    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert expected in " ".join(done.err.split())


@pytest.mark.long
def test_from_a_store_into_a_store(tmp_path: Path, bucket: tuple[Any, dict[str, str]]) -> None:
    for name in collection(tmp_path / "captures", NAMES):
        bucket[0].put_object(Bucket="captures", Key=f"day/{Path(name).name}", Body=Path(name).read_bytes())
    bucket[0].put_object(Bucket="captures", Key="day/z.pcapng", Body=Path(name).read_bytes()[:-37])
    store = [word for name, value in bucket[1].items() for word in ("--fs", f"{name}={value}")]
    own = [word.replace("--fs", "--lake-fs") for word in store]
    here = invoke("pipeline", "ingest", f"{tmp_path}/captures/*", "--lake", tmp_path / "lake", "--format", "json")

    # Without Java, and with as many processes as are asked for at most.
    done = invoke(
        "pipeline", "ingest", "s3://captures/day/*.pcapng", "--lake", "s3://captures/moved", *store, *own,
        "--format", "json", "--jobs", "2",
    )  # fmt: skip
    document, wanted = done.document, json.loads(here.out)
    assert (done.code, document["captures"][0]) == (0, "s3://captures/day/planted-violations.pcapng")
    assert {name: document[name] for name in ("rows", "findings")} == {
        name: wanted[name] for name in ("rows", "findings")
    }
    assert document["known"] == ["s3://captures/day/z.pcapng"]
    # It has nothing but what the first one has, and goes into a lake that does not know that.
    done = invoke("pipeline", "ingest", "s3://captures/day/z.pcapng", "--lake", tmp_path / "folder", *store)
    assert (done.code, "s3://captures/day/z.pcapng: ends inside a block" in done.err) == (3, True), done.err
    done = invoke("pipeline", "ingest", "s3://captures/none/", "--lake", "s3://captures/moved", *store)
    assert (done.code, done.err) == (3, "mqttscope: s3://captures/none/ does not exist\n")
    done = invoke(
        "pipeline", "ingest", "s3://captures/day/", "--lake", "s3://captures/other", *store,
        "--lake-fs", "endpoint_override=127.0.0.1:9", "--lake-fs", "scheme=http", "--lake-fs", "region=x",
    )  # fmt: skip
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "s3://captures/other" in done.err


@pytest.mark.long
def test_a_lake_in_a_store(tmp_path: Path, bucket: tuple[Any, dict[str, str]]) -> None:
    captures = collection(tmp_path / "captures", NAMES[:2])
    lake = "s3://captures/command/lake"
    store = [word for name, value in bucket[1].items() for word in ("--fs", f"{name}={value}")]
    done = invoke("pipeline", "ingest", *captures, "--lake", lake, *store, "--format", "json")
    here = invoke("pipeline", "ingest", *captures, "--lake", tmp_path / "lake", "--format", "json")
    assert (done.code, done.err) == (here.code, here.err)
    assert done.document == json.loads(here.out) | {"lake": lake}

    query = "select topic, state, since_ns from retained_messages order by all"
    asked: tuple[tuple[str, ...], ...] = (("report",), ("sql", query))
    for words in asked:
        result = invoke("pipeline", *words, "--lake", lake, *store)
        assert (result.code, result.err) == (0, "")
        assert result.out == invoke("pipeline", *words, "--lake", tmp_path / "lake").out

    refused: tuple[tuple[tuple[Any, ...], str], ...] = (
        (("ingest", captures[0], "--engine", "spark"), "Spark cannot write a lake in an object store"),
        (("ingest", captures[0], "--master", "local[1]"), "Spark cannot write a lake in an object store"),
        (("sql", "select 1", "--master", "local[1]"), "Spark cannot query a lake in an object store"),
        (("report", "--engine", "spark"), "Spark cannot query a lake in an object store"),
        (("watch", "."), "is a URI, and this command needs a lake in a folder"),
        (("convert",), "is a URI, and this command needs a lake in a folder"),
    )
    for row, sentence in refused:
        fs = store if row[0] in ("ingest", "sql", "report") else []
        done = invoke("pipeline", *row, "--lake", lake, *fs)
        assert (done.code, done.out) == (2, b"")
        assert sentence in " ".join(done.err.split())
    done = invoke("pipeline", "sql", "select 1", "--lake", "s3://captures/nothing", *store)
    assert (done.code, done.err) == (3, "mqttscope: s3://captures/nothing is not a lake\n")
    done = invoke("pipeline", "ingest", captures[0], "--lake", "s3://no-such-bucket/lake", *store)
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "s3://no-such-bucket/lake cannot be " in done.err
    done = invoke("pipeline", "ingest", captures[0], "--lake", tmp_path / "lake", "--single-writer")
    assert (done.code, "--single-writer is for a lake in an object store" in done.err) == (2, True)


def test_ctrl_c_says_that_the_lake_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (capture,) = collection(tmp_path / "captures", NAMES[:1])

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mqttscope.lake.writer.commit", stopped)
    done = invoke("pipeline", "ingest", capture, "--lake", tmp_path / "lake")

    assert (done.code, done.err) == (130, f"mqttscope: stopped: {tmp_path / 'lake'} is unchanged\n")
    assert not (tmp_path / "lake" / "manifest.json").exists()


LOST = "a process of --jobs 2 was killed by SIGKILL, so the output is incomplete; --jobs 1 needs less memory"


@contextmanager
def two_at_work(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """An ingest in two processes under way: the process, the other one, the lake."""
    generate(tmp_path / "long.pcapng", 30_000)
    lake = tmp_path / "lake"
    words = command("pipeline", "ingest", tmp_path / "long.pcapng", "--lake", lake, "--jobs", "2", *KEPT)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while not list(lake.glob("packets/*")) and time.monotonic() < deadline:
                time.sleep(0.02)
            (other,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield process, int(other), lake
        finally:
            process.kill()


def ended(process: int) -> bool:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not Path(f"/proc/{process}").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "code", "expected"),
    [
        ("Ctrl-C", 130, "mqttscope: stopped: {lake} is unchanged\n"),
        ("the other is killed", 3, f"mqttscope: {{lake}} is unchanged\nError: {LOST}\n"),
        ("the first is killed", -signal.SIGKILL, ""),
    ],
)
def test_two_processes_end_together_and_leave_the_lake_as_it_was(
    how: str, code: int, expected: str, tmp_path: Path
) -> None:
    with two_at_work(tmp_path) as (process, other, lake):
        if how == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
        else:
            os.kill(other if "other" in how else process.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=120)
        assert ended(other)

    assert (process.returncode, err.decode()) == (code, expected.format(lake=lake))
    assert how == "the first is killed" or list(lake.rglob("*.parquet")) == []
    assert read_manifest(lake).generation == 0
    # Nobody holds the lock any more.
    small = collection(tmp_path / "captures", NAMES[:1])
    assert invoke("pipeline", "ingest", *small, "--lake", lake, *KEPT).code == 0


@pytest.mark.long
@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    tools.java()
    (first,) = collection(tmp_path / "captures", NAMES[:1])
    generate(tmp_path / "long.pcapng", 30_000)
    lake = tmp_path / "lake"
    write_lake([first], lake, usual_options())
    before = tables(lake)
    spark = ("--master", "local[1]", "--conf", f"spark.driver.extraJavaOptions={SMALL}")
    words = command("pipeline", "ingest", tmp_path / "long.pcapng", "--lake", lake, *spark, *KEPT)
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=tmp_path)
    known = len(list((lake / "packets").iterdir()))
    deadline = time.monotonic() + 300
    while len(list((lake / "packets").iterdir())) == known and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.05)

    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=120)

    assert (child.returncode, err.decode()) == (130, f"mqttscope: stopped: {lake} is unchanged\n")
    assert tables(lake) == before
    assert read_manifest(lake).generation == 1


def test_captures_of_several_taps_make_the_lake_of_one(tmp_path: Path) -> None:
    frames = recorded(capture("planted-violations"))
    other_frames, other = two_taps(frames, loss=0.05, shift_ns=1_003_000_000)
    paths = write(tmp_path / "near.pcapng", other_frames), write(tmp_path / "far.pcapng", other)
    row = ("--engine", "local", "--format", "json", *KEPT)
    single = json.loads(invoke("pipeline", "ingest", capture("planted-violations"), "--lake", tmp_path / "a", *row).out)
    for jobs in ("1", "2"):
        lake = tmp_path / f"lake-{jobs}"
        done = invoke("pipeline", "ingest", *paths, "--lake", lake, "--deduplicate", "--jobs", jobs, *row)
        document = done.document

        assert (done.code, document["overlapping"]) == (0, [])
        for name in ("rows", "open_rows", "sums", "findings", "of_connections", "open_connections"):
            assert document[name] == single[name], name
        assert [tap["missed"] > 0 for tap in document["taps"]["taps"]] == [True, True]
        assert "frames with TCP are copies and were left out" in done.err
    again = invoke("pipeline", "ingest", capture("v5-qos"), "--lake", tmp_path / "lake-1", *row)
    assert again.code == 3
    assert "--deduplicate was on and is off" in again.err


def test_spark_does_not_compare_frames(tmp_path: Path) -> None:
    for pair in (("--engine", "spark"), ("--master", "local[1]"), ("--conf", "spark.a=b")):
        done = invoke("pipeline", "ingest", capture("v5-qos"), "--lake", tmp_path / "lake", "--deduplicate", *pair)
        assert done.code == 2
        assert "--deduplicate compares frames in one process, without Spark" in done.err
