"""Sessions: Java is looked for before, and what is missing is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqttscope.spark import session as module
from mqttscope.spark.session import Java, SparkUnavailable, find_java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java(home: Path, says: str, *, code: int = 0) -> dict[str, str]:
    """An environment with a program that says it is Java."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(home)}


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_java_is_found(tmp_path: Path, says: str, version: int) -> None:
    environment = java(tmp_path / "home", says)

    assert find_java(environment) == Java(str(tmp_path / "home" / "bin" / "java"), version)
    assert find_java({"PATH": str(tmp_path / "home" / "bin")}).version == version


@pytest.mark.parametrize(
    ("says", "code", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 0, r"^Spark needs Java 17, and .* is Java 11: install .*jre-headless"),
        ('java version "1.8.0_292"', 0, "is Java 8: install"),
        ("Error occurred during initialization", 1, r"is none \(Error occurred during initialization\): install"),
    ],
)  # fmt: skip
def test_java_that_does_not_do(tmp_path: Path, says: str, code: int, message: str) -> None:
    with pytest.raises(SparkUnavailable, match=message):
        find_java(java(tmp_path, says, code=code))


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="which is not installed: install Java 17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME \(/nowhere\) holds none: install Java 17"):
        find_java({"JAVA_HOME": "/nowhere"})


def test_a_session_that_is_given_is_taken() -> None:
    """Whatever it is: that of Connect has another class."""
    given: Any = object()

    assert spark_session(given) is given


def test_the_active_session_is_taken(spark: SparkSession) -> None:
    assert spark_session() is spark


def test_a_session_of_ours(spark: SparkSession) -> None:
    assert spark.version >= "4.2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_logs_go_unless_they_explain_something(tmp_path: Path) -> None:
    for name in ("gone", "kept"):
        (tmp_path / name).write_text("at org.apache\nCaused by: nothing\nat java.lang\n")
    assert module._last_line(str(tmp_path / "kept")) == "Caused by: nothing"
    for name in ("gone", "kept", "never"):
        module._remove(str(tmp_path / name))

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


SCRIPT = """
import sys
from mqttscope.spark.session import SparkUnavailable, spark_session
try:
    spark_session(configuration=dict(one.split("=", 1) for one in sys.argv[2:]), log=sys.argv[1])
except SparkUnavailable as error:
    print(error)
"""


@pytest.mark.usefixtures("spark")  # for its reasons to skip
def test_what_keeps_spark_from_starting_is_said_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log), "spark.driver.memory=1k"],
        capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("Spark does not start: ")
    assert done.stdout.rstrip().endswith(f"{log} has all of it")
    assert log.read_text()
