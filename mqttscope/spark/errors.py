"""Errors of Spark in a form that users can act on."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError, Py4JNetworkError)
"""The exceptions that Spark raises."""
_BYPASS = re.compile(r'set "?(spark\.[\w.]+\w)"? to "?(\w+)"?')
"""Pattern of the setting that would help, in Spark's messages."""
_RAISED = re.compile(r"^(?P<module>(?:\w+\.)*)(?P<name>[A-Z]\w*): (?P<text>.*)$", re.M)


def cause(error: BaseException) -> str:
    """The cause of a Spark error in one line: the Python error on an executor, if there was one.

    Errors of this program name the place themselves, so their class names are left out.
    """
    message = str(error).strip()
    python = message.rpartition("Traceback (most recent call last)")[2]
    raised = list(_RAISED.finditer(python)) if python != message else []
    if raised:
        last = raised[0]
        text = last["text"].strip()
        return text if last["module"].startswith("mqttscope.") else f"{last['name']}: {text}"
    return sentence(message)


def sentence(message: str) -> str:
    """Spark's error message without its codes, plan and trace; the position in a query stays."""
    lines = [line.strip() for line in message.strip().splitlines()] or [""]
    first = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0])
    place = re.search(r"line \d+,? pos(?:ition)? \d+", message)
    first = _BYPASS.sub(r"take --conf \1=\2", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first).rstrip(" ;")
    where = f" ({place[0]})" if place and place[0] not in first else ""
    return (first or "Spark failed without a message") + where


def is_query_error(error: BaseException) -> bool:
    """Whether the query is wrong, not the files or machines."""
    if not isinstance(error, PySparkException) or not error.getSqlState():
        return False
    return not re.search(r"FAILED_READ_FILE|FILE_NOT_EXIST|PATH_NOT_FOUND", str(error))


def hush() -> None:
    """Keep pyspark from writing errors to standard error, with plans and traces."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
