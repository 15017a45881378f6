"""Errors of Spark in a form that people can act on."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError, Py4JNetworkError)
"""What Spark raises for any error."""
_BYPASS = re.compile(r'set "?(spark\.[\w.]+\w)"? to "?(\w+)"?')
"""How Spark names the setting that would help."""
_RAISED = re.compile(r"^(?P<module>(?:\w+\.)*)(?P<name>[A-Z]\w*): (?P<text>.*)$", re.M)


def cause(error: BaseException) -> str:
    """What Spark raised, in one line: the error of the Python that ran on an executor where it was one.

    Errors of this program say the place themselves, so that their names are left out.
    """
    said = str(error).strip()
    python = said.rpartition("Traceback (most recent call last)")[2]
    raised = list(_RAISED.finditer(python)) if python != said else []
    if raised:
        last = raised[0]
        text = last["text"].strip()
        return text if last["module"].startswith("mqttscope.") else f"{last['name']}: {text}"
    return sentence(said)


def sentence(told: str) -> str:
    """Spark's message about an error without its codes, its plan and its trace; the place in a query is kept."""
    lines = [line.strip() for line in told.strip().splitlines()] or [""]
    first = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0])
    place = re.search(r"line \d+,? pos(?:ition)? \d+", told)
    first = _BYPASS.sub(r"take --conf \1=\2", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first).rstrip(" ;")
    where = f" ({place[0]})" if place and place[0] not in first else ""
    return (first or "Spark failed without a word") + where


def is_of_query(error: BaseException) -> bool:
    """Whether it is the query that is wrong, and not the files or machines that it was run on."""
    if not isinstance(error, PySparkException) or not error.getSqlState():
        return False
    return not re.search(r"FAILED_READ_FILE|FILE_NOT_EXIST|PATH_NOT_FOUND", str(error))


def hush() -> None:
    """Keep pyspark from writing errors to standard error, with plans and traces."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
