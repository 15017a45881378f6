"""Options that the commands of the pipeline share."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import click
import pytest

from mqttscope.cli.command import make_command
from mqttscope.cli.pipeline.common import PipelineFailedError, RowOptions, pairs, session, size
from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.options import LakeOptions
from tests.cli.running import capture, command, environment
from tests.proxy.rig import PATIENCE_S, end, until

CONTEXT, PARAMETER = click.Context(click.Command("ingest")), click.Option(["--conf"])


@pytest.mark.parametrize(
    ("word", "number"), [("1", 1), ("64m", 64 << 20), ("8KB", 8192), ("2g", 2 << 30), (None, None)]
)
def test_sizes(word: str | None, number: int | None) -> None:
    assert size(CONTEXT, PARAMETER, word) == number


@pytest.mark.parametrize("word", ["", "0", "m", "1.5m", "-1", "64x", "\u0663"])
def test_what_is_no_size(word: str) -> None:
    with pytest.raises(click.BadParameter, match="not a number of bytes"):
        size(CONTEXT, PARAMETER, word)


def test_pairs() -> None:
    assert pairs(CONTEXT, PARAMETER, ("a.b=c=d", "e=")) == {"a.b": "c=d", "e": ""}
    for word in ("a", "=b"):
        with pytest.raises(click.BadParameter, match="KEY=VALUE"):
            pairs(CONTEXT, PARAMETER, (word,))


def test_options_of_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mqttscope.toml").write_text('[lint]\nignore = ["PUB"]\nport = ["1884"]\n')
    seen: list[LakeOptions] = []

    @make_command(RowOptions)
    def command(given: RowOptions) -> int:
        seen.append(given.lake())
        return 0

    def made(*words: str) -> LakeOptions:
        command.main(list(words), standalone_mode=False)
        return seen.pop()

    plain = made()
    assert (plain.group, plain.payload_limit) == ("", 0)
    assert plain.dissect.ports == {1884: "mqtt"}
    assert "PUB101" not in {rule.code for rule in plain.rules}
    own = made("--no-config", "--select", "PUB101,SEC104", "--group", "a", "--payload-limit", "9", "--port", "99:ws")
    assert [rule.code for rule in own.rules] == ["PUB101", "SEC104"]
    assert (own.group, own.payload_limit, own.dissect.ports) == ("a", 9, {99: "ws"})


def test_a_session_that_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'mqttscope[spark]'")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("JAVA_HOME", os.devnull)

    with pytest.raises(PipelineFailedError, match="Spark needs Java, and JAVA_HOME"), session("local[1]", {}):
        pass


def processes(word: str) -> list[int]:
    """Processes with a word among their arguments."""
    found = []
    for one in Path("/proc").iterdir():
        with suppress(OSError):
            if one.name.isdigit() and word.encode() in (one / "cmdline").read_bytes():
                found.append(int(one.name))
    return found


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
        began = time.monotonic()
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < 8  # less than two seconds, where nothing else runs
    finally:
        end(process)
    assert process.returncode == 143, err
    assert "Traceback" not in err
    until(lambda: not processes(mark), "the end of Java")
    assert not read_manifest(lake).generation
