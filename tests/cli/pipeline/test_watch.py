"""``pipeline watch`` without Spark: what is wrong is said before Spark starts.  What it does: spark/test_watch.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.cli.main import group
from mqttscope.lake.files import lake_lock
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.writer import write_lake
from tests.conftest import ROOT


def run(*arguments: Any) -> tuple[int, str]:
    done = CliRunner().invoke(group, ["pipeline", "watch", *map(str, arguments)], standalone_mode=False)
    assert done.exception is not None
    return getattr(done.exception, "exit_code", 0), str(getattr(done.exception, "message", done.exception))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing",), "missing does not exist"),
        (("s3://bucket/a",), "s3://bucket/a is no path: only captures on file systems can be followed while they grow"),
        ((".", "--master", "sc://host"), "watch does not run over Spark Connect; take local[*] or spark://HOST:PORT"),
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
    assert message.startswith(f"{lake} was written with other options, rules or schemas")


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None or SparkSession.getActiveSession() is not None:
        pytest.skip("Spark runs in this process already")

    code, message = run(tmp_path, "--lake", tmp_path / "lake")
    assert code == 3
    assert message.startswith(f"Spark needs Java, and JAVA_HOME ({tmp_path}) holds none: install Java 17 or later")


@pytest.mark.parametrize("option", ["--max-bytes", "--interval", "--quiet-time", "--conf"])
def test_usage(option: str, tmp_path: Path) -> None:
    assert run(tmp_path, "--lake", tmp_path / "lake", option, "much")[0] == 2
