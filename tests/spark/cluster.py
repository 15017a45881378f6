"""A real cluster and a real server of Spark Connect on this machine, whose Python does not have this package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests import tools
from tests.conftest import ROOT

OURS = re.compile(r"_*(editable_+)?(impl_+)?(pyspark_)?mqttscope|.*\.pth$", re.IGNORECASE)
"""What executors are not to have, in the folder of packages."""
STARTED_S = 200
"""So long may a program take to start, and a job to run, on a machine that is busy with other tests: seconds."""
JOB_S = 800
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Java that starts soon: it compiles little, and believes the classes of Spark."""


def needs_spark(*modules: str) -> None:
    """Skip the calling test where Spark cannot be had, or one of the modules."""
    tools.java()
    for name in modules:
        tools.package(name)


def bare_python(folder: Path) -> str:
    """A Python that has every package of this one but ours: the program."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    for name in ("purelib", "platlib"):
        for path in Path(sysconfig.get_path(name)).iterdir():
            if not OURS.match(path.name) and not (packages / path.name).exists():
                (packages / path.name).symlink_to(path)
    done = subprocess.run(
        [python, "-c", "import mqttscope"], cwd=folder, env=environment(), capture_output=True, check=False
    )
    assert b"No module named 'mqttscope'" in done.stderr, done.stderr
    return str(python)


def environment(**more: str) -> dict[str, str]:
    """The environment of a program that is to know nothing of this one's packages."""
    texts = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR") if name in os.environ}
    return texts | more


class Programs:
    """Programs of Spark that run until the end of a block, in a folder that is not the source tree."""

    def __init__(self, folder: Path, python: str, memory: str) -> None:
        import pyspark

        self.folder = folder
        self.home = Path(pyspark.__file__).parent
        self.environment = environment(
            SPARK_HOME=str(self.home), SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY=memory,
            SPARK_DAEMON_JAVA_OPTS=SMALL, PYSPARK_PYTHON=python,
        )  # fmt: skip
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str, program: str, *arguments: str) -> Path:
        """Start a program; returns its log."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            # The script becomes Java itself, so that its number is that of Java.
            self._running.append(
                subprocess.Popen(
                    [self.home / "bin" / program, *arguments],
                    cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                )
            )  # fmt: skip
        return log

    def says(self, log: Path, pattern: str, *, times: int = 1) -> str:
        """Wait until a log has a line so many times; returns the first group of the last."""
        until = time.monotonic() + STARTED_S
        while time.monotonic() < until:
            result = re.findall(pattern, log.read_text("utf-8", "replace"))
            if len(result) >= times:
                return str(result[-1])
            assert all(process.poll() is None for process in self._running), log.read_text("utf-8", "replace")
            time.sleep(0.1)
        raise AssertionError(f"{log.name} does not say {pattern}: {log.read_text('utf-8', 'replace')}")


@contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, str]]:
    """A master and two workers of one core: its address, and the Python of its executors."""
    python = bare_python(folder / "python")
    with Programs(folder, python, "256m") as programs:
        base = "org.apache.spark.deploy"
        anywhere = ("--host", "127.0.0.1", "--webui-port", "0")
        log = programs.start("master", "spark-class", f"{base}.master.Master", *anywhere, "--port", "0")
        address = programs.says(log, r"Starting Spark master at (spark://\S+)")
        for name in ("first", "second"):
            programs.start(
                name, "spark-class", f"{base}.worker.Worker",
                *anywhere, "--cores", "1", "--memory", "600m", "--work-dir", str(folder / name), address,
            )  # fmt: skip
        programs.says(log, r"(Registering worker)", times=2)
        yield address, python


@contextmanager
def connect_server(folder: Path) -> Iterator[tuple[str, str]]:
    """A server of Spark Connect with two cores: its address, and its Python."""
    python = bare_python(folder / "python")
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": SMALL,
    }
    with Programs(folder, python, "700m") as programs:
        log = programs.start(
            "server", "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--master", "local[2]", *(word for item in settings.items() for word in ("--conf", "=".join(item))),
            "spark-internal",
        )  # fmt: skip
        port = programs.says(log, r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}", python


@dataclass(slots=True)
class Ingest:
    """One ingest of a job: what, and into which lake."""

    sources: list[str]
    lake: str
    settings: dict[str, str] = field(default_factory=dict)


def run_job(
    folder: Path, python: str, configuration: dict[str, str], ingests: list[Ingest], installed: Path | None = None
) -> dict[str, Any]:
    """Run `tests.spark.cluster_job` as a program of its own, which knows this package; returns what it found.

    ``installed``: a tree whose package the workers have too, as where it is installed.
    """
    settings = {"configuration": configuration, "ingests": [asdict(ingest) for ingest in ingests]}
    script = Path(__file__).with_name("cluster_job.py")
    shared = {"PYTHONPATH": str(installed)} if installed else {}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, installed or ROOT, json.dumps(settings)],
        cwd=folder, env=environment(PYSPARK_PYTHON=python, **shared),
        capture_output=True, text=True, timeout=JOB_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def check_job(document: dict[str, Any], python: str) -> None:
    """Whether the package came by the zip, and what was missing and interrupted was dealt with."""
    assert document["shipped"] == [True, False]
    (path,) = document["paths"]
    assert re.search(r"/mqttscope-[\w.]+-[0-9a-f]{12}\.zip/mqttscope/mqtt/codec\.py$", path)
    assert document["missing"].startswith("executors lack packages that mqttscope needs: no_such_package on ")
    assert f", {python}). Install them" in document["missing"]
    # The tasks would have continued for minutes.
    assert document["interrupted_s"] < 60
