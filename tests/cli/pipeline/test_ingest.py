"""``mqttscope pipeline ingest``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.spark.lake_files import lake_lock
from tests.bench.generate import generate
from tests.cli.running import command, environment, invoke
from tests.spark.collection import CUT, collection, tables, usual_options

NAMES = ("planted-violations", "v5-topic-alias-client")
KEPT = ("--payload-limit", "64", "--no-config")
"""The options of `usual_options`."""


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
    assert lines[-1].startswith("  findings: ")

    again = invoke("pipeline", "ingest", *captures, "--lake", lake, *KEPT)
    assert again.out.decode() == f"{lake}: 0 captures read, 2 known already\n"
    assert invoke("pipeline", "ingest", *captures, "--lake", lake, *KEPT, "-q").out == b""


def test_the_summary_as_json(tmp_path: Path) -> None:
    (capture,) = collection(tmp_path / "captures", [CUT])
    none = tmp_path / "none.pcap"

    done = invoke("pipeline", "ingest", capture, none, "--lake", tmp_path / "lake", "--format", "json", *KEPT)

    told = json.loads(done.out)
    (error,) = told["errors"]
    assert done.code == 3
    assert (told["schema"], told["generation"], told["captures"], told["known"]) == (1, 1, [capture], [])
    assert told["unreadable"] == [{"capture": str(none), "message": "does not exist"}]
    assert error["capture"] == capture
    assert set(told["rows"]) >= {"packets", "connections"}
    assert f"mqttscope: {none}: does not exist\n" in done.err
    assert f"mqttscope: {capture}: {error['message']}" in done.err


def test_captures_that_come_too_late_are_named(tmp_path: Path) -> None:
    early, late = collection(tmp_path / "captures", NAMES)
    invoke("pipeline", "ingest", late, "--lake", tmp_path / "lake")

    done = invoke("pipeline", "ingest", early, "--lake", tmp_path / "lake")

    assert (done.code, done.err.count("begins before the end of what was in the lake")) == (0, 1)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--conf", "a"), 2, "'a' is not of the form KEY=VALUE"),
        (("--split-size", "x"), 2, "'x' is no number of bytes"),
        (("--select", "NIX"), 2, "NIX"),
        (("none.pcap",), 3, "none.pcap does not exist"),
        (("s3://bucket/key", "--engine", "local"), 2, "--engine local reads no URIs"),
        (("--engine", "local", "--master", "local[2]"), 2, "--engine local takes no --master"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words: tuple[str, ...], code: int, told: str, tmp_path: Path) -> None:
    source = () if words[0] in ("none.pcap", "s3://bucket/key") else collection(tmp_path / "captures", NAMES[:1])

    done = invoke("pipeline", "ingest", *source, "--lake", tmp_path / "lake", *words)

    assert (done.code, done.out) == (code, b"")
    assert told in done.err.splitlines()[-1]
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


@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")
    from mqttscope.spark.session import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as error:
        pytest.skip(str(error))
    (first,) = collection(tmp_path / "captures", NAMES[:1])
    generate(tmp_path / "long.pcapng", 60_000)
    lake = tmp_path / "lake"
    write_lake([first], lake, usual_options())
    before = tables(lake)
    words = command("pipeline", "ingest", tmp_path / "long.pcapng", "--lake", lake, "--master", "local[1]", *KEPT)
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=tmp_path)
    known = len(list((lake / "packets").iterdir()))
    deadline = time.monotonic() + 300
    while len(list((lake / "packets").iterdir())) == known and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.05)

    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=120)

    assert (child.returncode, b"Traceback" in err) == (130, False)
    assert tables(lake) == before
    assert read_manifest(lake).generation == 1
