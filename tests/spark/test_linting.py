"""Findings with Spark are those of one process."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqttscope.capture import open_capture
from mqttscope.capture.locations import find
from mqttscope.dissect import dissect
from mqttscope.lake.options import LakeOptions
from mqttscope.lint.catalogue import select
from mqttscope.lint.engine import Linter
from mqttscope.mqtt.packets import Pingreq, Pingresp
from mqttscope.spark.linting import judge
from tests.cli.made import client, closes, on, opened, server, site, write_capture
from tests.cli.running import Done, capture, invoke
from tests.cli.test_lint import UNDELIVERED
from tests.cli.test_lint_quality import INSIDE, OUTSIDE, written
from tests.conftest import ROOT
from tests.each import some
from tests.lint.lint_help import steps_of
from tests.spark.collection import collection
from tests.spark.troubled import troubled


def later(source: Path, path: Path, seconds: int) -> Path:
    """A copy of a capture, whose times are in nanoseconds, with its packet blocks at a later time."""
    data = bytearray(source.read_bytes())
    at = 0
    while at + 20 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            high, low = struct.unpack_from("<II", data, at + 12)
            time = (high << 32 | low) + seconds * 1_000_000_000
            struct.pack_into("<II", data, at + 12, time >> 32, time & 0xFFFFFFFF)
        at += length
    path.write_bytes(data)
    return path


@pytest.fixture
def captures(tmp_path: Path) -> list[str]:
    """All captures of the project one after the other, one with IP fragments, some damaged."""
    return collection(tmp_path / "captures")


Same = Callable[..., Done]


@pytest.fixture
def same(spark: SparkSession) -> Same:
    """What ``lint`` says in one process, which it says with Spark as well."""

    def result(*words: str | Path) -> Done:
        here, there = invoke("lint", *words), invoke("lint", *words, "--engine", "spark")
        if "jsonl" in words:
            assert there.lines == here.lines
        assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
        return here

    return result


@pytest.mark.long
def test_every_finding_is_the_same(same: Same, captures: list[str]) -> None:
    assert len(same(*captures, "--format", "jsonl", "--select", "ALL").lines) > 400


@pytest.mark.long
def test_connections_that_begin_alike_are_told_apart(same: Same) -> None:
    """Two captures that were made with the same addresses, times and sequence numbers."""
    alike = capture("failing-device"), capture("planted-violations")

    assert len(same(*alike, "--format", "jsonl", "--every").lines) > 10


@pytest.mark.long
def test_captures_that_drop_frames_overlap_and_go_back_in_time(same: Same, tmp_path: Path) -> None:
    """The order of findings and all numbers as well: time-outs, drops and clocks have the same place."""
    result = same(*troubled(tmp_path, 16, overlap=True, jitter=True), "--format", "jsonl", "--select", "ALL")

    assert {line["confidence"] for line in result.lines} >= {"certain", "likely"}


@pytest.mark.parametrize("name", some(["planted-violations", "v5-flow-control"], 2))
def test_one_capture_gives_the_same_bytes(same: Same, name: str) -> None:
    same(capture(name), "--format", "json", "--select", "ALL")


@pytest.mark.long
def test_what_is_certain_where_every_connection_was_captured(same: Same, tmp_path: Path) -> None:
    speaks = client(Pingreq(), after=40), server(Pingresp())
    path = write_capture(tmp_path / "a.pcapng", *opened(), *on(1, *opened()), *speaks)
    result = same(path, "--format", "jsonl", "--complete", "10.0.0.2:1883", "--complete", "10.0.0.9:1883")

    assert [line["confidence"] for line in result.lines if line["rule"] == "SES307"] == ["certain"]
    assert "10.0.0.9:1883: no connection" in result.err


@pytest.mark.long
def test_rules_of_one_connection_alone_need_no_second_stage(spark: SparkSession) -> None:
    options = LakeOptions(rules=tuple(rule() for rule in select(("PUB", "ALS", "FLW"), (), ()).values()))
    path = str(capture("planted-violations"))
    judged = judge(spark, find([path]), options)

    rows = [(finding.rule, finding.frame, finding.packet) for finding in judged.findings]
    here = invoke("lint", path, "--format", "jsonl", "--select", "PUB,ALS,FLW", "--min-confidence", "heuristic")
    assert len(rows) == len(here.lines) > 3
    assert rows == [(line["rule"], line["frame"], line.get("packet")) for line in here.lines]
    assert judged.sums.connections == judged.sums.quality.connections > 0


@pytest.mark.long
def test_rules_that_fail_on_executors_are_reported(spark: SparkSession) -> None:
    spark.sparkContext.addPyFile(str(ROOT / "tests" / "lake" / "failing.py"))
    rules = import_module("failing").FAILING
    path = str(capture("planted-violations"))
    judged = judge(spark, find([path]), LakeOptions(rules=rules))
    linter = Linter(rules)
    for event in dissect(open_capture([path])):
        linter.feed(event)

    assert list(judged.findings) == []
    assert judged.sums.failures.counts == linter.failures
    assert len(linter.failures) == len(rules)
    assert {(error.rule, error.frame) for error in judged.sums.failures.errors} == {
        (internal_error.rule, internal_error.frame) for internal_error in linter.internal_errors
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "selected",
    [
        ("--filter", "publish and qos > 0"),
        (
            "--client",
            "*e*",
            "--filter",
            "direction == client",
            *(f"--connection={number}" for number in range(0, 60, 2)),
        ),
        ("--client", "nobody", "--connection", "100000"),
    ],
    ids=" ".join,
)
def test_a_part_of_the_findings(same: Same, selected: tuple[str, ...], captures: list[str]) -> None:
    """Rules see everything; what waits for the client to be known comes where it is."""
    if "nobody" in selected:
        # What is not there is in none of them.
        captures = captures[:4]
    result = same(*captures, "--format", "jsonl", "--select", "ALL", *selected)

    assert bool(result.lines) is ("nobody" not in selected)


@pytest.mark.long
def test_many_clients_are_one_note_and_silent_captures_are_nothing_to_judge(same: Same, tmp_path: Path) -> None:
    pumps = site(tmp_path / "site.pcapng")
    silent = write_capture(tmp_path / "silent.pcapng", client(b"SSH-2.0-a\r\n"), closes("client"), to="10.0.0.2:22")
    same(pumps, "--format", "json")
    same(silent, pumps, "--format", "junit", "--require-packets", "100")
    result = same(silent, "--format", "json")

    assert result.code == 3
    assert "nothing to judge: " in result.err


def test_what_captures_lack_is_the_same(same: Same, tmp_path: Path) -> None:
    """A capture of each kind, so far apart in time that no connection is in two of them."""
    cases = [*INSIDE, *OUTSIDE]
    paths = [
        later(written(case, tmp_path / "case.pcapng"), tmp_path / f"{at:02}.pcapng", at * 14_400)
        for at, case in enumerate(cases)
    ]
    for level in ("usable", "complete"):
        result = same(*paths, "--format", "json", "--require-quality", level)
        shortfalls = json.loads(result.out)["summary"]["shortfalls"]
        assert len(shortfalls) == (len(INSIDE) if level == "usable" else len(paths))
        assert result.code == 3


def test_timing_and_rules_that_wait_longer_than_connections_last(same: Same, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "short.pcapng", *steps_of(*UNDELIVERED, "> publish a third qos=1 id=3; > fin"))
    waits = same(path, "--format", "json")
    finds = same(path, "--format", "json", "--timing", "test")

    assert json.loads(waits.out)["summary"]["pending"] == {"ACK515": 1, "DLV410": 1}
    assert b"DLV410" in finds.out
