"""``pipeline watch`` without Spark: what is wrong is said before Spark starts.  What it does: spark/test_watch.py."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import tools

tools.package("pyarrow", "pyspark")

from mqttscope.cli.main import group
from mqttscope.cli.pipeline.watch import WatchOptions, WatchRun, _signals, line
from mqttscope.lake.commit import lake_lock
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.writer import write_lake
from mqttscope.lint.engine import InternalError
from mqttscope.lint.failures import RuleFailures
from mqttscope.net.frame import CaptureError
from mqttscope.spark.watch import BatchReport
from tests.conftest import ROOT


def run(*arguments: Any) -> tuple[int, str]:
    done = CliRunner().invoke(group, ["pipeline", "watch", *map(str, arguments)], standalone_mode=False)
    assert done.exception is not None
    return getattr(done.exception, "exit_code", 0), str(getattr(done.exception, "message", done.exception))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing",), "missing does not exist"),
        (
            ("s3://bucket/a",),
            "s3://bucket/a is not a path: only captures on file systems can be followed while they grow",
        ),
        ((".", "--master", "sc://host"), "watch does not support Spark Connect; use local[*] or spark://HOST:PORT"),
    ],
)
def test_what_cannot_be_watched(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(*arguments, "--lake", "lake") == (3, message)


def test_a_lake_that_is_not_to_be_written(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with lake_lock(lake):
        code, message = run(tmp_path, "--lake", lake)
        assert (code, message) == (3, f"{lake} is being written by another ingest or watch")
    write_lake([ROOT / "captures" / "v5-qos" / "capture.pcapng"], lake, LakeOptions(payload_limit=9))
    code, message = run(tmp_path, "--lake", lake)
    assert code == 3
    assert message.startswith(f"{lake} was written with other options: --payload-limit was 9 and is 0")


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.package("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None or SparkSession.getActiveSession() is not None:
        pytest.skip("Spark runs in this process already")

    code, message = run(tmp_path, "--lake", tmp_path / "lake")
    assert code == 3
    assert message.startswith(f"Spark needs Java, and JAVA_HOME ({tmp_path}) has no bin/java: install")


@pytest.mark.parametrize("option", ["--max-bytes", "--interval", "--quiet-time", "--conf"])
def test_usage(option: str, tmp_path: Path) -> None:
    assert run(tmp_path, "--lake", tmp_path / "lake", option, "much")[0] == 2


def test_what_is_said_of_a_batch() -> None:
    rows = {"packets": 1234, "messages": 50, "findings": 2, "ingest_errors": 2}
    wrong = [CaptureError("a.pcap", "is empty")]
    report = BatchReport(7, rows, 1000, 1_700_000_000_000_000_000, 2_500_000, errors=wrong)

    assert line(report, 1_700_000_004.2) == (
        "batch 7: 1234 packets, 2 new findings, 1 error of captures, 1000 flows open, 2.5 MB waiting,"
        " newest frame 4 s old"
    )
    assert line(BatchReport(0, {"packets": 1}), 5) == "batch 0: 1 packet, 0 new findings, 0 flows open"
    # Of captures that are not of today it means nothing.
    assert " old" not in line(report, 1_800_000_000)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_watch(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with _signals() as over:
        assert not over.is_set()
        os.kill(os.getpid(), number)
        assert over.wait(5)
        # The next one ends the program.
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before


def test_errors_of_captures_are_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    run = WatchRun(WatchOptions(sources=("captures",), lake="lake", quiet=True))
    run._print_batch(
        BatchReport(0, errors=[CaptureError(f"b\udcff-{number}.pcap", "is cut", 90, 2) for number in range(12)])
    )
    run._print_batch(BatchReport(1, {"ingest_errors": 4}))

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "mqttscope: b\\xff-0.pcap: is cut at offset 90 (2 frames before it were read)"
    assert lines[10:] == ["mqttscope: 2 more errors are in the table ingest_errors"]
    assert run.errors == 12


def test_rules_that_fail_are_told_once_for_each_rule(capsys: pytest.CaptureFixture[str]) -> None:
    run = WatchRun(WatchOptions(sources=("captures",), lake="lake", quiet=True))
    for number in range(3):
        errors = [
            InternalError(rule, "a.pcap", number, "ValueError: odd", "") for rule in ("PUB101", "PUB101", "QOS201")
        ]
        run._print_batch(BatchReport(number, failures=RuleFailures(errors[: number + 1], {"PUB101": 2})))

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "mqttscope: internal error in PUB101: a.pcap, frame 0: ValueError: odd",
        "mqttscope: internal error in QOS201: a.pcap, frame 2: ValueError: odd",
    ]
    assert run.end() == 3
    assert capsys.readouterr().err == (
        "mqttscope: rules failed 6 times: this is a bug in mqttscope, and the findings are not complete\n"
    )


def test_what_is_said_before_the_first_batch() -> None:
    watch_options = WatchOptions(sources=("captures", "b*"), lake="lake", interval=2.5)

    assert WatchRun(watch_options)._begun() == "watching captures, b* for lake: every 2.5 s, until Ctrl-C"
    assert (
        WatchRun(replace(watch_options, once=True))._begun() == "watching captures, b* for lake: current contents only"
    )
