"""A session of Spark that a command starts."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mqttscope.cli.spark_session import PipelineFailedError, session
from mqttscope.lake.manifest import read_manifest
from tests import tools
from tests.cli.running import capture, command, environment
from tests.proxy.rig import PATIENCE_S, end, until


def test_a_session_that_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    tools.package("pyspark")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("JAVA_HOME", os.devnull)

    with pytest.raises(PipelineFailedError, match="Spark needs Java, and JAVA_HOME"), session("local[1]", {}):
        pass


def processes(word: str) -> list[int]:
    """Processes with a word among their arguments."""
    numbers = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdigit() and word.encode() in (path / "cmdline").read_bytes():
                numbers.append(int(path.name))
    return numbers


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize("seconds", [0.0, 0.5], ids=["at once", "a little later"])
def test_java_ends_with_a_command_that_is_ended_while_it_starts(seconds: float, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    words = command("pipeline", "ingest", capture("v311-qos"), "--lake", lake, "--engine", "spark", "--no-config")
    mark = f"-Dmqttscope.mark={tmp_path}"
    words += ["--conf", f"spark.driver.extraJavaOptions={mark}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        until(lambda: len(processes(mark)) > 1 or process.poll() is not None, "the start of Java")
        time.sleep(seconds)
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        end(process)
    assert process.returncode == 143, err
    assert "Traceback" not in err
    until(lambda: not processes(mark), "the end of Java")
    assert not read_manifest(lake).generation
