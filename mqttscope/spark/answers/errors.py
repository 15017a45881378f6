"""What Spark says of failures, in one sentence."""

from __future__ import annotations

import re


def hush() -> None:
    """Keep pyspark from writing errors to standard error, with plans and traces."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def is_of_spark(error: Exception) -> bool:
    """Whether Spark says it, and not our code."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def is_of_query(error: Exception) -> bool:
    """Whether it is the query that is wrong, and not the files or machines that it was run on."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException) or not error.getSqlState():
        return False
    return not re.search(r"FAILED_READ_FILE|FILE_NOT_EXIST|PATH_NOT_FOUND", str(error))


def sentence(told: str) -> str:
    """What Spark says of an error without its codes, its plan and its trace; the place in the query is kept."""
    lines = [line.strip() for line in told.strip().splitlines()] or [""]
    first = re.sub(r"^\[[A-Z0-9_.]+\] ", "", lines[0])
    place = re.search(r"line \d+,? pos(?:ition)? \d+", told)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first).rstrip(" ;")
    where = f" ({place[0]})" if place and place[0] not in first else ""
    return (first or "Spark failed without a word") + where
