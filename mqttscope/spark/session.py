"""Sessions of Spark: one that is given, or a local one that starts without noise and says what is missing."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
DRIVER_MEMORY = "2g"
_INSTALL = (
    f"install Java {OLDEST_JAVA} or later (Debian: apt-get install openjdk-17-jre-headless, macOS: brew install "
    "openjdk@17) or let JAVA_HOME name it"
)
CONFIGURATION = {
    "spark.app.name": "mqttscope",
    "spark.driver.memory": DRIVER_MEMORY,
    # Machines with odd host names, and firewalls.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""What a session of ours has; ``spark_session(configuration=...)`` and spark-defaults.conf say more."""


class SparkUnavailable(Exception):  # noqa: N818 - a name for people
    """There is no Spark; the text says what to install, or what the log says."""


@dataclass(slots=True, frozen=True)
class Java:
    """A Java runtime."""

    path: str
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark will start; `SparkUnavailable` where there is none or it is too old."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    if home:
        # Spark looks nowhere else then.
        path = os.path.join(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise SparkUnavailable(f"Spark needs Java, and JAVA_HOME ({home}) holds none: {_INSTALL}")
    else:
        path = shutil.which("java", path=environment.get("PATH")) or ""
        if not path:
            raise SparkUnavailable(f"Spark needs Java, which is not installed: {_INSTALL}")
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(f"Spark needs Java, and {path} does not run ({error}): {_INSTALL}") from None
    said = done.stderr + done.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        first = next(iter(said.splitlines()), f"exit code {done.returncode}")
        raise SparkUnavailable(f"Spark needs Java, and {path} is none ({first}): {_INSTALL}")
    if int(match[1]) < OLDEST_JAVA:
        raise SparkUnavailable(f"Spark needs Java {OLDEST_JAVA}, and {path} is Java {match[1]}: {_INSTALL}")
    return Java(path, int(match[1]))


def spark_session(
    given: SparkSession | None = None,
    *,
    configuration: Mapping[str, str] | None = None,
    log: str | None = None,
) -> SparkSession:
    """A session: the one that is given, the one that is active, or a new one.

    A new one is that of Spark Connect where ``SPARK_REMOTE`` says so, that of spark-submit inside of it, and else a
    local one with all cores unless ``configuration`` (``spark.master``) or spark-defaults.conf name a cluster.
    ``log``: where the noise of Java goes; by default a temporary file, removed at the end.  Raises `SparkUnavailable`.
    """
    if given is not None:
        return given
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailable(f"pyspark is not installed ({error}): pip install 'mqttscope[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Executors are to run this Python, not the one that is called python3 there.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = {**CONFIGURATION, **(configuration or {})}
    if (
        "SPARK_REMOTE" in os.environ
        or "SPARK_CONNECT_MODE_ENABLED" in os.environ
        or "PYSPARK_GATEWAY_PORT" in os.environ
    ):
        # What is running already has its configuration.
        return SparkSession.builder.getOrCreate()
    find_java()
    return _start(wanted, log)


def _start(wanted: Mapping[str, str], log: str | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    path = log or _temporary()
    conf = SparkConf(loadDefaults=False).setAll(list(wanted.items()))
    try:
        with open(path, "ab") as noise:
            # Otherwise every start prints several lines, and every failing task a hundred.
            gateway = launch_gateway(conf, popen_kwargs={"stdout": noise, "stderr": noise})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError as error:
        raise SparkUnavailable(f"Spark does not start: {_last_line(path) or error}; {path} has all of it") from None
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        cause = next((line for line in said if "Exception" in line or "Error" in line), said[0])
        _keep(path)
        raise SparkUnavailable(f"Spark does not start: {cause}; {path} has all of it") from None
    return SparkSession.builder.getOrCreate()


_kept: set[str] = set()


def _keep(path: str) -> None:
    _kept.add(path)


def _temporary() -> str:
    handle, path = tempfile.mkstemp(prefix="mqttscope-spark-", suffix=".log")
    os.close(handle)
    atexit.register(_remove, path)
    return path


def _remove(path: str) -> None:
    # An error that ended the program may be explained in there.
    if path not in _kept and not hasattr(sys, "last_type"):
        with suppress(OSError):
            os.unlink(path)


def _last_line(path: str) -> str:
    """What Java said last that tells something."""
    _keep(path)
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip() and not line.lstrip().startswith(("at ", "WARNING:"))]
    return lines[-1] if lines else ""
