"""A watch that is killed again and again while captures grow: everything is in the lake once.

Most of the watches run on one Java that outlives them, since starting Java takes most of the time; SIGKILL hits the
driver in Python, which holds the batch and commits it.  Two are the whole program with a Java of its own.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mqttscope.lake.manifest import read_manifest
from mqttscope.lake.writer import read_table, write_lake
from mqttscope.spark.session import CONFIGURATION
from tests import tools
from tests.conftest import ROOT
from tests.spark.collection import tables
from tests.spark.folders import rotated
from tests.spark.growth import put
from tests.spark.kill_watch import ARGUMENTS, options

JAVA = {
    "spark.master": "local[2]",
    "spark.driver.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
KILLS = 10
WHOLE_PROGRAMS = (3, 8)
"""Which of them hit the program together with its Java."""
PATIENCE_S = 300
"""How long a batch may take on a machine that is busy."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of drivers that share one Java."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    tools.java()
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    before = dict(os.environ)
    os.environ.update(environment)
    conf = SparkConf(loadDefaults=False).setAll(list((CONFIGURATION | JAVA).items()))
    log = tmp_path_factory.mktemp("java") / "log"
    with log.open("wb") as noise:
        gateway = launch_gateway(conf, popen_kwargs={"stdout": noise, "stderr": noise})  # type: ignore[no-untyped-call]
    try:
        parameters = gateway.gateway_parameters
        yield environment | {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        os.environ.clear()
        os.environ.update(before)


class Growth:
    """Captures that grow, in chunks that end anywhere."""

    def __init__(self, folder: Path) -> None:
        self.whole = rotated(folder)
        self.chance = random.Random(7)
        self._sizes = dict.fromkeys(self.whole, 0)

    def go_on(self, size: int) -> None:
        """Both taps write up to so many bytes."""
        for prefix in ("tap", "dev"):
            left = self.chance.randrange(1, size)
            for path in sorted(path for path in self.whole if path.name.startswith(prefix)):
                more = min(left, len(self.whole[path]) - self._sizes[path])
                if more > 0:
                    left -= more
                    self._sizes[path] += more
                    put(path, self.whole[path][: self._sizes[path]])

    def end(self) -> None:
        """Write what is left."""
        for path, content in self.whole.items():
            put(path, content)


class Killed:
    """A watch, its lake, and the moment when it dies."""

    def __init__(self, lake: Path, environment: dict[str, str], command: list[str], log: Path) -> None:
        self.lake = lake
        self.before = read_manifest(lake).generation
        with log.open("ab") as noise:
            self.process = subprocess.Popen(
                command, env=environment, cwd=log.parent, stdout=noise, stderr=noise, start_new_session=True
            )
        self.log = log

    def wait_for(self, growth: Growth, *, middle: bool) -> None:
        """Until executors have written files that do not count yet, or a batch counts; captures grow meanwhile."""
        end = time.monotonic() + PATIENCE_S
        grown = time.monotonic()
        while not (self._is_in_the_middle() if middle else read_manifest(self.lake).generation > self.before):
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            if time.monotonic() > grown + 1:
                growth.go_on(300)
                grown = time.monotonic()
            time.sleep(0.005)

    def _is_in_the_middle(self) -> bool:
        known = read_manifest(self.lake).generation
        return any(int(path.name[:10]) > known for path in self.lake.glob("[!s]*/*.parquet"))

    def kill(self) -> bool:
        """End it without a word; returns whether it was in the middle of a batch."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return self._is_in_the_middle()


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_a_watch_that_is_killed_ten_times(java: dict[str, str], tmp_path: Path) -> None:
    folder, lake, log = tmp_path / "captures", tmp_path / "lake", tmp_path / "log"
    folder.mkdir()
    lake.mkdir()
    growth = Growth(folder)
    growth.go_on(4000)
    command = [sys.executable, "-m", "tests.spark.kill_watch", str(folder), str(lake)]
    program = [sys.executable, "-m", "mqttscope", "pipeline", "watch", str(folder), "--lake", str(lake), *ARGUMENTS,
               "--interval", "0.1", "--max-bytes", "9000", "--quiet-time", "3600"]  # fmt: skip
    for name, value in JAVA.items():
        program += ["--conf", f"{name}={value}"]
    alone = {name: value for name, value in java.items() if not name.startswith("PYSPARK_GATEWAY")}
    killed = middle = 0
    begun: list[subprocess.Popen[bytes]] = []
    try:
        while killed < KILLS:
            growth.go_on(8000)
            whole = killed in WHOLE_PROGRAMS
            watch = Killed(lake, alone if whole else java, program if whole else [*command, "on"], log)
            begun.append(watch.process)
            watch.wait_for(growth, middle=killed % 2 == 1 or killed == 0)
            middle += watch.kill()
            killed += 1
        assert middle >= KILLS // 2
        growth.end()
        done = subprocess.run([*command, "once"], env=java, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        for process in begun:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    write_lake(sorted(folder.iterdir()), tmp_path / "one", options())
    expected = tables(tmp_path / "one")
    scopes = {row["scope"] for row in read_table(tmp_path / "one", "findings").to_pylist()}
    assert scopes == {"connection", "session", "broker"}
    assert tables(lake) == expected
