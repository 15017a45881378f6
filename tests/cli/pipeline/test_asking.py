"""Which engine asks a lake; exit codes and progress."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mqttscope.cli.command import make_command
from mqttscope.cli.pipeline import asking
from mqttscope.cli.spark_session import PipelineFailedError
from mqttscope.installation import extra_command
from tests.cli.running import environment


def given(*words: str) -> asking.AskOptions:
    seen: list[asking.AskOptions] = []

    @make_command(asking.AskOptions)
    def command(ask_options: asking.AskOptions) -> int:
        seen.append(ask_options)
        return 0

    command.main(["--lake", "x", *words], standalone_mode=False)
    return seen[0]


@pytest.mark.parametrize(
    ("words", "small", "large"),
    [
        ((), False, True),
        (("--engine", "local"), False, False),
        (("--engine", "spark"), True, True),
        (("--master", "local[2]"), True, True),
        (("--conf", "spark.driver.memory=1g"), True, True),
        (("--memory", "4g"), False, False),
    ],
)
def test_which_engine_asks(
    words: tuple[str, ...], small: bool, large: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = given(*words)
    assert (options.on_spark(asking.LARGEST), capsys.readouterr().err) == (small, "")
    assert options.on_spark(asking.LARGEST + (1 << 30)) is large
    text = "mqttscope: using Spark for 5.0 GiB of tables, more than 4 GiB; --engine local uses this process\n"
    assert capsys.readouterr().err == ("" if words else text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine", "local", "--master", "local[2]"), "--engine local cannot be combined with --master"),
        (("--engine", "local", "--conf", "spark.a=b"), "--engine local cannot be combined with --master"),
        (("--engine", "spark", "--memory", "1g"), "--memory is for --engine local"),
        (("--master", "local[2]", "--memory", "1g"), "--memory is for --engine local"),
        (("--memory", "0"), "not a number of bytes"),
    ],
)
def test_options_that_exclude_each_other(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        given(*words)


def test_asking_in_this_process_needs_no_spark(lake: Path, tmp_path: Path) -> None:
    """Nor Java, nor what Spark needs of Python."""
    program = """
import sys
for name in ("pyspark", "pandas", "numpy", "pyarrow", "py4j", "mqttscope.spark"):
    sys.modules[name] = None
from mqttscope.cli.main import main
sys.argv[0] = "mqttscope"
main()
"""
    for words in (("report",), ("sql", "select count(*) from findings")):
        done = subprocess.run(
            [sys.executable, "-c", program, "pipeline", *words, "--lake", str(lake)],
            capture_output=True, env=environment({"JAVA_HOME": "/nonexistent", "TMPDIR": str(tmp_path)}), check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_said(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli.running import invoke

    for name in [name for name in sys.modules if name.startswith("mqttscope.analysis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = invoke("pipeline", "sql", "select 1", "--lake", lake)

    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "needs a package that is not installed" in done.err
    assert extra_command("lake") in done.err


def test_a_folder_that_is_no_lake(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailedError, match="is not a lake"):
        asking.manifests_of(asking.AskOptions(lakes=(str(tmp_path),)))
    assert (PipelineFailedError.exit_code, asking.BadQuestionError.exit_code) == (3, 2)


def test_steps_are_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    steps = asking.Steps()
    steps(1, 6)
    steps.clear()

    assert capsys.readouterr().err == ""


def test_several_lakes(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli.running import invoke

    other = tmp_path / "site b"
    shutil.copytree(lake, other)
    query = "select lake, count(*) as number from connections group by lake order by lake"
    done = invoke("pipeline", "sql", query, "--lake", lake, "--lake", other, "--format", "csv")
    names, counts = zip(*(line.split(",") for line in done.text.splitlines()[1:]), strict=True)
    assert set(names) == {lake.name, "site b"}
    assert len(set(counts)) == 1

    report = invoke("pipeline", "report", "--lake", lake, "--lake", other, "--server", "*:1883", "--format", "json")
    single = invoke("pipeline", "report", "--lake", lake, "--server", "*:1883", "--format", "json")
    both, single_overview = (json.loads(document.out)["overview"] for document in (report, single))
    assert both["connections"] == 2 * single_overview["connections"] > 0
    assert both["servers"] == 2 * single_overview["servers"]

    twice = invoke("pipeline", "sql", query, "--lake", lake, "--lake", lake)
    assert (twice.code, "a lake is given twice" in twice.err) == (2, True)
    # A blank separates no lakes.
    monkeypatch.setenv("MQTTSCOPE_LAKE", str(other))
    assert invoke("pipeline", "sql", "select count(*) from packets").code == 0
