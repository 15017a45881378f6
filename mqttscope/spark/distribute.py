"""Sends this package to the executors.

What Spark sends to its executors names functions and classes of this package; it does not hold them.  On this machine
they are found where they are installed.  On a cluster, and on a server of Spark Connect, the package comes along: a zip
of its Python.  Other packages have to be there; a small job asks for them first.
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
"""What executors have to have beside Python and Spark: modules."""
PACKAGES = ("mqttscope", "pyspark_mqttscope")
SLOTS = 1024
"""So many tasks at most look for what is missing: one for each core that Spark knows of."""
SPARE_TASKS = 8
"""Tasks for executors that come while the others look."""
_NAMED = 3
_EPOCH = (1980, 1, 1, 0, 0, 0)

_served: WeakSet[SparkSession] = WeakSet()
_registered: WeakSet[SparkSession] = WeakSet()


def ship(spark: SparkSession) -> bool:
    """Make this package known to the executors of a session, and the data source ``mqttcapture`` to the session.

    Returns whether anything was sent: executors of a local master run on what is installed here, and a session gets
    the package once.  Raises `SparkUnavailableError` where executors lack something, with names.
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
    """Make the data source ``mqttcapture`` known to a session.

    Spark finds it by itself only in what is installed, and not where the path of its Python has a blank: it asks a
    shell whether there is such a program, without quotes.
    """
    if spark not in _registered:
        from mqttscope.spark.source import MqttCapture

        spark.dataSource.register(MqttCapture)
        _registered.add(spark)


def is_local(spark: SparkSession) -> bool:
    """Whether the executors of a session run beside this process, with what is installed here.

    Of a server of Spark Connect that is unknown.
    """
    if is_connect(spark):
        return False
    master = spark.conf.get("spark.master") or ""
    return master.partition("[")[0] == "local"


@cache
def archive() -> Path:
    """A zip of this package, in a temporary folder that is removed at the end; its name holds version and digest."""
    folder = Path(tempfile.mkdtemp(prefix="mqttscope-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_archive(folder)


def write_archive(folder: Path) -> Path:
    """Write a zip of this package as it is installed; the same files always give the same bytes."""
    fresh = folder / "fresh.zip"
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as made:
        for package in PACKAGES:
            for name, data in sorted(_contents(files(package), package)):
                one = zipfile.ZipInfo(name, _EPOCH)
                one.compress_type, one.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                made.writestr(one, data)
    # Spark refuses another file of the same name.
    digest = hashlib.sha256(fresh.read_bytes()).hexdigest()[:12]
    return fresh.rename(folder / f"mqttscope-{__version__}-{digest}.zip")


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for one in folder.iterdir():
        if one.is_dir():
            if one.name != "__pycache__":
                yield from _contents(one, f"{name}/{one.name}")
        elif not one.name.endswith(".pyc"):
            yield f"{name}/{one.name}", one.read_bytes()


def examine(spark: SparkSession, needed: Sequence[str] = NEEDED) -> None:
    """Ask executors for what they have; `SparkUnavailableError` says what is missing on which machine.

    The tasks are as many as the cores, and none waits for a certain one, so that they are shared out evenly.
    """
    from pyspark.sql.functions import lit, udf

    from mqttscope.spark.errors import SPARK_ERRORS

    # Without Arrow, which may be what is missing.
    ask = udf(look, useArrow=False)
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


def look(needed: str, _: int) -> str:
    """Runs on executors: which of the modules cannot be imported here; empty when all can."""
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
    """What a person can act on of what Spark says about a failed job."""
    versions = re.search(r"different version: ([\d.]+) than that in driver:? ([\d.]+)", text)
    if versions:
        return (
            f"they run Python {versions[1]}, and this is Python {versions[2]}: let PYSPARK_PYTHON name a Python of the "
            "same version on all machines"
        )
    program = re.search(r'Cannot run program "([^"]*)"', text)
    if program:
        return f"they have no program {program[1]}: let PYSPARK_PYTHON name the Python that is to run there"
    told = re.findall(r"(?m)^(?:: )?(?:\w+\.)*\w*(?:Error|Exception): (.+)$", text)
    return str(told[-1]) if told else next(iter(text.splitlines()), "Spark does not say why")
