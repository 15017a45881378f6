"""Errors of Spark as people should read them."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError, Py4JNetworkError)
"""What Spark raises, whatever went wrong."""
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
    first = next(iter(said.splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
