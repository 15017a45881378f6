"""Sends this package to the executors.

Spark sends its executors only the names of functions and classes of this package, not their code.  On this machine
they are installed.  On a cluster, and on a server of Spark Connect, the package is sent along: a zip
of its Python.  Other packages have to be installed there; a small job checks them first.
"""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from mqttscope import __version__
from mqttscope.spark.java import SparkUnavailableError
from mqttscope.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("lz4.frame", "msgspec", "orjson", "pyarrow", "rich", "zstandard")
"""Modules that executors need besides Python and Spark."""
PACKAGES = ("mqttscope", "pyspark_mqttscope")
SLOTS = 1024
"""Maximum number of checking tasks: one for each core that Spark has."""
SPARE_TASKS = 8
"""Tasks for executors that start during the check."""
_NAMED = 3
_EPOCH = (1980, 1, 1, 0, 0, 0)

_served: WeakSet[SparkSession] = WeakSet()
_registered: WeakSet[SparkSession] = WeakSet()


def ship(spark: SparkSession) -> bool:
    """Send this package to the executors of a session, and register the data source ``mqttcapture``.

    Returns whether anything was sent: executors of a local master use the installed package, and a session gets the
    package once.  Raises `SparkUnavailableError` with names if executors lack something.
    """
    if spark in _served:
        return False
    sends = not is_local(spark)
    if sends:
        spark.addArtifacts(str(archive()), pyfile=True)
        examine(spark)
    register(spark)
    _served.add(spark)
    return sends


def register(spark: SparkSession) -> None:
    """Register the data source ``mqttcapture`` with a session.

    Spark finds it by itself only if it is installed, and not if the path of its Python contains a blank: it asks a
    shell for that program, without quotes.
    """
    if spark not in _registered:
        from mqttscope.spark.source import MqttCapture

        spark.dataSource.register(MqttCapture)
        _registered.add(spark)


def is_local(spark: SparkSession) -> bool:
    """Whether the executors of a session run on this machine, with the installed packages.

    For a server of Spark Connect that is unknown.
    """
    if is_connect(spark):
        return False
    master = spark.conf.get("spark.master") or ""
    return master.partition("[")[0] == "local"


@cache
def archive() -> Path:
    """A zip of this package, in a temporary folder that is removed at the end; its name contains version and digest."""
    folder = Path(tempfile.mkdtemp(prefix="mqttscope-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_archive(folder)


def write_archive(folder: Path) -> Path:
    """Write a zip of this package as installed; equal files always give equal bytes."""
    fresh = folder / "fresh.zip"
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for package in PACKAGES:
            for name, data in sorted(_contents(files(package), package)):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                zip_file.writestr(entry, data)
    # Spark refuses another file with this name.
    digest = hashlib.sha256(fresh.read_bytes()).hexdigest()[:12]
    return fresh.rename(folder / f"mqttscope-{__version__}-{digest}.zip")


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _contents(entry, f"{name}/{entry.name}")
        elif not entry.name.endswith(".pyc"):
            yield f"{name}/{entry.name}", entry.read_bytes()


def examine(spark: SparkSession, needed: Sequence[str] = NEEDED) -> None:
    """Check the modules of executors; `SparkUnavailableError` lists missing ones by machine.

    There are as many tasks as cores, and no task waits for a certain core, so that they are distributed evenly.
    """
    from pyspark.sql.functions import lit, udf

    from mqttscope.spark.errors import SPARK_ERRORS

    # Without Arrow, which may be missing.
    ask = udf(missing_modules, useArrow=False)
    try:
        tasks = spark.range(SLOTS).union(spark.range(0, SPARE_TASKS, 1, SPARE_TASKS))
        rows = tasks.select(ask(lit(" ".join(needed)), "id")).collect()
    except SPARK_ERRORS as error:
        raise SparkUnavailableError(f"executors cannot run mqttscope: {_cause(str(error))}") from None
    faults = sorted({row[0] for row in rows} - {""})
    if faults:
        more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        raise SparkUnavailableError(
            f"executors lack packages that mqttscope needs: {'; '.join(faults[:_NAMED])}{more}. Install them for that "
            "Python, or let PYSPARK_PYTHON name one that has them"
        )


def missing_modules(needed: str, _: int) -> str:
    """Runs on executors: the modules that cannot be imported there; empty if all can."""
    missing = _missing(needed)
    if not missing:
        return ""
    import socket

    version = ".".join(map(str, sys.version_info[:3]))
    return f"{', '.join(missing)} on {socket.gethostname()} (Python {version}, {sys.executable})"


@cache
def _missing(needed: str) -> list[str]:
    missing = []
    for name in needed.split():
        package = name.partition(".")[0]
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            missing.append(package if error.name in (name, package) else f"{package} ({error})")
        except Exception as error:
            missing.append(f"{package} ({error})")
    return missing


def _cause(text: str) -> str:
    """The part of Spark's message about a failed job that a user can act on."""
    versions = re.search(r"different version: ([\d.]+) than that in driver:? ([\d.]+)", text)
    if versions:
        return (
            f"they run Python {versions[1]}, and this is Python {versions[2]}: let PYSPARK_PYTHON name a Python of the "
            "same version on all machines"
        )
    program = re.search(r'Cannot run program "([^"]*)"', text)
    if program:
        return f"they have no program {program[1]}: let PYSPARK_PYTHON name the Python to run there"
    messages = re.findall(r"(?m)^(?:: )?(?:\w+\.)*\w*(?:Error|Exception): (.+)$", text)
    return str(messages[-1]) if messages else next(iter(text.splitlines()), "Spark gives no reason")
